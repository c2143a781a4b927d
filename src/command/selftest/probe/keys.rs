//! Looks for values that are outside: in variables, files, the memory of processes, and the answer of a
//! server that repeats its requests.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::echo;
use super::super::fingerprint::Fingerprint;
use super::ProbeOutcome;
use crate::config::value::HostName;
use crate::host::Environment;
use crate::proxy::Resolver;
use crate::tls::{Client, Roots, Route};

/// The limits of one file, of all files, and of the memory of all processes, in bytes.
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: u64 = 24 << 20;
const MAX_MEMORY: u64 = 48 << 20;
const MAX_DEPTH: usize = 12;
/// How long files may be read that are neither in the home, the workspace nor a directory of the session.
const OTHER_FILES_TIME: Duration = Duration::from_secs(1);
/// Not files but views of the kernel; processes are searched on their own.
const KERNEL_VIEWS: &[&str] = &["/proc", "/sys", "/dev"];
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: u64 = 256 * 1024;

/// What to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysRequest {
    pub needles: Vec<Needle>,
    /// The forms in which a server may repeat the self-test's key.
    pub in_answers: Vec<Fingerprint>,
    pub echo: Option<EchoRequest>,
}

/// A value that must not be inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needle {
    /// Names the value to people.
    pub name: String,
    pub fingerprint: Fingerprint,
}

/// A server to send the self-test's placeholder to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoRequest {
    pub port: u16,
    /// The variable with the placeholder.
    pub variable: String,
}

/// What was searched, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySearch {
    /// Each value that was found, with its place.
    pub found: Vec<String>,
    pub files: usize,
    /// Whether no limit ended the search of files.
    pub is_complete: bool,
    pub processes: usize,
    /// The length of the server's answer; `None` if no server was asked.
    pub answer: Option<ProbeOutcome<usize>>,
}

pub fn search(request: &KeysRequest) -> KeySearch {
    let mut search = Search { needles: &request.needles, left: MAX_FILES, limit: None, result: KeySearch::default() };
    search.result.is_complete = true;
    for (_, value) in std::env::vars_os() {
        search.look(value.as_encoded_bytes(), || "the environment".to_owned());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let first = ["/.sandpen", "/etc", "/tmp", "/run"].map(PathBuf::from).into_iter().chain(home);
    let first: Vec<PathBuf> = first.chain(std::env::current_dir()).collect();
    for directory in &first {
        search.files(directory, MAX_DEPTH, &first);
    }
    search.limit = Some(Instant::now() + OTHER_FILES_TIME);
    let seen: Vec<PathBuf> = KERNEL_VIEWS.iter().map(PathBuf::from).chain(first).collect();
    search.files(Path::new("/"), MAX_DEPTH, &seen);
    search.processes();
    if let Some(echo) = &request.echo {
        let answer = ask(echo);
        if let Ok(text) = &answer
            && request.in_answers.iter().any(|form| form.is_in(text))
        {
            search.result.found.push(format!("{} is in the answer of the echo server", echo.variable));
        }
        search.result.answer = Some(answer.map(|text| text.len()));
    }
    search.result
}

struct Search<'a> {
    needles: &'a [Needle],
    /// How many bytes of files may still be read.
    left: u64,
    /// When the search of files ends.
    limit: Option<Instant>,
    result: KeySearch,
}

