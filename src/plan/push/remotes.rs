//! Lists the remotes of the repository that sandpen can reach for a sandbox, from the host's Git
//! settings. Reads no files.

use super::remote_url::RemoteUrl;
use crate::facts::git::Setting;

/// The setting beside a remote that a sandbox added: `remote.NAME.sandpen`, with the sandbox's id.
/// Such a remote is not the user's before the user removes the setting.
pub const MARK: &str = "sandpen";

/// A repository that a remote names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The name of the first remote that uses it.
    pub name: String,
    pub url: RemoteUrl,
}

/// A spelling of a remote's URL, for which Git inside uses sandpen's transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The index in [`Remotes::usable`].
    pub number: usize,
    pub spelling: String,
    /// Whether it is for pushes only.
    pub is_push: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remotes {
    /// Each repository once.
    pub usable: Vec<Remote>,
    pub rewrites: Vec<Rewrite>,
    /// The names of remotes that a sandbox added.
    pub marked: Vec<String>,
}

impl Remotes {
    /// Lists the remotes with an SSH or HTTPS URL that no sandbox added.
    pub fn of(settings: &[Setting]) -> Self {
        let mut remotes = Remotes::default();
        let rewriting = Rewriting::of(settings);
        for name in names(settings) {
            let values = |variable: &str| values(settings, &format!("remote.{name}.{variable}"));
            if settings.iter().any(|setting| setting.key == format!("remote.{name}.{MARK}")) {
                remotes.marked.push(name.to_owned());
                continue;
            }
            let push_urls = values("pushurl");
            for url in values("url") {
                remotes.add(name, url, &rewriting.for_all(url), false);
                if let (true, Some(actual)) = (push_urls.is_empty(), rewriting.for_pushes(url)) {
                    remotes.add(name, url, &actual, true);
                }
            }
            for url in push_urls {
                remotes.add(name, url, &rewriting.for_all(url), false);
            }
        }
        remotes
    }

    fn add(&mut self, name: &str, spelling: &str, actual: &str, is_push: bool) {
        let Some(url) = RemoteUrl::parse(actual) else { return };
        let known = self.usable.iter().position(|remote| remote.url == url);
        let number = known.unwrap_or_else(|| {
            self.usable.push(Remote { name: name.to_owned(), url });
            self.usable.len() - 1
        });
        self.rewrite(number, spelling, is_push);
        // The guest may use the actual URL, for example with `git clone`.
        self.rewrite(number, actual, false);
    }

    fn rewrite(&mut self, number: usize, spelling: &str, is_push: bool) {
        if !self.rewrites.iter().any(|known| known.spelling == spelling && known.is_push == is_push) {
            self.rewrites.push(Rewrite { number, spelling: spelling.to_owned(), is_push });
        }
    }
}

/// Lists the names of remotes in the order of their first setting.
fn names(settings: &[Setting]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for setting in settings {
        let name = setting.key.strip_prefix("remote.").and_then(|rest| rest.rsplit_once('.'));
        if let Some((name, "url" | "pushurl")) = name
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// Returns the values of a setting with several; an empty one removes those before it.
fn values<'a>(settings: &'a [Setting], key: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    for setting in settings.iter().filter(|setting| setting.key == key) {
        match setting.value.as_str() {
            "" => values.clear(),
            value => values.push(value),
        }
    }
    values
}

/// `url.BASE.insteadOf` and `url.BASE.pushInsteadOf`.
struct Rewriting<'a> {
    /// Pairs of a beginning and what replaces it.
    all: Vec<(&'a str, &'a str)>,
    pushes: Vec<(&'a str, &'a str)>,
}

impl<'a> Rewriting<'a> {
    fn of(settings: &'a [Setting]) -> Self {
        let pairs = |variable: &str| {
            let of_variable = settings.iter().filter_map(|setting| {
                let (base, found) = setting.key.strip_prefix("url.")?.rsplit_once('.')?;
                (found == variable).then_some((setting.value.as_str(), base))
            });
            of_variable.collect()
        };
        Rewriting { all: pairs("insteadof"), pushes: pairs("pushinsteadof") }
    }

    fn for_all(&self, url: &str) -> String {
        replaced(&self.all, url).unwrap_or_else(|| url.to_owned())
    }

    fn for_pushes(&self, url: &str) -> Option<String> {
        replaced(&self.pushes, url)
    }
}

/// Replaces the longest beginning that matches; of several with the same length, Git uses the first.
fn replaced(pairs: &[(&str, &str)], url: &str) -> Option<String> {
    let matching = pairs.iter().filter(|(start, _)| url.starts_with(start));
    let longest = matching.fold(None, |best: Option<&(&str, &str)>, pair| match best {
        Some(best) if best.0.len() >= pair.0.len() => Some(best),
        _ => Some(pair),
    });
    longest.map(|(start, base)| format!("{base}{}", &url[start.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::Scope;

    fn remotes(settings: &[(&str, &str)]) -> Remotes {
        let settings: Vec<Setting> = settings
            .iter()
            .map(|(key, value)| Setting {
                scope: Scope::Repository,
                file: None,
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        Remotes::of(&settings)
    }

    fn urls(remotes: &Remotes) -> Vec<String> {
        remotes.usable.iter().map(|remote| remote.url.to_string()).collect()
    }

    fn rewrites(remotes: &Remotes) -> Vec<(usize, &str, bool)> {
        remotes.rewrites.iter().map(|rewrite| (rewrite.number, rewrite.spelling.as_str(), rewrite.is_push)).collect()
    }

    #[test]
    fn urls_are_rewritten_as_git_does_outside() {
        let found = remotes(&[
            ("remote.origin.url", "gh:me/app"),
            ("url.https://github.com/.insteadof", "gh:"),
            ("url.ssh://git@example.org/.pushinsteadof", "gh:me/"),
            ("url.https://wrong.example/.insteadof", "g"),
        ]);
        assert_eq!(urls(&found), ["https://github.com/me/app", "ssh://git@example.org/app"]);
        assert_eq!(
            rewrites(&found),
            [
                (0, "gh:me/app", false),
                (0, "https://github.com/me/app", false),
                (1, "gh:me/app", true),
                (1, "ssh://git@example.org/app", false),
            ]
        );
    }

    #[test]
    fn an_explicit_push_url_is_not_rewritten_for_pushes() {
        let found = remotes(&[
            ("remote.origin.url", "https://a.example/x"),
            ("remote.origin.pushurl", "git@a.example:x"),
            ("url.https://b.example/.pushinsteadof", "https://a.example/"),
        ]);
        assert_eq!(urls(&found), ["https://a.example/x", "ssh://git@a.example/~/x"]);
        assert_eq!(rewrites(&found), [(0, "https://a.example/x", false), (1, "git@a.example:x", false)]);
    }

    #[test]
    fn remotes_of_a_sandbox_and_other_urls_are_left_out() {
        let found = remotes(&[
            ("remote.origin.url", "/srv/app"),
            ("remote.my.fork.url", "https://evil.example/x"),
            ("remote.my.fork.sandpen", "691efe50019a"),
            ("remote.twice.url", "host:a"),
            ("remote.again.url", "host:a"),
        ]);
        assert_eq!(found.marked, ["my.fork"]);
        assert_eq!(found.usable.iter().map(|remote| remote.name.as_str()).collect::<Vec<_>>(), ["twice"]);
    }
}
