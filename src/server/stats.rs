//! What the engine does not know of what `stats` and `list-server-stats` show.

use super::shared::Shared;
use crate::binlog;
use crate::protocol::Document;
use crate::sys::random;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::utsname::UtsName;
use std::ffi::OsStr;
use std::sync::LazyLock;

/// The version of the protocol, which `stats` shows. Client libraries compare it to find
/// out which commands exist, so it has the form that they expect.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);

/// Adds to `stats` what the engine cannot know, and in its place there whether the server
/// drains. Without a binlog, the keys about it are 0, except the size of its files.
// Not inlined: this function has a stack frame of a kilobyte, which other
// replies do not need.
#[inline(never)]
pub fn complete(facts: &mut Document, draining: bool, shared: &Shared) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let time = |part: fn(&Usage) -> TimeVal| {
        let time = usage.as_ref().map_or(TimeVal::zero(), part);
        format!("{}.{:06}", time.tv_sec(), time.tv_usec())
    };
    let binlog = binlog(shared);
    facts.add("pid", std::process::id());
    facts.add_text("version", VERSION);
    facts.add("rusage-utime", time(Usage::user_time));
    facts.add("rusage-stime", time(Usage::system_time));
    facts.add("uptime", shared.clock.uptime().as_secs());
    facts.add("binlog-oldest-index", binlog.oldest_index);
    facts.add("binlog-current-index", binlog.current_index);
    facts.add("binlog-records-migrated", binlog.records_migrated);
    facts.add("binlog-records-written", binlog.records_written);
    facts.add("binlog-max-size", shared.limits.segment_size);
    facts.add("draining", draining);
    let names = nix::sys::utsname::uname().ok();
    let name = |part: fn(&UtsName) -> &OsStr| {
        let name = names.as_ref().map(part).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    facts.add("id", &*INSTANCE);
    facts.add_name_or_text("hostname", &name(UtsName::nodename));
    facts.add_text("os", &name(UtsName::version));
    facts.add_name_or_text("platform", &name(UtsName::machine));
}

/// Adds to `list-server-stats` what the engine cannot know.
pub fn complete_more(facts: &mut Document, shared: &Shared) {
    let binlog = binlog(shared);
    facts.add("binlog-size", binlog.size);
    facts.add("binlog-live-size", binlog.live_size);
    facts.add("max-connections", shared.limits.max_connections);
}

fn binlog(shared: &Shared) -> binlog::Stats {
    let stats = shared.binlog.as_ref().map(|binlog| binlog.stats());
    stats.unwrap_or_default()
}

/// A random number that distinguishes this process from others.
static INSTANCE: LazyLock<String> = LazyLock::new(|| format!("{:016x}", random()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_an_id_of_64_bits() {
        assert_eq!(INSTANCE.len(), 16);
        assert!(u64::from_str_radix(&INSTANCE, 16).is_ok());
    }
}
