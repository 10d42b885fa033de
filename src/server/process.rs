//! What `stats` tells of the process and the machine.

use crate::protocol::stats::{BinlogStats, ProcessStats};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;

/// The version that `stats` shows, of the form that client libraries compare
/// to find out which commands exist.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);

/// The process's part of `stats`.
pub fn stats(uptime: Duration, binlog: BinlogStats) -> ProcessStats {
    let machine = machine();
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let time = |time: Option<TimeVal>| time.map_or(Duration::ZERO, duration);
    ProcessStats {
        pid: std::process::id(),
        version: VERSION,
        user_time: time(usage.map(|usage| usage.user_time())),
        system_time: time(usage.map(|usage| usage.system_time())),
        uptime,
        binlog,
        instance: machine.instance.clone(),
        hostname: machine.hostname.clone(),
        os: machine.os.clone(),
        platform: machine.platform.clone(),
    }
}

/// What does not change while the process lives.
struct Machine {
    instance: String,
    hostname: String,
    os: String,
    platform: String,
}

fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let names = nix::sys::utsname::uname().ok();
        let text = |name: Option<&std::ffi::OsStr>| {
            name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        Machine {
            // Seeded by the system's random numbers.
            instance: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            hostname: text(names.as_ref().map(|names| names.nodename())),
            os: text(names.as_ref().map(|names| names.version())),
            platform: text(names.as_ref().map(|names| names.machine())),
        }
    })
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
