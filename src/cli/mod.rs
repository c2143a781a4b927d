//! The command line as types. Parsing has no effects; `config` reads the values of the options.

pub mod completions;
pub mod docker;
pub mod errors;
mod help;
pub mod lazy;
pub mod man;
pub mod reference;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::config::Options;
use help::{DOCTOR, EXAMPLES, EXPLAIN, MORE, PROFILE, SELFTEST, TRUST};
use lazy::Deferred;

/// Runs any command in a sandbox over the current directory; Git and SSH work as they do outside.
#[derive(Debug, Parser)]
#[command(name = "sandpen", version, after_help = EXAMPLES, after_long_help = MORE, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// The subcommand; `run` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `run`.
    #[command(flatten)]
    pub options: Options,
    /// The command to run inside (default: an interactive shell)
    #[arg(last = true, value_name = "CMD")]
    pub guest: Vec<OsString>,
}

impl Cli {
    /// Parses the command line. The first argument is the program's name.
    ///
    /// `run` is parsed without the definition of all other subcommands, which would take twice as long.
    /// Whatever is wrong there, and every request for help, is left to the whole definition.
    pub fn parse_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let is_run = arguments.get(1).is_some_and(|name| name == "run");
        match is_run.then(|| Self::parse_run(&arguments[1..])) {
            Some(Ok(run)) => {
                let command = Some(Command::Run(Deferred(run)));
                Ok(Cli { command, options: Options::default(), guest: Vec::new() })
            }
            _ => Cli::try_parse_from(arguments),
        }
    }

    fn parse_run(arguments: &[OsString]) -> Result<Run, clap::Error> {
        let command = Run::augment_args(clap::Command::default());
        Run::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

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
    /// Check engines, SSH agent, Git and files: what works, what does not, and the command that fixes it
    #[command(after_help = DOCTOR)]
    Doctor(Deferred<Doctor>),
    /// Start a sandbox with these options and verify from inside that it delivers what it promises
    #[command(after_help = SELFTEST)]
    Selftest(Deferred<Selftest>),
    /// List running and kept sandboxes, on every engine
    Ps {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Include sandboxes started with `run --detach` that have ended
        #[arg(short, long)]
        all: bool,
        /// Print only the ids of running sandboxes, one per line
        #[arg(short, long, conflicts_with = "format")]
        quiet: bool,
    },
    /// Run a command in a running sandbox, with the same restrictions; all that it starts ends with it
    Exec {
        /// The sandbox's id, or the start of it
        id: String,
        /// Leave the command running until the sandbox ends, without input and output
        #[arg(short, long)]
        detach: bool,
        /// The command (default: a shell)
        #[arg(value_name = "CMD", trailing_var_arg = true)]
        guest: Vec<OsString>,
    },
    /// List the ports on which programs in a sandbox listen, or forward ports of the host to them
    Ports {
        /// The sandbox's id, or the start of it
        id: String,
        /// Forward this port of 127.0.0.1 to the same port inside, or to another one
        #[arg(value_name = "PORT|HOST:GUEST")]
        ports: Vec<String>,
        /// Output format of the list
        #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "ports")]
        format: Format,
    },
    /// Show the terminal of a sandbox that was started with `run --detach`; Ctrl-] d leaves it again
    Attach {
        /// The sandbox's id, or the start of it
        id: String,
        /// Only watch
        #[arg(long)]
        read_only: bool,
        /// The keys that leave the sandbox, such as `ctrl-],d`
        #[arg(long, value_name = "KEYS")]
        detach_keys: Option<String>,
    },
    /// Stop sandboxes; kill those that do not end in time
    Stop {
        /// The ids of the sandboxes
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// Stop all sandboxes
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Seconds to wait before killing
        #[arg(long, default_value_t = 10, value_name = "SECONDS")]
        time: u64,
    },
    /// Show what a sandbox asked of the outside, and what became of it
    Log {
        /// The sandbox's id, or the start of it (default: the newest of this directory)
        id: Option<String>,
        /// Go on printing until the sandbox has ended
        #[arg(short, long)]
        follow: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove what killed sandboxes left behind, and what `run --keep` kept
    Prune {
        /// Also remove what sandboxes added to package caches
        #[arg(long)]
        cache: bool,
    },
    /// List the presets of agents: their directories and keys
    Presets {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Show what a sandbox with a copied workspace changed
    Diff(Diff),
    /// Take what a sandbox changed in a copied workspace over to the directory
    Apply(Apply),
    /// Remove copied workspaces, with everything in them
    Discard {
        /// The ids of the copies
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Take the last `apply` in this directory back
    Undo,
    /// Show the configuration and its origins; list and create profiles
    #[command(after_help = PROFILE)]
    Profile {
        /// The subcommand.
        #[command(subcommand)]
        action: ProfileAction,
    },
    /// Let a project file take effect, with its present content
    #[command(after_help = TRUST)]
    Trust(Trust),
    /// Manage the images that the native engine runs without a container engine
    Image {
        /// The subcommand.
        #[command(subcommand)]
        action: ImageAction,
    },
    /// Build the project's sandbox.Dockerfile, or an agent's image
    Build(Deferred<Build>),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// The command, such as `run` or `profile show` (default: sandpen itself)
        command: Vec<String>,
        /// Write all pages into this directory instead
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
    /// Start the sandbox, print its id and return; `sandpen attach` shows its terminal
    #[arg(short, long)]
    pub detach: bool,
    /// The command to run inside (default: an interactive shell)
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The options of `run`.
    #[command(flatten)]
    pub options: Options,
    /// Explain one thing: whether it is inside, by which rule, and the option that would change it
    #[arg(long, value_name = "PATH|VAR|HOST")]
    pub why: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The command that would be run
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The options of `run`, which are checked.
    #[command(flatten)]
    pub options: Options,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The command that would be run; it may select a preset, and with it an image
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub guest: Vec<OsString>,
}

/// Arguments of `selftest`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// The options of `run`, which are tried.
    #[command(flatten)]
    pub options: Options,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// The options of `run` that choose the engine.
    #[command(flatten)]
    pub options: Options,
    /// The Dockerfile (default: the project's .sandpen/sandbox.Dockerfile or .llxprt/sandbox.Dockerfile)
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The image's name (default: derived from the project or the agent)
    #[arg(short = 't', long, value_name = "IMAGE")]
    pub tag: Option<String>,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The id of the copy (default: the newest of this directory), and files or directories
    #[arg(value_name = "[ID] [PATH]...")]
    pub what: Vec<OsString>,
    /// Show only how many lines changed in each file
    #[arg(long, conflicts_with_all = ["name_only", "format"])]
    pub stat: bool,
    /// Show only the names of changed files
    #[arg(long, conflicts_with = "format")]
    pub name_only: bool,
    /// Serve the changes as a page on 127.0.0.1, to look at them in a browser and to apply them
    #[arg(long, conflicts_with_all = ["stat", "name_only", "format", "exit_code"])]
    pub web: bool,
    /// Exit with 1 if anything changed
    #[arg(long)]
    pub exit_code: bool,
    /// Show files that Git ignores as well
    #[arg(long)]
    pub ignored: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The id of the copy (default: the newest of this directory), and files or directories
    #[arg(value_name = "[ID] [PATH]...")]
    pub what: Vec<OsString>,
    /// Ask for each hunk
    #[arg(short, long)]
    pub patch: bool,
    /// Write texts that conflict with conflict markers
    #[arg(long)]
    pub markers: bool,
    /// Take the commits of the copy as commits: onto the current branch with all files, or as a new branch alone
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "patch")]
    pub commits: Option<String>,
}

