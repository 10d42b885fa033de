//! How many connections the system lets us have. Each takes a descriptor and a
//! thread, and a thread takes four memory mappings; where one of these runs
//! out in the middle, somebody else's connection or the whole process may have
//! to suffer. So the bounds are looked up at the start and kept to.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::Uid;
use std::fs;
use std::path::Path;

/// Set aside of descriptors, beyond those that are open at the start: for the
/// acceptor and the hang-up watcher, and for a connection that is one too many.
const OTHER_DESCRIPTORS: u64 = 4;

/// The same for the binlog: its lock, its directory, and the files that are
/// being read, written, synced and moved.
const BINLOG_DESCRIPTORS: u64 = 16;

/// As many are open if that cannot be looked up: the standard ones, those for
/// signals, and some sockets.
const OPEN_DESCRIPTORS: u64 = 12;

/// Set aside: our own few, and workers that are just becoming free.
const OTHER_THREADS: u64 = 32;

/// Of each thread: its stack and its signal stack, each with a guard page.
const MAPPINGS_EACH: u64 = 4;

/// Set aside: for the program, its libraries, and memory for jobs.
const OTHER_MAPPINGS: u64 = 2048;

/// The most connections that we can have, and what it is that sets the limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Capacity {
    /// So many at a time, at least one.
    pub connections: usize,
    /// For people to read.
    pub because: String,
}

impl Capacity {
    /// Fewer connections than this are worth a warning, if nobody has asked for
    /// so few.
    pub const FEW: usize = 100;

    /// Looks up what the system allows, once the sockets to listen on are
    /// bound. The limit on descriptors is raised as far as we may.
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
            on_threads("the control group's limit of tasks", tasks()),
        ];
        let known = limits.into_iter();
        known
            .filter_map(|(what, limit, each, others)| Some(bound(what, limit?, each, others)))
            .chain(mappings.is_none().then(unknown))
            .min_by_key(|bound| bound.connections)
            .expect("one is always there")
    }
}

/// Where there is no /proc: even a box of 64 megabytes has so many threads.
fn unknown() -> Capacity {
    Capacity {
        connections: 500,
        because: "the system's limits in /proc/sys cannot be read".into(),
    }
}

/// What a limit leaves for connections.
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

/// How many are open now; reading the list takes one more.
fn open_descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(OPEN_DESCRIPTORS, |list| list.count() as u64 - 1)
}

/// Threads count as processes, and root has no such limit.
fn processes() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    (!Uid::effective().is_root()).then_some(wide(soft))
}

/// Of 32 bits on some machines.
#[allow(clippy::useless_conversion)]
fn wide(limit: rlim_t) -> u64 {
    limit.into()
}

/// What the control groups allow that we are in, each of which may have a
/// limit.
fn tasks() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let directory = groups.lines().find_map(pids_directory)?;
    let directories = Path::new(&directory).ancestors();
    directories
        .take_while(|directory| directory.starts_with("/sys/fs/cgroup"))
        .filter_map(|directory| number(&directory.join("pids.max")))
        .min()
}

/// Where a line of /proc/self/cgroup says that tasks are counted, if it does:
/// in a hierarchy of its own, or in the one for everything.
fn pids_directory(line: &str) -> Option<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let top = match controllers {
        "" => "/sys/fs/cgroup",
        _ if controllers.split(',').any(|name| name == "pids") => "/sys/fs/cgroup/pids",
        _ => return None,
    };
    Some(format!("{top}{path}"))
}

/// The number in a file; none if it says `max`.
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
    fn tasks_are_counted_where_the_system_says() {
        let directory = |line| pids_directory(line).unwrap_or_default();
        assert_eq!(
            directory("0::/system.slice/x"),
            "/sys/fs/cgroup/system.slice/x"
        );
        assert_eq!(directory("8:pids:/a:b"), "/sys/fs/cgroup/pids/a:b");
        assert_eq!(directory("2:cpu,pids:/"), "/sys/fs/cgroup/pids/");
        assert_eq!(directory("2:cpu,cpuacct:/"), "");
    }

    #[test]
    fn this_machine_has_room() {
        assert!(Capacity::find(true).connections >= 1);
    }
}
