//! Exchanges what changes in repositories and in the agent's files during a session.

use std::sync::Arc;

use super::error::SessionError;
use crate::error::Result;
use crate::event_log::EventLog;
use crate::gate::agent_state::{LiveState, StateExchange};
use crate::gate::repository::{LiveExchange, Report, RepositoryExchange};
use crate::plan::Plan;
use crate::ui::Ui;

/// The exchange with the host's repositories and of the agent's files: before the launch, in this
/// thread, or in another one.
#[derive(Default)]
pub enum Repositories {
    #[default]
    None,
    Ready(Box<RepositoryExchange>, StateExchange),
    Live(LiveExchange, LiveState),
}

impl Repositories {
    /// Makes what the guest is given, before it starts.
    pub fn start(&mut self, plan: &Plan, log: Arc<EventLog>) -> Result<()> {
        let started = RepositoryExchange::start(&plan.repository_gate, &plan.session_dir);
        let state = StateExchange::start(&plan.agent_state).map_err(SessionError::AgentState)?;
        let mut started = started.map_err(SessionError::Repositories)?;
        started.record_in(log);
        *self = Repositories::Ready(Box::new(started), state);
        Ok(())
    }

    /// Gives the guest, which has started, what it does not need at once.
    pub fn begin_delayed_copies(&self) {
        if let Repositories::Ready(exchange, _) = self {
            exchange.begin_delayed_copies();
        }
    }

    /// Lets other threads exchange what changes while the sandbox runs.
    pub fn exchange_in_background(&mut self) {
        if let Repositories::Ready(exchange, state) = std::mem::take(self) {
            *self = Repositories::Live(LiveExchange::start(*exchange), LiveState::start(state));
        }
    }

    /// Exchanges everything after the guest has ended.
    pub fn finish(self, ui: Ui) -> std::result::Result<Report, Report> {
        match self {
            Repositories::None => Ok(Report::default()),
            Repositories::Ready(mut exchange, mut state) => {
                state.finish(ui);
                exchange.finish()
            }
            Repositories::Live(live, state) => {
                if let Some(mut state) = state.stop() {
                    state.finish(ui);
                }
                live.stop().map_or_else(|| Err(Report::default()), |mut exchange| exchange.finish())
            }
        }
    }
}
