//! Asks the user before the first signature for each destination, outside the guest's terminal:
//! with the program that `SSH_ASKPASS` names, or in the terminal of a `sandpen log --follow`. Without
//! an answer it is no.

#![allow(clippy::disallowed_methods, reason = "the user's askpass program asks")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::path::HostPath;
use crate::plan::AgentGatePlan;
use crate::process::{output_within, socket_path};
use crate::ui::escape::escape;

/// How long the user may take.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The guest chooses the users' names, so their number is limited.
const MAX_QUESTIONS: usize = 50;
/// The most characters of a destination in a question.
const MAX_NAME: usize = 200;
/// The socket of `sandpen log --follow` in the session's directory.
const SOCKET: &str = "confirm";
const YES: &str = "yes\n";

/// The answers of a sandbox, by destination.
#[derive(Debug, Default)]
pub struct Confirmations(Mutex<BTreeMap<String, Arc<Mutex<Option<bool>>>>>);

impl Confirmations {
    /// Returns the reason of a refusal. Requests for one destination wait for the same answer.
    pub fn refusal(&self, what: &str, plan: &AgentGatePlan) -> Option<&'static str> {
        if !plan.asks {
            return None;
        }
        let answer = {
            let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.len() >= MAX_QUESTIONS && !answers.contains_key(what) {
                return Some("too many destinations to ask for (--ssh-confirm)");
            }
            answers.entry(what.to_owned()).or_default().clone()
        };
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_allowed = *answer.get_or_insert_with(|| ask(what, plan).unwrap_or(false));
        (!is_allowed).then_some("you did not confirm it (--ssh-confirm)")
    }
}

/// Asks the user; `None` if nobody can be asked, or answers.
fn ask(what: &str, plan: &AgentGatePlan) -> Option<bool> {
    let name: String = what.chars().take(MAX_NAME).collect();
    let question = format!("Let the sandbox {} use your SSH key for {}?", plan.id, escape(&name));
    match askpass(plan) {
        Some(program) => {
            let mut command = Command::new(program);
            // OpenSSH's way to ask for yes or no: the exit code is the answer.
            command.arg(&question).env("SSH_ASKPASS_PROMPT", "confirm").env("PATH", &plan.path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Some(output_within(&mut command, ANSWER_TIMEOUT).ok()?.status.success())
        }
        None => {
            let mut stream = socket_path::connect(&socket(plan.socket.as_path().parent()?)).ok()?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
            writeln!(stream, "{question}").ok()?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).ok()?;
            Some(answer == YES)
        }
    }
}

/// Returns the program of `SSH_ASKPASS`, unless a guest could have written it.
fn askpass(plan: &AgentGatePlan) -> Option<PathBuf> {
    let program = plan.askpass.as_ref()?.as_path().canonicalize().ok()?;
    (!plan.mounted.iter().any(|mounted| program.starts_with(mounted.as_path()))).then_some(program)
}

fn socket(session: &Path) -> PathBuf {
    session.join(SOCKET)
}

/// Receives the questions of a sandbox, for `sandpen log --follow`. Dropping it removes the socket.
pub struct QuestionInbox {
    listener: UnixListener,
    path: PathBuf,
}

/// A question that waits for its answer.
pub struct Question {
    stream: UnixStream,
    pub text: String,
}

impl QuestionInbox {
    /// Opens the inbox of a session; `None` if another terminal has it.
    pub fn open(session: &HostPath) -> Option<Self> {
        let path = socket(session.as_path());
        if socket_path::connect(&path).is_ok() {
            return None;
        }
        let _ = std::fs::remove_file(&path);
        let listener = socket_path::bind(&path).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(QuestionInbox { listener, path })
    }

    pub fn next(&self) -> Option<Question> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let mut text = String::new();
        BufReader::new(&stream).read_line(&mut text).ok()?;
        Some(Question { stream, text: text.trim_end().to_owned() }).filter(|question| !question.text.is_empty())
    }
}

impl Question {
    pub fn answer(mut self, is_allowed: bool) {
        let _ = self.stream.write_all(if is_allowed { YES } else { "no\n" }.as_bytes());
    }
}

impl Drop for QuestionInbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
