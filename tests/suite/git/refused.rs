//! A guest that attacks the host through its Git directory changes nothing there except commits,
//! refs and the index, and no planted code runs outside.

mod attack;
mod found;
mod gitlinks;
mod interrupted;
mod links;
mod nested;
mod objects;
mod options;
mod races;
mod search;
mod snapshot;

use std::fs;
use std::path::Path;

use crate::for_docker_and_native;
use crate::git::exchange;
use crate::support::{Engine, Fixture, eventually};

use attack::Attack;
pub use snapshot::{Snapshot, leftovers};

for_docker_and_native!(
    settings_stay_inside,
    a_lazy_fetch_is_not_planted,
    hooks_stay_inside,
    files_that_redirect_git_stay_inside,
    links_lead_nowhere,
    fifos_do_not_block,
    a_crafted_index_is_refused,
    odd_names_of_refs_are_refused,
    a_removed_git_directory_stays_outside,
    commands_of_a_rebase_stay_inside,
    submodules_and_worktrees_are_covered,
);

fn settings_stay_inside(fixture: &Fixture) {
    for key in super::DANGEROUS_SETTINGS {
        let script = format!("git config --file .git/config '{key}' \"!$EVIL\"");
        Attack::new(fixture, key, &script).says(key).brings_out_good_commits().run();
    }
    // A tool that a `[filter]` names runs only for files with that attribute.
    let script = "git config --file .git/config filter.x.clean \"$EVIL\"; echo '* filter=x' > .git/info/attributes";
    Attack::new(fixture, "attributes", script).says("filter.x.clean").run();
    // Git runs the lines of this format as instructions of a rebase.
    let script = "git config rebase.instructionFormat \"%s%nexec $EVIL%n#\"; git config pull.rebase true";
    Attack::new(fixture, "instructions", script).says("rebase.instructionformat").brings_out_good_commits().run();
    // Git passes the name of a remote to `git fetch` as a word.
    for setting in
        ["'remote.--upload-pack=touch x;false.url' .", "branch.main.remote '--upload-pack=touch x'", "core.worktree /"]
    {
        let script = format!("git config {}", setting.replace("touch x", "'\"$EVIL\"'"));
        let key = setting.trim_start_matches('\'').split(['=', ' ']).next().expect("a key");
        Attack::new(fixture, "odd", &script).says(key).run();
    }
}

/// Git fetches missing objects from a promisor remote, and passes its name as an option.
fn a_lazy_fetch_is_not_planted(fixture: &Fixture) {
    let script = r#"git config extensions.partialClone origin; git config remote.origin.url /nonexistent/any
        git config "remote.--upload-pack=$EVIL;false.promisor" true; tree=$(git rev-parse HEAD^{tree})
        rm -f .git/objects/${tree:0:2}/${tree:2}"#;
    Attack::new(fixture, "promisor", script).says("extensions.partialclone").run();
    let script = "git config extensions.partialClone \"--upload-pack=$EVIL\"";
    Attack::new(fixture, "alone", script).says("extensions.partialclone").run();
}

fn hooks_stay_inside(fixture: &Fixture) {
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "post-rewrite",
        "fsmonitor-watchman",
    ] {
        let script = format!(
            "mkdir -p .git/hooks; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > .git/hooks/{hook}; chmod +x .git/hooks/{hook}"
        );
        Attack::new(fixture, hook, &script).says(hook).run();
    }
    let script = "rm -rf .git/hooks; ln -s ../tools .git/hooks; mkdir tools; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > tools/pre-commit
        chmod +x tools/pre-commit";
    Attack::new(fixture, "linked", script).says("hooks").run();
}

