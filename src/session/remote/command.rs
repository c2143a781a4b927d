//! Starts a command over a connection, and passes it signals while its streams are relayed.

use std::ffi::OsString;
use std::io;

use super::connection::Connection;
use super::relay::{self, RawCaller, RelayEnd};
use super::returns::Returns;
use crate::link::{LinkFrame, LinkWriter, StartRequest};
use crate::plan::{Variable, VariableValue};
use crate::process::signals::{ReadyAction, SignalQueue, SignalTarget};

/// Describes a command and starts it. Values of variables are nowhere but in the connection.
pub fn describe(
    link: &LinkWriter,
    variables: &[Variable],
    command: &[OsString],
    request: &StartRequest,
) -> io::Result<()> {
    for variable in variables {
        let mut pair = OsString::from(format!("{}=", variable.name));
        match &variable.value {
            VariableValue::Plain(value) => pair.push(value),
            VariableValue::Secret(secret) => pair.push(secret.reveal()),
        }
        link.send(&LinkFrame::Variable(pair))?;
    }
    for word in command {
        link.send(&LinkFrame::Argument(word.clone()))?;
    }
    link.send(&LinkFrame::Start(serde_json::to_string(request)?))
}

/// What is done while a command's streams are relayed.
#[derive(Default)]
pub struct Relayed<'a> {
    pub has_terminal: bool,
    pub returns: Option<&'a mut Returns>,
    /// Done when its descriptor is ready.
    pub on_ready: Option<ReadyAction>,
    /// Called when the command has started.
    pub on_start: Option<&'a mut dyn FnMut()>,
}

/// Relays streams and signals until the command has ended.
pub fn relay(connection: &Connection, signals: SignalQueue, relayed: Relayed<'_>) -> RelayEnd {
    let Relayed { has_terminal, returns, on_ready, on_start } = relayed;
    let to_command = connection.writer.clone();
    let target = SignalTarget::Remote(Box::new(move |signal| {
        if let Some(frame) = relay::signal_frame(signal.as_raw(), has_terminal) {
            let _ = to_command.send(&frame);
        }
    }));
    let to_command = connection.writer.clone();
    let kill = move || drop(to_command.send(&LinkFrame::Signal(libc::SIGKILL)));
    let _raw = RawCaller::enter(has_terminal);
    let _forwarder = signals.forward_in_thread(target, None, kill, on_ready);
    let _regular = returns.as_ref().map(|returns| returns.ask_regularly(&connection.writer));
    relay::run(connection, returns, on_start)
}
