//! Tests macOS Seatbelt without a Mac: a small interpreter evaluates the profiles, and a stand-in
//! for `sandbox-exec` runs the whole launch with `--assume-host macos`.

mod choice;
mod judge;
mod profiles;
mod proxied;
mod questions;
mod run;
mod sbpl;
mod terminal;
mod texts;
