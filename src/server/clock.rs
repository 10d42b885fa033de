//! The one place where the time is read.

use crate::engine::Time;
use crate::sync::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The system's clock, read once at the start; from then on the monotonic
/// clock. So no deadline moves when somebody sets the system's clock.
#[derive(Clone, Copy)]
pub struct Clock {
    started: Instant,
    started_at: Time,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            started: Instant::now(),
            started_at: Time::default() + since_epoch.unwrap_or_default(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.started_at + self.uptime()
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
