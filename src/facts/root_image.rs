//! Looks up an image in sandpen's own store, whose files become the root of a native sandbox. Brings
//! no image in.

use serde::Serialize;

use crate::config::value::ImageRef;
use crate::host::Host;
use crate::path::HostPath;

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootImageFacts {
    /// The full reference.
    pub reference: String,
    pub digest: String,
    /// Such as `linux/amd64`.
    pub platform: String,
    /// The directories of the layers' files, lowest first.
    pub layers: Vec<HostPath>,
    pub env: Vec<(String, String)>,
    /// The image's user; `None` if the image lacks the user that it names.
    pub user: Option<RootImageUser>,
    /// Whether the image's own command is an init system.
    pub runs_init: bool,
    /// Whether what the guest changes can be kept in memory.
    pub has_memory_layer: bool,
    /// Where the image came from, for people.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootImageUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
}

impl RootImageFacts {
    /// Returns the image if the store has it. A store that cannot be read has none: adding the image
    /// reports the reason.
    #[cfg(target_os = "linux")]
    pub fn look(host: &Host, image: &ImageRef) -> Option<Self> {
        use crate::image::Store;
        let store = Store::of(host);
        let found = store.find(image).ok().flatten()?;
        Some(RootImageFacts {
            layers: found.layers.iter().map(|layer| store.layer_files(layer)).collect(),
            reference: found.reference,
            digest: found.digest.to_string(),
            platform: found.platform,
            env: found.env,
            user: found.user.map(|user| RootImageUser {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
                home: user.home,
            }),
            runs_init: found.runs_init,
            has_memory_layer: memory_keeps_attributes(),
            origin: found.origin,
        })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn look(_: &Host, _: &ImageRef) -> Option<Self> {
        None
    }
}

/// Tells whether files in memory have attributes of users, in which an overlay marks directories. They do
/// since Linux 6.6.
#[cfg(target_os = "linux")]
fn memory_keeps_attributes() -> bool {
    use rustix::fs::{MemfdFlags, XattrFlags, fsetxattr, memfd_create};
    let file = memfd_create("sandpen-attributes", MemfdFlags::CLOEXEC);
    file.is_ok_and(|file| fsetxattr(file, "user.sandpen", b"y", XattrFlags::empty()).is_ok())
}
