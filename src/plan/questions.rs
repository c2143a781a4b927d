//! Lists the questions about the host that a plan depends on. `facts` answers them.

use std::path::Path;

use crate::config::Config;
use crate::config::value::{Access, AgentMode, BuiltIn, EngineKind, EngineSetting, MountRequest};
use crate::facts::{CopyQuestion, FurtherQuestions, GitFacts, GitQuestion, Questions};
use crate::host::{Host, Platform};
use crate::path::HostPath;

use super::preset::PresetChoice;
use super::workspace::Workspace;
use super::{cache, git, hidden, logins, mounts, network, push, repository, secrets, secrets_proxy, tools};

/// The purpose of a plan, which the choice of engines depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Runs or explains a command.
    Run,
    /// Builds an image, which always needs a container engine.
    BuildImage,
}

/// Collects the questions for a workspace and a command.
pub fn questions(
    host: &Host,
    config: &Config,
    workspace: &Workspace,
    preset: &PresetChoice,
    command: Option<&str>,
    purpose: Purpose,
) -> Questions {
    let is_installed = preset.is_installed;
    let preset = preset.preset.as_ref();
    let names_image = purpose == Purpose::BuildImage
        || config.image.is_some()
        || config.build.is_some()
        || preset.is_some_and(|preset| preset.image.is_some() && !is_installed);
    let own_profile = config.seatbelt_profile.as_ref().filter(|named| BuiltIn::named(&named.value).is_none());
    let directories = preset.into_iter().flat_map(|preset| &preset.directories);
    let preset_directories = directories.map(|entry| host.home.join(entry.path.below()));
    let mut engines = engine_candidates(config.engine.value, names_image, host.platform);
    let may_run_image = purpose == Purpose::Run && config.build.is_none() && host.platform == Platform::Linux;
    let published = preset.filter(|_| config.engine.value == EngineSetting::Auto && !is_installed);
    let published = published.and_then(|preset| preset.image.clone());
    let root_image = config.image.as_ref().map(|image| image.value.clone()).or(published).filter(|_| may_run_image);
    if config.engine.value == EngineSetting::Auto && root_image.is_some() {
        // The last one: only if no container engine answers.
        engines.push(EngineKind::Native);
    }
    Questions {
        engines,
        root_image,
        files: mounts::paths_of_interest(host, config, preset)
            .into_iter()
            .chain(cache::paths_of_interest(host, config))
            .chain(secrets_proxy::paths_of_interest())
            .collect(),
        programs: network::proxy_program(config)
            .into_iter()
            .chain(tools::programs(host))
            .chain(push::programs(config, host.env.text("GIT_SSH_COMMAND")))
            .collect(),
        tool: command.map(str::to_owned),
        ask_agent: config.ssh_agent.value != AgentMode::Off,
        mounted: mounted(host, config, workspace).collect(),
        writable: writable(host, config, workspace).collect(),
        preset_directories: preset_directories.collect(),
        kubernetes_context: config.context.as_ref().map(|asked| asked.value.clone()),
        seatbelt_profile: own_profile.cloned(),
        git: GitQuestion {
            directory: workspace.workdir.clone(),
            repository: workspace.repository.clone(),
            is_refused: workspace.refused_repository.is_some(),
            repositories: workspace.repositories().cloned().collect(),
            shown: workspace.writable().cloned().collect(),
        },
        hide: hidden::question(config, workspace.trees().cloned().collect()),
        cache_layers: cache::layers(host, config),
        secrets: secrets::questions(config, preset),
        logins: logins::questions(host, config, preset),
        copy: CopyQuestion { mode: config.workspace.value.clone(), trees: workspace.trees().cloned().collect() },
        after_git,
    }
}

fn after_git(host: &Host, git: &GitFacts) -> FurtherQuestions {
    FurtherQuestions {
        files: git::git_files(host, git)
            .into_iter()
            .map(|file| file.path)
            .chain(repository::configuration_files(host, git))
            .collect(),
        programs: git::programs(git),
    }
}

/// Contain the host's programs. No guest writes to them through a read-only mount.
const SYSTEM_DIRECTORIES: &[&str] =
    &["/", "/bin", "/opt", "/sbin", "/usr", "/usr/bin", "/usr/local", "/usr/local/bin", "/usr/sbin"];

/// Lists the workspace and requested mounts. Programs in them are never run on the host.
pub fn mounted<'a>(
    host: &'a Host,
    config: &'a Config,
    workspace: &'a Workspace,
) -> impl Iterator<Item = HostPath> + 'a {
    let is_closed = |mount: &MountRequest| {
        let is_system = SYSTEM_DIRECTORIES.iter().any(|directory| mount.from == Path::new(directory));
        mount.mode == Access::Rw || !is_system
    };
    let closed = config.mounts.iter().filter(move |mount| is_closed(&mount.value));
    let asked = closed.filter_map(|mount| HostPath::new(host.expand(&mount.value.from)).ok());
    workspace.writable().cloned().chain(asked)
}

/// Lists the directories that the guest can write: the workspace and writable mounts. Programs in
/// them are the guest's, and no link in them is followed.
pub fn writable<'a>(
    host: &'a Host,
    config: &'a Config,
    workspace: &'a Workspace,
) -> impl Iterator<Item = HostPath> + 'a {
    let writable = config.mounts.iter().filter(|mount| mount.value.mode == Access::Rw);
    let asked = writable.filter_map(|mount| HostPath::new(host.expand(&mount.value.from)).ok());
    workspace.writable().cloned().chain(asked)
}

/// Lists the engines that may run the sandbox, in order of preference. A named engine is the only
/// candidate.
///
/// An image needs a container engine. Without one the host's tools are used, and a container with
/// the default image only if the host cannot run them in a sandbox.
pub fn engine_candidates(setting: EngineSetting, names_image: bool, platform: Platform) -> Vec<EngineKind> {
    let containers = [EngineKind::Docker, EngineKind::Podman];
    match setting {
        EngineSetting::Docker => vec![EngineKind::Docker],
        EngineSetting::Podman => vec![EngineKind::Podman],
        EngineSetting::Native => vec![EngineKind::Native],
        EngineSetting::SandboxExec => vec![EngineKind::SandboxExec],
        // `auto` never takes it: files leave this machine only when asked to.
        EngineSetting::Kubernetes => vec![EngineKind::Kubernetes],
        EngineSetting::Auto if names_image => containers.to_vec(),
        EngineSetting::Auto => {
            let host_tools = match platform {
                Platform::Linux => EngineKind::Native,
                Platform::Macos => EngineKind::SandboxExec,
            };
            [host_tools].into_iter().chain(containers).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_needs_a_container_and_a_named_engine_is_the_only_one() {
        use EngineKind::{Docker, Native, Podman, SandboxExec};
        let auto = |names_image, platform| engine_candidates(EngineSetting::Auto, names_image, platform);
        assert_eq!(auto(false, Platform::Linux), [Native, Docker, Podman]);
        assert_eq!(auto(false, Platform::Macos), [SandboxExec, Docker, Podman]);
        assert_eq!(auto(true, Platform::Linux), [Docker, Podman]);
        assert_eq!(auto(true, Platform::Macos), [Docker, Podman]);
        assert_eq!(engine_candidates(EngineSetting::Native, true, Platform::Linux), [Native]);
    }
}
