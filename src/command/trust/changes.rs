//! What a project's file changes, in words: first what makes the sandbox wider, then the rest.

use std::path::Path;

use toml::Value as Toml;

use crate::config::options::{Item, OPTIONS, Opt};
use crate::config::value::NetworkMode;
use crate::config::{Config, Origin};
use crate::ui::escape::escape;
use crate::ui::{Page, View};

/// What is compared.
pub struct Changes {
    /// What the file says, over nothing but defaults.
    pub says: Config,
    /// What holds without it.
    pub now: Config,
    /// What would hold with it.
    pub then: Option<Config>,
    /// What was trusted before, over nothing but defaults.
    pub before: Option<Config>,
}

/// One thing that a file says.
struct Change {
    key: &'static str,
    words: String,
    /// What it opens, if it opens anything.
    opens: Option<&'static str>,
    /// Beside it: what holds now, and whether it is new.
    notes: Vec<String>,
}

impl Change {
    fn add_to(&self, page: &mut Page) {
        let reason: Vec<&str> = self.opens.into_iter().chain(self.notes.iter().map(String::as_str)).collect();
        page.row(self.key, &self.words, &reason.join("; "));
    }
}

impl Changes {
    /// The page.
    pub fn text(&self, file: &Path, view: View) -> String {
        let mut page = Page::new(view);
        let (opening, others): (Vec<Change>, Vec<Change>) =
            self.list().into_iter().partition(|change| change.opens.is_some());
        if opening.is_empty() && others.is_empty() {
            page.section("Changes nothing");
            page.line("it sets no option");
        }
        page.section("Opens the sandbox");
        page.warn();
        opening.iter().for_each(|change| change.add_to(&mut page));
        page.section("Changes");
        others.iter().for_each(|change| change.add_to(&mut page));
        page.section("No longer, since you trusted it");
        for (key, item) in self.gone() {
            page.row(key, &words(key, &item), "");
        }
        format!("{}\n\n{}", escape(&file.display().to_string()), page.finish())
    }

    fn list(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (option, key) in OPTIONS.iter().filter_map(|option| Some((option, option.key?))) {
            for item in set(option, &self.says) {
                changes.push(Change {
                    key,
                    words: words(key, &item),
                    opens: self.opens(option, key, &item),
                    notes: self.notes(option, &item),
                });
            }
        }
        changes
    }

    /// What was trusted and is not said any more.
    fn gone(&self) -> Vec<(&'static str, Item)> {
        let Some(before) = &self.before else { return Vec::new() };
        let keys = OPTIONS.iter().filter_map(|option| Some((option, option.key?)));
        keys.flat_map(|(option, key)| {
            let says = set(option, &self.says);
            // Another value is told as a change.
            let same =
                move |item: &Item| says.iter().any(|new| if option.is_list() { new.is_same(item) } else { true });
            set(option, before).into_iter().filter(move |item| !same(item)).map(move |item| (key, item))
        })
        .collect()
    }

