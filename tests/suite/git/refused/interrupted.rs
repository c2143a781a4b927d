//! A session that is interrupted loses neither the guest's commits nor the work that the user did
//! afterwards.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process_group};

use super::attack;
use super::nested::{EVIL_REPOSITORY, evil};
use crate::faults::Full;
use crate::for_docker_and_native;
use crate::git::exchange::{allow_step, assert_whole, await_step, messages, next_command, prepare, refs, start};
use crate::git::{bash_in, git, last_subject, repository};
use crate::support::{Engine, Fixture, RunToEnd, Running, SYSTEM_PATH, eventually, install_script, is_root_or_skip};

for_docker_and_native!(
    the_users_work_after_a_kill_stays,
    a_repository_of_a_killed_guest_is_not_taken_for_the_users,
    a_commit_survives_signals,
    work_after_the_end_obeys_signals,
    a_commit_survives_a_full_disk,
);

/// The launcher may have been alive for some seconds after it last said so.
fn await_end_of_kill(fixture: &Fixture) {
    let saved = fixture.sessions()[0].join("repositories.json");
    let last_seen = fs::metadata(saved).and_then(|meta| meta.modified()).expect("time");
    eventually("the time of the kill is over", || {
        last_seen.elapsed().is_ok_and(|elapsed| elapsed > Duration::from_secs(5))
    });
}

/// A new mode or a new name changes the time of the last change, but not that of the creation.
fn a_repository_of_a_killed_guest_is_not_taken_for_the_users(fixture: &Fixture) {
    let main = prepare(fixture);
    if fs::metadata(&main).and_then(|meta| meta.created()).is_err() {
        return;
    }
    let script = format!(
        "{}{EVIL_REPOSITORY}evil closed; evil moved; git init --quiet --bare bare; git -C bare config core.fsmonitor \"$EVIL\"
        chmod 0 closed/.git bare; reach made; sleep 60",
        evil(fixture)
    );
    let mut running = start(fixture, &main, "killed", &script);
    await_step(&main, "made");
    running.signal(Signal::KILL);
    running.finish();
    await_end_of_kill(fixture);
    fs::set_permissions(main.join("closed/.git"), fs::Permissions::from_mode(0o700)).expect("mode");
    fs::rename(main.join("moved"), main.join("renamed")).expect("rename");
    fs::rename(main.join("renamed/.git"), main.join("renamed/x")).expect("rename");
    fs::rename(main.join("renamed/x"), main.join("renamed/.git")).expect("rename");
    let stderr = next_command(fixture).stderr;
    for name in ["closed", "renamed"] {
        let set = git(fixture, main.join(name), &["config", "core.fsmonitor"]);
        assert_eq!(set.stdout, "", "{name}: {stderr}");
        assert_eq!(last_subject(fixture, &main.join(name)), "evil", "{name}: {stderr}");
    }
    assert!(!main.join("bare/HEAD").exists(), "Git would use the bare repository: {stderr}");
}

fn the_users_work_after_a_kill_stays(fixture: &Fixture) {
    let main = prepare(fixture);
    let [clone, other] = ["clone", "other"].map(|name| repository(fixture, &main.join(name)));
    fixture.write(main.join(".gitignore"), "clone\nother\nlater\n.steps\n");
    git(fixture, &main, &["commit", "--quiet", "--all", "--message", "ignored"]).success();
    let script = "reach ready; await go; commit inside; commit_on a by-guest
        git -C clone commit --quiet --allow-empty --message by-guest; git -C other config alias.st '!evil'
        reach committed; sleep 60";
    let mut running = start(fixture, &main, "killed", script);
    await_step(&main, "ready");
    running.signal(Signal::STOP);
    allow_step(fixture, &main, "go");
    await_step(&main, "committed");
    running.signal(Signal::KILL);
    running.finish();
    await_end_of_kill(fixture);
    git(fixture, &main, &["commit", "--quiet", "--allow-empty", "--message", "by the user"]).success();
    fixture.write(main.join("by-user"), "x\n");
    git(fixture, &main, &["add", "by-user"]).success();
    git(fixture, &clone, &["config", "alias.co", "checkout"]).success();
    fixture.write_script(clone.join(".git/hooks/pre-push"), "#!/bin/sh\n");
    let later = repository(fixture, &main.join("later"));
    git(fixture, &later, &["config", "alias.co", "checkout"]).success();
    let stderr = next_command(fixture).stderr;
    assert_eq!(last_subject(fixture, &main), "by the user");
    assert_eq!(refs(fixture, &main, "refs/heads/a"), ["refs/heads/a by-guest"], "{stderr}");
    let kept = refs(fixture, &main, "refs/sandpen/killed");
    assert_eq!(kept, ["refs/sandpen/killed/heads/main inside"]);
    assert!(stderr.contains("refs/sandpen/killed/heads/main"), "{stderr}");
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "A  by-user");
    assert_eq!(last_subject(fixture, &clone), "by-guest");
    for directory in [&clone, &later] {
        let alias = git(fixture, directory, &["config", "alias.co"]);
        assert_eq!(alias.stdout, "checkout\n", "{}: {stderr}", directory.display());
    }
    assert!(clone.join(".git/hooks/pre-push").exists(), "{stderr}");
    assert_eq!(git(fixture, &other, &["config", "alias.st"]).stdout, "", "{stderr}");
    assert_whole(fixture, &main);
}