/// Arguments of `trust`.
#[derive(Debug, Args)]
pub struct Trust {
    /// The project's directory (default: the current one)
    pub dir: Option<PathBuf>,
    /// Show what the file would change, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Do not ask, even on a terminal
    #[arg(short, long)]
    pub yes: bool,
    /// List the trusted project files, and whether they have changed since
    #[arg(long, conflicts_with_all = ["dir", "revoke", "dry_run", "yes"])]
    pub list: bool,
    /// Revoke the trust
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    pub revoke: bool,
}

/// The subcommands of `profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileAction {
    /// List the names of all profiles
    List,
    /// Print every value that a sandbox would start with here, and its origin
    Show {
        /// Use this profile (default: the one that the environment names, if any)
        name: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Create a profile to edit, with every key explained
    Init {
        /// The profile's name (default: not a profile, but your configuration for every sandbox)
        name: Option<String>,
        /// Start with the values of this profile
        #[arg(long, value_name = "PROFILE")]
        from: Option<String>,
    },
    /// Print the JSON schema of configuration files and profiles, for editors
    Schema {
        /// Print the schema of presets instead
        #[arg(long)]
        preset: bool,
    },
    /// Print the table of options, as Markdown
    #[command(hide = true)]
    Reference,
    /// Print the directory of your profiles
    Path,
}

/// The subcommands of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// Pull an image from its registry
    Pull {
        /// The image's name: `debian:12`, `ghcr.io/owner/name@sha256:…`
        #[arg(value_name = "IMAGE")]
        reference: String,
    },
    /// Import the images of an archive: of `docker save`, `podman save`, or an OCI layout
    Import {
        /// The archive, which may be compressed; `-` reads it from stdin
        #[arg(value_name = "ARCHIVE|-")]
        archive: PathBuf,
        /// The image's name (default: the names in the archive)
        #[arg(short = 't', long, value_name = "IMAGE")]
        tag: Option<String>,
    },
    /// List the images
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove images, and the layers that no other image needs
    Rm {
        /// The images' names
        #[arg(value_name = "IMAGE", required = true)]
        references: Vec<String>,
    },
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}
