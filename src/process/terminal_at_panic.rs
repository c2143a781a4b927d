//! Restores a terminal if sandpen panics. A release build aborts then, and drops nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcsetattr};

struct SavedTerminal {
    terminal: OwnedFd,
    settings: Termios,
    /// Written to the terminal.
    reset: Vec<u8>,
}

static SAVED: Mutex<Option<SavedTerminal>> = Mutex::new(None);

/// From now on a panic writes `reset` to the terminal and restores its settings.
pub fn restore_at_panic(terminal: BorrowedFd<'_>, settings: &Termios, reset: Vec<u8>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            print(panic);
        }));
    });
    let Ok(terminal) = terminal.try_clone_to_owned() else { return };
    let saved = SavedTerminal { terminal, settings: settings.clone(), reset };
    *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(saved);
}

/// The terminal has been restored.
pub fn forget() {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn restore() {
    // Without waiting, because the thread that has the lock may be the one that panics.
    let Some(saved) = SAVED.try_lock().ok().and_then(|mut saved| saved.take()) else { return };
    let _ = rustix::io::write(&saved.terminal, &saved.reset);
    let _ = tcsetattr(saved.terminal.as_fd(), OptionalActions::Flush, &saved.settings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    #[test]
    fn a_panic_restores_the_terminal() -> std::io::Result<()> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(name, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
        let settings = tcgetattr(&slave)?;
        let mut raw = settings.clone();
        raw.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &raw)?;
        restore_at_panic(slave.as_fd(), &settings, b"reset".to_vec());
        // The hook runs in the thread that panics.
        #[allow(clippy::panic, reason = "this is what is tested")]
        let panicked = std::thread::spawn(|| panic!("for the test"));
        assert!(panicked.join().is_err());
        assert!(tcgetattr(&slave)?.local_modes.contains(LocalModes::ECHO));
        let mut said = [0; 5];
        rustix::io::read(&master, &mut said)?;
        assert_eq!(&said, b"reset");
        Ok(())
    }
}
