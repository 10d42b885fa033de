//! How many connections the system lets us have. Each takes a descriptor and a
//! thread, and a thread takes four memory mappings. If one of these runs out
//! while the server runs, other connections or the whole process may suffer. So
//! the server finds the limits at the start, and never exceeds them.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::Uid;
use std::fs;
use std::path::Path;

/// Descriptors that are set aside, besides those that are open at the start:
/// for the acceptor and the hang-up watcher, and for a connection that is one
/// too many.
const OTHER_DESCRIPTORS: u64 = 4;

/// Descriptors that are set aside for the binlog: its lock, its directory, and
/// the files that are being read, written, synced and moved.
const BINLOG_DESCRIPTORS: u64 = 16;

/// How many descriptors are open at the start, if this cannot be found out: the
/// standard ones, those for signals, and some sockets.
const OPEN_DESCRIPTORS: u64 = 12;

/// Threads that are set aside: our own few, and workers that are just becoming
/// free.
const OTHER_THREADS: u64 = 32;

/// How many mappings a thread takes: its stack and its signal stack, and a
/// guard page for each.
const MAPPINGS_EACH: u64 = 4;

/// Mappings that are set aside: for the program, its libraries, and memory for
/// jobs.
const OTHER_MAPPINGS: u64 = 2048;

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

/// How many descriptors are open now. (Reading the list needs one more.)
fn open_descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(OPEN_DESCRIPTORS, |list| list.count() as u64 - 1)
}

/// The user's limit of processes. Threads count as processes, and root has no
/// such limit.
fn processes() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    (!Uid::effective().is_root()).then_some(wide(soft))
}

/// The limit has 32 bits on some machines.
#[allow(clippy::useless_conversion)]
fn wide(limit: rlim_t) -> u64 {
    limit.into()
}

/// The limit of tasks of our control groups: each of them may have one, and the
/// smallest counts.
fn tasks() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let directory = groups.lines().find_map(pids_directory)?;
    let directories = Path::new(&directory).ancestors();
    directories
        .take_while(|directory| directory.starts_with("/sys/fs/cgroup"))
        .filter_map(|directory| number(&directory.join("pids.max")))
        .min()
}

/// The directory in which a line of /proc/self/cgroup says that tasks are
/// counted, if it says so: in a hierarchy of its own, or in the one for
/// everything.
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
