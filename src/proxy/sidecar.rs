//! Runs a proxy in a separate container: receives the guest's listening socket through a directory
//! that both containers share, and serves it, itself or through the user's command.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::handover::ListenerInbox;
use super::journal::Journal;
use super::policy::Policy;
use super::protocol::{OVER, PROXY_PORT, ProxyJob, READY};
use super::resolve::Resolver;
use super::server::{Proxy, pass_on};
use super::supervise::{listens, start};
use crate::event_log::EventLog;
use crate::process::Outcome;
use crate::ui::{Ui, Verbosity};

/// How often a starting command's port is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts the proxy, receives the guest's socket, and runs until either ends.
pub fn run(job: ProxyJob, argv: &[OsString]) -> io::Result<u8> {
    let child = if argv.is_empty() {
        None
    } else {
        let mut child = start(argv)?;
        wait_until_it_listens(&mut child, Duration::from_secs(job.timeout))?;
        Some(child)
    };
    let inbox = ListenerInbox::open(Path::new(&job.directory))?;
    writeln!(io::stdout(), "{READY}")?;
    io::stdout().flush()?;
    thread::spawn(move || {
        let Ok((listener, mut guest)) = inbox.take() else { std::process::exit(1) };
        thread::spawn(move || match job.rules {
            Some(rules) => {
                let stdout = io::stdout().as_fd().try_clone_to_owned().ok().map(std::fs::File::from);
                let journal = Arc::new(Journal::new(stdout, Arc::new(EventLog::disabled()), Ui::new(Verbosity::Quiet)));
                let policy = Policy::new(rules);
                let proxy = Proxy { policy, resolver: Resolver::default(), journal, intercept: None, login: None };
                Arc::new(proxy).serve(&listener);
            }
            None => pass_on(&listener, SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT))),
        });
        // The guest keeps its end open for as long as it lives.
        let _ = guest.set_read_timeout(None);
        let _ = guest.read(&mut [0]);
        let _ = writeln!(io::stdout(), "{OVER}");
        std::process::exit(0);
    });
    match child {
        Some(mut child) => Ok(Outcome::from(child.wait()?).exit_code()),
        None => loop {
            thread::park();
        },
    }
}

/// Waits until the command listens, unless it exits or takes too long.
fn wait_until_it_listens(child: &mut Child, timeout: Duration) -> io::Result<()> {
    let limit = Instant::now() + timeout;
    loop {
        if listens(PROXY_PORT) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!(
                "the proxy command exited before it listened on port {PROXY_PORT}: {status}"
            )));
        }
        if Instant::now() > limit {
            let message =
                format!("the proxy command did not listen on port {PROXY_PORT} within {} s", timeout.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
