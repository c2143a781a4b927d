//! Restores the terminal's settings after any end, a crash of the engine's client included.

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};

/// The settings before the launch; dropping it restores them.
pub struct TerminalGuard(Option<Termios>);

impl TerminalGuard {
    /// Remembers the settings, if stdin is a terminal.
    pub fn remember() -> Self {
        TerminalGuard(isatty(stdin()).then(|| tcgetattr(stdin()).ok()).flatten())
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // In the background it is not ours to set, and the kernel would stop us for trying.
        let in_foreground = || tcgetpgrp(stdin()) == Ok(getpgrp());
        if let Some(settings) = self.0.as_ref().filter(|_| in_foreground()) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
        }
    }
}
