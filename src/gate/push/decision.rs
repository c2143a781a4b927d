//! Decides each ref update of a push by the rules of the plan. Pure.

use super::advertisement::Advertisement;
use super::commands::RefUpdate;
use crate::config::value::{PushRule, PushVerdict, RefChange, short_name};

/// One of them becomes the default branch of an empty repository.
const USUAL_NAMES: [&str; 2] = ["refs/heads/main", "refs/heads/master"];

/// The remote's default branch, as its server names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultBranch {
    /// No decision depends on it.
    None,
    /// The server does not say which branch HEAD names, and there is none yet.
    Unknown,
    Named(String),
    /// HEAD is this commit and no branch, so every ref with this value counts.
    AtCommit(String),
}

impl DefaultBranch {
    /// Finds the default branch in what a server says before a fetch.
    pub fn of(advertisement: &Advertisement) -> Self {
        match (&advertisement.head_target, advertisement.refs.get("HEAD")) {
            (Some(name), _) => DefaultBranch::Named(name.clone()),
            (None, Some(id)) => DefaultBranch::AtCommit(id.clone()),
            (None, None) => DefaultBranch::Unknown,
        }
    }

    fn is(&self, update: &RefUpdate) -> bool {
        match self {
            DefaultBranch::None => false,
            DefaultBranch::Unknown => USUAL_NAMES.contains(&update.name.as_str()),
            DefaultBranch::Named(name) => update.name == *name,
            DefaultBranch::AtCommit(id) => update.old == *id,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    IfFastForward,
    Refused(String),
}

/// Tells whether the decision about an update depends on the default branch.
pub fn depends_on_default_branch(rules: &[PushRule], update: &RefUpdate) -> bool {
    let verdict = |is_default| PushRule::decide(rules, &update.name, update.change(), is_default);
    verdict(true) != verdict(false)
}

/// Decides one update.
pub fn decide(
    rules: &[PushRule],
    update: &RefUpdate,
    advertised: &Advertisement,
    default_branch: &DefaultBranch,
) -> Decision {
    let value = advertised.refs.get(&update.name);
    let is_current = match update.change() {
        RefChange::Create => value.is_none(),
        RefChange::Update | RefChange::Delete => value == Some(&update.old),
    };
    if !is_current {
        return Decision::Refused("the ref has another value on the server: fetch first".into());
    }
    let is_default = default_branch.is(update);
    match PushRule::decide(rules, &update.name, update.change(), is_default) {
        PushVerdict::Allowed => Decision::Allowed,
        PushVerdict::IfFastForward => Decision::IfFastForward,
        PushVerdict::Refused => Decision::Refused(refusal(rules, update, is_default)),
    }
}

fn refusal(rules: &[PushRule], update: &RefUpdate, is_default: bool) -> String {
    let name = short_name(&update.name);
    let needed = match update.change() {
        RefChange::Delete => format!("-{name}"),
        RefChange::Update if update.name.starts_with("refs/tags/") => format!("+{name}"),
        RefChange::Create | RefChange::Update => name.to_owned(),
    };
    let allowed: Vec<String> = rules.iter().map(PushRule::to_string).collect();
    let what = if is_default { "the default branch needs" } else { "it needs" };
    format!("{what} --push '{needed}' (allowed: {})", allowed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Value;
    use std::collections::BTreeMap;

    fn id(digit: &str) -> String {
        digit.repeat(40)
    }

    fn decided(rule: &str, update: (&str, &str, &str), default_branch: &DefaultBranch) -> Decision {
        let refs = [("refs/heads/main", id("1")), ("refs/heads/agent/a", id("2")), ("refs/heads/same", id("1"))];
        let refs: BTreeMap<String, String> = refs.into_iter().map(|(name, id)| (name.to_owned(), id)).collect();
        let advertised = Advertisement { refs, id_len: 40, ..Advertisement::default() };
        let (old, new, name) = update;
        let update = RefUpdate { old: id(old), new: id(new), name: name.to_owned() };
        decide(&[PushRule::parse(rule).expect("a rule")], &update, &advertised, default_branch)
    }

    fn is_refused(decision: &Decision) -> bool {
        matches!(decision, Decision::Refused(_))
    }

    #[test]
    fn a_lie_about_the_present_value_is_refused() {
        let main = DefaultBranch::Named("refs/heads/main".into());
        let agent = |old, new| decided("+agent/*", (old, new, "refs/heads/agent/a"), &main);
        assert_eq!(agent("2", "3"), Decision::Allowed);
        assert!(is_refused(&agent("0", "3")) && is_refused(&agent("1", "3")));
        assert!(is_refused(&decided("+agent/*", ("2", "3", "refs/heads/agent/new"), &main)));
    }

    #[test]
    fn the_default_branch_is_known_by_name_or_by_commit() {
        let named = DefaultBranch::Named("refs/heads/main".into());
        let at_commit = DefaultBranch::AtCommit(id("1"));
        let star = |name: &str, default| decided("*", ("1", "3", name), default);
        assert!(is_refused(&star("refs/heads/main", &named)));
        assert_eq!(star("refs/heads/same", &named), Decision::IfFastForward);
        assert!(is_refused(&star("refs/heads/same", &at_commit)));
        assert_eq!(decided("main", ("1", "3", "refs/heads/main"), &named), Decision::IfFastForward);
        assert_eq!(star("refs/heads/main", &DefaultBranch::None), Decision::IfFastForward);
        assert!(is_refused(&star("refs/heads/main", &DefaultBranch::Unknown)));
        assert_eq!(star("refs/heads/same", &DefaultBranch::Unknown), Decision::IfFastForward);
    }

    #[test]
    fn a_refusal_names_the_rule_that_is_missing() {
        let main = DefaultBranch::Named("refs/heads/main".into());
        let Decision::Refused(text) = decided("agent/*", ("2", "0", "refs/heads/agent/a"), &main) else { panic!() };
        assert_eq!(text, "it needs --push '-agent/a' (allowed: agent/*)");
    }
}
