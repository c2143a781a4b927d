//! Takes the answers of a terminal to queries that a guest has left, so that none of them is typed into
//! the host's shell after the guest's end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::process::signals::poll_until;

/// A terminal that has not answered after this time does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Asks for the terminal's status. Terminals answer in order, so all other answers come before.
const STATUS_QUERY: &[u8] = b"\x1b[5n";
const STATUS_ANSWER: &[u8] = b"\x1b[0n";

/// Reads and drops all answers of a terminal in raw mode, and what was typed meanwhile.
pub fn drop_answers(input: BorrowedFd<'_>, output: BorrowedFd<'_>) {
    if rustix::io::write(output, STATUS_QUERY) != Ok(STATUS_QUERY.len()) {
        return;
    }
    let limit = Instant::now() + ANSWER_TIMEOUT;
    let mut end = Vec::new();
    while !end.ends_with(STATUS_ANSWER) && Instant::now() < limit {
        let mut descriptors = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        poll_until(&mut descriptors, Some(limit));
        if descriptors[0].revents().is_empty() {
            continue;
        }
        let mut byte = [0];
        let Ok(1..) = rustix::io::read(input, &mut byte) else { return };
        end.extend_from_slice(&byte);
        let surplus = end.len().saturating_sub(STATUS_ANSWER.len());
        end.drain(..surplus);
    }
}
