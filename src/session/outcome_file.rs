//! How a sandbox ended, from the program to the library that started it: as a value, because an exit code cannot tell a guest's
//! own 44 from sandpen's.

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
use crate::session_id::SessionId;

/// The hidden word before `run`.
pub const ARGUMENT: &str = "outcome-file";
/// Longer than any error, hints and all.
const LONGEST: u64 = 1 << 20;

/// Who wants to hear of the end: the process that started this one.
#[derive(Debug)]
pub struct OutcomeFileWriter {
    file: PathBuf,
    parent: Option<Pid>,
}

impl OutcomeFileWriter {
    /// Takes `outcome-file FILE` out of the command line, if it is there.
    pub fn from_arguments(mut arguments: Vec<OsString>) -> (Option<Self>, Vec<OsString>) {
        if arguments.len() < 3 || arguments[1] != ARGUMENT {
            return (None, arguments);
        }
        let file = arguments.drain(1..3).next_back().map(PathBuf::from);
        (file.map(|file| OutcomeFileWriter { file, parent: getppid() }), arguments)
    }

    /// Tells, unless nobody is left to hear it. Whether it was told.
    pub fn write(&self, ended: &Result<Outcome>) -> bool {
        let is_there = getppid() == self.parent;
        is_there && self.try_write(ended).is_ok()
    }

    fn try_write(&self, ended: &Result<Outcome>) -> io::Result<()> {
        // New, so that nothing that lies there can lead elsewhere.
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file)?;
        file.write_all(&serde_json::to_vec(ended)?)
    }
}

/// Where it is told; removed with this value.
#[derive(Debug)]
pub struct OutcomeFileReader(PathBuf);

impl OutcomeFileReader {
    /// A place that nobody knows, among sandpen's own files, which no guest is shown.
    pub fn create(host: &Host) -> io::Result<Self> {
        let directory = facts::session_base(host).as_path().with_file_name("outcomes");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(OutcomeFileReader(directory.join(format!("{}.json", SessionId::random()))))
    }

    /// For the command line.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What was told, if anything was.
    pub fn read(&self) -> Option<Result<Outcome>> {
        serde_json::from_str(&untrusted::read(&self.0, LONGEST).ok()?).ok()
    }
}

impl Drop for OutcomeFileReader {
    fn drop(&mut self) {
        // Its directory stays: others may be told there any moment.
        let _ = fs::remove_file(&self.0);
    }
}
