//! The calls of an engine's client that end a sandbox and remove what it used. An engine that does
//! not answer one of them in time gets no further ones: they are left to the next sandpen command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::{CallResult, Client};

/// How long a call may take. After SIGTERM a guest has ten seconds to end, and sandpen must have
/// ended after fifteen.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the engine may take to answer a question about a container whose guest has ended.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(8);

/// How often the engine is asked to remove something, and after which pause.
const REMOVE_ATTEMPTS: usize = 10;
const REMOVE_INTERVAL: Duration = Duration::from_millis(100);

/// The calls at the end of one sandbox, which several threads make.
#[derive(Debug)]
pub struct EndCalls {
    client: Client,
    is_silent: AtomicBool,
    unfinished: Mutex<Vec<Vec<String>>>,
}

impl EndCalls {
    pub fn new(client: &Client) -> Arc<Self> {
        Arc::new(EndCalls { client: client.clone(), is_silent: AtomicBool::new(false), unfinished: Mutex::default() })
    }

    /// Runs a command line, which starts with the engine's name, unless the engine is silent.
    pub fn run(&self, argv: &[OsString]) -> CallResult {
        let arguments = argv.get(1..).unwrap_or_default();
        let result = if self.is_engine_silent() {
            CallResult::TimedOut
        } else {
            self.client.run_quietly(arguments, CALL_TIMEOUT)
        };
        if result == CallResult::TimedOut {
            self.is_silent.store(true, Ordering::SeqCst);
            let arguments: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
            if !unfinished.contains(&arguments) {
                unfinished.push(arguments);
            }
        }
        result
    }

    /// Asks the engine for a container; returns whether it answers.
    pub fn engine_answers(&self, container: &str) -> bool {
        let question = ["container", "inspect", container].map(OsString::from);
        let result = self.client.run_quietly(self.client.pin().into_iter().chain(question), QUESTION_TIMEOUT);
        self.is_silent.fetch_or(result == CallResult::TimedOut, Ordering::SeqCst);
        !self.is_engine_silent()
    }

    /// Returns whether the engine did not answer a call in time.
    pub fn is_engine_silent(&self) -> bool {
        self.is_silent.load(Ordering::SeqCst)
    }

    /// Returns the calls that the next sandpen command must repeat, if there are any.
    pub fn unfinished(&self) -> Option<UnfinishedCalls> {
        let calls = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!calls.is_empty()).then(|| UnfinishedCalls { path: self.client.path.clone(), calls })
    }
}

/// Calls of an engine's client that end a sandbox and remove what it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedCalls {
    /// The client's PATH.
    pub path: PathBuf,
    /// The arguments of each call.
    pub calls: Vec<Vec<String>>,
}

/// Makes a call that removes something, and again while it fails: a volume is in use until the
/// engine has removed the container. Returns whether the engine answered.
pub fn remove_with_retries(client: &Client, arguments: &[String]) -> bool {
    for _ in 0..REMOVE_ATTEMPTS {
        match client.run_quietly(arguments, CALL_TIMEOUT) {
            CallResult::Succeeded => return true,
            CallResult::TimedOut => return false,
            CallResult::Failed => thread::sleep(REMOVE_INTERVAL),
        }
    }
    true
}
