//! Manual pages and long help, generated from the command line's definition.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::reference::long_help;
use crate::cli::Cli;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ui::View;
use crate::ui::suggest::nearest;

/// Help that was asked for with `--help` tells everything; what `-h` shows, fits on a screen. `None` if something else was asked for.
pub fn help_in_full(asked: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let words = arguments.iter().skip(1).take_while(|word| *word != "--help");
    if asked.kind() != ErrorKind::DisplayHelp || words.clone().count() + 1 == arguments.len() {
        return None;
    }
    let program = long_help(Cli::command());
    let mut command = words.fold(&program, |command, word| command.find_subcommand(word).unwrap_or(command)).clone();
    let text = command.render_long_help();
    let colour = Host::read().is_ok_and(|host| View::of(&host, false).colour);
    Some(if colour { text.ansi().to_string() } else { text.to_string() })
}

/// The page of a command, or of sandpen itself.
pub fn page(command: &[String]) -> Result<String> {
    let pages = pages();
    let wrong = command.join("-");
    let name = if wrong.is_empty() { "sandpen".to_owned() } else { format!("sandpen-{wrong}") };
    if let Some(page) = pages.iter().find(|(known, _)| *known == name) {
        return render(page.1.clone());
    }
    let known: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("sandpen-")).collect();
    let error = Error::usage(format!("argument COMMAND: there is no command `{wrong}`"));
    Err(match nearest(&wrong, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are pages of: {}", known.join(", "))),
    })
}

/// Writes all pages into a directory. Returns how many there are.
pub fn write(directory: &Path) -> Result<usize> {
    let failed = |error| Error::failed(format!("`{}` cannot be written", directory.display())).cause(error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let pages = pages();
    for (name, page) in &pages {
        std::fs::write(directory.join(format!("{name}.1")), render(page.clone())?).map_err(failed)?;
    }
    Ok(pages.len())
}

/// sandpen's own page, and one for each command and each command of a command, under the name of the page.
fn pages() -> Vec<(String, Command)> {
    fn add(command: &Command, pages: &mut Vec<(String, Command)>) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        pages.push((name, command.clone().version(env!("CARGO_PKG_VERSION"))));
        for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            add(below, pages);
        }
    }
    let mut pages = Vec::new();
    add(&long_help(Cli::command()), &mut pages);
    pages
}

fn render(page: Command) -> Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .source(concat!("sandpen ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .map_err(|error| Error::failed("the manual page cannot be written").cause(error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