    fn notes(&self, option: &Opt, item: &Item) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(before) = &self.before {
            let known = set(option, before).iter().any(|old| old.is_same(item));
            notes.push(if known { "as you trusted it" } else { "new since you trusted it" }.to_owned());
        }
        if option.is_list() {
            return notes;
        }
        let held = |config: &Config| (option.read)(config).items().into_iter().next();
        match (self.then.as_ref().and_then(held), held(&self.now)) {
            (Some(then), _) if then.origin != item.origin => {
                notes.push(format!("without effect while {} says {}", then.origin, shown(&then)));
            }
            (_, Some(now)) if now.value == item.value => notes.push("as it is without the file".to_owned()),
            (_, Some(now)) => notes.push(format!("without the file: {} ({})", shown(&now), now.origin)),
            (_, None) => {}
        }
        notes
    }

    /// What a stranger gains by it; nothing if it was so already.
    fn opens(&self, option: &Opt, key: &str, item: &Item) -> Option<&'static str> {
        let now = (option.read)(&self.now).items();
        if now.iter().any(|now| now.is_same(item)) {
            return None;
        }
        let now = now.into_iter().find_map(|now| now.value);
        let value = item.value.as_ref().and_then(Toml::as_str).unwrap_or_default();
        let was = |text: &str| now.as_ref().and_then(Toml::as_str) == Some(text);
        let number = |value: &Option<Toml>| {
            value.as_ref().and_then(|value| value.as_float().or(value.as_integer().map(|n| n as f64)))
        };
        let is_true = item.value.as_ref().and_then(Toml::as_bool);
        match (key, value) {
            ("proxyCommand", _) => Some("it runs on this machine, outside every sandbox, with all your rights"),
            ("engineFlags", _) => Some("a flag of the engine's can undo any wall"),
            ("image", _) => Some("every program inside comes from it"),
            ("includeDirs", _) => Some("the sandbox can read and change it"),
            ("mounts", _) if writable(item) => Some("the sandbox can read and change it"),
            ("mounts", _) => Some("the sandbox can read it"),
            ("network", "on") => Some("everything inside can be sent anywhere"),
            ("network", "proxied") if was("off") => Some("the allowed hosts are reached"),
            ("allowHosts", _) if self.now.network.value != NetworkMode::On => Some("what is inside can be sent there"),
            ("sshAgent", "on" | "auto") if was("off") => Some("the sandbox can sign with your keys"),
            ("tmp", "host") => Some("other programs' temporary files are seen inside"),
            ("guard", "off") => Some("code that is planted in Git's files runs outside later"),
            ("guard", "review") if was("strict") => Some("Git's configuration can be written"),
            ("user", "image") => Some("inside it may be root"),
            ("allowHome", _) if is_true == Some(true) => Some("your keys and credentials are inside"),
            ("strict", _) if is_true == Some(false) => Some("what cannot be enforced is only warned of"),
            ("resources.cpus" | "resources.pids", _) if number(&item.value) > number(&now) && now.is_some() => {
                Some("more than without the file")
            }
            ("seatbeltProfile", _) => Some("on macOS it takes the place of every wall"),
            _ => None,
        }
    }
}

/// The values that somebody set.
fn set(option: &Opt, config: &Config) -> Vec<Item> {
    (option.read)(config).items().into_iter().filter(|item| item.origin != Origin::Default).collect()
}

fn writable(item: &Item) -> bool {
    item.value.as_ref().and_then(|mount| mount.get("mode")?.as_str()) == Some("rw")
}

