//! Tests the built program on real engines. There is one test binary, because linking a static one
//! takes seconds.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "tests start programs and read the environment")]

mod architecture;
mod attacks;
mod cli;
mod completions;
mod conformance;
mod daily;
mod detach;
mod docs;
mod doctor;
mod embedding;
mod exec;
mod faults;
mod floods;
mod git;
mod golden;
mod hangup;
mod images;
mod kubernetes;
mod manage;
mod many;
mod native;
mod network;
mod ports;
mod push;
mod record;
mod remote;
mod seatbelt;
mod secrets;
mod selftest;
mod ssh;
mod support;
mod terminal;
mod tools;
mod waiting;
mod workspace;
