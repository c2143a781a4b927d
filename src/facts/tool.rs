//! Finds the files that a command installed below HOME (by nvm, pipx, uv, cargo or its own
//! installer) needs. Follows each link and interpreter, so that no other part of HOME is mounted.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::program::SearchPath;
use crate::path::{HostPath, resolve_dots};

/// Roots of installations below HOME. `*` matches one name.
const LAYOUTS: &[&str] = &[
    ".nvm/versions/node/*",
    ".local/share/fnm/node-versions/*",
    ".fnm/node-versions/*",
    ".nodenv/versions/*",
    ".volta",
    ".bun",
    ".deno",
    ".local/share/pipx/venvs/*",
    ".local/pipx/venvs/*",
    ".local/share/uv/tools/*",
    ".local/share/uv/python/*",
    ".pyenv/versions/*",
    ".rbenv/versions/*",
    ".local/share/mise/installs/*/*",
    ".asdf/installs/*/*",
    ".sdkman/candidates/*/*",
    ".cargo/bin",
    ".rustup",
    ".local/lib/node_modules/*",
    ".local/share/*",
    ".npm-global",
    ".opencode",
    "go/bin",
];

/// Proxies that run the real program from a second directory, which must be mounted as well.
const COMPANIONS: &[(&str, &str)] = &[(".cargo/bin", ".rustup")];

/// Stops at loops of links.
const LONGEST_CHAIN: usize = 16;

/// The paths that a command needs inside, read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolFacts {
    /// The first match on PATH.
    pub program: Option<HostPath>,
    /// Installation directories and single files.
    pub shown: Vec<HostPath>,
    /// Links that were followed: their path and their target as written.
    pub links: Vec<(HostPath, PathBuf)>,
}

impl ToolFacts {
    /// Traces a command. Programs in the system's directories need no further files.
    pub fn trace(command: &str, home: &HostPath, path: &SearchPath) -> Self {
        let mut tool = ToolFacts { program: path.find(command), ..ToolFacts::default() };
        let mut pending: Vec<HostPath> = tool.program.clone().into_iter().collect();
        for _ in 0..LONGEST_CHAIN {
            let Some(program) = pending.pop() else { break };
            pending.extend(tool.follow(&program, home, path));
        }
        tool.shown.sort();
        tool.shown.dedup();
        // A path within another entry is mounted with that entry.
        let all = tool.shown.clone();
        tool.shown.retain(|path| !all.iter().any(|other| path != other && path.is_within(other)));
        tool.links.retain(|(link, _)| !all.iter().any(|shown| link.is_within(shown)));
        tool
    }

    /// Adds the installation of a program, or the link that it is; returns the programs to follow
    /// next.
    fn follow(&mut self, program: &HostPath, home: &HostPath, path: &SearchPath) -> Vec<HostPath> {
        if is_system(program) {
            return Vec::new();
        }
        if let Ok(to) = fs::read_link(program.as_path()) {
            let Some(target) = resolve(program, &to) else { return Vec::new() };
            self.links.push((program.clone(), to));
            return vec![target];
        }
        let root = installation(program, home);
        let mut next = interpreters(program, path);
        next.extend(python_home(&root));
        for (front, companion) in COMPANIONS {
            if root == home.join(front) {
                self.shown.push(home.join(companion));
            }
        }
        self.shown.push(root);
        next
    }
}

fn is_system(program: &HostPath) -> bool {
    ["/usr", "/bin", "/sbin", "/lib"].iter().any(|root| program.as_path().starts_with(root))
}

/// Follows a link by one step.
fn resolve(link: &HostPath, to: &Path) -> Option<HostPath> {
    let parent = link.as_path().parent()?.canonicalize().ok()?;
    HostPath::new(resolve_dots(&parent.join(to))).ok()
}

