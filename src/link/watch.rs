//! Names the directories of a sandbox from which changes come back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// Paths inside. They are read in this order, so that what names other files comes before them.
    #[serde(with = "crate::saved_path")]
    pub roots: Vec<PathBuf>,
    /// Paths inside whose content does not come back.
    #[serde(with = "crate::saved_path")]
    pub left_out: Vec<PathBuf>,
}
