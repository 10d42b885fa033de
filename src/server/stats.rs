//! What the engine does not know of what `stats`, `list-server-stats` and
//! `list-connections` show.

use super::shared::Shared;
use crate::binlog;
use crate::engine::ConnectionId;
use crate::protocol::{ConnectionList, ConnectionStats, Document};
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

/// Adds to the two parts of `stats`, which are sent one after the other, what the engine
/// cannot know. Without a binlog, the keys about it are 0, except the size of its files.
// Not inlined: this function has a stack frame of a kilobyte, which other
// replies do not need.
#[inline(never)]
pub fn complete(parts: &mut [Document; 2], shared: &Shared) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let time = |part: fn(&Usage) -> TimeVal| {
        let time = usage.as_ref().map_or(TimeVal::zero(), part);
        format!("{}.{:06}", time.tv_sec(), time.tv_usec())
    };
    let binlog = binlog(shared);
    let [process, machine] = parts;
    process.add("pid", std::process::id());
    process.add_text("version", VERSION);
    process.add("rusage-utime", time(Usage::user_time));
    process.add("rusage-stime", time(Usage::system_time));
    process.add("uptime", shared.clock.uptime().as_secs());
    process.add("binlog-oldest-index", binlog.oldest_index);
    process.add("binlog-current-index", binlog.current_index);
    process.add("binlog-records-migrated", binlog.records_migrated);
    process.add("binlog-records-written", binlog.records_written);
    process.add("binlog-max-size", shared.limits.segment_size);
    let names = nix::sys::utsname::uname().ok();
    let name = |part: fn(&UtsName) -> &OsStr| {
        let name = names.as_ref().map(part).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    machine.add("id", &*INSTANCE);
    machine.add_name_or_text("hostname", &name(UtsName::nodename));
    machine.add_text("os", &name(UtsName::version));
    machine.add_name_or_text("platform", &name(UtsName::machine));
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

/// Adds to a list of connections what the engine does not know of them. Those
/// that have closed meanwhile are omitted.
pub fn name_peers(list: &mut ConnectionList, shared: &Shared) {
    let clients: Vec<_> = shared.with_lock(|state, _| {
        let client = |one: &ConnectionStats| state.clients.get(&ConnectionId(one.id)).cloned();
        list.items.iter().map(client).collect()
    });
    let (mut clients, now) = (clients.into_iter(), shared.clock.now());
    list.items.retain_mut(|one| {
        let Some(client) = clients.next().flatten() else {
            return false;
        };
        one.address = client.stream.to_string();
        one.age = now.since(client.since).as_secs();
        true
    });
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
