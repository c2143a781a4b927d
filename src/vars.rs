//! Environment variables that several modules share, and rules about the names and values of
//! variables. Variables that set an option are in `config::options`.

/// Read: the host's SSH agent. Set inside: the socket of the forwarded agent (R4.3).
pub const SSH_AUTH_SOCK: &str = "SSH_AUTH_SOCK";
/// Read: the program that asks before a signature, with `--ssh-confirm`.
pub const SSH_ASKPASS: &str = "SSH_ASKPASS";
/// Read: the seconds that the SSH tunnel into a Podman machine may take (R7.4).
pub const TUNNEL_TIMEOUT: &str = "SANDPEN_TUNNEL_TIMEOUT";
/// Read: the active Python environment. Containers get a private one in its place.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Read and passed inside.
pub const NODE_OPTIONS: &str = "NODE_OPTIONS";
/// Read: the search path for host programs; its parts below the working directory are appended
/// inside.
pub const PATH: &str = "PATH";
/// Read: the user's shell, which is passed inside if it exists there.
pub const SHELL: &str = "SHELL";
/// Read: its parts below the working directory are appended inside.
pub const PYTHONPATH: &str = "PYTHONPATH";
/// Read and passed inside, so that programs use the terminal as they do outside.
pub const TERMINAL: &[&str] = &["TERM", "COLORTERM"];
/// Read and passed inside: the author and committer, if the shell sets them.
pub const GIT_IDENTITY: &[&str] =
    &["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"];
/// Set inside: the sandbox's name, so that programs can tell that they are in a sandbox.
pub const SANDBOX: &str = "SANDBOX";
/// Counts how often a command has asked to be started again; sandpen sets it for itself.
pub const RESTARTS: &str = "SANDPEN_RESTARTS";
/// Set inside (R2.1), so that Git looks for a repository across mount points.
pub const GIT_DISCOVERY: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";
/// Set inside: the home directory.
pub const HOME: &str = "HOME";
/// Set inside: the directory for temporary files, if the host's is not `/tmp`.
pub const TMPDIR: &str = "TMPDIR";

/// Read when macOS is only assumed, for tests: a replacement for `/usr/bin/sandbox-exec`. On macOS
/// it is not read.
#[cfg(not(target_os = "macos"))]
pub const SANDBOX_EXEC: &str = "SANDPEN_STAND_IN_SANDBOX_EXEC";
/// Read and passed inside when the network is not filtered: the proxies of the host's network.
pub const HOST_PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
/// Names roots in addition to those of Node.js.
pub const NODE_EXTRA_CA_CERTS: &str = "NODE_EXTRA_CA_CERTS";
/// Read and passed inside, with the files that they name: certificates that the host trusts.
pub const CERTIFICATES: &[&str] =
    &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"];
/// Set inside when the network is filtered: the proxy's address, in both spellings that programs
/// read.
pub const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// Hosts to reach without a proxy: set inside when the network is filtered, otherwise passed from
/// the host.
pub const NO_PROXIES: &[&str] = &["NO_PROXY", "no_proxy"];
/// Set inside when the network is filtered, so that Node.js uses the proxy variables.
pub const NODE_PROXY: &str = "NODE_USE_ENV_PROXY";

/// Whether a name looks like that of a key, token, secret or password.
pub fn looks_secret(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name);
    matches!(last, "KEY" | "TOKEN" | "SECRET" | "PASSWORD" | "PASSWD" | "CREDENTIAL" | "CREDENTIALS")
}

/// Whether a value is a URL with user information, which is a secret under any name.
pub fn has_user_information(value: &str) -> bool {
    value.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') && authority.contains('@')
    })
}

/// Whether the engine's client would behave differently if this variable were set in its
/// environment.
pub fn affects_engine_client(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "SHELL",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REGISTRY_AUTH_FILE",
        "SSH_AUTH_SOCK",
        "NOTIFY_SOCKET",
        "STORAGE_DRIVER",
        "STORAGE_OPTS",
        "BUILDAH_ISOLATION",
        "TERM",
        "GODEBUG",
        "GOTRACEBACK",
    ];
    const PREFIXES: &[&str] =
        &["DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_", "BUILDKIT_", "LD_", "XDG_", "DBUS_", "_CONTAINERS_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_end_in_a_word_for_a_secret() {
        for name in [
            "GEMINI_API_KEY",
            "KEY",
            "GH_TOKEN",
            "DB_PASSWORD",
            "X_PASSWD",
            "AWS_SECRET",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "A_CREDENTIAL",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["KEYBOARD", "MONKEY", "TOKENS", "KEY_FILE", "SANDBOX_ENV", "LLXPRT_SANDBOX_SSH_AGENT"] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn a_proxy_with_a_login_is_a_secret() {
        assert!(has_user_information("http://me:pw@proxy:3128/"));
        assert!(!has_user_information("http://proxy:3128/@x"));
        assert!(!has_user_information("me@host"));
    }
}