/// Returns the directory of a known layout, else the one above `bin`, else the program's file
/// alone.
fn installation(program: &HostPath, home: &HostPath) -> HostPath {
    let Ok(below) = program.as_path().strip_prefix(home.as_path()) else { return outside_home(program) };
    for layout in LAYOUTS {
        let pattern: Vec<&str> = layout.split('/').collect();
        let names: Vec<_> = below.components().map(|part| part.as_os_str()).collect();
        let fits = names.len() > pattern.len()
            && pattern.iter().zip(&names).all(|(wanted, name)| *wanted == "*" || **name == **wanted);
        if fits {
            return home.join(names[..pattern.len()].iter().collect::<PathBuf>());
        }
    }
    let bin = program.as_path().parent();
    let above = bin.filter(|bin| bin.ends_with("bin")).and_then(Path::parent).and_then(|path| HostPath::new(path).ok());
    match above {
        // `~/bin` and `~/.local/bin` collect programs of many installations.
        Some(above) if above != *home && above != home.join(".local") => above,
        _ => program.clone(),
    }
}

/// Returns `/opt/NAME`, `/nix/store` or `/snap/NAME`; elsewhere only the program's file.
fn outside_home(program: &HostPath) -> HostPath {
    let parts: Vec<_> = program.as_path().iter().take(3).collect();
    match parts.as_slice() {
        [_, first, _] if *first == "opt" || *first == "nix" || *first == "snap" => {
            HostPath::new(parts.iter().collect::<PathBuf>()).unwrap_or_else(|_| program.clone())
        }
        _ => program.clone(),
    }
}

/// Reads the interpreter of a script from `#!/path` or `#!/usr/bin/env name`.
fn interpreters(program: &HostPath, path: &SearchPath) -> Vec<HostPath> {
    let mut start = Vec::new();
    let read = fs::File::open(program.as_path()).and_then(|file| file.take(512).read_to_end(&mut start));
    if read.is_err() || !start.starts_with(b"#!") {
        return Vec::new();
    }
    let line = String::from_utf8_lossy(&start);
    let mut words = line.lines().next().unwrap_or_default()[2..].split_whitespace();
    let Some(interpreter) = words.next() else { return Vec::new() };
    if interpreter.ends_with("/env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
        return name.and_then(|name| path.find(name)).into_iter().collect();
    }
    HostPath::new(interpreter).into_iter().collect()
}

