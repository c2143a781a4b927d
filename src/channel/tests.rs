//! Tests of both sides together, over a pair of sockets, and of a side with a hostile other one.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::frame::MAX_DATA;
use super::{Channel, ChannelError, ChannelFrame, CloseReason, Decoder, Endpoint, ProtocolError, Side, StreamKind};

const LIMIT: Duration = Duration::from_secs(20);

fn channel(side: Side, stream: UnixStream) -> Channel {
    let input = OwnedFd::from(stream);
    let output = input.try_clone().expect("a descriptor");
    Channel::new(side, input, output).expect("a channel")
}

/// Runs the launcher's side, which answers each stream of the other side with what it reads from it.
fn start_launcher(stream: UnixStream, limit: Duration) -> mpsc::Receiver<Result<(), ChannelError>> {
    let (sender, end) = mpsc::channel();
    thread::spawn(move || {
        let mut channel = channel(Side::Launcher, stream).with_silence_limit(limit);
        let ended = loop {
            match channel.step(&[], &mut |_, argument| echo(argument)) {
                Ok(step) if step.is_over => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        let _ = sender.send(ended);
    });
    end
}

/// Returns a local end that sends back the argument and everything that it gets.
fn echo(argument: &[u8]) -> Result<Endpoint, CloseReason> {
    if argument == b"refuse" {
        return Err(CloseReason::Refused);
    }
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let argument = argument.to_vec();
    thread::spawn(move || {
        let _ = theirs.write_all(&argument);
        let mut reader = theirs.try_clone().expect("a descriptor");
        let _ = std::io::copy(&mut reader, &mut theirs);
        let _ = theirs.shutdown(Shutdown::Write);
    });
    Ok(Endpoint::socket(ours).expect("an endpoint"))
}

/// Runs the side inside with streams of these kinds and arguments, and returns their local ends.
fn open(stream: UnixStream, streams: &[(StreamKind, Vec<u8>)]) -> Vec<UnixStream> {
    let mut channel = channel(Side::Sandbox, stream);
    let mut ends = Vec::new();
    for (kind, argument) in streams {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(LIMIT)).expect("a timeout");
        channel.open(*kind, argument, Endpoint::socket(theirs).expect("an endpoint")).expect("room");
        ends.push(ours);
    }
    thread::spawn(
        move || while channel.step(&[], &mut |_, _| Err(CloseReason::Refused)).is_ok_and(|step| !step.is_over) {},
    );
    ends
}

fn exchange(end: &UnixStream, content: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = (&*end).write_all(content);
            let _ = end.shutdown(Shutdown::Write);
        });
        let _ = (&*end).read_to_end(&mut answer);
    });
    answer
}

#[test]
fn streams_of_both_kinds_carry_bytes_unchanged_and_at_once() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let _launcher = start_launcher(ours, LIMIT);
    let kinds: Vec<_> = (0..24_u8)
        .map(|number| (if number % 3 == 0 { StreamKind::Push } else { StreamKind::Agent }, vec![number]))
        .collect();
    let ends = open(theirs, &kinds);
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    thread::scope(|scope| {
        for (number, end) in ends.iter().enumerate() {
            let content = &content[..content.len() - number * 7];
            scope.spawn(move || {
                let answer = exchange(end, content);
                assert_eq!(answer[0], number as u8);
                assert!(&answer[1..] == content, "stream {number}");
            });
        }
    });
}

#[test]
fn a_refused_stream_ends_and_others_go_on() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let _launcher = start_launcher(ours, LIMIT);
    let ends = open(theirs, &[(StreamKind::Agent, b"refuse".to_vec()), (StreamKind::Agent, b"".to_vec())]);
    assert_eq!(exchange(&ends[0], b"lost"), b"");
    assert_eq!(exchange(&ends[1], b"answered"), b"answered");
}

#[test]
fn a_stream_that_is_not_read_holds_up_no_other() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let _launcher = start_launcher(ours, LIMIT);
    let ends = open(theirs, &[(StreamKind::Push, Vec::new()), (StreamKind::Agent, Vec::new())]);
    let mut idle = ends[0].try_clone().expect("a descriptor");
    thread::spawn(move || idle.write_all(&vec![b'x'; 8 << 20]));
    assert_eq!(exchange(&ends[1], b"answered"), b"answered");
}