/// What was made after the launcher was last alive is the user's, so a launcher that waits for
/// another exchange must count as alive.
#[test]
fn a_repository_made_during_a_long_exchange_is_not_the_users() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let clone = repository(fixture, &main.join("clone"));
        let script = format!(
            "{}{EVIL_REPOSITORY}commit one; await locked; commit two; await late; evil made
            git -C clone config core.fsmonitor \"$EVIL\"; reach made; sleep 60",
            evil(fixture)
        );
        let mut running = start(fixture, &main, "long", &script);
        eventually("an exchange takes place", || last_subject(fixture, &main) == "one");
        let locks = fs::read_dir(fixture.home.join(".local/state/sandpen/locks")).expect("locks");
        let locks = locks.map(|entry| entry.expect("entry").path()).filter(|path| path.extension().is_none());
        let locks: Vec<File> =
            locks.map(|path| File::options().write(true).open(path).expect("the lock's file")).collect();
        for file in &locks {
            eventually("the lock is free", || fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).is_ok());
        }
        allow_step(fixture, &main, "locked");
        let start = Instant::now();
        eventually("the exchange takes long", || start.elapsed() > Duration::from_secs(6));
        assert_eq!(last_subject(fixture, &main), "one", "the lock has no effect");
        allow_step(fixture, &main, "late");
        await_step(&main, "made");
        running.signal(Signal::KILL);
        drop(locks);
        running.finish();
        next_command(fixture);
        assert_eq!(last_subject(fixture, &main), "two");
        for directory in [&main.join("made"), &clone] {
            git(fixture, directory, &["status"]).success();
            attack::assert_nothing_ran(fixture, &directory.display().to_string());
        }
    });
}

/// Their private Git directories are in the same directory in memory.
#[test]
fn sandboxes_of_the_same_name_with_other_state_directories_are_apart() {
    Fixture::on(Engine::Native, |fixture| {
        let main = prepare(fixture);
        let second = repository(fixture, &fixture.outside("second"));
        let mut running = start(fixture, &main, "same", "reach ready; await go; commit inside");
        await_step(&main, "ready");
        let mut command = fixture.run();
        command.current_dir(&second).env("XDG_STATE_HOME", fixture.outside("state"));
        command.args(["--name", "same", "--", "git", "commit", "--quiet", "--allow-empty", "--message", "inside"]);
        command.finish().success();
        allow_step(fixture, &main, "go");
        assert_eq!(messages(&mut running), "");
        assert_eq!([&main, &second].map(|directory| last_subject(fixture, directory)), ["inside", "inside"]);
    });
}

/// Ctrl-C reaches every process in the group of the terminal; a terminal that closes sends SIGHUP.
fn a_commit_survives_signals(fixture: &Fixture) {
    let main = prepare(fixture);
    for (which, is_for_group) in [(Signal::INT, true), (Signal::HUP, false), (Signal::INT, true), (Signal::HUP, false)]
    {
        let subject = format!("before {which:?}");
        let script =
            format!("echo x >> file; git commit --quiet --all --message '{subject}'; echo committed; sleep 60");
        let mut command = fixture.run();
        command.current_dir(&main).process_group(0).args(["--", "bash", "-c", &script]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "committed");
        if is_for_group {
            let group = i32::try_from(running.pid()).ok().and_then(Pid::from_raw).expect("a pid");
            kill_process_group(group, which).expect("the group exists");
        } else {
            running.signal(which);
        }
        let finished = running.finish();
        assert_eq!(finished.code, Some(128 + which.as_raw()), "{finished:?}");
        assert_eq!(last_subject(fixture, &main), subject, "{finished:?}");
        assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
        assert_eq!(fixture.sessions().len(), 0, "{which:?}");
        assert_whole(fixture, &main);
    }
}

