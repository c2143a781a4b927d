//! From the command line to an exit code: the one path through config, facts, plan, launch and session.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use crate::cli::{Build, Cli, Command, Doctor, Explain, Format, Options, ProfileAction, Run, Selftest};
use crate::config::value::UserMode;
use crate::config::{Config, Origin, Sourced, check, parse_value, profile, trust};
use crate::doctor::{Patient, Planned};
use crate::engine::{Client, Launch};
use crate::error::{Error, Kind, Result};
use crate::escape::escape;
use crate::explain::{Answer, Question, View};
use crate::facts::checkup::{Checkup, PATIENCE};
use crate::facts::image::{self, Inspection};
use crate::facts::{self, DesktopFacts, Facts, ImageFacts};
use crate::guard::later;
use crate::host::{Host, Platform, ProcessStamp};
use crate::plan::{Plan, SessionId, engine};
use crate::probe::Findings;
use crate::selftest::{Canaries, Evidence};
use crate::session::Outcome;
use crate::ui::Ui;
use crate::waiting::Waiting;
use crate::{build, completions, explain, guest, manage, probe, proxy, selftest, session, untrusted, usage};

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
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => match usage::explain(&error, &arguments) {
            Some(error) => {
                Ui::default().error(&error);
                return ExitCode::from(error.kind().exit_code());
            }
            None => {
                let _ = error.print();
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
    match dispatch(cli, ui) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            ui.error(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn dispatch(cli: Cli, ui: Ui) -> Result<u8> {
    match cli.command {
        None => run(Run { options: cli.options, guest: cli.guest }, ui),
        Some(Command::Run(arguments)) => run(arguments, ui),
        Some(Command::Explain(arguments)) => explain_plan(arguments, ui),
        Some(Command::Build(arguments)) => build_image(arguments, ui),
        Some(Command::Profile { action }) => profiles(action, ui),
        Some(Command::Trust { dir }) => {
            let path = trust(&Host::read()?, dir.as_deref())?;
            ui.notice(&format!("trusted as it is now: {}", path.display()));
            Ok(0)
        }
        Some(Command::Completions { shell }) => print(ui, &completions::script(shell)),
        Some(Command::Man) => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut text)
                .map_err(|error| Error::failed("the manual page cannot be written").cause(error))?;
            print(ui, &String::from_utf8_lossy(&text))
        }
        Some(Command::Doctor(arguments)) => examine(arguments, ui),
        Some(Command::Selftest(arguments)) => test_sandbox(arguments, ui),
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
            manage::exec(&host, &id, guest, ui).map(Outcome::exit_code)
        }
        Some(Command::Stop { ids, all, time }) => {
            manage::stop(&Host::read()?, &ids, all, Duration::from_secs(time), ui).map(|()| 0)
        }
        Some(Command::Prune) => {
            manage::prune(&Host::read()?, ui);
            Ok(0)
        }
    }
}

fn print(ui: Ui, text: &str) -> Result<u8> {
    ui.data(text).map_err(|error| Error::failed("stdout cannot be written").cause(error))?;
    Ok(0)
}

/// What `run` and `explain` share: everything before the first effect.
struct Prepared {
    host: Host,
    config: Config,
    facts: Facts,
    command: Vec<OsString>,
}

impl Prepared {
    fn read(options: &Options, command: Vec<OsString>) -> Result<Self> {
        let mut host = Host::read()?;
        if let Some(platform) = options.assume_host {
            host.platform = platform;
        }
        let config = Config::load(&host, options)?;
        build::refuse_seatbelt(&config)?;
        let facts = Facts::sweep(&host, &config, &command)?;
        Ok(Prepared { host, config, facts, command })
    }

    fn chosen_id(&self) -> Option<SessionId> {
        self.config.name.as_ref().map(|name| SessionId::named(&name.value))
    }

    fn plan(&self, id: SessionId) -> Result<(Plan, Launch)> {
        let plan = Plan::new(&self.host, &self.config, &self.facts, id, self.command.clone())?;
        let launch = Launch::compile(&plan, &self.host, &self.facts)?;
        Ok((plan, launch))
    }

    /// An engine in a virtual machine is asked how the SSH agent gets there.
    fn ask_machine(&mut self, ui: Ui) -> Result<()> {
        let (engine, _) = engine::choose(&self.host, &self.config, &self.facts)?;
        if engine.problem.is_some() || !engine.kind.is_container() {
            return Ok(());
        }
        let client = Client { program: engine.program, path: self.facts.path.for_host(), machine: None };
        let _waiting = Waiting::for_(ui, format!("{}'s machine to answer", engine.kind.name()));
        self.facts.ask_machine(&self.host, engine.kind, &client);
        Ok(())
    }

