//! From the command line to an exit code: the one path through config, facts, plan, launch and session.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{Build, Cli, Command, Doctor, Explain, Format, Run, Selftest};
use crate::config::{Origin, check, parse_value};
use crate::doctor::Patient;
use crate::error::{Error, Kind, Result};
use crate::explain::{Answer, Question, View};
use crate::facts::checkup::Checkup;
use crate::guard::later;
use crate::host::Host;
use crate::prepared::Prepared;
use crate::probe::Findings;
use crate::sandbox::Witness;
use crate::selftest::{Canaries, Evidence};
use crate::session::Outcome;
use crate::ui::Ui;
use crate::waiting::Waiting;
use crate::{
    build, completions, explain, facts, guest, manage, manual, probe, profiles, proxy, selftest, session, trust,
    untrusted, usage,
};

/// The whole program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("guest") => return guest::main(arguments.into_iter().skip(2)),
        Some("probe") => return probe::main(arguments.into_iter().skip(2)),
        Some("connect") => return proxy::connect(arguments.into_iter().skip(2)),
        Some("proxy") => return proxy::attend(arguments.into_iter().skip(2)),
        _ => {}
    }
    if arguments.get(1).is_some_and(|word| word == later::SUBCOMMAND) {
        return manage::review_in_silence();
    }
    let (witness, arguments) = Witness::take(arguments);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => match usage::explain(&error, &arguments) {
            Some(error) => {
                Ui::default().error(&error);
                return ExitCode::from(error.kind().exit_code());
            }
            None => {
                let _ = match manual::help_in_full(&error, &arguments) {
                    Some(text) => Ui::default().data(&text).is_ok(),
                    None => error.print().is_ok(),
                };
                return ExitCode::SUCCESS;
            }
        },
    };
    let options = match &cli.command {
        Some(Command::Run(run)) => &run.options,
        Some(Command::Explain(explain)) => &explain.options,
        Some(Command::Build(build)) => &build.options,
        Some(Command::Doctor(doctor)) => &doctor.options,
        Some(Command::Selftest(selftest)) => &selftest.options,
        _ => &cli.options,
    };
    let ui = Ui::new(options.verbosity());
    let ended = dispatch(cli, ui);
    // Whoever hears of an error there shows it in a way of their own.
    let is_told = witness.is_some_and(|witness| witness.tell(&ended));
    match ended {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            if !is_told {
                ui.error(&error);
            }
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn dispatch(cli: Cli, ui: Ui) -> Result<Outcome> {
    match cli.command {
        None => run(Run { options: cli.options, guest: cli.guest }, ui),
        Some(Command::Run(arguments)) => run(arguments.0, ui),
        Some(Command::Explain(arguments)) => explain_plan(arguments.0, ui),
        Some(Command::Build(arguments)) => build_image(arguments.0, ui),
        Some(Command::Profile { action }) => print(ui, &profiles::run(&Host::read()?, action, ui)?),
        Some(Command::Trust(arguments)) => trust::run(&Host::read()?, &arguments, ui).map(|()| Outcome::Exited(0)),
        Some(Command::Completions { shell }) => print(ui, &completions::script(shell)),
        Some(Command::Man { command, dir: None }) => print(ui, &manual::page(&command)?),
        Some(Command::Man { dir: Some(dir), .. }) => {
            let count = manual::write(&dir)?;
            ui.notice(&format!("wrote {count} manual pages to {}", dir.display()));
            Ok(Outcome::Exited(0))
        }
        Some(Command::Doctor(arguments)) => examine(arguments.0, ui),
        Some(Command::Selftest(arguments)) => test_sandbox(arguments.0, ui),
        Some(Command::Ps { quiet: true, .. }) => print(ui, &manage::ids(&Host::read()?)),
        Some(Command::Ps { format, .. }) => {
            let host = Host::read()?;
            manage::settle(&host, ui);
            print(ui, &if format == Format::Json { manage::json(&host) } else { manage::table(&host) })
        }
        Some(Command::Exec { id, guest }) => {
            close_inherited_files();
            let host = Host::read()?;
            manage::settle(&host, ui);
            manage::exec(&host, &id, guest, ui)
        }
        Some(Command::Stop { ids, all, time }) => {
            manage::stop(&Host::read()?, &ids, all, Duration::from_secs(time), ui).map(|()| Outcome::Exited(0))
        }
        Some(Command::Prune) => {
            manage::prune(&Host::read()?, ui);
            Ok(Outcome::Exited(0))
        }
    }
}

fn print(ui: Ui, text: &str) -> Result<Outcome> {
    ui.data(text).map(|()| Outcome::Exited(0))
}

fn run(arguments: Run, ui: Ui) -> Result<Outcome> {
    close_inherited_files();
    let prepared = Prepared::read(&arguments.options, arguments.guest)?.for_launch(ui)?;
    let (plan, launch) = prepared.ready(prepared.id(), ui)?;
    session::run(&prepared.host, &plan, &launch, ui)
}

/// `selftest`: the way of `run`, with the probe as its command.
fn test_sandbox(arguments: Selftest, ui: Ui) -> Result<Outcome> {
    close_inherited_files();
    let mut prepared = Prepared::read(&arguments.options, Vec::new())?;
    // One that is killed half-way must not leave anything for the next.
    prepared.config.keep = None;
    prepared.facts.probe = true;
    let mut prepared = prepared.for_launch(ui)?;
    let canaries = Canaries::plant(&prepared.host)?;
    let id = prepared.id();
    let (draft, _) = prepared.plan(id.clone())?;
    let order = selftest::order(&prepared.host, &canaries, &draft);
    prepared.command = selftest::command(&prepared.host, &draft, &order)?;
    let ran = prepared.ready(id, ui).and_then(|(plan, launch)| {
        let found = plan.session_dir.join(selftest::FINDINGS);
        let look = || {
            // Before anyone sets aside what was planted.
            let hook = selftest::hooks(&plan).is_some_and(|hooks| canaries.arrived_in(hooks.as_path()));
            (untrusted::read(found.as_path(), selftest::LARGEST).ok(), hook)
        };
        let (_, (findings, hook)) = session::run_and_look(&prepared.host, &plan, &launch, ui, look)?;
        Ok((plan, launch, findings, hook))
    });
    let (plan, launch, findings, hook) = match ran {
        // Whatever the reason: what could not be tried does not hold.
        Err(error) if error.kind() == Kind::Launch => {
            ui.error(&error);
            return Err(Error::failed("no probe could run: the sandbox did not start"));
        }
        ran => ran?,
    };
    let findings = findings.and_then(|text| serde_json::from_str::<Findings>(&text).ok()).unwrap_or_default();
    let evidence =
        Evidence { host: &prepared.host, plan: &plan, launch: &launch, canaries: &canaries, findings: &findings, hook };
    let report = evidence.judge();
    let text = if arguments.format == Format::Json { report.json()? } else { report.text() };
    print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.holds())))
}

