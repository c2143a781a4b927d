//! The public API: a sandbox as a value that can be planned, explained and run.

#![allow(clippy::disallowed_methods, reason = "the library starts the `sandpen` program")]

mod arguments;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use crate::command::explain::Explanation;
use crate::config::Options;
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::plan::questions::Purpose;
use crate::process::Outcome;
use crate::resolve::Resolved;
use crate::session::outcome_file::{ARGUMENT, OutcomeFileReader};
use crate::ui::{Ui, Verbosity};

const PROGRAM: &str = "sandpen";

const VERSION: &str = concat!("sandpen ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, thiserror::Error)]
enum SandboxError {
    #[error("cannot write to sandpen's state directory")]
    OutcomeFile { source: io::Error },
    #[error("cannot start sandpen")]
    Start { source: io::Error },
    #[error("sandpen exited without reporting an outcome: {status}")]
    NoOutcome { status: ExitStatus },
    #[error("the path `{}` cannot be used", path.display())]
    BadPath { path: PathBuf, cause: String },
    #[error("there is no program `{PROGRAM}` on PATH outside of mounted directories")]
    NoProgram,
    #[error("cannot execute `{program}`")]
    Execute { program: HostPath, source: io::Error },
    #[error("`{program}` is not `{VERSION}`, the version of this library")]
    WrongVersion { program: HostPath, found: String },
}

impl Diagnostic for SandboxError {
    fn kind(&self) -> Kind {
        match self {
            Self::BadPath { .. } => Kind::Usage,
            _ => Kind::Launch,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::OutcomeFile { source } | Self::Start { source } | Self::Execute { source, .. } => {
                vec![source.to_string()]
            }
            Self::BadPath { cause, .. } => vec![cause.clone()],
            Self::WrongVersion { found, .. } => vec![format!("it reports `{found}`")],
            Self::NoOutcome { .. } | Self::NoProgram => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoProgram => vec!["install it, or set its path with `Sandbox::program`".into()],
            Self::WrongVersion { .. } => vec!["install the same version of both".into()],
            _ => Vec::new(),
        }
    }
}

/// A sandbox: options, a command and a directory. Creating the value has no effect.
///
/// Planning and explaining happen in this process, print nothing and start no sandbox. Running starts
/// the `sandpen` program of the same version, because the launcher of a sandbox handles signals, must
/// have no other threads and exits with the sandbox. The embedding program keeps its threads, signal
/// handlers and open files to itself.
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
/// Environment variables, profiles, configuration files and trust have the same effect as for the
/// program.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    options: Options,
    command: Vec<OsString>,
    directory: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Sandbox {
    /// Takes the options of `sandpen run` as text. [`plan`](Self::plan) reports invalid values with the
    /// messages of the program.
    pub fn new(options: Options) -> Self {
        Sandbox { options, ..Sandbox::default() }
    }

    /// Sets the command and its arguments. The default is a shell.
    #[must_use]
    pub fn command<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the working directory. The default is that of the process.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the path of the `sandpen` program. The default is the first one on PATH that is in no
    /// directory to which the guest may write.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Returns every mount, variable and limit, each with its reason and origin. Starts no sandbox.
    pub fn plan(&self) -> Result<Plan> {
        self.explain().map(|explained| explained.plan)
    }

    /// Returns the plan with its translation for the engine, as text and JSON. Starts no sandbox.
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

    /// Runs the command with this process's standard streams and waits for it to exit.
    ///
    /// The [`Outcome`] tells how the guest ended. If the sandbox could not be started, the error has the
    /// kind, causes and hints that the program would print.
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
        let outcome_file =
            OutcomeFileReader::create(&resolved.host).map_err(|source| SandboxError::OutcomeFile { source })?;
        let mut command = self.launcher(&resolved, &[ARGUMENT.as_ref(), outcome_file.path().as_os_str()])?;
        let status = command.status().map_err(|source| SandboxError::Start { source })?;
        outcome_file.read().unwrap_or_else(|| Err(SandboxError::NoOutcome { status }.into()))
    }

    /// Returns the call of `sandpen run` with these options, for programs that redirect its streams or
    /// start it themselves. Its exit code is that of the guest, or one that the command line documents.
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
        let canonical = |path: &PathBuf| {
            let real = path.canonicalize().map_err(|error| error.to_string());
            real.and_then(|path| HostPath::new(path).map_err(|error| error.to_string()))
                .map_err(|cause| SandboxError::BadPath { path: path.clone(), cause })
        };
        if let Some(directory) = &self.directory {
            host.cwd = canonical(directory)?;
        }
        // The embedding program is not sandpen, so it cannot be the helper inside.
        host.executable = self.program.as_ref().map(canonical).transpose()?;
        let mut resolved = Resolved::on(host, &self.options, self.command.clone(), Purpose::Run)?;
        if self.program.is_none() {
            resolved.facts.find_program(&mut resolved.host, PROGRAM);
        }
        Ok(resolved)
    }

    fn launcher(&self, resolved: &Resolved, before: &[&OsStr]) -> Result<Command> {
        let program = resolved.host.executable.as_ref().ok_or(SandboxError::NoProgram)?;
        check_version(program)?;
        let mut command = Command::new(program.as_path());
        let (options, secrets) = arguments::without_secrets(&self.options);
        command.args(before).arg("run").args(options.to_arguments()).arg("--").args(&self.command).envs(secrets);
        command.current_dir(resolved.host.cwd.as_path());
        Ok(command)
    }
}

/// The library and the program exchange internal data, so they must be of the same version.
fn check_version(program: &HostPath) -> std::result::Result<(), SandboxError> {
    let output = Command::new(program.as_path()).arg("--version").output();
    let output = output.map_err(|source| SandboxError::Execute { program: program.clone(), source })?;
    let found = String::from_utf8_lossy(&output.stdout);
    if found.trim() == VERSION {
        return Ok(());
    }
    let found = found.trim().lines().next().unwrap_or_default().to_owned();
    Err(SandboxError::WrongVersion { program: program.clone(), found })
}
