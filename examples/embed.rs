//! Plans a sandbox without a network, prints part of the plan, runs a command in it and prints the
//! outcome.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::process::ExitCode;

use sandpen::{Options, Outcome, Sandbox, Topic};

fn work() -> sandpen::Result<Outcome> {
    let options = Options { network: Some("off".into()), ssh_agent: Some("off".into()), ..Options::default() };
    let sandbox = Sandbox::new(options).command(std::env::args_os().skip(1));
    let plan = sandbox.plan()?;
    for mount in plan.mounts.iter().filter(|mount| matches!(mount.why.topic, Topic::Workspace | Topic::Temp)) {
        println!("{} {}: {} ({})", mount.access.as_str(), mount.target, mount.why.reason, mount.why.from);
    }
    sandbox.run()
}

fn main() -> ExitCode {
    match work() {
        Ok(outcome) => println!("{outcome:?}"),
        Err(error) => {
            eprintln!("{:?}: {error}", error.kind());
            error.hints().iter().for_each(|hint| eprintln!("hint: {hint}"));
        }
    }
    ExitCode::SUCCESS
}