fn explain_plan(arguments: Explain, ui: Ui) -> Result<Outcome> {
    let explained = Prepared::read(&arguments.options, arguments.guest)?.explain(ui)?;
    if arguments.format == Format::Text {
        for warning in explained.warnings() {
            ui.warn(&warning);
        }
    }
    let (host, view) = (explained.host(), View::of(explained.host(), ui.is_verbose()));
    let questions: Vec<Question> =
        arguments.why.iter().map(|text| Question::read(host, text)).collect::<Result<_>>()?;
    let answers: Vec<Answer> = questions.iter().map(|question| question.answer(host, &explained.plan)).collect();
    let text = match (arguments.format, answers.as_slice()) {
        (Format::Json, []) => explained.json()?,
        (Format::Text, []) => explained.text(view),
        (Format::Json, answers) => explain::answers_json(answers)?,
        (Format::Text, answers) => answers.iter().map(|answer| answer.text(view)).collect::<Vec<_>>().join("\n"),
    };
    print(ui, &text)
}

/// `doctor`: plans as `explain` does, asks all engines, and judges. Starts nothing, and writes nothing.
fn examine(arguments: Doctor, ui: Ui) -> Result<Outcome> {
    let mut host = Host::read()?;
    if let Some(platform) = arguments.options.assume_host {
        host.platform = platform;
    }
    let agent =
        arguments.options.agent.clone().or(arguments.guest.first().and_then(|name| name.to_str().map(str::to_owned)));
    let prepared = Prepared::read(&arguments.options, arguments.guest);
    let path = prepared.as_ref().map_or_else(|_| facts::search_path(&host), |prepared| prepared.facts.path.clone());
    let waiting = Waiting::for_(ui, "the engines to answer");
    let checkup = Checkup::look(&host, &path);
    drop(waiting);
    let planned = prepared.and_then(|prepared| prepared.planned(&checkup, ui));
    let files = check::files(&host, &arguments.options, agent.as_deref());
    let leftovers = manage::leftovers(&host);
    let report =
        Patient { host: &host, planned: planned.as_ref(), checkup: &checkup, files: &files, leftovers }.judge();
    let text = if arguments.format == Format::Json { report.json()? } else { report.text() };
    print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.is_ready())))
}

fn build_image(arguments: Build, ui: Ui) -> Result<Outcome> {
    close_inherited_files();
    let prepared = Prepared::read(&arguments.options, Vec::new())?;
    let (host, config) = (&prepared.host, &prepared.config);
    let agent = config.agent.as_ref().filter(|agent| agent.value != "none");
    let (recipe, image) = match (&arguments.file, agent) {
        (Some(file), _) => build::Recipe::of_file(host, file)?,
        (None, Some(agent)) => build::Recipe::of_agent(host, agent)?,
        (None, None) => build::Recipe::of_project(host)?,
    };
    let tag = arguments.tag.as_deref().filter(|tag| !tag.is_empty());
    let tag = tag.map(|tag| parse_value(tag, Origin::Flag("--tag"))).transpose()?;
    let image = tag.or(config.image.clone()).map_or(image, |image| image.value);
    build::run(host, config, &prepared.facts, &recipe, &image, ui)?;
    ui.notice(&format!("built {image}; run it with: sandpen run --image {image} -- CMD"));
    Ok(Outcome::Exited(0))
}

/// No file that sandpen's own caller left open may travel on (`attacks.md` 14).
fn close_inherited_files() {
    session::files::close_on_exec_beyond_stdio();
}
