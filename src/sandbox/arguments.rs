//! Keeps secrets out of the command line that the library starts the program with.

use crate::config::Options;
use crate::vars::looks_secret;

/// Splits secrets from the options. Every user can read command lines, so a variable with a
/// secret's name is passed by name, and its value through the environment.
pub fn without_secrets(options: &Options) -> (Options, Vec<(String, String)>) {
    let mut secrets = Vec::new();
    let mut named = |text: &String| match text.split_once('=') {
        Some((name, value)) if looks_secret(name) => {
            secrets.push((name.to_owned(), value.to_owned()));
            name.to_owned()
        }
        _ => text.clone(),
    };
    let env = options.env.iter().map(&mut named).collect();
    (Options { env, ..options.clone() }, secrets)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::host::Platform;

    fn read_back(options: &Options) -> Option<Options> {
        let words = ["sandpen".into(), "run".into()].into_iter().chain(options.to_arguments());
        match Cli::try_parse_from(words.chain(["--".into(), "--odd".into()])).ok()?.command {
            Some(Command::Run(run)) if run.guest == ["--odd"] => Some(run.0.options),
            _ => None,
        }
    }

    #[test]
    fn no_secret_is_on_the_command_line() {
        let env = ["MY_TOKEN=hush=hush", "PLAIN=seen", "OTHER_KEY"].map(str::to_owned).to_vec();
        let (options, secrets) = without_secrets(&Options { env, ..Options::default() });
        assert_eq!(options.to_arguments(), ["--env=MY_TOKEN", "--env=PLAIN=seen", "--env=OTHER_KEY"]);
        assert_eq!(secrets, [("MY_TOKEN".to_owned(), "hush=hush".to_owned())]);
    }

    #[test]
    fn the_program_reads_what_the_library_was_given() {
        let one = |text: &str| Some(text.to_owned());
        let many = |text: &str| vec![text.to_owned(), "--odd = value".to_owned(), String::new()];
        let full = Options {
            engine: one("docker"),
            image: one("debian:12"),
            profile: one("-dash"),
            agent: one("none"),
            user: one("host"),
            strict: true,
            name: one("review"),
            keep: true,
            mounts: many("/a:/b:rw"),
            include_dirs: vec!["-x".into(), "/y z".into()],
            tmp: one("host"),
            allow_home: true,
            git: one("shared"),
            hide: many(".env*"),
            cache: one("off"),
            nested: one("on"),
            env: many("A=b=c"),
            env_files: vec!["-e".into(), "/y z".into()],
            ssh_agent: one("off"),
            ssh_hosts: many("git@example.org:22"),
            ssh_confirm: true,
            push: many("-agent/*"),
            keys: one("outside"),
            secret: many("A_KEY@a.example"),
            network: one("proxied"),
            allow_hosts: many("example.org:22"),
            proxy_command: one("proxy --port 8877"),
            publish: many("3000"),
            cpus: one("-1"),
            memory: one("4g"),
            pids: one("64"),
            engine_flags: many("--privileged"),
            seatbelt_profile: one("permissive-open"),
            context: one("-c"),
            namespace: one("agents"),
            assume_host: Some(Platform::Macos),
            quiet: true,
            verbose: false,
        };
        let loud = Options { verbose: true, assume_host: Some(Platform::Linux), ..Options::default() };
        for options in [full, loud, Options::default()] {
            assert_eq!(read_back(&options).map(|read| format!("{read:?}")), Some(format!("{options:?}")));
        }
    }
}
