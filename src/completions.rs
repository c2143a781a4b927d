//! Completions for shells: generated from the command line's definition, and the ids of running sandboxes, which only `sandpen`
//! itself knows. A few lines of each shell's own, because clap's dynamic completion is unstable and wants the program's
//! environment read at every start.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sandpen", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Zsh => ZSH_IDS.iter().fold(text, |text, (id, with_ids)| text.replace(id, with_ids)).replacen(
            "_sandpen() {",
            &format!("{ZSH}_sandpen() {{"),
            1,
        ),
        Shell::Fish => text + FISH,
        _ => text,
    }
}

/// Around the generated function: where an id is expected, ids.
const BASH: &str = r#"
_sandpen_with_ids() {
    local current=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[1]}:$COMP_CWORD in
        exec:2 | stop:*)
            if [[ $current != -* && ${COMP_WORDS[COMP_CWORD-1]} != --time ]]; then
                COMPREPLY=($(compgen -W "$(sandpen ps --quiet 2>/dev/null)" -- "$current"))
                return
            fi
            ;;
    esac
    _sandpen "$@"
}
complete -F _sandpen_with_ids -o bashdefault -o default sandpen
"#;

const ZSH: &str = r#"_sandpen_ids() {
    local -a ids=(${(f)"$(sandpen ps --quiet 2>/dev/null)"})
    _describe 'running sandbox' ids
}

"#;

/// What clap generates for the arguments that are ids, and what stands there instead.
const ZSH_IDS: [(&str, &str); 2] = [
    ("':id -- The sandbox\\: its id, or the start of it:_default'", "':id -- The sandbox:_sandpen_ids'"),
    ("'*::ids -- Their ids:_default'", "'*::ids -- Their ids:_sandpen_ids'"),
];

const FISH: &str = r#"complete -c sandpen -n "__fish_sandpen_using_subcommand exec; or __fish_sandpen_using_subcommand stop" -f -a "(sandpen ps --quiet 2>/dev/null)" -d "running sandbox"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_an_id_is_expected_zsh_asks_for_ids() {
        let script = script(Shell::Zsh);
        assert_eq!(script.matches(":_sandpen_ids'").count(), 2, "{script}");
    }
}
