//! How many connections and how much memory the system allows. A connection takes a
//! descriptor and a thread, and a thread takes memory mappings. If one of these
//! or the memory ran out while the server runs, other connections or the whole
//! process would suffer. So the server finds out at the start what there is, and
//! stays below that.

use crate::sys::{self, ADDRESS_SPACE, THREADS};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Uid;
use std::fs;
use std::path::{Path, PathBuf};

/// How many connections may still be closing when their slots are taken again.
pub const CLOSING: usize = 8;

/// Descriptors that are set aside besides those that are open at the start: two for the
/// pipe that stops the acceptor, two for the hang-up lists, one for messages to the service
/// manager, and those of connections that are closing. (One more is needed to accept a
/// connection beyond the limit, and close it. It is counted among those that are open:
/// /proc/self/fd is read through a descriptor of its own, which is closed again.)
const OTHER_DESCRIPTORS: u64 = 5 + CLOSING as u64;

/// Descriptors that are set aside for the files of the binlog that are being read,
/// written, synced and moved. (Its directory and its lock are open.)
const BINLOG_DESCRIPTORS: u64 = 14;

/// How many descriptors are open at the start, if this cannot be found out: the
/// standard ones, those for signals, the binlog's directory, and some sockets.
const OPEN_DESCRIPTORS: u64 = 15;

/// Threads that are set aside: our own few, and workers that are just ending.
const OTHER_THREADS: u64 = 32;

/// Mappings that are set aside: for the program, its libraries, and memory for jobs.
const OTHER_MAPPINGS: u64 = 2048;

/// How many mappings a thread takes: its stack, and the guard page below that.
const MAPPINGS_EACH: u64 = 2;

/// How many connections there may be on a system without /proc: even a machine with
/// 64 megabytes can have this many threads.
const WITHOUT_PROC: u64 = 500;

/// What a connection takes of the memory of the machine or of a control group, in bytes. Most
/// of it belongs to the kernel: the thread's stack, and as soon as the thread has sent a reply
/// by TCP, 32 KiB into which it copies what it sends. A group does not pay for these, but, if
/// it is one of version 2, for what lies in narrow sockets and is on its way to clients: with
/// 56,000 bytes, short replies that nobody read ended a server in 32 MB.
/// `tests/machines/boxes/memory` measures the first, `tests/machines/vm` the second.
const MEMORY_EACH: u64 = 80_000;

/// As many connections as this may take more than a third of such memory, up to a half.
const WANTED_CONNECTIONS: u64 = 200;

/// The same of the address space, and of the limit of data: a stack, most of which is never
/// used, what lies between stacks, and a part of the heap.
const SPACE_EACH: u64 = 168 << 10;

/// The most of something that the system allows, and which limit that follows from,
/// for people to read.
pub type Bound = (u64, String);

/// How many connections there may be at a time by what each takes beside memory; at
/// least one. To be called when the sockets to listen on are bound, and the binlog is
/// locked. The limit of open files is raised as far as this process may raise it.
pub fn connections(has_binlog: bool) -> Bound {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If it cannot be raised, it is what it was.
        setrlimit(Resource::RLIMIT_NOFILE, most, most).ok();
    }
    let open = fs::read_dir("/proc/self/fd").map_or(OPEN_DESCRIPTORS, |list| list.count() as u64);
    let binlog = if has_binlog { BINLOG_DESCRIPTORS } else { 0 };
    let files = open + OTHER_DESCRIPTORS + binlog;
    let system = |file| number(&Path::new("/proc/sys").join(file));
    let open_files = limit(Resource::RLIMIT_NOFILE);
    let mappings = system("vm/max_map_count");
    let tasks = |limit, what| (limit, what, OTHER_THREADS, 1);
    // Root has no limit of processes.
    let processes = THREADS.filter(|_| !Uid::effective().is_root());
    let group = least_of_groups("pids.max", |group| number(&group.join("pids.max")));
    // Each with how much of it is set aside, and how much a connection takes.
    let limits = [
        (open_files, "the limit of open files", files, 1),
        (mappings, "vm.max_map_count", OTHER_MAPPINGS, MAPPINGS_EACH),
        tasks(processes.and_then(limit), "the user's limit of processes"),
        tasks(system("kernel/threads-max"), "kernel.threads-max"),
        tasks(system("kernel/pid_max"), "kernel.pid_max"),
        tasks(group, "the control group's limit of tasks"),
    ];
    let bounds = limits.into_iter().filter_map(|(limit, what, aside, each)| {
        let most = limit?.saturating_sub(aside) / each;
        Some((most.max(1), format!("{what} is {}", limit?)))
    });
    let unknown = "the system's limits in /proc/sys cannot be read";
    let unknown = mappings.is_none().then(|| (WITHOUT_PROC, unknown.into()));
    bounds.chain(unknown).min().expect("one is always known")
}

