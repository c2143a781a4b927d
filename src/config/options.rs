//! The table of options. A row is all that an option needs, apart from its use in `plan`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use super::environment::{self, VariableSpec};
use super::error::ConfigError;
use super::flag::{self, FlagSpec, FlagValue};
use super::layer::{FileContext, FromFlag, Layer, Setting};
use super::node::{Node, Problem};
use super::preset;
use super::sourced::Sourced;
use super::table::{KeySpec, OptionSpec, changes, first, never, optional, options, present, resolved};
use super::value::{
    Access, AgentMode, CacheMode, Cpus, EngineSetting, EnvRequest, GitMode, HideGlob, HostRule, ImageRef, KeysMode,
    Memory, MountRequest, Name, NestedMode, NetworkMode, NodeSelector, ObjectName, Pids, Port, PushRule, SecretRequest,
    SshHost, TmpMode, Toleration, UserMode, Value,
};
use crate::host::{Environment, Platform};
use crate::ui::Verbosity;

/// Enough for a parallel build, and an end for a fork bomb.
const DEFAULT_PIDS: Pids = Pids(2048);

options! {
    engine: Sourced<EngineSetting> = EngineSetting::Auto => {
        "The engine that runs the sandbox. `auto`: a container engine if any layer names an image, otherwise \
         the host's own tools.";
        flag: engine: Option<String> = "--engine" ["ENGINE"], "Sandbox", "Engine; chosen from the options and the engines that work unless named";
        variables: ["SANDPEN_ENGINE", "LLXPRT_SANDBOX"];
        note: "`LLXPRT_SANDBOX` also `true`, `1`: auto, and `false`, `0`: not set";
        reader: environment::engine;
        key: "engine";
        describe: |engine| match engine {
            EngineSetting::Auto => "sandpen chooses the engine".to_owned(),
            engine => format!("the engine is `{engine}`"),
        };
        opens: |_, _| Some("a different engine isolates differently");
    }
    image: Option<Sourced<ImageRef>> => {
        "The container image. Naming one asks for a container.";
        flag: image: Option<String> = "--image" ["IMAGE"], "Sandbox", "Container image; naming one asks for a container";
        variables: ["SANDPEN_IMAGE", "LLXPRT_SANDBOX_IMAGE"];
        key: "image", example r#""debian:12""#;
        describe: |image| format!("the sandbox is a container of `{image}`");
        opens: |_, _| Some("every program inside comes from it");
    }
    profile: Option<Sourced<String>> => {
        "The profile: dev, safe, tight, offline, or a file of yours.";
        flag: profile: Option<String> = "--profile" ["NAME"], "Sandbox", "Profile: dev, safe, tight, offline, or a file of yours";
        variables: ["SANDPEN_PROFILE"];
        opens: never;
    }
    agent: Option<Sourced<String>> => {
        "The preset of an agent, or `none`. By default the command's name selects it.";
        flag: agent: Option<String> = "--agent" ["NAME"], "Sandbox", "Preset of an agent, or none (default: by CMD's name); `sandpen presets` lists them";
        key: "agent", example r#""claude""#;
        describe: |agent| match agent.as_str() {
            preset::NONE => "no preset is used".to_owned(),
            agent => format!("the preset `{agent}` is used for every command"),
        };
        form: "the name of a preset (`sandpen presets` lists them), or `none`";
        opens: |agent, _| (agent != preset::NONE).then_some("every command gets that agent's settings, login and API keys");
    }
    mounts: Vec<Sourced<MountRequest>> => {
        "Files and directories to mount, read-only unless the mode is `rw`. They must exist.";
        flag: mounts: Vec<String> = "--mount" ["FROM[:TO[:ro|rw]]"], "Files", "Mount a file or directory (mode: ro)";
        variables: ["SANDPEN_MOUNTS", "LLXPRT_SANDBOX_MOUNTS", "SANDBOX_MOUNTS"];
        note: "separated by commas";
        key: "mounts", example r#"[{ from = "~/data", to = "/data", mode = "ro" }]"#;
        describe: MountRequest::describe;
        opens: |mount, _| Some(match mount.mode {
            _ if mount.controls_the_host() => "the sandbox becomes root on this machine",
            Access::Rw => "the sandbox can read and write it",
            Access::Ro => "the sandbox can read it",
        });
    }
    include_dirs: Vec<Sourced<PathBuf>> => {
        "Further workspace directories, read-write.";
        flag: include_dirs: Vec<PathBuf> = "--include-dir" ["DIR"], "Files", "Further workspace directory, read-write";
        key: "includeDirs", example r#"["../library"]"#;
        describe: |directory| format!("`{}` is a workspace directory, too", directory.display());
        opens: |_, _| Some("the sandbox can read and write it");
    }
    hide: Vec<Sourced<HideGlob>> => {
        "Files of the workspace that read as empty inside: patterns as in `.gitignore`. Git must not track them.";
        flag: hide: Vec<String> = "--hide" ["GLOB"], "Files", "Files of the workspace that read as empty inside, such as .env*";
        key: "hide", example r#"[".env*", "/config/*.key"]"#;
        describe: |glob| format!("files that match `{glob}` read as empty");
        opens: never;
    }
    env: Vec<Sourced<EnvRequest>> => {
        "Variables inside, with their values.";
        flag: env: Vec<String> = "--env" ["NAME[=VALUE]"], "Environment", "Variable inside; NAME alone passes the host's value, as a secret; `AWS_*` passes all that match";
        clap: |argument| argument.short('e');
        variables: ["SANDBOX_ENV"];
        note: "`NAME=VALUE`, separated by commas";
        reader: environment::assignments;
        key: "env", example r#"{ EDITOR = "vi" }"#;
        describe: EnvRequest::describe;
        // Even LD_PRELOAD acts on programs inside only.
        opens: never;
    }
    env_files: Vec<Sourced<PathBuf>> => {
        "Files with variables: lines of NAME=VALUE, or NAME to pass the host's value. `--env` wins.";
        flag: env_files: Vec<PathBuf> = "--env-file" ["FILE"], "Environment", "File with lines of NAME[=VALUE], as docker has it";
        form: "a path";
        opens: never;
    }
    network: Sourced<NetworkMode> = NetworkMode::On => {
        "The network policy: the host's network, none, or only the allowed hosts.";
        flag: network: Option<String> = "--network" ["NETWORK"], "Network", "Network policy";
        variables: ["SANDPEN_NETWORK", "LLXPRT_SANDBOX_NETWORK", "SANDBOX_NETWORK"];
        key: "network";
        describe: |network| match network {
            NetworkMode::On => "the network is available",
            NetworkMode::Off => "there is no network",
            NetworkMode::Proxied => "only the allowed hosts can be reached",
        }.to_owned();
        opens: |network, now| match (network, now.network.value) {
            (NetworkMode::On, _) => Some("everything inside can be sent anywhere"),
            (NetworkMode::Proxied, NetworkMode::Off) => Some("what is inside can be sent to the allowed hosts"),
            _ => None,
        };
    }
    allow_hosts: Vec<Sourced<HostRule>> => {
        "Hosts that may be reached, on ports 80 and 443 unless one is named. Implies `proxied`.";
        flag: allow_hosts: Vec<String> = "--allow-host" ["HOST[:PORT]"], "Network", "Host that may be reached; implies --network proxied";
        key: "allowHosts", example r#"["github.com", "*.crates.io:443"]"#;
        describe: |host| format!("`{host}` may be reached");
        opens: |_, now| (now.network.value != NetworkMode::On).then_some("what is inside can be sent there");
    }
    proxy_command: Option<Sourced<String>> => {
        "Your own proxy: a command on the host that listens on port 8877. Implies `proxied`.";
        flag: proxy_command: Option<String> = "--proxy-command" ["COMMAND"], "Network", "Your own proxy, listening on 8877; implies --network proxied";
        variables: ["LLXPRT_SANDBOX_PROXY_COMMAND"];
        key: "proxyCommand", example r#""my-proxy --port 8877""#;
        describe: |command| format!("the proxy is the command `{command}`");
        opens: |_, _| Some("it runs on this machine, outside the sandbox, with all your permissions");
    }
    ports: Vec<Sourced<Port>> => {
        "Ports that the host reaches at 127.0.0.1, even if the guest listens on its own loopback only.";
        flag: publish: Vec<String> = "--publish" ["PORT"], "Network", "Port to reach from the host, on 127.0.0.1";
        clap: |argument| argument.short('p');
        variables: ["SANDBOX_PORTS"];
        note: "separated by commas";
        key: "ports", example "[3000]";
        describe: |port| format!("port {port} is published on 127.0.0.1");
        opens: |_, _| Some("every user of this machine can connect to it");
    }
    ssh_agent: Sourced<AgentMode> = AgentMode::Auto => {
        "Whether the SSH agent is forwarded. Keys never enter the sandbox; `auto` forwards an agent that answers. \
         `auto` and `on` let the sandbox list keys and sign; `raw` gives it the agent's own socket.";
        flag: ssh_agent: Option<String> = "--ssh-agent" ["SSH_AGENT"], "Environment", "Whether the SSH agent is forwarded";
        variables: ["SANDPEN_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT"];
        key: "sshAgent";
        describe: |agent| match agent {
            AgentMode::Off => "the SSH agent is not forwarded",
            AgentMode::On => "the SSH agent is forwarded",
            AgentMode::Raw => "the SSH agent's own socket is forwarded",
            AgentMode::Auto => "the SSH agent is forwarded if it answers",
        }.to_owned();
        opens: |agent, now| match (agent, now.ssh_agent.value) {
            (AgentMode::Raw, _) => Some("the sandbox can remove your keys, add others and load libraries"),
            (AgentMode::Auto | AgentMode::On, AgentMode::Off) => Some("the sandbox can sign with your keys"),
            _ => None,
        };
    }
    ssh_hosts: Vec<Sourced<SshHost>> => {
        "Destinations for which the SSH agent signs, verified by the server's key in known_hosts. `remotes`: the \
         hosts of this repository's remotes. Without any, it signs for all.";
        flag: ssh_hosts: Vec<String> = "--ssh-host" ["[USER@]HOST[:PORT]"], "Environment", "Destination for which the SSH agent signs, or `remotes`";
        key: "sshHosts", example r#"["remotes", "git@github.com"]"#;
        describe: |host| match host {
            SshHost::Remotes => "the SSH agent signs for the hosts of the repository's remotes".to_owned(),
            SshHost::Destination(host) => format!("the SSH agent signs for `{host}`"),
        };
        opens: |_, now| (!now.ssh_hosts.is_empty()).then_some("the sandbox can log in there with your keys");
    }
    ssh_confirm: Sourced<bool> = false => {
        "Asks you on the host before the SSH agent first signs for a destination: with the program that SSH_ASKPASS \
         names, or in the terminal of `sandpen log --follow`.";
        flag: ssh_confirm: bool = "--ssh-confirm", "Environment", "Ask before the SSH agent first signs for a destination";
        key: "sshConfirm";
        describe: |is_asked| {
            let verb = if *is_asked { "are asked" } else { "are not asked" };
            format!("you {verb} before the SSH agent signs")
        };
        opens: |is_asked, now| (!is_asked && now.ssh_confirm.value).then_some("the agent signs without asking you");
    }
    push: Vec<Sourced<PushRule>> => {
        "Refs of this repository's remotes that the sandbox may push to. Git's transport then runs outside, \
         and neither agent nor token is needed inside.";
        flag: push: Vec<String> = "--push" ["PATTERN"], "Environment", "Refs of the remotes that may be pushed to, such as 'agent/*'; +PATTERN also by force, -PATTERN deletes";
        clap: |argument| argument.allow_hyphen_values(true);
        key: "push", example r#"["agent/*"]"#;
        describe: PushRule::describe;
        opens: |_, _| Some("it is done with your SSH keys and logins");
    }
    keys: Sourced<KeysMode> = KeysMode::Auto => {
        "Where the values of keys are. `outside`: the variables inside have placeholders, and sandpen's proxy sets the \
         values in requests to their hosts. `auto`: outside for secrets that name their hosts and for presets with \
         which that was seen to work, where the engine allows it.";
        flag: keys: Option<String> = "--keys" ["KEYS"], "Environment", "Where the values of keys are";
        variables: ["SANDPEN_KEYS"];
        key: "keys";
        describe: |keys| match keys {
            KeysMode::Auto => "the values of keys stay outside where that is known to work",
            KeysMode::Outside => "the values of keys stay outside",
            KeysMode::Inside => "the values of keys are inside",
        }.to_owned();
        opens: |keys, now| match (keys, now.keys.value) {
            (KeysMode::Inside, KeysMode::Auto | KeysMode::Outside) => Some("the sandbox can read the values of your keys"),
            (KeysMode::Auto, KeysMode::Outside) => Some("the sandbox can read the values of some of your keys"),
            _ => None,
        };
    }
    secrets: Vec<Sourced<SecretRequest>> => {
        "Keys whose values stay outside, each with the hosts that get it.";
        flag: secret: Vec<String> = "--secret" ["NAME@HOST[:PORT][,…]"], "Environment", "Key whose value only these hosts get; it stays outside";
        key: "secrets", example r#"[{ name = "MINE_API_KEY", hosts = ["api.example.org"] }]"#;
        describe: SecretRequest::describe;
        opens: |_, _| Some("the sandbox can send requests with your key to these hosts");
    }
    cpus: Option<Sourced<Cpus>> => {
        "How many CPUs the sandbox may use.";
        flag: cpus: Option<String> = "--cpus" ["CPUS"], "Limits", "CPUs, such as 2 or 0.5";
        variables: ["SANDPEN_CPUS", "LLXPRT_SANDBOX_CPUS", "SANDBOX_CPUS"];
        key: "resources.cpus", example "2";
        describe: |cpus| format!("at most {cpus} CPUs are used");
        opens: |cpus, now| now.cpus.as_ref().is_some_and(|now| cpus.millis() > now.value.millis())
            .then_some("more than without the file");
    }
    memory: Option<Sourced<Memory>> => {
        "How much memory the sandbox may use.";
        flag: memory: Option<String> = "--memory" ["MEMORY"], "Limits", "Memory, such as 4g";
        variables: ["SANDPEN_MEMORY", "LLXPRT_SANDBOX_MEMORY", "SANDBOX_MEMORY"];
        key: "resources.memory", example r#""4g""#;
        describe: |memory| format!("at most {memory} of memory is used");
        opens: |memory, now| now.memory.as_ref().is_some_and(|now| memory.bytes() > now.value.bytes())
            .then_some("more than without the file");
    }
    pids: Sourced<Pids> = DEFAULT_PIDS => {
        "How many processes and threads the sandbox may have.";
        flag: pids: Option<String> = "--pids" ["PIDS"], "Limits", "Processes (default 2048)";
        variables: ["SANDPEN_PIDS", "LLXPRT_SANDBOX_PIDS", "SANDBOX_PIDS"];
        key: "resources.pids";
        describe: |pids| format!("at most {pids} processes run");
        opens: |pids, now| (pids.0 > now.pids.value.0).then_some("more than without the file");
    }
    user: Sourced<UserMode> = UserMode::Auto => {
        "The user inside. `auto`: the host's user on Linux, the image's on macOS.";
        flag: user: Option<String> = "--user" ["USER"], "Sandbox", "User inside";
        variables: ["SANDBOX_SET_UID_GID"];
        note: "`1`, `true`: host; `0`, `false`: image";
        reader: environment::user;
        key: "user";
        describe: |user| match user {
            UserMode::Auto => "sandpen chooses the user inside",
            UserMode::Host => "the user inside is you",
            UserMode::Image => "the user inside is the image's",
        }.to_owned();
        opens: |user, _| (*user == UserMode::Image).then_some("it may be root");
    }
    tmp: Sourced<TmpMode> = TmpMode::Private => {
        "The temporary directory inside: a private one, or the host's with everything in it.";
        flag: tmp: Option<String> = "--tmp" ["TMP"], "Files", "Temporary directory inside: private, or the host's";
        key: "tmp";
        describe: |tmp| match tmp {
            TmpMode::Private => "the temporary directory is private",
            TmpMode::Host => "the temporary directory is the host's",
        }.to_owned();
        opens: |tmp, _| (*tmp == TmpMode::Host).then_some("the sandbox sees other programs' temporary files");
    }
    git: Sourced<GitMode> = GitMode::Private => {
        "The Git directory inside. `private`: the sandbox has its own, over the same working tree; commits, refs and \
         the index come out verified. `shared`: the host's, with read-only hooks and configuration, which is no \
         protection.";
        flag: git: Option<String> = "--git" ["GIT"], "Files", "Git directory inside: private, or the host's";
        variables: ["SANDPEN_GIT"];
        key: "git";
        describe: |git| match git {
            GitMode::Private => "the sandbox has a private Git directory",
            GitMode::Shared => "the sandbox writes the host's Git directory",
        }.to_owned();
        opens: |git, _| (*git == GitMode::Shared).then_some("code planted in Git's files runs outside later");
    }
    cache: Sourced<CacheMode> = CacheMode::On => {
        "Package caches: what the host has is visible inside, and what is added stays in a layer of the project's own, \
         which neither the host nor another project reads.";
        flag: cache: Option<String> = "--cache" ["CACHE"], "Files", "Package caches of the host, with a layer of the project's own";
        key: "cache";
        describe: |cache| match cache {
            CacheMode::On => "the sandbox reads the host's package caches, and keeps what it adds",
            CacheMode::Off => "the sandbox has no package caches",
        }.to_owned();
        opens: |cache, now| (*cache == CacheMode::On && now.cache.value == CacheMode::Off)
            .then_some("the sandbox can read the packages that you have downloaded");
    }
    nested: Sourced<NestedMode> = NestedMode::Auto => {
        "Whether programs inside may make sandboxes of their own, with user namespaces. `auto`: for agents and \
         browsers that are known to do so.";
        flag: nested: Option<String> = "--nested" ["NESTED"], "Sandbox", "Whether programs inside may make sandboxes of their own";
        key: "nested";
        describe: |nested| match nested {
            NestedMode::Auto => "agents and browsers that need it may make sandboxes of their own",
            NestedMode::On => "programs inside may make sandboxes of their own",
            NestedMode::Off => "no program inside may make a sandbox of its own",
        }.to_owned();
        opens: |nested, now| match (nested, now.nested.value) {
            (NestedMode::On, _) | (NestedMode::Auto, NestedMode::Off) => Some("more of the kernel can be reached"),
            _ => None,
        };
    }
    allow_home: Sourced<bool> = false => {
        "Permits the whole home as the working directory.";
        flag: allow_home: bool = "--allow-home", "Files", "Permit the whole home as the working directory";
        key: "allowHome";
        describe: |is_allowed| {
            let verb = if *is_allowed { "may" } else { "must not" };
            format!("the whole home {verb} be the working directory")
        };
        opens: |is_allowed, _| is_allowed.then_some("your keys and credentials can be inside");
    }
    strict: Sourced<bool> = false => {
        "Makes it an error, not a warning, if something cannot be enforced here.";
        flag: strict: bool = "--strict", "Sandbox", "Fail if anything is enforced less than asked for";
        key: "strict";
        describe: |is_strict| {
            let severity = if *is_strict { "an error" } else { "a warning" };
            format!("what cannot be enforced is {severity}")
        };
        opens: |is_strict, _| (!is_strict).then_some("the sandbox starts even if something is not enforced");
    }
    engine_flags: Vec<Sourced<String>> => {
        "Further flags for Docker or Podman, after sandpen's own.";
        flag: engine_flags: Vec<String> = "--engine-flag" ["FLAG"], "Engine", "Further flag for the engine, after sandpen's own";
        clap: |argument| argument.allow_hyphen_values(true);
        variables: ["SANDBOX_FLAGS"];
        note: "as shell words";
        reader: environment::shell_words;
        key: "engineFlags", example r#"["--shm-size=1g"]"#;
        describe: |flag| format!("the engine gets the flag `{flag}`");
        opens: |_, _| Some("a flag of the engine can disable any protection");
    }
    seatbelt_profile: Option<Sourced<String>> => {
        "The Seatbelt profile on macOS: one of six names, or a file of yours. By default the network policy selects it.";
        flag: seatbelt_profile: Option<String> = "--seatbelt-profile" ["PROFILE"], "Engine", "Seatbelt profile: one of six names, or a file";
        variables: ["SEATBELT_PROFILE"];
        key: "seatbeltProfile", example r#""restrictive-closed""#;
        describe: |profile| format!("the Seatbelt profile is `{profile}`");
        opens: |_, _| Some("on macOS it replaces all protection");
    }
    context: Option<Sourced<String>> => {
        "The context of kubectl for the engine `kubernetes`. By default kubectl's own.";
        flag: context: Option<String> = "--context" ["CONTEXT"], "Engine", "Context of kubectl (default: kubectl's own)";
        key: "kubernetes.context", example r#""team-cluster""#;
        describe: |context| format!("the context of kubectl is `{context}`");
        form: "the name of a context (`kubectl config get-contexts` lists them)";
        opens: |_, _| Some("your files are sent to that cluster");
    }
    namespace: Option<Sourced<ObjectName>> => {
        "The namespace of the sandbox's pod, for the engine `kubernetes`. By default the context's.";
        flag: namespace: Option<String> = "--namespace" ["NAMESPACE"], "Engine", "Namespace of the pod (default: the context's)";
        key: "kubernetes.namespace", example r#""agents""#;
        describe: |namespace| format!("the pod is in the namespace `{namespace}`");
        opens: |_, _| Some("who may use that namespace can look into the sandbox");
    }
    runtime_class: Option<Sourced<ObjectName>> => {
        "The pod's runtime class, such as one of gVisor.";
        key: "kubernetes.runtimeClass", example r#""gvisor""#;
        describe: |class| format!("the pod's runtime class is `{class}`");
        opens: |_, _| Some("another runtime isolates differently");
    }
    service_account: Option<Sourced<ObjectName>> => {
        "The pod's service account. Its token is never given to the sandbox.";
        key: "kubernetes.serviceAccount", example r#""agents""#;
        describe: |account| format!("the pod's service account is `{account}`");
        opens: |_, _| Some("the cluster may give the pod that account's rights");
    }
    node_selector: Vec<Sourced<NodeSelector>> => {
        "Labels that the pod's node must have.";
        key: "kubernetes.nodeSelector", example r#"["disktype=ssd"]"#;
        describe: |label| format!("the pod's node has the label `{label}`");
        opens: |_, _| Some("another node may isolate differently");
    }
    tolerations: Vec<Sourced<Toleration>> => {
        "Taints of nodes that the pod tolerates.";
        key: "kubernetes.tolerations", example r#"["dedicated=agents:NoSchedule"]"#;
        describe: |taint| format!("the pod tolerates the taint `{taint}`");
        opens: |_, _| Some("another node may isolate differently");
    }
    image_pull_secrets: Vec<Sourced<ObjectName>> => {
        "Secrets in the namespace with which the cluster pulls the image, by name.";
        key: "kubernetes.imagePullSecrets", example r#"["registry-login"]"#;
        describe: |secret| format!("the cluster pulls the image with the secret `{secret}`");
        opens: |_, _| Some("that login is used for the image");
    }
    name: Option<Sourced<Name>> => {
        "The sandbox's id for ps, exec and stop. By default it is random.";
        flag: name: Option<String> = "--name" ["NAME"], "Sandbox", "Id for ps, exec and stop (default: random)";
        opens: never;
    }
    keep: Option<Sourced<bool>> => {
        "Keeps the container and its files after the end, until `sandpen prune`.";
        flag: keep: bool = "--keep", "Sandbox", "Keep the container and its files after the end, until `sandpen prune`";
        form: "";
        opens: never;
    }
    build: Option<Sourced<bool>> => {
        "Builds the project's sandbox.Dockerfile before the launch.";
        variables: ["BUILD_SANDBOX"];
        note: "`1`, `true`";
        reader: environment::switch;
        form: "";
        opens: never;
    }
}

impl Options {
    /// Returns how much sandpen prints.
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        let flags = OPTIONS.iter().filter_map(|option| option.flag);
        command
            .args(flags.map(|flag| flag.argument()))
            .arg(
                Arg::new("assume_host")
                    .long("assume-host")
                    .value_name("ASSUME_HOST")
                    .help("Plan as if on this platform")
                    .value_parser(clap::value_parser!(Platform))
                    .hide(true),
            )
            .arg(
                Arg::new("quiet")
                    .short('q')
                    .long("quiet")
                    .help("Print errors only")
                    .action(ArgAction::SetTrue)
                    .conflicts_with("verbose"),
            )
            .arg(Arg::new("verbose").short('v').long("verbose").help("Print what is done").action(ArgAction::SetTrue))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Options::from_matches(&mut matches.clone()))
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        Ok(Options::from_matches(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Options::from_matches(&mut matches.clone());
        Ok(())
    }
}
