//! Decides what the probe of keys looks for, and evaluates what it found: a key of the self-test is
//! outside, and so are the keys and logins of the user.

use super::SelftestInput;
use super::echo::{self, EchoServer};
use super::fingerprint::Fingerprint;
use super::probe::{EchoRequest, KeySearch, KeysRequest, Needle};
use super::probe_result::ProbeResult;
use crate::config::value::NetworkMode;
use crate::facts::{LoginDocument, MAX_LOGIN, mark};
use crate::gate::secrets::encodings;
use crate::plan::{Plan, SecretPlace};
use crate::process::untrusted;
use crate::secret::Secret;
use crate::session_id::random_name;
use crate::ui;

/// The variable of the self-test's key.
pub const NAME: &str = "SANDPEN_SELFTEST_KEY";
/// A host that cannot exist (RFC 2606), for the key of a self-test without an echo server.
const NO_HOST: &str = "sandpen-selftest.invalid";

/// Returns a value that is nowhere else.
pub fn value() -> String {
    format!("sk-selftest-{}{}", random_name(), random_name())
}

/// Returns the option that binds the self-test's key.
pub fn binding(echo: Option<&EchoServer>) -> String {
    match echo {
        Some(server) => format!("{NAME}@{}:{}", echo::HOST, server.port),
        None => format!("{NAME}@{NO_HOST}"),
    }
}

/// Whether the self-test's key is outside under this plan.
pub fn is_outside(plan: &Plan) -> bool {
    plan.secrets.keys.iter().any(|key| key.name == NAME && key.place == SecretPlace::Outside)
}

/// Lists what the probe looks for: fingerprints of the values, because none may be inside.
pub fn request(plan: &Plan, value: &str, echo: Option<&EchoServer>) -> KeysRequest {
    let base = u64::from_str_radix(&random_name(), 16).unwrap_or_default();
    let mut values: Vec<(String, Vec<u8>)> = Vec::new();
    for key in plan.secrets.outside() {
        if let Some(value) = &key.value {
            values.push((key.name.clone(), value.reveal().as_encoded_bytes().to_vec()));
        }
    }
    for login in &plan.secrets.logins {
        let content = untrusted::read_linked(login.file.as_path(), MAX_LOGIN).unwrap_or_default();
        let document = LoginDocument::parse(content.as_bytes(), &login.form);
        let tokens = login.form.tokens.iter();
        let tokens = tokens.filter_map(|token| Some(mark(document.as_ref().ok()?.token(token)?).as_bytes().to_vec()));
        values.extend(tokens.map(|token| (login.name(), token)));
    }
    let needle = |(name, value): (String, Vec<u8>)| Some(Needle { name, fingerprint: Fingerprint::of(&value, base)? });
    let mut in_answers = encodings(&Secret::new(value));
    in_answers.push(value.to_ascii_uppercase().into_bytes());
    // A filtered network has a list of hosts, and without a network nothing answers.
    let is_reached = plan.network.mode == NetworkMode::On && plan.secrets.proxy.is_some();
    KeysRequest {
        needles: values.into_iter().filter_map(needle).collect(),
        in_answers: in_answers.iter().filter_map(|text| Fingerprint::of(text, base)).collect(),
        echo: echo.filter(|_| is_reached).map(|server| EchoRequest { port: server.port, variable: NAME.to_owned() }),
    }
}

impl SelftestInput<'_> {
    pub(super) fn keys(&self) -> ProbeResult {
        if !is_outside(self.plan) {
            return ProbeResult::not_promised("keys", "inside with these options", "not tested");
        }
        let names: Vec<&str> =
            self.plan.secrets.outside().map(|key| key.name.as_str()).filter(|name| *name != NAME).collect();
        let promised = match names.as_slice() {
            [] => "no variable, file, process or answer has a key that is outside".to_owned(),
            names => format!("no variable, file, process or answer has what is outside ({})", names.join(", ")),
        };
        ProbeResult::check("keys", &promised, self.findings.keys.as_ref(), |search| self.evaluate(search))
    }

    fn evaluate(&self, search: &KeySearch) -> (bool, String) {
        if !search.found.is_empty() {
            return (false, search.found.join(", "));
        }
        let processes = if search.processes == 1 { "process" } else { "processes" };
        let mut places = vec![ui::counted(search.files, "file"), format!("{} {processes}", search.processes)];
        match &search.answer {
            None => {}
            Some(Err(error)) => return (false, format!("the echo server was not reached: {error}")),
            Some(Ok(_)) if !self.value_was_echoed => return (false, "the echo server did not get the value".into()),
            Some(Ok(length)) => places.push(format!("an answer of {length} bytes that repeats it")),
        }
        let limit = if search.is_complete { "" } else { "; files beyond the limits were not read" };
        (true, format!("not found in {}{limit}", places.join(", ")))
    }
}
