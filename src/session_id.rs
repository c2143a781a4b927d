//! Names one sandbox: an id that is random or chosen by the user, and a second random name that
//! only the launcher knows.

use std::fmt;
use std::io::Read;

use crate::config::value::Name;

/// Identifies a sandbox in `ps`, `exec` and `stop`, and names its container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionId {
    text: String,
    secret: String,
    is_chosen: bool,
}

impl SessionId {
    /// Draws a random id, so that no list of running sandboxes is needed to find a free one.
    pub fn random() -> Self {
        let mut text = random_hex::<12>();
        let secret = text.split_off(text.len() / 2);
        SessionId { text, secret, is_chosen: false }
    }

    /// Uses the name that the user chose as the id.
    pub fn named(name: &Name) -> Self {
        SessionId { text: name.to_string(), secret: random_name(), is_chosen: true }
    }

    /// Returns the fixed id that `explain` shows, so that its output can be compared between calls.
    pub fn placeholder() -> Self {
        SessionId { text: "SESSION".into(), secret: "SESSION".into(), is_chosen: false }
    }

    /// Replaces the random secret by the fixed one that `explain` shows.
    #[must_use]
    pub fn as_example(self) -> Self {
        SessionId { secret: Self::placeholder().secret, ..self }
    }

    /// Returns a random name that is never shown to the guest or to other users, unlike the id
    /// itself.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns whether the user chose the id, so that another sandbox may have it.
    pub fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    /// Returns the container's name, which is also the value of `SANDBOX`.
    pub fn name(&self) -> String {
        format!("sandpen-{self}")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns a random name for a file or directory, of twelve hexadecimal digits.
pub fn random_name() -> String {
    random_hex::<6>()
}

fn random_hex<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    if random.is_err() {
        // Without a random source the clock still makes names differ.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes.copy_from_slice(&now.as_nanos().to_le_bytes()[..BYTES]);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
