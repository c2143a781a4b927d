//! Decides which names refs may have. Reads nothing.

/// The host stores a ref under a path of the same length, and below a reflog's directory.
pub const LONGEST_NAME: usize = 1024;
/// File names have at most 255 bytes, five of which Git needs for `.lock`.
pub const LONGEST_COMPONENT: usize = 250;

const RESERVED_NAMES: [&str; 4] = ["refs/heads/HEAD", "refs/heads", "refs/remotes", "refs/tags"];

/// Applies the rules of `git check-ref-format` to a full name. Four rules are added: no component
/// starts with `-`, which a command could take for an option; `refs/heads/HEAD` is refused, as `git
/// branch` does; so are the directories that Git keeps below `refs`; and the name is not too long
/// for a file.
pub fn is_valid_name(name: &str) -> bool {
    has_valid_format(name) && !RESERVED_NAMES.contains(&name)
}

/// Returns whether refs may have this name or may be in a directory of this name.
pub fn has_valid_format(name: &str) -> bool {
    let is_forbidden = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    name.len() <= LONGEST_NAME
        && name.strip_prefix("refs/").is_some_and(|rest| rest.split('/').all(is_valid_component))
        && !name.bytes().any(is_forbidden)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
}

fn is_valid_component(component: &str) -> bool {
    (1..=LONGEST_COMPONENT).contains(&component.len())
        && !component.starts_with(['.', '-'])
        && !component.ends_with(".lock")
}

/// Returns the names of the directories above a ref.
pub fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').filter_map(|(end, _)| name.get(..end))
}
