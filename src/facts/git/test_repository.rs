//! Repositories for tests, made by Git without the configuration of the machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::untrusted_dir::UntrustedDir;

pub struct TestRepository {
    directory: tempfile::TempDir,
}

impl TestRepository {
    pub fn new(options: &[&str]) -> Self {
        let repository = TestRepository { directory: tempfile::tempdir().unwrap() };
        repository.git(&[&["init", "-q", "-b", "main"], options].concat());
        repository
    }

    /// Returns a path in the working tree.
    pub fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), content).unwrap();
    }

    /// Puts something that is not a regular file at a path, in place of what is there.
    pub fn replace_by(&self, path: &str, kind: NotAFile) {
        let path = self.at(path);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir_all(&path);
        match kind {
            NotAFile::Directory => std::fs::create_dir(&path).unwrap(),
            NotAFile::Link => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
            NotAFile::Pipe => {
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
                    .unwrap();
            }
            NotAFile::Socket => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
        }
    }

    pub fn git_dir(&self) -> UntrustedDir {
        UntrustedDir::open(&self.at(".git")).unwrap()
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        self.git_with_input(arguments, b"")
    }

    pub fn git_with_input(&self, arguments: &[&str], input: &[u8]) -> String {
        let (is_ok, output) = git(self.directory.path(), arguments, input);
        assert!(is_ok, "git {arguments:?}: {output}");
        output.trim_end().to_owned()
    }

    /// Makes a commit that changes a file.
    pub fn commit(&self, message: &str) -> String {
        self.write("file", message);
        self.git(&["add", "file"]);
        self.git(&["commit", "-q", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }
}

#[derive(Clone, Copy, Debug)]
pub enum NotAFile {
    Directory,
    Link,
    Pipe,
    Socket,
}

impl NotAFile {
    pub const ALL: [Self; 4] = [NotAFile::Directory, NotAFile::Link, NotAFile::Pipe, NotAFile::Socket];
}

/// Runs Git and returns whether it succeeded, and its output.
#[allow(clippy::disallowed_methods, reason = "compares with Git")]
pub fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("HOME", directory)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap())
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "C")
        .env("GIT_COMMITTER_EMAIL", "c@example.com")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Git may exit before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
