//! What help shows after the options: examples, exit codes, files.

/// Of `run`.
pub const EXAMPLES: &str = "\
Examples:
  sandpen run -- git status                 the host's tools over the current directory
  sandpen run --image debian:12 -- bash     a container
  sandpen run --network off -- make test    no network
  sandpen explain -- claude                 what would happen, and why; starts nothing";

/// What `--help` tells after the examples.
pub const MORE: &str = "\
Examples:
  sandpen run -- git status                 the host's tools over the current directory
  sandpen run -- claude                     an agent with its own settings and keys
  sandpen run --image debian:12 -- bash     a container
  sandpen run --network off -- make test    no network
  sandpen run --allow-host github.com -- git fetch
  sandpen explain -- claude                 what would happen, and why; starts nothing
  sandpen explain --why ~/.ssh              one thing: inside or not, and what would change it

Exit codes:
  the command's own; 128 + n when signal n ended it
  126, 127   the command inside cannot be executed, or is not there
  44         the sandbox could not be started; stderr says why, and what to do
  2          the command line or a file is wrong

Files:
  ~/.config/sandpen/config.toml             yours, for every sandbox (sandpen profile init)
  ~/.config/sandpen/profiles/NAME.toml      yours, for --profile NAME (sandpen profile init NAME)
  .sandpen/config.toml                      the project's; without effect before sandpen trust

`sandpen COMMAND --help` tells more of a command, `sandpen man COMMAND` the same as a manual page.";

/// Of `selftest`.
pub const SELFTEST: &str = "\
Exit code: 0 when every promise holds, else 1. What could not be tried counts as failed.

Examples:
  sandpen selftest                          the sandbox that `sandpen run` makes here
  sandpen selftest --profile tight          with limits, without network and SSH agent
  sandpen selftest --image debian:12        a container";

/// Of `explain`.
pub const EXPLAIN: &str = "\
Examples:
  sandpen explain -- claude                 the whole page; -v for every entry by itself
  sandpen explain --profile tight           what a profile makes of it
  sandpen explain --why ~/.ssh              inside or not, by which rule, and what would change it
  sandpen explain --why GH_TOKEN --why github.com:22
  sandpen explain --format json -- make     for programs";

/// Of `profile`.
pub const PROFILE: &str = "\
Examples:
  sandpen profile show                      what holds here, value by value, and who said so
  sandpen profile show tight                with a profile
  sandpen profile init review --from safe   a profile of your own: run --profile review";

/// Of `trust`.
pub const TRUST: &str = "\
Examples:
  sandpen trust                             shows what .sandpen/config.toml changes, then asks
  sandpen trust --dry-run                   shows it, and no more
  sandpen trust --list
  sandpen trust --revoke ~/project";

/// Of `doctor`.
pub const DOCTOR: &str = "\
Exit code: 0 when `sandpen run` with the same options can start, else 1.

Examples:
  sandpen doctor                            everything at a glance; starts nothing
  sandpen doctor --engine podman            could it run there?
  sandpen doctor --format json              for programs";
