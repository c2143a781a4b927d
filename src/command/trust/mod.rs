//! `sandpen trust`: shows what a project file changes, and lets it take effect.

mod comparison;

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::Trust;
use crate::config::project::{self, ProjectFile};
use crate::config::{Config, Options, Settings};
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Host;
use crate::path::{HostPath, PathError};
use crate::ui::escape::escape;
use crate::ui::{Ui, View};
use comparison::Comparison;

/// An error of `sandpen trust`.
#[derive(Debug, thiserror::Error)]
enum TrustError {
    #[error("the file is not trusted; nothing was changed")]
    Refused,
    #[error("cannot open the directory `{}`", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("there is no project file `{}`", .0.display())]
    NoFile(PathBuf),
    #[error("no project file of `{0}` is trusted")]
    NotTrusted(HostPath),
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Diagnostic for TrustError {
    fn kind(&self) -> Kind {
        match self {
            TrustError::Refused => Kind::Failed,
            _ => Kind::Usage,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            TrustError::NotTrusted(_) => vec!["`sandpen trust --list` lists the trusted ones".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// Runs the command.
pub fn run(host: &Host, arguments: &Trust, ui: Ui) -> Result<()> {
    if arguments.list {
        return ui.data(&list(host));
    }
    let directory = arguments.dir.as_deref().filter(|dir| !dir.as_os_str().is_empty());
    if arguments.revoke {
        return revoke(host, directory, ui);
    }
    let file = find(host, directory)?;
    let settings = file.settings()?;
    let options = Options::default();
    let comparison = Comparison {
        file: Config::new(settings.clone())?,
        now: Config::load_with(host, &options, Settings::default())?,
        // The file may contradict a variable that is set in this shell only.
        then: Config::load_with(host, &options, settings).ok(),
        trusted: file.trusted_before(host).and_then(|settings| Config::new(settings).ok()),
    };
    ui.data(&comparison.text(&file.path(), View::of(host, false)))?;
    if arguments.dry_run {
        return Ok(());
    }
    let asks = host.terminal.stdin && !arguments.yes && !file.is_trusted(host);
    if asks && !ui.ask("Let it take effect?") {
        return Err(TrustError::Refused.into());
    }
    file.trust(host)?;
    ui.notice(&format!("trusted with its present content: {}", file.path().display()));
    Ok(())
}

/// Finds the project file of a directory; without one, the file that `run` would find.
fn find(host: &Host, directory: Option<&Path>) -> Result<ProjectFile> {
    let (found, place) = match directory {
        None => (ProjectFile::find(host)?, host.cwd.as_path().to_owned()),
        Some(directory) => {
            let directory = host.expand(directory);
            let real = directory.canonicalize().map_err(|source| TrustError::Directory { path: directory, source })?;
            (ProjectFile::read(&host_path(&real)?)?, real)
        }
    };
    found.ok_or_else(|| TrustError::NoFile(place.join(".sandpen/config.toml")).into())
}

fn host_path(path: &Path) -> std::result::Result<HostPath, TrustError> {
    Ok(HostPath::new(path)?)
}

fn revoke(host: &Host, directory: Option<&Path>, ui: Ui) -> Result<()> {
    let directory = match directory {
        Some(directory) => {
            let directory = host.expand(directory);
            // The project may have been deleted.
            host_path(&directory.canonicalize().unwrap_or(directory))?
        }
        None => {
            let trusted = project::trusted(host);
            let mut above = host.cwd.as_path().ancestors().filter_map(|above| HostPath::new(above).ok());
            above.find(|above| trusted.contains(above)).unwrap_or_else(|| host.cwd.clone())
        }
    };
    if project::revoke(host, &directory)? {
        ui.notice(&format!("no longer trusted: {}", directory.join(".sandpen/config.toml")));
        return Ok(());
    }
    Err(TrustError::NotTrusted(directory).into())
}

fn list(host: &Host) -> String {
    let mut text = String::new();
    let places: Vec<HostPath> = project::trusted(host);
    let width = places.iter().map(|place| place.to_string().chars().count()).max().unwrap_or(0);
    for place in places {
        let state = match ProjectFile::read(&place) {
            Ok(Some(file)) if file.is_trusted(host) => "in effect",
            Ok(Some(_)) => "changed since: no effect until it is trusted again",
            Ok(None) => "deleted",
            Err(_) => "cannot be read",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {state}", escape(&place.to_string()));
    }
    text
}
