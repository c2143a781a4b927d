//! Decides which sockets a pod has outside of its volumes. The guest's user may not write to `/`, so the keeper
//! makes such a socket before the guest's container starts, and that container mounts it by its path in the
//! keeper's volume (`subPath`).

use crate::path::{GuestPath, constant};
use crate::plan::channel::ChannelSocket;
use crate::plan::kubernetes::{KEEPER_DIR, channel_socket};
use crate::plan::{CONTROL_DIR, Plan};

/// A socket that the keeper makes and holds.
pub struct HeldSocket<'a> {
    socket: &'a ChannelSocket,
    /// Its name in the keeper's volume.
    pub name: &'a str,
}

impl<'a> HeldSocket<'a> {
    fn of(socket: &'a ChannelSocket) -> Option<Self> {
        let is_in_volume = socket.inside.is_within(&constant!(GuestPath, CONTROL_DIR));
        let name = socket.inside.as_path().file_name()?.to_str()?;
        (!is_in_volume).then_some(HeldSocket { socket, name })
    }

    pub fn all(plan: &'a Plan) -> Vec<Self> {
        plan.channel.iter().filter_map(Self::of).collect()
    }

    /// Returns the path in the guest's container.
    pub fn target(&self) -> &'a GuestPath {
        &self.socket.inside
    }

    /// Returns the path in the keeper's container.
    pub fn path(&self) -> String {
        format!("{KEEPER_DIR}/{}", self.name)
    }
}

/// Returns the sockets that the process of the channel makes. The keeper passes the connections of the sockets
/// that it holds to this process, which may be started again.
pub fn of_channel(plan: &Plan) -> Vec<ChannelSocket> {
    let directory = constant!(GuestPath, KEEPER_DIR);
    let sockets = plan.channel.iter().map(|socket| match HeldSocket::of(socket) {
        Some(held) => ChannelSocket { inside: directory.join(channel_socket(held.name)), ..socket.clone() },
        None => socket.clone(),
    });
    sockets.collect()
}
