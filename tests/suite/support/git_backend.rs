//! Answers requests for repositories as Git's own server does.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use super::SYSTEM_PATH;

/// Runs `git http-backend` for a method and a target over the repositories in `root`, with the request's
/// headers and body. Returns the whole answer.
pub fn git_answer(
    root: &Path,
    home: &Path,
    (method, target): (&str, &str),
    header: impl Fn(&str) -> Option<String>,
    body: Vec<u8>,
) -> Option<Vec<u8>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut backend = Command::new("git");
    backend.env_clear().env("PATH", SYSTEM_PATH).env("HOME", home);
    backend.arg("http-backend").env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query).env("REMOTE_USER", "me");
    backend.env("CONTENT_TYPE", header("Content-Type").unwrap_or_default()).env("REMOTE_ADDR", "127.0.0.1");
    backend.env("HTTP_CONTENT_ENCODING", header("Content-Encoding").unwrap_or_default());
    backend.env("GIT_PROTOCOL", header("Git-Protocol").unwrap_or_default());
    let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().ok()?.stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, content) = (String::from_utf8_lossy(&output[..end]), &output[end + 4..]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let fields: String =
        head.lines().filter(|line| !line.starts_with("Status:")).map(|line| format!("{line}\r\n")).collect();
    let start = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", content.len());
    Some([start.as_bytes(), content].concat())
}
