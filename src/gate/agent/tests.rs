//! Tests the gate with a recording agent in the place of the host's.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::slots::MAX_CONNECTIONS;
use super::wire::{MAX_MESSAGE, put_string, read_message, write_message};
use super::*;
use crate::path::HostPath;

/// An agent that answers everything, and records what it sees.
#[derive(Clone, Default)]
pub struct RecordingAgent {
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl RecordingAgent {
    pub fn start(socket: &Path) -> Self {
        let agent = RecordingAgent::default();
        let (listener, seen) = (UnixListener::bind(socket).expect("a socket"), agent.seen.clone());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let seen = seen.clone();
                thread::spawn(move || {
                    while let Ok(Some(message)) = read_message(&mut stream) {
                        let answer: &[u8] = match message[0] {
                            11 => &[12, 0, 0, 0, 0],
                            13 => &[14, 0, 0, 0, 1, b's'],
                            _ => &[6],
                        };
                        seen.lock().expect("the record").push(message);
                        if write_message(&mut stream, answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        agent
    }

    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("the record").clone()
    }
}

pub fn plan_for_tests(socket: &Path, agent: &Path) -> AgentGatePlan {
    let path = |path: &Path| HostPath::new(path).expect("a path");
    AgentGatePlan {
        socket: path(socket),
        agent: path(agent),
        is_open: false,
        is_limited: false,
        hosts: Vec::new(),
        remotes: Vec::new(),
        signing_key: None,
        ssh: None,
        path: PathBuf::new(),
        home: path(Path::new("/nonexistent")),
        asks: false,
        askpass: None,
        mounted: Vec::new(),
        writable: Vec::new(),
        id: "test".into(),
    }
}

pub struct Rig {
    pub agent: RecordingAgent,
    pub socket: PathBuf,
    _directory: tempfile::TempDir,
    _gate: AgentGate,
}

impl Rig {
    pub fn start() -> Self {
        Self::start_with(|socket, agent, _| plan_for_tests(socket, agent))
    }

    /// Starts a gate by a plan that is made of the sockets and an empty home.
    pub fn start_with(plan: impl FnOnce(&Path, &Path, HostPath) -> AgentGatePlan) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().join("real");
        let agent = RecordingAgent::start(&real);
        let (socket, home) = (directory.path().join("gate"), directory.path().join("home"));
        std::fs::create_dir(&home).expect("a home");
        let plan = plan(&socket, &real, HostPath::new(home).expect("a path"));
        let mut gate = AgentGate::open(&plan, Arc::new(EventLog::disabled())).expect("a gate");
        gate.take_action().expect("an action").run();
        Rig { agent, socket, _directory: directory, _gate: gate }
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream
    }
}

pub fn ask(stream: &mut UnixStream, message: &[u8]) -> Vec<u8> {
    write_message(stream, message).expect("a request");
    read_message(stream).expect("an answer").expect("an answer")
}

pub fn sign_request(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut message = vec![13];
    put_string(&mut message, key);
    put_string(&mut message, data);
    message.extend([0; 4]);
    message
}

#[test]
fn the_agent_sees_only_what_may_pass() {
    let rig = Rig::start();
    let mut guest = rig.connect();
    for kind in (0..=255).filter(|kind| ![11, 13, 27].contains(kind)) {
        assert_eq!(ask(&mut guest, &[kind, 0, 0, 0, 0]), [5], "{kind}");
    }
    let mut unknown = vec![27];
    put_string(&mut unknown, b"session-bind@openssh.com.example");
    assert_eq!(ask(&mut guest, &unknown), [5]);
    assert_eq!(ask(&mut guest, &[11, 0]), [5]);
    assert_eq!(rig.agent.seen(), Vec::<Vec<u8>>::new());
    assert_eq!(ask(&mut guest, &[11]), [12, 0, 0, 0, 0]);
    let sign = sign_request(b"key", b"data");
    assert_eq!(ask(&mut guest, &sign), [14, 0, 0, 0, 1, b's']);
    assert_eq!(rig.agent.seen(), [vec![11], sign]);
}

#[test]
fn a_wrong_length_ends_the_connection() {
    let rig = Rig::start();
    for length in [0u32, MAX_MESSAGE as u32 + 1, u32::MAX] {
        let mut guest = rig.connect();
        guest.write_all(&length.to_be_bytes()).expect("a length");
        assert!(matches!(read_message(&mut guest), Ok(None) | Err(_)), "{length}");
    }
    assert_eq!(ask(&mut rig.connect(), &[11]), [12, 0, 0, 0, 0]);
}

#[test]
fn connections_that_are_held_open_do_not_keep_others_out() {
    let rig = Rig::start();
    let held: Vec<UnixStream> = (0..MAX_CONNECTIONS * 2)
        .map(|_| {
            let mut stream = rig.connect();
            // Half a message.
            stream.write_all(&[0, 0, 0, 9, 11]).expect("a part");
            stream
        })
        .collect();
    let start = Instant::now();
    assert_eq!(ask(&mut rig.connect(), &[11]), [12, 0, 0, 0, 0]);
    assert!(start.elapsed() < Duration::from_secs(25));
    drop(held);
}

#[test]
fn an_agent_that_comes_back_at_the_same_path_is_used_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let real = directory.path().join("real");
    let mut upstream = upstream::Upstream::new(real.clone());
    assert!(upstream.ask(&[11]).is_err());
    let listener = UnixListener::bind(&real).expect("a socket");
    let first = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let message = read_message(&mut stream).expect("a request");
        write_message(&mut stream, &[6]).expect("an answer");
        message
    });
    assert!(upstream.bind(&[27, 1]).is_ok());
    assert_eq!(first.join().expect("the first agent"), Some(vec![27, 1]));
    std::fs::remove_file(&real).expect("the first agent's socket");
    let second = RecordingAgent::start(&real);
    assert_eq!(upstream.ask(&[11]).expect("an answer"), [12, 0, 0, 0, 0]);
    // The binding is repeated.
    assert_eq!(second.seen(), [vec![27, 1], vec![11]]);
}
