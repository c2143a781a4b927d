//! The outcome file, in which the program reports to the library that started it how a sandbox
//! ended. An exit code would not do: a guest may exit with 44, too.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, getppid};

use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::process::Outcome;
use crate::process::untrusted;
use crate::session_id::random_name;

/// The hidden argument before `run`.
pub const ARGUMENT: &str = "outcome-file";
/// More bytes than any error has with its hints.
const MAX_BYTES: u64 = 1 << 20;

/// Writes the outcome for the process that started this one.
#[derive(Debug)]
pub struct OutcomeFileWriter {
    file: PathBuf,
    parent: Option<Pid>,
}

impl OutcomeFileWriter {
    /// Removes `outcome-file FILE` from the arguments, if it is there.
    pub fn from_arguments(mut arguments: Vec<OsString>) -> (Option<Self>, Vec<OsString>) {
        if arguments.len() < 3 || arguments[1] != ARGUMENT {
            return (None, arguments);
        }
        let file = arguments.drain(1..3).next_back().map(PathBuf::from);
        (file.map(|file| OutcomeFileWriter { file, parent: getppid() }), arguments)
    }

    /// Writes the outcome if the parent is still alive; returns whether it did.
    pub fn write(&self, ended: &Result<Outcome>) -> bool {
        getppid() == self.parent && self.try_write(ended).is_ok()
    }

    fn try_write(&self, ended: &Result<Outcome>) -> io::Result<()> {
        // A link that was planted there is not followed, because the file must be new.
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file)?;
        file.write_all(&serde_json::to_vec(ended)?)
    }
}

/// Reads the outcome. Dropping it removes the file.
#[derive(Debug)]
pub struct OutcomeFileReader(PathBuf);

impl OutcomeFileReader {
    /// Chooses a random name in a directory that is never mounted into a sandbox.
    pub fn create(host: &Host) -> io::Result<Self> {
        let directory = facts::session_base(host).as_path().with_file_name("outcomes");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(OutcomeFileReader(directory.join(format!("{}.json", random_name()))))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the outcome, if the program has written one.
    pub fn read(&self) -> Option<Result<Outcome>> {
        serde_json::from_str(&untrusted::read(&self.0, MAX_BYTES).ok()?).ok()
    }
}

impl Drop for OutcomeFileReader {
    fn drop(&mut self) {
        // The directory stays, because other sandboxes may use it.
        let _ = fs::remove_file(&self.0);
    }
}
