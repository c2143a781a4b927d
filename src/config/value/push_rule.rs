//! One entry of `--push`: `[+|-]NAME`, a pattern of refs that a sandbox may push to.

use std::fmt;

use serde::{Serialize, Serializer};
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
const MAX_LENGTH: usize = 1024;

/// The updates of a ref that a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushScope {
    /// New refs and fast-forwards.
    Forward,
    /// Also updates that are not fast-forwards.
    Force,
    /// Deletions only.
    Delete,
}

/// What a push does to a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefChange {
    Create,
    /// A fast-forward, once that is verified.
    Update,
    Delete,
}

/// What the rules say about a change of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushVerdict {
    Allowed,
    /// Allowed if the update is a fast-forward.
    IfFastForward,
    Refused,
}

/// A pattern of refs and the updates of them that are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRule {
    scope: PushScope,
    /// The whole name of a ref, with at most one `*`, which stands for any characters.
    pattern: String,
}

impl PushRule {
    /// Tells whether the rule matches a ref, given by its whole name. Tags need a rule that says
    /// so, and the remote's default branch one without `*`.
    fn matches(&self, name: &str, is_default_branch: bool) -> bool {
        if name.starts_with(TAGS) && !self.pattern.starts_with(TAGS) {
            return false;
        }
        match self.pattern.split_once('*') {
            None => self.pattern == name,
            Some(_) if is_default_branch => false,
            Some((start, end)) => {
                name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
            }
        }
    }

    fn verdict(&self, name: &str, change: RefChange, is_default_branch: bool) -> PushVerdict {
        if !self.matches(name, is_default_branch) {
            return PushVerdict::Refused;
        }
        match (change, self.scope) {
            (RefChange::Delete, PushScope::Delete)
            | (RefChange::Create, PushScope::Forward | PushScope::Force)
            | (RefChange::Update, PushScope::Force) => PushVerdict::Allowed,
            // Git never takes the change of a tag for a fast-forward.
            (RefChange::Update, PushScope::Forward) if !name.starts_with(TAGS) => PushVerdict::IfFastForward,
            _ => PushVerdict::Refused,
        }
    }

    /// Returns what the rules together say about a change.
    pub fn decide<'a>(
        rules: impl IntoIterator<Item = &'a PushRule>,
        name: &str,
        change: RefChange,
        is_default_branch: bool,
    ) -> PushVerdict {
        let mut verdict = PushVerdict::Refused;
        for rule in rules {
            match rule.verdict(name, change, is_default_branch) {
                PushVerdict::Allowed => return PushVerdict::Allowed,
                PushVerdict::IfFastForward => verdict = PushVerdict::IfFastForward,
                PushVerdict::Refused => {}
            }
        }
        verdict
    }

    /// Describes the rule for `sandpen trust`.
    pub fn describe(&self) -> String {
        let what = match self.scope {
            PushScope::Forward => "push new commits to",
            PushScope::Force => "push anything to, and overwrite,",
            PushScope::Delete => "delete",
        };
        format!("the sandbox may {what} `{}` of the repository's remotes", self.pattern)
    }
}

impl fmt::Display for PushRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.scope {
            PushScope::Forward => "",
            PushScope::Force => "+",
            PushScope::Delete => "-",
        };
        write!(f, "{sign}{}", short_name(&self.pattern))
    }
}

impl Serialize for PushRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

read_as_text!(PushRule: { "type": "string" });

impl OptionValue for PushRule {
    fn to_toml(&self) -> Toml {
        Toml::String(self.to_string())
    }
}

impl Value for PushRule {
    const NAME: &'static str = "a rule for pushes";
    const FORM: &'static str = "`[+|-]NAME` with at most one `*`, such as `agent/*`, `+agent/*` or `refs/tags/v1`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let (scope, name) = match text.strip_prefix('+') {
            Some(name) => (PushScope::Force, name),
            None => text.strip_prefix('-').map_or((PushScope::Forward, text), |name| (PushScope::Delete, name)),
        };
        if name.contains(':') {
            return Err("name the ref on the server only, without `:`".into());
        }
        let pattern = if name.starts_with("refs/") { name.to_owned() } else { format!("{BRANCHES}{name}") };
        // A star stands for characters of a name, so a name with one instead must be valid.
        let sample = pattern.replacen('*', "x", 1);
        if name.is_empty() || pattern.len() > MAX_LENGTH || !is_ref_name(&sample) {
            return Err(Reason::Form);
        }
        Ok(PushRule { scope, pattern })
    }
}

/// Shortens the name of a branch, unless a rule with the short name would mean something else.
pub fn short_name(name: &str) -> &str {
    let short = name.strip_prefix(BRANCHES);
    short.filter(|short| !short.starts_with("refs/") && !short.starts_with(['+', '-'])).unwrap_or(name)
}

