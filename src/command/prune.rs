//! `sandpen prune`: removes the sandboxes of killed launchers, those that `run --keep` kept, and old
//! records.

use crate::error::Result;
use crate::event_log;
use crate::facts;
use crate::host::Host;
use crate::process::bounded_work::BoundedWork;
use crate::process::{Client, Outcome};
use crate::session::registry::{self, Entry, Incomplete};
use crate::session::{self, cleanup};
use crate::ui::{Ui, counted};

pub fn run(cache: bool, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    let base = facts::session_base(&host);
    let _work = BoundedWork::begin_without_signals();
    let ended: Vec<Entry> = registry::all(&base).into_iter().filter(|entry| !entry.is_live).collect();
    let (kept, stale): (Vec<Entry>, Vec<Entry>) = ended.into_iter().partition(Entry::is_kept);
    let removed = |entries: &[Entry]| {
        entries.iter().filter(|entry| cleanup::remove(&host, entry, Incomplete::Remove, ui)).count()
    };
    let (kept, stale) = (removed(&kept), removed(&stale));
    #[cfg(target_os = "linux")]
    let stale = stale + crate::native::remove_stale();
    #[cfg(target_os = "linux")]
    crate::native::remove_unused_roots();
    let running: Vec<String> = cleanup::running(&base).into_iter().map(|record| record.id).collect();
    crate::kept_copy::CopyStore::beside(&base).remove_unfinished();
    event_log::remove_old(&base, |id| running.iter().any(|known| known == id));
    ui.notice(&format!("{} removed", counted(stale, "leftover")));
    if kept > 0 {
        ui.notice(&format!("{} removed", counted(kept, "kept sandbox")));
    }
    #[cfg(target_os = "linux")]
    super::image::free(&crate::image::Store::of(&host), ui)?;
    if cache {
        let search = facts::search_path(&host);
        let podman =
            Client { program: search.find("podman"), path: search.for_host(), machine: None, endpoint: Vec::new() };
        let removed = session::cache::remove(&crate::plan::cache::base(&host), &podman);
        ui.notice(&format!("package caches of {} removed", counted(removed.projects, "project")));
        for path in removed.left {
            ui.warn(&format!("`{}` cannot be removed: the engine's root owns a part of it", path.display()));
        }
    }
    Ok(Outcome::Exited(0))
}
