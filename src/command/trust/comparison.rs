//! The page of `trust`: first what a project file opens, then what else it changes.

use std::path::Path;

use toml::Value as Toml;

use crate::config::{Change, Config, Item, KeySpec, OPTIONS, OptionSpec};
use crate::ui::escape::escape;
use crate::ui::{Page, View};

/// The configurations that are compared.
pub struct Comparison {
    /// The file's values, over defaults only.
    pub file: Config,
    /// The configuration without the file.
    pub now: Config,
    /// The configuration with the file, unless it contradicts another layer.
    pub then: Option<Config>,
    /// The values of the file that was trusted before, over defaults only.
    pub trusted: Option<Config>,
}

/// A change with its key, and notes on how it differs from the present and from the trusted value.
struct Row {
    key: &'static str,
    change: Change,
    notes: Vec<String>,
}

impl Row {
    fn add_to(&self, page: &mut Page) {
        let reasons: Vec<&str> = self.change.opens.into_iter().chain(self.notes.iter().map(String::as_str)).collect();
        page.row(self.key, &self.change.description, &reasons.join("; "));
    }
}

impl Comparison {
    /// Renders the page.
    pub fn text(&self, file: &Path, view: View) -> String {
        let mut page = Page::new(view);
        let (opening, others): (Vec<Row>, Vec<Row>) =
            self.rows().into_iter().partition(|row| row.change.opens.is_some());
        if opening.is_empty() && others.is_empty() {
            page.section("No changes");
            page.line("the file sets no option");
        }
        page.section("Opens the sandbox");
        page.warn();
        opening.iter().for_each(|row| row.add_to(&mut page));
        page.section("Changes");
        others.iter().for_each(|row| row.add_to(&mut page));
        page.section("Removed since you trusted it");
        for (key, change) in self.removed() {
            page.row(key, &change.description, "");
        }
        format!("{}\n\n{}", escape(&file.display().to_string()), page.finish())
    }

    fn rows(&self) -> Vec<Row> {
        let row = |option: &OptionSpec, key: KeySpec, change: Change| Row {
            key: key.name,
            notes: self.notes(option, key, &change.item),
            change,
        };
        keys()
            .flat_map(|(option, key)| {
                (key.changes)(&self.file, &self.now).into_iter().map(move |change| row(option, key, change))
            })
            .collect()
    }

    /// Lists what was trusted and is no longer in the file. Another value of a single option is a
    /// change.
    fn removed(&self) -> Vec<(&'static str, Change)> {
        let Some(trusted) = &self.trusted else { return Vec::new() };
        let mut removed = Vec::new();
        for (option, key) in keys() {
            let present = (key.changes)(&self.file, &self.now);
            let is_present = |old: &Change| present.iter().any(|new| !option.is_list || new.item.is_same(&old.item));
            let old = (key.changes)(trusted, &self.now).into_iter().filter(|old| !is_present(old));
            removed.extend(old.map(|change| (key.name, change)));
        }
        removed
    }

    fn notes(&self, option: &OptionSpec, key: KeySpec, item: &Item) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(trusted) = &self.trusted {
            let is_known = (key.changes)(trusted, &self.now).iter().any(|old| old.item.is_same(item));
            notes.push(if is_known { "as you trusted it" } else { "new since you trusted it" }.to_owned());
        }
        if option.is_list {
            return notes;
        }
        let single = |config: &Config| (option.read)(config).items().into_iter().next();
        match (self.then.as_ref().and_then(single), single(&self.now)) {
            (Some(then), _) if then.origin != item.origin => {
                notes.push(format!("overridden by {}: {}", then.origin, shown(&then)));
            }
            (_, Some(now)) if now.value == item.value => notes.push("same as without the file".to_owned()),
            (_, Some(now)) => notes.push(format!("without the file: {} ({})", shown(&now), now.origin)),
            (_, None) => {}
        }
        notes
    }
}

/// Lists the options that a file can set.
fn keys() -> impl Iterator<Item = (&'static OptionSpec, KeySpec)> {
    OPTIONS.iter().filter_map(|option| Some((option, option.key?)))
}