fn files_that_redirect_git_stay_inside(fixture: &Fixture) {
    let elsewhere =
        "mkdir -p c/objects c/refs; printf '[core]\\n\\tfsmonitor = %s\\n' \"$EVIL\" > c/config; cp .git/HEAD c";
    Attack::new(fixture, "commondir", &format!("{elsewhere}; echo ../c > .git/commondir")).says("commondir").run();
    let script = "printf '[core]\\n\\tfsmonitor = %s\\n' \"$EVIL\" > .git/config.worktree; git config extensions.worktreeConfig true";
    Attack::new(fixture, "config.worktree", script).says("config").run();
    for (file, text) in
        [("shallow", "$(git rev-parse HEAD)"), ("info/grafts", "$(git rev-parse HEAD)"), ("gitdir", "/tmp")]
    {
        Attack::new(fixture, file, &format!("echo {text} > .git/{file}")).run();
    }
    // The object would be found through the host's own repository.
    let secret = fixture.outside("secret");
    let hidden = super::repository(fixture, &secret);
    fixture.write(secret.join("key"), "hunter2");
    super::git(fixture, &hidden, &["add", "key"]).success();
    super::git(fixture, &hidden, &["commit", "--quiet", "--message", "secret"]).success();
    let commit = super::git(fixture, &hidden, &["rev-parse", "HEAD"]).success().to_owned();
    let objects = hidden.join(".git/objects");
    let script =
        format!("echo {} >> .git/objects/info/alternates; echo {commit} > .git/refs/heads/stolen", objects.display());
    Attack::new(fixture, "alternates", &script).says("`stolen`").brings_out_good_commits().run();
    let main = attack::directory(fixture, "alternates");
    assert!(super::git(fixture, &main, &["cat-file", "-e", &commit]).code != Some(0), "the foreign commit came out");
    // The guest's HEAD leads to another ref namespace, or to no ref.
    for head in ["ref: ../../x", "ref: refs/heads/a..b", "ref: /etc/passwd", "garbage", "ref: refs/heads/-x", ""] {
        Attack::new(fixture, "head", &format!("printf '{head}\\n' > .git/HEAD"))
            .says("HEAD")
            .brings_out_good_commits()
            .run();
    }
}

fn links_lead_nowhere(fixture: &Fixture) {
    let startup = fixture.write("startup", "# mine\n");
    let directory = fixture.outside("directory");
    for file in [
        "index",
        "HEAD",
        "refs/heads/main",
        "packed-refs",
        "logs/HEAD",
        "logs/refs/heads/main",
        "COMMIT_EDITMSG",
        "FETCH_HEAD",
        "ORIG_HEAD",
        "info/exclude",
        "config",
    ] {
        let script =
            format!("git config user.name 'x;touch /'; rm -f .git/{file}; ln -s {} .git/{file}", startup.display());
        Attack::new(fixture, file, &script).run();
        assert_eq!(fs::read_to_string(&startup).expect("file"), "# mine\n", "{file} was written through");
    }
    for file in ["index", "HEAD", "packed-refs"] {
        let script = format!("rm -f .git/{file}; ln -s \"$PWD/file\" .git/{file}");
        Attack::new(fixture, file, &script).says(file).run();
    }
    for place in ["objects/pack", "refs", "refs/heads", "logs", "info", "hooks", "worktrees", "modules", "rebase-merge"]
    {
        let script = format!("rm -rf .git/{place}; ln -s {} .git/{place}", directory.display());
        Attack::new(fixture, place, &script).run();
        assert!(fs::read_dir(&directory).expect("directory").next().is_none(), "{place} was written through");
    }
}

fn fifos_do_not_block(fixture: &Fixture) {
    for file in ["index", "HEAD", "packed-refs"] {
        Attack::new(fixture, file, &format!("rm -f .git/{file}; mkfifo .git/{file}")).says(file).run();
    }
    let script = "rm -f .git/refs/heads/main; mkfifo .git/refs/heads/main";
    Attack::new(fixture, "main", script).says("main").brings_out_good_commits().run();
    for file in [
        "config",
        "config.worktree",
        "objects/info/alternates",
        "logs/refs/stash",
        "MERGE_HEAD",
        "shallow",
        "info/sparse-checkout",
        "commondir",
    ] {
        Attack::new(fixture, file, &format!("mkdir -p .git/logs/refs; rm -f .git/{file}; mkfifo .git/{file}")).run();
    }
    let script = "git switch --quiet -c bad; git commit --quiet --allow-empty -m bad; id=$(git rev-parse bad)
        rm -f .git/objects/${id:0:2}/${id:2}; mkfifo .git/objects/${id:0:2}/${id:2}";
    Attack::new(fixture, "object", script).says("`bad`").brings_out_good_commits().run();
}

/// The next checkout would write every path of such an index.
#[test]
fn an_index_that_is_refused_while_the_sandbox_runs_is_reported_at_its_end() {
    Fixture::on(Engine::Native, |fixture| {
        let main = exchange::prepare(fixture);
        let id = super::git(fixture, &main, &["rev-parse", "HEAD:file"]).success().to_owned();
        fs::write(main.join(".steps/crafted"), objects::index_with_path(fixture, "../x", &id)).expect("index");
        let script = "cp .steps/crafted .git/index; git branch made; reach made; await end";
        let mut running = exchange::start(fixture, &main, "index", script);
        exchange::await_step(&main, "made");
        eventually("an exchange", || !exchange::refs(fixture, &main, "refs/heads/made").is_empty());
        exchange::allow_step(fixture, &main, "end");
        let messages = exchange::messages(&mut running);
        assert!(messages.contains("`../x` is not staged outside"), "{messages}");
    });
}

