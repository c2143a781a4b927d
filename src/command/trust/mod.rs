//! The `trust` command: a project's file takes effect when the user has seen what it changes.

mod changes;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::cli::{Options, Trust};
use crate::config::project::{ProjectFile, revoke, trusted};
use crate::config::{Config, Settings};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::ui::Ui;
use crate::ui::View;
use crate::ui::escape::escape;
use changes::Changes;

/// The whole command.
pub fn run(host: &Host, arguments: &Trust, ui: Ui) -> Result<()> {
    if arguments.list {
        return ui.data(&list(host));
    }
    let directory = arguments.dir.as_deref().filter(|dir| !dir.as_os_str().is_empty());
    if arguments.revoke {
        return take_back(host, directory, ui);
    }
    let file = find(host, directory)?;
    // A file that does not parse cannot be what the user means to trust.
    let settings = file.settings()?;
    let options = Options::default();
    let changes = Changes {
        says: Config::of(settings.clone())?,
        now: Config::load_with(host, &options, Settings::default())?,
        // It may contradict a variable that is set only now.
        then: Config::load_with(host, &options, settings).ok(),
        before: file.trusted_before(host).and_then(|settings| Config::of(settings).ok()),
    };
    ui.data(&changes.text(&file.path(), View::of(host, false)))?;
    if arguments.dry_run {
        return Ok(());
    }
    let is_watched = host.terminal.stdin && !arguments.yes && !file.is_trusted(host);
    if is_watched && !ui.ask("Let it take effect?") {
        return Err(Error::failed("it is not trusted; nothing was changed"));
    }
    file.trust(host)?;
    ui.notice(&format!("trusted as it is now: {}", file.path().display()));
    Ok(())
}

/// Without a directory: the file that `run` would find.
fn find(host: &Host, directory: Option<&Path>) -> Result<ProjectFile> {
    let (found, place) = match directory {
        None => (ProjectFile::find(host)?, host.cwd.as_path().to_owned()),
        Some(directory) => {
            let directory = host.expand(directory);
            let real = directory.canonicalize().map_err(|error| {
                Error::usage(format!("`{}` is not a directory that can be entered", directory.display())).cause(error)
            })?;
            (ProjectFile::read(&path(real.clone())?)?, real)
        }
    };
    found.ok_or_else(|| {
        Error::usage(format!("there is no project file `{}`", place.join(".sandpen/config.toml").display()))
    })
}

fn path(path: PathBuf) -> Result<HostPath> {
    HostPath::new(path).map_err(|error| Error::usage(error.to_string()))
}

fn take_back(host: &Host, directory: Option<&Path>, ui: Ui) -> Result<()> {
    let directory = match directory {
        Some(directory) => {
            let directory = host.expand(directory);
            // The project may be gone by now.
            path(directory.canonicalize().unwrap_or(directory))?
        }
        None => {
            let above = host.cwd.as_path().ancestors().map(|above| path(above.to_owned()));
            let trusted = trusted(host);
            above.flatten().find(|above| trusted.contains(above)).unwrap_or_else(|| host.cwd.clone())
        }
    };
    if revoke(host, &directory)? {
        ui.notice(&format!("no longer trusted: {}", directory.join(".sandpen/config.toml")));
        return Ok(());
    }
    Err(Error::usage(format!("no project file of `{directory}` was trusted"))
        .hint("`sandpen trust --list` lists those that are"))
}

fn list(host: &Host) -> String {
    let mut text = String::new();
    let places: Vec<HostPath> = trusted(host);
    let width = places.iter().map(|place| place.to_string().chars().count()).max().unwrap_or(0);
    for place in places {
        let state = match ProjectFile::read(&place) {
            Ok(Some(file)) if file.is_trusted(host) => "in effect",
            Ok(Some(_)) => "changed since: without effect until it is trusted again",
            Ok(None) => "gone",
            Err(_) => "cannot be read",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {state}", escape(&place.to_string()));
    }
    text
}
