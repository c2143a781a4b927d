//! Parses the subset of Git's configuration syntax that every version of Git parses identically.
//! Refuses everything else, which is left to Git. Reads no files.

/// Parses a file into keys and values, in their order. Keys are in Git's canonical form; a setting
/// without a value has an empty one. Returns `None` if the text is not plain.
pub fn settings(text: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut section = None;
    // Versions of Git differ in how they treat control characters.
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return None;
    }
    for line in text.split('\n') {
        let line = line.trim_matches([' ', '\t']);
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            section = Some(prefix(header.strip_suffix(']')?)?);
            continue;
        }
        let (key, rest) = line.split_at(line.find(|c: char| !is_name(c)).unwrap_or(line.len()));
        if !key.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let value = match rest.trim_start_matches([' ', '\t']).strip_prefix('=') {
            Some(value) => value_of(value)?,
            None if rest.is_empty() => String::new(),
            None => return None,
        };
        found.push((format!("{}{}", section.as_ref()?, key.to_ascii_lowercase()), value));
    }
    Some(found)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// Turns a section header into the prefix of its keys: `core.` or `remote.origin.`.
fn prefix(header: &str) -> Option<String> {
    let (name, rest) = header.split_at(header.find(|c: char| !is_name(c)).unwrap_or(header.len()));
    let name = name.to_ascii_lowercase();
    match rest {
        _ if name.is_empty() => None,
        "" => Some(format!("{name}.")),
        rest => {
            let part = rest.strip_prefix([' ', '\t'])?.trim_start_matches([' ', '\t']);
            Some(format!("{name}.{}.", subsection(part.strip_prefix('"')?.strip_suffix('"')?)?))
        }
    }
}

/// Resolves the escapes of a subsection's name, which Git writes for quotes and backslashes.
fn subsection(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        name.push(match c {
            '"' => return None,
            '\\' => rest.next().filter(|c| matches!(c, '"' | '\\'))?,
            c => c,
        });
    }
    Some(name)
}

/// Parses a value: resolves quotes and escapes and removes a comment at the end.
fn value_of(text: &str) -> Option<String> {
    let mut value = String::new();
    // The length without white space at the end.
    let mut length = 0;
    let mut in_quotes = false;
    let mut rest = text.trim_start_matches([' ', '\t']).chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                in_quotes = !in_quotes;
                length = value.len();
                continue;
            }
            '\\' => value.push(match rest.next()? {
                c @ ('"' | '\\') => c,
                'n' => '\n',
                't' => '\t',
                _ => return None,
            }),
            '#' | ';' if !in_quotes => break,
            // Some versions keep a tab within a value, others turn it into a space.
            '\t' => return None,
            ' ' if !in_quotes => {
                // Git drops white space in front of the value, even after empty quotes.
                if !value.is_empty() {
                    value.push(c);
                }
                continue;
            }
            c => value.push(c),
        }
        length = value.len();
    }
    value.truncate(length);
    (!in_quotes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<String> {
        let found = settings(&format!("[a]\n\tb = {text}\n"))?;
        (found.len() == 1).then(|| found[0].1.clone())
    }

    #[test]
    fn names_are_spelled_as_git_spells_them() {
        let found =
            settings("[Core]\n\tHooksPath=x\n[Remote \"My Origin\"]\nURL = y\n; no\n# no\n[a]\n b").expect("plain");
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["core.hookspath", "remote.My Origin.url", "a.b"]);
        let found = settings("[a \"b\\\"\\\\c\"]\nd = e").expect("plain");
        assert_eq!(found, [("a.b\"\\c.d".to_owned(), "e".to_owned())]);
    }

    #[test]
    fn values_lose_quotes_comments_and_space_around_them() {
        for (text, value) in [
            ("x", "x"),
            ("  x y  ", "x y"),
            ("x # y", "x"),
            ("x;y", "x"),
            ("\"x # y \" z", "x # y  z"),
            ("\" x \"", " x "),
            ("a\\\"b\\\\c\\n", "a\"b\\c\n"),
            ("", ""),
            ("\"\"", ""),
        ] {
            assert_eq!(one(text).as_deref(), Some(value), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_plain_is_left_to_git() {
        for text in [
            "[a]\n b = c \\\n d",
            "[a]\n b = \"c",
            "[a]\n b = c\td",
            "[a]\n b = \\b",
            "[a]\r\n b = c",
            "[a] b = c",
            "[a.b]\n c = d",
            "[a \"b\\c\"]\n d = e",
            "[a \"b\"c\"]\n d = e",
            "[a \"b\\\"]\n d = e",
            "[a\"b\"]\n d = e",
            "[a",
            "b = c",
            "[a]\n 1b = c",
            "[a]\n b c",
            "[a]\n b_c = d",
            "[]\n b = c",
            "\u{feff}[a]\n b = c",
            "[a]\n b = \u{85}",
        ] {
            assert_eq!(settings(text), None, "{text:?}");
        }
    }

    fn parsed_by_git(text: &str) -> Vec<(String, String)> {
        use std::io::Write;
        #[allow(clippy::disallowed_methods, reason = "compares with Git")]
        let mut git = std::process::Command::new("git")
            .args(["config", "--file", "-", "--no-includes", "--list", "-z"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("git");
        git.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        let output = git.wait_with_output().expect("an answer");
        assert!(output.status.success(), "Git refuses {text:?}");
        let output = String::from_utf8(output.stdout).expect("text");
        let entries = output.split_terminator('\0').map(|entry| entry.split_once('\n').unwrap_or((entry, "")));
        entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

        /// Generates texts from all parts of the syntax; most are nearly plain.
        #[test]
        fn plain_text_is_parsed_as_git_parses_it(
            lines in proptest::collection::vec(
                proptest::prop_oneof![
                    2 => "\\[[a-cA-C-]{1,3}\\]",
                    2 => "\\[[a-cA-C]{1,3} {0,2}\"([a-cA-C .#;é]|\\\\\"|\\\\\\\\){0,4}\"\\]",
                    1 => "\\[[a-c] \"[a-c\"\\\\\\]]{0,4}\"\\]",
                    8 => "[ \t]{0,2}[a-cA-C][a-cA-C0-9-]{0,2}[ \t]{0,1}=( |a|b|c|=|é|\\[|\\]|#|;|\"\"|\" a \"|\"#;\"|\\\\\"|\\\\n|\\\\\\\\){0,8}",
                    2 => "[ \t]{0,2}[a-cA-C0-9-]{1,3}[ \t]{0,1}=[ \t]{0,2}[a-c \t\"\\\\#;=nt\\[\\]é]{0,10}",
                    1 => "[ \t]{0,2}[a-cA-C]{1,3}[ \t]{0,1}",
                    1 => "[a-c \t\"\\\\#;=\\[\\]\r.]{0,8}",
                ],
                0..5,
            ),
            start in proptest::bool::weighted(0.8),
        ) {
            let text = format!("{}{}", if start { "[a]\n" } else { "" }, lines.join("\n"));
            if let Some(found) = settings(&text) {
                proptest::prop_assert_eq!(found, parsed_by_git(&text), "{:?}", text);
            }
        }
    }
}
