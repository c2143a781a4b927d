//! Calls of kubectl, with a time limit, and what their failures mean.

use std::ffi::OsString;
use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::error::ClusterError;
use crate::process::{Client, output_within};

/// How long a call that the API server answers at once may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How kubectl begins a line with an answer of the API server, before the reason in parentheses.
const ANSWER: &str = "Error from server (";

/// kubectl, for one cluster and namespace.
#[derive(Clone, Copy)]
pub struct Kubectl<'a> {
    pub client: &'a Client,
    /// The arguments that select the cluster and the namespace.
    pub cluster: &'a [OsString],
    pub namespace: &'a str,
}

/// A call that failed.
#[derive(Debug, Clone)]
pub struct CallFailure {
    /// The reason that the API server gave, such as `NotFound`.
    pub reason: Option<String>,
    /// The first line of kubectl's message.
    pub message: String,
}

impl Kubectl<'_> {
    /// Makes a call without streams.
    pub fn command(&self, arguments: &[&str]) -> Result<Command, ClusterError> {
        let words = self.cluster.iter().cloned().chain(arguments.iter().map(OsString::from));
        self.client.quiet_command(words).map_err(|_| ClusterError::NoClient)
    }

    /// Makes a call and returns what it prints.
    pub fn call(&self, arguments: &[&str], input: Option<File>, timeout: Duration) -> Result<Vec<u8>, CallError> {
        let mut command = self.command(arguments).map_err(CallError::Local)?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(input) = input {
            command.stdin(input);
        }
        match output_within(&mut command, timeout) {
            Ok(output) if output.status.success() => Ok(output.stdout),
            Ok(output) => Err(CallError::Failed(CallFailure::of(&output))),
            Err(_) => Err(CallError::Silent),
        }
    }

    /// Starts a call whose output is read while it runs.
    pub fn start(&self, arguments: &[&str], configure: impl FnOnce(&mut Command)) -> Result<Child, ClusterError> {
        let mut command = self.command(arguments)?;
        configure(&mut command);
        command.spawn().map_err(ClusterError::Start)
    }

    /// Asks whether the user has a right; `None` if the cluster does not say.
    pub fn can(&self, verb: &str, resource: &str) -> Option<bool> {
        match self.call(&["auth", "can-i", verb, resource], None, CALL_TIMEOUT) {
            Ok(answer) => Some(answer.starts_with(b"yes")),
            // It exits with 1 for `no`, which it prints to stdout.
            Err(CallError::Failed(failure)) if failure.reason.is_none() => Some(false),
            Err(_) => None,
        }
    }
}

#[derive(Debug)]
pub enum CallError {
    /// kubectl cannot be started.
    Local(ClusterError),
    /// kubectl did not end in time.
    Silent,
    Failed(CallFailure),
}

impl CallFailure {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stderr);
        Self::parse(&text)
    }

    /// Reads kubectl's message. Only the form of an answer of the API server is relied upon.
    pub fn parse(text: &str) -> Self {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let line = line.unwrap_or("kubectl fails without a message");
        match line.strip_prefix(ANSWER).and_then(|rest| rest.split_once(')')) {
            Some((reason, message)) => CallFailure {
                reason: Some(reason.to_owned()),
                message: message.trim_start_matches(':').trim().to_owned(),
            },
            None => CallFailure { reason: None, message: line.trim_start_matches("error: ").to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_server_have_a_reason() {
        let failure = CallFailure::parse("Error from server (NotFound): namespaces \"x\" not found\n");
        assert_eq!(failure.reason.as_deref(), Some("NotFound"));
        assert_eq!(failure.message, "namespaces \"x\" not found");
        let failure = CallFailure::parse("error: no context exists with the name: \"x\"\n");
        assert_eq!((failure.reason, failure.message.as_str()), (None, "no context exists with the name: \"x\""));
        assert_eq!(CallFailure::parse("").reason, None);
    }
}
