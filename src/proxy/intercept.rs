//! The part of a proxy that a gate provides: connections to some hosts do not end at the host, but at the
//! gate.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, TcpStream};

use super::refusal::Refusal;
use super::relay::Traffic;
use crate::config::value::HostName;

/// Returns those of a host's addresses that may be connected to.
pub type Choose<'a> = &'a dyn Fn(&[IpAddr]) -> Result<Vec<IpAddr>, Refusal>;

/// Serves connections in place of their hosts.
pub trait Intercept: Debug + Send + Sync {
    /// Whether connections to this host end here.
    fn intercepts(&self, host: &HostName, port: u16) -> bool;

    /// Serves a connection of the guest, whose tunnel is not confirmed yet.
    fn serve(&self, client: &TcpStream, host: &HostName, port: u16, read_ahead: &[u8], choose: Choose<'_>) -> Traffic;

    /// Opens a tunnel to another host through the proxy of this machine's network; `None` if the host is
    /// reached straight.
    fn detour(&self, host: &HostName, port: u16) -> Option<io::Result<TcpStream>>;
}
