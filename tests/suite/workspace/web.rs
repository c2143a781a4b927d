//! Tests the page of `diff --web`: what it shows and does in a browser, and who is refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::{copies, git, in_copy, prepare, snapshot};
use crate::support::{Browser, Engine, Fixture, Running};

/// The server of one copy.
struct Server {
    running: Running,
    /// What follows `http://`: `127.0.0.1:PORT`.
    authority: String,
    token: String,
}

impl Server {
    fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        let mut running = Running::start(fixture.sandpen(["diff", "--web"]).args(arguments));
        let line = running.line();
        let rest = line.strip_prefix("http://127.0.0.1:").expect("an address of this machine");
        let (port, token) = rest.split_once("/?token=").expect("a token");
        assert_eq!(token.len(), 64);
        Server { authority: format!("127.0.0.1:{port}"), token: token.to_owned(), running }
    }

    fn address(&self) -> String {
        format!("http://{}/?token={}", self.authority, self.token)
    }

    /// Sends a head, and a body if there is one, and returns the answer.
    fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut stream = TcpStream::connect(&self.authority).expect("connection");
        let mut head = format!("{request} HTTP/1.1\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("request");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Loads the page and returns it with the session's key.
    fn load(&self) -> (String, String) {
        let page = self.ask(&format!("GET /?token={}", self.token), &[("Host", &self.authority)], "");
        let rest = page.split_once("name=\"session\" content=\"").expect("a key").1;
        let key = rest[..64].to_owned();
        (page, key)
    }
}

fn on_native(test: impl FnOnce(&Fixture)) {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        test(fixture);
    });
}

#[test]
fn nothing_is_answered_without_the_token_of_the_page() {
    on_native(|fixture| {
        in_copy(fixture, "guarded", "echo new > new");
        let before = snapshot(&fixture.project);
        let server = Server::start(fixture, &[]);
        let (host, own) = (server.authority.clone(), format!("http://{}", server.authority));
        let wrong = "0".repeat(64);
        for request in ["GET /", "GET /review", "GET /hunks?1-0", "GET /favicon.ico", "POST /apply", "POST /discard"] {
            let answer = server.ask(request, &[("Host", &host), ("Origin", &own)], "");
            assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
        }
        let open = format!("GET /?token={}", server.token);
        for headers in [
            &[("Host", "localhost")][..],
            &[("Host", "rebound.example")],
            &[("Host", &host), ("Host", &host)],
            &[],
            &[("Host", &host), ("Origin", "http://rebound.example")],
            &[("Host", &host), ("Sec-Fetch-Dest", "iframe")],
        ] {
            let answer = server.ask(&open, headers, "");
            assert!(answer.starts_with("HTTP/1.1 403 "), "{headers:?}: {answer}");
        }
        let answer = server.ask(&format!("GET /?token={wrong}"), &[("Host", &host)], "");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");

        let (page, key) = server.load();
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        for part in ["default-src 'none'; script-src 'sha256-", "frame-ancestors 'none'", "trusted-types 'none'"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("unsafe-"), "the policy has no exception");
        let again = server.ask(&open, &[("Host", &host)], "");
        assert!(again.starts_with("HTTP/1.1 403 "), "the token works once: {again}");

        let bearer = format!("Bearer {key}");
        let login = ("Authorization", bearer.as_str());
        for headers in [
            &[("Host", "rebound.example"), ("Origin", &own), login][..],
            &[("Host", &host), ("Origin", "http://127.0.0.1:1"), login],
            &[("Host", &host), ("Origin", "null"), login],
            &[("Host", &host), login],
            &[("Host", &host), ("Origin", &own), ("Authorization", "Bearer 0")],
            &[("Host", &host), ("Origin", &own), ("Sec-Fetch-Site", "same-site"), login],
        ] {
            let answer = server.ask("POST /discard", headers, "");
            assert!(answer.starts_with("HTTP/1.1 403 "), "{headers:?}: {answer}");
        }
        let own_headers = [("Host", host.as_str()), ("Origin", own.as_str()), login];
        let unknown = server.ask("GET /../etc/passwd", &own_headers, "");
        assert!(unknown.starts_with("HTTP/1.1 409 "), "{unknown}");
        for body in ["", "{", r#"{"review":7,"files":[]}"#, r#"{"review":1,"files":[{"number":9999}]}"#] {
            let answer = server.ask("POST /apply", &own_headers, body);
            assert!(answer.contains("earlier state"), "{body}: {answer}");
        }
        assert_eq!((snapshot(&fixture.project), copies(fixture)), (before, vec!["guarded".to_owned()]));
    });
}

