//! Many sandboxes at once, over the same directory and over different ones: no interference, every code the right one, nothing left.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Engine, Pen, RunToEnd, apart, comes_true};

/// A sandbox among many. Dropping it kills it.
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

/// Says that it runs, waits until told to end, and ends with a code of its own. Its home and temp directory must be empty.
const GUEST: &str =
    "ls -A /tmp ~ | grep -v -e : -e '^$' -e '^p[0-9]*$' >&2; touch /tmp/mine ~/mine; echo $1 > started-$1;
    while [ ! -e go ]; do sleep 0.3; done; exit $2";

fn at_once(pen: &Pen, count: usize) {
    let mut all: Vec<One> = (0..count)
        .map(|number| {
            // Every other one has a directory of its own; the rest share one.
            let own = if number % 2 == 0 { 0 } else { number };
            let directory = pen.outside("many").join(format!("p{own}"));
            fs::create_dir_all(&directory).expect("a directory");
            std::os::unix::fs::chown(&directory, Some(pen.uid), Some(pen.gid)).expect("chown");
            let code = (number % 7) as i32;
            let mut command = pen.run();
            command.current_dir(&directory).stdout(Stdio::null()).stderr(Stdio::piped());
            command.args(["--network", "off", "--", "bash", "-c", GUEST, "bash"]);
            command.args([number.to_string(), code.to_string()]);
            One { child: command.spawn().expect("start"), directory, code }
        })
        .collect();
    let started = |(number, one): (usize, &One)| one.directory.join(format!("started-{number}")).exists();
    let all_run = comes_true(Duration::from_secs(90), || all.iter().enumerate().all(started));
    let running = pen.sandpen().args(["ps", "--quiet"]).ran().ok().lines().count();
    for one in &all {
        fs::write(one.directory.join("go"), "").expect("written");
    }
    let ended =
        comes_true(Duration::from_secs(60), || all.iter_mut().all(|one| one.child.try_wait().expect("wait").is_some()));
    assert!(all_run && ended, "{running} of {count} ran");
    assert_eq!(running, count);
    for one in &mut all {
        let mut said = String::new();
        std::io::Read::read_to_string(one.child.stderr.as_mut().expect("a pipe"), &mut said).expect("text");
        assert_eq!((one.child.wait().expect("wait").code(), apart(&said).0.as_str()), (Some(one.code), ""));
    }
    assert!(comes_true(Duration::from_secs(10), || pen.sessions().is_empty()), "{:?}", pen.sessions());
    if pen.engine.is_container() {
        let ran = pen.client().args(["ps", "--all", "--format", "{{.Labels}}"]).ran();
        let ours = pen.outside("many").display().to_string();
        assert!(!ran.ok().contains(&ours), "{}", ran.stdout);
    }
}

#[test]
fn fifty_native_sandboxes_at_once() {
    Pen::on(Engine::Native, |pen| at_once(pen, 50));
}

#[test]
fn fifty_native_sandboxes_of_root_at_once() {
    Pen::on(Engine::NativeRoot, |pen| at_once(pen, 50));
}

#[test]
fn fifty_containers_at_once() {
    Pen::on(Engine::Docker, |pen| at_once(pen, 50));
}

/// Podman, without a daemon that shares work, takes a second of a processor for each.
#[test]
fn ten_of_podmans_containers_at_once() {
    Pen::on(Engine::Podman, |pen| at_once(pen, 10));
}

#[test]
fn ten_of_rootless_podmans_containers_at_once() {
    Pen::on(Engine::PodmanRootless, |pen| at_once(pen, 10));
}
