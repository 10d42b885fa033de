//! A server under test: a process that is started for one run, its folder, and the CPUs
//! on which it and its clients may run.
//!
//! To pin the server, this thread pins itself while it starts it: a child inherits the
//! CPUs, and so does each thread that it makes.

use crate::{Load, Place, place};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::{fs, thread};
use support::{Client, Port};
use tempfile::TempDir;

/// The tube of all jobs.
pub const TUBE: &str = "beanpole-bench";

pub struct Server {
    pub process: support::Server,
    command: String,
    cpus: [CpuSet; 2],
    folder: TempDir,
}

/// The folder of the server that runs now.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(command: &str, load: &Load) -> Server {
        let folder = TempDir::with_prefix_in("beanpole-bench-", place()).expect("a new folder");
        *FOLDER.lock().expect("nobody panics with it") = Some(folder.path().into());
        let mut command = command.to_owned();
        if let Some(ms) = load.sync {
            command += &format!(" -b '{}' -f {ms}", folder.path().join("log").display());
            fs::create_dir(folder.path().join("log")).expect("a new folder");
        }
        if let Some(names) = &load.calls {
            // A filter in the kernel lets all other calls pass at full speed, and with -D
            // the server stays our child.
            let calls = folder.path().join("calls");
            let strace = "strace -D -f -qq --seccomp-bpf -e signal=none";
            let path = calls.display();
            command = format!("{strace} -e trace={names} -o '{path}' {command}");
        }
        let cpus = cpus(load.place);
        let port = Port::reserve(0).expect("a free port");
        let process = launch(&command, &cpus, port);
        Server {
            process,
            command,
            cpus,
            folder,
        }
    }

    /// Ends the server in order, looks at its folder, and starts it again there.
    pub fn restart<T>(self, look: impl FnOnce(&Path) -> T) -> (Server, T) {
        let port = self.process.end().expect("a port that was reserved");
        let seen = look(self.folder.path());
        let process = launch(&self.command, &self.cpus, port);
        (Server { process, ..self }, seen)
    }

    /// How many system calls were counted.
    pub fn calls(&self) -> u64 {
        let text = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        // A call that others interrupt has a second line when it goes on.
        let calls = text.lines().filter(|line| !line.contains(" resumed>"));
        calls.count() as u64
    }

    /// A client that uses and watches the tube of all jobs.
    pub fn enter(&self) -> Client {
        let mut client = self.process.connect();
        client.exchange(&format!("use {TUBE}"), &format!("USING {TUBE}"));
        client.exchange(&format!("watch {TUBE}"), "WATCHING 2");
        client.exchange("ignore default", "WATCHING 1");
        client
    }
}

/// Starts a server on these CPUs, and leaves this thread on those of the clients.
fn launch(command: &str, cpus: &[CpuSet; 2], port: Port) -> support::Server {
    let [clients, server] = cpus;
    let command = command.replace("{port}", &port.number.to_string());
    pin(server);
    // Whatever ends this program, it ends the server, too.
    let mut setpriv = Command::new("setpriv");
    let shell = setpriv.args(["--pdeathsig", "KILL", "sh", "-c"]);
    let process = support::Server::listening_on(shell.arg(format!("exec {command}")), port);
    pin(clients);
    process
}

fn pin(cpus: &CpuSet) {
    sched_setaffinity(Pid::from_raw(0), cpus).expect("CPUs that we have");
}

/// The CPUs that this program could use when it was started.
static ALLOWED: LazyLock<CpuSet> =
    LazyLock::new(|| sched_getaffinity(Pid::from_raw(0)).expect("this process has CPUs"));

/// The CPUs of the clients, and those of the server.
fn cpus(place: Place) -> [CpuSet; 2] {
    let allowed = (0..CpuSet::count()).filter(|&cpu| ALLOWED.is_set(cpu) == Ok(true));
    let all: Vec<usize> = allowed.collect();
    let (first, others) = all.split_at(1);
    let of = |cpus: &[usize]| {
        let mut set = CpuSet::new();
        cpus.iter()
            .for_each(|&cpu| set.set(cpu).expect("a CPU that is in a set"));
        set
    };
    match place {
        Place::Apart if !others.is_empty() => [of(first), of(others)],
        Place::One | Place::Apart => [of(first), of(first)],
        Place::Free => [*ALLOWED, *ALLOWED],
    }
}

/// Programs that only compute. They end with this one.
pub struct Busy(Vec<Child>);

impl Busy {
    pub fn start(count: usize) -> Busy {
        pin(&ALLOWED);
        let spin = |_| {
            let mut setpriv = Command::new("setpriv");
            let shell = setpriv.args(["--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"]);
            shell.stdin(Stdio::null()).spawn().expect("a shell")
        };
        Busy((0..count).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().and_then(|()| child.wait()).expect("our child");
        }
    }
}

/// When a signal ends this program, the folder of its server goes as well.
pub fn remove_folders_on_signals() {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).expect("handlers");
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let folder = FOLDER.lock().expect("nobody panics with it").take();
            // If it has ended already, there is nothing to do.
            let (Ok(()) | Err(_)) = folder.map_or(Ok(()), fs::remove_dir_all);
            process::exit(128 + signal);
        }
    });
}
