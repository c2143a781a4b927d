//! Reads the file that ssh's option `RevokedHostKeys` names: a list of public keys, or OpenSSH's binary
//! list of revoked keys, which the host's `ssh-keygen` reads.

#![allow(clippy::disallowed_methods, reason = "runs ssh-keygen")]

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64ct::{Base64, Encoding};

use super::certificate::HostCertificate;
use super::destinations::key_blob;
use super::wire::Reader;
use crate::plan::AgentGatePlan;
use crate::process::{output_within, untrusted};

/// A longer file is not read.
const MAX_SIZE: u64 = 16 << 20;
/// The beginning of OpenSSH's binary list.
const MAGIC: &[u8] = b"SSHKRL\n\0";
const KEYGEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells whether the file revokes a key, or the authority of a certificate. What cannot be read counts as
/// revoked, as ssh refuses the server then.
pub fn is_revoked(file: &Path, key: &[u8], plan: &AgentGatePlan) -> bool {
    let Ok(content) = untrusted::read_linked_bytes(file, MAX_SIZE) else { return true };
    if content.starts_with(MAGIC) {
        return !is_accepted_by_keygen(file, key, plan).unwrap_or(false);
    }
    let authority = HostCertificate::parse(key).map(|certificate| certificate.authority);
    let keys = String::from_utf8_lossy(&content);
    let mut keys = keys.lines().filter(|line| !line.trim_start().starts_with('#')).filter_map(key_blob);
    keys.any(|revoked| revoked == key || authority.is_some_and(|authority| revoked == authority))
}

fn is_accepted_by_keygen(file: &Path, key: &[u8], plan: &AgentGatePlan) -> io::Result<bool> {
    let ssh = plan.ssh.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let kind = Reader(key).text().ok_or(io::ErrorKind::InvalidData)?;
    // The line is shorter than what a pipe holds.
    let (read, mut write) = io::pipe()?;
    writeln!(write, "{kind} {}", Base64::encode_string(key))?;
    drop(write);
    let mut command = Command::new(ssh.as_path().with_file_name("ssh-keygen"));
    command.arg("-Q").arg("-f").arg(file).arg("/dev/stdin");
    command.stdin(read).stdout(Stdio::null()).stderr(Stdio::null()).env("PATH", &plan.path).env("LC_ALL", "C");
    Ok(output_within(&mut command, KEYGEN_TIMEOUT)?.status.success())
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan_for_tests;
    use super::*;
    use crate::path::HostPath;

    fn keygen(directory: &Path, arguments: &[&str]) {
        let status = Command::new("ssh-keygen").current_dir(directory).arg("-q").args(arguments).status();
        assert!(status.expect("ssh-keygen").success(), "{arguments:?}");
    }

    #[test]
    fn both_forms_of_the_file_revoke_keys_and_authorities() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        for name in ["ca", "good", "bad"] {
            keygen(at, &["-t", "ed25519", "-N", "", "-f", name]);
        }
        keygen(at, &["-s", "ca", "-I", "id", "-h", "-n", "example.org", "good.pub"]);
        let key = |name: &str| key_blob(&std::fs::read_to_string(at.join(name)).expect("a key")).expect("a key");
        let mut plan = plan_for_tests(Path::new("/gate"), Path::new("/agent"));
        plan.ssh = Some(HostPath::new("/usr/bin/ssh").expect("a path"));
        let list = |names: &[&str]| {
            let keys = names.iter().map(|name| std::fs::read_to_string(at.join(name)).expect("a key"));
            std::fs::write(at.join("list"), format!("# keys\n{}", keys.collect::<String>())).expect("a list");
            keygen(at, &[&["-k", "-f", "binary"], names].concat());
        };
        let is_revoked = |name: &str| ["list", "binary"].map(|file| is_revoked(&at.join(file), &key(name), &plan));
        list(&["bad.pub"]);
        assert_eq!(["good.pub", "bad.pub", "good-cert.pub"].map(is_revoked), [[false; 2], [true; 2], [false; 2]]);
        list(&["ca.pub"]);
        assert_eq!(["bad.pub", "good-cert.pub"].map(is_revoked), [[false; 2], [true; 2]]);
        assert!(super::is_revoked(&at.join("missing"), &key("good.pub"), &plan));
        plan.ssh = None;
        assert!(super::is_revoked(&at.join("binary"), &key("bad.pub"), &plan));
    }
}
