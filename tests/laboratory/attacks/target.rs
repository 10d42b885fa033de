//! The server that an attack attacks.

use nix::unistd::Pid;
use std::net::SocketAddr;
use std::time::Duration;

/// The server that an attack attacks.
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process.
    pub pid: Pid,
    /// Whether to attack only as hard as needed to notice that the server
    /// grows.
    pub small: bool,
}

impl Target {
    /// One of the two sizes.
    pub fn size<T>(&self, small: T, full: T) -> T {
        if self.small { small } else { full }
    }

    /// How long an attack goes on if it has no end of its own.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.size(700, 3000))
    }
}
