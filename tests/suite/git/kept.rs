//! An exchange loses neither the user's commits, stashes and settings nor the guest's, whatever else
//! happens at that moment.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::exchange::{allow_step, assert_whole, await_step, messages, next_command, prepare, refs, start};
use super::{bash_in, git, last_subject};
use crate::support::{Engine, Finished, Fixture, RunToEnd, Running, eventually};

/// Puts a script in the place of the host's Git for a sandbox. It runs before Git, with the
/// arguments in `$*`; `once NAME` succeeds the first time.
fn with_git(fixture: &Fixture, script: &str) -> (&'static str, String) {
    let directory = fixture.outside("bin");
    let text = format!(
        "#!/bin/bash\nonce() {{ mkdir '{0}'/\"$1\" 2> /dev/null; }}\n{script}\nexec /usr/bin/git \"$@\"\n",
        directory.display()
    );
    fixture.write_script(directory.join("git"), &text);
    ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()))
}

/// Returns the directories and files that are set aside.
fn set_aside(fixture: &Fixture, id: &str) -> Vec<PathBuf> {
    let directory = fixture.home.join(".local/state/sandpen/set-aside").join(id);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn commits_that_only_a_reflog_names_are_found_by_their_ids() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = "id() { git rev-parse HEAD; }
            for n in 1 2; do echo $n >> file; git commit --quiet --all --message $n; id; done
            git commit --quiet --amend --message other; id; git reset --quiet --hard HEAD~2
            git checkout --quiet --detach; echo 3 >> file; git commit --quiet --all --message 3; id
            git checkout --quiet main";
        let finished = bash_in(fixture, &main, &[], script);
        let ids: Vec<String> = finished.success().lines().map(str::to_owned).collect();
        assert!(ids.len() == 4 && messages_of(&finished).is_empty(), "{finished:?}");
        for id in &ids {
            git(fixture, &main, &["ls-tree", "-r", id]).success();
        }
        assert_whole(fixture, &main);
    });
}

#[test]
fn operations_come_out_that_change_no_ref_and_no_index() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        bash_in(fixture, &main, &[], "git bisect start > /dev/null").success();
        git(fixture, &main, &["bisect", "log"]).success();
        git(fixture, &main, &["bisect", "reset"]).success();
        git(fixture, &main, &["switch", "--quiet", "a"]).success();
        git(fixture, &main, &["commit", "--quiet", "--allow-empty", "--message", "on a"]).success();
        git(fixture, &main, &["switch", "--quiet", "main"]).success();
        git(fixture, &main, &["merge", "--quiet", "--no-ff", "--no-commit", "a"]).success();
        bash_in(fixture, &main, &[], "echo mine > .git/MERGE_MSG").success();
        assert_eq!(fs::read_to_string(main.join(".git/MERGE_MSG")).expect("a message"), "mine\n");
    });
}

fn messages_of(finished: &Finished) -> Vec<&str> {
    finished.stderr.lines().filter(|line| line.starts_with("sandpen:")).collect()
}

#[test]
fn filters_of_the_host_do_not_run_for_the_guests_files() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        fixture.write_script(main.join("clean.sh"), "#!/bin/sh\ncat\n");
        fixture.write(main.join(".gitattributes"), "*.txt filter=x\n*.md filter=a=b\n*.c filter=long\n");
        for file in ["f.txt", "f.md", "f.c"] {
            fixture.write(main.join(file), "one\n");
        }
        git(fixture, &main, &["config", "filter.x.clean", "./clean.sh"]).success();
        git(fixture, &main, &["config", "filter.x.required", "true"]).success();
        git(fixture, &main, &["config", "filter.a=b.clean", "./clean.sh"]).success();
        git(fixture, &main, &["add", "."]).success();
        git(fixture, &main, &["commit", "--quiet", "--message", "filtered"]).success();
        git(fixture, &main, &["config", "filter.long.process", "./clean.sh"]).success();
        let script = r"printf '#!/bin/sh\nreadlink /proc/self/ns/pid >> .steps/namespaces\ncat\n' > clean.sh
            for file in f.txt f.md; do echo more >> $file; git add $file; done
            echo more >> f.c; git -c filter.long.process= add f.c
            echo new > g.txt; git add --intent-to-add g.txt";
        let finished = bash_in(fixture, &main, &[], script);
        finished.success();
        let ran = fs::read_to_string(main.join(".steps/namespaces")).expect("the filter ran inside");
        let outside = fs::read_link("/proc/self/ns/pid").expect("a namespace").display().to_string();
        assert!(!ran.lines().any(|namespace| namespace == outside), "a filter ran outside: {}", finished.stderr);
        for (file, text) in [(":f.txt", "one\nmore"), (":f.md", "one\nmore"), (":f.c", "one\nmore")] {
            assert_eq!(git(fixture, &main, &["cat-file", "-p", file]).success(), text);
        }
        assert_eq!(git(fixture, &main, &["ls-files", "g.txt"]).success(), "g.txt");
    });
}

