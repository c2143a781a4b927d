//! sandpen's filtering proxy: an allow-list of hosts and ports for HTTP and CONNECT.
//!
//! ```text
//! guest ──► server ──► request (parsed strictly)
//!              │           └─► policy: the name ──► resolve ──► policy: the address ──► connect
//!              └─► journal: every decision                                              │
//!           relay / body: bytes, bounded in memory and time ◄───────────────────────────┘
//! ```
//!
//! A request that is not understood is refused. No name is resolved and no connection made before
//! the policy has allowed it.

mod address;
mod body;
mod connect;
#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod handover;
mod intercept;
mod journal;
mod policy;
mod protocol;
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
pub use intercept::{Choose, Intercept};
pub use journal::Journal;
pub use policy::Policy;
pub use protocol::{OVER, PROXY_PORT, ProxyJob, READY, READY_TIMEOUT};
pub use refusal::Refusal;
pub use relay::Traffic;
pub(crate) use relay::both_ways;
pub use request::{Action, Body, body_of, has_plain_line_ends, parse};
pub use resolve::Resolver;
pub use server::{Proxy, pass_on};
pub use supervise::{listens, supervise};
