//! A proxy in a container of its own: it gets the guest's port through a directory that both containers see, and serves it, itself or
//! through the user's command.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::supervise::{ProxyJob, listens, start};
use super::{Journal, ListenerInbox, Policy, Proxy, Resolver, pass_on};
use crate::plan::PROXY_PORT;
use crate::process::Outcome;
use crate::ui::{Ui, Verbosity};

/// How often the proxy's port is tried.
const STEP: Duration = Duration::from_millis(50);

/// Starts the proxy, gets the guest's port, and stays until either ends.
pub fn run(attendance: ProxyJob, words: &[OsString]) -> io::Result<u8> {
    let child = match words {
        [] => None,
        words => {
            let mut child = start(words)?;
            wait_until_it_listens(&mut child, Duration::from_secs(attendance.timeout))?;
            Some(child)
        }
    };
    let counter = ListenerInbox::open(Path::new(&attendance.directory))?;
    writeln!(io::stdout(), "{}", crate::launch::READY)?;
    io::stdout().flush()?;
    thread::spawn(move || {
        let Ok((listener, mut guest)) = counter.take() else { std::process::exit(1) };
        thread::spawn(move || match attendance.rules {
            Some(rules) => {
                let stdout = io::stdout().as_fd().try_clone_to_owned().ok().map(std::fs::File::from);
                let journal = Arc::new(Journal::new(stdout, Ui::new(Verbosity::Quiet)));
                let proxy = Proxy { policy: Policy::new(rules), resolver: Resolver::default(), journal };
                Arc::new(proxy).serve(&listener);
            }
            None => pass_on(&listener, SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT))),
        });
        // The guest holds its end for as long as it lives.
        let _ = guest.set_read_timeout(None);
        let _ = guest.read(&mut [0]);
        let _ = writeln!(io::stdout(), "{}", crate::launch::OVER);
        std::process::exit(0);
    });
    match child {
        Some(mut child) => Ok(Outcome::from(child.wait()?).exit_code()),
        None => loop {
            thread::park();
        },
    }
}

/// Waits for the port, and not longer than the command lives.
fn wait_until_it_listens(child: &mut Child, timeout: Duration) -> io::Result<()> {
    let limit = Instant::now() + timeout;
    loop {
        if listens(PROXY_PORT) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!(
                "the proxy command ended before it listened on {PROXY_PORT}: {status}"
            )));
        }
        if Instant::now() > limit {
            let words = format!("the proxy command did not listen on {PROXY_PORT} within {} s", timeout.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        thread::sleep(STEP);
    }
}
