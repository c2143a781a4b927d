//! Holds the result of a command that has finished.

use std::process::{Command, Output};

#[derive(Debug)]
pub struct Finished {
    /// `None` if a signal ended the command.
    pub code: Option<i32>,
    pub stdout: String,
    /// Does not contain the progress messages.
    pub stderr: String,
    /// Holds sandpen's messages about long waits, which depend on how busy the machine is.
    pub progress: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stderr, progress) = split_progress(&text(output.stderr));
        Finished { code: output.status.code(), stdout: text(output.stdout), stderr, progress }
    }
}

/// Returns the other messages and the progress messages.
pub fn split_progress(stderr: &str) -> (String, String) {
    let (progress, rest): (Vec<&str>, Vec<&str>) =
        stderr.split_inclusive('\n').partition(|line| line.starts_with("sandpen: waiting for "));
    (rest.concat(), progress.concat())
}

impl Finished {
    /// Asserts exit code 0 and returns stdout without the last newline.
    #[track_caller]
    pub fn success(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim_end()
    }

    /// Asserts this exit code and returns stderr.
    #[track_caller]
    pub fn failure(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        &self.stderr
    }

    /// Asserts exit code 0 and parses stdout.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.success()).expect("JSON on stdout")
    }
}

pub trait RunToEnd {
    /// Runs a command until it exits.
    fn finish(&mut self) -> Finished;
}

impl RunToEnd for Command {
    #[track_caller]
    fn finish(&mut self) -> Finished {
        self.output().expect("the program starts").into()
    }
}
