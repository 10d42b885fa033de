//! `bench` measures one server, or two in turns, under the same load.
//!
//! The servers run A B B A A B ..., each time as a fresh process, and two of them are
//! compared by the ratio of their medians. Every client is a thread with a blocking
//! socket, as the programs of users are, and checks every reply. A latency is the time
//! that such a client waits, from just before its write to just after the read that
//! held the reply; with a rate, it counts from the moment when the work was due.
//!
//! The figure to trust is the CPU time that the kernel charges to the server for a
//! command: throughput and latency also depend on where the kernel puts threads.
//!
//! In reading order: this file (what one can ask for), `server`, `crowd` and
//! `scenarios` (the loads), `report` (rounds and lines), `table` (the loads that matter).
//! `README.md` says how to read the figures. A wrong reply ends the run by a panic.

mod crowd;
mod report;
mod scenarios;
mod server;
mod table;

use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measures one server, or two in turns, and checks every reply.
///
/// A SERVER is a command line in which {port} stands for the port to listen on. With
/// --sync, '-b DIRECTORY -f MS' is added to it. The directory is new, below TMPDIR or
/// /var/tmp. A run that takes longer than a minute needs a number of seconds in
/// CHECK_DEADLINE.
///
/// Status 0: done; 1: the quick table missed a goal; 2: usage; 101: a reply was wrong.
#[derive(Parser)]
#[command(name = "bench")]
struct Options {
    /// What to measure
    scenario: Scenario,
    /// The server to measure: a command line (default: target/make/release/beanpoled)
    #[arg(long, value_name = "SERVER")]
    ours: Option<String>,
    /// The server to compare it with (default in the table: the beanstalkd in PATH)
    #[arg(long, value_name = "SERVER")]
    theirs: Option<String>,
    /// Runs on each server
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// table: only what noise cannot change, ours alone; fails if a goal is missed
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    load: Load,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Scenario {
    /// Clients that put jobs, take them, or both
    Crowd,
    /// Fills the server with jobs, and drains it if they are ready
    Stock,
    /// Many clients wait in reserve; then there is a job for each
    Idle,
    /// Fills a binlog, ends the server and starts it again
    Recovery,
    /// The loads that matter, ours against theirs
    Table,
}

/// What the servers are asked for, how often, and on which CPUs.
#[derive(Clone, clap::Args)]
struct Load {
    /// crowd: what each client does
    #[arg(short, long, default_value = "cycle")]
    work: Work,
    /// crowd, idle: clients
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Commands that a client sends in one write
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Size of a body
    #[arg(short, long, value_name = "BYTES", default_value_t = 100)]
    body: usize,
    /// Jobs in a run
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000)]
    count: usize,
    /// crowd: length of a run instead
    #[arg(short, long)]
    seconds: Option<f64>,
    /// crowd: jobs a second that become due at random moments, whatever is answered
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Programs that compute beside it on all CPUs
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// With a binlog, synced within MS milliseconds
    #[arg(short = 'f', long, value_name = "MS")]
    sync: Option<u32>,
    /// Which CPUs clients and server have
    #[arg(short, long, default_value = "free")]
    place: Place,
    /// crowd: how many other tubes exist
    #[arg(long, value_name = "N", default_value_t = 0)]
    tubes: usize,
    /// stock: the delay of the jobs
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    delay: usize,
    /// How long to look on while no client asks for anything
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    look: f64,
    /// crowd: counts these system calls of the server with strace, such as fsync or all
    #[arg(long, value_name = "NAMES")]
    calls: Option<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Work {
    /// Puts jobs
    Put,
    /// Puts a job, reserves one and deletes it
    Cycle,
    /// Every other client puts jobs; the others reserve and delete them
    Handoff,
    /// Connects, puts a job and closes the connection
    Connect,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Place {
    /// All on the first CPU
    One,
    /// The clients on the first CPU, the server on the others
    Apart,
    /// Wherever the kernel puts them
    Free,
}

impl Load {
    /// How long the server is looked at.
    fn look(&self) -> Duration {
        Duration::from_secs_f64(self.look)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).expect("each process has it");
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).expect("it may be raised");
    server::remove_folders_on_signals();
    let built = || command(&support::source("target/make/release/beanpoled"));
    let ours = options.ours.unwrap_or_else(built);
    let is_table = options.scenario == Scenario::Table;
    let theirs = options.theirs.or_else(|| {
        let path = env::var_os("PATH").filter(|_| is_table && !options.quick)?;
        let mut found = env::split_paths(&path).map(|place| place.join("beanstalkd"));
        found
            .find(|program| program.is_file())
            .as_deref()
            .map(command)
    });
    let servers: Vec<String> = [Some(ours), theirs].into_iter().flatten().collect();
    report::head(&servers);
    if is_table {
        let missed = table::run(options.quick, &servers, options.rounds);
        return ExitCode::from(u8::from(options.quick && missed > 0));
    }
    let rows = report::compare(options.scenario, &options.load, &servers, options.rounds);
    rows.iter()
        .for_each(|row| println!("{}", row.line().trim_end()));
    ExitCode::SUCCESS
}

fn command(program: &Path) -> String {
    format!("'{}' -l 127.0.0.1 -p {{port}}", program.display())
}

/// Where servers keep their files. It is not `/tmp`, because that may be memory, where
/// a sync costs nothing.
fn place() -> PathBuf {
    env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from)
}
