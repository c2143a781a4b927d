//! What the guest can and cannot do, on every real engine.

use crate::for_every_engine;
use crate::support::{Pen, RunToEnd};

for_every_engine!(the_exit_code_is_the_guests, r2_1_git_discovery_is_set);

fn the_exit_code_is_the_guests(pen: &Pen) {
    for code in [0, 1, 7, 44, 125, 255] {
        let ran = pen.run().args(["--", "sh", "-c", &format!("exit {code}")]).ran();
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    }
}

fn r2_1_git_discovery_is_set(pen: &Pen) {
    assert_eq!(pen.bash("echo $GIT_DISCOVERY_ACROSS_FILESYSTEM").ok(), "1");
}
