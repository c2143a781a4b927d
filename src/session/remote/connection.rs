//! Brings the helper into a sandbox on another machine and connects to it, over the streams of one
//! process of the engine's client.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::RemoteError;
use crate::facts::helper_for;
use crate::host::Host;
use crate::link::{LinkFrame, LinkReader, LinkWriter, PING_INTERVAL, SILENCE_LIMIT, VERSION};
use crate::path::HostPath;
use crate::plan::CONTROL_DIR;
use crate::process::ready::Startup;

/// Takes the helper's bytes from stdin, after a line with their number, and becomes the helper. The path is an
/// argument.
const TAKE: &str = r#"uname -m && read -r size && head -c "$size" >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0" && exec "$0" pod link"#;
/// How long the engine may take to pull the image, and the helper to arrive.
const SEND_TIMEOUT: Duration = Duration::from_secs(1800);
/// How often it is looked whether a signal has arrived.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The architectures that sandpen is built for.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const MAX_LINE: usize = 64;
const MAX_MESSAGE: usize = 4096;

/// A connection to the keeper.
pub struct Connection {
    client: Child,
    pub writer: LinkWriter,
    frames: Receiver<io::Result<LinkFrame>>,
    message: Arc<Mutex<Vec<u8>>>,
}

/// Why a connection ended.
#[derive(Debug)]
pub struct LostLink {
    pub message: String,
}

/// The helper for each architecture, and what the sandbox runs to take it.
pub struct SentHelper {
    programs: Vec<(&'static str, HostPath)>,
}

impl SentHelper {
    pub fn of(host: &Host) -> Self {
        let programs = ARCHITECTURES.iter().filter_map(|arch| Some((*arch, helper_for(host, arch)?)));
        SentHelper { programs: programs.collect() }
    }

    /// Returns the command that takes the helper from its stdin and becomes it.
    pub fn command() -> Vec<String> {
        let path = format!("{CONTROL_DIR}/sandpen");
        ["sh", "-c", TAKE, &path].map(str::to_owned).to_vec()
    }

    /// Sends the helper for an architecture; returns whether there is one.
    fn send(&self, arch: &str, input: &mut ChildStdin) -> io::Result<bool> {
        let Some((_, program)) = self.programs.iter().find(|(name, _)| *name == arch) else { return Ok(false) };
        let mut program = File::open(program.as_path())?;
        writeln!(input, "{}", program.metadata()?.len())?;
        io::copy(&mut program, input)?;
        Ok(true)
    }
}

/// Returns the command that connects to the helper that a sandbox has.
pub fn link_command() -> Vec<String> {
    [&format!("{CONTROL_DIR}/sandpen"), "pod", "link"].map(str::to_owned).to_vec()
}

/// Gives the engine's client pipes, and a process group of its own, so that keys of the terminal do not
/// signal it.
pub fn with_pipes(command: &mut Command) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
}

