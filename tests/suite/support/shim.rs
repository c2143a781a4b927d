//! Puts a script in front of a real program of the same name.

use std::fs;
use std::path::PathBuf;

use super::{Fixture, RunToEnd, SYSTEM_PATH};

/// Records its arguments, runs the given script, and then executes the real program unless the
/// script has exited.
pub struct Shim {
    pub directory: PathBuf,
    log: PathBuf,
}

impl Shim {
    pub fn new(fixture: &Fixture, name: &str, script: &str) -> Self {
        let directory = fixture.outside("shim");
        let log = directory.join("log");
        let real = fixture.host_command("sh").args(["-c", &format!("command -v {name}")]).finish().success().to_owned();
        let text = format!("#!/bin/sh\necho \"$*\" >>{}\n{script}\nexec {real} \"$@\"\n", log.display());
        fixture.write_script(directory.join(name), &text);
        fixture.write(&log, "");
        Shim { directory, log }
    }

    /// Returns a PATH with the shim's directory first.
    pub fn path(&self) -> String {
        format!("{}:{SYSTEM_PATH}", self.directory.display())
    }

    /// Returns the arguments of each call.
    pub fn calls(&self) -> Vec<String> {
        fs::read_to_string(&self.log).expect("log").lines().map(str::to_owned).collect()
    }
}
