//! A Git server over HTTP on the loopback: `git http-backend` behind a small server that asks for a
//! password.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use base64ct::{Base64, Encoding};

use super::server::{gitconfig, make_repository};
use crate::support::{Engine, Fixture, RunToEnd, Running, eventually, git_answer};

pub struct HttpServer {
    pub fixture: Fixture,
    pub repository: PathBuf,
    pub url: String,
    /// The first lines of all requests that were authorized, with the encodings of their bodies.
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl HttpServer {
    /// Starts a server, gives the user a credential helper, and clones to the project.
    pub fn start(client: &Fixture) -> Self {
        Self::start_with(client, "secret")
    }

    /// Starts a server with another password.
    pub fn start_with(client: &Fixture, password: &str) -> Self {
        let fixture = Fixture::new().with_engine(Engine::PodmanRootless);
        let repository = make_repository(&fixture, "app.git");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://127.0.0.1:{}/app.git", listener.local_addr().expect("an address").port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (root, home, log) = (fixture.outside("server"), fixture.home.clone(), requests.clone());
        let login = format!("Basic {}", Base64::encode_string(format!("me:{password}").as_bytes()));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, home, log, login) = (root.clone(), home.clone(), log.clone(), login.clone());
                thread::spawn(move || while answer(&root, &home, &login, &log, &stream).is_some() {});
            }
        });
        let login_file = client.write("../client/login", &format!("username=me\npassword={password}\n"));
        let helper = client.write_script(
            "../client/helper",
            &format!(
                "#!/bin/sh\ncat >>\"$0.log\"; echo \"$1\" >>\"$0.log\"; [ \"$1\" = get ] && cat {}\nexit 0\n",
                login_file.display()
            ),
        );
        client.write(".gitconfig", &gitconfig(&format!("[credential]\n\thelper = {}\n", helper.display())));
        client.host_command("git").args(["clone", "-q", &url, "."]).finish().success();
        HttpServer { fixture, repository, url, requests }
    }

    /// Puts a TLS server with a certificate of an authority of its own in front.
    pub fn with_tls(&self) -> TlsServer {
        let directory = self.fixture.outside("tls");
        let (key, authority) = (directory.join("key.pem"), directory.join("cert.pem"));
        let mut openssl = self.fixture.host_command("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]);
        openssl.arg(&key).arg("-out").arg(&authority).finish().success();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let (_, address) = self.url.split_once("://").expect("a URL");
        let (plain, path) = address.split_once('/').expect("a path");
        let listen = format!(
            "OPENSSL-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={},key={}",
            authority.display(),
            key.display()
        );
        let process = Running::start(self.fixture.host_command("socat").args([listen, format!("TCP:{plain}")]));
        eventually("the TLS server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        TlsServer { url: format!("https://127.0.0.1:{port}/{path}"), authority, _process: process }
    }

    pub fn subject(&self, name: &str) -> String {
        let mut git = self.fixture.host_command("git");
        git.arg("-C").arg(&self.repository).args(["log", "-1", "--format=%s", name, "--"]);
        git.finish().stdout.trim().to_owned()
    }
}

pub struct TlsServer {
    pub url: String,
    /// The certificate that clients must trust.
    pub authority: PathBuf,
    _process: Running,
}

/// Answers one request; returns `None` when the connection ends.
fn answer(root: &Path, home: &Path, login: &str, log: &Mutex<Vec<String>>, stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        lines.iter().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let mut body = Vec::new();
    if header("Transfer-Encoding").as_deref() == Some("chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let start = body.len();
            body.resize(start + size, 0);
            reader.read_exact(&mut body[start..]).ok()?;
            reader.read_line(&mut String::new()).ok()?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = header("Content-Length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    }
    let mut writer = stream;
    if header("Authorization").as_deref() != Some(login) {
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\r\n";
        return writer.write_all(head.as_bytes()).ok();
    }
    log.lock().ok()?.push(format!("{} {}", lines[0], header("Content-Encoding").unwrap_or_default()));
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next()?, words.next()?);
    writer.write_all(&git_answer(root, home, (method, target), header, body)?).ok()
}
