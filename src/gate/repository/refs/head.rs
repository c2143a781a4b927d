//! Reads HEAD, which names a branch or a commit.

use std::io;

use super::loose::{LARGEST_LOOSE_REF, Value, parse_loose};
use super::name::is_valid_name;
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::{UntrustedDir, is_host_failure};

/// The target that Git writes to HEAD if the refs are in a reftable.
pub const REFTABLE_HEAD: &str = "refs/heads/.invalid";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// The full name of a branch, which need not exist.
    Branch(String),
    Detached(ObjectId),
}

/// Reads HEAD; `None` if it is missing or neither a branch nor a commit.
pub fn read_head(git_dir: &UntrustedDir) -> io::Result<Option<Head>> {
    Ok(match read_head_value(git_dir)? {
        Some(Value::Id(id)) => Some(Head::Detached(id)),
        Some(Value::Symbolic(name)) if name.starts_with("refs/heads/") && is_valid_name(&name) => {
            Some(Head::Branch(name))
        }
        _ => None,
    })
}

/// Returns the content of the file.
pub fn head_text(head: &Head) -> String {
    match head {
        Head::Branch(name) => format!("ref: {name}\n"),
        Head::Detached(id) => format!("{id}\n"),
    }
}

pub fn head_target(git_dir: &UntrustedDir) -> io::Result<Option<String>> {
    let value = read_head_value(git_dir)?;
    Ok(value.and_then(|value| if let Value::Symbolic(target) = value { Some(target) } else { None }))
}

fn read_head_value(git_dir: &UntrustedDir) -> io::Result<Option<Value>> {
    match git_dir.read("HEAD", LARGEST_LOOSE_REF) {
        Ok(content) => Ok(content.as_deref().and_then(parse_loose)),
        Err(error) if is_host_failure(&error) => Err(error),
        Err(_) => Ok(None),
    }
}
