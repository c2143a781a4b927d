//! The `sandpen` program, which only calls the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandpen::main(std::env::args_os())
}
