//! Tests what the layouts of common installers show, and that nothing beside them is shown.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::trace::Trace;
use super::*;

struct World {
    _directory: tempfile::TempDir,
    home: HostPath,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
        let home = HostPath::new(directory.path().canonicalize().expect("real path")).expect("absolute");
        World { _directory: directory, home }
    }

    fn program(&self, path: &str, content: &str) -> &Self {
        self.file(path, content);
        fs::set_permissions(self.home.join(path).as_path(), fs::Permissions::from_mode(0o755)).expect("mode");
        self
    }

    fn file(&self, path: &str, content: &str) -> &Self {
        let path = self.home.join(path);
        fs::create_dir_all(path.as_path().parent().expect("parent")).expect("directories");
        fs::write(path.as_path(), content).expect("file");
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.home.join(path);
        fs::create_dir_all(path.as_path().parent().expect("parent")).expect("directories");
        symlink(to, path.as_path()).expect("link");
        self
    }

    fn path(&self, entries: &[&str]) -> SearchPath {
        let outside = entries.iter().map(|entry| self.home.join(entry)).collect();
        SearchPath { outside, ..SearchPath::default() }
    }

    /// Returns what is shown and which links are created, relative to HOME.
    fn below(&self, traced: &Traced) -> (Vec<String>, Vec<String>) {
        let below = |path: &HostPath| {
            path.as_path().strip_prefix(self.home.as_path()).map_or(path.to_string(), |path| path.display().to_string())
        };
        (
            traced.shown.iter().map(|(path, _)| below(path)).collect(),
            traced.links.iter().map(|(link, _)| below(link)).collect(),
        )
    }

    /// Traces directories of PATH.
    fn directories(&self, entries: &[&str]) -> (Vec<String>, Vec<String>) {
        let path = self.path(entries);
        let mut trace = Trace::new(&self.home, &path, &[]);
        path.outside.iter().for_each(|entry| trace.directory(entry));
        self.below(&trace.finish())
    }

    fn shown(&self, entries: &[&str]) -> Vec<String> {
        self.directories(entries).0
    }

    /// Traces one command.
    fn command(&self, command: &str, entries: &[&str], writable: &[&str]) -> (Vec<String>, Vec<String>) {
        let path = self.path(entries);
        let writable: Vec<_> = writable.iter().map(|root| self.home.join(root)).collect();
        let mut trace = Trace::new(&self.home, &path, &writable);
        let program = path.find(command).expect("the command is on PATH");
        trace.program(&program);
        trace.wrapper(&program);
        trace.own_data(&program);
        self.below(&trace.finish())
    }
}

#[test]
fn an_own_installer_shows_its_versions_and_the_link() {
    let world = World::new();
    world
        .program(".local/share/claude/versions/1.0", "\x7fELF")
        .link(".local/bin/claude", "../share/claude/versions/1.0");
    let command = world.command("claude", &[".local/bin"], &[]);
    assert_eq!(command, (vec![".local/share/claude".into()], vec![".local/bin/claude".into()]));
    let path = world.directories(&[".local/bin"]);
    assert_eq!(path, (vec![".local/bin".into(), ".local/share/claude/versions".into()], vec![]));
}

#[test]
fn nvm_shows_one_version_of_node_and_no_settings_of_npm() {
    let world = World::new();
    let node = ".nvm/versions/node/v22";
    world.program(&format!("{node}/lib/node_modules/gemini/cli.js"), "#!/usr/bin/env node\n");
    world.program(&format!("{node}/bin/node"), "\x7fELF").program(".nvm/versions/node/v18/bin/node", "\x7fELF");
    world.link(&format!("{node}/bin/gemini"), "../lib/node_modules/gemini/cli.js");
    assert_eq!(world.directories(&[&format!("{node}/bin")]), (vec![node.into()], vec![]));
    world.file(&format!("{node}/etc/npmrc"), "//registry/:_authToken=secret");
    assert_eq!(world.shown(&[&format!("{node}/bin")]), [format!("{node}/bin"), format!("{node}/lib")]);
}

