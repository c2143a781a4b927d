//! The connection to the host's agent. It is made when it is first needed, and again if the agent was
//! started again at the same path; bindings are then repeated.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::wire::{read_message, write_message};

/// How long the agent may take to answer: it may wait for its user to confirm or to touch a key.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Upstream {
    socket: PathBuf,
    stream: Option<UnixStream>,
    /// The messages that bound the connection, in their order.
    bindings: Vec<Vec<u8>>,
}

impl Upstream {
    pub fn new(socket: PathBuf) -> Self {
        Upstream { socket, stream: None, bindings: Vec::new() }
    }

    /// Sends a request and returns the answer.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        if let Some(mut stream) = self.stream.take()
            && let Ok(answer) = exchange(&mut stream, request)
        {
            self.stream = Some(stream);
            return Ok(answer);
        }
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        for binding in &self.bindings {
            // An agent that does not know bindings refuses them, and signs all the same.
            exchange(&mut stream, binding)?;
        }
        let answer = exchange(&mut stream, request)?;
        self.stream = Some(stream);
        Ok(answer)
    }

    /// Passes a binding on.
    pub fn bind(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let answer = self.ask(request)?;
        self.bindings.push(request.to_owned());
        Ok(answer)
    }
}

fn exchange(stream: &mut UnixStream, request: &[u8]) -> io::Result<Vec<u8>> {
    write_message(stream, request)?;
    read_message(stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
