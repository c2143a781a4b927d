//! Stands between sandpen and a real SSH agent, and records what passes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use super::Fixture;

pub struct RecordingAgent {
    pub socket: PathBuf,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl RecordingAgent {
    /// Starts it in front of the fixture's agent.
    pub fn start(fixture: &Fixture) -> Self {
        let socket = fixture.outside("recording").join("agent");
        let listener = UnixListener::bind(&socket).expect("a socket");
        fixture.give_to_user(&socket);
        let (seen, real) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), fixture.agent().socket.clone());
        let record = seen.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (record, real) = (record.clone(), real.clone());
                thread::spawn(move || relay(client, &real, &record));
            }
        });
        RecordingAgent { socket, seen }
    }

    /// Returns the requests that the agent has seen.
    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("the record").clone()
    }

    /// Returns the kinds of these requests, each once.
    pub fn kinds(&self) -> Vec<u8> {
        let mut kinds: Vec<u8> = self.seen().iter().map(|message| message[0]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

fn relay(mut client: UnixStream, real: &Path, record: &Mutex<Vec<Vec<u8>>>) {
    let Ok(mut agent) = UnixStream::connect(real) else { return };
    while let Some(request) = read(&mut client) {
        record.lock().expect("the record").push(request.clone());
        let Some(answer) = write(&mut agent, &request).and_then(|()| read(&mut agent)) else { return };
        if write(&mut client, &answer).is_none() {
            return;
        }
    }
}

fn read(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

fn write(stream: &mut UnixStream, message: &[u8]) -> Option<()> {
    stream.write_all(&u32::try_from(message.len()).ok()?.to_be_bytes()).ok()?;
    stream.write_all(message).ok()
}
