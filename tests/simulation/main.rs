//! Years of a server's life: engine and binlog on a simulated disk, with
//! simulated clients and a simulated clock, in one thread.
//!
//! Each day has some busy moments and long silences. Clients come, send
//! commands and vanish. The disk fills up, fails, or loses power in the middle
//! of an operation. The server is killed, or ends in order, and starts again,
//! and then its clock may show any other time. All the time the test checks
//! that
//!
//! - each reply is what the naive model answers. So no client gets a job that
//!   another one holds, jobs come by priority and then by id, and the counts are
//!   those of the jobs that are there;
//! - after each start the jobs are those of some moment at or after the last
//!   acknowledgement. No job that was acknowledged is missing, none that was
//!   deleted is back, and no id is given twice;
//! - only the operations fail that were made to fail, and a full disk stops only
//!   puts;
//! - when all jobs are deleted, nothing is left: neither in the memory that
//!   `--max-memory` counts, nor on the heap, nor on the disk.
//!
//! The threads of the server do not run here. Their work is done between two
//! commands, or later. `tests/concurrency` and the laboratory's soak test the
//! threads.
//!
//! Everything follows from a seed. A failure shows what has happened since all
//! jobs were deleted last, and the command that plays it again.
//! `SIMULATION_RUNS=1000` plays so many seeds, `SIMULATION_DAYS=5000` so many
//! days of each.

#[path = "../binlog/disk.rs"]
#[allow(dead_code, reason = "the binlog's own tests use the rest")]
mod disk;
#[path = "../binlog/history.rs"]
#[allow(dead_code, reason = "the binlog's own tests use the rest")]
mod history;
#[path = "../model/naive.rs"]
#[allow(dead_code, reason = "the model's own tests use the rest")]
mod naive;
#[path = "../laboratory/search.rs"]
mod search;
#[path = "../model/stored.rs"]
mod stored;
#[path = "../model/world.rs"]
mod world;

mod ledger;
mod shell;

use beanpole::binlog::{self, Binlog, Opened, SyncMode};
use beanpole::engine::{Engine, StoredJob, Time};
use beanpole::protocol::JobId;
use disk::{Disk, Survival};
use naive::SECOND;
use shell::Shell;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::env;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use stored::{in_the_model, key_in_the_model};
use world::{Jobs, World};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many lives are simulated, and how many days each has.
const RUNS: u64 = 50;
const DAYS: u64 = 10;

const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// How many bytes an empty engine may have on the heap: for the timer wheel,
/// and for tables with room for some tubes and connections.
const EMPTY_ENGINE: usize = 40_000;

/// The same for a log that holds no job: for its buffers.
const EMPTY_LOG: usize = 40_000;

#[test]
fn through_all_faults_what_was_acknowledged_is_kept() {
    let number = |name| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_RUNS").unwrap_or_else(|| search::tries(RUNS)),
    };
    let days = number("SIMULATION_DAYS").unwrap_or(DAYS);
    let mut tally = Tally::default();
    for seed in seeds {
        let mut life = Life::new(seed, days);
        (0..days).for_each(|_| life.day());
        life.evening();
        tally.add(&life.tally);
    }
    println!("{tally:?}");
}

/// How often each thing has happened.
#[derive(Debug, Default)]
struct Tally {
    moments: u64,
    evenings: u64,
    ends: u64,
    kills: u64,
    power_cuts: u64,
    failures: u64,
    /// Starts that were interrupted by a power cut, or failed because of the
    /// disk.
    false_starts: u64,
    refused_puts: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.moments += other.moments;
        self.evenings += other.evenings;
        self.ends += other.ends;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.failures += other.failures;
        self.false_starts += other.false_starts;
        self.refused_puts += other.refused_puts;
    }
}

/// The life of one server, through all its starts.
struct Life {
    world: World<Shell>,
    disk: Disk,
    sync: SyncMode,
    segment_size: u64,
    /// Since the last start, the disk was made to fail, or will fail.
    is_faulty: bool,
    /// Whether the clock was never set back since all jobs were deleted last.
    knows_times: bool,
    tally: Tally,
}

impl Life {
    fn new(seed: u64, days: u64) -> Life {
        let mut random = world::Random::new(seed ^ 0x5eed);
        let sync = match random.below(5) {
            0..3 => SyncMode::Always,
            3 => SyncMode::Every(Duration::ZERO),
            _ => SyncMode::Never,
        };
        let segment_size = *random.choose(&[4096, 4096, 16 << 10]);
        // Some jobs are longer than a segment.
        let max_job_size = *random.choose(&[20, 1000, 6000]);
        let disk = Disk::default();
        let storage = Arc::new(disk.clone());
        let opened = Binlog::open_in(storage, sync, segment_size, Jobs::new());
        let shell = Shell::new(opened.expect("an empty disk can be opened"), sync);
        let repeat =
            format!("SIMULATION_SEED={seed} SIMULATION_DAYS={days} cargo test --test simulation");
        Life {
            world: World::new(world::Random::new(seed), max_job_size, shell, repeat),
            disk,
            sync,
            segment_size,
            is_faulty: false,
            knows_times: true,
            tally: Tally::default(),
        }
    }

