//! Many sandboxes run at once, in the same directory and in different ones: each has its own exit
//! code, none disturbs another, and no session or container remains.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::support::{Engine, Fixture, RunToEnd, TIMEOUT, holds_within, split_progress};

/// Dropping it kills the sandbox.
struct One {
    child: Child,
    directory: PathBuf,
    code: i32,
}

impl Drop for One {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a file at its start, waits for another one, and exits with the given code. Prints an
/// error if its home or temp directory is not empty.
const GUEST: &str =
    "ls -A /tmp ~ | grep -v -e : -e '^$' -e '^p[0-9]*$' >&2; touch /tmp/mine ~/mine; echo $1 > started-$1;
    while [ ! -e go ]; do sleep 0.3; done; exit $2";

fn at_once(fixture: &Fixture, count: usize) {
    let mut all: Vec<One> = (0..count)
        .map(|number| {
            // Every second sandbox has its own directory; the others share one.
            let own = if number % 2 == 0 { 0 } else { number };
            let directory = fixture.outside("many").join(format!("p{own}"));
            fs::create_dir_all(&directory).expect("a directory");
            std::os::unix::fs::chown(&directory, Some(fixture.uid), Some(fixture.gid)).expect("chown");
            let code = (number % 7) as i32;
            let mut command = fixture.run();
            command.current_dir(&directory).stdout(Stdio::null()).stderr(Stdio::piped());
            command.args(["--network", "off", "--", "bash", "-c", GUEST, "bash"]);
            command.args([number.to_string(), code.to_string()]);
            One { child: command.spawn().expect("start"), directory, code }
        })
        .collect();
    let started = |(number, one): (usize, &One)| one.directory.join(format!("started-{number}")).exists();
    let all_run = holds_within(TIMEOUT, || all.iter().enumerate().all(started));
    let running = fixture.sandpen(["ps", "--quiet"]).finish().success().lines().count();
    for one in &all {
        fs::write(one.directory.join("go"), "").expect("written");
    }
    let ended = holds_within(TIMEOUT, || all.iter_mut().all(|one| one.child.try_wait().expect("wait").is_some()));
    assert!(all_run && ended, "only {running} of {count} sandboxes ran, or some did not end");
    assert_eq!(running, count);
    for one in &mut all {
        let mut said = String::new();
        std::io::Read::read_to_string(one.child.stderr.as_mut().expect("a pipe"), &mut said).expect("text");
        assert_eq!((one.child.wait().expect("wait").code(), split_progress(&said).0.as_str()), (Some(one.code), ""));
    }
    assert!(holds_within(TIMEOUT, || fixture.sessions().is_empty()), "{:?}", fixture.sessions());
    if fixture.engine().is_container() {
        let finished = fixture.client().args(["ps", "--all", "--format", "{{.Labels}}"]).finish();
        let ours = fixture.outside("many").display().to_string();
        assert!(!finished.success().contains(&ours), "{}", finished.stdout);
    }
}

#[test]
fn fifty_native_sandboxes_at_once() {
    Fixture::on(Engine::Native, |fixture| at_once(fixture, 50));
}

#[test]
fn fifty_native_sandboxes_of_root_at_once() {
    Fixture::on(Engine::NativeRoot, |fixture| at_once(fixture, 50));
}

#[test]
fn fifty_containers_at_once() {
    Fixture::on(Engine::Docker, |fixture| at_once(fixture, 50));
}

/// Podman has no daemon that shares work, so each container takes a second of CPU time.
#[test]
fn ten_of_podmans_containers_at_once() {
    Fixture::on(Engine::Podman, |fixture| at_once(fixture, 10));
}

#[test]
fn ten_of_rootless_podmans_containers_at_once() {
    Fixture::on(Engine::PodmanRootless, |fixture| at_once(fixture, 10));
}
