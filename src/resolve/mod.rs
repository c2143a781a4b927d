//! Completes a plan: reads options and facts, and performs the effects that a plan depends on.
//!
//! `run`, `explain`, `doctor` and `selftest` use it. Only `run` and `selftest` pull, build or start
//! anything.

pub mod build;
mod image_user;
mod owner;
mod preset;
mod said;
#[cfg(target_os = "linux")]
mod stored_image;

#[cfg(target_os = "linux")]
pub use stored_image::pull_image;

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
use crate::plan::{Inputs, Plan, Request, SSH_CONFIG, SshState, engine, ssh, user};
use crate::process::Client;
use crate::session::{self, cleanup};
use crate::session_id::SessionId;
use crate::ui::progress::Progress;
use crate::ui::{Ui, counted};

/// The plan that `doctor` judges, with its inputs.
pub struct Planned {
    pub config: Config,
    pub facts: Facts,
    pub plan: Plan,
    pub launch: Launch,
    /// `None` if the engine has no images or does not answer.
    pub image: Option<Inspection>,
}

/// All inputs of a plan.
#[derive(Debug)]
pub struct Resolved {
    pub host: Host,
    pub config: Config,
    pub facts: Facts,
    pub request: Request,
}

impl Resolved {
    /// Resolves the options of this process.
    pub fn read(options: &Options, command: Vec<OsString>) -> Result<Self> {
        Self::on(Host::read()?, options, command, Purpose::Run)
    }

    /// Resolves options for a host, which an embedding program or a test may have changed.
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

    /// Returns the id that the user chose, or a random one.
    pub fn id(&self) -> SessionId {
        self.chosen_id().unwrap_or_else(SessionId::random)
    }

    fn chosen_id(&self) -> Option<SessionId> {
        self.config.name.as_ref().map(|name| SessionId::named(&name.value))
    }

    /// Makes the plan and translates it for the engine, without effects.
    pub fn plan(&self, id: SessionId) -> Result<(Plan, Launch)> {
        let plan = Plan::new(&self.host, &self.config, &self.facts, &self.request, id)?;
        let launch = Launch::compile(&plan, &self.host, &self.facts)?;
        Ok((plan, launch))
    }

    /// Asks an engine in a virtual machine how the SSH agent can be forwarded into it.
    fn ask_machine(&mut self, ui: Ui) -> Result<()> {
        let (engine, _) = engine::choose(self.inputs())?;
        let Some(question) = ssh::machine_question(self.inputs(), engine.kind).filter(|_| engine.problem.is_none())
        else {
            return Ok(());
        };
        let client =
            Client { program: engine.program, path: self.facts.path.for_host(), machine: None, endpoint: Vec::new() };
        let _progress = Progress::start(ui, format!("{}'s machine to answer", engine.kind.name()));
        self.facts.ask_machine(&self.host, question, &client);
        Ok(())
    }

    /// Performs the second check of R6.1, which starts a container and is therefore part of a
    /// launch only. Without the image it is skipped, and the launch reports the missing image.
    fn probe_machine(&mut self, ui: Ui) -> Result<()> {
        if !self.facts.desktop.as_ref().is_some_and(DesktopFacts::has_service) {
            return Ok(());
        }
        let (plan, launch) = self.plan(SessionId::random())?;
        let Some(launch) = launch.container() else { return Ok(()) };
        if self.image_facts(&launch.client, &plan, true, ui)?.is_some() {
            let progress = Progress::start(ui, "a container that looks for the SSH agent's socket");
            let exists = session::has_host_service(launch, &plan);
            drop(progress);
            self.facts.desktop.iter_mut().for_each(|desktop| desktop.socket = Some(exists));
        }
        Ok(())
    }