/// A terminal sends Ctrl-C to the foreground process group, of which sandpen is a part, and the same
/// goes for the hang-up when it is closed. Ctrl-C stops the work at the end; the next command does it.
#[test]
fn ctrl_c_and_hang_ups_at_the_end_lose_nothing() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        for signal in ["INT", "HUP", "TERM"] {
            let interrupt = format!(
                "case \"$*\" in *unpack-objects*) once {signal} && {{ kill -{signal} -- -$(ps -o pgid= $PPID | tr -d ' '); sleep 0.3; }};; esac"
            );
            let (name, path) = with_git(fixture, &interrupt);
            let mut command = fixture.run();
            command.current_dir(&main).env(name, path).process_group(0);
            command.args(["--", "git", "commit", "--quiet", "--allow-empty", "--message", signal]);
            let finished = Running::start(&mut command).finish();
            assert!(fixture.outside("bin").join(signal).exists(), "it was sent");
            assert_whole(fixture, &main);
            if signal != "HUP" {
                assert!(finished.stderr.contains("the next sandpen command tries again"), "{finished:?}");
                let mut next = fixture.run();
                next.current_dir(&main).args(["--", "true"]).finish().success();
            }
            assert_eq!(last_subject(fixture, &main), signal, "{finished:?}");
            assert_eq!(fixture.sessions().len(), 0);
            assert_whole(fixture, &main);
        }
    });
}

/// Returns the directory in memory of the only session.
fn memory_of_session(fixture: &Fixture) -> PathBuf {
    let of_fixture = |path: &PathBuf| {
        fs::read_to_string(path.join("session")).is_ok_and(|session| Path::new(&session).starts_with(&fixture.home))
    };
    let entries = fs::read_dir("/dev/shm").expect("a directory").flatten().map(|entry| entry.path());
    entries.into_iter().find(of_fixture).expect("a session in memory")
}

/// A private directory that is removed in part looks like one in which the guest deleted branches.
#[test]
fn a_kill_while_the_session_is_removed_changes_nothing() {
    const COUNT: usize = 60_000;
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        git(fixture, &main, &["branch", "other"]).success();
        git(fixture, &main, &["switch", "--quiet", "--detach"]).success();
        let before = git(fixture, &main, &["for-each-ref"]).success().to_owned();
        // So many files that their removal takes a while.
        let script =
            format!("mkdir .git/info/many; (cd .git/info/many; seq {COUNT} | xargs touch); reach made; await end");
        let mut running = start(fixture, &main, "removed", &script);
        await_step(&main, "made");
        let many = memory_of_session(fixture).join("0/inside/info/many");
        allow_step(fixture, &main, "end");
        eventually("the session is being removed", || fs::read_dir(&many).map_or(0, Iterator::count) < COUNT);
        running.signal(Signal::KILL);
        running.finish();
        for _ in 0..2 {
            assert_eq!(fixture.sandpen(["ps"]).current_dir("/").finish().stderr, "");
        }
        assert_eq!(git(fixture, &main, &["for-each-ref"]).success(), before);
        assert_eq!(fixture.sessions().len(), 0);
        assert_whole(fixture, &main);
    });
}

