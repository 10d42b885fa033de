//! The world around the server, and what it can do to it.
//!
//! This is the picture that all histories share; if it is wrong, they prove
//! nothing.
//!
//! *A process may be killed* at any step of any of its threads. Nothing that its
//! threads do after that counts. The kernel lives on: all that the process has
//! written to a file or a socket can be read, and nothing became durable by that.
//! Locks and descriptors are released, memory is lost, and clients see their
//! connections closed.
//!
//! *The power may be cut* after the end of a process, in order or not (a power cut
//! is a kill of everything).
//! What was synced is there. Of what was written to files and not synced, any
//! part may be there: all, nothing, some sectors of a write, a length without
//! its data. Names are synced apart from contents, and each change of a name may
//! survive without the ones before it. No client survives it.
//!
//! *A sync may fail.* It is reported once, to one thread. The pages count as clean
//! from then on: they can be read, no later sync writes them, and a power cut,
//! or the kernel when it is asked to forget them, brings back what was on the disk
//! before. (A sync of names is another matter: the next one tries again.)
//!
//! *Any operation may fail*, once or until the process ends, with an error of the
//! device or because the disk is full. An operation that failed has changed nothing,
//! except that a failed sync may have lost what it should have made durable.
//!
//! *The disk may become full and have room again* at any time, because of others.
//! Blocks that are allocated to a file remain its own.
//!
//! *A process may stall* at any step, for longer than storage that machines share
//! waits for a silent one, and then continue: its clocks have advanced, too. If no
//! other machine is there, the lock is still its own. Or *another machine has taken
//! the lock* meanwhile, and this one learns of it at its next check. The next process
//! finds what was there then, as after a kill. What this one writes later does not
//! count, and it may send nothing about jobs: they are the other machine's. Only what
//! it sends right after it has read the clock may come too late, since no process can
//! prevent that. *The lock may also be lost at once.* Then the process may for a
//! moment still send what depends on no later change.
//!
//! *At a restart* the process finds the files as the kernel has them, and the wall
//! clock shows any time, from a day before to thirty days ahead. The monotonic clock
//! begins at 0 again.
//!
//! *An operation of the disk* takes effect at one moment. Other threads may run
//! before this moment and after it.
//!
//! How the disk does all this is in `tests/binlog/disk.rs`, and sockets are in
//! `stream.rs`.
//!
//! *Left out* are bytes that change by themselves (`tests/binlog/damage.rs`), what
//! machines that share storage do to each other's files (`tests/binlog/fence.rs`),
//! and a network between client and server that delays or loses: the kernel of both
//! is the same, and it never resets a connection. An operation that fails has done
//! nothing, and a sync that fails has made nothing durable, while a real one may have
//! done a part; a kill leaves a write whole, while a long one may end between two pages. A
//! disk that stays broken is whole again for the next process. The wall clock is
//! never set while a process runs, threads can always be started, and clients have
//! no addresses.

use crate::binlog::storage::{File, Source, Storage};
use crate::simulator::disk::{Disk, Random};
use crate::simulator::hangup::Door;
use crate::simulator::judge::{self, Event};
use crate::simulator::plan::Plan;
use crate::simulator::threads;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// How many files may be open at a time, however many segments there are: the current
/// segment and the one before, three prepared ones, and four that begin in the batch that is
/// being written.
const DESCRIPTORS: usize = 9;

/// How long a stall lasts: the shortest time that beanpole-machines(7) allows storage
/// to wait for a silent machine.
const SILENCE: u64 = 10_000_000_000;

/// How often a server with nothing to do checks its lock, and a little more.
const CHECKS_WITHIN: u64 = 2_150_000_000;

/// Which operations of the disk a fault affects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Any,
    Write,
    Sync,
    SyncNames,
    Rename,
}

impl Kind {
    fn has(self, operation: &str) -> bool {
        match self {
            Kind::Any => true,
            Kind::Write => ["write", "cut", "allocate"].contains(&operation),
            Kind::Sync => operation == "sync",
            Kind::SyncNames => operation == "sync names",
            Kind::Rename => operation == "rename",
        }
    }
}

/// What happens at the first operation of a given kind whose number is at least the
/// given one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It fails, and perhaps all that follow.
    Fails { is_full: bool, for_good: bool },
    /// Others have used up the disk, except for this number of blocks.
    Fills(u64),
    /// There is room again.
    Drains,
    /// The process is killed before that operation.
    Kills,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