fn a_crafted_index_is_refused(fixture: &Fixture) {
    let hook = "#!/bin/sh\ntouch executed\n";
    for (number, path) in
        ["../x", ".git/hooks/post-commit", ".git/x", "a//b", "/x", "a/../../x", ".GIT/hooks/pre-commit", "a/.", ""]
            .iter()
            .enumerate()
    {
        let name = format!("index-{number}");
        let main = attack::prepare(fixture, &name);
        let blob = fixture.write(main.join("blob"), hook);
        let id = super::git(fixture, &main, &["hash-object", blob.to_str().expect("text")]).success().to_owned();
        let file = fixture.write(main.join("crafted"), "");
        fs::write(&file, objects::index_with_path(fixture, path, &id)).expect("index");
        let script = "git hash-object -w blob > /dev/null; cp crafted .git/index";
        Attack::new(fixture, &name, script).on_prepared().says(path).brings_out_good_commits().run();
        super::git(fixture, &main, &["reset", "--quiet", "--hard"]).success();
        for written in [
            main.join("../x"),
            main.join(".git/x"),
            main.join(".git/hooks/post-commit"),
            main.join(".GIT"),
            main.join("a"),
        ] {
            assert!(!written.exists(), "{path}: {}", written.display());
        }
    }
    for damage in
        ["head -c 1000000 /dev/urandom", "head -c 40 .git/index", "printf 'DIRC\\0\\0\\0\\2\\377\\377\\377\\377'"]
    {
        let script = format!("{damage} > new; mv new .git/index");
        Attack::new(fixture, "damaged", &script).says("index").brings_out_good_commits().run();
    }
    Attack::new(fixture, "sparse", "truncate -s 1T .git/index").says("index").brings_out_good_commits().run();
}

fn odd_names_of_refs_are_refused(fixture: &Fixture) {
    for (number, name) in
        ["-x", "a..b", "a b", "x~1", "x^", "x:y", "x?", "@{1}", "bs\\\\x", "esc\\033[31mx", "nl\\nx", "\\377"]
            .iter()
            .enumerate()
    {
        let script = format!("head=$(git rev-parse main); echo $head > \".git/refs/heads/$(printf -- '{name}')\"");
        Attack::new(fixture, &format!("loose-{number}"), &script).says("ref").brings_out_good_commits().run();
        assert_no_other_branches(fixture, &format!("loose-{number}"));
    }
    let names = [
        "refs/heads/../../x",
        "refs/heads/../../config",
        "refs/heads/a..b",
        "refs/heads//x",
        "/etc/x",
        "config",
        "index",
        "HEAD",
        "objects/info/alternates",
        "refs/heads/x.lock",
        "refs/heads/x/",
        "refs/heads/-x",
        "refs/heads/x y",
        "main",
        "refs/x\u{1b}[2J",
    ];
    for (number, name) in names.iter().enumerate() {
        let script = format!("printf '%s %s\\n' $(git rev-parse main) '{name}' >> .git/packed-refs");
        Attack::new(fixture, &format!("packed-{number}"), &script).says("ref").run();
        assert_no_other_branches(fixture, &format!("packed-{number}"));
    }
    // Git takes these for its own temporary files.
    let script = "for name in x.lock .x main.lock; do git rev-parse main > .git/refs/heads/$name; done";
    Attack::new(fixture, "temporary", script).brings_out_good_commits().run();
    assert_no_other_branches(fixture, "temporary");
    // A ref may name no object, or something that is not an object.
    for value in [
        "0000000000000000000000000000000000000000",
        "1111111111111111111111111111111111111111",
        "--all",
        "ref: refs/heads/loop",
    ] {
        let script = format!("echo '{value}' > .git/refs/heads/loop");
        Attack::new(fixture, "value", &script).says("`loop`").brings_out_good_commits().run();
        assert_no_other_branches(fixture, "value");
    }
}

#[track_caller]
fn assert_no_other_branches(fixture: &Fixture, name: &str) {
    let format = ["for-each-ref", "--format=%(refname)", "refs/heads", "refs/sandpen"];
    let found = super::git(fixture, attack::directory(fixture, name), &format);
    let known = ["refs/heads/good", "refs/heads/main", "refs/heads/old", "refs/heads/packed"];
    let others: Vec<&str> = found.success().lines().filter(|line| !known.contains(line)).collect();
    assert!(others.is_empty(), "{name}: {others:?}");
}