/// Reads the launcher's frames until one fulfils the condition.
fn read_until(stream: &mut UnixStream, decoder: &mut Decoder, condition: impl Fn(&ChannelFrame<'_>) -> bool) {
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let mut buffer = [0; 4096];
    loop {
        while let Some((kind, contents)) = decoder.next_frame().expect("a frame") {
            if condition(&ChannelFrame::parse(kind, contents).expect("a frame")) {
                return;
            }
        }
        let count = stream.read(&mut buffer).expect("bytes");
        assert_ne!(count, 0, "the channel has ended");
        decoder.push(&buffer[..count]);
    }
}

/// Sends bytes to the launcher's side as if it were the process inside, and returns how it ends.
fn send(bytes: &[u8]) -> Result<(), ChannelError> {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let end = start_launcher(ours, LIMIT);
    let mut reader = theirs.try_clone().expect("a descriptor");
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let _ = theirs.write_all(bytes);
    let _ = theirs.shutdown(Shutdown::Write);
    end.recv_timeout(LIMIT).expect("an end")
}

fn encoded(frames: &[ChannelFrame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}

const HELLO: ChannelFrame<'_> = ChannelFrame::Hello { version: 1 };
const AGENT: ChannelFrame<'_> = ChannelFrame::Open { id: 1, kind: 2, argument: b"" };

fn is_protocol_error(frames: &[ChannelFrame<'_>]) -> bool {
    let frames: Vec<ChannelFrame<'_>> = [HELLO, AGENT].iter().chain(frames).cloned().collect();
    matches!(send(&encoded(&frames)), Err(ChannelError::Protocol(ProtocolError)))
}

#[test]
fn the_version_comes_first() {
    assert!(send(&encoded(&[HELLO])).is_ok());
    assert!(matches!(send(&encoded(&[AGENT])), Err(ChannelError::NoGreeting)));
    assert!(matches!(send(b"sh: sandpen: not found\n"), Err(ChannelError::NoGreeting)));
    assert!(matches!(send(&encoded(&[ChannelFrame::Hello { version: 2 }])), Err(ChannelError::Version { theirs: 2 })));
}

#[test]
fn a_side_that_breaks_the_protocol_ends_the_channel() {
    assert!(!is_protocol_error(&[]));
    assert!(!is_protocol_error(&[ChannelFrame::Eof { id: 7 }, ChannelFrame::Data { id: 9, bytes: b"x" }]));
    assert!(is_protocol_error(&[HELLO]));
    // Streams of the launcher, of a number in use, of a kind that only the launcher opens.
    assert!(is_protocol_error(&[ChannelFrame::Open { id: 2, kind: 2, argument: b"" }]));
    assert!(is_protocol_error(&[AGENT]));
    assert!(is_protocol_error(&[ChannelFrame::Open { id: 3, kind: 1, argument: &[22, 0] }]));
    // More than its window; more credit than there is room.
    let flood: Vec<_> = (0..100).map(|_| ChannelFrame::Data { id: 1, bytes: &[0; MAX_DATA] }).collect();
    assert!(is_protocol_error(&flood));
    assert!(is_protocol_error(&[ChannelFrame::Credit { id: 1, bytes: u32::MAX }]));
    assert!(is_protocol_error(&[ChannelFrame::Eof { id: 1 }, ChannelFrame::Eof { id: 1 }]));
    assert!(is_protocol_error(&[ChannelFrame::Eof { id: 1 }, ChannelFrame::Data { id: 1, bytes: b"x" }]));
    assert!(matches!(send(&[encoded(&[HELLO]), vec![9, 9, 9, 9]].concat()), Err(ChannelError::Frame(_))));
}

#[test]
fn streams_beyond_the_limit_and_of_unknown_kinds_are_closed() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let _end = start_launcher(ours, LIMIT);
    let limit = StreamKind::Push.limit() as u32;
    let mut frames = vec![HELLO, ChannelFrame::Open { id: 1001, kind: 200, argument: b"" }];
    frames.extend((0..=limit).map(|number| ChannelFrame::Open { id: 2 * number + 1, kind: 3, argument: b"" }));
    theirs.write_all(&encoded(&frames)).expect("sent");
    let mut decoder = Decoder::default();
    let refused = ChannelFrame::Close { id: 1001, reason: CloseReason::Refused };
    read_until(&mut theirs, &mut decoder, |frame| *frame == refused);
    let too_many = ChannelFrame::Close { id: 2 * limit + 1, reason: CloseReason::TooMany };
    read_until(&mut theirs, &mut decoder, |frame| *frame == too_many);
}

#[test]
fn a_silent_side_ends_the_channel() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let end = start_launcher(ours, Duration::from_millis(200));
    theirs.write_all(&encoded(&[HELLO])).expect("sent");
    assert!(matches!(end.recv_timeout(LIMIT), Ok(Err(ChannelError::Silent(_)))));
}

#[test]
fn answers_that_are_not_read_end_the_channel() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let end = start_launcher(ours, LIMIT);
    let flood = encoded(&vec![ChannelFrame::Open { id: 1, kind: 200, argument: b"" }; 10_000]);
    theirs.write_all(&encoded(&[HELLO])).expect("sent");
    thread::spawn(move || while theirs.write_all(&flood).is_ok() {});
    assert!(matches!(end.recv_timeout(LIMIT), Ok(Err(ChannelError::Unread))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_sequence_of_frames_is_endured(
        frames in vec((2..7_u8, 0..6_u32, any::<u8>(), vec(any::<u8>(), 0..60)), 0..60)
    ) {
        let mut bytes = encoded(&[HELLO]);
        for (kind, id, number, contents) in &frames {
            let frame = match kind {
                2 => ChannelFrame::Open { id: *id, kind: number % 5, argument: contents },
                3 => ChannelFrame::Data { id: *id, bytes: contents },
                4 => ChannelFrame::Credit { id: *id, bytes: (*number).into() },
                5 => ChannelFrame::Eof { id: *id },
                _ => ChannelFrame::Close { id: *id, reason: CloseReason::Broken },
            };
            frame.encode(&mut bytes);
        }
        let _ = send(&bytes);
    }
}
