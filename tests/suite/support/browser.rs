//! Drives Debian's Chromium without a window, over the pipe of its DevTools protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{TIMEOUT, eventually, skip};

const PROGRAM: &str = "/usr/bin/chromium";

/// One page. Dropping it ends the browser.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    session: Value,
    number: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser. Without it, the test is recorded as skipped. `options` are further arguments.
    pub fn start(options: &[&str]) -> Option<Self> {
        if !std::path::Path::new(PROGRAM).exists() {
            skip("chromium", "it is not installed; `scripts/test` installs it as root");
            return None;
        }
        let profile = tempfile::Builder::new().prefix("sandpen-browser-").tempdir_in("/var/tmp").expect("directory");
        let mut command = Command::new("/bin/sh");
        // The browser uses the descriptors 3 and 4.
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --remote-debugging-pipe --user-data-dir=\"$HOME\" \"$@\" about:blank 3<&0 4>&1 1>/dev/null 2>&1";
        command.args(["-c", script, PROGRAM]).args(options).env_clear().env("HOME", profile.path());
        command.env("PATH", super::SYSTEM_PATH).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the browser starts");
        let (sender, output) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        thread::spawn(move || {
            for message in stdout.split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).expect("JSON");
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take().expect("stdin");
        let mut browser = Browser { child, input, output, session: Value::Null, number: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].clone();
        browser.call("Page.enable", json!({}));
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    #[track_caller]
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let text = [message.to_string().as_bytes(), b"\0"].concat();
        self.input.write_all(&text).and_then(|()| self.input.flush()).expect("the browser reads");
        loop {
            let answer = self.output.recv_timeout(TIMEOUT).expect("the browser answers");
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
    }

    /// Evaluates an expression in the page, and waits for a promise.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. A page that is being loaded has no value.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let guarded = format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        eventually(expression, || self.evaluate(&guarded) == true);
    }

    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = if key == "Enter" { 13 } else { 0 };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code}),
            );
        }
    }

    pub fn text(&mut self) -> String {
        self.evaluate("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
