//! Redacts what a host sends over a WebSocket. A value may be divided over the frames of a message, so
//! the frames are written anew; a message is passed on as soon as it is complete.

use super::head::MalformedMessage;
use super::redact::Redactor;

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
/// Opcodes from this one on are those of control frames, which are short and complete.
const FIRST_CONTROL: u8 = 8;
const MAX_CONTROL: u64 = 125;

/// Reads the frames of a host.
#[derive(Debug, Default)]
pub struct WebSocketReader {
    /// The beginning of a frame's head.
    head: Vec<u8>,
    frame: Option<Frame>,
    /// The opcode of the next frame that is written; `None` between messages.
    message: Option<u8>,
    /// The payload of a control frame.
    control: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    opcode: u8,
    is_final: bool,
    /// How much of the payload is missing.
    left: u64,
}

impl WebSocketReader {
    /// Adds what may be passed on to `out`.
    pub fn push(
        &mut self,
        data: &[u8],
        redactor: &mut Redactor<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let mut rest = data;
        loop {
            if self.frame.is_none() {
                let Some((byte, after)) = rest.split_first() else { return Ok(()) };
                rest = after;
                self.head.push(*byte);
                self.begin()?;
            }
            let Some(frame) = &mut self.frame else { continue };
            let taken = rest.len().min(usize::try_from(frame.left).unwrap_or(usize::MAX));
            let (part, after) = rest.split_at(taken);
            rest = after;
            frame.left -= taken as u64;
            let frame = *frame;
            if frame.opcode >= FIRST_CONTROL {
                self.control.extend_from_slice(part);
                if frame.left == 0 {
                    redactor.has_found |= redactor.patterns().replace_all(&mut self.control);
                    write(out, FINAL | frame.opcode, &self.control);
                    self.control.clear();
                }
            } else {
                let mut safe = Vec::new();
                redactor.push(part, &mut safe);
                let is_complete = frame.is_final && frame.left == 0;
                if is_complete {
                    redactor.finish(&mut safe);
                }
                if is_complete || !safe.is_empty() {
                    let opcode = self.message.replace(CONTINUATION).unwrap_or(frame.opcode);
                    write(out, if is_complete { FINAL | opcode } else { opcode }, &safe);
                }
                if is_complete {
                    self.message = None;
                }
            }
            match frame.left {
                0 => self.frame = None,
                _ => return Ok(()),
            }
        }
    }

    /// Begins a frame if its head is complete.
    fn begin(&mut self) -> Result<(), MalformedMessage> {
        let Some(frame) = parse(&self.head)? else { return Ok(()) };
        match (frame.opcode, self.message) {
            (CONTINUATION, None) => return Err(MalformedMessage("a WebSocket's frame continues no message")),
            (1..FIRST_CONTROL, Some(_)) => return Err(MalformedMessage("a WebSocket's message is not complete")),
            (1..FIRST_CONTROL, None) => self.message = Some(frame.opcode),
            _ => {}
        }
        self.head.clear();
        self.frame = Some(frame);
        Ok(())
    }
}

/// Parses the head of a frame; `None` if it is not complete.
fn parse(head: &[u8]) -> Result<Option<Frame>, MalformedMessage> {
    let [first, second, rest @ ..] = head else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(MalformedMessage("a WebSocket's frame is compressed although that was not allowed"));
    }
    if second & MASKED != 0 {
        return Err(MalformedMessage("a WebSocket's frame is masked, so it cannot be searched for keys"));
    }
    let digits = match second {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if rest.len() < digits {
        return Ok(None);
    }
    let long = rest.iter().fold(0, |length: u64, byte| length << 8 | u64::from(*byte));
    let frame = Frame {
        opcode: first & OPCODE,
        is_final: first & FINAL != 0,
        left: if digits == 0 { u64::from(*second) } else { long },
    };
    if frame.opcode >= FIRST_CONTROL && (frame.left > MAX_CONTROL || !frame.is_final) {
        return Err(MalformedMessage("a WebSocket's control frame is too long"));
    }
    Ok(Some(frame))
}