fn shown(item: &Item) -> String {
    match &item.value {
        Some(Toml::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
        None => "a secret".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Language, Origin, parse_file};

    fn config(text: &str) -> Config {
        let settings = parse_file(text, Language::Toml, "f", None, &Origin::Config("f".into())).expect(text);
        Config::new(settings).expect(text)
    }

    fn page(file: &str, now: &str, trusted: Option<&str>) -> String {
        let comparison = Comparison { file: config(file), now: config(now), then: None, trusted: trusted.map(config) };
        comparison.text(Path::new("f"), View::default())
    }

    /// Returns the section of the page that is headed as opening something.
    fn opening(file: &str, now: &str) -> String {
        let text = page(file, now, None);
        text.split("\n\n").filter(|part| part.starts_with("Opens the sandbox")).collect()
    }

    /// Values that open the sandbox, and the configuration without the file.
    const OPENING: &[(&str, &str, &str)] = &[
        ("engine", "engine = \"native\"", ""),
        ("engine", "engine = \"auto\"", "engine = \"podman\""),
        ("image", "image = \"x\"", ""),
        ("image", "image = \"x\"", "image = \"y\""),
        ("agent", "agent = \"claude\"", ""),
        ("agent", "agent = \"claude\"", "agent = \"none\""),
        ("mounts", "mounts = [{ from = \"/a\" }]", ""),
        ("mounts", "mounts = [{ from = \"/a\", mode = \"rw\" }]", "mounts = [{ from = \"/a\" }]"),
        ("includeDirs", "includeDirs = [\"/a\"]", ""),
        ("network", "network = \"on\"", "network = \"off\""),
        ("network", "network = \"on\"", "network = \"proxied\""),
        ("network", "network = \"proxied\"", "network = \"off\""),
        ("allowHosts", "allowHosts = [\"a.b\"]", "network = \"off\""),
        ("allowHosts", "allowHosts = [\"a.b\"]", "allowHosts = [\"c.d\"]"),
        ("proxyCommand", "proxyCommand = \"x\"", ""),
        ("ports", "ports = [80]", ""),
        ("sshAgent", "sshAgent = \"auto\"", "sshAgent = \"off\""),
        ("sshAgent", "sshAgent = \"on\"", "sshAgent = \"off\""),
        ("sshAgent", "sshAgent = \"raw\"", ""),
        ("sshHosts", "sshHosts = [\"a.b\"]", "sshHosts = [\"c.d\"]"),
        ("sshConfirm", "sshConfirm = false", "sshConfirm = true"),
        ("cache", "cache = \"on\"", "cache = \"off\""),
        ("nested", "nested = \"on\"", ""),
        ("push", "push = [\"agent/*\"]", ""),
        ("push", "push = [\"+agent/*\"]", "push = [\"agent/*\"]"),
        ("keys", "keys = \"inside\"", ""),
        ("keys", "keys = \"auto\"", "keys = \"outside\""),
        ("secrets", "secrets = [\"A_KEY@a.b\"]", ""),
        ("secrets", "secrets = [\"A_KEY@a.b\"]", "secrets = [\"A_KEY@c.d\"]"),
        ("resources.cpus", "resources.cpus = 4", "resources.cpus = 2"),
        ("resources.memory", "resources.memory = \"2g\"", "resources.memory = \"900m\""),
        ("resources.pids", "resources.pids = 4000", ""),
        ("user", "user = \"image\"", ""),
        ("tmp", "tmp = \"host\"", ""),
        ("workspace", "workspace = \"live\"", "workspace = \"copy\""),
        ("git", "git = \"shared\"", ""),
        ("allowHome", "allowHome = true", ""),
        ("strict", "strict = false", "strict = true"),
        ("engineFlags", "engineFlags = [\"--privileged\"]", ""),
        ("seatbeltProfile", "seatbeltProfile = \"permissive-open\"", ""),
        ("kubernetes.context", "kubernetes.context = \"x\"", ""),
        ("kubernetes.namespace", "kubernetes.namespace = \"x\"", ""),
        ("kubernetes.runtimeClass", "kubernetes.runtimeClass = \"x\"", ""),
        ("kubernetes.serviceAccount", "kubernetes.serviceAccount = \"x\"", ""),
        ("kubernetes.nodeSelector", "kubernetes.nodeSelector = [\"a=b\"]", ""),
        ("kubernetes.tolerations", "kubernetes.tolerations = [\"a\"]", ""),
        ("kubernetes.imagePullSecrets", "kubernetes.imagePullSecrets = [\"x\"]", ""),
    ];

    /// Values that do not open it.
    const CLOSING: &[(&str, &str, &str)] = &[
        ("engine", "engine = \"podman\"", "engine = \"podman\""),
        ("image", "image = \"x\"", "image = \"x\""),
        ("agent", "agent = \"none\"", ""),
        ("agent", "agent = \"none\"", "agent = \"claude\""),
        ("mounts", "mounts = [{ from = \"/a\" }]", "mounts = [{ from = \"/a\" }]"),
        ("includeDirs", "includeDirs = [\"/a\"]", "includeDirs = [\"/a\"]"),
        ("env", "env.LD_PRELOAD = \"/x.so\"", ""),
        ("network", "network = \"off\"", ""),
        ("network", "network = \"proxied\"", ""),
        ("allowHosts", "allowHosts = [\"a.b\"]", ""),
        ("proxyCommand", "proxyCommand = \"x\"", "proxyCommand = \"x\""),
        ("ports", "ports = [80]", "ports = [80]"),
        ("sshAgent", "sshAgent = \"off\"", ""),
        ("sshAgent", "sshAgent = \"on\"", ""),
        ("sshHosts", "sshHosts = [\"a.b\"]", ""),
        ("sshConfirm", "sshConfirm = true", ""),
        ("cache", "cache = \"on\"", ""),
        ("nested", "nested = \"off\"", ""),
        ("hide", "hide = [\".env\"]", ""),
        ("push", "push = [\"agent/*\"]", "push = [\"agent/*\"]"),
        ("keys", "keys = \"outside\"", ""),
        ("keys", "keys = \"inside\"", "keys = \"inside\""),
        ("secrets", "secrets = [\"A_KEY@a.b\"]", "secrets = [\"A_KEY@a.b\"]"),
        ("resources.cpus", "resources.cpus = 4", ""),
        ("resources.cpus", "resources.cpus = 0.5", "resources.cpus = 2"),
        ("resources.memory", "resources.memory = \"2g\"", ""),
        ("resources.memory", "resources.memory = \"900m\"", "resources.memory = \"2g\""),
        ("resources.pids", "resources.pids = 64", ""),
        ("user", "user = \"host\"", ""),
        ("tmp", "tmp = \"private\"", "tmp = \"host\""),
        ("workspace", "workspace = \"copy\"", ""),
        ("git", "git = \"private\"", "git = \"shared\""),
        ("allowHome", "allowHome = false", "allowHome = true"),
        ("strict", "strict = true", ""),
        ("engineFlags", "engineFlags = [\"--init\"]", "engineFlags = [\"--init\"]"),
        ("seatbeltProfile", "seatbeltProfile = \"x\"", "seatbeltProfile = \"x\""),
        ("kubernetes.context", "kubernetes.context = \"x\"", "kubernetes.context = \"x\""),
        ("kubernetes.namespace", "kubernetes.namespace = \"x\"", "kubernetes.namespace = \"x\""),
        ("kubernetes.runtimeClass", "kubernetes.runtimeClass = \"x\"", "kubernetes.runtimeClass = \"x\""),
        ("kubernetes.serviceAccount", "kubernetes.serviceAccount = \"x\"", "kubernetes.serviceAccount = \"x\""),
        ("kubernetes.nodeSelector", "kubernetes.nodeSelector = [\"a=b\"]", "kubernetes.nodeSelector = [\"a=b\"]"),
        ("kubernetes.tolerations", "kubernetes.tolerations = [\"a\"]", "kubernetes.tolerations = [\"a\"]"),
        (
            "kubernetes.imagePullSecrets",
            "kubernetes.imagePullSecrets = [\"x\"]",
            "kubernetes.imagePullSecrets = [\"x\"]",
        ),
    ];

    #[test]
    fn what_opens_the_sandbox_has_a_section() {
        for (key, file, now) in OPENING {
            assert!(
                opening(file, now).contains(&format!("\n  {key}  ")),
                "{file} over {now}: {}",
                page(file, now, None)
            );
        }
        for (_, file, now) in CLOSING {
            assert_eq!(opening(file, now), "", "{file} over {now}");
        }
    }

    /// An option that is added needs a value that opens the sandbox, unless none does, and one that
    /// does not.
    #[test]
    fn every_key_is_tested() {
        let tested = |cases: &[(&'static str, &str, &str)]| cases.iter().map(|(key, ..)| *key).collect::<BTreeSet<_>>();
        let all: BTreeSet<&str> = keys().map(|(_, key)| key.name).collect();
        assert_eq!(tested(CLOSING), all);
        let opening = tested(OPENING);
        let never: Vec<&&str> = all.iter().filter(|key| !opening.contains(**key)).collect();
        assert_eq!(never, [&"env", &"hide"], "options that never open the sandbox");
    }

    #[test]
    fn what_changed_since_is_shown() {
        let text = page("env.A = \"1\"\nenv.B = \"2\"", "", Some("env.A = \"1\"\nenv.C = \"3\"\nnetwork = \"off\""));
        for line in [
            "env  `A` is `1` inside  as you trusted it",
            "env  `B` is `2` inside  new since you trusted it",
            "Removed since you trusted it",
            "env      `C` is `3` inside",
            "network  there is no network",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(page("", "", None), "f\n\nNo changes\n  the file sets no option\n");
    }

    #[test]
    fn a_secret_is_not_shown_but_that_it_changed_is() {
        assert!(page("env.MY_KEY = \"a\"", "", Some("env.MY_KEY = \"b\"")).contains("new since"));
        assert!(page("env.MY_KEY = \"a\"", "", Some("env.MY_KEY = \"a\"")).contains("as you trusted it"));
        assert!(!page("env.GH_TOKEN = \"hush\"", "", Some("env.GH_TOKEN = \"hushed\"")).contains("hush"));
    }
}
