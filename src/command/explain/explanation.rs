//! A plan with what its engine makes of it: everything there is to show.

use crate::error::Result;
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::ui::View;

/// What would be done, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explanation {
    /// What, why and for whom.
    pub plan: Plan,
    /// How: the engine's command line, or the steps of the native engine.
    pub launch: Launch,
    pub(crate) host: Host,
}

impl Explanation {
    /// The page that `sandpen explain` shows.
    pub fn text(&self, view: View) -> String {
        super::text(&self.plan, &self.launch, view)
    }

    /// What `sandpen explain --format json` says: stable keys, secrets without their values.
    pub fn json(&self) -> Result<String> {
        super::json(&self.host, &self.plan, &self.launch)
    }

    /// What will not work inside, or not as asked for, and why the engine cannot run now.
    pub fn warnings(&self) -> Vec<String> {
        super::warnings(&self.plan)
    }

    /// The machine it is for.
    pub fn host(&self) -> &Host {
        &self.host
    }
}