/// Memory that is available at the start: how many bytes, by which limit, and how many
/// of them a connection takes.
pub struct Memory(u64, &'static str, u64);

/// The memory that is available now, by each of the system's limits that is known.
pub fn memory() -> Vec<Memory> {
    let space = rest(ADDRESS_SPACE, "VmSize:");
    let data = rest(Some(Resource::RLIMIT_DATA), "VmData:");
    let kinds = [
        (machine(), "what the machine can spare", MEMORY_EACH),
        (space, "the rest of the address space", SPACE_EACH),
        (data, "the rest of the limit of data", SPACE_EACH),
        (groups(), "what the control group leaves", MEMORY_EACH),
    ];
    let known = |(bytes, what, each): (Option<u64>, _, _)| {
        Some(Memory(bytes.filter(|&bytes| is_limit(bytes))?, what, each))
    };
    kinds.into_iter().filter_map(known).collect()
}

impl Memory {
    /// How many connections may be there at a time: as many as a third is enough for. (Where
    /// the address space is limited, what lies between pieces of the heap needs the rest.)
    pub fn connections(&self) -> Bound {
        let &Memory(bytes, what, each) = self;
        let wanted = (bytes / 2 / each).min(WANTED_CONNECTIONS);
        let wanted = if each == MEMORY_EACH { wanted } else { 0 };
        let most = (bytes / 3 / each).max(wanted).max(1);
        (most, format!("{what} is {bytes}"))
    }

    /// How much the jobs, tubes and buffers may take beside so many connections, in
    /// bytes: three quarters of the rest. The last quarter is for what is not counted:
    /// the program itself, and what the allocator needs beyond what is asked of it.
    pub fn beside(&self, connections: usize) -> Bound {
        let &Memory(bytes, what, each) = self;
        let rest = bytes.saturating_sub(each.saturating_mul(connections as u64));
        // However many connections the user allows, there is memory for some jobs. If nothing
        // is left, this is a bound nevertheless: with 0 there would be none.
        let most = (rest / 4 * 3).max(bytes / 4).max(1);
        (most, format!("{what} is {bytes}"))
    }
}

/// How much of the machine's available memory is left to its other programs and to the
/// kernel, in bytes: not all that the kernel calls available can be had at once.
const OTHER_MEMORY: u64 = 8 << 20;

/// What the machine can give without swapping.
fn machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // Linux before 3.14 does not add it up.
    let added = || Some(field(&text, "MemFree:")? + field(&text, "Cached:")?);
    let kibibytes = field(&text, "MemAvailable:").or_else(added);
    let bytes = kibibytes.map(|number| number * 1024);
    let bytes = bytes.or_else(sys::free_memory)?;
    Some(bytes.saturating_sub(OTHER_MEMORY))
}

/// What is left of this limit, of which the process has `taken` some by its status. Even
/// without a limit, the address space ends somewhere: on machines of 32 bits it is less than
/// the memory that they can have. If more is taken than there can be, an emulator runs this
/// program, and has told what it takes itself.
fn rest(resource: Option<Resource>, taken: &str) -> Option<u64> {
    let limit = resource.and_then(limit).unwrap_or(u64::MAX);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let taken = field(&status, taken).map_or(0, |kibibytes| kibibytes * 1024);
    limit.min(isize::MAX as u64).checked_sub(taken)
}

/// What the control groups leave of their memory. Pages of files that the kernel can
/// drop do not count as taken. (The last names are those of the first version.)
fn groups() -> Option<u64> {
    let left = |most| {
        least_of_groups(most, |group| {
            let most = number(&group.join(most)).filter(|&bytes| is_limit(bytes))?;
            let mut taken = ["memory.current", "memory.usage_in_bytes"].into_iter();
            let taken = taken.find_map(|file| number(&group.join(file)));
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let taken = taken.unwrap_or(0).saturating_sub(file_pages(&stat));
            Some(most.saturating_sub(taken))
        })
    };
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    limits.into_iter().filter_map(left).min()
}

