//! Makes a plan final: reads options and facts, and does what must be asked or made before a plan can be complete.
//!
//! `run`, `explain`, `doctor` and `selftest` all come through here. Only `run` and `selftest` pull, build or start anything.

pub mod build;
mod preset;

use std::ffi::OsString;

use crate::config::Options;
use crate::config::{Config, Sourced};
use crate::error::Result;
use crate::facts::engines::checkup::{CHECKUP_TIMEOUT, Checkup};
use crate::facts::image::{self, Inspection};
use crate::facts::{DesktopFacts, Facts, ImageFacts, RootFacts};
use crate::host::{Host, ProcessStamp};
use crate::launch::Launch;
use crate::plan::questions::{self, Purpose};
use crate::plan::workspace::{Workspace, include_paths};
use crate::plan::{Inputs, Plan, Request, engine, ssh, user};
use crate::process::Client;
use crate::session::{self, cleanup};
use crate::session_id::SessionId;
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// What `run` would do.
pub struct Planned {
    /// The options.
    pub config: Config,
    /// The facts.
    pub facts: Facts,
    /// The plan.
    pub plan: Plan,
    /// What the engine makes of it.
    pub launch: Launch,
    /// The image, for containers that can be asked.
    pub image: Option<Inspection>,
}

/// The options of a command, the host they are for, and everything that was found out about it.
#[derive(Debug)]
pub struct Resolved {
    pub host: Host,
    pub config: Config,
    pub facts: Facts,
    pub request: Request,
}

impl Resolved {
    /// Resolves the options of the program itself, where it was started.
    pub fn read(options: &Options, command: Vec<OsString>) -> Result<Self> {
        Self::on(Host::read()?, options, command, Purpose::Run)
    }

    /// Resolves options for any host.
    pub fn on(mut host: Host, options: &Options, command: Vec<OsString>, purpose: Purpose) -> Result<Self> {
        if let Some(platform) = options.assume_host {
            host.platform = platform;
        }
        let config = Config::load(&host, options)?;
        build::refuse_seatbelt(&config)?;
        let roots = RootFacts::look(&host, include_paths(&host, &config)?);
        let workspace = Workspace::decide(&host, &config, &roots)?;
        let preset = preset::choose(&host, &config, &workspace, &command)?;
        let name = command.first().and_then(|name| name.to_str());
        let questions = questions::questions(&host, &config, &workspace, &preset, name, purpose);
        let facts = Facts::look(&host, questions)?;
        let request = Request { command, workspace, preset, is_selftest: false };
        Ok(Resolved { host, config, facts, request })
    }

    pub fn inputs(&self) -> Inputs<'_> {
        Inputs::new(&self.host, &self.config, &self.facts, &self.request)
    }

    /// The session's id: the user's choice, or a new one.
    pub fn id(&self) -> SessionId {
        self.chosen_id().unwrap_or_else(SessionId::random)
    }

    fn chosen_id(&self) -> Option<SessionId> {
        self.config.name.as_ref().map(|name| SessionId::named(&name.value))
    }

    /// Plans and compiles; pure.
    pub fn plan(&self, id: SessionId) -> Result<(Plan, Launch)> {
        let plan = Plan::new(&self.host, &self.config, &self.facts, &self.request, id)?;
        let launch = Launch::compile(&plan, &self.host, &self.facts)?;
        Ok((plan, launch))
    }

    /// An engine in a virtual machine is asked how the SSH agent gets there.
    fn ask_machine(&mut self, ui: Ui) -> Result<()> {
        let (engine, _) = engine::choose(self.inputs())?;
        let Some(question) = ssh::machine_question(self.inputs(), engine.kind).filter(|_| engine.problem.is_none())
        else {
            return Ok(());
        };
        let client = Client { program: engine.program, path: self.facts.path.for_host(), machine: None };
        let _waiting = Progress::start(ui, format!("{}'s machine to answer", engine.kind.name()));
        self.facts.ask_machine(&self.host, question, &client);
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
            let waiting = Progress::start(ui, "a container that looks for the SSH agent's socket");
            let there = session::has_host_service(launch, &plan);
            drop(waiting);
            self.facts.desktop.iter_mut().for_each(|desktop| desktop.socket = Some(there));
        }
        Ok(())
    }

    /// What the image says of itself; pulled first if that is allowed and necessary, where the user can watch.
    fn image_facts(&self, client: &Client, plan: &Plan, may_pull: bool, ui: Ui) -> Result<Option<ImageFacts>> {
        let (Some(image), None) = (&plan.image, &plan.engine.problem) else { return Ok(None) };
        let waiting = Progress::start(ui, format!("{} to look for {}", plan.engine.kind.name(), image.reference));
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
        if !user::needs_image_facts(self.inputs()) {
            return Ok(());
        }
        let (plan, launch) = self.plan(SessionId::placeholder())?;
        let Some(launch) = launch.container() else { return Ok(()) };
        self.facts.image = self.image_facts(&launch.client, &plan, may_pull, ui)?;
        Ok(())
    }
}