    /// Inspects the image, and pulls it first if that is allowed and necessary.
    fn image_facts(&self, client: &Client, plan: &Plan, may_pull: bool, ui: Ui) -> Result<Option<ImageFacts>> {
        let (Some(image), None) = (&plan.image, &plan.engine.problem) else { return Ok(None) };
        let progress = Progress::start(ui, format!("{} to look for {}", plan.engine.kind.name(), image.reference));
        let inspection = image::inspect(client, &image.reference);
        drop(progress);
        match inspection {
            Inspection::Missing if may_pull && !image.reference.is_local() => {}
            // The machine does not answer, so the tunnel into it will fail and report the reason.
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

    /// Inspects the image if the guest is the image's user, whose home directory only the image
    /// knows.
    fn ask_image(&mut self, ui: Ui, may_pull: bool) -> Result<()> {
        if !user::needs_image_facts(self.inputs()) {
            return Ok(());
        }
        let (plan, launch) = self.plan(SessionId::placeholder())?;
        let Some(launch) = launch.container() else { return Ok(()) };
        self.facts.image = self.image_facts(&launch.client, &plan, may_pull, ui)?;
        let name = user::asks_for_ids(self.inputs(), plan.engine.kind).map(str::to_owned);
        // Starting a container is part of a launch only.
        if let (Some(name), Some(image), true) = (name, &plan.image, may_pull) {
            let progress = Progress::start(ui, format!("a container that looks for the ids of `{name}`"));
            let ids = image_user::ids(&launch.client, &image.reference, &name);
            drop(progress);
            self.facts.image.iter_mut().for_each(|image| image.user_ids = ids);
        }
        Ok(())
    }
}

impl Resolved {
    /// Makes the plan that `doctor` judges. An engine that did not answer the checkup is not asked
    /// again.
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

    /// Makes the plan that `explain` shows. Engines may be asked, but nothing is started, pulled or
    /// built.
    pub fn for_explain(mut self, ui: Ui) -> Result<(Host, Plan, Launch)> {
        // The output must not depend on the process.
        self.host.process = ProcessStamp::default();
        self.name_built_image()?;
        self.ask_machine(ui)?;
        self.ask_image(ui, false)?;
        let id = self.chosen_id().map_or_else(SessionId::placeholder, SessionId::as_example);
        let (plan, launch) = self.plan(id)?;
        Ok((self.host, plan, launch))
    }

    /// Sets the image that a build would produce, without building it.
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
    /// Builds the image and asks the engine, as far as the launch needs it.
    pub fn for_launch(mut self, ui: Ui) -> Result<Self> {
        if let Some(wanted) = self.config.build.clone() {
            let (recipe, image) =
                build::Recipe::of_project(&self.host).map_err(|error| error.with_origin(&wanted.origin))?;
            let image = self.config.image.get_or_insert(Sourced::new(image, wanted.origin)).value.clone();
            build::run(self.inputs(), &recipe, &image, ui)?;
        }
        #[cfg(target_os = "linux")]
        self.bring_image(ui)?;
        owner::ensure(&self.host, &mut self.facts)?;
        self.ask_machine(ui)?;
        self.ask_image(ui, true)?;
        self.probe_machine(ui)?;
        let path = self.facts.path.clone();
        self.facts.secrets.run_commands(&self.host, &path);
        Ok(self)
    }

    /// Makes the plan that is launched, and prints its warnings and downgrades.
    pub fn ready(&self, id: SessionId, ui: Ui) -> Result<(Plan, Launch)> {
        let (plan, launch) = self.plan(id)?;
        if let Some(problem) = plan.engine.problem.clone().or(plan.ssh.problem.clone()) {
            return Err(problem);
        }
        for warning in &plan.warnings {
            ui.warn(&warning.text);
        }
        for detail in plan.details.iter().filter(|detail| detail.name == SSH_CONFIG) {
            ui.verbose(&format!("{}: {}: {}", detail.name, detail.value, detail.reason));
        }
        // Nobody uses ssh without keys.
        let missed = &plan.missed_ssh_lines;
        let is_said = plan.ssh.state == SshState::Forwarded && !missed.is_empty() && !ui.is_quiet() && !ui.is_verbose();
        if is_said && said::is_new(&self.host, "ssh-config", missed) {
            let lines = counted(missed.len(), "line");
            ui.notice(&format!(
                "ssh's configuration inside lacks {lines}: `sandpen explain` lists them, with the reasons"
            ));
        }
        for downgrade in launch.downgrades() {
            ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
        }
        if self.config.name.is_some() {
            cleanup::free_name(&self.host, &plan.id, ui)?;
        }
        if let Some(container) = launch.container().filter(|launch| launch.sidecar.is_some()) {
            // The proxy's container is started first and without output, so the image is pulled
            // before it.
            self.image_facts(&container.client, &plan, true, ui)?;
        }
        Ok((plan, launch))
    }
}
