//! Takes objects of the guest into the host's repository. They are copied to a repository of their
//! own first, which packs what the host lacks; the host's Git verifies that pack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::host_git::{GitError, GitResult, HostGit};
use super::objects::{Budget, ObjectCopy};
use crate::facts::git::object_id::ObjectId;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

/// The most bytes of objects that one sandbox may bring out of a repository.
const MAX_BYTES: u64 = 64 << 30;
/// Packs with more objects are kept as packs, as `git fetch` does.
const UNPACK_LIMIT: u32 = 100;
/// Each failed attempt halves a group, so this many single objects can be told from good ones.
const MAX_ATTEMPTS: usize = 128;
const PACK_HEADER: usize = 12;
/// Checks the form of objects and their links. Old commits and trees of other projects have names,
/// dates and modes of another form, which `git fetch` takes as they are.
const STRICT: &str = "--strict=badDate=ignore,badDateOverflow=ignore,badTimezone=ignore,badEmail=ignore,\
    badName=ignore,missingEmail=ignore,missingNameBeforeEmail=ignore,missingSpaceBeforeDate=ignore,\
    missingSpaceBeforeEmail=ignore,zeroPaddedDate=ignore,zeroPaddedFilemode=ignore,badFilemode=ignore,\
    multipleAuthors=ignore";

/// The way of objects out of one private Git directory.
pub struct Transfer {
    copy: ObjectCopy,
    budget: Budget,
}

/// The objects that the host has now, and why it lacks the others.
#[derive(Debug, Default)]
pub struct Taken {
    /// The types of objects that the host has.
    pub kinds: BTreeMap<ObjectId, String>,
    pub refused: BTreeMap<ObjectId, String>,
}

impl Transfer {
    pub fn new(dir: &PrivateGitDir) -> Self {
        let id_len = if dir.is_sha256 { 32 } else { 20 };
        Transfer { copy: ObjectCopy::new(dir.import.join("objects"), id_len), budget: Budget { bytes: MAX_BYTES } }
    }

    /// Takes the objects and everything that they refer to. `known` are commits that the host has.
    pub fn take(
        &mut self,
        git: &HostGit,
        dir: &PrivateGitDir,
        wanted: &BTreeSet<ObjectId>,
        known: &BTreeSet<ObjectId>,
    ) -> GitResult<Taken> {
        if wanted.is_empty() {
            return Ok(Taken::default());
        }
        make_import(dir)?;
        self.copy_objects(git, dir)?;
        let mut taken = self.look_up(git, dir, wanted)?;
        let present: Vec<ObjectId> = taken.kinds.keys().copied().collect();
        let mut attempts = 0;
        let mut groups = vec![present];
        while let Some(group) = groups.pop() {
            if group.is_empty() {
                continue;
            }
            attempts += 1;
            let result = if attempts > MAX_ATTEMPTS {
                Err(GitError::Failed {
                    what: "index-pack".into(),
                    code: None,
                    message: "too many broken objects".into(),
                })
            } else {
                move_objects(git, dir, &group, known)
            };
            match result {
                Ok(()) => {}
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) if group.len() == 1 || attempts > MAX_ATTEMPTS => {
                    for id in group {
                        taken.kinds.remove(&id);
                        taken.refused.insert(id, error.to_string());
                    }
                }
                Err(_) => {
                    let (first, second) = group.split_at(group.len() / 2);
                    groups.extend([first.to_vec(), second.to_vec()]);
                }
            }
        }
        Ok(taken)
    }

    /// Copies the guest's objects to the repository for them.
    pub fn copy_objects(&mut self, git: &HostGit, dir: &PrivateGitDir) -> GitResult<()> {
        let guest = UntrustedDir::open(&dir.private_objects)?;
        let import = &dir.import;
        self.copy.update(&guest, &mut self.budget, &mut |pack| {
            let indexed =
                git.call(import, &["index-pack", "--stdin"]).input_file(File::open(pack)?).and_then(|call| call.run());
            match indexed {
                Ok(_) => Ok(true),
                Err(error) if error.is_temporary() => Err(io::Error::other(error)),
                Err(_) => Ok(false),
            }
        })?;
        Ok(())
    }

    /// Asks for the types of objects, and notes those that do not exist.
    fn look_up(&self, git: &HostGit, dir: &PrivateGitDir, wanted: &BTreeSet<ObjectId>) -> GitResult<Taken> {
        let list: String = wanted.iter().map(|id| format!("{id}\n")).collect();
        let format = "--batch-check=%(objectname) %(objecttype)";
        let output = git.call(&dir.import, &["cat-file", format]).input(list.as_bytes())?.run()?;
        let mut taken = Taken::default();
        for line in String::from_utf8_lossy(&output).lines() {
            let Some((id, kind)) = line.split_once(' ') else { continue };
            let Some(id) = ObjectId::parse(id) else { continue };
            match kind {
                "commit" | "tree" | "blob" | "tag" => drop(taken.kinds.insert(id, kind.to_owned())),
                _ => drop(taken.refused.insert(id, format!("the object {id} is missing"))),
            }
        }
        for id in wanted.iter().filter(|id| !taken.kinds.contains_key(id)) {
            taken.refused.entry(*id).or_insert_with(|| format!("the object {id} cannot be read"));
        }
        Ok(taken)
    }
}

