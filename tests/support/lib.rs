//! What all suites use: one client, one launcher of servers, random numbers, waits and
//! temporary folders, and the rules for how long a test may wait and when it is left
//! out.
//!
//! *A test has one deadline.* All that a thread of a test waits for has to come within
//! `DEADLINE` from its first wait; what does not come fails the test, and the test
//! harness prints its name.
//!
//! *A test runs if what it needs is there*: root, another server, a shell. If it is
//! not, the test says so with [`left_out`], and `make check` says it once more at its
//! end. With `CHECK_ALL=1`, as in `.ci/run`, what is missing is a failure.

mod client;
pub mod page;
pub mod port;
mod random;
pub mod search;
mod server;
pub mod session;
pub mod story;
pub mod watched;

pub use client::{Client, Job, put};
pub use port::Port;
pub use random::Random;
pub use server::{
    PROGRAM, Resource, Server, command, prepare, program, run, run_by, run_command, shell,
};

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// A file or a folder of the sources.
pub fn source(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

/// The text of a file of the sources.
pub fn text_of(name: &str) -> String {
    fs::read_to_string(source(name)).unwrap_or_else(|error| panic!("reading {name}: {error}"))
}

/// How long a test may wait. On a machine that is much slower, such as an emulated one,
/// `CHECK_DEADLINE` is the number of seconds.
static DEADLINE: LazyLock<Duration> = LazyLock::new(|| {
    let seconds = env::var("CHECK_DEADLINE").map(|text| text.parse());
    Duration::from_secs(seconds.map_or(240, |seconds| seconds.expect("a number of seconds")))
});

/// What is left of the deadline of this thread's test, and a moment to look once more.
/// It begins with the first call.
pub fn patience() -> Duration {
    thread_local!(static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) });
    let begun = BEGUN.get().unwrap_or_else(Instant::now);
    BEGUN.set(Some(begun));
    let left = DEADLINE.saturating_sub(begun.elapsed());
    left.max(Duration::from_millis(1))
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for this: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// A temporary folder, removed when this value is dropped.
pub struct Folder(tempfile::TempDir);

impl Folder {
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a new folder"))
    }

    /// For another user as well, who may not enter root's own TMPDIR.
    pub fn for_all() -> Folder {
        Folder(tempfile::tempdir_in("/tmp").expect("a new folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn text(&self) -> &str {
        self.path().to_str().expect("a name of letters")
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A Unix socket of this name in it, as an argument of `-l`.
    pub fn socket(&self, name: &str) -> String {
        format!("unix:{}", self.join(name).display())
    }
}

/// Says that the test which calls it does not run, and what it would need.
#[track_caller]
pub fn left_out(needs: &str) {
    assert!(
        env::var_os("CHECK_ALL").is_none(),
        "with CHECK_ALL, all has to run; this needs {needs}"
    );
    let thread = thread::current();
    let test = thread.name().unwrap_or("?");
    println!("left out, since it needs {needs}: {test}");
    if let Some(list) = env::var_os("CHECK_LEFT_OUT") {
        let list = OpenOptions::new().append(true).open(list);
        // All threads append whole lines.
        let line = format!("{needs}\t{test}\n");
        list.and_then(|mut list| list.write_all(line.as_bytes()))
            .expect("a list that can be written to");
    }
}

/// Whether we are root and may mount. Otherwise the test is left out.
#[track_caller]
pub fn as_root() -> bool {
    let is_root = is_mighty();
    if !is_root {
        left_out("root, who may mount");
    }
    is_root
}

/// Whether this is root and may mount. (In some containers, root may not.)
pub fn is_mighty() -> bool {
    let try_it = || Command::new("unshare").args(["-m", "true"]).output();
    nix::unistd::geteuid().is_root() && try_it().is_ok_and(|tried| tried.status.success())
}

/// Whether this machine has IPv6. Otherwise the test is left out.
#[track_caller]
pub fn has_ipv6() -> bool {
    let has_it = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has_it {
        left_out("IPv6");
    }
    has_it
}

/// The beanstalkd that the environment variable `BEANSTALKD` names, or the one that is
/// installed.
pub fn beanstalkd() -> Option<PathBuf> {
    let named = env::var_os("BEANSTALKD").map(PathBuf::from);
    let installed = || {
        let path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&path).chain(["/usr/bin".into()]);
        let mut files = places.map(|place| place.join("beanstalkd"));
        files.find(|file| file.is_file())
    };
    named
        .filter(|path| !path.as_os_str().is_empty())
        .or_else(installed)
}