impl Resolved {
    /// The plan that `doctor` judges. An engine that does not even say what it is, is asked nothing more.
    pub fn for_doctor(mut self, checkup: &Checkup, ui: Ui) -> Result<Planned> {
        self.name_built_image()?;
        let (engine, _) = engine::choose(self.inputs())?;
        let answers = checkup.answers(engine.kind);
        if answers {
            self.ask_machine(ui)?;
            self.ask_image(ui, false)?;
        }
        let (plan, launch) = self.plan(SessionId::placeholder())?;
        let image = match (&plan.image, launch.container()) {
            (Some(image), Some(launch)) if answers => {
                Some(image::inspect_within(&launch.client, &image.reference, CHECKUP_TIMEOUT))
            }
            _ => None,
        };
        Ok(Planned { config: self.config, facts: self.facts, plan, launch, image })
    }

    /// What would be done. Engines may be asked; nothing is started, pulled or built.
    pub fn for_explain(mut self, ui: Ui) -> Result<(Host, Plan, Launch)> {
        // Two explanations of the same thing are the same text.
        self.host.process = ProcessStamp::default();
        self.name_built_image()?;
        self.ask_machine(ui)?;
        self.ask_image(ui, false)?;
        let id = self.chosen_id().map_or_else(SessionId::placeholder, SessionId::as_example);
        let (plan, launch) = self.plan(id)?;
        Ok((self.host, plan, launch))
    }

    /// The image that would be built is the image that would be run.
    fn name_built_image(&mut self) -> Result<()> {
        if let Some(wanted) = self.config.build.clone() {
            let (_, image) =
                build::Recipe::of_project(&self.host).map_err(|error| error.with_origin(&wanted.origin))?;
            self.config.image.get_or_insert(Sourced::new(image, wanted.origin));
        }
        Ok(())
    }
}

impl Resolved {
    /// Builds and asks whatever a launch needs.
    pub fn for_launch(mut self, ui: Ui) -> Result<Self> {
        if let Some(wanted) = self.config.build.clone() {
            // The image that is built is the image that is run.
            let (recipe, image) =
                build::Recipe::of_project(&self.host).map_err(|error| error.with_origin(&wanted.origin))?;
            let image = self.config.image.get_or_insert(Sourced::new(image, wanted.origin)).value.clone();
            build::run(self.inputs(), &recipe, &image, ui)?;
        }
        self.ask_machine(ui)?;
        self.ask_image(ui, true)?;
        self.probe_machine(ui)?;
        Ok(self)
    }

    /// The plan that is launched; what is weaker than asked for is said.
    pub fn ready(&self, id: SessionId, ui: Ui) -> Result<(Plan, Launch)> {
        let (plan, launch) = self.plan(id)?;
        if let Some(problem) = plan.engine.problem.clone().or(plan.ssh.problem.clone()) {
            return Err(problem);
        }
        for warning in &plan.warnings {
            ui.warn(&warning.text);
        }
        for downgrade in launch.downgrades() {
            ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
        }
        if self.config.name.is_some() {
            cleanup::free_name(&self.host, &plan.id, ui)?;
        }
        if let Some(container) = launch.container().filter(|launch| launch.sidecar.is_some()) {
            // The proxy's container comes first and is watched by nobody: the image is pulled where the user can see it.
            self.image_facts(&container.client, &plan, true, ui)?;
        }
        Ok((plan, launch))
    }
}
