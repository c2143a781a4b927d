//! Gives fixtures the test image in sandpen's own store. It is imported once; each fixture gets hard
//! links to its files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::{Engine, Fixture, IMAGE, RunToEnd};

/// The store, below the home that the image was imported for.
const STORE: &str = ".local/state/sandpen/images";

static IMPORTED: OnceLock<TempDir> = OnceLock::new();

/// Puts the test image into the store of a fixture.
pub fn give(fixture: &Fixture) {
    let imported = IMPORTED.get_or_init(import).path().join(STORE);
    let place = fixture.home.join(STORE);
    let above = place.parent().expect("a directory above");
    fs::create_dir_all(above).expect("directories");
    for directory in above.ancestors().take_while(|directory| *directory != fixture.home) {
        fixture.give_to_user(directory);
    }
    let copied = Command::new("/usr/bin/cp").arg("-al").args([&imported, &place]).status().expect("cp");
    assert!(copied.success(), "cp: {copied}");
}

fn import() -> TempDir {
    // SAFETY: `remove` is an `extern "C"` function that does not unwind.
    unsafe { libc::atexit(remove) };
    let directory = tempfile::Builder::new().prefix("sandpen-image-").tempdir_in("/var/tmp").expect("directory");
    let fixture = Fixture::new().with_engine(Engine::Native);
    let mut save = Command::new("docker");
    let mut save = save.args(["save", IMAGE]).stdout(Stdio::piped()).spawn().expect("docker");
    let archive = save.stdout.take().expect("a pipe");
    fixture.sandpen(["image", "import", "-"]).stdin(archive).finish().success();
    assert!(save.wait().expect("docker").success());
    fs::rename(fixture.home.join(".local"), directory.path().join(".local")).expect("rename");
    directory
}

/// Statics are not dropped.
extern "C" fn remove() {
    if let Some(directory) = IMPORTED.get() {
        let _ = fs::remove_dir_all(directory.path() as &Path);
    }
}
