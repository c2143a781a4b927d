//! `sandpen ports`: lists the ports on which programs in a running sandbox listen, and forwards ports
//! of the host to them until the sandbox ends.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;

use crate::channel::ChannelError;
use crate::cli::Format;
use crate::config::value::{EngineKind, Port, Value as _};
use crate::error::{Diagnostic, Kind, Result};
use crate::gate::ports::{self, Forward, Listener};
use crate::host::Host;
use crate::process::Outcome;
use crate::session::{PortAccess, cleanup};
use crate::ui::escape::escape;
use crate::ui::{self, Ui};

#[derive(Debug, thiserror::Error)]
enum PortsError {
    #[error("`{0}` is neither a port nor HOST:GUEST")]
    Port(String),
    #[error("cannot listen on 127.0.0.1:{port}")]
    Listen {
        id: String,
        port: u16,
        guest: u16,
        #[source]
        source: io::Error,
    },
    #[error("programs under sandbox-exec listen on the host's own ports, so there is nothing to forward")]
    Seatbelt,
    #[error("the connection to the sandbox `{id}` has failed")]
    Relay {
        id: String,
        #[source]
        source: ChannelError,
    },
}

impl Diagnostic for PortsError {
    fn kind(&self) -> Kind {
        match self {
            Self::Port(_) => Kind::Usage,
            _ => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Port(_) => vec!["for example `3000`, or `8080:3000` for port 8080 of the host".into()],
            Self::Listen { id, guest, .. } => {
                vec![format!("choose another port of the host: `sandpen ports {id} HOST:{guest}`")]
            }
            Self::Seatbelt | Self::Relay { .. } => Vec::new(),
        }
    }
}

/// The main function of the process inside a container that makes the connections.
pub fn serve_inside() -> ExitCode {
    hide();
    let served = ports::serve(rustix::stdio::stdin(), rustix::stdio::stdout());
    ExitCode::from(u8::from(served.is_err()))
}

/// The main function of the process inside a container that lists what listens.
pub fn list_inside() -> ExitCode {
    hide();
    ExitCode::from(u8::from(Ui::default().data(&ports::list()).is_err()))
}

/// Keeps other processes inside from tracing this one.
fn hide() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

pub fn run(id: &str, ports: &[String], format: Format, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let ports = ports.iter().map(|text| parse(text)).collect::<std::result::Result<Vec<_>, _>>()?;
    let host = Host::read()?;
    cleanup::sweep(&host, ui);
    let record = cleanup::find_running(&host, id)?;
    if record.engine == EngineKind::SandboxExec.name() {
        return Err(PortsError::Seatbelt.into());
    }
    let access = PortAccess::new(&host, &record)?;
    if ports.is_empty() {
        let listeners = access.list()?;
        return super::print(ui, &if format == Format::Json { ui::json(&listeners)? } else { table(&listeners) });
    }
    let listen = |(port, guest): &(Port, Port)| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.0));
        let failed = |source| PortsError::Listen { id: record.id.clone(), port: port.0, guest: guest.0, source };
        listener.map(|listener| Forward { listener, port: guest.0 }).map_err(failed)
    };
    let forwards = ports.iter().map(listen).collect::<std::result::Result<Vec<_>, _>>()?;
    let link = access.open()?;
    for (port, guest) in &ports {
        ui.notice(&format!("127.0.0.1:{port} leads to port {guest} of {}; Ctrl-C ends this", record.id));
    }
    let is_permitted = |port| access.is_permitted(port);
    let streams = link.streams().map_err(ChannelError::from);
    let relayed = streams.and_then(|(input, output)| ports::forward(input, output, forwards, is_permitted));
    relayed.map_err(|source| PortsError::Relay { id: record.id.clone(), source })?;
    ui.notice(&format!("{} has ended", record.id));
    Ok(Outcome::Exited(0))
}

/// Parses a port, or a port of the host and one of the guest.
fn parse(text: &str) -> std::result::Result<(Port, Port), PortsError> {
    let (host, guest) = text.split_once(':').unwrap_or((text, text));
    match (Port::parse(host), Port::parse(guest)) {
        (Ok(host), Ok(guest)) => Ok((host, guest)),
        _ => Err(PortsError::Port(text.to_owned())),
    }
}

fn table(listeners: &[Listener]) -> String {
    let mut text = format!("{:5}  {:15}  PROGRAM\n", "PORT", "ADDRESS");
    for Listener { port, address, program } in listeners {
        text.push_str(&format!("{port:<5}  {:15}  {}\n", address.to_string(), escape(program)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed() {
        let parsed = |text| parse(text).ok().map(|(host, guest)| (host.0, guest.0));
        assert_eq!(parsed("3000"), Some((3000, 3000)));
        assert_eq!(parsed("80:3000"), Some((80, 3000)));
        for wrong in ["", "0", "x", "1:", ":1", "1:2:3", "70000", "+1", "127.0.0.1:80"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
