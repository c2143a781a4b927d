//! The parent of a command in the guest's container: starts it with pipes or a pseudo-terminal of its
//! own, and speaks to the launcher in frames.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;

use super::running::Running;
use super::{CONNECT_TIMEOUT, connect};
use crate::link::{LinkFrame, LinkReader, LinkWriter, PING_INTERVAL, StartRequest};
use crate::plan::kubernetes::GUEST_SOCKET;
use crate::process::KILLED;
use crate::process::status_file::CommandStatus;

/// No system has more.
const MAX_VARIABLES: u64 = 8 << 20;

/// A command whose description is not complete.
#[derive(Default)]
pub struct Described {
    pub arguments: Vec<OsString>,
    pub variables: Vec<(OsString, OsString)>,
}

/// The first process of the guest's container.
pub fn connected_to_keeper() -> io::Result<u8> {
    let keeper = connect(Path::new(GUEST_SOCKET), CONNECT_TIMEOUT)?;
    let writer = LinkWriter::new(keeper.try_clone()?);
    serve(keeper, writer, Described::default())
}

/// The child of the first process of a container on another machine, whose stdin is a socket.
pub fn started_by_keeper() -> io::Result<u8> {
    let keeper = UnixStream::from(rustix::stdio::stdin().as_fd().try_clone_to_owned()?);
    let writer = LinkWriter::new(keeper.try_clone()?);
    serve(keeper, writer, Described::default())
}

/// A command of `sandpen exec`. It ends with its launcher, whose end closes stdin.
pub fn on_standard_streams() -> io::Result<u8> {
    let input = std::fs::File::from(rustix::stdio::stdin().as_fd().try_clone_to_owned()?);
    let output = std::fs::File::from(rustix::stdio::stdout().as_fd().try_clone_to_owned()?);
    let writer = LinkWriter::new(output);
    writer.send(&LinkFrame::Ready { version: crate::link::VERSION })?;
    let pings = writer.clone();
    std::thread::spawn(move || {
        while pings.send(&LinkFrame::Ping).is_ok() {
            std::thread::sleep(PING_INTERVAL);
        }
    });
    serve(input, writer, Described { variables: variables_of_first_command(), arguments: Vec::new() })
}

/// Returns the variables with which the first command was started, as far as it lets them be read. They
/// were sent over its connection, and are nowhere else.
fn variables_of_first_command() -> Vec<(OsString, OsString)> {
    let read =
        |pid: u32| crate::process::untrusted::read_bytes(Path::new(&format!("/proc/{pid}/environ")), MAX_VARIABLES);
    let Some(first) = first_child(1) else { return Vec::new() };
    // In a container on another machine, the first process is the parent of the command's parent.
    let variables = read(first).or_else(|error| first_child(first).map_or(Err(error), read)).unwrap_or_default();
    let pairs = variables.split(|byte| *byte == 0).map(|pair| OsString::from_vec(pair.to_vec()));
    pairs.filter_map(|pair| divide(&pair)).collect()
}

/// What the main thread waits for.
pub enum Event {
    Frame(LinkFrame),
    /// The launcher, or the keeper, has gone.
    LinkLost,
    /// The command has ended, and its output was sent.
    Ended(CommandStatus),
}

fn serve(input: impl Read + Send + 'static, link: LinkWriter, mut described: Described) -> io::Result<u8> {
    let (sender, events) = mpsc::channel();
    let frames = sender.clone();
    std::thread::spawn(move || {
        let mut reader = LinkReader::new(input);
        while let Ok(Some(frame)) = reader.next() {
            if frames.send(Event::Frame(frame)).is_err() {
                return;
            }
        }
        let _ = frames.send(Event::LinkLost);
    });
    let mut running = None::<Running>;
    for event in events {
        match event {
            Event::Frame(LinkFrame::Argument(word)) => described.arguments.push(word),
            Event::Frame(LinkFrame::Variable(pair)) => described.variables.extend(divide(&pair)),
            Event::Frame(LinkFrame::Start(json)) if running.is_none() => {
                let request: StartRequest = serde_json::from_str(&json)?;
                match Running::start(std::mem::take(&mut described), &request, &link, sender.clone()) {
                    Ok(started) => {
                        link.send(&LinkFrame::Status(CommandStatus::Started.to_text()))?;
                        running = Some(started);
                    }
                    Err(status) => {
                        link.send(&LinkFrame::Status(status.to_text()))?;
                        return Ok(status.exit_code());
                    }
                }
            }
            Event::Frame(frame) => {
                if let Some(running) = &mut running {
                    running.handle(frame);
                }
            }
            Event::LinkLost => {
                // Everything in the container ends with its first process; a command of `exec` takes its
                // descendants with it.
                if running.is_some() {
                    crate::process::descendants::end();
                }
                return Ok(KILLED.exit_code());
            }
            Event::Ended(status) => {
                // A launcher that has gone needs no status.
                let _ = link.send(&LinkFrame::Status(status.to_text()));
                return Ok(match status {
                    CommandStatus::Ended(code) => code,
                    _ => KILLED.exit_code(),
                });
            }
        }
    }
    Ok(KILLED.exit_code())
}

fn first_child(parent: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).min()
}

/// Divides `NAME=VALUE`.
fn divide(pair: &OsString) -> Option<(OsString, OsString)> {
    let bytes = pair.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((os(bytes.get(..at)?), os(bytes.get(at + 1..)?)))
}