    /// Lets some busy moments pass, with silence between them.
    fn day(&mut self) {
        for _ in 0..8 {
            for _ in 0..self.below(25) {
                self.moment();
            }
            let silence = self.below(2 * DAY / 8);
            let until = self.world.model.now + silence;
            self.world.pass_time_until(until);
            self.work_once();
        }
        if self.one_in(3) {
            self.evening();
        }
    }

    fn moment(&mut self) {
        self.tally.moments += 1;
        match self.below(100) {
            0..5 => self.strike(),
            5..15 => self.work_once(),
            _ => self.world.step(),
        }
        // Replies that wait for the log at the same time share a write.
        if self.one_in(2) {
            self.deliver();
        }
    }

    /// Does one of the things that no client asks for.
    fn strike(&mut self) {
        match self.below(9) {
            0..3 => {
                let room = self.disk.used() + 4096 * self.below(3);
                self.note(&format!("the disk has only {room} bytes"));
                self.disk.set_capacity(Some(room));
            }
            3 => {
                self.note("the disk has room");
                self.disk.set_capacity(None);
            }
            4 => {
                let kind = *self.choose(&[ErrorKind::StorageFull, ErrorKind::Other]);
                let operation = self.disk.operations() + 1 + self.below(20);
                self.note(&format!("operation {operation} will fail: {kind}"));
                self.disk.fail_at(operation, kind);
                self.is_faulty = true;
            }
            5 => self.cut_power(),
            6 => self.cut_power_soon(),
            7 => self.kill(),
            _ => self.end(),
        }
    }

    /// Does the work of the log's threads.
    fn work_once(&mut self) {
        if self.world.keeper.work_once().is_err() {
            self.fail();
        }
    }

    /// Commits, and sends the replies that wait for the log.
    fn deliver(&mut self) {
        if self.world.keeper.deliver().is_err() {
            self.fail();
        }
    }

    /// The log has failed, so the server ends itself.
    fn fail(&mut self) {
        let failure = self.world.keeper.failure();
        assert!(self.is_faulty, "{failure}");
        self.note(&failure);
        self.tally.failures += 1;
        match self.one_in(3) {
            true => self.cut_power(),
            false => self.kill(),
        }
    }

    /// Kills the process. The machine runs on.
    fn kill(&mut self) {
        self.note("the server is killed");
        self.tally.kills += 1;
        self.go_on_after(Survival::Everything);
    }

    fn cut_power(&mut self) {
        self.tally.power_cuts += 1;
        let survival = *self.choose(&[Survival::Nothing, Survival::Something, Survival::Something]);
        self.note(&format!(
            "the power fails; of what was not synced survives: {survival:?}"
        ));
        self.go_on_after(survival);
    }

    /// Cuts the power in the middle of the next operations on the disk.
    fn cut_power_soon(&mut self) {
        let operations = self.below(12);
        self.note(&format!(
            "the power will fail after {operations} operations"
        ));
        self.disk.stop_after(operations);
        self.is_faulty = true;
        for _ in 0..20 {
            self.world.step();
            let shell = &mut self.world.keeper;
            if shell.deliver().is_err() || shell.work_once().is_err() {
                break;
            }
        }
        self.cut_power();
    }

    /// Ends the server in order.
    fn end(&mut self) {
        self.deliver();
        if self.world.keeper.close().is_err() {
            return self.fail();
        }
        self.note("the server ends");
        self.tally.ends += 1;
        let survival = *self.choose(&[Survival::Nothing, Survival::Everything]);
        self.go_on_after(survival);
    }

    /// Opens the log again, at some other time, and checks what it holds.
    fn go_on_after(&mut self, survival: Survival) {
        let is_false_start = self.one_in(4);
        let is_power_cut = is_false_start || !matches!(survival, Survival::Everything);
        let kept = match is_power_cut && self.sync != SyncMode::Always {
            true => self.world.keeper.synced(),
            false => self.world.keeper.acknowledged(),
        };
        let dice = &mut disk::Random::new(self.world.random.next());
        self.disk = match survival {
            Survival::Everything => kill(&self.disk),
            _ => cut(&self.disk, survival, dice),
        };
        if is_false_start {
            // The power fails while the log is opened.
            self.tally.false_starts += 1;
            let operations = self.below(20);
            self.disk.stop_after(operations);
            drop(self.open());
            self.disk = cut(&self.disk, Survival::Something, dice);
        } else if self.one_in(8) {
            self.tally.false_starts += 1;
            let operation = self.below(20);
            self.disk.fail_at(operation, ErrorKind::Other);
            drop(self.open());
            // The error of the disk does not come again.
            self.disk = kill(&self.disk);
        }
        self.is_faulty = false;
        let ended_at = self.world.now();
        self.jump();
        let opened = self.open();
        let mut opened = opened.unwrap_or_else(|error| panic!("it cannot be opened: {error}"));
        opened.jobs.set_next_id(opened.next_id);
        opened.jobs.check();
        let jobs: Jobs = stored(&opened.jobs);
        kept.check(&jobs, opened.next_id, ended_at, self.knows_times);

        let model = &mut self.world.model;
        let (kept, there): (Vec<_>, Vec<_>) =
            jobs.values().cloned().partition(StoredJob::is_deleted);
        let restored = there.into_iter().map(in_the_model).collect();
        let kept = kept.into_iter().map(key_in_the_model).collect();
        model.restart_with(restored, kept, opened.next_id.0 - 1);
        let in_map = Opened {
            binlog: opened.binlog,
            jobs,
            next_id: opened.next_id,
            notices: opened.notices,
        };
        self.tally.refused_puts += self.world.keeper.refused_puts;
        self.world.keeper = Shell::new(in_map, self.sync);
        // Tubes come back in the order of the log, which the model does not
        // know.
        self.world.knows_order = false;
        self.world.go_on_with(opened.jobs);
    }