impl Connection {
    /// Connects over a client that runs the command of `helper` in a sandbox which has no helper yet.
    ///
    /// Returns early if `interrupted` returns a signal.
    pub fn open(
        mut client: Child,
        helper: SentHelper,
        mut interrupted: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Self>, RemoteError> {
        let message = collect_message(&mut client);
        let (Some(mut input), Some(mut output)) = (client.stdin.take(), client.stdout.take()) else {
            return Err(RemoteError::Protocol { message: "the engine's client has no streams".into() });
        };
        let (sender, sent) = mpsc::channel();
        std::thread::spawn(move || {
            let done = read_line(&mut output).and_then(|machine| {
                let is_sent = helper.send(architecture(&machine), &mut input)?;
                Ok((machine, is_sent.then_some((input, output))))
            });
            let _ = sender.send(done);
        });
        let limit = Instant::now() + SEND_TIMEOUT;
        let sent = loop {
            match sent.recv_timeout(SIGNAL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < limit => {}
                done => break done,
            }
            if let Some(signal) = interrupted() {
                end(&mut client);
                return Ok(Startup::Interrupted(signal));
            }
        };
        let streams = match sent {
            Ok(Ok((_, Some(streams)))) => streams,
            Ok(Ok((machine, None))) => {
                end(&mut client);
                // Nothing else came: the text is not the name of an architecture.
                let arch = architecture(&machine).to_owned();
                return Err(match arch.is_empty() {
                    true => RemoteError::SendHelper { message: text_of(&message) },
                    false => RemoteError::NoHelper { arch },
                });
            }
            Ok(Err(_)) | Err(_) => {
                end(&mut client);
                return Err(RemoteError::SendHelper { message: text_of(&message) });
            }
        };
        let connection = Self::over(client, streams.0, streams.1, message);
        connection.map(Startup::Ready).map_err(|lost| RemoteError::SendHelper { message: lost.message })
    }

    /// Connects over a client that runs the command of `link_command` in a sandbox which has the helper.
    pub fn resume(mut client: Child) -> Result<Self, LostLink> {
        let message = collect_message(&mut client);
        match (client.stdin.take(), client.stdout.take()) {
            (Some(input), Some(output)) => Self::over(client, input, output, message),
            _ => Err(LostLink { message: "the engine's client has no streams".into() }),
        }
    }

    /// Speaks over a client whose other end is the helper.
    fn over(
        client: Child,
        input: ChildStdin,
        output: impl Read + Send + 'static,
        message: Arc<Mutex<Vec<u8>>>,
    ) -> Result<Self, LostLink> {
        let (sender, frames) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = LinkReader::new(output);
            loop {
                let frame = match reader.next() {
                    Ok(Some(frame)) => Ok(frame),
                    Ok(None) => return,
                    Err(error) => Err(error),
                };
                let is_last = frame.is_err();
                if sender.send(frame).is_err() || is_last {
                    return;
                }
            }
        });
        let connection = Connection { client, writer: LinkWriter::new(input), frames, message };
        match connection.next()? {
            LinkFrame::Ready { version: VERSION } => {}
            _ => return Err(LostLink { message: "the helper in the sandbox is of another version".into() }),
        }
        let pings = connection.writer.clone();
        std::thread::spawn(move || {
            while pings.send(&LinkFrame::Ping).is_ok() {
                std::thread::sleep(PING_INTERVAL);
            }
        });
        Ok(connection)
    }

    /// Waits for the next frame that says something.
    pub fn next(&self) -> Result<LinkFrame, LostLink> {
        loop {
            match self.next_within(SILENCE_LIMIT)? {
                Some(LinkFrame::Ping) => {}
                Some(frame) => return Ok(frame),
                None => return Err(LostLink { message: format!("nothing came for {} s", SILENCE_LIMIT.as_secs()) }),
            }
        }
    }

    /// Waits for the next frame, a ping included; `None` if there is none in time.
    pub fn next_within(&self, timeout: Duration) -> Result<Option<LinkFrame>, LostLink> {
        match self.frames.recv_timeout(timeout) {
            Ok(Ok(frame)) => Ok(Some(frame)),
            Ok(Err(error)) => Err(LostLink { message: error.to_string() }),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let text = text_of(&self.message);
                let text =
                    if text.is_empty() { "the engine's client ended without a message".to_owned() } else { text };
                Err(LostLink { message: text })
            }
        }
    }
}

impl Connection {
    /// Closes the connection and waits until the client has exited; returns whether it did in time, and was
    /// successful or ended with the sandbox.
    pub fn await_exit(mut self, limit: Instant) -> bool {
        while Instant::now() < limit {
            match self.client.try_wait() {
                Ok(Some(_)) => return true,
                Ok(None) => std::thread::sleep(EXIT_POLL_INTERVAL),
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        end(&mut self.client);
    }
}

fn end(client: &mut Child) {
    let _ = client.kill();
    let _ = client.wait();
}

/// Reads what the engine's client says, for a message.
fn collect_message(client: &mut Child) -> Arc<Mutex<Vec<u8>>> {
    let message = Arc::new(Mutex::new(Vec::new()));
    if let Some(mut errors) = client.stderr.take() {
        let message = message.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut buffer) {
                let mut message = message.lock().unwrap_or_else(PoisonError::into_inner);
                let room = MAX_MESSAGE.saturating_sub(message.len());
                message.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
            }
        });
    }
    message
}

fn text_of(message: &Mutex<Vec<u8>>) -> String {
    // The message is read by another thread, which may be a moment behind.
    let limit = Instant::now() + Duration::from_millis(200);
    while message.lock().unwrap_or_else(PoisonError::into_inner).is_empty() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = String::from_utf8_lossy(&message.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    // Docker ends with a pointer to its help.
    let says_something = |line: &&str| !line.is_empty() && !line.starts_with("Run '") && !line.starts_with("See '");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(says_something).collect();
    lines.last().copied().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Reads a line byte by byte, because what follows it is not text.
fn read_line(output: &mut impl Read) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < MAX_LINE && output.read(&mut byte)? == 1 && byte != [b'\n'] {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Returns the name by which sandpen knows what `uname -m` prints.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
