//! Every environment variable sandpen reads or sets, each documented once.

/// Variables that set an option, best name first: the leftmost non-empty one is taken whole.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The names, in order of precedence.
    pub names: &'static [&'static str],
    /// How their values differ from a flag's; empty when they do not.
    pub form: &'static str,
    /// What they set.
    pub about: &'static str,
}

macro_rules! settings {
    ($($constant:ident, [$($name:literal),+], $form:literal, $doc:literal;)+) => {
        $(#[doc = $doc] pub const $constant: Setting = Setting { names: &[$($name),+], form: $form, about: $doc };)+
        /// All of them.
        pub const SETTINGS: &[Setting] = &[$($constant),+];
    };
}

settings! {
    ENGINE, ["SANDPEN_ENGINE", "LLXPRT_SANDBOX"], "`LLXPRT_SANDBOX` also `true`, `1`: auto, and `false`, `0`: not asked for", "Which engine runs the sandbox.";
    IMAGE, ["SANDPEN_IMAGE", "LLXPRT_SANDBOX_IMAGE"], "", "The container image.";
    PROFILE, ["SANDPEN_PROFILE"], "", "A named set of options.";
    MOUNTS, ["SANDPEN_MOUNTS", "LLXPRT_SANDBOX_MOUNTS", "SANDBOX_MOUNTS"], "with commas between them", "Further mounts.";
    ENV, ["SANDBOX_ENV"], "with commas between them", "Further variables inside.";
    PORTS, ["SANDBOX_PORTS"], "with commas between them", "Published ports.";
    CPUS, ["SANDPEN_CPUS", "LLXPRT_SANDBOX_CPUS", "SANDBOX_CPUS"], "", "How many CPUs the sandbox may use.";
    MEMORY, ["SANDPEN_MEMORY", "LLXPRT_SANDBOX_MEMORY", "SANDBOX_MEMORY"], "", "How much memory the sandbox may use.";
    PIDS, ["SANDPEN_PIDS", "LLXPRT_SANDBOX_PIDS", "SANDBOX_PIDS"], "", "How many processes the sandbox may have.";
    NETWORK, ["SANDPEN_NETWORK", "LLXPRT_SANDBOX_NETWORK", "SANDBOX_NETWORK"], "", "The network policy.";
    PROXY_COMMAND, ["LLXPRT_SANDBOX_PROXY_COMMAND"], "", "The user's own proxy, listening on 8877.";
    SSH_AGENT, ["SANDPEN_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT"], "", "Whether the SSH agent is forwarded (R4).";
    USER, ["SANDBOX_SET_UID_GID"], "`1`, `true`: host; `0`, `false`: image", "Who the guest is.";
    ENGINE_FLAGS, ["SANDBOX_FLAGS"], "as shell words", "Further flags for the engine.";
    SEATBELT_PROFILE, ["SEATBELT_PROFILE"], "", "The macOS Seatbelt profile.";
    BUILD, ["BUILD_SANDBOX"], "`1`, `true`", "Builds the project's sandbox.Dockerfile before the launch.";
}

/// Read: the host's SSH agent. Set inside: where the forwarded agent is found (R4.3).
pub const SSH_AUTH_SOCK: &str = "SSH_AUTH_SOCK";
/// Read: how many seconds the SSH tunnel into a Podman machine may take (R7.4).
pub const TUNNEL_TIMEOUT: &str = "SANDPEN_TUNNEL_TIMEOUT";
/// Read: the active Python environment, replaced inside by one of the sandbox's own.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Read and passed inside, as the seeds do.
pub const NODE_OPTIONS: &str = "NODE_OPTIONS";
/// Read: where host programs are looked up; parts below the working directory are appended inside.
pub const PATH: &str = "PATH";
/// Read: parts below the working directory are appended inside.
pub const PYTHONPATH: &str = "PYTHONPATH";
/// Read and passed inside, so that the terminal looks the same; colours too.
pub const TERMINAL: &[&str] = &["TERM", "COLORTERM"];
/// Read and passed inside: who commits, where the shell says so.
pub const GIT_IDENTITY: &[&str] =
    &["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"];
/// Set inside: the sandbox's name, by which programs know that they are in one.
pub const SANDBOX: &str = "SANDBOX";
/// Set inside (R2.1): Git looks for a repository across mount points.
pub const GIT_DISCOVERY: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";
/// Set inside: the home directory.
pub const HOME: &str = "HOME";
/// Set inside: where temporary files go, if the host's place is not `/tmp`.
pub const TMPDIR: &str = "TMPDIR";

/// Read where macOS is only assumed, for tests: what stands in for `/usr/bin/sandbox-exec`. A Mac's own sandpen does not know it.
#[cfg(not(target_os = "macos"))]
pub const SANDBOX_EXEC: &str = "SANDPEN_STAND_IN_SANDBOX_EXEC";
/// Read and passed inside when the network is not filtered: the proxies of the host's network.
pub const HOST_PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
/// Read and passed inside, with the files they name: certificates that the host trusts.
pub const CERTIFICATES: &[&str] =
    &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"];
/// Set inside when the network is filtered: where the proxy is, in both spellings that programs look for.
pub const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// What is reached without a proxy: set inside when the network is filtered, the host's own value otherwise.
pub const NO_PROXIES: &[&str] = &["NO_PROXY", "no_proxy"];
/// Set inside when the network is filtered: Node.js obeys the variables above only then.
pub const NODE_PROXY: &str = "NODE_USE_ENV_PROXY";

/// Whether a name looks like a key, token, secret or password. sandpen's own variables never do.
pub fn looks_secret(name: &str) -> bool {
    if SETTINGS.iter().any(|setting| setting.names.contains(&name)) {
        return false;
    }
    let last = name.rsplit('_').next().unwrap_or(name);
    matches!(last, "KEY" | "TOKEN" | "SECRET" | "PASSWORD" | "PASSWD" | "CREDENTIAL" | "CREDENTIALS")
}

/// Whether a value is a proxy address with user information, which is a secret under any name.
pub fn carries_login(value: &str) -> bool {
    value.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') && authority.contains('@')
    })
}

/// Whether a variable would steer the engine's own client if it were changed in that client's environment.
pub fn steers_engine(name: &str) -> bool {
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
    fn secret_names_follow_the_interface() {
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
        assert!(carries_login("http://me:pw@proxy:3128/"));
        assert!(!carries_login("http://proxy:3128/@x"));
        assert!(!carries_login("me@host"));
    }
}