struct World {
    door: Arc<Door>,
    /// What the clock on the wall showed at the start.
    started_at: u64,
    disk: Disk,
    sync_takes: u64,
    /// Until when threads may wait for a sync, or for others to take part in the next one.
    syncs_until: u64,
    faults: Vec<(u64, Kind, Fault)>,
    for_good: Option<ErrorKind>,
    is_killed: bool,
    /// It has to end, in order.
    is_told_to_stop: bool,
    /// When its last stall ended.
    stalled_at: Option<u64>,
    stalled_for: u64,
    /// Since when another machine has the lock, and whether it was silent for so
    /// long before.
    replaced_at: Option<u64>,
    was_silent: bool,
    /// For each thread that has read the lease's clock and done nothing since that
    /// takes long: when that was, and how many locks it has taken since.
    clock_read_at: BTreeMap<threads::Id, (u64, u32)>,
    /// The threads that have checked whether the binlog has failed, and have done
    /// nothing since that takes long.
    have_looked: BTreeSet<threads::Id>,
    /// The disk as the next process finds it.
    left: Option<Disk>,
    /// How many bytes the disk had in all while others used it up, and the last
    /// step at which that was so.
    limits: Vec<(u64, u64)>,
}

impl World {
    /// What is there now is what the next process finds.
    fn leave(&mut self) {
        let disk = &self.disk;
        self.left.get_or_insert_with(|| disk.state().kill());
    }

    /// A sync ends then, and what waits for others that take part in the next one.
    fn expect_sync_until(&mut self, end: u64) {
        self.syncs_until = end + 2 * self.sync_takes + 100_000;
    }

    /// If the disk is still limited at this step, notes so.
    fn note_limit(&mut self) {
        if self.disk.state().is_limited()
            && let Some((_, until)) = self.limits.last_mut()
        {
            *until = threads::steps();
        }
    }
}

fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(|world| work(world.as_mut().expect("there is a world")))
}

/// A process begins. Returns its storage, and where clients come in.
pub fn begin(
    disk: Disk,
    plan: &Plan,
    faults: Vec<(u64, Kind, Fault)>,
    started_at: u64,
) -> (Arc<Drive>, Arc<Door>) {
    let door = Arc::new(Door::default());
    let is_shared = plan.is_shared;
    if is_shared {
        // As `lease` does it: segments that another server has prepared are its own.
        let names = disk.names().into_iter();
        let prepared = names.filter(|name| name.starts_with("segment.spare"));
        prepared.for_each(|name| disk.remove_file(&name));
    }
    disk.set_descriptors(DESCRIPTORS);
    if plan.lacks_calls {
        disk.lack_calls();
    }
    disk.watch(Arc::new(before));
    WORLD.set(Some(World {
        door: door.clone(),
        started_at,
        disk: disk.clone(),
        sync_takes: plan.sync_takes,
        syncs_until: 0,
        faults,
        for_good: None,
        is_killed: false,
        is_told_to_stop: false,
        stalled_at: None,
        stalled_for: 0,
        replaced_at: None,
        was_silent: false,
        clock_read_at: BTreeMap::new(),
        have_looked: BTreeSet::new(),
        left: None,
        limits: Vec::from_iter(disk.state().is_limited().then_some((0, 0))),
    }));
    (Arc::new(Drive { disk, is_shared }), door)
}

/// The disk as the next process finds it.
pub fn end() -> Disk {
    let world = WORLD.take().expect("there was a world");
    world.left.unwrap_or_else(|| world.disk.state().kill())
}

pub fn door() -> Arc<Door> {
    with(|world| world.door.clone())
}

/// In nanoseconds since the epoch.
pub fn wall_clock() -> u64 {
    with(|world| world.started_at) + threads::now()
}

pub fn is_killed() -> bool {
    with(|world| world.is_killed)
}

/// Whether an operation failed because it was made to fail.
pub fn has_broken() -> bool {
    with(|world| world.disk.failed().is_some())
}

/// Whether all threads wait for a sync, and soon go on.
pub fn is_syncing() -> bool {
    let until = with(|world| world.syncs_until);
    threads::wakes_at().is_some_and(|at| at <= until)
}

pub fn is_replaced() -> bool {
    with(|world| world.replaced_at.is_some())
}

