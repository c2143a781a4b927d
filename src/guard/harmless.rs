//! Lists the settings of a repository that neither run code nor redirect Git. An unknown setting counts
//! as dangerous, so settings of future versions of Git do.

/// Sections whose settings `SECTION.NAME` are all harmless, apart from [`EXCEPTIONS`].
const SECTIONS: &[&str] = &[
    "add",
    "advice",
    "apply",
    "blame",
    "checkout",
    "color",
    "column",
    "commitgraph",
    "feature",
    "fetch",
    "gc",
    "grep",
    "i18n",
    "index",
    "log",
    "maintenance",
    "merge",
    "notes",
    "pack",
    "pull",
    "push",
    "rebase",
    "receive",
    "rerere",
    "revert",
    "showbranch",
    "splitindex",
    "stash",
    "status",
    "tag",
    "transfer",
    "user",
    "versionsort",
    "worktree",
    "diff",
    "commit",
    "extensions",
    "branch",
    "author",
    "committer",
    "init",
    "am",
    "clean",
    "format",
];

/// Settings in those sections that run code or redirect Git.
const EXCEPTIONS: &[&str] = &[
    "blame.ignorerevsfile",
    "commit.template",
    "diff.external",
    "diff.guitool",
    "diff.orderfile",
    "diff.tool",
    "format.signaturefile",
    "gc.recentobjectshook",
    "init.templatedir",
    "merge.guitool",
    "merge.tool",
    "notes.rewriteref",
    "receive.fsck.skiplist",
    "user.signingkey",
];

/// The harmless settings of `core`, most of which name programs and paths.
const CORE: &[&str] = &[
    "abbrev",
    "autocrlf",
    "bare",
    "bigfilethreshold",
    "checkroundtripencoding",
    "checkstat",
    "commentchar",
    "commitgraph",
    "compression",
    "deltabasecachelimit",
    "eol",
    "filemode",
    "filesreflocktimeout",
    "fsync",
    "fsyncmethod",
    "fsyncobjectfiles",
    "ignorecase",
    "ignorestat",
    "logallrefupdates",
    "loosecompression",
    "multipackindex",
    "packedgitlimit",
    "packedgitwindowsize",
    "packedrefstimeout",
    "precomposeunicode",
    "preloadindex",
    "quotepath",
    "repositoryformatversion",
    "safecrlf",
    "sharedrepository",
    "sparsecheckout",
    "sparsecheckoutcone",
    "splitindex",
    "symlinks",
    "trustctime",
    "untrackedcache",
    "warnambiguousrefs",
    "whitespace",
];

/// The harmless names of `SECTION.SUBSECTION.NAME`.
const SUBSECTIONS: &[(&str, &[&str])] = &[
    (
        "branch",
        &[
            "remote",
            "merge",
            "rebase",
            "description",
            "pushremote",
            "autosetuprebase",
            "autosetupmerge",
            "vscode-merge-base",
            "gh-merge-base",
        ],
    ),
    (
        "remote",
        &[
            "url",
            "pushurl",
            "fetch",
            "push",
            "mirror",
            "tagopt",
            "prune",
            "prunetags",
            "skipdefaultupdate",
            "skipfetchall",
            "promisor",
            "partialclonefilter",
            "gh-resolved",
            "followremotehead",
        ],
    ),
    ("submodule", &["url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules", "update"]),
    ("color", &["current", "local", "remote", "upstream", "plain"]),
    ("lfs", &["access"]),
];

/// Harmless settings of other sections.
const SINGLE: &[&str] = &[
    "submodule.active",
    "submodule.recurse",
    "submodule.fetchjobs",
    "lfs.repositoryformatversion",
    "remote.pushdefault",
    "checkout.defaultremote",
];

pub fn is_harmless(key: &str, value: &str) -> bool {
    let (Some((section, rest)), Some((_, name))) = (key.split_once('.'), key.rsplit_once('.')) else { return false };
    if rest == name {
        return match section {
            "core" => CORE.contains(&name),
            _ => SINGLE.contains(&key) || SECTIONS.contains(&section) && !EXCEPTIONS.contains(&key),
        };
    }
    let is_known = SUBSECTIONS.iter().any(|(known, names)| *known == section && names.contains(&name));
    is_known && is_harmless_value(section, name, value)
}

/// Refuses remote helpers such as `ext::` and update commands, which run programs.
fn is_harmless_value(section: &str, name: &str, value: &str) -> bool {
    match (section, name) {
        ("remote" | "submodule", "url" | "pushurl") => !value.contains("::") && !value.starts_with('-'),
        ("submodule", "update") => matches!(value, "checkout" | "rebase" | "merge" | "none"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_push_and_clone_write_stays() {
        for (key, value) in [
            ("remote.origin.url", "git@example.org:a/b.git"),
            ("remote.up.stream.fetch", "+refs/heads/*:refs/remotes/up/*"),
            ("branch.topic.remote", "origin"),
            ("branch.a.b.merge", "refs/heads/a.b"),
            ("user.email", "a@b"),
            ("core.bare", "false"),
            ("pull.rebase", "true"),
            ("extensions.worktreeconfig", "true"),
            ("submodule.lib.url", "https://example.org/lib"),
        ] {
            assert!(is_harmless(key, value), "{key}");
        }
    }

    #[test]
    fn what_runs_code_or_redirects_does_not() {
        for (key, value) in [
            ("core.fsmonitor", "./x"),
            ("core.hookspath", "x"),
            ("core.sshcommand", "x"),
            ("core.pager", "x"),
            ("core.editor", "x"),
            ("core.worktree", "/"),
            ("core.gitproxy", "x"),
            ("core.alternaterefscommand", "x"),
            ("alias.st", "!x"),
            ("filter.x.clean", "x"),
            ("diff.x.command", "x"),
            ("diff.x.textconv", "x"),
            ("diff.external", "x"),
            ("merge.x.driver", "x"),
            ("credential.helper", "x"),
            ("credential.https://x.helper", "x"),
            ("include.path", "x"),
            ("includeif.gitdir:/.path", "x"),
            ("url.x.insteadof", "y"),
            ("gpg.program", "x"),
            ("gpg.ssh.program", "x"),
            ("pager.log", "x"),
            ("http.proxy", "x"),
            ("remote.origin.uploadpack", "x"),
            ("remote.origin.vcs", "x"),
            ("remote.origin.proxy", "x"),
            ("remote.x.url", "ext::sh -c x"),
            ("submodule.x.update", "!x"),
            ("protocol.ext.allow", "always"),
            ("uploadpack.packobjectshook", "x"),
            ("trailer.x.cmd", "x"),
            ("sequence.editor", "x"),
            ("mergetool.x.cmd", "x"),
            ("tar.x.command", "x"),
            ("lfs.url", "x"),
            ("nodots", "x"),
            ("something.new", "x"),
        ] {
            assert!(!is_harmless(key, value), "{key}");
        }
    }
}
