//! The `sandpen` program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandpen::main(std::env::args_os())
}
