//! What `stats` tells of the process and the machine.

use super::shared::Shared;
use crate::protocol::Document;
use crate::protocol::document::Value;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::utsname::UtsName;
use std::ffi::OsStr;
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

/// Adds to the engine's part of `stats` what it cannot know. What is told of a
/// binlog is 0 without one, but for the size of its files.
// A frame of a kilobyte, which is not to be part of each reply's.
#[inline(never)]
pub fn complete(document: &mut Document, shared: &Shared) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let time = |time: Option<TimeVal>| Value::Micros(time.map_or(Duration::ZERO, duration));
    let binlog = shared.binlog.as_ref().map(|binlog| binlog.stats());
    let binlog = binlog.unwrap_or_default();
    let mut ours = Document::default();
    ours.add("pid", std::process::id());
    ours.add("version", Value::Text(VERSION.into()));
    ours.add("rusage-utime", time(usage.map(|usage| usage.user_time())));
    ours.add("rusage-stime", time(usage.map(|usage| usage.system_time())));
    ours.add("uptime", shared.clock.uptime().as_secs());
    ours.add("binlog-oldest-index", binlog.oldest_index);
    ours.add("binlog-current-index", binlog.current_index);
    ours.add("binlog-records-migrated", binlog.records_migrated);
    ours.add("binlog-records-written", binlog.records_written);
    ours.add("binlog-max-size", shared.limits.segment_size);
    document.insert_before("draining", ours);
    let [hostname, os, platform] = machine();
    document.add("id", Value::Word(instance()));
    document.add("hostname", hostname);
    document.add("os", os);
    document.add("platform", platform);
}

/// What tells this process from others, made of the system's random numbers.
fn instance() -> &'static str {
    static INSTANCE: OnceLock<String> = OnceLock::new();
    INSTANCE.get_or_init(|| format!("{:016x}", RandomState::new().hash_one(std::process::id())))
}

/// The names of the host, of its system and of its processor.
fn machine() -> [Value; 3] {
    let names = nix::sys::utsname::uname().ok();
    let text = |name: fn(&UtsName) -> &OsStr| {
        let name = names.as_ref().map(name).unwrap_or_default();
        Value::Text(name.to_string_lossy().into_owned())
    };
    [
        text(UtsName::nodename),
        text(UtsName::version),
        text(UtsName::machine),
    ]
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
