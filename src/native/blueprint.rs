//! Checks the steps of a set-up and compiles them into operations for the child: C strings and
//! paths relative to the new root, made before the fork. Pure.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::error::{Cause, SetupError};
use super::skeleton::Part;
use super::sys::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use crate::launch::native::step::{Bind, BindKind, NativeSetup, OverlayRoot, Step};
use crate::path::{is_below, is_clean};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Dir { at: CString, mode: u32 },
    Bind { source: CString, at: CString, attributes: u64, kind: BindKind },
    Cache { host: CString, upper: CString, work: CString, at: CString, is_needed: bool },
    Tmpfs { at: CString, mode: u32 },
    Symlink { at: CString, to: CString },
    File { at: CString, content: &'a [u8], mode: u32 },
    Proc,
    Dev,
}

/// The directories of an overlay that becomes the root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RootLayers {
    /// Lowest first.
    pub lowers: Vec<CString>,
    /// The directories for what the guest changes, upper and work; `None` if that is kept in memory.
    pub changes: Option<(CString, CString)>,
    /// A directory that is covered in the sandbox's namespace.
    pub place: CString,
}

/// The file system of a [`NativeSetup`], as the child builds it.
#[derive(Debug)]
pub(crate) struct Blueprint<'a> {
    /// `None` for an empty root.
    pub root: Option<RootLayers>,
    pub operations: Vec<Operation<'a>>,
    /// What is left to do of each.
    pub parts: Vec<Part>,
    pub cwd: CString,
    /// The size of all directories in memory together, as an option of tmpfs; `None` for the
    /// kernel's default.
    pub memory_files: Option<CString>,
}

impl<'a> Blueprint<'a> {
    pub fn new(setup: &'a NativeSetup) -> Result<Self, SetupError> {
        let mut links = Links::default();
        let mut operations = Vec::with_capacity(setup.steps.len());
        for (index, step) in setup.steps.iter().enumerate() {
            let operation = links.operation(step).map_err(|reason| {
                SetupError::new(Cause::InvalidStep { index, reason: format!("`{}` {reason}", step.target().display()) })
            })?;
            operations.push(operation);
        }
        let root = setup.root.as_ref().map(root_layers).transpose().map_err(|reason| {
            SetupError::new(Cause::InvalidStep { index: 0, reason: format!("the image's root {reason}") })
        })?;
        let cwd = working_directory(&setup.cwd, setup.steps.len())?;
        // The text of a number contains no NUL byte.
        let memory_files = setup.memory_files.and_then(|bytes| CString::new(bytes.to_string()).ok());
        let parts = vec![Part::Whole; operations.len()];
        Ok(Self { root, operations, parts, cwd, memory_files })
    }
}

/// Checks the working directory; `index` is the number of steps before it.
pub(crate) fn working_directory(path: &Path, index: usize) -> Result<CString, SetupError> {
    absolute(path).map_err(|reason| {
        let reason = format!("working directory `{}` {reason}", path.display());
        SetupError::new(Cause::InvalidStep { index, reason })
    })
}

fn root_layers(root: &OverlayRoot) -> Checked<RootLayers> {
    Ok(RootLayers {
        lowers: root.lowers.iter().map(|lower| absolute(lower)).collect::<Checked<_>>()?,
        changes: match &root.layer {
            Some(layer) => Some((absolute(&layer.join("upper"))?, absolute(&layer.join("work"))?)),
            None => None,
        },
        place: absolute(&root.place)?,
    })
}

type Checked<T> = Result<T, &'static str>;

/// The symbolic links created by earlier steps. They are resolved here, so that at run time every
/// link on the way to a mount point is a foreign one and can be refused: a guest may have planted
/// it in a writable mount to make a later mount land somewhere else.
#[derive(Default)]
struct Links(Vec<(PathBuf, PathBuf)>);

impl Links {
    fn operation<'a>(&mut self, step: &'a Step) -> Checked<Operation<'a>> {
        Ok(match step {
            Step::Dir { path, mode } => Operation::Dir { at: self.target(path)?, mode: *mode },
            Step::Bind(bind) => Operation::Bind {
                source: absolute(&bind.source)?,
                at: self.target(&bind.target)?,
                attributes: attributes(bind),
                kind: bind.kind,
            },
            Step::Cache(cache) => Operation::Cache {
                host: absolute(&cache.host)?,
                upper: absolute(&cache.layer.join("upper"))?,
                work: absolute(&cache.layer.join("work"))?,
                at: self.target(&cache.target)?,
                is_needed: cache.is_needed,
            },
            Step::Tmpfs { path, mode } => Operation::Tmpfs { at: self.target(path)?, mode: *mode },
            Step::Symlink { path, to } => self.link(path, to)?,
            Step::File { path, content, mode } => Operation::File { at: self.target(path)?, content, mode: *mode },
            Step::Proc => Operation::Proc,
            Step::Dev => Operation::Dev,
        })
    }

    fn link<'a>(&mut self, path: &Path, to: &Path) -> Checked<Operation<'a>> {
        absolute(path)?;
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (self.resolve(parent)?, name),
            _ => return Err("cannot be a symbolic link"),
        };
        let at = parent.join(name);
        self.0.push((at.clone(), normalised(&parent.join(to))));
        Ok(Operation::Symlink { at: relative(&at)?, to: c_string(to.as_os_str())? })
    }

    fn target(&self, path: &Path) -> Checked<CString> {
        absolute(path)?;
        if is_clean(path.as_os_str().as_bytes()) {
            return relative(&self.resolve(path)?);
        }
        relative(&self.resolve(&normalised(path))?)
    }

    fn resolve(&self, path: &Path) -> Checked<PathBuf> {
        let mut path = path.to_owned();
        // The kernel's limit.
        for _ in 0..40 {
            // Both are in their shortest form, so that bytes tell whether a link is on the way.
            let is_on_way = |link: &Path| is_below(path.as_os_str().as_bytes(), link.as_os_str().as_bytes());
            let hit = self.0.iter().find(|(link, _)| is_on_way(link));
            match hit.and_then(|(link, to)| Some((path.strip_prefix(link).ok()?, to))) {
                // `join("")` would append a slash.
                Some((rest, to)) if rest.as_os_str().is_empty() => path = to.clone(),
                Some((rest, to)) => path = to.join(rest),
                None => return Ok(path),
            }
        }
        Err("is in a loop of symbolic links")
    }
}

