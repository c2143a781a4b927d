//! Lists the engines that tests run on.

use super::skips;
use super::user::User;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
    PodmanRootless,
    DockerRootless,
    /// The native engine runs as an ordinary user.
    Native,
    /// The native engine runs as root.
    NativeRoot,
    /// The native engine with the files of an image, as an ordinary user.
    NativeImage,
    /// A pod, for a user of the cluster with few rights.
    Kubernetes,
}

impl Engine {
    /// Returns the name in `SANDPEN_TEST_ENGINES` and `ENGINES_MUST_WORK`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Podman => "podman",
            Engine::PodmanRootless => "podman-rootless",
            Engine::DockerRootless => "docker-rootless",
            Engine::Native | Engine::NativeRoot | Engine::NativeImage => "native",
            Engine::Kubernetes => "kubernetes",
        }
    }

    /// Returns the value of `--engine`.
    pub fn flag(self) -> &'static str {
        match self {
            Engine::Docker | Engine::DockerRootless => "docker",
            Engine::Podman | Engine::PodmanRootless => "podman",
            Engine::Native | Engine::NativeRoot | Engine::NativeImage => "native",
            Engine::Kubernetes => "kubernetes",
        }
    }

    /// Returns whether an ordinary user owns the engine.
    pub fn is_rootless(self) -> bool {
        !matches!(self, Engine::Docker | Engine::Podman | Engine::NativeRoot)
    }

    pub fn is_container(self) -> bool {
        !matches!(self, Engine::Native | Engine::NativeRoot | Engine::NativeImage)
    }

    /// Returns whether the guest has the files of an image, and not those of the host.
    pub fn has_image(self) -> bool {
        self.is_container() || self == Engine::NativeImage
    }

    /// Returns whether a test can use the engine. If not, the test is recorded as skipped.
    #[track_caller]
    pub fn is_available(self) -> bool {
        if !skips::is_engine_available(self.name()) {
            return false;
        }
        // The image is taken from Docker.
        if self == Engine::NativeImage && !skips::is_engine_available(Engine::Docker.name()) {
            return false;
        }
        !matches!(self, Engine::Podman | Engine::NativeRoot) || skips::is_root(&format!("{} as root", self.flag()))
    }

    /// Returns the user that runs sandpen on this engine: the one that runs the tests, unless that
    /// is root and the engine belongs to an ordinary user.
    pub fn user(self) -> User {
        if self.is_rootless() { User::ordinary() } else { User::current() }
    }
}

/// Defines one test per engine. `for_every_engine!(with_agent: name)` prepares the fixture by that
/// step of its builder.
#[macro_export]
macro_rules! for_every_engine {
    ($step:ident: $($name:ident),+ $(,)?) => {
        $crate::for_every_engine!(@ $crate::support::Fixture::$step; $($name),+);
    };
    (@ $prepare:expr; $($name:ident),+) => {$(
        mod $name {
            use $crate::support::{Engine, Fixture};
            #[test]
            fn docker() { Fixture::on_prepared(Engine::Docker, $prepare, super::$name) }
            #[test]
            fn podman() { Fixture::on_prepared(Engine::Podman, $prepare, super::$name) }
            #[test]
            fn podman_rootless() { Fixture::on_prepared(Engine::PodmanRootless, $prepare, super::$name) }
            #[test]
            fn docker_rootless() { Fixture::on_prepared(Engine::DockerRootless, $prepare, super::$name) }
            #[test]
            fn native() { Fixture::on_prepared(Engine::Native, $prepare, super::$name) }
            #[test]
            fn native_root() { Fixture::on_prepared(Engine::NativeRoot, $prepare, super::$name) }
        }
    )+};
    ($($name:ident),+ $(,)?) => {
        $crate::for_every_engine!(@ std::convert::identity; $($name),+);
    };
}

/// Defines a test in a pod for each function that holds there, too.
#[macro_export]
macro_rules! for_kubernetes {
    ($step:ident: $($name:ident),+ $(,)?) => {
        $crate::for_kubernetes!(@ Fixture::$step; $($name),+);
    };
    (@ $prepare:expr; $($name:ident),+) => {
        mod kubernetes {
            #[allow(unused_imports)]
            use $crate::support::{Engine, Fixture};
            $(
                #[test]
                fn $name() { Fixture::on_prepared(Engine::Kubernetes, $prepare, super::$name) }
            )+
        }
    };
    ($($name:ident),+ $(,)?) => {
        $crate::for_kubernetes!(@ std::convert::identity; $($name),+);
    };
}

/// Defines a test on native with an image for each function whose result the image's files, or the mounts
/// over them, could change.
#[macro_export]
macro_rules! for_native_image {
    ($step:ident: $($name:ident),+ $(,)?) => {
        $crate::for_native_image!(@ $crate::support::Fixture::$step; $($name),+);
    };
    (@ $prepare:expr; $($name:ident),+) => {
        mod native_image {
            use $crate::support::{Engine, Fixture};
            $(
                #[test]
                fn $name() { Fixture::on_prepared(Engine::NativeImage, $prepare, super::$name) }
            )+
        }
    };
    ($($name:ident),+ $(,)?) => {
        $crate::for_native_image!(@ std::convert::identity; $($name),+);
    };
}

/// Defines tests for Docker and native, for long tables of attacks on what all engines share.
#[macro_export]
macro_rules! for_docker_and_native {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::{Engine, Fixture};
            #[test]
            fn docker() { Fixture::on_prepared(Engine::Docker, std::convert::identity, super::$name) }
            #[test]
            fn native() { Fixture::on_prepared(Engine::Native, std::convert::identity, super::$name) }
            #[test]
            fn native_root() { Fixture::on_prepared(Engine::NativeRoot, std::convert::identity, super::$name) }
        }
    )+};
}

/// Defines one test per container engine, for images, containers and the engines' clients.
#[macro_export]
macro_rules! for_every_container_engine {
    ($step:ident: $($name:ident),+ $(,)?) => {
        $crate::for_every_container_engine!(@ $crate::support::Fixture::$step; $($name),+);
    };
    (@ $prepare:expr; $($name:ident),+) => {$(
        mod $name {
            use $crate::support::{Engine, Fixture};
            #[test]
            fn docker() { Fixture::on_prepared(Engine::Docker, $prepare, super::$name) }
            #[test]
            fn podman() { Fixture::on_prepared(Engine::Podman, $prepare, super::$name) }
            #[test]
            fn podman_rootless() { Fixture::on_prepared(Engine::PodmanRootless, $prepare, super::$name) }
            #[test]
            fn docker_rootless() { Fixture::on_prepared(Engine::DockerRootless, $prepare, super::$name) }
        }
    )+};
    ($($name:ident),+ $(,)?) => {
        $crate::for_every_container_engine!(@ std::convert::identity; $($name),+);
    };
}
