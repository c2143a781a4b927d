//! A proxy that is a separate process: started before the guest, watched while it runs, ended after
//! it, also when sandpen is killed.

#![allow(clippy::disallowed_methods, reason = "the session starts the proxy's process")]

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::end_calls::EndCalls;
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::process::ready::{CompanionProcess, NotReady, Startup, Stderr, wait, wait_for_line};
use crate::proxy::{OVER, PROXY_PORT, ProxyJob, READY, READY_TIMEOUT, listens};
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// The file with the proxy's stderr, in the session's directory.
const STDERR: &str = "proxy-command.log";
/// Tells a proxy on the host its port: the usual one may be in use by another sandbox's proxy.
const PORT_VARIABLE: &str = "SANDPEN_PROXY_PORT";
/// How long sandpen waits before it says so.
const NOTICE_DELAY: Duration = Duration::from_millis(500);
const EXIT_TIMEOUT: Duration = Duration::from_millis(3000);
/// Includes the time that the engine takes to start the proxy's container.
const CONTAINER_READY_SECONDS: u64 = READY_TIMEOUT.as_secs() * 2;

/// A running proxy. Dropping it ends it, and removes what only it used.
pub struct ProxyProcess {
    process: CompanionProcess,
    /// `None` until stdout is read, which takes a thread.
    lines: Option<mpsc::Receiver<String>>,
    has_died: Arc<AtomicBool>,
    container: Option<ProxyContainer>,
    /// Reserves the usual port as long as it is open.
    _reservation: Option<UdpSocket>,
}

