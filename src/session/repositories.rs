//! Exchanges what changes in repositories and in the agent's files during a session.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::copied_workspace::{BaseScan, CopiedWorkspace};
use super::error::SessionError;
use crate::error::Result;
use crate::event_log::EventLog;
use crate::gate::agent_state::StateExchange;
use crate::gate::repository::{KeptIndexes, LiveExchange, Report, RepositoryExchange, make_kept};
use crate::plan::{EngineKind, Plan};
use crate::process::RepeatedWork;
use crate::process::bounded_work::BoundedWork;
use crate::ui::Ui;

/// The exchange with the host's repositories, unless the guest works in a copy, and of the agent's
/// files: before the launch, in this thread, or in another one.
#[derive(Default)]
pub enum Repositories {
    #[default]
    None,
    Ready(GitSide, Box<StateExchange>),
    Live(Box<LiveGit>, RepeatedWork<StateExchange>),
}

/// What happens with Git directories while a sandbox runs.
pub enum GitSide {
    /// They are exchanged with the host's.
    Host(Box<RepositoryExchange>),
    /// They stay with a copy of the workspace.
    Copy(Box<BaseScan>, KeptIndexes),
}

pub enum LiveGit {
    Host(LiveExchange),
    Copy(JoinHandle<()>, KeptIndexes),
}

impl Repositories {
    /// Makes what the guest is given, before it starts.
    pub fn start(&mut self, plan: &Plan, log: Arc<EventLog>, copied: Option<&mut CopiedWorkspace>) -> Result<()> {
        if let Some(copied) = copied {
            // Only a native guest starts so quickly.
            let may_delay = plan.engine.kind == EngineKind::Native;
            let indexes = make_kept(&plan.repository_gate, &copied.directory(), may_delay);
            let indexes = indexes.map_err(SessionError::Repositories)?;
            let state = StateExchange::start(&plan.agent_state).map_err(SessionError::AgentState)?;
            copied.keep();
            *self = Repositories::Ready(GitSide::Copy(Box::new(copied.base_scan()), indexes), Box::new(state));
            return Ok(());
        }
        let work = BoundedWork::begin();
        let started = RepositoryExchange::start(&plan.repository_gate, &plan.session_dir);
        if let (Err(_), Some(signal)) = (&started, work.signal()) {
            return Err(SessionError::Stopped(signal).into());
        }
        drop(work);
        let state = StateExchange::start(&plan.agent_state).map_err(SessionError::AgentState)?;
        let mut started = started.map_err(SessionError::Repositories)?;
        started.record_in(log);
        *self = Repositories::Ready(GitSide::Host(Box::new(started)), Box::new(state));
        Ok(())
    }

    /// Tells whether the guest gets a file only when it opens it, or later.
    #[cfg(target_os = "linux")]
    pub fn has_delayed_copies(&self) -> bool {
        match self {
            Repositories::Ready(GitSide::Host(exchange), _) => exchange.has_delayed_copies(),
            Repositories::Ready(GitSide::Copy(_, indexes), _) => indexes.are_delayed(),
            Repositories::None | Repositories::Live(..) => false,
        }
    }

    /// Gives the guest, which has started, what it does not need at once.
    pub fn begin_delayed_copies(&self) {
        match self {
            Repositories::Ready(GitSide::Host(exchange), _) => exchange.begin_delayed_copies(),
            Repositories::Ready(GitSide::Copy(_, indexes), _) => indexes.begin(),
            Repositories::None | Repositories::Live(..) => {}
        }
    }

    /// Lets other threads exchange what changes while the sandbox runs.
    pub fn exchange_in_background(&mut self) {
        self.begin_delayed_copies();
        if let Repositories::Ready(side, state) = std::mem::take(self) {
            let git = match side {
                GitSide::Host(exchange) => LiveGit::Host(LiveExchange::start(*exchange)),
                GitSide::Copy(scan, indexes) => LiveGit::Copy(std::thread::spawn(move || scan.run()), indexes),
            };
            *self = Repositories::Live(Box::new(git), state.repeat());
        }
    }

    /// Exchanges everything after the guest has ended.
    pub fn finish(self, ui: Ui) -> std::result::Result<Report, Report> {
        match self {
            Repositories::None => Ok(Report::default()),
            Repositories::Ready(side, mut state) => {
                state.finish(ui);
                match side {
                    GitSide::Host(mut exchange) => exchange.finish(),
                    GitSide::Copy(_, indexes) => {
                        indexes.finish();
                        Ok(Report::default())
                    }
                }
            }
            Repositories::Live(live, state) => {
                if let Some(mut state) = state.stop() {
                    state.finish(ui);
                }
                let live = match *live {
                    LiveGit::Host(live) => live,
                    LiveGit::Copy(scan, indexes) => {
                        indexes.finish();
                        let _ = scan.join();
                        return Ok(Report::default());
                    }
                };
                live.stop().map_or_else(|| Err(Report::default()), |mut exchange| exchange.finish())
            }
        }
    }
}