    /// R6.1's second check starts a container, so only a launch may make it. Without the image there is nothing to check with,
    /// and the launch will say so.
    fn probe_machine(&mut self, ui: Ui) -> Result<()> {
        if !self.facts.desktop.as_ref().is_some_and(DesktopFacts::has_service) {
            return Ok(());
        }
        let (plan, launch) = self.plan(SessionId::random())?;
        let Some(launch) = launch.container() else { return Ok(()) };
        if self.image_facts(&launch.client, &plan, true, ui)?.is_some() {
            let waiting = Waiting::for_(ui, "a container that looks for the SSH agent's socket");
            let there = session::host_service_is_there(launch, &plan);
            drop(waiting);
            self.facts.desktop.iter_mut().for_each(|desktop| desktop.socket = Some(there));
        }
        Ok(())
    }

    /// What the image says of itself; pulled first if that is allowed and necessary, where the user can watch.
    fn image_facts(&self, client: &Client, plan: &Plan, may_pull: bool, ui: Ui) -> Result<Option<ImageFacts>> {
        let (Some(image), None) = (&plan.image, &plan.engine.problem) else { return Ok(None) };
        let waiting = Waiting::for_(ui, format!("{} to look for {}", plan.engine.kind.name(), image.reference));
        let inspection = image::inspect(client, &image.reference);
        drop(waiting);
        match inspection {
            Inspection::Missing if may_pull && !image.reference.is_local() => {}
            // Whether the image is there is then not the question: the tunnel will not stand, and says why.
            Inspection::Silent => return Ok(Some(ImageFacts::default())),
            inspection => return Ok(inspection.facts()),
        }
        ui.notice(&format!("pulling {}", image.reference));
        let mut argv = vec![plan.engine.kind.name().into()];
        argv.extend(client.pin());
        argv.extend(["pull".into(), image.reference.as_str().into()]);
        session::run_engine(client, &argv)?;
        Ok(image::inspect(client, &image.reference).facts())
    }

    /// The image's own user has a home that only the image knows: one engine call, unless the preset knows it.
    fn ask_image(&mut self, ui: Ui, may_pull: bool) -> Result<()> {
        let by_default = self.config.user.value == UserMode::Auto && self.host.platform == Platform::Macos;
        let preset_knows = self.facts.preset.as_ref().is_some_and(|preset| preset.image_home.is_some());
        if !(by_default || self.config.user.value == UserMode::Image) || preset_knows {
            return Ok(());
        }
        let (plan, launch) = self.plan(SessionId::placeholder())?;
        let Some(launch) = launch.container() else { return Ok(()) };
        self.facts.image = self.image_facts(&launch.client, &plan, may_pull, ui)?;
        Ok(())
    }
}

impl Prepared {
    /// The plan that `doctor` judges. An engine that does not even say what it is, is asked nothing more.
    fn planned(mut self, checkup: &Checkup, ui: Ui) -> Result<Planned> {
        self.name_built_image()?;
        let (engine, _) = engine::choose(&self.host, &self.config, &self.facts)?;
        let answers = checkup.answers(engine.kind);
        if answers {
            self.ask_machine(ui)?;
            self.ask_image(ui, false)?;
        }
        let (plan, launch) = self.plan(SessionId::placeholder())?;
        let image = match (&plan.image, launch.container()) {
            (Some(image), Some(launch)) if answers => {
                Some(image::inspect_within(&launch.client, &image.reference, PATIENCE))
            }
            _ => None,
        };
        Ok(Planned { config: self.config, facts: self.facts, plan, launch, image })
    }

    /// The image that would be built is the image that would be run.
    fn name_built_image(&mut self) -> Result<()> {
        if let Some(wanted) = self.config.build.clone() {
            let (_, image) = build::Recipe::of_project(&self.host).map_err(|error| error.from(&wanted.origin))?;
            self.config.image.get_or_insert(Sourced::new(image, wanted.origin));
        }
        Ok(())
    }
}

fn run(arguments: Run, ui: Ui) -> Result<u8> {
    close_inherited_files();
    let prepared = Prepared::for_launch(Prepared::read(&arguments.options, arguments.guest)?, ui)?;
    let id = prepared.chosen_id().unwrap_or_else(SessionId::random);
    let (plan, launch) = prepared.ready(id, ui)?;
    session::run(&prepared.host, &plan, &launch, ui).map(Outcome::exit_code)
}

