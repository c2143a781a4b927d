//! Copies the files of a plan to another machine, and makes the places for what comes back.

use super::connection::Connection;
use super::error::RemoteError;
use super::returns::{ReturnRecord, Returns};
use super::seed;
use crate::launch::FileCopy;
use crate::link::LinkFrame;
use crate::plan::Plan;
use crate::ui::progress::Progress;
use crate::ui::{Ui, counted, size};

/// Above this many bytes the copy is announced.
const ANNOUNCED: u64 = 32 << 20;

/// Makes the places for what comes back, and the record by which another command goes on.
pub fn prepare_returns(plan: &Plan, record: Option<&ReturnRecord>) -> Result<Option<Returns>, RemoteError> {
    let Some(record) = record else { return Ok(None) };
    let failed = |source| RemoteError::Write { path: plan.session_dir.to_string(), source };
    record.write(&plan.session_dir).map_err(failed)?;
    Ok(Some(Returns::open(record).map_err(failed)?))
}

/// Copies files, and waits until they are written.
pub fn copy_files(
    plan: &Plan,
    copies: &[FileCopy],
    record: Option<&ReturnRecord>,
    connection: &Connection,
    ui: Ui,
) -> Result<(), RemoteError> {
    let progress = Progress::start(ui, "the workspace to be copied");
    let sent = seed::send(plan, copies, record.map(|record| &record.request), &connection.writer);
    let answer = match sent {
        Ok(sent) => connection.next().map(|frame| (frame, sent)),
        // What the helper or the engine's client said explains a broken connection.
        Err(error @ RemoteError::Copy { .. }) => match connection.next() {
            Ok(LinkFrame::Failed(message)) => return Err(RemoteError::Copy { message }),
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    };
    drop(progress);
    match answer {
        Ok((LinkFrame::Received, sent)) => {
            let files = counted(usize::try_from(sent.files).unwrap_or_default(), "file");
            let text = format!("{files} ({}) copied into the sandbox", size(sent.bytes));
            if sent.bytes > ANNOUNCED {
                ui.notice(&text)
            } else {
                ui.verbose(&text)
            }
            Ok(())
        }
        Ok((LinkFrame::Failed(message), _)) => Err(RemoteError::Copy { message }),
        Ok(_) => Err(RemoteError::Protocol { message: "another frame than the end of the copy".into() }),
        Err(lost) => Err(RemoteError::Copy { message: lost.message }),
    }
}
