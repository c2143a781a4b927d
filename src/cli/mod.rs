//! The command line as types. Parsing does nothing else: what the options mean is decided in `config`.

pub mod completions;
pub mod errors;
mod help;
pub mod lazy;
pub mod man;
pub mod reference;

use std::ffi::OsString;
use std::path::PathBuf;

use std::marker::PhantomData;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::help::{DOCTOR, EXAMPLES, EXPLAIN, MORE, PROFILE, SELFTEST, TRUST};
use crate::cli::lazy::Deferred;
use crate::config::value::{AgentMode, EngineSetting, Guard, NetworkMode, TmpMode, UserMode};
use crate::host::Platform;
use crate::ui::Verbosity;

/// Runs any command in a sandbox over the current directory; Git and SSH work as they do outside.
#[derive(Debug, Parser)]
#[command(name = "sandpen", version, after_help = EXAMPLES, after_long_help = MORE, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do; `run` when nothing is named.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `run`.
    #[command(flatten)]
    pub options: Options,
    /// The command to run inside; without one, an interactive shell.
    #[arg(last = true, value_name = "CMD")]
    pub guest: Vec<OsString>,
}

impl Cli {
    /// Returns the options of `run` that go with the named subcommand.
    pub fn options(&self) -> &Options {
        match &self.command {
            Some(Command::Run(run)) => &run.options,
            Some(Command::Explain(explain)) => &explain.options,
            Some(Command::Build(build)) => &build.options,
            Some(Command::Doctor(doctor)) => &doctor.options,
            Some(Command::Selftest(selftest)) => &selftest.options,
            _ => &self.options,
        }
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command in a sandbox over the current directory
    #[command(after_help = EXAMPLES, after_long_help = MORE)]
    Run(Deferred<Run>),
    /// Show everything `run` would do, with the reason and the origin of every entry; start nothing
    #[command(after_help = EXPLAIN)]
    Explain(Deferred<Explain>),
    /// Check engines, SSH agent, Git, files: what works, what does not, and the command that helps
    #[command(after_help = DOCTOR)]
    Doctor(Deferred<Doctor>),
    /// Start a sandbox with these options and probe from inside whether it holds what it promises
    #[command(after_help = SELFTEST)]
    Selftest(Deferred<Selftest>),
    /// List the sandboxes that run or are kept, on every engine
    Ps {
        /// How they are shown.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Only the ids of those that run, one on each line
        #[arg(short, long, conflicts_with = "format")]
        quiet: bool,
    },
    /// Run a command in a running sandbox, behind the same walls
    Exec {
        /// The sandbox: its id, or the start of it.
        id: String,
        /// The command; without one, a shell.
        #[arg(value_name = "CMD", trailing_var_arg = true)]
        guest: Vec<OsString>,
    },
    /// Stop sandboxes; those that do not end in time are killed
    Stop {
        /// Their ids.
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All of them.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Seconds to wait before killing.
        #[arg(long, default_value_t = 10, value_name = "SECONDS")]
        time: u64,
    },
    /// Remove what killed sandboxes left, and what `run --keep` kept
    Prune,
    /// Show what is configured and by whom; list and make profiles
    #[command(after_help = PROFILE)]
    Profile {
        /// What to do.
        #[command(subcommand)]
        action: ProfileAction,
    },
    /// Let the project file of a directory take effect, pinned to its present content
    #[command(after_help = TRUST)]
    Trust(Trust),
    /// Build the project's sandbox.Dockerfile, or an agent's image
    Build(Deferred<Build>),
    /// Print completions for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// Of this command, such as `run` or `profile show` (default: of sandpen itself).
        command: Vec<String>,
        /// Write all pages into this directory instead.
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The options.
    #[command(flatten)]
    pub options: Options,
    /// The command to run inside; without one, an interactive shell.
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The options of `run`.
    #[command(flatten)]
    pub options: Options,
    /// Only this: inside or not, by which rule, and the option that would change it
    #[arg(long, value_name = "PATH|VAR|HOST")]
    pub why: Vec<String>,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The command that would be run.
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The options of `run`: what they ask for is checked.
    #[command(flatten)]
    pub options: Options,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The command that would be run; it may choose a preset, and with it an image.
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `selftest`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// The options of `run`: what they promise is tried.
    #[command(flatten)]
    pub options: Options,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// The options of `run` that choose the engine.
    #[command(flatten)]
    pub options: Options,
    /// The Dockerfile (default: the project's .sandpen/sandbox.Dockerfile or .llxprt/sandbox.Dockerfile).
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The image's name (default: derived from the project or the agent).
    #[arg(short = 't', long, value_name = "IMAGE")]
    pub tag: Option<String>,
}

/// Arguments of `trust`.
#[derive(Debug, Args)]
pub struct Trust {
    /// The project's directory (default: the current one).
    pub dir: Option<PathBuf>,
    /// Only say what it would change
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Do not ask, also on a terminal
    #[arg(short, long)]
    pub yes: bool,
    /// List the trusted project files, and whether they are still as they were
    #[arg(long, conflicts_with_all = ["dir", "revoke", "dry_run", "yes"])]
    pub list: bool,
    /// Take the trust back
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    pub revoke: bool,
}

/// What `profile` does.
#[derive(Debug, Subcommand)]
pub enum ProfileAction {
    /// List the names
    List,
    /// Print every value with its origin: what a sandbox starts from here
    Show {
        /// With this profile (default: with the one of the environment, if any).
        name: Option<String>,
        /// How they are shown.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Make a profile to edit, with every key explained
    Init {
        /// Its name (default: no profile, but your own file for every sandbox).
        name: Option<String>,
        /// Begin with the values of this profile.
        #[arg(long, value_name = "PROFILE")]
        from: Option<String>,
    },
    /// Print the JSON schema of configuration files and profiles, for editors
    Schema {
        /// That of presets instead.
        #[arg(long)]
        preset: bool,
    },
    /// Print the table of options, as Markdown
    #[command(hide = true)]
    Reference,
    /// Print the directory of the user's own profiles
    Path,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// The options of `run`, as given. Values that are not names are parsed in `config`, with the same messages as variables.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Engine: chosen from what is meant and what answers, unless named
    #[arg(long, value_parser = Choice::<EngineSetting>::new(), help_heading = "Sandbox")]
    pub engine: Option<String>,
    /// Container image; naming one asks for a container
    #[arg(long, help_heading = "Sandbox")]
    pub image: Option<String>,
    /// Profile: dev, safe, tight, offline, or a file of yours
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    pub profile: Option<String>,
    /// Preset of an agent: llxprt, gemini, claude, codex, aider, none (default: by CMD's name)
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    pub agent: Option<String>,
    /// Who the guest is
    #[arg(long, value_parser = Choice::<UserMode>::new(), help_heading = "Sandbox")]
    pub user: Option<String>,
    /// Any weaker enforcement than asked for is an error
    #[arg(long, help_heading = "Sandbox")]
    pub strict: bool,
    /// Its id for ps, exec and stop (default: a random one)
    #[arg(long, help_heading = "Sandbox")]
    pub name: Option<String>,
    /// Keep the container and its files after the end, until `sandpen prune`
    #[arg(long, help_heading = "Sandbox")]
    pub keep: bool,

    /// Mount a file or directory (mode: ro)
    #[arg(long = "mount", value_name = "FROM[:TO[:ro|rw]]", help_heading = "Files")]
    pub mounts: Vec<String>,
    /// Further workspace directory, read-write
    #[arg(long = "include-dir", value_name = "DIR", value_parser = path_or_empty(), help_heading = "Files")]
    pub include_dirs: Vec<PathBuf>,
    /// Temporary directory inside: the sandbox's own, or the host's
    #[arg(long, value_parser = Choice::<TmpMode>::new(), help_heading = "Files")]
    pub tmp: Option<String>,
    /// Permit the user's whole home as the working directory
    #[arg(long, help_heading = "Files")]
    pub allow_home: bool,
    /// What is done about code planted in the repository's Git files
    #[arg(long, value_parser = Choice::<Guard>::new(), help_heading = "Files")]
    pub guard: Option<String>,

    /// Variable inside; NAME alone takes the host's value, as a secret
    #[arg(long = "env", value_name = "NAME[=VALUE]", help_heading = "Environment")]
    pub env: Vec<String>,
    /// Whether the SSH agent is forwarded
    #[arg(long, value_parser = Choice::<AgentMode>::new(), help_heading = "Environment")]
    pub ssh_agent: Option<String>,

    /// Network policy
    #[arg(long, value_parser = Choice::<NetworkMode>::new(), help_heading = "Network")]
    pub network: Option<String>,
    /// Host that may be reached; implies --network proxied
    #[arg(long = "allow-host", value_name = "HOST[:PORT]", help_heading = "Network")]
    pub allow_hosts: Vec<String>,
    /// Your own proxy, listening on 8877; implies --network proxied
    #[arg(long, value_name = "COMMAND", help_heading = "Network")]
    pub proxy_command: Option<String>,
    /// Port to reach from the host, on 127.0.0.1
    #[arg(long = "publish", value_name = "PORT", help_heading = "Network")]
    pub publish: Vec<String>,

    /// CPUs, such as 2 or 0.5
    #[arg(long, help_heading = "Limits", allow_negative_numbers = true)]
    pub cpus: Option<String>,
    /// Memory, such as 4g
    #[arg(long, help_heading = "Limits", allow_negative_numbers = true)]
    pub memory: Option<String>,
    /// Processes (default 2048)
    #[arg(long, help_heading = "Limits", allow_negative_numbers = true)]
    pub pids: Option<String>,

    /// Further flag for the engine, after sandpen's own
    #[arg(long = "engine-flag", value_name = "FLAG", allow_hyphen_values = true, help_heading = "Engine")]
    pub engine_flags: Vec<String>,
    /// Seatbelt profile: one of six names, or a file
    #[arg(long, value_name = "PROFILE", help_heading = "Engine")]
    pub seatbelt_profile: Option<String>,
    /// Plan as if on this platform
    #[arg(long, value_enum, hide = true)]
    pub assume_host: Option<Platform>,

    /// Say errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what is done
    #[arg(short, long)]
    pub verbose: bool,
}

impl Options {
    /// How much is said.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

/// A path that may be empty, which means "not set"; clap's own parser refuses that.
fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// A choice among names: listed in help and completions, parsed in `config`, where an empty value means "not set".
#[derive(Debug)]
struct Choice<T>(PhantomData<fn() -> T>);

impl<T> Choice<T> {
    fn new() -> Self {
        Choice(PhantomData)
    }
}

impl<T> Clone for Choice<T> {
    fn clone(&self) -> Self {
        Choice::new()
    }
}

impl<T: ValueEnum + 'static> TypedValueParser for Choice<T> {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(T::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}
