//! Provides a recording stand-in for `sandbox-exec`, to test macOS Seatbelt without a Mac.

use super::{Finished, Fixture, RunToEnd, install_script};

impl Fixture {
    /// Assumes a Mac, with a `sandbox-exec` that records its arguments in `argv`, keeps the profile
    /// in `profile.sb`, and executes the command.
    pub fn with_macos_seatbelt(mut self) -> Self {
        self.set("SANDPEN_ENGINE", "sandbox-exec");
        self.set("SANDPEN_STAND_IN_SANDBOX_EXEC", &self.root.join("sandbox-exec").display().to_string());
        self.options = ["--assume-host", "macos"].map(str::to_owned).into();
        let root = self.root.display();
        self.install_sandbox_exec(&format!(
            "printf '%s\\0' \"$@\" >'{root}/argv'\n\
             while [ \"$1\" != -- ]; do [ \"$1\" = -f ] && cp \"$2\" '{root}/profile.sb'; shift; done\n\
             shift\n"
        ));
        self
    }

    /// Replaces the stand-in by a script that then executes its arguments.
    pub fn install_sandbox_exec(&self, script: &str) {
        install_script(self.root.join("sandbox-exec"), &format!("#!/bin/sh\n{script}exec \"$@\"\n"));
    }

    /// Runs a shell script in a sandbox.
    pub fn sh(&self, script: &str) -> Finished {
        self.run().args(["--", "sh", "-c", script]).finish()
    }

    /// Returns a path below the home as text.
    pub fn home_path(&self, below: &str) -> String {
        self.home.join(below).display().to_string()
    }
}
