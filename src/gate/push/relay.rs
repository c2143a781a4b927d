//! Passes bytes between a guest and the program that reaches a server.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;
use std::thread;

use super::pkt_line::Packet;
use crate::process::copy_bytes;

/// Passes everything both ways until the server has closed its side.
pub fn relay(guest: &UnixStream, stdin: ChildStdin, answer: impl FnOnce(&mut &UnixStream) -> io::Result<()>) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stdin = stdin;
            // Dropping it tells the server of the guest's end.
            let _ = copy_bytes(&mut &*guest, &mut stdin);
        });
        let mut writer = guest;
        let _ = answer(&mut writer);
        let _ = guest.shutdown(Shutdown::Both);
    });
}

/// Copies the packets of a server over HTTP without the ones that end each answer, which a
/// connection that stays open does not have.
pub fn copy_without_response_ends(server: &mut impl Read, guest: &mut impl Write) -> io::Result<()> {
    loop {
        match Packet::read(server)? {
            Packet::ResponseEnd => {}
            packet => packet.write(guest)?,
        }
    }
}

/// Reads and drops what a guest still sends, so that it reads the answer that it was given.
pub fn drain(guest: &mut UnixStream) {
    let _ = copy_bytes(guest, &mut io::sink());
}
