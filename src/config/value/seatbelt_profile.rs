//! The six built-in Seatbelt profiles, by name.

use super::NetworkMode;

/// Decides about operations that a profile does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stance {
    Permissive,
    Restrictive,
}

/// One of the six built-in profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    pub stance: Stance,
    pub network: NetworkMode,
}

impl BuiltIn {
    pub const ALL: [BuiltIn; 6] = {
        const fn of(stance: Stance, network: NetworkMode) -> BuiltIn {
            BuiltIn { stance, network }
        }
        [
            of(Stance::Permissive, NetworkMode::On),
            of(Stance::Permissive, NetworkMode::Off),
            of(Stance::Permissive, NetworkMode::Proxied),
            of(Stance::Restrictive, NetworkMode::On),
            of(Stance::Restrictive, NetworkMode::Off),
            of(Stance::Restrictive, NetworkMode::Proxied),
        ]
    };

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    pub fn name(self) -> &'static str {
        match (self.stance, self.network) {
            (Stance::Permissive, NetworkMode::On) => "permissive-open",
            (Stance::Permissive, NetworkMode::Off) => "permissive-closed",
            (Stance::Permissive, NetworkMode::Proxied) => "permissive-proxied",
            (Stance::Restrictive, NetworkMode::On) => "restrictive-open",
            (Stance::Restrictive, NetworkMode::Off) => "restrictive-closed",
            (Stance::Restrictive, NetworkMode::Proxied) => "restrictive-proxied",
        }
    }

    /// Lists the names for messages.
    pub fn list() -> String {
        Self::ALL.map(|profile| format!("`{}`", profile.name())).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_a_name_of_its_own_and_is_found_by_it() {
        for profile in BuiltIn::ALL {
            assert_eq!(BuiltIn::named(profile.name()), Some(profile));
        }
        assert_eq!(BuiltIn::named("permissive"), None);
    }
}