impl Prepared {
    /// Builds and asks whatever a launch needs.
    fn for_launch(mut self, ui: Ui) -> Result<Self> {
        if let Some(wanted) = self.config.build.clone() {
            // The image that is built is the image that is run.
            let (recipe, image) = build::Recipe::of_project(&self.host).map_err(|error| error.from(&wanted.origin))?;
            let image = self.config.image.get_or_insert(Sourced::new(image, wanted.origin)).value.clone();
            build::run(&self.host, &self.config, &self.facts, &recipe, &image, ui)?;
        }
        self.ask_machine(ui)?;
        self.ask_image(ui, true)?;
        self.probe_machine(ui)?;
        Ok(self)
    }

    /// The plan that is launched; what is weaker than asked for is said.
    fn ready(&self, id: SessionId, ui: Ui) -> Result<(Plan, Launch)> {
        let (plan, launch) = self.plan(id)?;
        if let Some(problem) = plan.engine.problem.clone().or(plan.ssh.problem.clone()) {
            return Err(problem);
        }
        for warning in &plan.warnings {
            ui.warn(warning);
        }
        for downgrade in launch.downgrades() {
            ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
        }
        if self.config.name.is_some() {
            manage::free_name(&self.host, &plan.id, ui)?;
        }
        if let Some(container) = launch.container().filter(|launch| launch.sidecar.is_some()) {
            // The proxy's container comes first and is watched by nobody: the image is pulled where the user can see it.
            self.image_facts(&container.client, &plan, true, ui)?;
        }
        Ok((plan, launch))
    }
}

/// `selftest`: the way of `run`, with the probe as its command.
fn test_sandbox(arguments: Selftest, ui: Ui) -> Result<u8> {
    close_inherited_files();
    let mut prepared = Prepared::read(&arguments.options, Vec::new())?;
    // One that is killed half-way must not leave anything for the next.
    prepared.config.keep = None;
    prepared.facts.probe = true;
    let mut prepared = prepared.for_launch(ui)?;
    let canaries = Canaries::plant(&prepared.host)?;
    let id = prepared.chosen_id().unwrap_or_else(SessionId::random);
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
    print(ui, &text).map(|_| u8::from(!report.holds()))
}

fn explain_plan(arguments: Explain, ui: Ui) -> Result<u8> {
    let mut prepared = Prepared::read(&arguments.options, arguments.guest)?;
    // Two explanations of the same thing are the same text.
    prepared.host.process = ProcessStamp::default();
    prepared.name_built_image()?;
    prepared.ask_machine(ui)?;
    prepared.ask_image(ui, false)?;
    let (plan, launch) =
        prepared.plan(prepared.chosen_id().map_or_else(SessionId::placeholder, SessionId::as_example))?;
    if arguments.format == Format::Text {
        for warning in explain::warnings(&plan) {
            ui.warn(&warning);
        }
    }
    let (host, view) = (&prepared.host, View::of(&prepared.host, ui.is_verbose()));
    let questions: Vec<Question> =
        arguments.why.iter().map(|text| Question::read(host, text)).collect::<Result<_>>()?;
    let answers: Vec<Answer> = questions.iter().map(|question| question.answer(host, &plan)).collect();
    let text = match (arguments.format, answers.as_slice()) {
        (Format::Json, []) => explain::json(host, &plan, &launch)?,
        (Format::Text, []) => explain::text(&plan, &launch, view),
        (Format::Json, answers) => explain::answers_json(answers)?,
        (Format::Text, answers) => answers.iter().map(|answer| answer.text(view)).collect::<Vec<_>>().join("\n"),
    };
    print(ui, &text)
}

/// `doctor`: plans as `explain` does, asks all engines, and judges. Starts nothing, and writes nothing.
fn examine(arguments: Doctor, ui: Ui) -> Result<u8> {
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
    print(ui, &text).map(|_| u8::from(!report.is_ready()))
}

fn build_image(arguments: Build, ui: Ui) -> Result<u8> {
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
    Ok(0)
}

fn profiles(action: ProfileAction, ui: Ui) -> Result<u8> {
    let host = Host::read()?;
    match action {
        ProfileAction::List => {
            let names: Vec<String> = profile::names(&host).iter().map(|name| escape(name).into_owned()).collect();
            print(ui, &(names.join("\n") + "\n"))
        }
        ProfileAction::Show { name } => print(ui, &profile::Profile::find(&host, &name, &Origin::Flag("NAME"))?.text),
        ProfileAction::Path => print(ui, &format!("{}\n", profile::directory(&host).display())),
    }
}

/// No file that sandpen's own caller left open may travel on (`attacks.md` 14).
fn close_inherited_files() {
    session::files::close_on_exec_beyond_stdio();
}
