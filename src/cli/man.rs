//! Manual pages and long help, generated from the command line's definition.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::Cli;
use super::errors::CliError;
use super::reference::long_help;
use crate::host::Host;
use crate::ui::View;
use crate::ui::suggest::nearest;

/// Renders the help for `--help`, which describes every option. `-h` fits on a screen and is left
/// to clap: `None`.
pub fn full_help(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let words = arguments.iter().skip(1).take_while(|word| *word != "--help");
    if error.kind() != ErrorKind::DisplayHelp || words.clone().count() + 1 == arguments.len() {
        return None;
    }
    let program = long_help(Cli::command());
    let mut command = words.fold(&program, |command, word| command.find_subcommand(word).unwrap_or(command)).clone();
    let text = command.render_long_help();
    let colour = Host::read().is_ok_and(|host| View::of(&host, false).colour);
    Some(if colour { text.ansi().to_string() } else { text.to_string() })
}

/// Returns the page of a command, or of sandpen itself.
pub fn page(command: &[String]) -> Result<String, CliError> {
    let pages = pages();
    let wanted = command.join("-");
    let name = if wanted.is_empty() { "sandpen".to_owned() } else { format!("sandpen-{wanted}") };
    if let Some((_, page)) = pages.iter().find(|(known, _)| *known == name) {
        return render(page.clone());
    }
    let known: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("sandpen-")).collect();
    let near = nearest(&wanted, known.iter().copied()).map(str::to_owned);
    Err(CliError::UnknownPage { wanted, near, known: known.join(", ") })
}

/// Writes all pages into a directory. Returns how many there are.
pub fn write(directory: &Path) -> Result<usize, CliError> {
    let failed = |source| CliError::WritePages { directory: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let pages = pages();
    for (name, page) in &pages {
        std::fs::write(directory.join(format!("{name}.1")), render(page.clone())?).map_err(failed)?;
    }
    Ok(pages.len())
}

/// Lists the pages with their names: sandpen's own, and one for each subcommand at any depth.
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

fn render(page: Command) -> Result<String, CliError> {
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .source(concat!("sandpen ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .map_err(CliError::RenderPage)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
