//! The server that an attack attacks.

use nix::unistd::Pid;
use std::net::SocketAddr;
use std::time::Duration;

/// Whom an attack attacks.
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process.
    pub pid: Pid,
    /// Whether to attack only as hard as is needed to notice growth.
    pub small: bool,
}

impl Target {
    /// One of two sizes.
    pub fn size<T>(&self, small: T, full: T) -> T {
        if self.small { small } else { full }
    }

    /// How long what has no end of its own goes on.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.size(700, 3000))
    }
}