/// The host's Git does not end. What could not come out comes out with the next command.
fn work_after_the_end_obeys_signals(fixture: &Fixture) {
    let main = prepare(fixture);
    let (programs, hang, hangs) = (fixture.outside("programs"), fixture.root.join("hang"), fixture.outside("hangs"));
    let (hang_path, hangs_path) = (hang.display(), hangs.display());
    let git_script = format!(
        "#!/bin/sh\n[ ! -e {hang_path} ] || {{ : > {hangs_path}/now; exec sleep 300; }}\nexec /usr/bin/git \"$@\"\n"
    );
    install_script(programs.join("git"), &git_script);
    for which in [Signal::INT, Signal::TERM] {
        let subject = format!("before {which:?}");
        let nested = main.join(format!("nested-{}", which.as_raw()));
        let script = format!(
            "git init --quiet {0}; git -C {0} commit --quiet --allow-empty --message nested
            echo ready; read _; echo x >> file; git commit --quiet --all --message '{subject}'; echo committed",
            nested.display()
        );
        let mut command = fixture.run();
        command.env("PATH", format!("{}:{SYSTEM_PATH}", programs.display())).current_dir(&main);
        command.stdin(Stdio::piped()).args(["--", "bash", "-c", &script]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "ready");
        fs::write(&hang, "").expect("written");
        running.close_stdin();
        assert_eq!(running.line(), "committed");
        eventually("the host's Git hangs", || hangs.join("now").exists());
        eventually("sandpen exits", || {
            running.signal(which);
            running.has_exited()
        });
        let finished = running.finish();
        assert!(finished.stderr.contains(&format!("stopped by signal {}", which.as_raw())), "{}", finished.stderr);
        assert!(finished.stderr.contains("the next sandpen command tries again"), "{}", finished.stderr);
        assert_ne!(last_subject(fixture, &main), subject);
        fs::remove_file(&hang).expect("removed");
        fs::remove_file(hangs.join("now")).expect("removed");
        fixture.sandpen(["ps"]).finish().success();
        assert_eq!([&main, &nested].map(|directory| last_subject(fixture, directory)), [&subject, "nested"]);
        assert_eq!(fixture.sessions().len(), 0, "{which:?}");
        fs::remove_dir_all(nested).expect("removed");
        assert_whole(fixture, &main);
    }
}

fn a_commit_survives_a_full_disk(fixture: &Fixture) {
    if !is_root_or_skip("mounts that only root can make") {
        return;
    }
    let main = prepare(fixture);
    let objects = main.join(".git/objects");
    let moved = main.join(".git/moved");
    fs::rename(&objects, &moved).expect("rename");
    fs::create_dir(&objects).expect("directory");
    let _disk = Full::at(fixture, objects.clone(), "size=512k,mode=755");
    fixture.host_command("cp").arg("-a").arg(moved.join(".")).arg(&objects).finish().success();
    fs::remove_dir_all(moved).expect("remove");
    let filler = objects.join("filler");
    let error = fs::write(&filler, vec![0; 1 << 20]).expect_err("the disk is too small");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let finished = bash_in(fixture, &main, &[], "echo two > file; git commit --quiet --all --message inside");
    finished.success();
    assert!(finished.stderr.contains("No space left on device"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: the next sandpen command tries again"), "{}", finished.stderr);
    assert_eq!((last_subject(fixture, &main).as_str(), fixture.sessions().len()), ("files", 1));
    let again = fixture.sandpen(["ps"]).current_dir("/").finish();
    assert!(again.stderr.contains("No space left on device"), "{}", again.stderr);
    assert_eq!((last_subject(fixture, &main).as_str(), fixture.sessions().len()), ("files", 1));
    fs::remove_file(filler).expect("remove");
    let third = fixture.sandpen(["ps"]).current_dir("/").finish();
    assert_eq!((last_subject(fixture, &main).as_str(), fixture.sessions().len()), ("inside", 0), "{third:?}");
    assert_eq!(git(fixture, &main, &["status", "--porcelain"]).success(), "");
    git(fixture, &main, &["fsck", "--no-dangling", "--strict"]).success();
}
