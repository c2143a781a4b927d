//! Tests clock jumps. sandpen measures waits by the monotonic clock and decides by a lock whether a
//! sandbox runs. The wall clock only affects ages, and when a directory without a lock counts as
//! stale.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd, Running, eventually};

for_every_engine!(
    a_running_sandbox_is_kept_whatever_its_time,
    leftovers_are_removed_whatever_their_time,
    a_signal_is_forwarded_whatever_the_clock_says,
);

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

fn far_ahead() -> SystemTime {
    SystemTime::now() + Duration::from_secs(10 * 365 * 86400)
}

/// Makes a session look as if it had been started at another time.
fn date(session: &Path, time: SystemTime) {
    let record = session.join("session.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&record).expect("a record")).expect("JSON");
    json["started"] = time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs().into();
    fs::write(&record, json.to_string()).expect("written");
    for path in [&record, &session.join("owner"), session] {
        File::open(path).and_then(|file| file.set_modified(time)).expect("dated");
    }
}

fn start(fixture: &Fixture) -> Running {
    let mut running = Running::start(fixture.run().args(["--", "sh", "-c", "echo ready; exec sleep 300"]));
    assert_eq!(running.line(), "ready");
    running
}

fn a_running_sandbox_is_kept_whatever_its_time(fixture: &Fixture) {
    let mut running = start(fixture);
    for time in [long_ago(), far_ahead()] {
        date(&fixture.sessions()[0], time);
        fixture.run().args(["--", "true"]).finish().success();
        fixture.sandpen(["prune"]).finish().success();
        let list = fixture.sandpen(["ps", "--format", "json"]).finish().json();
        assert_eq!((list.as_array().map(Vec::len), &list[0]["state"]), (Some(1), &"running".into()));
        let age = list[0]["age"].as_u64().expect("an age");
        assert_eq!(age == 0, time > SystemTime::now(), "{age}");
    }
    fixture.sandpen(["stop", "--all"]).finish().success();
    assert_eq!(running.finish().code, Some(143));
    assert!(fixture.sessions().is_empty());
}

fn leftovers_are_removed_whatever_their_time(fixture: &Fixture) {
    for time in [long_ago(), far_ahead()] {
        let mut running = start(fixture);
        running.signal(rustix::process::Signal::KILL);
        running.finish();
        let [session] = &fixture.sessions()[..] else { panic!("one session expected") };
        date(session, time);
        // These directories remain from launchers that were killed before they took the lock, or
        // during the removal.
        for name in [".new-0123456789ab", ".old-0123456789ab"] {
            let path = session.with_file_name(name);
            fs::create_dir(&path).expect("a directory");
            std::os::unix::fs::chown(&path, Some(fixture.uid), Some(fixture.gid)).expect("chown");
            File::open(&path).and_then(|file| file.set_modified(time)).expect("dated");
        }
        fixture.sandpen(["prune"]).finish().success();
        assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
    }
}

fn a_signal_is_forwarded_whatever_the_clock_says(fixture: &Fixture) {
    for time in [long_ago(), far_ahead()] {
        let script = "trap 'echo got USR1' USR1; echo ready; while :; do sleep 0.1; done";
        let mut running = Running::start(fixture.run().args(["--", "sh", "-c", script]));
        assert_eq!(running.line(), "ready");
        // The age of this file decides whether the engine's client is ready for signals.
        if let Ok(file) = File::open(fixture.sessions()[0].join("status")) {
            file.set_modified(time).expect("dated");
        }
        // An engine's client loses signals until it has registered that the container runs.
        eventually("signals arrive", || {
            running.signal(rustix::process::Signal::USR1);
            running.has_line()
        });
        running.signal(rustix::process::Signal::TERM);
        assert_eq!(running.finish().code, Some(143));
        eventually("the session is removed", || fixture.sessions().is_empty());
    }
}
