//! What the guest changes: the directory itself, or a copy of it.

use std::fmt;

use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::{Name, Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::{FromNode, Node, Problem};
use crate::ui::suggest::nearest;

/// The workspace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceMode {
    /// The directory itself.
    Live,
    /// A new copy, which is kept until it is discarded.
    Copy,
    /// A copy that an earlier sandbox left, by its id.
    Kept(Name),
}

const LIVE: &str = "live";
const COPY: &str = "copy";

impl fmt::Display for WorkspaceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkspaceMode::Live => f.write_str(LIVE),
            WorkspaceMode::Copy => f.write_str(COPY),
            WorkspaceMode::Kept(id) => id.fmt(f),
        }
    }
}

impl Value for WorkspaceMode {
    const NAME: &'static str = "a workspace";
    const FORM: &'static str = "`live`, `copy`, or the id of a copy that `sandpen ps` lists";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text {
            LIVE => Ok(WorkspaceMode::Live),
            COPY => Ok(WorkspaceMode::Copy),
            text => Name::parse(text).map(WorkspaceMode::Kept),
        }
    }
}

impl FromNode for WorkspaceMode {
    /// A file cannot choose among the copies that exist: it is read for every sandbox.
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        let mode: LiveOrCopy = node.parse()?;
        Ok(if mode == LiveOrCopy::Live { WorkspaceMode::Live } else { WorkspaceMode::Copy })
    }

    fn schema() -> Json {
        json!({ "enum": [LIVE, COPY] })
    }
}

impl OptionValue for WorkspaceMode {
    fn to_toml(&self) -> Toml {
        Toml::String(self.to_string())
    }
}

/// What a file may contain.
#[derive(PartialEq, Eq)]
enum LiveOrCopy {
    Live,
    Copy,
}

impl Value for LiveOrCopy {
    const NAME: &'static str = "a workspace";
    const FORM: &'static str = "`live` or `copy`";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text {
            LIVE => Ok(LiveOrCopy::Live),
            COPY => Ok(LiveOrCopy::Copy),
            _ => Err(nearest(text, [LIVE, COPY]).map_or(Reason::Form, |near| Reason::DidYouMean(near.to_owned()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_name() {
        assert_eq!(WorkspaceMode::parse("live"), Ok(WorkspaceMode::Live));
        assert_eq!(WorkspaceMode::parse("copy"), Ok(WorkspaceMode::Copy));
        for text in ["a1b2", "review-2"] {
            assert_eq!(WorkspaceMode::parse(text).map(|mode| mode.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "../x", "A", "a/b", "Live", "copy "] {
            assert!(WorkspaceMode::parse(text).is_err(), "{text:?}");
        }
    }
}
