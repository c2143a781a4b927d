//! The result of `Sandbox::explain` and `sandpen explain`.

use crate::error::Result;
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::Plan;
use crate::ui::View;

/// A plan and its translation for the engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explanation {
    /// Every mount, variable and limit, with its reason and origin.
    pub plan: Plan,
    /// The engine's command line, or the steps of the native engine.
    pub launch: Launch,
    pub(crate) host: Host,
}

impl Explanation {
    /// Returns the output of `sandpen explain`.
    pub fn text(&self, view: View) -> String {
        super::text(&self.plan, &self.launch, view)
    }

    /// Returns the output of `sandpen explain --format json`. Its keys are stable, and it contains no
    /// values of secrets.
    pub fn json(&self) -> Result<String> {
        super::json(&self.host, &self.plan, &self.launch)
    }

    /// Returns what will not work inside, or not as requested, and why the engine cannot run now.
    pub fn warnings(&self) -> Vec<String> {
        super::warnings(&self.plan)
    }

    /// Returns the host for which the plan was made.
    pub fn host(&self) -> &Host {
        &self.host
    }
}
