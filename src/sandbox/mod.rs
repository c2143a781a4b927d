//! The library's front door: what is wanted, as a value that can be planned, explained and run.

#![allow(clippy::disallowed_methods, reason = "the library starts the program, which is the launcher")]

mod arguments;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use crate::command::explain::Explanation;
use crate::config::Options;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::plan::questions::Purpose;
use crate::process::Outcome;
use crate::resolve::Resolved;
use crate::session::outcome_file::{ARGUMENT, OutcomeFileReader};
use crate::ui::{Ui, Verbosity};

/// The program that launches, and is the first process inside a container.
const PROGRAM: &str = "sandpen";

/// A sandbox that someone wants: options, a command, a directory. PendingSandbox one does nothing yet.
///
/// Planning and explaining happen in this process, print nothing and start nothing. Running is left to a process of its own, the
/// `sandpen` program of the same version: a sandbox belongs to one process, which ends with it, forwards signals to it and has no
/// other threads. So a program that embeds sandpen keeps its threads, its signals and its open files to itself.
///
/// ```
/// use sandpen::{Options, Sandbox};
///
/// # fn main() -> sandpen::Result<()> {
/// let options = Options { engine: Some("native".into()), network: Some("off".into()), ..Options::default() };
/// let sandbox = Sandbox::new(options).command(["git", "status"]);
/// for mount in sandbox.plan()?.mounts {
///     println!("{} – {}", mount.target, mount.why.reason);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Everything else that decides – variables, profiles, configuration files, trust – is read as the program reads it.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    options: Options,
    command: Vec<OsString>,
    directory: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Sandbox {
    /// With the options of `sandpen run`, as text: a mistake in one is an error of [`plan`](Self::plan), with the same words.
    pub fn new(options: Options) -> Self {
        Sandbox { options, ..Sandbox::default() }
    }

    /// The command and its arguments; without one, a shell.
    #[must_use]
    pub fn command<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// The working directory; without one, the process's own.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Where the `sandpen` program is; without this it is looked for on PATH, outside of what the guest may write to.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// What would be done: every mount, variable and limit, each with its reason and origin. Starts nothing.
    pub fn plan(&self) -> Result<Plan> {
        self.explain().map(|explained| explained.plan)
    }

    /// The same with what the engine makes of it, for people and for other programs. Starts nothing.
    ///
    /// ```
    /// # use sandpen::{Options, Sandbox, View};
    /// # fn main() -> sandpen::Result<()> {
    /// # let options = Options { engine: Some("native".into()), ..Options::default() };
    /// let explained = Sandbox::new(options).command(["make"]).explain()?;
    /// assert!(explained.text(View::default()).contains("Workspace"));
    /// assert!(explained.json()?.starts_with("{\n  \"schema\": 1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self) -> Result<Explanation> {
        let (host, plan, launch) = self.prepare()?.for_explain(Ui::new(Verbosity::Quiet))?;
        Ok(Explanation { host, plan, launch })
    }

    /// Runs the command to its end, with this process's streams.
    ///
    /// What the guest did is the [`Outcome`]; that it could not be started is the error, with its kind, causes and hints.
    ///
    /// ```no_run
    /// use sandpen::{Kind, Options, Outcome, Sandbox};
    ///
    /// match Sandbox::new(Options::default()).command(["make", "test"]).run() {
    ///     Ok(Outcome::Exited(0)) => println!("passed"),
    ///     Ok(outcome) => println!("failed with {}", outcome.exit_code()),
    ///     Err(error) if error.kind() == Kind::Launch => println!("no sandbox: {error}; {}", error.hints().join("; ")),
    ///     Err(error) => println!("wrong options: {error}"),
    /// }
    /// ```
    pub fn run(&self) -> Result<Outcome> {
        let resolved = self.prepare()?;
        let outcome_file = OutcomeFileReader::create(&resolved.host)
            .map_err(|error| Error::launch("sandpen's own directory cannot be written").cause(error))?;
        let mut command = self.launcher(&resolved, &[ARGUMENT.as_ref(), outcome_file.path().as_os_str()])?;
        let status = command.status().map_err(|error| Error::launch("sandpen cannot be started").cause(error))?;
        outcome_file.read().unwrap_or_else(|| Err(Error::launch(format!("sandpen ended without a word: {status}"))))
    }

    /// `sandpen run` with these options as a process, for whoever wants its streams, or starts it in a way of their own. Its exit
    /// code is the guest's, or one of those that the command line documents.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sandpen::{Options, Sandbox};
    ///
    /// let output = Sandbox::new(Options::default()).command(["git", "log"]).process()?.output()?;
    /// println!("{}", String::from_utf8_lossy(&output.stdout));
    /// # Ok(())
    /// # }
    /// ```
    pub fn process(&self) -> Result<Command> {
        self.launcher(&self.prepare()?, &[])
    }

    fn prepare(&self) -> Result<Resolved> {
        let mut host = Host::read()?;
        let real = |path: &PathBuf| {
            let real = path.canonicalize().map_err(|error| error.to_string());
            real.and_then(|path| HostPath::new(path).map_err(|error| error.to_string()))
                .map_err(|error| Error::usage(format!("the path `{}` cannot be used", path.display())).cause(error))
        };
        if let Some(directory) = &self.directory {
            host.cwd = real(directory)?;
        }
        // Not the program that embeds this library: inside a container it would not know what to do.
        host.executable = self.program.as_ref().map(real).transpose()?;
        let mut resolved = Resolved::on(host, &self.options, self.command.clone(), Purpose::Run)?;
        if self.program.is_none() {
            resolved.facts.find_program(&mut resolved.host, PROGRAM);
        }
        Ok(resolved)
    }

    fn launcher(&self, resolved: &Resolved, before: &[&OsStr]) -> Result<Command> {
        let program = resolved.host.executable.as_ref().ok_or_else(|| {
            Error::launch(format!("there is no program `{PROGRAM}` on PATH, mounted directories apart"))
                .hint("install it, or name its file with `Sandbox::program`")
        })?;
        check_version(program)?;
        let mut command = Command::new(program.as_path());
        let (options, secrets) = arguments::without_secrets(&self.options);
        command.args(before).arg("run").args(options.to_arguments()).arg("--").args(&self.command).envs(secrets);
        command.current_dir(resolved.host.cwd.as_path());
        Ok(command)
    }
}

/// The two sides of a launch must speak of the same things.
fn check_version(program: &HostPath) -> Result<()> {
    let said = Command::new(program.as_path()).arg("--version").output();
    let said = said.map_err(|error| Error::launch(format!("`{program}` cannot be executed")).cause(error))?;
    let (said, own) = (String::from_utf8_lossy(&said.stdout), concat!("sandpen ", env!("CARGO_PKG_VERSION")));
    match said.trim() == own {
        true => Ok(()),
        false => Err(Error::launch(format!("`{program}` is not `{own}`, which this library belongs to"))
            .cause(format!("it calls itself `{}`", said.trim().lines().next().unwrap_or_default()))
            .hint("install the same version of both")),
    }
}