fn write(out: &mut Vec<u8>, first: u8, payload: &[u8]) {
    out.push(first);
    match payload.len() {
        length @ 0..126 => out.push(length as u8),
        length @ 126..0x1_0000 => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::super::redact::Patterns;
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, first, payload);
        out
    }

    /// An opcode and a payload.
    type Message = (u8, Vec<u8>);

    /// Passes parts through a reader, and returns the messages that arrive, with their opcodes, and how many bytes
    /// have arrived after each part.
    fn passed(parts: &[&[u8]]) -> Result<(Vec<Message>, Vec<usize>), MalformedMessage> {
        let patterns = Patterns::new([(b"sk-secret-value".to_vec(), b"sk-placeholders".to_vec())]);
        let (mut redactor, mut reader, mut out) = (Redactor::new(&patterns), WebSocketReader::default(), Vec::new());
        let mut lengths = Vec::new();
        for part in parts {
            reader.push(part, &mut redactor, &mut out)?;
            lengths.push(out.len());
        }
        let (mut messages, mut open, mut at) = (Vec::new(), None::<Message>, 0);
        while at < out.len() {
            let digits = [0, 2, 8][usize::from(out[at + 1].saturating_sub(125))];
            let head = parse(&out[at..at + 2 + digits])?.expect("a head");
            at += 2 + digits;
            let payload = &out[at..at + head.left as usize];
            at += payload.len();
            if head.opcode >= FIRST_CONTROL {
                messages.push((head.opcode, payload.to_vec()));
                continue;
            }
            let (opcode, mut text) = open.take().unwrap_or((head.opcode, Vec::new()));
            text.extend_from_slice(payload);
            if head.is_final { messages.push((opcode, text)) } else { open = Some((opcode, text)) }
        }
        Ok((messages, lengths))
    }

    #[test]
    fn a_value_is_found_in_a_frame_over_frames_and_around_control_frames() {
        let long = [vec![b'x'; 70_000], b"sk-secret-value".to_vec(), vec![b'y'; 300]].concat();
        let all = [
            frame(FINAL | 1, b"a sk-secret-value b"),
            frame(2, b"1 sk-sec"),
            frame(FINAL | 9, b"sk-secret-value"),
            frame(CONTINUATION, b""),
            frame(CONTINUATION, b"ret-v"),
            frame(FINAL, b"alue"),
            frame(FINAL | 2, &long),
            frame(FINAL | 1, b""),
            frame(FINAL | 8, b"\x03\xe8"),
        ]
        .concat();
        let long = String::from_utf8(long).expect("text").replace("sk-secret-value", "sk-placeholders").into_bytes();
        let expected = vec![
            (1, b"a sk-placeholders b".to_vec()),
            (9, b"sk-placeholders".to_vec()),
            (2, b"1 sk-placeholders".to_vec()),
            (2, long),
            (1, Vec::new()),
            (8, b"\x03\xe8".to_vec()),
        ];
        assert_eq!(passed(&[&all]).expect("frames").0, expected);
        for size in [1, 2, 3, 7, 1000] {
            let parts: Vec<&[u8]> = all.chunks(size).collect();
            assert_eq!(passed(&parts).expect("frames").0, expected, "{size}");
        }
    }

    #[test]
    fn a_message_that_ends_like_a_value_begins_does_not_wait_for_the_next() {
        let message = frame(FINAL | 1, b"yes, sk-s");
        assert_eq!(passed(&[&message]).expect("a frame"), (vec![(1, b"yes, sk-s".to_vec())], vec![message.len()]));
    }

    #[test]
    fn frames_that_cannot_be_searched_are_errors() {
        for wrong in [
            &[FINAL | 0x40 | 1, 1, b'a'][..],
            &[FINAL | 1, MASKED | 1, 0, 0, 0, 0, b'a'],
            &[FINAL, 1, b'a'],
            &[1, 0, 1, 0],
            &[9, 0],
            &[FINAL | 9, 126, 1, 0],
        ] {
            assert!(passed(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