/// Reads the Python that a virtual environment was made from.
fn python_home(root: &HostPath) -> Option<HostPath> {
    let config = fs::read_to_string(root.join("pyvenv.cfg").as_path()).ok()?;
    let home = config.lines().find_map(|line| line.strip_prefix("home = "))?;
    HostPath::new(Path::new(home.trim()).join("python3")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct World {
        _directory: tempfile::TempDir,
        home: HostPath,
    }

    fn world() -> Option<World> {
        let directory = tempfile::tempdir_in("/var/tmp").ok()?;
        let home = HostPath::new(directory.path().canonicalize().ok()?).ok()?;
        Some(World { _directory: directory, home })
    }

    impl World {
        fn program(&self, path: &str, content: &str) -> Option<()> {
            let path = self.home.join(path);
            fs::create_dir_all(path.as_path().parent()?).ok()?;
            fs::write(path.as_path(), content).ok()?;
            fs::set_permissions(path.as_path(), fs::Permissions::from_mode(0o755)).ok()
        }

        fn link(&self, path: &str, to: &str) -> Option<()> {
            let path = self.home.join(path);
            fs::create_dir_all(path.as_path().parent()?).ok()?;
            symlink(to, path.as_path()).ok()
        }

        fn trace(&self, command: &str, path: &[&str]) -> (Vec<String>, Vec<String>) {
            let outside = path.iter().map(|entry| self.home.join(entry)).collect();
            let tool = ToolFacts::trace(command, &self.home, &SearchPath { outside, ..SearchPath::default() });
            let below = |path: &HostPath| {
                path.as_path().strip_prefix(self.home.as_path()).map(|p| p.display().to_string()).unwrap_or_default()
            };
            (tool.shown.iter().map(below).collect(), tool.links.iter().map(|(link, _)| below(link)).collect())
        }
    }

    #[test]
    fn an_own_installer_shows_its_versions_and_the_link() {
        let world = world();
        let traced = world.as_ref().and_then(|world| {
            world.program(".local/share/claude/versions/1.0", "\x7fELF")?;
            world.link(".local/bin/claude", "../share/claude/versions/1.0")?;
            Some(world.trace("claude", &[".local/bin"]))
        });
        assert_eq!(traced, Some((vec![".local/share/claude".into()], vec![".local/bin/claude".into()])));
    }

    #[test]
    fn nvm_shows_one_version_of_node() {
        let world = world();
        let traced = world.as_ref().and_then(|world| {
            world.program(".nvm/versions/node/v22/lib/node_modules/gemini/cli.js", "#!/usr/bin/env node\n")?;
            world.program(".nvm/versions/node/v22/bin/node", "\x7fELF")?;
            world.program(".nvm/versions/node/v18/bin/node", "\x7fELF")?;
            world.link(".nvm/versions/node/v22/bin/gemini", "../lib/node_modules/gemini/cli.js")?;
            Some(world.trace("gemini", &[".nvm/versions/node/v22/bin"]))
        });
        assert_eq!(traced, Some((vec![".nvm/versions/node/v22".into()], vec![])));
    }

    #[test]
    fn a_python_tool_shows_its_environment_and_its_python() {
        let world = world();
        let traced = world.as_ref().and_then(|world| {
            let home = &world.home;
            world.program(".local/share/uv/python/cpython-3.12/bin/python3.12", "\x7fELF")?;
            world.link(
                ".local/share/uv/tools/aider/bin/python",
                &format!("{home}/.local/share/uv/python/cpython-3.12/bin/python3.12"),
            )?;
            world.program(
                ".local/share/uv/tools/aider/bin/aider",
                &format!("#!{home}/.local/share/uv/tools/aider/bin/python\n"),
            )?;
            world.link(".local/bin/aider", &format!("{home}/.local/share/uv/tools/aider/bin/aider"))?;
            Some(world.trace("aider", &[".local/bin"]))
        });
        let shown = vec![".local/share/uv/python/cpython-3.12".into(), ".local/share/uv/tools/aider".into()];
        assert_eq!(traced, Some((shown, vec![".local/bin/aider".into()])));
    }

    #[test]
    fn a_single_file_shows_itself_and_nothing_beside_it() {
        let world = world();
        let traced = world.as_ref().and_then(|world| {
            world.program(".local/bin/tool", "\x7fELF")?;
            world.program(".local/bin/other", "\x7fELF")?;
            Some(world.trace("tool", &[".local/bin"]))
        });
        assert_eq!(traced, Some((vec![".local/bin/tool".into()], vec![])));
    }

    #[test]
    fn cargo_brings_its_toolchains_and_a_loop_ends() {
        let world = world();
        let traced = world.as_ref().and_then(|world| {
            world.program(".cargo/bin/cargo", "\x7fELF")?;
            world.link(".local/bin/loop", "loop2")?;
            world.link(".local/bin/loop2", "loop")?;
            Some((world.trace("cargo", &[".cargo/bin"]).0, world.trace("loop", &[".local/bin"]).0))
        });
        assert_eq!(traced, Some((vec![".cargo/bin".into(), ".rustup".into()], vec![])));
    }

    #[test]
    fn system_programs_need_nothing() {
        let path = SearchPath { outside: HostPath::new("/bin").into_iter().collect(), ..SearchPath::default() };
        let home = HostPath::new("/home/me");
        let tool = home.map(|home| ToolFacts::trace("sh", &home, &path));
        assert_eq!(tool.map(|tool| (tool.shown, tool.links)), Ok((vec![], vec![])));
    }
}
