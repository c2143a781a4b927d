//! Reaches the network of a running sandbox: lists what listens there, and starts the process that
//! makes connections inside.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::Child as Process;
use std::time::Duration;

use super::container_entry::ContainerCommand;
use super::error::SessionError;
use super::registry::Record;
use crate::error::Result;
use crate::gate::ports::{Listener, parse_list};
use crate::host::Host;
use crate::plan::{CONTROL_DIR, HelperConfig};

/// The most that the list from inside may be, in bytes.
const MAX_LIST: u64 = 1 << 20;
/// How long the engine may take to list.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// The way to the network of a sandbox.
pub enum PortAccess<'a> {
    Container(&'a Host, &'a Record),
    #[cfg(target_os = "linux")]
    Native(&'a Record, super::native_entry::NativeProcesses),
}

/// The process inside that makes connections, and the stream to it.
pub enum PortLink {
    Container(Process),
    #[cfg(target_os = "linux")]
    Native {
        stream: std::os::unix::net::UnixStream,
        /// Dropping it ends the process.
        _child: crate::native::Child,
    },
}

impl<'a> PortAccess<'a> {
    pub fn new(host: &'a Host, record: &'a Record) -> Result<Self> {
        #[cfg(target_os = "linux")]
        if record.engine == crate::config::value::EngineKind::Native.name() {
            let processes = super::native_entry::NativeProcesses::of(record)?;
            return Ok(PortAccess::Native(record, processes));
        }
        if !record.has_helper {
            return Err(SessionError::NoHelper(record.id.clone()).into());
        }
        Ok(PortAccess::Container(host, record))
    }

    /// Lists the sockets on which processes of the sandbox listen.
    pub fn list(&self) -> Result<Vec<Listener>> {
        match self {
            #[cfg(target_os = "linux")]
            PortAccess::Native(_, processes) => Ok(crate::gate::ports::of_processes(&processes.list())),
            PortAccess::Container(host, record) => {
                let (_lock, mut process) = start(host, record, "listeners")?;
                let output = process.stdout.take().ok_or(SessionError::ListPorts)?;
                drop(process.stdin.take());
                let (sender, list) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    let mut list = Vec::new();
                    let _ = output.take(MAX_LIST).read_to_end(&mut list);
                    let _ = sender.send(list);
                });
                let list = list.recv_timeout(LIST_TIMEOUT);
                let _ = process.kill();
                let _ = process.wait();
                Ok(list.ok().and_then(|list| parse_list(&list)).ok_or(SessionError::ListPorts)?)
            }
        }
    }

    /// Returns whether connections to a port end in the sandbox now. In a network that is shared with
    /// the host, they do only while a process of the sandbox listens there.
    pub fn is_permitted(&self, port: u16) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            PortAccess::Native(_, processes) if processes.is_network_shared() => {
                self.list().is_ok_and(|list| list.iter().any(|listener| listener.port == port))
            }
            _ => {
                let _ = port;
                true
            }
        }
    }

    /// Starts the process inside.
    pub fn open(&self) -> Result<PortLink> {
        match self {
            #[cfg(target_os = "linux")]
            PortAccess::Native(record, _) => {
                use crate::native::{CommandLifetime, SessionStreams};
                use std::os::fd::AsFd;
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(SessionError::PortLink)?;
                let streams = SessionStreams::File(theirs.as_fd());
                let child = super::native_entry::enter_with(record, streams, CommandLifetime::Command, |_| {
                    let served = crate::gate::ports::serve(rustix::stdio::stdin(), rustix::stdio::stdout());
                    i32::from(served.is_err())
                })?;
                Ok(PortLink::Native { stream: ours, _child: child })
            }
            PortAccess::Container(host, record) => {
                let (lock, process) = start(host, record, "forward")?;
                // It is held until this process ends.
                std::mem::forget(lock);
                Ok(PortLink::Container(process))
            }
        }
    }
}

/// Starts a hidden subcommand of the helper inside, with pipes. The lock must be held as long as it
/// is to run.
fn start<'a>(host: &Host, record: &'a Record, subcommand: &str) -> Result<(Option<ContainerCommand<'a>>, Process)> {
    if record.pod.is_some() {
        // Nobody reads what kubectl says.
        let mut process =
            super::kubernetes::start_in_pod(host, record, &[format!("{CONTROL_DIR}/sandpen"), subcommand.into()])?;
        drop(process.stderr.take());
        return Ok((None, process));
    }
    let mut command = ContainerCommand::new(host, record)?;
    let client = command.client_byte();
    command.helper = Some(HelperConfig { exec: true, client, ..HelperConfig::default() });
    command.command = vec![format!("{CONTROL_DIR}/sandpen").into(), subcommand.into()];
    let process = command.start_with_pipes()?;
    Ok((Some(command), process))
}

impl PortLink {
    /// Returns the streams from and to the process inside.
    pub fn streams(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        match self {
            PortLink::Container(process) => {
                Ok((duplicate(process.stdout.as_ref())?, duplicate(process.stdin.as_ref())?))
            }
            #[cfg(target_os = "linux")]
            PortLink::Native { stream, .. } => Ok((duplicate(Some(stream))?, duplicate(Some(stream))?)),
        }
    }
}

fn duplicate(stream: Option<&impl std::os::fd::AsFd>) -> io::Result<OwnedFd> {
    stream.ok_or(io::ErrorKind::NotConnected)?.as_fd().try_clone_to_owned()
}