/// Whether the memory of a control group that this process is in has a limit.
pub fn has_group_limit() -> bool {
    groups().is_some()
}

/// Whether this is less than any machine has.
fn is_limit(bytes: u64) -> bool {
    bytes >> 46 == 0
}

/// How many bytes of files a control group has in memory, and those below it.
fn file_pages(stat: &str) -> u64 {
    let all = |one| field(stat, &format!("total_{one}")).or(field(stat, one));
    let kinds = ["inactive_file ", "active_file "].into_iter();
    kinds.filter_map(all).sum()
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let after = text.lines().find_map(|line| line.strip_prefix(name))?;
    after.split_whitespace().next()?.parse().ok()
}

/// A limit of this process. (The number has 32 bits on some machines, and a sign on
/// some systems.)
#[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
fn limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    Some(soft.try_into().unwrap_or(u64::MAX))
}

/// The least of what the control groups allow that this process is in: a group and
/// those above it may each have a limit, in a file of this name.
fn least_of_groups(file: &str, allowed: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let directory = |line| group_directory(line, file);
    let directories = groups.lines().filter_map(directory);
    let least = directories.filter_map(|group| group.ancestors().filter_map(&allowed).min());
    least.min()
}

/// The directory of the control group that a line of /proc/self/cgroup names, if a
/// file of this name may be there: in the hierarchy for what the file limits, or in
/// the one for everything.
fn group_directory(line: &str, file: &str) -> Option<PathBuf> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let controller = file.split('.').next()?;
    let is_own = controllers.split(',').any(|name| name == controller);
    let hierarchy = if is_own { controller } else { "" };
    let directory = Path::new("/sys/fs/cgroup").join(hierarchy);
    (is_own || controllers.is_empty()).then(|| directory.join(path.trim_start_matches('/')))
}

/// The number in a file; `None` if the file says `max`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_found_in_its_own_hierarchy_or_in_the_common_one() {
        let directory = |line| group_directory(line, "pids.max");
        let found = |path: &str| Some(PathBuf::from(path));
        let common = "0::/system.slice/x";
        assert_eq!(directory(common), found("/sys/fs/cgroup/system.slice/x"));
        assert_eq!(directory("8:pids:/a:b"), found("/sys/fs/cgroup/pids/a:b"));
        assert_eq!(directory("2:cpu,pids:/"), found("/sys/fs/cgroup/pids/"));
        assert_eq!(directory("2:cpu,cpuacct:/"), None);
    }

    #[test]
    fn a_third_of_the_memory_is_for_connections_and_half_of_it_for_what_they_send() {
        let memory = |bytes| Memory(bytes, "it", 10);
        assert_eq!(memory(3000).connections(), (100, "it is 3000".into()));
        assert_eq!(memory(3000).beside(100).0, 1500);
        assert_eq!(memory(5).connections().0, 1);
        // Fewer connections leave more to jobs, and more of them do not take all.
        assert_eq!(memory(3000).beside(20).0, 2100);
        assert_eq!(memory(3000).beside(1000).0, 750);
        assert_eq!(memory(0).beside(1).0, 1);
    }

    #[test]
    fn in_a_small_box_half_of_the_memory_is_for_connections() {
        let connections =
            |megabytes: u64| Memory(megabytes << 20, "it", MEMORY_EACH).connections().0;
        assert_eq!(
            [15, 31, 32, 46, 63].map(connections),
            [98, 200, 200, 200, 275]
        );
    }

    #[test]
    fn pages_of_files_count_with_those_of_the_groups_below() {
        let second = "anon 5\nfile 50\ninactive_file 20\nactive_file 10\n";
        assert_eq!(file_pages(second), 30);
        assert_eq!(file_pages(&format!("{second}total_inactive_file 40\n")), 50);
        assert_eq!(file_pages(""), 0);
        assert_eq!(
            field("MemFree:   12 kB\nCached: 3 kB\n", "Cached:"),
            Some(3)
        );
    }

    #[test]
    fn at_least_one_connection_is_allowed_on_any_system() {
        assert!(connections(true).0 >= 1);
    }
}