#[test]
fn tools_of_pipx_and_uv_show_their_environment_and_its_python() {
    let world = World::new();
    let home = &world.home;
    let (python, tool) = (".local/share/uv/python/cpython-3.12", ".local/share/uv/tools/aider");
    world.program(&format!("{python}/bin/python3.12"), "\x7fELF").link(&format!("{python}/bin/python3"), "python3.12");
    world.file(&format!("{python}/lib/python3.12/os.py"), "");
    world.link(&format!("{tool}/bin/python"), &format!("{home}/{python}/bin/python3.12"));
    world.program(&format!("{tool}/bin/aider"), &format!("#!{home}/{tool}/bin/python\n"));
    world.file(&format!("{tool}/pyvenv.cfg"), &format!("home = {home}/{python}/bin\n"));
    world.link(".local/bin/aider", &format!("{home}/{tool}/bin/aider"));
    world.file(".local/share/keyrings/login", "secret");
    assert_eq!(world.shown(&[".local/bin"]), [".local/bin", python, tool]);
    assert_eq!(
        world.command("aider", &[".local/bin"], &[]),
        (vec![python.into(), tool.into()], vec![".local/bin/aider".into()])
    );
}

#[test]
fn many_environments_are_shown_by_their_directory() {
    let world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        let tool = format!(".local/share/pipx/venvs/{name}");
        world.program(&format!("{tool}/bin/{name}"), "#!/usr/bin/python3\n");
        world.file(&format!("{tool}/pyvenv.cfg"), "home = /usr/bin\n");
        world.link(&format!(".local/bin/{name}"), &format!("../share/pipx/venvs/{name}/bin/{name}"));
    }
    assert_eq!(world.shown(&[".local/bin"]), [".local/bin", ".local/share/pipx/venvs"]);
}

#[test]
fn cargo_brings_its_toolchains_and_not_its_credentials() {
    let world = World::new();
    world.program(".cargo/bin/rustup", "\x7fELF").link(".cargo/bin/cargo", "rustup");
    // Not even if they appear while the sandbox runs.
    assert_eq!(world.shown(&[".cargo/bin"]), [".cargo/bin"]);
    world.file(".cargo/credentials.toml", "token").file(".cargo/registry/index", "").file(".rustup/settings.toml", "");
    assert_eq!(world.shown(&[".cargo/bin"]), [".cargo/bin", ".rustup"]);
}

#[test]
fn version_managers_bring_their_root() {
    for root in [".pyenv", ".rbenv", ".asdf", ".local/share/mise"] {
        let world = World::new();
        world.program(&format!("{root}/shims/python3"), "#!/usr/bin/env bash\n");
        world.program(&format!("{root}/versions/3.12/bin/python3"), "\x7fELF").file(".tool-versions", "python 3.12\n");
        assert_eq!(world.shown(&[&format!("{root}/shims")]), [root, ".tool-versions"], "{root}");
    }
}

#[test]
fn a_link_in_the_path_of_a_directory_is_created() {
    let world = World::new();
    world.program(".sdkman/candidates/java/21/bin/java", "\x7fELF").file(".sdkman/candidates/java/21/release", "");
    world.link(".sdkman/candidates/java/current", "21").file(".sdkman/etc/config", "");
    assert_eq!(
        world.directories(&[".sdkman/candidates/java/current/bin"]),
        (vec![".sdkman/candidates/java/21".into()], vec![".sdkman/candidates/java/current".into()])
    );
}

#[test]
fn programs_of_other_package_managers_show_their_packages() {
    let world = World::new();
    world.program(".config/composer/vendor/bin/tool", "").file(".config/composer/auth.json", "secret");
    world.program(".gem/ruby/3.1.0/bin/rake", "").file(".gem/ruby/3.1.0/gems/rake", "").file(".gem/credentials", "");
    world
        .program(".bun/install/global/node_modules/x/cli.js", "")
        .link(".bun/bin/x", "../install/global/node_modules/x/cli.js");
    world.program("go/bin/gopls", "").file("go/src/private/main.go", "");
    world.program("sdk/go1.22/bin/go", "").file("sdk/go1.22/go.env", "").file("sdk/go1.22/src/fmt/print.go", "");
    assert_eq!(world.shown(&[".config/composer/vendor/bin"]), [".config/composer/vendor"]);
    assert_eq!(world.shown(&[".gem/ruby/3.1.0/bin"]), [".gem/ruby/3.1.0"]);
    assert_eq!(world.shown(&[".bun/bin"]), [".bun/bin", ".bun/install/global/node_modules"]);
    assert_eq!(world.shown(&["go/bin"]), ["go/bin"]);
    assert_eq!(world.shown(&["sdk/go1.22/bin"]), ["sdk/go1.22"]);
}

