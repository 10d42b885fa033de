//! How many connections and how much memory the system lets us have. A
//! connection takes a descriptor and a thread, and a thread takes four memory
//! mappings. If one of these or the memory runs out while the server runs, other
//! connections or the whole process may suffer. So the server finds the limits
//! at the start, and never exceeds them.

use crate::sys::{ADDRESS_SPACE, THREADS};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::Uid;
use std::fs;
use std::path::Path;

/// Descriptors that are set aside, besides those that are open at the start:
/// for the pipe that stops the acceptor, for the two hang-up lists, and for a
/// connection that is just closing. (The one that lists the open ones is free again,
/// for a connection that is one too many.)
const OTHER_DESCRIPTORS: u64 = 5;

/// Descriptors that are set aside for the binlog: its lock, its directory, and
/// the files that are being read, written, synced and moved.
const BINLOG_DESCRIPTORS: u64 = 16;

/// How many descriptors are open at the start, if this cannot be found out: the
/// standard ones, those for signals, and some sockets.
const OPEN_DESCRIPTORS: u64 = 13;

/// Threads that are set aside: our own few, and workers that are just becoming
/// free.
const OTHER_THREADS: u64 = 32;

/// How many mappings a thread takes: its stack and its signal stack, and a
/// guard page for each.
const MAPPINGS_EACH: u64 = 4;

/// Mappings that are set aside: for the program, its libraries, and memory for
/// jobs.
const OTHER_MAPPINGS: u64 = 2048;

/// How much memory a connection may take while it waits, in bytes: its thread,
/// of which some 11 kB are used.
const MEMORY_EACH: u64 = 16 << 10;

/// How much of the address space a connection takes, in bytes: a stack, most of
/// which is never used, and what lies between stacks.
const SPACE_EACH: u64 = 152 << 10;

/// The most connections that we can have, and which limit decides that.
#[derive(Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The most connections at a time; at least one.
    pub connections: usize,
    /// The reason, for people to read.
    pub because: String,
}

impl Capacity {
    /// If the system allows fewer connections than this, and the user has not
    /// asked for so few, the log gets a warning.
    pub const FEW: usize = 100;

    /// A user would not expect fewer connections than this.
    pub const EXPECTED: usize = 1000;

    /// Finds out what the system allows. To be called when the sockets to
    /// listen on are bound. The limit on descriptors is raised as far as we
    /// may.
    pub fn find(has_binlog: bool) -> Capacity {
        let binlog = if has_binlog { BINLOG_DESCRIPTORS } else { 0 };
        let aside = open_descriptors() + OTHER_DESCRIPTORS + binlog;
        let system = |file| number(&Path::new("/proc/sys").join(file));
        let mappings = system("vm/max_map_count");
        // How much of each limit a connection takes, and what is set aside.
        let on_threads = |what, limit| (what, limit, 1, OTHER_THREADS);
        let limits = [
            ("the limit of open files", descriptors(), 1, aside),
            ("vm.max_map_count", mappings, MAPPINGS_EACH, OTHER_MAPPINGS),
            on_threads("the user's limit of processes", processes()),
            on_threads("kernel.threads-max", system("kernel/threads-max")),
            on_threads("kernel.pid_max", system("kernel/pid_max")),
            on_threads(
                "the control group's limit of tasks",
                group("pids", "pids.max"),
            ),
        ];
        // Of the memory, a third is for connections.
        let memory = memory_limits().map(|(what, limit, each)| {
            let others = limit.map_or(0, |limit| limit - limit / 3);
            (what, limit, each, others)
        });
        let known = limits.into_iter().chain(memory);
        known
            .filter_map(|(what, limit, each, others)| Some(bound(what, limit?, each, others)))
            .chain(mappings.is_none().then(unknown))
            .min_by_key(|bound| bound.connections)
            .expect("one is always there")
    }
}

/// How much memory the jobs, tubes and buffers may take by default, and which
/// limit decides that.
#[derive(Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The bound, in bytes.
    pub bytes: u64,
    /// The reason, for people to read.
    pub because: String,
}

impl MemoryLimit {
    /// A user would not expect less than this.
    pub const EXPECTED: u64 = 1 << 30;

    /// Finds out what the system allows, and leaves room for what is not
    /// counted: threads, what the allocator keeps, and other programs. `None`
    /// if nothing is known.
    pub fn find() -> Option<MemoryLimit> {
        let known = memory_limits().into_iter();
        let known = known.filter_map(|(what, limit, _)| Some((what, limit?)));
        let (what, limit) = known.min_by_key(|(_, limit)| *limit)?;
        Some(MemoryLimit {
            bytes: limit - set_aside(limit),
            because: format!("{what} is {}", size(limit)),
        })
    }
}

