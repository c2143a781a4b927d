//! Asks an image for the ids of its user, if that has a name. Only the image's files tell, so a
//! container of it is started.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use crate::config::value::ImageRef;
use crate::process::{Client, output_within};

/// How long the container may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns uid and gid of the user with this name; `None` if the image does not tell.
pub fn ids(client: &Client, image: &ImageRef, name: &str) -> Option<(u32, u32)> {
    let words = ["run", "--rm", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"];
    let words = words.into_iter().chain(["--entrypoint", "cat", image.as_str(), "/etc/passwd"]);
    let words = client.pin().into_iter().chain(words.map(OsString::from));
    let mut command = client.quiet_command(words).ok()?;
    let output = output_within(command.stdout(Stdio::piped()), TIMEOUT).ok()?;
    output.status.success().then(|| find(&output.stdout, name)).flatten()
}

/// Finds a user in the text of `/etc/passwd`.
fn find(passwd: &[u8], name: &str) -> Option<(u32, u32)> {
    let text = String::from_utf8_lossy(passwd);
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    Some((fields.next()??, fields.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nnode2:x:7:7::/:\nnode:x:1000:1001:node:/home/node:/bin/sh\nbad:x:-1:0::/:\nshort:x:5\n";
        assert_eq!(find(passwd, "node"), Some((1000, 1001)));
        for unknown in ["nod", "bad", "short", "", "x"] {
            assert_eq!(find(passwd, unknown), None, "{unknown}");
        }
    }
}
