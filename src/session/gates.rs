//! The gates of a session that are not bound to one engine, and the record that all gates write.

use std::sync::Arc;

use super::error::SessionError;
use crate::error::{Error, Result};
use crate::event_log::EventLog;
use crate::gate::agent::AgentGate;
use crate::gate::secrets::SecretGate;
use crate::host::Host;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::signals::ReadyAction;
use crate::ui::Ui;
use crate::ui::shell::shell_words;

pub struct Gates {
    pub log: Arc<EventLog>,
    agent: Option<AgentGate>,
    /// Sets the values of keys.
    pub secrets: Option<Arc<SecretGate>>,
}

impl Gates {
    /// Makes the agent's socket, which must exist before the sandbox that mounts it.
    pub fn open(host: &Host, plan: &Plan) -> Result<Self> {
        let sessions = plan.session_dir.as_path().parent().unwrap_or(plan.session_dir.as_path());
        let log = Arc::new(EventLog::new(sessions, &plan.id.to_string()));
        let agent = plan.ssh.gate.as_ref().map(|gate| {
            let opened = AgentGate::open(gate, log.clone());
            opened.map_err(|source| SessionError::Create { path: gate.socket.clone(), source })
        });
        let agent = agent.transpose()?;
        let secrets = plan.secrets.proxy.as_ref();
        let secrets = secrets.map(|proxy| SecretGate::open(host, &plan.secrets, proxy, log.clone()).map(Arc::new));
        Ok(Gates { agent, secrets: secrets.transpose()?, log })
    }

    /// Returns what must be done at the first connection to the agent's socket.
    pub fn take_agent_action(&mut self) -> Option<ReadyAction> {
        self.agent.as_mut()?.take_action()
    }

    /// Records the start. Called while the guest starts, so that it does not wait for the disk.
    pub fn start(&self, plan: &Plan) {
        let command = if plan.command.is_empty() { "a shell".to_owned() } else { shell_words(&plan.command) };
        self.log.start(&plan.workdir.to_string(), &command);
    }

    /// Records the end, and sums up what passed.
    pub fn end(&self, outcome: std::result::Result<&Outcome, &Error>, ui: Ui) {
        if let Some(agent) = &self.agent {
            agent.close(ui);
        }
        if let Some(secrets) = &self.secrets {
            secrets.close(ui);
        }
        match outcome {
            Ok(outcome) => self.log.end(&format!("exit code {}", outcome.exit_code())),
            Err(error) => self.log.end(error.message()),
        }
    }
}