/// Whether the process could not go on because of what happened to it.
pub fn is_struck() -> bool {
    is_killed() || has_broken() || is_replaced()
}

/// Whether there was a stall since then.
pub fn stalled_after(then: u64) -> bool {
    with(|world| world.stalled_at.is_some_and(|at| at >= then))
}

pub fn stalled_for() -> u64 {
    with(|world| world.stalled_for)
}

/// Whether another machine has had the lock for so long that this one must know.
pub fn must_know_of_its_loss() -> bool {
    with(|world| {
        let since = world.replaced_at;
        since.is_some_and(|at| at + CHECKS_WITHIN < threads::now())
    })
}

/// From now on nothing fails, and the disk has room.
pub fn calm() {
    with(|world| {
        world.note_limit();
        world.disk.set_capacity(None);
        world.faults.clear();
        world.for_good = None;
    });
}

/// How many bytes are taken on the disk, and by which files.
pub fn used() -> (u64, Vec<String>) {
    with(|world| (world.disk.used(), world.disk.names()))
}

/// Whether others have used up the disk.
pub fn is_limited() -> bool {
    with(|world| !world.limits.is_empty())
}

/// Whether a put of this length may have been refused by the disk, at this step
/// or later, with this number of live bytes.
pub fn may_refuse(since: u64, live: u64, put: u64, segment_size: u64) -> bool {
    with(|world| {
        // As the manual promises: twice what lives, and some segments.
        let len = segment_size.next_multiple_of(4096);
        let enough = 2 * (live + put) + 10 * (len + 4096);
        // A start on a full disk chooses the shortest files, and they stay so.
        let is_long = put > 3600;
        let mut limits = world.limits.iter();
        world.disk.failed().is_some()
            || world.replaced_at.is_some()
            || limits.any(|&(capacity, until)| (until >= since || is_long) && capacity < enough)
    })
}

/// Whether a sync of a file has failed.
pub fn has_lost_sync() -> bool {
    with(|world| world.disk.state().has_lost_sync)
}

/// The process is killed now.
pub fn kill() {
    with(|world| {
        if !world.is_killed {
            world.is_killed = true;
            world.leave();
            world.disk.stop_after(0);
            judge::see(Event::Ends(world.started_at + threads::now()));
        }
    });
    threads::unpark(threads::MAIN);
}

/// The process has to end, in order.
pub fn stop() {
    with(|world| world.is_told_to_stop = true);
    threads::unpark(threads::MAIN);
}

/// Whether it has to end, or was killed.
pub fn is_over() -> bool {
    with(|world| world.is_killed || world.is_told_to_stop)
}

/// The process stalls now.
pub fn stall() {
    with(|world| {
        threads::stall(SILENCE);
        world.stalled_at = Some(threads::now());
        world.stalled_for += SILENCE;
        // What waits for a sync has not had this time.
        world.syncs_until += SILENCE;
    });
    judge::see(Event::Stalls(SILENCE));
}

/// Another machine takes the lock, after a silence or at once.
pub fn replace(was_silent: bool) {
    with(|world| {
        if world.replaced_at.is_none() {
            world.leave();
            (world.replaced_at, world.was_silent) = (Some(threads::now()), was_silent);
        }
    });
    judge::see(Event::Replaced);
}

/// This happens at the next operation of this kind.
pub fn inject(kind: Kind, fault: Fault) {
    with(|world| world.faults.push((0, kind, fault)));
}

/// This thread does something that may take long.
pub fn takes_long() {
    if let Some(id) = threads::current() {
        with(|world| {
            world.clock_read_at.remove(&id);
            world.have_looked.remove(&id);
        });
    }
}

/// This thread may have to wait for another one.
pub fn locks() {
    if let Some(id) = threads::current() {
        with(|world| {
            if let Some((_, locks)) = world.clock_read_at.get_mut(&id) {
                *locks += 1;
            }
        });
    }
}

/// This thread checks whether the binlog has failed.
pub fn looks() {
    if let Some(id) = threads::current() {
        with(|world| world.have_looked.insert(id));
    }
}

/// A thread that writes acknowledges a change of another client. It may not if it
/// could know that a sync has failed: the kernel may have dropped what was written.
pub fn tells_another(bytes: &[u8]) {
    let id = threads::current().expect("a thread tells");
    let knows = || with(|world| world.have_looked.contains(&id));
    if has_lost_sync() && !is_killed() && !knows() {
        let told = String::from_utf8_lossy(bytes);
        let changes = ["INSERTED ", "DELETED", "RELEASED", "BURIED", "KICKED"];
        assert!(
            !changes.iter().any(|change| told.starts_with(change)),
            "it sends {told:?} after a sync has failed, and has not checked that"
        );
    }
}