    /// Opens the log on the disk, as the daemon does.
    fn open(&self) -> Result<Opened<Engine>, beanpole::binlog::Error> {
        let engine = world::engine(&self.world.model);
        let storage = Arc::new(self.disk.clone());
        Binlog::open_in(storage, self.sync, self.segment_size, engine)
    }

    /// Sets the clock. While there is no server, it may be set to any time.
    fn jump(&mut self) {
        let now = self.world.model.now;
        let then = match self.below(8) {
            0 => now - self.below(2 * DAY),
            1 => now - self.below(10 * SECOND),
            2 => now + self.below(30 * DAY),
            _ => now + self.below(HOUR),
        };
        self.knows_times &= then >= now;
        self.world.model.now = then;
        self.note("that is what the clock shows at the start");
    }

    /// All clients leave, and all jobs are deleted. Checks that nothing is
    /// left.
    fn evening(&mut self) {
        self.tally.evenings += 1;
        self.deliver();
        if self.is_faulty {
            // If the disk has not failed until now, it will not fail any more.
            self.kill();
        }
        self.disk.set_capacity(None);
        for client in self.world.links.keys().copied().collect::<Vec<_>>() {
            self.world.disconnect(client);
        }
        let sweeper = self.world.connect();
        let ids: Vec<u64> = self.world.model.jobs.iter().map(|job| job.id).collect();
        for id in ids {
            self.world.send(sweeper, &format!("delete {id}"), None);
        }
        self.world.send(sweeper, "stats", None);
        let keys = self.world.model.kept.iter().map(|kept| kept.until);
        if let Some(until) = keys.max() {
            self.world.pass_time_until(until);
        }
        self.deliver();
        self.world.disconnect(sweeper);
        assert_eq!(self.world.engine.job_count(), 0);
        assert_eq!(self.world.engine.memory(), 0);
        // The jobs of old segments are moved in pieces, one with each change.
        self.work_once();
        let (used, names) = (self.disk.used(), self.disk.names());
        let most = 3 * self
            .segment_size
            .max(self.world.model.max_job_size as u64 + 100)
            + 4096 * names.len() as u64;
        assert!(used <= most, "{used} bytes in {names:?}, not {most}");
        self.world.keeper.close().expect("nothing fails");

        let empty = world::engine(&self.world.model);
        let engine = std::mem::replace(&mut self.world.engine, empty);
        let bytes = freed_by(|| drop(engine));
        assert!(bytes <= EMPTY_ENGINE, "an empty engine keeps {bytes} bytes");
        let log = self.world.keeper.take_log();
        let bytes = freed_by(|| drop(log));
        assert!(bytes <= EMPTY_LOG, "an empty log keeps {bytes} bytes");
        self.world.history.lines.clear();
        self.knows_times = true;
        self.go_on_after(Survival::Nothing);
    }

    fn note(&mut self, text: &str) {
        let now = Time::from_nanos(self.world.model.now);
        let line = format!("{:?} {text}", now);
        self.world.history.lines.push(line);
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.world.random.below(limit as usize) as u64
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.world.random.one_in(number)
    }

    fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        self.world.random.choose(from)
    }
}

fn kill(disk: &Disk) -> Disk {
    disk.state().kill()
}

fn cut(disk: &Disk, survival: Survival, dice: &mut disk::Random) -> Disk {
    disk.state().cut(survival, dice)
}

/// How many bytes of the heap this work frees.
fn freed_by(work: impl FnOnce()) -> usize {
    let before = HEAP.stats();
    work();
    let done = HEAP.stats() - before;
    done.bytes_deallocated - done.bytes_allocated
}

fn stored(engine: &Engine) -> Jobs {
    let ids = (1..engine.next_id().0).map(JobId);
    let jobs = ids.filter_map(|id| engine.stored(id));
    jobs.map(|job| (job.id, job)).collect()
}