#[test]
fn the_next_command_brings_out_what_a_killed_git_did_not() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let (name, path) = with_git(fixture, "case \"$*\" in *unpack-objects*) once term && kill -TERM $$;; esac");
        let mut command = fixture.run();
        command.current_dir(&main).env(name, path);
        command.args(["--", "git", "commit", "--quiet", "--allow-empty", "--message", "inside"]);
        let finished = command.finish();
        assert!(finished.stderr.contains("was ended by signal 15"), "{finished:?}");
        assert_eq!(fixture.sessions().len(), 1, "the session is kept");
        next_command(fixture);
        assert_eq!(last_subject(fixture, &main), "inside");
        assert_eq!(fixture.sessions().len(), 0);
    });
}

/// `git fetch` takes such commits from other projects.
#[test]
fn work_on_top_of_commits_with_odd_dates_comes_out() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        for (number, committer) in
            ["A <a@x> bad", "A<a@x> 1 +0000", "A <a@x> 1 +051800", "A <a@x> 01 +0000"].iter().enumerate()
        {
            let script = format!(
                r#"set -e; tree=$(git rev-parse HEAD^{{tree}})
                old=$(printf "tree $tree\nauthor A <a@x> 1 +0000\ncommitter {committer}\n\nold\n" | git hash-object -t commit -w --literally --stdin)
                git switch --quiet --detach main; git switch --quiet -c odd-{number} $old; echo {number} > work; git add work; git commit --quiet -m work
                git switch --quiet --force main"#
            );
            let finished = bash_in(fixture, &main, &[], &script);
            assert_eq!((finished.success(), finished.stderr.as_str()), ("", ""), "{committer}");
            let name = format!("refs/heads/odd-{number}");
            assert_eq!(refs(fixture, &main, &name), [format!("{name} work")], "{committer}");
        }
    });
}

#[test]
fn the_git_directory_is_kept_if_a_commit_is_refused() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = r#"set -e; blob=$(echo x | git hash-object -w --stdin)
            tree=$(printf "100644 .git\0$(echo $blob | sed 's/../\\x&/g')" | git hash-object -t tree -w --literally --stdin)
            bad=$(git commit-tree -p HEAD -m bad $tree)
            git update-ref refs/heads/bad $(git commit-tree -p $bad -m work HEAD^{tree}); git rev-parse bad"#;
        let finished = bash_in(fixture, &main, &["--name", "refused"], script);
        let id = finished.success().to_owned();
        assert!(git(fixture, &main, &["cat-file", "-e", &id]).code != Some(0), "it came out");
        let aside = set_aside(fixture, "refused");
        assert_eq!(aside.len(), 1, "{}", finished.stderr);
        assert!(aside[0].join("objects").join(&id[..2]).join(&id[2..]).exists(), "{}", finished.stderr);
        assert!(finished.stderr.contains(&format!("is kept in `{}`", aside[0].display())), "{}", finished.stderr);
        assert_eq!(fixture.sessions().len(), 0);
    });
}

/// The guest's `git status` may hold the lock of its index when the host's is given.
#[test]
fn an_index_that_could_not_be_given_is_given_later() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = r#"touch .git/index.lock; reach ready
            until_true '[ "$(git log -1 --format=%s)" = outside ]'; sleep 2; rm .git/index.lock
            until_true '[ -z "$(git status --porcelain)" ]'"#;
        let mut running = start(fixture, &main, "locked", script);
        await_step(&main, "ready");
        fixture.write(main.join("file"), "outside\n");
        git(fixture, &main, &["commit", "--quiet", "--all", "--message", "outside"]).success();
        assert_eq!(messages(&mut running), "");
    });
}

