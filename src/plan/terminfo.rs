//! Mounts the user's descriptions of terminals, without which `tput` and every full-screen program
//! fail in a terminal that the system does not know.

use super::Draft;
use super::entry::{Topic, Why};
use super::mounts::existing;
use crate::config::value::Access;
use crate::facts::FileKind;
use crate::host::Host;
use crate::path::HostPath;

/// The directory below HOME in which every program looks first.
const IN_HOME: &str = ".terminfo";
/// Variables that name one directory, or several separated by colons.
const VARIABLES: &[&str] = &["TERMINFO", "TERMINFO_DIRS"];

/// Lists the directories, for the facts to look at.
pub fn directories(host: &Host) -> Vec<HostPath> {
    let named = VARIABLES.iter().filter_map(|name| host.env.raw(name)).flat_map(std::env::split_paths);
    named.filter_map(|path| HostPath::new(path).ok()).chain([host.home.join(IN_HOME)]).collect()
}

impl Draft<'_> {
    /// Adds the directories that exist, read-only, and the variables that name them. A directory
    /// around the home or around sandpen's own files is left out.
    pub fn terminfo(&mut self) {
        let why = || Why::default("your descriptions of terminals").about(Topic::Home);
        self.at_both_homes(IN_HOME, Access::Ro, &why());
        let in_home = self.host.home.join(IN_HOME);
        for directory in directories(self.host).iter().filter(|directory| **directory != in_home) {
            let Some(fact) = self.facts.files.get(directory) else { continue };
            let is_wide = self.host.home.is_within(&fact.real) || self.host.keeps_files_in(&fact.real);
            let is_shown = self.mounts.iter().any(|mount| directory.to_guest().is_within(&mount.target));
            if fact.kind == FileKind::Directory && !is_wide && !is_shown && !directory.as_path().starts_with("/usr") {
                self.mounts.add(existing(fact, directory.to_guest(), Access::Ro, why()));
            }
        }
        for name in VARIABLES {
            if let Some(value) = self.host.env.text(name) {
                self.env.plain(name, value, why());
            }
        }
    }
}
