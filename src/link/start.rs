//! The description of a command that is started over the link, apart from its arguments and variables.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::HelperConfig;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The working directory inside.
    #[serde(with = "crate::saved_path")]
    pub directory: PathBuf,
    /// Rows and columns of the terminal; `None` for separate streams.
    pub terminal: Option<(u16, u16)>,
    /// Whether the command may make sockets of the local system only.
    pub is_offline: bool,
    pub helper: HelperConfig,
}