impl Search<'_> {
    fn look(&mut self, text: &[u8], place: impl Fn() -> String) {
        for needle in self.needles.iter().filter(|needle| needle.fingerprint.is_in(text)) {
            self.result.found.push(format!("{} is in {}", needle.name, place()));
        }
    }

    /// Searches the files of a directory, without those that are searched on their own.
    fn files(&mut self, directory: &Path, depth: usize, without: &[PathBuf]) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
            if self.left == 0 || self.limit.is_some_and(|limit| Instant::now() > limit) {
                self.result.is_complete = false;
                return;
            }
            if kind.is_dir() && depth > 0 && !without.contains(&path) {
                self.files(&path, depth - 1, without);
            } else if kind.is_file() {
                let mut content = Vec::new();
                let read =
                    File::open(&path).and_then(|file| file.take(MAX_FILE.min(self.left)).read_to_end(&mut content));
                self.left -= read.as_ref().map_or(0, |length| *length as u64);
                self.result.files += usize::from(read.is_ok());
                self.look(&content, || path.display().to_string());
            }
        }
    }

    fn processes(&mut self) {
        let mut left = MAX_MEMORY;
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if process.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
                self.result.processes += 1;
                self.process(&process.path(), &mut left);
            }
        }
    }

    fn process(&mut self, process: &Path, left: &mut u64) {
        for name in ["environ", "cmdline"] {
            let content = fs::read(process.join(name)).unwrap_or_default();
            self.look(&content, || process.join(name).display().to_string());
        }
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let Ok(mut memory) = File::open(process.join("mem")) else { return };
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let Some((Ok(from), Ok(to))) =
                range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)))
            else {
                continue;
            };
            let size = to.saturating_sub(from).min(*left);
            let mut content = Vec::new();
            if memory.seek(SeekFrom::Start(from)).is_ok() {
                // Pages that cannot be read end the range.
                let _ = (&mut memory).take(size).read_to_end(&mut content);
            }
            *left -= content.len() as u64;
            self.look(&content, || process.join("mem").display().to_string());
        }
    }
}

/// Sends the placeholder in a header and a body to the echo server, and returns the answer.
fn ask(echo: &EchoRequest) -> ProbeOutcome<Vec<u8>> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let placeholder = std::env::var(&echo.variable).map_err(|error| text(&error))?;
    let env: Environment = std::env::vars_os().collect();
    let roots = Roots::read(&env).map_err(|error| text(&error))?;
    let route = Route::read(&env).map_err(|error| text(&error))?;
    let client = Client::with(roots, route, Resolver::default());
    let host = HostName::Name(echo::HOST.to_owned());
    let connected = client.connect_through_proxy(&host, echo.port, ANSWER_TIMEOUT);
    let mut stream = connected.map_err(|error| text(&error))?;
    stream.sock.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|error| text(&error))?;
    let head = format!(
        "POST /{placeholder} HTTP/1.1\r\nHost: {host}:{}\r\nAuthorization: Bearer {placeholder}\r\nX-Note: {placeholder}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{placeholder}",
        echo.port,
        placeholder.len()
    );
    stream.write_all(head.as_bytes()).map_err(|error| text(&error))?;
    let mut answer = Vec::new();
    // The end of the connection ends the answer, announced or not.
    let _ = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    if answer.starts_with(b"HTTP/1.1 200 ") {
        return Ok(answer);
    }
    let status = String::from_utf8_lossy(&answer).lines().next().unwrap_or("it closed the connection").to_owned();
    Err(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_wherever_it_is() {
        let value = format!("needle-{}-0123456789abcdefghij", std::process::id());
        let fingerprint = Fingerprint::of(value.as_bytes(), 12345).expect("long enough");
        let needles = [Needle { name: "it".into(), fingerprint }];
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(directory.path().join("below/left-out")).expect("directories");
        let file = directory.path().join("below/file");
        fs::write(&file, format!("x{value}x")).expect("written");
        fs::write(directory.path().join("below/left-out/file"), &value).expect("written");
        let new = || Search { needles: &needles, left: MAX_FILES, limit: None, result: KeySearch::default() };
        let mut files = new();
        files.files(directory.path(), 3, &[directory.path().join("below/left-out")]);
        assert_eq!((files.result.found, files.result.files), (vec![format!("it is in {}", file.display())], 1));
        let mut own = new();
        // The process of all tests may have more memory than that of a guest is searched.
        own.process(Path::new("/proc/self"), &mut u64::MAX.clone());
        assert!(own.result.found.contains(&"it is in /proc/self/mem".to_owned()), "{:?}", own.result);
    }
}