#[test]
fn the_users_commit_is_kept_if_its_branch_is_moved_and_deleted() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        git(fixture, &main, &["switch", "--quiet", "a"]).success();
        git(fixture, &main, &["commit", "--quiet", "--allow-empty", "--message", "only here"]).success();
        git(fixture, &main, &["switch", "--quiet", "main"]).success();
        let script = "git branch --quiet --force a $(git commit-tree -m junk HEAD^{tree}); reach moved; await go; git branch --quiet -D a";
        let mut running = start(fixture, &main, "moved", script);
        await_step(&main, "moved");
        eventually("the junk is outside", || refs(fixture, &main, "refs/heads/a") == ["refs/heads/a junk"]);
        allow_step(fixture, &main, "go");
        let stderr = messages(&mut running);
        assert_eq!(refs(fixture, &main, "refs/heads/a"), Vec::<String>::new());
        assert_eq!(refs(fixture, &main, "refs/sandpen"), ["refs/sandpen/moved/heads/a only here"], "{stderr}");
        assert!(stderr.contains("`a` was deleted inside") && stderr.contains("refs/sandpen/moved/heads/a"), "{stderr}");
    });
}

#[test]
fn a_tag_of_the_user_is_kept_if_it_is_moved_or_deleted() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let tree = git(fixture, &main, &["rev-parse", "HEAD^{tree}"]).success().to_owned();
        let only = git(fixture, &main, &["commit-tree", "-m", "only here", &tree]).success().to_owned();
        git(fixture, &main, &["tag", "plain", &only]).success();
        git(fixture, &main, &["tag", "-m", "release", "annotated"]).success();
        git(fixture, &main, &["tag", "-m", "deleted", "gone"]).success();
        let finished =
            bash_in(fixture, &main, &["--name", "tags"], "git tag -f plain; git tag -f annotated; git tag -d gone");
        finished.success();
        let expected = [
            "refs/sandpen/tags/tags/annotated release",
            "refs/sandpen/tags/tags/gone deleted",
            "refs/sandpen/tags/tags/plain only here",
        ];
        assert_eq!(refs(fixture, &main, "refs/sandpen"), expected, "{}", finished.stderr);
        assert!(finished.stderr.contains("`annotated` was moved inside"), "{}", finished.stderr);
    });
}

#[test]
fn changes_that_came_out_while_the_sandbox_ran_are_named_at_the_end() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        fixture.write(main.join("file"), "stashed\n");
        git(fixture, &main, &["stash", "push", "--quiet", "--message", "mine"]).success();
        git(fixture, &main, &["remote", "add", "origin", "https://good.example/x.git"]).success();
        git(fixture, &main, &["config", "branch.main.remote", "origin"]).success();
        git(fixture, &main, &["config", "branch.main.merge", "refs/heads/main"]).success();
        let script =
            "git stash drop --quiet; git remote add up https://evil.example/x.git; git config branch.main.remote up
            reach changed; await end";
        let mut running = start(fixture, &main, "named", script);
        await_step(&main, "changed");
        eventually("the setting is outside", || {
            git(fixture, &main, &["config", "branch.main.remote"]).stdout == "up\n"
        });
        eventually("the stash is dropped", || git(fixture, &main, &["stash", "list"]).stdout.is_empty());
        allow_step(fixture, &main, "end");
        let stderr = messages(&mut running);
        for text in ["mine` was dropped inside", "changed `branch.main.remote` from `origin` to `up`"] {
            assert_eq!(stderr.matches(text).count(), 1, "{text}: {stderr}");
        }
    });
}

#[test]
fn other_files_come_out_while_one_entry_is_held_back() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = "echo h > h; git add --intent-to-add h; echo v1 > file; git add file; reach staged; await go
            echo v2 > file; git commit --quiet --message v2 file; reach committed; await end";
        let mut running = start(fixture, &main, "held", script);
        await_step(&main, "staged");
        eventually("the file is staged outside", || git(fixture, &main, &["cat-file", "-p", ":file"]).stdout == "v1\n");
        allow_step(fixture, &main, "go");
        await_step(&main, "committed");
        eventually("the commit is outside", || last_subject(fixture, &main) == "v2");
        eventually("the index is outside", || git(fixture, &main, &["cat-file", "-p", ":file"]).stdout == "v2\n");
        allow_step(fixture, &main, "end");
        assert_eq!(messages(&mut running), "");
        assert_eq!(git(fixture, &main, &["status", "--porcelain"]).stdout, " A h\n");
    });
}

