//! A Git server over SSH, and a clone of its repository in the fixture's project.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::ssh::sshd::Sshd;
use crate::support::{Engine, Finished, Fixture, RunToEnd};

pub struct GitServer {
    /// Runs the server.
    pub fixture: Fixture,
    _sshd: Sshd,
    pub repository: PathBuf,
    pub url: String,
}

impl GitServer {
    /// Starts a server with a repository whose branch `main` has one commit, and clones it to the
    /// project.
    pub fn start(client: &Fixture) -> Self {
        Self::start_with(client, "AcceptEnv GIT_PROTOCOL")
    }

    /// Starts a server with further lines of sshd's configuration.
    pub fn start_with(client: &Fixture, sshd_config: &str) -> Self {
        let fixture = Fixture::new().with_engine(Engine::PodmanRootless);
        let sshd = Sshd::start(&fixture, sshd_config);
        let repository = make_repository(&fixture, "app.git");
        let address = format!("{}@127.0.0.1:{}", fixture.user_name(), sshd.port);
        let url = format!("ssh://{address}{}", repository.display());
        let key = client.outside("client").join("key");
        fs::copy(&sshd.identity, &key).expect("a copy");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("permissions");
        client.give_to_user(&key);
        let known = client.write("../client/known_hosts", &sshd.known);
        let command =
            format!("ssh -F none -i {} -o IdentitiesOnly=yes -o UserKnownHostsFile={}", key.display(), known.display());
        client.write(".gitconfig", &gitconfig(&format!("[core]\n\tsshCommand = {command}\n")));
        client.host_command("git").args(["clone", "-q", &url, "."]).finish().success();
        GitServer { fixture, _sshd: sshd, repository, url }
    }

    pub fn git(&self, arguments: &[&str]) -> Finished {
        self.fixture.host_command("git").arg("-C").arg(&self.repository).args(arguments).finish()
    }

    /// Returns the subject of a ref's commit, or nothing if there is no such ref.
    pub fn subject(&self, name: &str) -> String {
        self.git(&["log", "-1", "--format=%s", name, "--"]).stdout.trim().to_owned()
    }

    /// Reads every file that decides what refs the server has.
    pub fn refs(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        ref_files(&self.repository)
    }
}

/// Replaces a repository by an empty one, whose HEAD names a branch that does not exist.
pub fn empty(fixture: &Fixture, repository: &Path, head: &str) {
    let script = format!(
        "set -e; cd '{0}'; git for-each-ref --format='delete %(refname)' | git update-ref --stdin
        git symbolic-ref HEAD refs/heads/{head}",
        repository.display()
    );
    fixture.host_command("bash").args(["-c", &script]).finish().success();
}

/// Returns the configuration of the user, with further lines.
pub fn gitconfig(more: &str) -> String {
    format!("[user]\n\tname = Git User\n\temail = git@example.org\n[safe]\n\tdirectory = *\n{more}")
}

/// Makes a bare repository whose branch `main` has one commit.
pub fn make_repository(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.write(".gitconfig", &gitconfig(""));
    let repository = fixture.outside("server").join(name);
    let script = format!(
        "set -e; git init -q -b main '{0}.seed'; cd '{0}.seed'; echo 1 >file; git add file; git commit -q -m first
        git clone -q --bare . '{0}'; cd '{0}'; git config http.receivepack true; git config uploadpack.allowFilter true
        git config receive.advertisePushOptions true; git config receive.certNonceSeed seed
        git config receive.denyDeleteCurrent ignore; git config uploadpack.allowAnySHA1InWant true
        git pack-refs --all",
        repository.display()
    );
    fixture.host_command("bash").args(["-c", &script]).finish().success();
    repository
}

pub fn ref_files(repository: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![repository.join("refs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            match entry.path() {
                path if path.is_dir() => directories.push(path),
                path => drop(files.insert(path.clone(), fs::read(&path).expect("a file"))),
            }
        }
    }
    for name in ["HEAD", "packed-refs"] {
        files.insert(repository.join(name), fs::read(repository.join(name)).unwrap_or_default());
    }
    files
}

/// Runs a script in a sandbox with rules for pushes.
pub fn bash(fixture: &Fixture, rules: &[&str], script: &str) -> Finished {
    let mut command = fixture.run();
    for rule in rules {
        command.args(["--push", rule]);
    }
    command.args(["--", "bash", "-c", script]).finish()
}
