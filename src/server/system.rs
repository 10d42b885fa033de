//! How many connections and how much memory the system allows. A connection takes a
//! descriptor and a thread, and a thread takes four memory mappings. If one of these
//! or the memory ran out while the server runs, other connections or the whole
//! process would suffer. So the server reads the system's limits at the start, and
//! stays below them.

use crate::sys::{ADDRESS_SPACE, THREADS};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Uid;
use std::fs;
use std::path::{Path, PathBuf};

/// How many connections may still be closing when their slots are taken again.
pub const CLOSING: u64 = 8;

/// Descriptors that are set aside, besides those that are open at the start: for the
/// pipe that stops the acceptor, for the two hang-up lists, for a message to the service
/// manager, and for connections that are closing. (One more is needed to accept a
/// connection beyond the limit, and close it. It is counted among those that are open:
/// /proc/self/fd is read through a descriptor of its own, which is closed again.)
const OTHER_DESCRIPTORS: u64 = 5 + CLOSING;

/// Descriptors that are set aside for the binlog: its lock, its directory, and
/// the files that are being read, written, synced and moved.
const BINLOG_DESCRIPTORS: u64 = 16;

/// How many descriptors are open at the start, if this cannot be found out: the
/// standard ones, those for signals, and some sockets.
const OPEN_DESCRIPTORS: u64 = 13;

/// Threads that are set aside: our own few, and workers that are just ending.
const OTHER_THREADS: u64 = 32;

/// Mappings that are set aside: for the program, its libraries, and memory for jobs.
/// A thread takes four: its stack and its signal stack, and a guard page for each.
const OTHER_MAPPINGS: u64 = 2048;

/// How many connections there may be on a system without /proc: even a machine with
/// 64 megabytes can have this many threads.
const WITHOUT_PROC: u64 = 500;

/// How much memory there must be for each connection, in bytes. One that waits takes less
/// than 16 KiB, nearly all of it for its thread, and a third of the memory is for
/// connections.
const MEMORY_EACH: u64 = 3 * (16 << 10);

/// The same of the address space: a stack, most of which is never used, and what
/// lies between stacks.
const SPACE_EACH: u64 = 3 * (152 << 10);

/// The most of something that the system allows, and which limit that follows from,
/// for people to read.
pub type Bound = (u64, String);

/// How many connections there may be at a time; at least one. To be called when the
/// sockets to listen on are bound. The limit of open files is raised as far as this
/// process may raise it.
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
    // Each with how much of it is set aside, and how much a connection takes.
    let limits = [
        (open_files, "the limit of open files", files, 1),
        (mappings, "vm.max_map_count", OTHER_MAPPINGS, 4),
        tasks(processes.and_then(limit), "the user's limit of processes"),
        tasks(system("kernel/threads-max"), "kernel.threads-max"),
        tasks(system("kernel/pid_max"), "kernel.pid_max"),
        tasks(group("pids.max"), "the control group's limit of tasks"),
    ];
    let memory = memory_limits().map(|(limit, what, each)| (Some(limit), what, 0, each));
    let known = limits.into_iter().chain(memory);
    let bounds = known.filter_map(|(limit, what, aside, each)| {
        let most = limit?.saturating_sub(aside) / each;
        Some((most.max(1), format!("{what} is {}", limit?)))
    });
    let unknown = "the system's limits in /proc/sys cannot be read";
    let unknown = mappings.is_none().then(|| (WITHOUT_PROC, unknown.into()));
    bounds.chain(unknown).min().expect("one is always known")
}

/// How much memory the jobs, tubes and buffers may take, in bytes. The rest is for
/// what is not counted: threads, what the allocator keeps, and other programs.
/// `None` if no limit is known.
pub fn memory() -> Option<Bound> {
    let (limit, what, _) = memory_limits().min()?;
    Some((limit - set_aside(limit), format!("{what} is {limit}")))
}

/// A quarter, but at least a gibibyte, or a half where there is less than two.
fn set_aside(limit: u64) -> u64 {
    (limit / 4).max((1 << 30).min(limit / 2))
}

/// The limits on the process's memory in bytes, each with how much of it a
/// connection takes. (The last file has this name in the first version of control
/// groups.)
fn memory_limits() -> impl Iterator<Item = (u64, &'static str, u64)> {
    let files = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let groups = files.into_iter().filter_map(group).min();
    let limits = [
        (physical_memory(), "the machine's memory", MEMORY_EACH),
        (space(), "the limit of the address space", SPACE_EACH),
        (groups, "the control group's limit of memory", MEMORY_EACH),
    ];
    let limits = limits.into_iter();
    limits.filter_map(|(limit, what, each)| Some((limit?, what, each)))
}

fn physical_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let (_, total) = text.split_once("MemTotal:")?;
    let kibibytes: u64 = total.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Even without a limit, the address space ends somewhere: on machines of 32
/// bits that is less than the memory that they can have. What is larger
/// than any machine's is no limit.
fn space() -> Option<u64> {
    let limit = ADDRESS_SPACE.and_then(limit).unwrap_or(u64::MAX);
    Some(limit.min(isize::MAX as u64)).filter(|limit| limit >> 46 == 0)
}

/// A limit of this process. (The number has 32 bits on some machines, and a sign on
/// some systems.)
#[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
fn limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    Some(soft.try_into().unwrap_or(u64::MAX))
}

/// The smallest limit of the control groups that this process is in: a group and
/// those above it may each have one, in a file of this name.
fn group(file: &str) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let directory = group_directory(line, file)?;
        let limits = directory.ancestors().map(|group| group.join(file));
        limits.filter_map(|file| number(&file)).min()
    });
    limits.min()
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
    fn half_of_the_memory_is_set_aside_where_there_is_little_and_a_quarter_where_there_is_much() {
        const GIB: u64 = 1 << 30;
        assert_eq!(set_aside(100), 50);
        assert_eq!(set_aside(2 * GIB), GIB);
        assert_eq!(set_aside(3 * GIB), GIB);
        assert_eq!(set_aside(16 * GIB), 4 * GIB);
    }

    #[test]
    fn at_least_one_connection_is_allowed_on_any_system() {
        assert!(connections(true).0 >= 1);
    }
}
