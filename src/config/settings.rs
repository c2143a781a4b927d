//! One layer of settings, and how layers combine: the higher one wins, lists accumulate.

use std::path::PathBuf;

use super::sourced::Sourced;
use super::value::{
    AgentMode, Cpus, EngineSetting, EnvRequest, Guard, HostRule, ImageRef, Memory, MountRequest, Name, NetworkMode,
    Pids, Port, TmpMode, UserMode,
};

macro_rules! settings {
    (single { $($(#[$single_doc:meta])* $single:ident: $single_type:ty),+ $(,)? }
     lists { $($(#[$list_doc:meta])* $list:ident: $list_type:ty),+ $(,)? }) => {
        /// What one layer says. `None` and empty lists mean "nothing".
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$single_doc])* pub $single: Option<Sourced<$single_type>>,)+
            $($(#[$list_doc])* pub $list: Vec<Sourced<$list_type>>,)+
        }

        impl Settings {
            /// This layer on top of a lower one.
            #[must_use]
            pub fn over(mut self, lower: Settings) -> Settings {
                $(self.$single = self.$single.or(lower.$single);)+
                $(self.$list.extend(lower.$list);)+
                self
            }
        }
    };
}

settings! {
    single {
        /// The engine.
        engine: EngineSetting,
        /// The image.
        image: ImageRef,
        /// CPUs.
        cpus: Cpus,
        /// Memory.
        memory: Memory,
        /// Processes.
        pids: Pids,
        /// Network policy.
        network: NetworkMode,
        /// The user's own proxy.
        proxy_command: String,
        /// SSH agent.
        ssh_agent: AgentMode,
        /// Who the guest is.
        user: UserMode,
        /// Temporary directory.
        tmp: TmpMode,
        /// Seatbelt profile.
        seatbelt_profile: String,
        /// Preset by name.
        agent: String,
        /// Guard.
        guard: Guard,
        /// Whether the whole home may be the working directory.
        allow_home: bool,
        /// Whether weaker enforcement is an error.
        strict: bool,
        /// Whether the project's image is built first.
        build: bool,
        /// The sandbox's name.
        name: Name,
        /// Whether the container is kept.
        keep: bool,
    }
    lists {
        /// Mounts.
        mounts: MountRequest,
        /// Variables.
        env: EnvRequest,
        /// Published ports.
        ports: Port,
        /// Hosts the proxy allows.
        allow_hosts: HostRule,
        /// Flags for the engine.
        engine_flags: String,
        /// Further workspace directories.
        include_dirs: PathBuf,
    }
}