/// The limits on the process's memory in bytes, each with how much of it a
/// connection takes.
fn memory_limits() -> [(&'static str, Option<u64>, u64); 5] {
    let group = |file| group("memory", file);
    [
        ("the machine's memory", physical_memory(), MEMORY_EACH),
        (
            "the limit of the address space",
            address_space(),
            SPACE_EACH,
        ),
        (
            "the control group's memory.max",
            group("memory.max"),
            MEMORY_EACH,
        ),
        (
            "the control group's memory.high",
            group("memory.high"),
            MEMORY_EACH,
        ),
        // As it is called in the first version of control groups.
        (
            "the control group's limit of memory",
            group("memory.limit_in_bytes"),
            MEMORY_EACH,
        ),
    ]
}

/// How many bytes of this memory are for what is not counted: a quarter, but at
/// least a gibibyte, or a half where there is less than two.
fn set_aside(limit: u64) -> u64 {
    (limit / 4).max((1 << 30).min(limit / 2))
}

/// Even without a limit, the address space ends somewhere: on machines of 32
/// bits that is less than the memory that they can have.
fn address_space() -> Option<u64> {
    let limit = ADDRESS_SPACE.and_then(|limit| getrlimit(limit).ok());
    let limit = limit.map_or(u64::MAX, |(soft, _)| wide(soft));
    // More than any machine can have is no limit.
    Some(limit.min(isize::MAX as u64)).filter(|limit| *limit >> 46 == 0)
}

/// What the system says in /proc/meminfo, in bytes.
fn physical_memory() -> Option<u64> {
    let list = fs::read_to_string("/proc/meminfo").ok()?;
    let total = list
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes = total.trim().strip_suffix("kB")?.trim_end().parse().ok();
    kibibytes.and_then(|number: u64| number.checked_mul(1024))
}

/// A number of bytes, for people to read.
pub fn size(bytes: u64) -> String {
    let (mut unit, mut value) = (0, bytes as f64);
    while value >= 999.5 {
        (unit, value) = (unit + 1, value / 1000.0);
    }
    let unit_name = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"][unit];
    match unit > 0 && value < 9.95 {
        true => format!("{value:.1} {unit_name}"),
        false => format!("{value:.0} {unit_name}"),
    }
}

/// For systems without /proc: even a box of 64 megabytes can have so many
/// threads.
fn unknown() -> Capacity {
    Capacity {
        connections: 500,
        because: "the system's limits in /proc/sys cannot be read".into(),
    }
}

/// How many connections a limit allows.
fn bound(what: &str, limit: u64, each: u64, others: u64) -> Capacity {
    let connections = (limit.saturating_sub(others) / each).max(1);
    Capacity {
        connections: usize::try_from(connections).unwrap_or(usize::MAX),
        because: format!("{what} is {limit}"),
    }
}

fn descriptors() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    Some(wide(if raised.is_ok() { hard } else { soft }))
}

/// How many descriptors are open now, with the one that lists them.
fn open_descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(OPEN_DESCRIPTORS, |list| list.count() as u64)
}

/// The user's limit of processes, if threads count as such. Root has no such
/// limit.
fn processes() -> Option<u64> {
    let (soft, _) = getrlimit(THREADS?).ok()?;
    (!Uid::effective().is_root()).then_some(wide(soft))
}

/// The limit has 32 bits on some machines, and a sign on some systems.
#[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
fn wide(limit: rlim_t) -> u64 {
    limit.try_into().unwrap_or(u64::MAX)
}

/// A limit of our control groups: each of them may have one, and the smallest
/// counts.
fn group(controller: &str, file: &str) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let directories = groups.lines();
    let directories = directories.filter_map(|line| group_directory(line, controller));
    let limit_of = |directory: String| {
        let above = Path::new(&directory).ancestors();
        above
            .take_while(|directory| directory.starts_with("/sys/fs/cgroup"))
            .filter_map(|directory| number(&directory.join(file)))
            .min()
    };
    directories.filter_map(limit_of).min()
}

/// The directory in which a line of /proc/self/cgroup says that something is
/// controlled, if it says so: in a hierarchy of its own, or in the one for
/// everything.
fn group_directory(line: &str, controller: &str) -> Option<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let top = match controllers {
        "" => "/sys/fs/cgroup".into(),
        _ if controllers.split(',').any(|name| name == controller) => {
            format!("/sys/fs/cgroup/{controller}")
        }
        _ => return None,
    };
    Some(format!("{top}{path}"))
}

/// The number in a file; `None` if the file says `max`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_each_limit_is_set_aside_and_one_connection_always_left() {
        let bound = |limit, each| bound("it", limit, each, 64);
        assert_eq!(bound(1024, 1).connections, 960);
        assert_eq!(bound(1024, 4).connections, 240);
        assert_eq!(bound(10, 1).connections, 1);
        assert_eq!(bound(1024, 1).because, "it is 1024");
    }

    #[test]
    fn a_size_has_two_or_three_digits_and_a_unit() {
        let sizes = [0, 999, 1000, 999_499, 999_500, 18_957_376_512, u64::MAX];
        let shown = [
            "0 bytes",
            "999 bytes",
            "1.0 kB",
            "999 kB",
            "1.0 MB",
            "19 GB",
            "18 EB",
        ];
        assert_eq!(sizes.map(size), shown);
    }

    #[test]
    fn groups_are_found_where_the_system_says() {
        let directory = |line| group_directory(line, "pids").unwrap_or_default();
        assert_eq!(
            directory("0::/system.slice/x"),
            "/sys/fs/cgroup/system.slice/x"
        );
        assert_eq!(directory("8:pids:/a:b"), "/sys/fs/cgroup/pids/a:b");
        assert_eq!(directory("2:cpu,pids:/"), "/sys/fs/cgroup/pids/");
        assert_eq!(directory("2:cpu,cpuacct:/"), "");
    }

    #[test]
    fn much_memory_is_set_aside_where_there_is_little_of_it() {
        let counted = |limit| limit - set_aside(limit);
        const GIB: u64 = 1 << 30;
        assert_eq!(counted(100), 50);
        assert_eq!(counted(2 * GIB), GIB);
        assert_eq!(counted(3 * GIB), 2 * GIB);
        assert_eq!(counted(16 * GIB), 12 * GIB);
    }

    #[test]
    fn this_machine_has_room() {
        assert!(Capacity::find(true).connections >= 1);
    }
}
