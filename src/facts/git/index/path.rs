//! Decides which paths may be in an index, by the rules of Git for all platforms.

use super::MODE_LINK;

/// Code points that HFS+ ignores in file names.
const HFS_IGNORED: [std::ops::RangeInclusive<char>; 4] =
    ['\u{200c}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{206a}'..='\u{206f}', '\u{feff}'..='\u{feff}'];

/// Returns whether Git accepts a path on every platform, as with `core.protectHFS` and
/// `core.protectNTFS`. `git update-index` checks it again, but refuses all entries because of one.
pub fn is_valid_path(path: &[u8], mode: u32) -> bool {
    !path.is_empty()
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|component| !matches!(component, b"" | b"." | b".."))
        && starts_of_names(path).all(|name| !(is_git_dir(name) || mode == MODE_LINK && is_gitmodules(name)))
}

/// Returns the rest of the path at each component. Windows separates components by backslashes, too.
fn starts_of_names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separators = path.iter().enumerate().filter(|(_, byte)| matches!(byte, b'/' | b'\\'));
    std::iter::once(path).chain(separators.filter_map(|(index, _)| path.get(index + 1..)))
}

/// Returns whether a path starts with a name that is `.git` on some file system.
fn is_git_dir(path: &[u8]) -> bool {
    let after = strip_prefix_ignoring_case(path, b".git").or_else(|| strip_prefix_ignoring_case(path, b"git~1"));
    after.is_some_and(|rest| ends_on_ntfs(rest, b"/\\:")) || is_on_hfs(path, ".git")
}

/// Returns whether a path is `.gitmodules` on some file system. Git refuses a link of that name
/// because it would read the target as its own configuration.
fn is_gitmodules(path: &[u8]) -> bool {
    let numbered = |prefix, digits: std::ops::RangeInclusive<u8>| {
        let (digit, rest) = strip_prefix_ignoring_case(path, prefix)?.split_first()?;
        digits.contains(digit).then_some(rest)
    };
    let after = strip_prefix_ignoring_case(path, b".gitmodules").or_else(|| numbered(b"gitmod~", b'1'..=b'4'));
    after.is_some_and(|rest| ends_on_ntfs(rest, b":"))
        || is_ntfs_hashed_gitmodules(path)
        || is_on_hfs(path, ".gitmodules")
}

/// Returns whether a path starts with a short name that NTFS makes from a hash, such as `GI7EBA~1`
/// or `GI7E~123`: the more digits, the fewer letters.
fn is_ntfs_hashed_gitmodules(path: &[u8]) -> bool {
    const LETTERS: &[u8] = b"gi7eba";
    let Some((name, rest)) = path.split_at_checked(LETTERS.len() + 2) else { return false };
    let Some(tilde) = name.iter().position(|byte| *byte == b'~') else { return false };
    let (letters, digits) = name.split_at(tilde);
    let digits = digits.get(1..).unwrap_or_default();
    LETTERS.get(..tilde).is_some_and(|prefix| letters.eq_ignore_ascii_case(prefix))
        && matches!(digits.first(), Some(b'1'..=b'9'))
        && digits.iter().all(u8::is_ascii_digit)
        && ends_on_ntfs(rest, b":")
}

fn strip_prefix_ignoring_case<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = path.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// NTFS ignores dots and spaces at the end of a name; a colon starts the name of a stream.
fn ends_on_ntfs(rest: &[u8], separators: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b'.' | b' ')).is_none_or(|byte| separators.contains(byte))
}

/// Returns whether a path starts with a component that HFS+ takes for `name`. Bytes that are not
/// UTF-8 end the component, as in Git.
fn is_on_hfs(path: &[u8], name: &str) -> bool {
    let component = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    let text = component.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default();
    let mut found = text.chars().filter(|c| !HFS_IGNORED.iter().any(|range| range.contains(c)));
    name.chars().all(|expected| found.next().is_some_and(|c| c.to_ascii_lowercase() == expected))
        && found.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::test_repository::{TestRepository, git};

    const MODE_FILE: u32 = 0o100_644;

    /// Names that are refused as a component, names refused as a link, and ordinary names.
    const NAMES: &[&str] = &[
        "",
        ".",
        "..",
        ".git",
        ".GIT",
        ".gIt",
        "git~1",
        "GIT~1",
        ".git.",
        ".git ",
        ".git. . ",
        "git~1 .",
        ".git::$INDEX_ALLOCATION",
        ".git:x",
        "git~1:",
        ".git...:x",
        ".g\u{200c}it",
        "\u{200e}.git",
        ".git\u{feff}",
        ".gi\u{202a}t",
        ".\u{206f}GIT",
        ".git\\x",
        "x\\.git",
        "x\\git~1\\y",
        "x\\.git \\y",
        ".gitmodules",
        ".GITMODULES",
        ".gitmodules .",
        ".gitmodules:x",
        ".gitmodules::$DATA",
        "gitmod~1",
        "GITMOD~4",
        "gitmod~1 .",
        "gi7eba~1",
        "GI7EBA~9",
        "gi7eb~10",
        "gi7e~123",
        "~1234567",
        "gi7eba~1:x",
        "x\\gi7eba~1",
        ".gitmo\u{200c}dules",
        "gitmod~5",
        "gitmod~0",
        "gi7eba~0",
        "gi7eba~a",
        "gi7eb~01",
        "gi7ebax~1",
        "gi7fba~1",
        ".gitmodules\\x",
        ".gitmodulesx",
        ".gitx",
        ".gi",
        ".gitignore",
        "git~2",
        "git~10",
        "xgit~1",
        "x.git",
        ".git x",
        "...",
        ".x",
        "x.",
        "x ",
        "é",
        "a\\b",
        "\\",
        "a:b",
        "-x",
        "~",
        "gi7eba",
        "\u{200c}",
        ".gît",
        "git",
        "x\u{200c}.git",
    ];

    #[test]
    fn paths_are_valid_if_git_accepts_them() {
        let repository = TestRepository::new(&[]);
        let blob = repository.git_with_input(&["hash-object", "-w", "--stdin"], b"text");
        let mut wrong = Vec::new();
        for name in NAMES {
            for path in [name.to_string(), format!("a/{name}"), format!("{name}/a"), format!("a/{name}/b")] {
                for mode in [MODE_FILE, MODE_LINK] {
                    let protect = ["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"];
                    let entry = format!("{mode:o},{blob},{path}");
                    let arguments = [&protect[..], &["update-index", "--add", "--cacheinfo", &entry]].concat();
                    let is_accepted = git(&repository.at(""), &arguments, b"").0;
                    let _ = std::fs::remove_file(repository.at(".git/index"));
                    if is_valid_path(path.as_bytes(), mode) != is_accepted {
                        wrong.push((path.clone(), mode, is_accepted));
                    }
                }
            }
        }
        assert_eq!(wrong, []);
    }

    #[test]
    fn bytes_that_are_not_text_are_checked() {
        for path in [b"a\0b" as &[u8], b".git\xff", b"/a", b"a/", b"a//b", b"a/../b"] {
            assert!(!is_valid_path(path, MODE_FILE), "{path:?}");
        }
        for path in [b"\xff" as &[u8], b"a/\xff.git", b".gi\xfft"] {
            assert!(is_valid_path(path, MODE_FILE), "{path:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn random_paths_are_checked_without_panic(
            path in proptest::collection::vec(proptest::sample::select(b".gitGIT~17/\\: \xe2\x80\x8c\0eba".to_vec()), 0..20),
        ) {
            let _ = (is_valid_path(&path, MODE_FILE), is_valid_path(&path, MODE_LINK));
        }
    }
}
