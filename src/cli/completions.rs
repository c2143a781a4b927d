//! Shell completions, generated from the command line's definition. Ids of running sandboxes and
//! names of profiles are completed by a few lines of shell code, because clap's dynamic completion
//! is unstable and reads the environment at every start.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Returns the completion script for a shell.
pub fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => generate(shell, Cli::command()) + BASH,
        Shell::Zsh => zsh(),
        Shell::Fish => generate(shell, Cli::command()) + FISH,
        _ => generate(shell, Cli::command()),
    }
}

fn generate(shell: Shell, mut command: clap::Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "sandpen", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Wraps the generated function to complete names.
const BASH: &str = r#"
_sandpen_with_names() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    case $before:${COMP_WORDS[1]}:$COMP_CWORD in
        --profile:*)
            COMPREPLY=($(compgen -W "$(sandpen profile list 2>/dev/null)" -- "$current"))
            return
            ;;
        *:exec:2 | *:attach:2 | *:stop:*)
            if [[ $current != -* && $before != --time ]]; then
                COMPREPLY=($(compgen -W "$(sandpen ps --quiet 2>/dev/null)" -- "$current"))
                return
            fi
            ;;
    esac
    _sandpen "$@"
}
complete -F _sandpen_with_names -o bashdefault -o default sandpen
"#;

const FISH: &str = r#"complete -c sandpen -n "__fish_sandpen_using_subcommand exec attach; and test (count (commandline -opc)) -eq 2; or __fish_sandpen_using_subcommand stop" -f -a "(sandpen ps --quiet 2>/dev/null)" -d "running sandbox"
complete -c sandpen -l profile -x -a "(sandpen profile list 2>/dev/null)"
"#;

/// The option that replaces the argument CMD of `sandpen -- CMD` while the zsh script is generated.
const PLACEHOLDER: &str = "--placeholder";

/// The argument CMD is a positional argument beside the subcommands, and zsh would complete
/// subcommands in its place again and again. So it becomes an option, whose lines are removed from
/// the script.
fn zsh() -> String {
    let as_option = |argument: clap::Arg| argument.long(&PLACEHOLDER[2..]).trailing_var_arg(false).last(false);
    let text = generate(Shell::Zsh, Cli::command().mut_arg("guest", as_option));
    let mut lines: Vec<String> =
        text.lines().filter(|line| !line.contains(PLACEHOLDER)).map(|line| format!("{line}\n")).collect();
    for line in &mut lines {
        for (start, asks) in ZSH_NAMES {
            if line.starts_with(start)
                && let Some((head, tail)) = line.rsplit_once(":_default'")
            {
                *line = format!("{head}:{asks}'{tail}");
            }
        }
    }
    lines.concat().replacen("_sandpen() {", &format!("{ZSH}_sandpen() {{"), 1)
}

const ZSH: &str = r#"_sandpen_ids() {
    local -a ids=(${(f)"$(sandpen ps --quiet 2>/dev/null)"})
    _describe 'running sandbox' ids
}

_sandpen_profiles() {
    local -a profiles=(${(f)"$(sandpen profile list 2>/dev/null)"})
    _describe 'profile' profiles
}

"#;

/// The start of generated lines that expect a name, and the function that completes it.
const ZSH_NAMES: [(&str, &str); 3] =
    [("':id --", "_sandpen_ids"), ("'*::ids --", "_sandpen_ids"), ("'--profile=", "_sandpen_profiles")];