#[test]
fn a_directory_of_programs_does_not_show_the_one_above() {
    let world = World::new();
    world.program("work/bin/tool", "\x7fELF").file("work/lib/private.py", "").file("work/secret", "");
    world.program("bin/tool", "\x7fELF").file("secret", "");
    assert_eq!(world.shown(&["work/bin", "bin"]), ["bin", "work/bin"]);
    assert_eq!(world.command("tool", &["work/bin"], &[]).0, ["work/bin/tool"]);
}

#[test]
fn a_directory_with_other_things_shows_its_programs_only() {
    let world = World::new();
    world.program("work/tool", "\x7fELF").file("work/notes", "").file("work/private/key", "").program("run", "");
    assert_eq!(world.shown(&["work", ""]), ["run", "work/tool"]);
}

#[test]
fn a_wrapper_brings_the_program_that_it_starts() {
    let world = World::new();
    world.program(".agent/local/node_modules/.bin/agent", "\x7fELF");
    world.program("bin/agent", "#!/bin/sh\nexec \"$HOME/.agent/local/node_modules/.bin/agent\" \"$@\"\n");
    world.file(".agent/login", "secret");
    assert_eq!(world.command("agent", &["bin"], &[]).0, [".agent/local/node_modules", "bin/agent"]);
}

#[test]
fn nothing_that_the_guest_can_write_is_followed() {
    let world = World::new();
    let key = world.home.join(".ssh/deep/id_ed25519");
    world.program(".ssh/deep/id_ed25519", "secret");
    world.program(".agent/local/agent", &format!("#!{key}\n")).link(".agent/local/other", &key.to_string());
    assert_eq!(world.command("agent", &[".agent/local"], &[".agent"]), (vec![], vec![]));
    assert_eq!(world.command("other", &[".agent/local"], &[".agent"]), (vec![], vec![]));
}

#[test]
fn a_file_that_is_no_program_is_not_followed_to() {
    let world = World::new();
    world.file(".ssh/id_ed25519", "secret");
    world.program("bin/tool", &format!("#!{}/.ssh/id_ed25519\n", world.home)).link("bin/key", "../.ssh/id_ed25519");
    assert_eq!(world.directories(&["bin"]), (vec!["bin".into()], vec![]));
}

#[test]
fn an_environment_of_the_guest_can_only_name_a_python() {
    let world = World::new();
    let home = &world.home;
    world.program(".secret/deep/bin/python3", "").file(".secret/deep/token", "");
    world.file("project/.venv/pyvenv.cfg", &format!("home = {home}/.secret/deep/bin\n"));
    world.program(".python/3.12/bin/python3.12", "").link(".python/3.12/bin/python3", "python3.12");
    world.file(".python/3.12/lib/python3.12/os.py", "");
    world.file("project/good/pyvenv.cfg", &format!("home = {home}/.python/3.12/bin\n"));
    let base = |environment: &str| {
        let path = world.path(&[]);
        let mut trace = Trace::new(home, &path, &[]);
        trace.base_of(home.join(environment).as_path());
        world.below(&trace.finish()).0
    };
    assert_eq!(base("project/.venv"), Vec::<String>::new());
    assert_eq!(base("project/good"), [".python/3.12"]);
}

#[test]
fn loops_of_links_end_and_system_programs_need_nothing() {
    let world = World::new();
    world.link("bin/loop", "loop2").link("bin/loop2", "loop").link("bin/sh", "/bin/sh");
    assert_eq!(world.directories(&["bin"]), (vec!["bin".into()], vec![]));
}