/// Makes the repository for the guest's objects.
pub fn make_import(dir: &PrivateGitDir) -> io::Result<()> {
    let import = &dir.import;
    if import.join("HEAD").exists() {
        return copy_shallow(dir);
    }
    for below in ["objects/info", "objects/pack", "refs"] {
        DirBuilder::new().recursive(true).create(import.join(below))?;
    }
    let mut alternates = Vec::new();
    for path in &dir.objects {
        alternates.extend_from_slice(path.as_os_str().as_bytes());
        alternates.push(b'\n');
    }
    fs::write(import.join("objects/info/alternates"), alternates)?;
    let format = if dir.is_sha256 {
        "\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
    } else {
        "\trepositoryformatversion = 0\n"
    };
    fs::write(import.join("config"), format!("[core]\n\tbare = true\n{format}"))?;
    copy_shallow(dir)?;
    fs::write(import.join("HEAD"), "ref: refs/heads/none\n")
}

/// Copies the list of commits whose parents the host's repository lacks.
fn copy_shallow(dir: &PrivateGitDir) -> io::Result<()> {
    match untrusted::read_bytes(&dir.host.join("shallow"), 64 << 20) {
        Ok(list) => fs::write(dir.import.join("shallow"), list),
        Err(_) => Ok(()),
    }
}

/// Packs what the host lacks, and lets the host's Git verify and store it.
fn move_objects(git: &HostGit, dir: &PrivateGitDir, wanted: &[ObjectId], known: &BTreeSet<ObjectId>) -> GitResult<()> {
    let is_partial = is_partial_clone(&dir.host);
    let mut list: String = wanted.iter().map(|id| format!("{id}\n")).collect();
    list.push_str("--not\n");
    list.extend(known.iter().map(|id| format!("{id}\n")));
    let mut arguments = vec!["pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"];
    arguments.extend(is_partial.then_some("--missing=allow-any"));
    let mut pack = git.temporary()?;
    git.call(&dir.import, &arguments).input(list.as_bytes())?.output_file(pack.try_clone()?).run()?;
    let count = object_count(&mut pack)?;
    let store: &[&str] = match count {
        0 => return Ok(()),
        // Parts of the history are missing on purpose, so links are not checked.
        _ if is_partial => &["index-pack", "--fsck-objects", "--stdin"],
        1..=UNPACK_LIMIT => &["unpack-objects", "-q", STRICT],
        _ => &["index-pack", STRICT, "--stdin"],
    };
    git.call(&dir.host, store).input_file(pack)?.run()?;
    check_connectivity(git, dir, wanted, is_partial)
}

/// Checks that the host has everything that the objects refer to: the guest could have planted
/// another content for an object of the host, so that something was not packed.
fn check_connectivity(git: &HostGit, dir: &PrivateGitDir, wanted: &[ObjectId], is_partial: bool) -> GitResult<()> {
    let list: String = wanted.iter().map(|id| format!("{id}\n")).collect();
    let mut arguments = vec!["rev-list", "--objects", "--quiet", "--stdin"];
    arguments.extend(is_partial.then_some("--exclude-promisor-objects"));
    arguments.extend(["--not", "--all"]);
    git.call(&dir.host, &arguments).input(list.as_bytes())?.run().map(|_| ())
}

fn object_count(pack: &mut File) -> io::Result<u32> {
    let mut header = [0; PACK_HEADER];
    pack.seek(SeekFrom::Start(0))?;
    pack.read_exact(&mut header)?;
    Ok(u32::from_be_bytes([header[8], header[9], header[10], header[11]]))
}

/// Tells whether objects may be missing, because the repository was cloned with a filter.
fn is_partial_clone(git_dir: &Path) -> bool {
    let config = untrusted::read(&git_dir.join("config"), 1 << 20).unwrap_or_default().to_ascii_lowercase();
    config.contains("promisor") || config.contains("partialclone")
}
