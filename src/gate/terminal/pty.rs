//! Opens pseudo-terminals.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
#[cfg(target_os = "linux")]
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcsetattr};
use rustix::termios::{Winsize, tcsetwinsize};

/// Both sides of a pseudo-terminal. Reads and writes of the master do not block.
#[derive(Debug)]
pub struct Pty {
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

impl Pty {
    /// Opens one with the kernel's settings.
    pub fn plain(rows: u16, columns: u16) -> io::Result<Self> {
        let pty = Self::unset()?;
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&pty.slave, size)?;
        Ok(pty)
    }

    /// Opens one with the given settings and size. Without `processes_output`, what the guest writes
    /// leaves the terminal unchanged.
    #[cfg(target_os = "linux")]
    pub fn open(settings: &Termios, size: Option<Winsize>, processes_output: bool) -> io::Result<Self> {
        let pty = Self::unset()?;
        let mut settings = settings.clone();
        settings.output_modes.set(OutputModes::OPOST, processes_output);
        tcsetattr(&pty.slave, OptionalActions::Now, &settings)?;
        if let Some(size) = size {
            tcsetwinsize(&pty.slave, size)?;
        }
        Ok(pty)
    }

    fn unset() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&name, flags, Mode::empty())?;
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        Ok(Pty { master, slave })
    }
}

/// Lets the terminal process what the guest writes, as terminals do.
#[cfg(target_os = "linux")]
pub fn process_output(terminal: &OwnedFd) {
    if let Ok(mut settings) = tcgetattr(terminal) {
        settings.output_modes.insert(OutputModes::OPOST);
        let _ = tcsetattr(terminal, OptionalActions::Now, &settings);
    }
}
