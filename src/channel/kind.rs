//! The kinds of streams: who may open them, and how much of them may be on its way.

use super::Side;

const KIB: usize = 1024;

/// What a stream leads to. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamKind {
    /// A TCP port of the sandbox's loopback. The argument is its number, 2 bytes.
    Port = 1,
    /// The gate to the SSH agent.
    Agent = 2,
    /// The gate for pushes.
    Push = 3,
    /// The proxy of the session.
    Proxy = 4,
}

impl StreamKind {
    pub const ALL: [Self; 4] = [Self::Port, Self::Agent, Self::Push, Self::Proxy];

    /// Returns the name in the arguments of the process inside.
    pub fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Agent => "agent",
            Self::Push => "push",
            Self::Proxy => "proxy",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns the side that opens streams of this kind.
    pub fn opener(self) -> Side {
        match self {
            Self::Port => Side::Launcher,
            Self::Agent | Self::Push | Self::Proxy => Side::Sandbox,
        }
    }

    /// Returns the most bytes of one stream that may be on their way in one direction. A stream's
    /// throughput is at most this per round trip, and the memory that it takes at most twice this.
    pub fn window(self) -> usize {
        match self {
            Self::Port | Self::Agent | Self::Proxy => 64 * KIB,
            Self::Push => 1024 * KIB,
        }
    }

    /// Returns the most streams of this kind at a time.
    pub fn limit(self) -> usize {
        match self {
            Self::Port => 256,
            Self::Agent => 64,
            Self::Proxy => 512,
            Self::Push => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_kinds() {
        for kind in StreamKind::ALL {
            assert_eq!(StreamKind::from_number(kind as u8), Some(kind));
            assert_eq!(StreamKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(StreamKind::from_number(0), None);
        assert_eq!(StreamKind::from_number(200), None);
    }

    #[test]
    fn all_streams_together_take_little_memory() {
        let most: usize = StreamKind::ALL.iter().map(|kind| 2 * kind.window() * kind.limit()).sum();
        assert!(most <= 136 << 20, "{most} bytes");
    }
}