fn a_removed_git_directory_stays_outside(fixture: &Fixture) {
    for (number, script) in [
        "rm -rf .git",
        "rm -rf .git/*",
        "rm -rf .git/refs .git/packed-refs",
        "rm -rf .git/objects",
        "rm -f .git/HEAD",
        "rm -rf .git/refs; echo x > .git/refs",
    ]
    .iter()
    .enumerate()
    {
        Attack::new(fixture, &format!("removed-{number}"), &format!("{script} 2> /dev/null || true")).says("").run();
    }
    // Root can read such files.
    for script in ["chmod -R a-rwx .git", "chmod 0 .git/refs .git/index .git/HEAD", "chmod 0 .git/objects/*"] {
        Attack::new(fixture, "closed", &format!("{script} 2> /dev/null || true")).run();
    }
}

/// `git rebase --continue` would run the commands.
fn commands_of_a_rebase_stay_inside(fixture: &Fixture) {
    let script = "git rebase --quiet --exec 'false' HEAD~1 2> /dev/null || true; echo \"exec $EVIL\" >> .git/rebase-merge/git-rebase-todo";
    Attack::new(fixture, "exec", script).says("rebase").run();
    let main = attack::directory(fixture, "exec");
    super::git(fixture, &main, &["rebase", "--continue"]);
    attack::assert_nothing_ran(fixture, "git rebase --continue");
    for file in ["strategy", "strategy_opts", "gpg_sign_opt", "onto", "head-name"] {
        let script = format!(
            "git switch --quiet -c mine; git commit --quiet --allow-empty -m mine; git commit --quiet --allow-empty -m more
            GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase --quiet --interactive HEAD~2 2> /dev/null || true
            echo \"--x;$EVIL\" > .git/rebase-merge/{file}"
        );
        Attack::new(fixture, file, &script).run();
        super::git(fixture, attack::directory(fixture, file), &["rebase", "--continue"]);
        attack::assert_nothing_ran(fixture, file);
    }
}

fn submodules_and_worktrees_are_covered(fixture: &Fixture) {
    let library = super::repository(fixture, &fixture.outside("library"));
    let prepare = |name: &str| {
        let main = attack::prepare(fixture, name);
        super::git(fixture, &main, &["submodule", "--quiet", "add", library.to_str().expect("text"), "sub"]).success();
        super::git(fixture, &main, &["commit", "--quiet", "--message", "sub"]).success();
        super::git(fixture, &main, &["worktree", "add", "--quiet", "-b", "tree", "tree"]).success();
    };
    for (number, (script, says)) in [
        ("git -C sub config core.fsmonitor \"$EVIL\"", "core.fsmonitor"),
        ("git -C sub config core.worktree /", "core.worktree"),
        ("printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > .git/modules/sub/hooks/post-checkout; chmod +x .git/modules/sub/hooks/*", "post-checkout"),
        ("echo ../../x > .git/modules/sub/commondir", "commondir"),
        ("git config extensions.worktreeConfig true; git -C tree config --worktree core.fsmonitor \"$EVIL\"", "config"),
        ("echo ../../x > .git/worktrees/tree/commondir", "commondir"),
        ("echo /etc/passwd > .git/worktrees/tree/gitdir", "gitdir"),
        ("rm .git/worktrees/tree/HEAD; ln -s \"$PWD/file\" .git/worktrees/tree/HEAD", "HEAD"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("place-{number}");
        prepare(&name);
        Attack::new(fixture, &name, script).on_prepared().says(says).run();
        let main = attack::directory(fixture, &name);
        for place in ["sub", "tree"] {
            super::git(fixture, main.join(place), &["status"]).success();
        }
        attack::assert_nothing_ran(fixture, script);
    }
}

/// Names a change, and makes it in a Git directory.
type Change = (&'static str, fn(&Path));

/// The comparison of Git directories finds every kind of change.
#[test]
fn a_change_of_the_git_directory_is_found() {
    let fixture = Fixture::new();
    let changes: [Change; 6] = [
        ("a setting", |git_dir| fs::write(git_dir.join("config"), "[core]\n").expect("write")),
        ("a hook", |git_dir| fs::write(git_dir.join("hooks/pre-commit"), "x").expect("write")),
        ("a link", |git_dir| std::os::unix::fs::symlink("/etc/passwd", git_dir.join("logs/x")).expect("link")),
        ("alternates", |git_dir| fs::write(git_dir.join("objects/info/alternates"), "/x").expect("write")),
        ("a lock", |git_dir| fs::write(git_dir.join("refs/heads/main.lock"), "").expect("write")),
        ("a removed file", |git_dir| fs::remove_file(git_dir.join("info/exclude")).expect("remove")),
    ];
    for (what, change) in changes {
        let git_dir = super::repository(&fixture, &fixture.project.join(what)).join(".git");
        let before = Snapshot::of(&git_dir);
        before.assert_only_commits_came_out("nothing");
        change(&git_dir);
        let found =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| before.assert_only_commits_came_out(what)));
        assert!(found.is_err(), "{what}");
    }
}