/// The server gives this to the kernel to send. It may not if it could know that
/// another machine has the lock: it has read the clock since then, or has not
/// read it right before. (Only the client's own lock comes between.)
pub fn tells(bytes: &[u8]) {
    let id = threads::current().expect("a thread tells");
    let (read_at, replaced_at) = with(|world| {
        let replaced_at = world.replaced_at.filter(|_| world.was_silent);
        (world.clock_read_at.remove(&id), replaced_at)
    });
    if let Some(replaced_at) = replaced_at.filter(|_| !is_killed()) {
        let told = String::from_utf8_lossy(bytes);
        let is_failure = told.lines().all(|line| line == "INTERNAL_ERROR");
        let was_ours = read_at.is_some_and(|(at, locks)| at < replaced_at && locks <= 1);
        assert!(is_failure || was_ours, "it sends {told:?} without the lock");
    }
}

/// Each operation of the disk takes its time, and may meet a fault.
fn before(disk: &Disk, kind: &'static str) {
    threads::pass();
    if kind == "done" {
        with(|world| world.expect_sync_until(threads::now()));
        return;
    }
    takes_long();
    if kind == "sync" {
        let until = threads::now() + with(|world| world.sync_takes);
        with(|world| world.expect_sync_until(until));
        while threads::now() < until {
            threads::wait(Some(until));
        }
    }
    let operation = disk.operations() + 1;
    let mut kills = false;
    with(|world| {
        let is_due = |(at, hits, _): &mut (u64, Kind, Fault)| *at <= operation && hits.has(kind);
        let due: Vec<_> = world.faults.extract_if(.., is_due).collect();
        world.note_limit();
        for (_, _, fault) in due {
            match fault {
                Fault::Fails { is_full, for_good } => {
                    let kind = if is_full {
                        ErrorKind::StorageFull
                    } else {
                        ErrorKind::Other
                    };
                    disk.fail_at(operation, kind);
                    world.for_good = for_good.then_some(kind);
                }
                Fault::Fills(blocks) => {
                    let capacity = disk.used() + 4096 * blocks;
                    disk.set_capacity(Some(capacity));
                    world.limits.push((capacity, threads::steps()));
                }
                Fault::Drains => disk.set_capacity(None),
                Fault::Kills => kills = true,
            }
        }
        let reads = ["list", "open", "has", "read", "forget", "unshare"].contains(&kind);
        if let Some(kind) = world.for_good.filter(|_| !reads) {
            disk.fail_at(operation, kind);
        }
    });
    if kills {
        kill();
    }
}

/// The disk, as the threads of a process reach it.
pub struct Drive {
    disk: Disk,
    is_shared: bool,
}

impl Source for Drive {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open_to_read(name)
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl Storage for Drive {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check_lock()?;
        self.disk.create(name)
    }

    fn has(&self, name: &str) -> io::Result<bool> {
        self.disk.has(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_lock()?;
        let is_used_again = from.starts_with("segment") && !from.starts_with("segment.spare");
        assert!(!is_used_again || !self.is_shared, "{from}");
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_lock()?;
        self.disk.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        Storage::sync(&self.disk)
    }

    fn free(&self) -> Option<u64> {
        with(World::note_limit);
        self.disk.free()
    }

    fn check_lock(&self) -> io::Result<()> {
        if !self.is_shared {
            return Ok(());
        }
        self.disk.list()?;
        let is_replaced = is_replaced();
        threads::pass();
        if is_replaced {
            Err(io::Error::other("another machine has it"))
        } else {
            Ok(())
        }
    }
}

/// The clock of the lease.
pub fn time_since_boot() -> Duration {
    let now = threads::tick();
    let id = threads::current().expect("a thread asks");
    with(|world| world.clock_read_at.insert(id, (now, 0)));
    threads::pass();
    Duration::from_nanos(now)
}

/// What a power cut leaves.
pub fn cut(disk: &Disk, survival: crate::simulator::disk::Survival, seed: u64) -> Disk {
    disk.state().cut(survival, &mut Random::new(seed))
}