/// Tells whether Git accepts a text as the whole name of a ref, as `git check-ref-format` does. Of
/// control characters beyond ASCII, none is accepted.
pub fn is_ref_name(text: &str) -> bool {
    text.strip_prefix("refs/").is_some_and(is_ref_path)
}

/// Tells whether Git accepts the text as the end of a ref's name, after `refs/heads/`.
pub fn is_ref_path(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_refused = |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    text.split('/').all(is_part)
        && !text.ends_with('.')
        && !text.contains("..")
        && !text.contains("@{")
        && !text.contains(is_refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PushVerdict::{Allowed, IfFastForward, Refused};
    use RefChange::{Create, Delete, Update};
    use proptest::prelude::*;

    fn decide(rules: &[&str], name: &str, change: RefChange) -> PushVerdict {
        let rules: Vec<PushRule> = rules.iter().map(|rule| PushRule::parse(rule).expect("a rule")).collect();
        PushRule::decide(&rules, name, change, name == "refs/heads/main")
    }

    #[test]
    fn a_plain_rule_allows_new_refs_and_fast_forwards_only() {
        let agent = |change| decide(&["agent/*"], "refs/heads/agent/a/b", change);
        assert_eq!([Create, Update, Delete].map(agent), [Allowed, IfFastForward, Refused]);
        let force = |change| decide(&["+agent/*"], "refs/heads/agent/a", change);
        assert_eq!([Create, Update, Delete].map(force), [Allowed, Allowed, Refused]);
        let delete = |change| decide(&["-agent/*"], "refs/heads/agent/a", change);
        assert_eq!([Create, Update, Delete].map(delete), [Refused, Refused, Allowed]);
        let both = |change| decide(&["-agent/*", "agent/*"], "refs/heads/agent/a", change);
        assert_eq!([Create, Update, Delete].map(both), [Allowed, IfFastForward, Allowed]);
    }

    #[test]
    fn tags_and_the_default_branch_must_be_named() {
        for rule in ["*", "refs/*", "refs/heads/*", "m*"] {
            assert_eq!(decide(&[rule], "refs/heads/main", Update), Refused, "{rule}");
            assert_eq!(decide(&[rule], "refs/tags/v1", Create), Refused, "{rule}");
        }
        assert_eq!(decide(&["main"], "refs/heads/main", Update), IfFastForward);
        assert_eq!(decide(&["refs/heads/main"], "refs/heads/main", Update), IfFastForward);
        assert_eq!(decide(&["refs/tags/*"], "refs/tags/v1", Create), Allowed);
        assert_eq!(decide(&["refs/tags/*"], "refs/tags/v1", Update), Refused, "a tag does not move");
        assert_eq!(decide(&["+refs/tags/*"], "refs/tags/v1", Update), Allowed);
        assert_eq!(decide(&["v1"], "refs/tags/v1", Create), Refused);
    }

    #[test]
    fn a_name_that_only_looks_alike_does_not_match() {
        for name in ["refs/heads/agentx/a", "refs/heads/x/agent/a", "refs/heads/Agent/a", "refs/agent/a", "agent/a"] {
            assert_eq!(decide(&["+agent/*"], name, Create), Refused, "{name}");
        }
        assert_eq!(decide(&["a*a"], "refs/heads/a", Create), Refused, "start and end do not overlap");
        assert_eq!(decide(&["main"], "refs/heads/main2", Create), Refused);
    }

    #[test]
    fn refuses_what_is_not_a_pattern_of_refs() {
        for text in
            ["", "+", "-", "++a", "a b", "a:b", "**", "a/*/b*", "/a", "a/", "a..b", ".a", "a.lock", "a\n", "a~1"]
        {
            assert_eq!(PushRule::parse(text).is_err(), text != "++a", "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(text in "[+-]?(refs/(heads|tags)/)?[a-z*./+-]{1,12}") {
            if let Ok(rule) = PushRule::parse(&text) {
                prop_assert_eq!(PushRule::parse(&rule.to_string()), Ok(rule));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            if let Ok(rule) = PushRule::parse(&text) {
                prop_assert!(rule.pattern.starts_with("refs/") && rule.pattern.matches('*').count() <= 1);
            }
        }

        #[test]
        fn a_star_stands_for_anything_between_its_neighbours(start in "[a-z]{1,4}/", middle in "[a-z]{0,4}(/[a-z]{1,4})?", end in "[a-z]{1,4}", other in "[a-z/]{1,12}") {
            let rule = format!("{start}*{end}");
            prop_assert_eq!(decide(&[&rule], &format!("refs/heads/{start}{middle}{end}"), Create), Allowed);
            let is_inside = other.len() >= start.len() + end.len() && other.starts_with(&start) && other.ends_with(&end);
            prop_assert_eq!(decide(&[&rule], &format!("refs/heads/{other}"), Create) == Allowed, is_inside);
        }
    }
}