#[test]
fn the_page_shows_changes_and_applies_what_is_ticked() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    on_native(|fixture| {
        let script = "set -e; sed -i 's/^2$/two/; s/^19$/nineteen/' file; rm gone; echo n > dir/new; echo i > build/i; \
                      echo y > dir/other; git commit --quiet --all --message 'One and two'";
        in_copy(fixture, "looked", script);
        fixture.write("project/dir/other", "mine\n");
        let mut server = Server::start(fixture, &[]);
        browser.open(&server.address());
        browser.wait_for("document.querySelector('.overview h2')");
        let text = browser.text();
        for part in ["3 of 4 ticked", "4 changed files", "One and two", "dir/other", "1 file that Git ignores"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The conflict is not ticked. One hunk of two is left.
        browser.evaluate("show(model.files.find((file) => file.path === 'file'))");
        browser.wait_for("document.querySelectorAll('.hunk').length === 2");
        browser.press("j");
        browser.press("x");
        browser.press("s");
        browser.wait_for("document.querySelector('.split')");
        browser.wait_for("document.querySelector('#chosen').textContent.includes('1 in part')");
        browser.press("a");
        browser.wait_for("document.querySelector('dialog').open");
        browser.press("Enter");
        browser.wait_for("document.querySelector('#said').textContent.includes('3 files applied')");
        let file = fs::read_to_string(fixture.project.join("file")).expect("file");
        assert!(file.contains("\ntwo\n") && file.contains("\n19\n"), "{file}");
        assert!(!fixture.project.join("gone").exists() && fixture.project.join("dir/new").exists());
        assert_eq!(fs::read_to_string(fixture.project.join("dir/other")).expect("file"), "mine\n");
        assert!(!fixture.project.join("build/i").exists(), "ignored files are not taken");

        // The page can be loaded again, and the address from the terminal cannot.
        browser.evaluate("location.reload()");
        browser.wait_for("document.querySelector('.overview h2').textContent.startsWith('2 changed')");
        browser.press("u");
        browser.wait_for("document.querySelector('.overview h2').textContent.startsWith('4 changed')");
        assert!(fixture.project.join("gone").exists() && !fixture.project.join("dir/new").exists());

        browser.press("D");
        browser.wait_for("document.querySelector('dialog').open");
        assert_eq!(browser.evaluate("document.activeElement.textContent"), "Cancel");
        browser.evaluate("document.querySelector('dialog .danger').click()");
        browser.wait_for("document.body.textContent.includes('The copy is removed')");
        assert_eq!(server.running.finish().code, Some(0), "the command ends with the copy");
        assert_eq!(copies(fixture), Vec::<String>::new());
        assert_eq!(git(fixture, &["log", "--format=%s"]), "one");
    });
}

#[test]
fn names_and_contents_with_markup_stay_text() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    on_native(|fixture| {
        let script = "set -e; d='<svg onload=window.ran=1>'; mkdir \"$d\"; \
            echo '</script><script>window.ran=2</script>' > \"$d/<img src=x onerror=window.ran=3>.js\"; \
            printf 'a\\xe2\\x80\\xaeb\\033[2J' > \"$(printf 'new\\nline\\xe2\\x80\\xae')\"; ln -s '<b>link</b>' link; \
            git add .; git commit --quiet --message '<script>window.ran=4</script>'";
        in_copy(fixture, "markup", script);
        let server = Server::start(fixture, &[]);
        browser.open(&server.address());
        browser.wait_for("document.querySelector('.overview h2')");
        assert!(browser.text().contains("<script>window.ran=4</script>"));
        let count = browser.evaluate("model.files.length").as_u64().expect("a number");
        for number in 0..count {
            browser.evaluate(&format!("show(model.files[{number}])"));
            browser.evaluate("isSplit = !isSplit; show(current)");
        }
        browser.evaluate("show(model.files.find((file) => file.path.startsWith('new')))");
        browser.wait_for("document.querySelector('.lines')?.textContent.includes('aU+202EbU+001B[2J')");
        assert!(browser.text().contains("U+202E"));
        assert_eq!(browser.evaluate("document.querySelectorAll('svg, img, script, b, i').length"), 1, "the page's own");
        assert_eq!(browser.evaluate("window.ran ?? 'nothing ran'"), "nothing ran");
        // Even the page's own program can neither make markup nor reach another server.
        assert_eq!(
            browser.evaluate(
                "(() => { try { document.body.innerHTML = '<p>'; return 'made'; } catch { return 'refused'; } })()"
            ),
            "refused"
        );
        let other = "new Promise((resolve) => { document.addEventListener('securitypolicyviolation', \
                     (event) => resolve(event.effectiveDirective)); fetch('http://127.0.0.1:1/').catch(() => {}); })";
        assert_eq!(browser.evaluate(other), "connect-src");
    });
}

