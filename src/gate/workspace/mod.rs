//! Keeps the changes of a guest in a copy of the workspace, shows them, and takes them over.
//!
//! ```text
//!  copy ──► changes ──► review ──► diff
//!             ▲           │
//!  host ──────┘  bases ───┴──────► apply ──► host, undo
//! ```
//!
//! What a sandbox on another machine changed is written into a copy by `returned`.
//!
//! Everything in a copy is untrusted. It is read by code that follows no links and has limits; no
//! program is ever started on it.

mod apply;
mod bases;
mod changes;
mod copy_files;
mod host_tree;
mod ignore_rules;
mod kept_contents;
mod node;
mod removal_mark;
mod returned;
mod review;
mod same_content;
mod text;
mod transaction;

pub use apply::{Selected, apply};
pub use bases::shown;
pub use copy_files::copy_files;
pub use node::Node;
pub use returned::{ReturnPlace, ReturnedFiles};
pub use review::{Content, FileReview, Review, Reviewer, State, forget_taken, has_changes, note_bases, scan_bases};
pub use text::{Hunk, Line, Side};
pub use transaction::{RefChange, TransactionError, UndoStore};
