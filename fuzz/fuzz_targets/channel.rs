//! Sends arbitrary bytes to the launcher's side of a channel: `cargo +nightly fuzz run channel`.
#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use sandpen::internals::{Channel, ChannelFrame, CloseReason, Endpoint, Side};

fuzz_target!(|bytes: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("a socket");
    let mut sent = Vec::new();
    ChannelFrame::Hello { version: 1 }.encode(&mut sent);
    sent.extend_from_slice(bytes);
    // What does not fit into the socket's buffer is not sent.
    let _ = theirs.write(&sent);
    let _ = theirs.shutdown(Shutdown::Write);
    let input = OwnedFd::from(ours);
    let output = input.try_clone().expect("a descriptor");
    let mut channel = Channel::new(Side::Launcher, input, output).expect("a channel");
    let mut locals = Vec::new();
    let mut accept = |_, argument: &[u8]| {
        if argument.first() == Some(&b'r') {
            return Err(CloseReason::Refused);
        }
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        locals.push(theirs);
        Ok(Endpoint::socket(ours).expect("an endpoint"))
    };
    while channel.step(&[], &mut accept).is_ok_and(|step| !step.is_over) {}
});
