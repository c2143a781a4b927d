//! Options as the words of a command line, which say the same to the program.

use std::ffi::{OsStr, OsString};

use crate::cli::Options;
use crate::host::Platform;
use crate::vars::looks_secret;

/// Command lines can be read by everyone: a variable that is called a secret is asked for by its name, and its value inherited.
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

/// The flags, each as one word, so that no value is taken for a flag.
pub fn flags(options: &Options) -> Vec<OsString> {
    // Taken apart by name: an option that is added must be added here.
    let Options {
        engine,
        image,
        profile,
        agent,
        user,
        strict,
        name,
        keep,
        mounts,
        include_dirs,
        tmp,
        allow_home,
        guard,
        env,
        ssh_agent,
        network,
        allow_hosts,
        proxy_command,
        publish,
        cpus,
        memory,
        pids,
        engine_flags,
        seatbelt_profile,
        assume_host,
        quiet,
        verbose,
    } = options;
    let mut words = Vec::new();
    let mut add = |flag: &str, value: &OsStr| {
        let mut word = OsString::from(flag);
        word.push("=");
        word.push(value);
        words.push(word);
    };
    let single = [
        ("--engine", engine),
        ("--image", image),
        ("--profile", profile),
        ("--agent", agent),
        ("--user", user),
        ("--name", name),
        ("--tmp", tmp),
        ("--guard", guard),
        ("--ssh-agent", ssh_agent),
        ("--network", network),
        ("--proxy-command", proxy_command),
        ("--cpus", cpus),
        ("--memory", memory),
        ("--pids", pids),
        ("--seatbelt-profile", seatbelt_profile),
    ];
    for (flag, value) in single {
        value.iter().for_each(|value| add(flag, value.as_ref()));
    }
    let lists = [
        ("--mount", mounts),
        ("--env", env),
        ("--allow-host", allow_hosts),
        ("--publish", publish),
        ("--engine-flag", engine_flags),
    ];
    for (flag, values) in lists {
        values.iter().for_each(|value| add(flag, value.as_ref()));
    }
    include_dirs.iter().for_each(|directory| add("--include-dir", directory.as_ref()));
    match assume_host {
        Some(Platform::Linux) => add("--assume-host", "linux".as_ref()),
        Some(Platform::Macos) => add("--assume-host", "macos".as_ref()),
        None => {}
    }
    let switches = [
        ("--strict", strict),
        ("--keep", keep),
        ("--allow-home", allow_home),
        ("--quiet", quiet),
        ("--verbose", verbose),
    ];
    words.extend(switches.iter().filter(|(_, is_on)| **is_on).map(|(flag, _)| OsString::from(flag)));
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn read_back(options: &Options) -> Option<Options> {
        let words = ["sandpen".into(), "run".into()].into_iter().chain(flags(options));
        match Cli::try_parse_from(words.chain(["--".into(), "--odd".into()])).ok()?.command {
            Some(Command::Run(run)) if run.guest == ["--odd"] => Some(run.0.options),
            _ => None,
        }
    }

    #[test]
    fn no_secret_is_on_the_command_line() {
        let env = ["MY_TOKEN=hush=hush", "PLAIN=seen", "OTHER_KEY"].map(str::to_owned).to_vec();
        let (options, secrets) = without_secrets(&Options { env, ..Options::default() });
        assert_eq!(flags(&options), ["--env=MY_TOKEN", "--env=PLAIN=seen", "--env=OTHER_KEY"]);
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
            guard: one("strict"),
            env: many("A=b=c"),
            ssh_agent: one("off"),
            network: one("proxied"),
            allow_hosts: many("example.org:22"),
            proxy_command: one("proxy --port 8877"),
            publish: many("3000"),
            cpus: one("-1"),
            memory: one("4g"),
            pids: one("64"),
            engine_flags: many("--privileged"),
            seatbelt_profile: one("permissive-open"),
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