fn shown(item: &Item) -> String {
    match &item.value {
        Some(Toml::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
        None => "a secret".to_owned(),
    }
}

/// What one value means.
fn words(key: &str, item: &Item) -> String {
    let text = shown(item);
    let name = item.name.as_deref().unwrap_or_default();
    match (key, text.trim_matches('`')) {
        ("engine", "auto") => "the engine follows from what is meant and what answers".into(),
        ("engine", _) => format!("the engine is {text}"),
        ("image", _) => format!("the sandbox is a container of {text}"),
        ("agent", "none") => "no preset is used".into(),
        ("agent", _) => format!("the preset {text} is used for every command"),
        ("mounts", _) => mount(item),
        ("includeDirs", _) => format!("{text} is a workspace, too"),
        ("env", _) if item.value.is_none() => format!("`{name}` is set inside to a secret"),
        ("env", _) => format!("`{name}` is {text} inside"),
        ("network", "on") => "the network is there".into(),
        ("network", "off") => "there is no network".into(),
        ("network", _) => "only the allowed hosts are reached".into(),
        ("allowHosts", _) => format!("{text} may be reached"),
        ("proxyCommand", _) => format!("the command {text} is the proxy"),
        ("ports", port) => format!("port {port} can be reached from this machine"),
        ("sshAgent", "off") => "the SSH agent stays outside".into(),
        ("sshAgent", "on") => "the SSH agent is forwarded".into(),
        ("sshAgent", _) => "the SSH agent is forwarded if it answers".into(),
        ("resources.cpus", count) => format!("at most {count} CPUs are used"),
        ("resources.memory", size) => format!("at most {size} of memory is used"),
        ("resources.pids", count) => format!("at most {count} processes run"),
        ("user", "host") => "the user inside is you".into(),
        ("user", "image") => "the user inside is the image's".into(),
        ("tmp", "host") => "the machine's temporary directory is seen inside".into(),
        ("tmp", _) => "the temporary directory is the sandbox's own".into(),
        ("guard", "off") => "Git's files are not guarded".into(),
        ("guard", "strict") => "all of Git's configuration is read-only".into(),
        ("allowHome", "true") => "your whole home may be the working directory".into(),
        ("strict", "true") => "what cannot be enforced is an error".into(),
        ("engineFlags", _) => format!("the engine is given {text}"),
        ("seatbeltProfile", _) => format!("the Seatbelt profile is {text}"),
        _ => format!("it is {text}"),
    }
}

fn mount(item: &Item) -> String {
    let part = |key| item.value.as_ref().and_then(|mount| mount.get(key)?.as_str());
    let from = part("from").unwrap_or_default();
    let how = if writable(item) { "writable" } else { "read-only" };
    match part("to") {
        Some(to) if to != from => format!("`{from}` is seen inside as `{to}`, {how}"),
        _ => format!("`{from}` is seen inside, {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Language, read_file};

    fn config(text: &str) -> Config {
        let settings = read_file(text, Language::Toml, "f", None, &Origin::Config("f".into())).expect("a file");
        Config::of(settings).expect("a configuration")
    }

    fn changes(says: &str, now: &str, before: Option<&str>) -> String {
        let changes = Changes { says: config(says), now: config(now), then: None, before: before.map(config) };
        changes.text(Path::new("f"), View::default())
    }

    /// The part of the page that is marked as opening something.
    fn opening(says: &str, now: &str) -> String {
        let text = changes(says, now, None);
        text.split("\n\n").filter(|part| part.starts_with("Opens the sandbox")).collect()
    }

    #[test]
    fn what_opens_the_sandbox_is_told_apart() {
        for says in [
            "proxyCommand = \"x\"",
            "engineFlags = [\"--privileged\"]",
            "image = \"x\"",
            "mounts = [{ from = \"/a\" }]",
            "includeDirs = [\"/a\"]",
            "tmp = \"host\"",
            "guard = \"off\"",
            "allowHome = true",
            "user = \"image\"",
            "resources.pids = 4000",
            "seatbeltProfile = \"permissive-open\"",
        ] {
            assert_ne!(opening(says, ""), "", "{says}");
        }
        for (says, now) in [
            ("network = \"on\"", "network = \"off\""),
            ("network = \"proxied\"", "network = \"off\""),
            ("allowHosts = [\"a.b\"]", "network = \"off\""),
            ("sshAgent = \"auto\"", "sshAgent = \"off\""),
            ("strict = false", "strict = true"),
            ("guard = \"review\"", "guard = \"strict\""),
            ("resources.cpus = 4", "resources.cpus = 2"),
        ] {
            assert_ne!(opening(says, now), "", "{says} after {now}");
            assert_eq!(opening(says, says), "", "{says} is no change");
            assert_eq!(opening(now, ""), "", "{now} closes");
        }
    }

    #[test]
    fn what_has_changed_since_is_told() {
        let text = changes("env.A = \"1\"\nenv.B = \"2\"", "", Some("env.A = \"1\"\nenv.C = \"3\"\nnetwork = \"off\""));
        for line in [
            "env  `A` is `1` inside  as you trusted it",
            "env  `B` is `2` inside  new since you trusted it",
            "No longer, since you trusted it",
            "env      `C` is `3` inside",
            "network  there is no network",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(changes("", "", None), "f\n\nChanges nothing\n  it sets no option\n");
    }

    #[test]
    fn no_secret_is_shown_but_that_it_changed_is() {
        assert!(changes("env.MY_KEY = \"a\"", "", Some("env.MY_KEY = \"b\"")).contains("new since"));
        assert!(changes("env.MY_KEY = \"a\"", "", Some("env.MY_KEY = \"a\"")).contains("as you trusted it"));
        assert!(!changes("env.GH_TOKEN = \"hush\"", "", Some("env.GH_TOKEN = \"hushed\"")).contains("hush"));
    }
}
