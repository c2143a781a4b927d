//! Brings the helper into a sandbox on another machine and connects to it, over the streams of one
//! process of the engine's client.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::RemoteError;
use crate::host::Host;
use crate::link::{LinkFrame, LinkReader, LinkWriter, PING_INTERVAL, SILENCE_LIMIT, VERSION};
use crate::path::HostPath;
use crate::plan::CONTROL_DIR;

/// Takes the helper's bytes from stdin, and becomes the helper. The path and the size are arguments.
const TAKE: &str =
    r#"uname -m && head -c "$1" >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0" && exec "$0" pod link"#;
/// How long the helper may take to arrive.
const SEND_TIMEOUT: Duration = Duration::from_secs(300);
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

/// The helper's file, and what the sandbox runs to take it.
pub struct SentHelper {
    program: File,
    size: u64,
}

impl SentHelper {
    pub fn read(helper: &HostPath) -> Result<Self, RemoteError> {
        let program = File::open(helper.as_path()).map_err(RemoteError::ReadHelper)?;
        let size = program.metadata().map_err(RemoteError::ReadHelper)?.len();
        Ok(SentHelper { program, size })
    }

    /// Returns the command that takes the helper from its stdin and becomes it.
    pub fn command(&self) -> Vec<String> {
        let path = format!("{CONTROL_DIR}/sandpen");
        ["sh", "-c", TAKE, &path, &self.size.to_string()].map(str::to_owned).to_vec()
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
    pub fn open(mut client: Child, host: &Host, helper: SentHelper) -> Result<Self, RemoteError> {
        let mut program = helper.program;
        let message = collect_message(&mut client);
        let (Some(mut input), Some(mut output)) = (client.stdin.take(), client.stdout.take()) else {
            return Err(RemoteError::Protocol { message: "the engine's client has no streams".into() });
        };
        let (sender, sent) = mpsc::channel();
        let arch = host.arch.to_owned();
        std::thread::spawn(move || {
            let done = read_line(&mut output).and_then(|machine| {
                if architecture(&machine) != arch {
                    return Ok((machine, None));
                }
                io::copy(&mut program, &mut input)?;
                Ok((machine, Some((input, output))))
            });
            let _ = sender.send(done);
        });
        let streams = match sent.recv_timeout(SEND_TIMEOUT) {
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
        Self::over(client, streams.0, streams.1, message)
            .map_err(|lost| RemoteError::SendHelper { message: lost.message })
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
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
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