fn attributes(bind: &Bind) -> u64 {
    let read_only = if bind.writable { 0 } else { MOUNT_ATTR_RDONLY };
    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | read_only
}

fn absolute(path: &Path) -> Checked<CString> {
    if is_clean(path.as_os_str().as_bytes()) {
        return c_string(path.as_os_str());
    }
    if !path.is_absolute() {
        return Err("is not absolute");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("contains `..`");
    }
    c_string(path.as_os_str())
}

fn relative(path: &Path) -> Checked<CString> {
    let inner = path.strip_prefix("/").map_err(|_| "is not absolute")?;
    if inner.as_os_str().is_empty() {
        return Err("is the root itself");
    }
    c_string(inner.as_os_str())
}

fn c_string(text: &OsStr) -> Checked<CString> {
    CString::new(text.as_bytes()).map_err(|_| "contains a NUL byte")
}

fn normalised(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => {
                result.pop();
            }
            _ => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::native::step::NativeLimits;

    fn setup(steps: Vec<Step>) -> NativeSetup {
        NativeSetup {
            root: None,
            steps,
            hostname: "pen".into(),
            uid: 1000,
            gid: 1000,
            cwd: "/w".into(),
            share_network: true,
            listen: None,
            limits: NativeLimits::default(),
            memory_files: None,
            nested: false,
        }
    }

    fn bind(path: impl Into<PathBuf>) -> Step {
        let source = path.into();
        Step::Bind(Bind { target: source.clone(), source, writable: false, kind: BindKind::Directory })
    }

    fn link(path: &str, to: &str) -> Step {
        Step::Symlink { path: path.into(), to: to.into() }
    }

    fn places(steps: Vec<Step>) -> Vec<String> {
        let setup = setup(steps);
        let blueprint = Blueprint::new(&setup).expect("valid");
        let name = |at: &CString| at.to_str().expect("text").to_owned();
        blueprint
            .operations
            .iter()
            .map(|operation| match operation {
                Operation::Dir { at, .. }
                | Operation::Bind { at, .. }
                | Operation::Cache { at, .. }
                | Operation::Tmpfs { at, .. }
                | Operation::Symlink { at, .. }
                | Operation::File { at, .. } => name(at),
                Operation::Proc | Operation::Dev => String::new(),
            })
            .collect()
    }

    #[test]
    fn own_links_are_resolved_before_the_fork() {
        let steps = vec![
            link("/bin", "usr/bin"),
            link("/home", "/var/home"),
            link("/home/me/x", "../y"),
            bind("/bin/tool"),
            bind("/home/me/x/z"),
            bind("/binary"),
            bind("/home"),
        ];
        assert_eq!(
            places(steps),
            ["bin", "home", "var/home/me/x", "usr/bin/tool", "var/home/y/z", "binary", "var/home"]
        );
    }

    #[test]
    fn paths_that_could_lead_astray_are_refused() {
        for (step, reason) in [
            (bind("usr"), "`usr` is not absolute"),
            (bind("/usr/../etc"), "`/usr/../etc` contains `..`"),
            (bind("/"), "`/` is the root itself"),
            (bind("/a\0b"), "`/a\0b` contains a NUL byte"),
        ] {
            let error = Blueprint::new(&setup(vec![Step::Proc, step])).expect_err("invalid");
            let expected = Cause::InvalidStep { index: 1, reason: reason.into() };
            assert_eq!(error.cause, expected);
        }
        let circle = vec![link("/a", "/b"), link("/b", "/a"), bind("/a/c")];
        assert!(Blueprint::new(&setup(circle)).is_err());
    }

    #[test]
    fn names_need_not_be_text() {
        let name = PathBuf::from(OsStr::from_bytes(b"/caf\xe9"));
        let setup = setup(vec![bind(name)]);
        let blueprint = Blueprint::new(&setup).expect("valid");
        assert!(matches!(
            &blueprint.operations[0],
            Operation::Bind { at, .. } if at.as_bytes() == b"caf\xe9"
        ));
    }
}