/// The container of a proxy.
pub struct ProxyContainer {
    pub calls: Arc<EndCalls>,
    /// The command lines that remove it and what only it used.
    pub remove: Vec<Vec<OsString>>,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot find sandpen's own program")]
    NoProgram,
    #[error("cannot start the proxy")]
    Start(#[source] io::Error),
    #[error("no free port for the proxy")]
    NoFreePort(#[source] io::Error),
    #[error("the proxy command ended at once: {status}")]
    CommandEnded {
        status: ExitStatus,
        port: u16,
        #[source]
        stderr: Option<Stderr>,
    },
    #[error("the proxy command did not listen on port {port} within {} s", READY_TIMEOUT.as_secs())]
    CommandTimedOut {
        port: u16,
        #[source]
        stderr: Option<Stderr>,
    },
    #[error("the proxy's container ended at once")]
    ContainerEnded(#[source] Option<Stderr>),
    #[error("the proxy was not ready within {CONTAINER_READY_SECONDS} s")]
    ContainerTimedOut(#[source] Option<Stderr>),
    #[error("the proxy ended, so the guest was stopped")]
    Died(#[source] Option<Stderr>),
    #[error("port {PROXY_PORT} of this machine, which the sandbox needs for its proxy, is in use")]
    PortInUse(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("the address {0}:{PROXY_PORT}, at which the sandbox would reach its proxy, is in use")]
    AddressInUse(Ipv4Addr, #[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot create the proxy's socket")]
    Socket(#[source] io::Error),
    #[cfg(not(target_os = "linux"))]
    #[error("a port cannot be handed out of a virtual machine")]
    NoHandover,
}

impl Diagnostic for ProxyError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ProxyError::CommandEnded { port, .. } | ProxyError::CommandTimedOut { port, .. } => {
                vec![if *port == PROXY_PORT {
                    format!("it must listen on 127.0.0.1:{PROXY_PORT}")
                } else {
                    format!(
                        "port {PROXY_PORT} is in use, perhaps by another sandbox's proxy: it must listen on 127.0.0.1:{port}, the value of {PORT_VARIABLE}"
                    )
                }]
            }
            ProxyError::PortInUse(_) => {
                vec!["stop the other sandbox with a filtered network, or run this one in a container".into()]
            }
            #[cfg(target_os = "linux")]
            ProxyError::AddressInUse(..) => vec!["try again, or choose another `--name`".into()],
            _ => Vec::new(),
        }
    }
}

impl ProxyProcess {
    /// Starts the user's proxy on this machine, as a child of a sandpen process that ends it when
    /// the launcher has ended. Starts no thread, because the native engine forks afterwards.
    pub fn on_host(
        host: &Host,
        argv: &[String],
        path: &Path,
        session: &HostPath,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<(Self, u16)>> {
        let program = host.executable.as_ref().ok_or(ProxyError::NoProgram)?;
        let (port, reservation) = reserve_port(PROXY_PORT).map_err(ProxyError::NoFreePort)?;
        let job = ProxyJob { directory: String::new(), rules: None, owner: false, timeout: READY_TIMEOUT.as_secs() };
        // The file may be in a mounted directory, and replaced by now.
        let running = if cfg!(target_os = "linux") { Path::new("/proc/self/exe") } else { program.as_path() };
        let mut command = Command::new(running);
        command.arg0(program.as_os_str()).arg("proxy").arg(serde_json::to_string(&job).unwrap_or_default()).args(argv);
        command.env(PORT_VARIABLE, port.to_string()).env("PATH", path).stdin(Stdio::piped());
        let mut proxy = Self::start(command, session, None, reservation)?;
        let notice_at = Instant::now() + NOTICE_DELAY;
        let mut is_noticed = false;
        let mut ended = None;
        let waited = wait(READY_TIMEOUT, termination_signal, |interval| {
            if listens(port) {
                return Ok(Some(()));
            }
            ended = proxy.process.exit_status();
            if ended.is_some() {
                return Err(NotReady::Ended);
            }
            if !is_noticed && Instant::now() > notice_at {
                is_noticed = true;
                ui.notice(&format!("waiting for the proxy command to listen on port {port}"));
            }
            thread::sleep(interval);
            Ok(None)
        });
        match waited {
            Ok(startup) => Ok(startup.map(|()| (proxy, port))),
            Err(NotReady::TimedOut) => Err(ProxyError::CommandTimedOut { port, stderr: proxy.process.stderr() }.into()),
            Err(NotReady::Ended) => {
                let status = ended.unwrap_or_default();
                Err(ProxyError::CommandEnded { status, port, stderr: proxy.process.stderr() }.into())
            }
        }
    }

    /// Starts a proxy in a container, with a command of the engine's client. The helper in the
    /// container prints a line when the proxy is ready.
    pub fn in_container(
        mut command: Command,
        session: &HostPath,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
        container: ProxyContainer,
    ) -> Result<Startup<Self>> {
        command.stdin(Stdio::null());
        let mut proxy = Self::start(command, session, Some(container), None)?;
        let lines = proxy.process.lines();
        let waiting = Progress::start(ui, "the proxy to be ready");
        let waited = wait_for_line(&lines, READY, Duration::from_secs(CONTAINER_READY_SECONDS), termination_signal);
        drop(waiting);
        proxy.lines = Some(lines);
        match waited {
            Ok(startup) => Ok(startup.map(|()| proxy)),
            Err(NotReady::Ended) => Err(ProxyError::ContainerEnded(proxy.process.stderr()).into()),
            Err(NotReady::TimedOut) => Err(ProxyError::ContainerTimedOut(proxy.process.stderr()).into()),
        }
    }

    fn start(
        command: Command,
        session: &HostPath,
        container: Option<ProxyContainer>,
        reservation: Option<UdpSocket>,
    ) -> std::result::Result<Self, ProxyError> {
        let stderr = session.join(STDERR).as_path().to_owned();
        let process = CompanionProcess::start(command, stderr, EXIT_TIMEOUT).map_err(ProxyError::Start)?;
        Ok(ProxyProcess { process, lines: None, has_died: Arc::default(), container, _reservation: reservation })
    }

    /// Passes on the proxy's lines, and ends the guest if the proxy ends first.
    pub fn watch(&mut self, mut hear: impl FnMut(&str) + Send + 'static, end: impl FnOnce() + Send + 'static) {
        let lines = self.lines.take().unwrap_or_else(|| self.process.lines());
        let has_died = self.has_died.clone();
        let hear = move |line: &str| {
            hear(line);
            line == OVER
        };
        self.process.watch(lines, hear, move || {
            has_died.store(true, Ordering::SeqCst);
            end();
        });
    }

    /// Returns the error that ended the guest, if the proxy ended first.
    pub fn death(&self) -> Option<ProxyError> {
        self.has_died.load(Ordering::SeqCst).then(|| ProxyError::Died(self.process.stderr()))
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        if !self.container.as_ref().is_some_and(|container| container.calls.is_engine_silent()) {
            self.process.request_exit();
        }
        if let Some(ProxyContainer { calls, remove }) = &self.container {
            for argv in remove {
                calls.run(argv);
            }
        }
        self.process.kill();
    }
}

/// Reserves the usual port for this sandbox's proxy, or finds a free one if a program listens there
/// or another sandbox has reserved it.
///
/// Two sandboxes that start at once would both find the port free, and one would use the other's
/// proxy. A UDP socket on the same port is the lock: it excludes the sandboxes of all users, and the
/// kernel releases it when sandpen ends.
fn reserve_port(usual: u16) -> io::Result<(u16, Option<UdpSocket>)> {
    if let Ok(reservation) = UdpSocket::bind((Ipv4Addr::LOCALHOST, usual))
        && !listens(usual)
    {
        return Ok((usual, Some(reservation)));
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((free.local_addr()?.port(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_given_to_one_sandbox_only() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let usual = free.local_addr().expect("an address").port();
        // A program listens there.
        assert_ne!(reserve_port(usual).expect("a port").0, usual);
        drop(free);
        let (first, reservation) = reserve_port(usual).expect("a port");
        assert_eq!(first, usual);
        assert_ne!(reserve_port(usual).expect("a port").0, usual);
        drop(reservation);
        assert_eq!(reserve_port(usual).expect("a port").0, usual);
    }
}
