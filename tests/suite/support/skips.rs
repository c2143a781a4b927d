//! Counts skipped tests by engine and reason, and reports them when the test binary exits.
//!
//! libtest captures the output of a test and drops it when the test passes, so an exit handler
//! writes the report to standard error. An engine in `ENGINES_MUST_WORK` is never skipped: its
//! tests fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use super::user;

const ENGINES: [&str; 5] = ["docker", "podman", "podman-rootless", "docker-rootless", "native"];

/// Counts the skipped tests by the missing requirement and the reason.
static SKIPPED: Mutex<BTreeMap<(String, String), usize>> = Mutex::new(BTreeMap::new());

/// Records that a test is skipped, because `missing` is not available.
pub fn skip(missing: &str, reason: &str) {
    static REPORT_AT_EXIT: Once = Once::new();
    REPORT_AT_EXIT.call_once(|| {
        // SAFETY: `report` is an `extern "C"` function that does not unwind.
        unsafe { libc::atexit(report) };
    });
    let mut skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    *skipped.entry((missing.to_owned(), reason.to_owned())).or_default() += 1;
}

extern "C" fn report() {
    let skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for ((missing, reason), tests) in skipped.iter() {
        let tests = if *tests == 1 { "1 test".to_owned() } else { format!("{tests} tests") };
        text += &format!("SKIPPED {tests} ({missing}): {reason}\n");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns whether the tests run as root. If not, the test is recorded as skipped.
pub fn is_root(missing: &str) -> bool {
    let is_root = user::is_root();
    if !is_root {
        skip(missing, "the tests do not run as root");
    }
    is_root
}

/// Returns whether an engine works. If not, the test is recorded as skipped, or fails if the engine
/// must work.
#[track_caller]
pub fn is_engine_available(engine: &str) -> bool {
    let Some(problem) = engine_problem(engine) else { return true };
    assert!(!must_work().iter().any(|name| name == engine), "ENGINES_MUST_WORK names {engine}: {problem}");
    skip(engine, &problem);
    false
}

/// Returns why an engine does not work, as `scripts/engines` recorded it.
fn engine_problem(engine: &str) -> Option<String> {
    let Ok(working) = std::env::var("SANDPEN_TEST_ENGINES") else {
        return Some("SANDPEN_TEST_ENGINES is not set; `scripts/test` sets it".into());
    };
    if working.split(',').any(|name| name == engine) {
        return None;
    }
    let status = std::env::var("SANDPEN_TEST_RIG").ok().map(|rig| Path::new(&rig).join("status").join(engine));
    let reason = status.and_then(|file| fs::read_to_string(file).ok()).map(|text| text.trim().to_owned());
    Some(reason.filter(|reason| reason != "ok").unwrap_or_else(|| "SANDPEN_TEST_ENGINES does not name it".into()))
}

fn must_work() -> Vec<String> {
    let names = std::env::var("ENGINES_MUST_WORK").unwrap_or_default();
    names.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// This fails even if no test of the engine is selected.
#[test]
fn engines_that_must_work_are_available() {
    let problem = |name: &String| {
        if ENGINES.contains(&name.as_str()) {
            engine_problem(name).map(|problem| format!("{name}: {problem}"))
        } else {
            Some(format!("{name}: no such engine; there are {}", ENGINES.join(", ")))
        }
    };
    let problems: Vec<String> = must_work().iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "ENGINES_MUST_WORK names engines that do not work:\n{}", problems.join("\n"));
}
