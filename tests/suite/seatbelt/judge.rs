//! Evaluates a profile. The last matching rule wins; but sources disagree whether a later rule
//! without filters, or with a `*`, overrides an earlier specific one. So every question is
//! evaluated in both ways, and both answers must agree.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::sbpl::{Expression, parse};

/// macOS has more operations; the profiles use only these.
const OPERATIONS: &[&str] = &[
    "appleevent-send",
    "default",
    "file-ioctl",
    "file-link",
    "file-map-executable",
    "file-mount",
    "file-read-data",
    "file-read-metadata",
    "file-read-xattr",
    "file-unmount",
    "file-write-create",
    "file-write-data",
    "file-write-mode",
    "file-write-unlink",
    "iokit-open",
    "ipc-posix-sem",
    "ipc-posix-shm-read-data",
    "ipc-posix-shm-write-data",
    "job-creation",
    "lsopen",
    "mach-host-special-port-set",
    "mach-lookup",
    "mach-priv-task-port",
    "network-bind",
    "network-inbound",
    "network-outbound",
    "process-exec",
    "process-fork",
    "process-info-pidinfo",
    "pseudo-tty",
    "signal",
    "sysctl-read",
    "system-socket",
    "user-preference-read",
    "user-preference-write",
];

#[derive(Debug, Clone, Copy)]
pub enum Object<'a> {
    Path(&'a str),
    /// Holds the path of a socket file at either end of the connection.
    Unix(&'a str),
    /// Holds `HOST:PORT` of either end of a connection.
    Address(&'a str),
    /// Holds the name of a service, a sysctl, or a class.
    Name(&'a str),
    /// `own` is true for a process inside the sandbox.
    Process {
        own: bool,
    },
    Nothing,
}

struct Rule {
    allow: bool,
    operations: Vec<String>,
    filters: Vec<Expression>,
}

pub struct Profile {
    rules: Vec<Rule>,
    parameters: BTreeMap<String, String>,
}

impl Profile {
    /// Panics at anything that it cannot interpret.
    pub fn read(text: &str, parameters: BTreeMap<String, String>) -> Self {
        let mut expressions = parse(text).into_iter();
        let version = expressions.next().expect("a version");
        assert_eq!(version, parse("(version 1)")[0]);
        let rules: Vec<Rule> = expressions.map(|expression| rule(&expression)).collect();
        let profile = Profile { rules, parameters };
        assert_eq!(
            profile.rules.iter().filter(|rule| rule.operations == ["default"]).count(),
            1,
            "a profile needs exactly one default rule"
        );
        // Evaluating each filter once ensures that it is known and that its parameters exist.
        for rule in &profile.rules {
            for filter in &rule.filters {
                profile.matches(filter, Object::Nothing);
            }
        }
        profile
    }

    #[track_caller]
    pub fn allows(&self, operation: &str, object: Object) -> bool {
        assert!(OPERATIONS.contains(&operation), "{operation}");
        let matching: Vec<(&Rule, u8)> = self
            .rules
            .iter()
            .filter(|rule| rule.filters.is_empty() || rule.filters.iter().any(|filter| self.matches(filter, object)))
            .filter_map(|rule| Some((rule, rule.operations.iter().filter_map(|known| rank(known, operation)).max()?)))
            .collect();
        let last = matching.last().expect("a default").0.allow;
        // The other way prefers rules with filters, then the exact operation to one with a star,
        // and only then the later rule.
        let (other, _) =
            matching.iter().max_by_key(|(rule, rank)| (!rule.filters.is_empty(), *rank)).expect("a default");
        assert_eq!(last, other.allow, "{operation} {object:?} depends on the order of precedence");
        last
    }

    fn matches(&self, filter: &Expression, object: Object) -> bool {
        let words = filter.list();
        let argument = || self.value(&words[1]);
        match (words[0].symbol(), object) {
            ("literal", object) => {
                let path = argument();
                matches!(object, Object::Path(asked) if asked == path)
            }
            ("subpath", object) => {
                let path = argument();
                matches!(object, Object::Path(asked) if std::path::Path::new(asked).starts_with(path))
            }
            ("regex", object) => {
                let Expression::Regex(pattern) = &words[1] else { panic!("no regular expression: {filter:?}") };
                let pattern = Regex::new(pattern).expect("a regular expression");
                matches!(object, Object::Path(asked) if pattern.is_match(asked))
            }
            ("remote" | "local", object) => match words[1].symbol() {
                "unix-socket" => {
                    let place = match object {
                        Object::Unix(path) => Object::Path(path),
                        _ => Object::Nothing,
                    };
                    self.matches(&words[2], place)
                }
                "ip" => {
                    let Expression::Text(pattern) = &words[2] else { panic!("no address: {filter:?}") };
                    let (host, port) = pattern.split_once(':').expect("HOST:PORT");
                    assert!(["*", "localhost"].contains(&host), "macOS knows no other hosts: {filter:?}");
                    matches!(object, Object::Address(asked) if asked.split_once(':').is_some_and(|(to, at)| {
                        (host == "*" || host == to) && (port == "*" || port == at)
                    }))
                }
                other => panic!("unknown: {other}"),
            },
            ("global-name" | "sysctl-name" | "iokit-registry-entry-class", object) => {
                let name = argument();
                matches!(object, Object::Name(asked) if asked == name)
            }
            ("target", object) => {
                assert_eq!(words[1].symbol(), "same-sandbox");
                matches!(object, Object::Process { own: true })
            }
            ("socket-domain", object) => {
                let domain = words[1].symbol();
                assert_eq!(domain, "AF_UNIX");
                matches!(object, Object::Name(asked) if asked == domain)
            }
            (other, _) => panic!("unknown filter: {other}"),
        }
    }

    fn value(&self, expression: &Expression) -> String {
        match expression {
            Expression::Text(text) => text.clone(),
            Expression::List(words) => match words[0].symbol() {
                "param" => {
                    let Expression::Text(name) = &words[1] else { panic!("a parameter without a name") };
                    self.parameters.get(name).unwrap_or_else(|| panic!("no parameter {name}")).clone()
                }
                "string-append" => words[1..].iter().map(|part| self.value(part)).collect(),
                other => panic!("unknown function: {other}"),
            },
            other => panic!("no value: {other:?}"),
        }
    }
}

/// Ranks how specifically a rule's operation matches the given one, if at all.
fn rank(known: &str, asked: &str) -> Option<u8> {
    match known.strip_suffix('*') {
        _ if known == asked => Some(2),
        Some(start) if asked.starts_with(start) => Some(1),
        None if known == "default" => Some(0),
        _ => None,
    }
}

fn rule(expression: &Expression) -> Rule {
    let words = expression.list();
    let allow = match words[0].symbol() {
        "allow" => true,
        "deny" => false,
        other => panic!("unknown: {other}"),
    };
    let count = words[1..].iter().take_while(|word| matches!(word, Expression::Symbol(_))).count();
    let operations: Vec<String> = words[1..=count].iter().map(|word| word.symbol().to_owned()).collect();
    assert!(!operations.is_empty(), "{expression:?}");
    for operation in &operations {
        assert!(OPERATIONS.iter().any(|known| rank(operation, known).is_some()), "unknown operation {operation}");
    }
    Rule { allow, operations, filters: words[count + 1..].to_vec() }
}
