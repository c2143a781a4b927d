//! The gates of a session that are not bound to one engine, and the record that all gates write.

use std::sync::Arc;

use crate::error::Error;
use crate::event_log::EventLog;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::ui::shell::shell_words;

pub struct Gates {
    pub log: Arc<EventLog>,
}

impl Gates {
    pub fn new(plan: &Plan) -> Self {
        let sessions = plan.session_dir.as_path().parent().unwrap_or(plan.session_dir.as_path());
        Gates { log: Arc::new(EventLog::new(sessions, &plan.id.to_string())) }
    }

    /// Records the start. Called while the guest starts, so that it does not wait for the disk.
    pub fn start(&self, plan: &Plan) {
        let command = if plan.command.is_empty() { "a shell".to_owned() } else { shell_words(&plan.command) };
        self.log.start(&plan.workdir.to_string(), &command);
    }

    /// Records the end.
    pub fn end(&self, outcome: Result<&Outcome, &Error>) {
        match outcome {
            Ok(outcome) => self.log.end(&format!("exit code {}", outcome.exit_code())),
            Err(error) => self.log.end(error.message()),
        }
    }
}
