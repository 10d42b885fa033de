//! What `stats` tells of the process and the machine.

use super::shared::Shared;
use crate::protocol::Document;
use crate::protocol::document::Value;
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

/// Adds to the engine's part of `stats` what it cannot know.
pub fn complete(document: &mut Document, shared: &Shared) {
    let machine = machine();
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let time = |time: Option<TimeVal>| Value::Micros(time.map_or(Duration::ZERO, duration));
    let mut ours = Document::default();
    ours.add("pid", std::process::id());
    ours.add("version", Value::Text(VERSION.into()));
    ours.add("rusage-utime", time(usage.map(|usage| usage.user_time())));
    ours.add("rusage-stime", time(usage.map(|usage| usage.system_time())));
    ours.add("uptime", shared.clock.uptime());
    add_binlog(&mut ours, shared);
    document.insert_before("draining", ours);
    document.add("id", Value::Word(&machine.instance));
    document.add("hostname", Value::Text(machine.hostname.clone()));
    document.add("os", Value::Text(machine.os.clone()));
    document.add("platform", Value::Text(machine.platform.clone()));
}

/// All but the size are 0 without a binlog.
fn add_binlog(document: &mut Document, shared: &Shared) {
    let stats = shared.binlog.as_ref().map(|binlog| binlog.stats());
    let index = |index: Option<u32>| index.unwrap_or(0);
    document.add(
        "binlog-oldest-index",
        index(stats.map(|stats| stats.oldest_index)),
    );
    document.add(
        "binlog-current-index",
        index(stats.map(|stats| stats.current_index)),
    );
    let count = |count: Option<u64>| count.unwrap_or(0);
    document.add(
        "binlog-records-migrated",
        count(stats.map(|stats| stats.records_migrated)),
    );
    document.add(
        "binlog-records-written",
        count(stats.map(|stats| stats.records_written)),
    );
    document.add("binlog-max-size", shared.limits.segment_size);
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
