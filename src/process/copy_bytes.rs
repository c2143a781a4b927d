//! Copies bytes from one stream to another with `read` and `write`. `io::copy` would use `splice`
//! between a pipe and a Unix socket, with which a Git client and a server waited for each other.

use std::io::{self, ErrorKind, Read, Write};

const BUFFER: usize = 256 << 10;

/// Copies until the end of the stream.
pub fn copy_bytes(reader: &mut impl Read, writer: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return writer.flush(),
            Ok(count) => writer.write_all(&buffer[..count])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