/// A page of another server on this machine, and one whose name is made to lead to this machine.
#[test]
fn pages_of_others_reach_nothing() {
    let Some(mut browser) = Browser::start(&["--host-resolver-rules=MAP rebound.example 127.0.0.1"]) else { return };
    on_native(|fixture| {
        in_copy(fixture, "attacked", "echo new > new");
        let before = snapshot(&fixture.project);
        let server = Server::start(fixture, &[]);
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listener");
        let port = other.local_addr().expect("address").port();
        std::thread::spawn(move || {
            for stream in other.incoming().flatten() {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4096]);
                let text = "<!doctype html><title>other</title>";
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            }
        });
        let rebound = server.authority.replace("127.0.0.1", "rebound.example");
        browser.open(&format!("http://{rebound}/?token={}", server.token));
        browser.wait_for("document.body.textContent.includes('opens the page once')");
        // That has not used up the token. Now others even know the key.
        let (_, key) = server.load();
        for target in [format!("http://{}", server.authority), format!("http://{rebound}")] {
            browser.open(&format!("http://127.0.0.1:{port}/"));
            browser.wait_for("document.title === 'other'");
            for attempt in [
                format!(
                    "fetch('{target}/review', {{headers: {{Authorization: 'Bearer {key}'}}}}).then((answer) => answer.text())"
                ),
                format!(
                    "fetch('{target}/discard', {{method: 'POST', body: '{{}}', mode: 'no-cors'}}).then(() => 'sent blindly')"
                ),
                format!(
                    "fetch('{target}/discard', {{method: 'POST', headers: {{Authorization: 'Bearer {key}'}}}}).then(() => 'sent')"
                ),
            ] {
                let seen = browser.evaluate(&format!("{attempt}.catch(() => 'refused')"));
                assert!(seen == "refused" || seen == "sent blindly", "{attempt}: {seen}");
            }
            let form = format!(
                "(() => {{ const form = document.createElement('form'); form.method = 'post'; form.action = '{target}/discard'; \
                 document.body.append(form); form.submit(); }})()"
            );
            browser.evaluate(&form);
            browser.wait_for("document.body.textContent.includes('opens the page once')");
        }
        assert_eq!((snapshot(&fixture.project), copies(fixture)), (before, vec!["attacked".to_owned()]));
    });
}

#[test]
fn a_thousand_files_are_a_short_document() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    on_native(|fixture| {
        in_copy(
            fixture,
            "many",
            "for i in $(seq 1000); do mkdir -p d$((i % 40)); seq $i > d$((i % 40))/f$i; done; seq 9000 > long; \
             git add long; git commit --quiet --message long",
        );
        let server = Server::start(fixture, &[]);
        browser.open(&server.address());
        browser.wait_for("document.querySelector('.overview h2')?.textContent.startsWith('1,001 changed')");
        assert!(browser.evaluate("document.querySelectorAll('.row').length").as_u64() < Some(100));
        for _ in 0..3 {
            browser.press("n");
        }
        browser.evaluate("show(model.files.find((file) => file.path === 'long'))");
        browser.wait_for("document.querySelectorAll('.line').length === 1500");
        browser.press("/");
        browser
            .evaluate("document.activeElement.value = 'f99'; document.activeElement.dispatchEvent(new Event('input'))");
        browser.wait_for("tree.shown.length === 11");
        browser.press("Enter");
        browser.wait_for("current.path.includes('f99')");
        browser.press("a");
        // All files are ticked, so the commit can be taken.
        browser.evaluate(
            "document.querySelector('dialog input').click(); document.querySelector('dialog .primary').focus()",
        );
        browser.press("Enter");
        browser.wait_for("document.querySelector('#said').textContent.includes('1,001 files applied')");
        assert_eq!(fs::read_dir(fixture.project.join("d7")).expect("directory").count(), 25);
        assert_eq!(git(fixture, &["log", "--format=%s"]), "long\none");
    });
}
