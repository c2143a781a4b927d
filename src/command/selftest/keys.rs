//! Evaluates the probe of keys: a key of the self-test is outside, and the probe looks for its value.

use super::SelftestInput;
use super::probe_result::ProbeResult;
use crate::plan::{Plan, SecretPlace};
use crate::session_id::random_name;

/// The key of the self-test, which is bound to a host that cannot exist (RFC 2606).
pub const NAME: &str = "SANDPEN_SELFTEST_KEY";
pub const HOST: &str = "sandpen-selftest.invalid";

/// Returns a value that is nowhere else.
pub fn value() -> String {
    format!("sk-selftest-{}{}", random_name(), random_name())
}

/// Whether the self-test's key is outside under this plan.
pub fn is_outside(plan: &Plan) -> bool {
    plan.secrets.keys.iter().any(|key| key.name == NAME && key.place == SecretPlace::Outside)
}

impl SelftestInput<'_> {
    pub(super) fn keys(&self) -> ProbeResult {
        if !is_outside(self.plan) {
            return ProbeResult::not_promised("keys", "inside with these options", "not tested");
        }
        let promised = "a key that is outside is in no variable, file or process";
        ProbeResult::check("keys", promised, self.findings.keys.as_ref(), |places| {
            (
                places.is_empty(),
                if places.is_empty() { "not found".into() } else { format!("found in {}", places.join(", ")) },
            )
        })
    }
}
