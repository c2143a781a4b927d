//! macOS Seatbelt without a Mac: the profiles are read and judged by a small reader of their language, and a stand-in for
//! `sandbox-exec` drives the whole launch with `--assume-host macos`.

mod choice;
mod judge;
mod profiles;
mod proxied;
mod questions;
mod run;
mod sbpl;
mod terminal;
mod texts;
