//! Parses the command line, runs one subcommand and turns its result into an exit code.
//!
//! Every subcommand has a file or folder here, except `completions` and `man`, which are in `cli`.
//! `run`, `explain`, `doctor` and `selftest` get their plan from `resolve` and translate it with
//! `launch`; only `run` and `selftest` start it, with `session`.

pub mod attach;
pub mod build;
pub mod doctor;
pub mod exec;
pub mod explain;
#[cfg(target_os = "linux")]
pub mod image;
pub mod log;
pub mod ports;
pub mod presets;
pub mod profile;
pub mod prune;
pub mod ps;
mod report;
pub mod run;
pub mod selftest;
pub mod stop;
pub mod trust;
pub mod workspace;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::{Cli, Command, Run, completions, errors, man};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::plan::push::HELPER;
use crate::process::{Outcome, descriptors};
use crate::session::outcome_file::OutcomeFileWriter;
use crate::ui::Ui;
use crate::{cli, helper, proxy};

/// Runs the `sandpen` program. The first argument is the program's name, as in `std::env::args_os`.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if is_remote_helper(&arguments) {
        return helper::remote_helper(&arguments[1..]);
    }
    if let Some(internal) = internal_command(&arguments) {
        return internal(arguments.into_iter().skip(2).collect());
    }
    let (outcome_file, arguments) = OutcomeFileWriter::from_arguments(arguments);
    let cli = match Cli::parse_arguments(&arguments) {
        Ok(cli) => cli,
        Err(error) => return print_help_or_error(&error, &arguments),
    };
    if let Some(error) = cli::docker::volume(&cli).map(Error::from) {
        Ui::default().error(&error);
        return ExitCode::from(error.kind().exit_code());
    }
    let ui = Ui::new(cli.options().verbosity());
    let result = dispatch(cli, ui);
    // The embedding library reports the error itself; printing it here would show it twice.
    let is_reported = outcome_file.is_some_and(|file| file.write(&result));
    match result {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            if !is_reported {
                ui.error(&error);
            }
            ExitCode::from(error.kind().exit_code())
        }
    }
}

/// Tells whether Git inside started the program, by the name under which it is mounted.
fn is_remote_helper(arguments: &[OsString]) -> bool {
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| name == HELPER)
}

/// A subcommand that sandpen starts itself and that no help text lists.
type InternalCommand = fn(Vec<OsString>) -> ExitCode;

fn internal_command(arguments: &[OsString]) -> Option<InternalCommand> {
    Some(match arguments.get(1)?.to_str()? {
        "guest" => |rest| helper::main(rest.into_iter()),
        #[cfg(target_os = "linux")]
        "pod" => |rest| helper::pod(&rest),
        "forward" => |_| ports::serve_inside(),
        "channel" => |rest| helper::channel(&rest),
        #[cfg(target_os = "linux")]
        "package-index" => |rest| helper::package_index(&rest),
        "listeners" => |_| ports::list_inside(),
        "probe" => |rest| selftest::probe::main(rest.into_iter()),
        "connect" => |rest| proxy::connect(rest.into_iter()),
        "proxy" => |rest| proxy::supervise(rest.into_iter()),
        _ => return None,
    })
}

/// Handles what clap reports as an error: a request for help, or wrong arguments.
fn print_help_or_error(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if let Some(error) = errors::translate(error, arguments).map(Error::from) {
        Ui::default().error(&error);
        return ExitCode::from(error.kind().exit_code());
    }
    let _ = match man::full_help(error, arguments) {
        Some(text) => Ui::default().data(&text).is_ok(),
        None => error.print().is_ok(),
    };
    ExitCode::SUCCESS
}

fn dispatch(cli: Cli, ui: Ui) -> Result<Outcome> {
    match cli.command {
        None => run::run(Run { options: cli.options, detach: false, guest: cli.guest }, ui),
        Some(Command::Run(arguments)) => run::run(arguments.0, ui),
        Some(Command::Explain(arguments)) => explain::run(arguments.0, ui),
        Some(Command::Build(arguments)) => build::run(arguments.0, ui),
        Some(Command::Presets { format }) => print(ui, &presets::run(&Host::read()?, format)?),
        Some(Command::Profile { action }) => print(ui, &profile::run(&Host::read()?, action, ui)?),
        Some(Command::Trust(arguments)) => trust::run(&Host::read()?, &arguments, ui).map(|()| Outcome::Exited(0)),
        Some(Command::Image { action }) => image(action, ui),
        Some(Command::Completions { shell }) => print(ui, &completions::script(shell)),
        Some(Command::Man { command, dir: None }) => print(ui, &man::page(&command)?),
        Some(Command::Man { dir: Some(dir), .. }) => {
            let count = man::write(&dir)?;
            ui.notice(&format!("wrote {count} manual pages to {}", dir.display()));
            Ok(Outcome::Exited(0))
        }
        Some(Command::Doctor(arguments)) => doctor::run(arguments.0, ui),
        Some(Command::Selftest(arguments)) => selftest::run(arguments.0, ui),
        Some(Command::Ps { format, all, quiet }) => ps::run(format, all, quiet, ui),
        Some(Command::Exec { id, detach, guest }) => exec::run(&id, detach, guest, ui),
        Some(Command::Ports { id, ports, format }) => ports::run(&id, &ports, format, ui),
        Some(Command::Attach { id, read_only, detach_keys }) => attach::run(&id, read_only, detach_keys.as_deref(), ui),
        Some(Command::Stop { ids, all, time }) => stop::run(&ids, all, Duration::from_secs(time), ui),
        Some(Command::Log { id, follow, format }) => log::run(id.as_deref(), follow, format, ui),
        Some(Command::Diff(arguments)) => workspace::diff::run(&arguments, ui),
        Some(Command::Apply(arguments)) => workspace::apply::run(&arguments, ui),
        Some(Command::Discard { ids }) => workspace::discard::run(&ids, ui),
        Some(Command::Undo) => workspace::undo::run(ui),
        Some(Command::Prune { cache }) => prune::run(cache, ui),
    }
}

#[cfg(target_os = "linux")]
fn image(action: crate::cli::ImageAction, ui: Ui) -> Result<Outcome> {
    image::run(action, ui)
}

#[cfg(not(target_os = "linux"))]
fn image(_: crate::cli::ImageAction, _: Ui) -> Result<Outcome> {
    Err(crate::launch::LaunchError::WrongPlatform { engine: crate::config::value::EngineKind::Native }.into())
}

fn print(ui: Ui, text: &str) -> Result<Outcome> {
    ui.data(text).map(|()| Outcome::Exited(0))
}

/// Prevents the programs that sandpen starts from inheriting files that its caller left open
/// (attack 14).
fn mark_inherited_files_close_on_exec() {
    descriptors::close_on_exec_beyond_stdio();
}
