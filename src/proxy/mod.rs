//! sandpen's own filtering proxy: an allow-list of hosts and ports for HTTP and CONNECT.
//!
//! ```text
//! guest ──► server ──► request (what is asked for, one way to read it)
//!              │           └─► policy: the name ──► resolve ──► policy: the address ──► connect
//!              └─► journal: every verdict                                               │
//!           relay / body: bytes, bounded in memory and time ◄───────────────────────────┘
//! ```
//!
//! Whatever is not understood is refused; nothing is resolved or connected to before its name is allowed.

mod address;
mod body;
mod connect;
#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod handover;
mod journal;
mod policy;
mod refusal;
mod relay;
mod request;
mod resolve;
mod server;
#[cfg(target_os = "linux")]
mod sidecar;
mod supervise;
mod thread_pool;

pub use connect::connect;
#[cfg(target_os = "linux")]
pub use handover::{ListenerInbox, bind, offer};
pub use journal::Journal;
pub use policy::Policy;
pub use refusal::Refusal;
pub use relay::Traffic;
pub(crate) use relay::both_ways;
pub use request::{Action, Body, Request, parse};
pub use resolve::Resolver;
pub use server::{Proxy, pass_on};
pub use supervise::{ProxyJob, listens, supervise};
