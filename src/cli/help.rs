//! The text of the help after the options: examples, exit codes, files.

/// The examples of `run`, for `-h`.
pub const EXAMPLES: &str = "\
Examples:
  sandpen run -- git status                 the host's tools over the current directory
  sandpen run --image debian:12 -- bash     a container
  sandpen run --network off -- make test    no network
  sandpen explain -- claude                 what would happen, and why; starts nothing";

/// The rest of `run --help`.
pub const MORE: &str = "\
Examples:
  sandpen run -- git status                 the host's tools over the current directory
  sandpen run -- claude                     an agent with its settings and keys
  sandpen run --image debian:12 -- bash     a container
  sandpen run --network off -- make test    no network
  sandpen run --allow-host github.com -- git fetch
  sandpen explain -- claude                 what would happen, and why; starts nothing
  sandpen explain --why ~/.ssh              whether it is inside, and what would change it

Exit codes:
  the command's own; 128 + n if signal n ended it
  126, 127   the command inside cannot be executed, or was not found
  44         the sandbox could not be started; stderr says why, and what to do
  2          the command line or a file is wrong

Files:
  ~/.config/sandpen/config.toml             yours, for every sandbox (sandpen profile init)
  ~/.config/sandpen/profiles/NAME.toml      yours, for --profile NAME (sandpen profile init NAME)
  .sandpen/config.toml                      the project's; no effect before sandpen trust

See `sandpen COMMAND --help` for a command, and `sandpen man COMMAND` for its manual page.";

pub const SELFTEST: &str = "\
Exit code: 0 if every promise is kept, else 1. A check that could not be made counts as failed.

Examples:
  sandpen selftest                          the sandbox that `sandpen run` makes here
  sandpen selftest --profile tight          with limits, without network and SSH agent
  sandpen selftest --image debian:12        a container";

pub const EXPLAIN: &str = "\
Examples:
  sandpen explain -- claude                 the whole page; -v lists every entry
  sandpen explain --profile tight           the effect of a profile
  sandpen explain --why ~/.ssh              whether it is inside, by which rule, and what would change it
  sandpen explain --why GH_TOKEN --why github.com:22
  sandpen explain --format json -- make     for programs";

pub const PROFILE: &str = "\
Examples:
  sandpen profile show                      every value and its origin
  sandpen profile show tight                with a profile
  sandpen profile init review --from safe   a profile of your own: run --profile review";

pub const TRUST: &str = "\
Examples:
  sandpen trust                             shows what .sandpen/config.toml changes, then asks
  sandpen trust --dry-run                   only shows it
  sandpen trust --list
  sandpen trust --revoke ~/project";

pub const DOCTOR: &str = "\
Exit code: 0 if `sandpen run` with the same options can start, else 1.

Examples:
  sandpen doctor                            everything at a glance; starts nothing
  sandpen doctor --engine podman            could it run there?
  sandpen doctor --format json              for programs";