/// The user pushes a stash at the moment when sandpen drops another.
#[test]
fn a_stash_that_the_user_pushes_meanwhile_stays() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let push = |message: &str| {
            fixture.write(main.join("file"), &format!("stash {message}\n"));
            git(fixture, &main, &["stash", "push", "--quiet", "--message", message]).success();
        };
        push("one");
        push("two");
        let user = format!(
            "case \"$*\" in *'reflog delete'*|*'update-ref -d refs/stash'*) once push && (unset GIT_DIR; cd '{}'
            echo three > file; git -c user.name=Me -c user.email=me@x stash push --quiet --message three);; esac",
            main.display()
        );
        let (name, path) = with_git(fixture, &user);
        let mut command = fixture.run();
        command.current_dir(&main).env(name, path).args(["--", "git", "stash", "drop", "--quiet", "stash@{0}"]);
        let finished = command.finish();
        finished.success();
        let list = git(fixture, &main, &["stash", "list", "--format=%s"]).success().to_owned();
        assert_eq!(list, "On main: three\nOn main: two\nOn main: one", "{}", finished.stderr);
    });
}

#[test]
fn a_dropped_stash_leaves_the_others_as_they_are() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        for message in ["one", "two", "three"] {
            fixture.write(main.join("file"), &format!("stash {message}\n"));
            git(fixture, &main, &["stash", "push", "--quiet", "--message", message]).success();
        }
        let list =
            || git(fixture, &main, &["stash", "list", "--date=raw", "--format=%H %gn %gd %gs"]).success().to_owned();
        let before = list();
        let mut expected: Vec<&str> = before.lines().collect();
        bash_in(fixture, &main, &[], "git stash drop --quiet stash@{1}").success();
        assert_eq!(expected.remove(1).split(' ').next_back(), Some("two"));
        assert_eq!(list().lines().collect::<Vec<_>>(), expected);
    });
}

/// One branch cannot be updated, and the others come out without a call of Git for each.
#[test]
fn one_locked_branch_does_not_slow_down_hundreds() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        fixture.write(main.join(".git/refs/heads/n250.lock"), "");
        let calls = fixture.outside("calls").join("list");
        let (name, path) = with_git(fixture, &format!("echo \"$*\" >> '{}'", calls.display()));
        let mut command = fixture.run();
        command.current_dir(&main).env(name, path);
        let script = "for i in $(seq 500); do echo create refs/heads/n$i HEAD; done | git update-ref --stdin";
        let finished = command.args(["--name", "many", "--", "bash", "-c", script]).finish();
        finished.success();
        fs::remove_file(main.join(".git/refs/heads/n250.lock")).expect("the lock");
        assert_eq!(refs(fixture, &main, "refs/heads/n*").len(), 499, "{}", finished.stderr);
        assert_eq!(refs(fixture, &main, "refs/sandpen"), ["refs/sandpen/many/heads/n250 files"]);
        let calls = fs::read_to_string(calls).expect("calls").lines().count();
        assert!(calls < 100, "{calls} calls of Git");
    });
}

#[test]
fn a_long_report_is_written_to_a_file() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let script = "for i in $(seq 30); do git update-ref refs/custom/n$i HEAD; done";
        let finished = bash_in(fixture, &main, &["--name", "long"], script);
        finished.success();
        let file: &Path = &set_aside(fixture, "long")[0];
        let last = finished.stderr.lines().last().expect("messages");
        assert!(last.starts_with("sandpen: 10 more") && last.contains(&file.display().to_string()), "{last}");
        let text = fs::read_to_string(file).expect("the list");
        assert_eq!(text.lines().filter(|line| line.starts_with("`refs/custom/n")).count(), 30, "{text}");
    });
}
