//! Answers a refused push as a server does, so that Git inside shows the reason for each ref.

use std::io::{self, Write};

use super::commands::CommandList;
use super::pkt_line::{Packet, write_band};
use crate::ui::escape::escape;

/// A line of the report has to fit into a packet, with the name of a ref.
const MAX_REASON: usize = 8 << 10;
const OTHER: &str = "not pushed, because another ref was refused";

/// Writes the report. `reasons` has an entry for each update; `None` if only another one was
/// refused.
pub fn refuse(guest: &mut impl Write, commands: &CommandList, reasons: &[Option<String>]) -> io::Result<()> {
    if !commands.wants_report() {
        return Ok(());
    }
    let mut report = Vec::new();
    Packet::line("unpack ok").write(&mut report)?;
    for (update, reason) in commands.updates.iter().zip(reasons) {
        let reason = reason.as_deref().unwrap_or(OTHER);
        let reason: String = escape(reason).chars().take(MAX_REASON).collect();
        Packet::line(&format!("ng {} sandpen: {reason}", update.name)).write(&mut report)?;
    }
    Packet::Flush.write(&mut report)?;
    if commands.uses("side-band-64k") {
        write_band(guest, 1, &report)?;
        Packet::Flush.write(guest)?;
    } else {
        guest.write_all(&report)?;
    }
    guest.flush()
}
