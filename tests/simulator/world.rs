//! The world around the server, and what it can do to it.
//!
//! This is the picture that all histories share; if it is wrong, they prove
//! nothing.
//!
//! *A process may be killed* at any step of any of its threads. Nothing that its
//! threads do after that counts. The kernel lives on: all that the process has
//! written to a file or a socket can be read, and nothing became durable by that.
//! Locks and descriptors are free, memory is gone, clients see their connections
//! closed.
//!
//! *The power may be cut* after a kill (a power cut is a kill of everything).
//! What was synced is there. Of what was written to files and not synced, any
//! part may be there: all, nothing, some sectors of a write, a length without
//! its data. Names are synced apart from contents, each change of a name may
//! survive without the ones before it. Nobody's clients survive it.
//!
//! *A sync may fail.* It is reported once, to one thread. The pages count as clean
//! from then on: they can be read, no later sync writes them, and a power cut,
//! or the kernel when it forgets them, brings back what was on the disk before.
//!
//! *Any operation may fail*, once or from then on, with an error of the device or
//! for want of room. What failed has not changed anything, except that a failed
//! sync may have lost what it was to keep.
//!
//! *The disk may become full and have room again* at any time, because of others.
//! Blocks that are allocated to a file remain its own.
//!
//! *At a restart* the process finds the files as the kernel has them, and any
//! time on the clock on the wall. The monotonic clock begins anew.
//!
//! *An operation of the disk* takes effect at one moment. Other threads may run
//! before this moment and after it.
//!
//! How the disk does all this is in `tests/binlog/disk.rs`, and sockets are in
//! `server/stream.rs`. Left out: bytes that change by themselves
//! (`tests/binlog/damage.rs`), storage that several machines use
//! (`tests/binlog/fence.rs`), and a network between client and server that
//! delays or loses: the kernel of both is the same.

use crate::binlog::storage::{File, Storage};
use crate::disk::{Disk, Random};
use crate::hangup::Door;
use crate::judge;
use crate::threads;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// So many files may be open at a time, however many segments there are.
const DESCRIPTORS: usize = 6;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// For faults: any of the others.
    Any,
    Read,
    /// A file is created, renamed or removed.
    Name,
    Write,
    Sync,
    SyncNames,
}

/// What happens at the first operation of some kind that has at least some
/// number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It fails, and perhaps all that follow.
    Fails { is_full: bool, for_good: bool },
    /// Others have used up the disk, but for so many blocks.
    Fills(u64),
    /// There is room again.
    Drains,
    /// The process is killed before it.
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
    faults: Vec<(u64, Kind, Fault)>,
    for_good: Option<ErrorKind>,
    /// A sync has failed, and the kernel may have forgotten what it was to keep.
    lost_sync: bool,
    /// The disk as the next process finds it.
    left: Option<Disk>,
    /// How many bytes the disk had in all while others used it up, and the last
    /// step at which that was so.
    limits: Vec<(u64, u64)>,
    /// The thread that ends the server.
    main: threads::Id,
}

impl World {
    /// What limits the disk still does so at this step.
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
    faults: Vec<(u64, Kind, Fault)>,
    started_at: u64,
) -> (Arc<Drive>, Arc<Door>) {
    let door = Arc::new(Door::default());
    disk.set_descriptors(DESCRIPTORS);
    // As `fence`, which is not here: what a first start has left that came to no
    // end.
    let names = disk.names().into_iter();
    let left = names.filter(|name| name.ends_with(".0"));
    left.for_each(|name| disk.remove_file(&name));
    WORLD.set(Some(World {
        door: door.clone(),
        started_at,
        disk: disk.clone(),
        faults,
        for_good: None,
        lost_sync: false,
        left: None,
        limits: Vec::from_iter(disk.state().is_limited().then_some((0, 0))),
        main: 0,
    }));
    (Arc::new(Drive(disk)), door)
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
    with(|world| world.left.is_some())
}

/// Whether something failed because it was made to fail.
pub fn is_struck() -> bool {
    with(|world| world.left.is_some() || world.disk.failed().is_some())
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
/// or later, if so many bytes of jobs live.
pub fn may_refuse(since: u64, live: u64, put: u64, segment_size: u64) -> bool {
    with(|world| {
        // As the manual promises: twice what lives, and some segments.
        let longest = segment_size.max(put + 4096) + 4096;
        let enough = 2 * (live + put) + 10 * longest;
        let mut limits = world.limits.iter();
        world.disk.failed().is_some()
            || limits.any(|&(capacity, until)| until >= since && capacity < enough)
    })
}

/// Whether a sync of a file has failed.
pub fn has_lost_sync() -> bool {
    with(|world| world.lost_sync)
}

/// The process is killed now.
pub fn kill() {
    let main = with(|world| {
        if world.left.is_none() {
            world.left = Some(world.disk.state().kill());
            world.disk.stop_after(0);
            judge::freeze(world.started_at + threads::now());
        }
        world.main
    });
    threads::unpark(main);
}

/// The disk, as the threads of a process reach it.
pub struct Drive(Disk);

impl Drive {
    /// Each operation takes its time.
    fn on<R>(&self, kind: Kind, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        threads::pass();
        let operation = self.0.operations() + 1;
        let mut kills = false;
        with(|world| {
            let is_due = |(at, hits, _): &mut (u64, Kind, Fault)| {
                *at <= operation && (*hits == Kind::Any || *hits == kind)
            };
            let due: Vec<_> = world.faults.extract_if(.., is_due).collect();
            world.note_limit();
            for (_, _, fault) in due {
                match fault {
                    Fault::Fails { is_full, for_good } => {
                        let kind = match is_full {
                            true => ErrorKind::StorageFull,
                            false => ErrorKind::Other,
                        };
                        world.disk.fail_at(operation, kind);
                        world.for_good = for_good.then_some(kind);
                    }
                    Fault::Fills(blocks) => {
                        let capacity = world.disk.used() + 4096 * blocks;
                        world.disk.set_capacity(Some(capacity));
                        world.limits.push((capacity, threads::steps()));
                    }
                    Fault::Drains => world.disk.set_capacity(None),
                    Fault::Kills => kills = true,
                }
            }
            if let Some(kind) = world.for_good.filter(|_| kind != Kind::Read) {
                world.disk.fail_at(operation, kind);
            }
        });
        if kills {
            kill();
        }
        let done = work();
        with(|world| world.lost_sync |= kind == Kind::Sync && done.is_err());
        threads::pass();
        done
    }

    fn handle(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Handle(Drive(self.0.clone()), file))
    }
}

impl Storage for Drive {
    fn list(&self) -> io::Result<Vec<String>> {
        self.on(Kind::Read, || self.0.list())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.on(Kind::Read, || self.0.open(name))
            .map(|file| self.handle(file))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let opened = self.on(Kind::Read, || self.0.open_to_read(name));
        opened.map(|file| self.handle(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.on(Kind::Name, || self.0.create(name))
            .map(|file| self.handle(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.on(Kind::Name, || self.0.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.on(Kind::Name, || self.0.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.on(Kind::SyncNames, || Storage::sync(&self.0))
    }

    fn random(&self) -> u32 {
        threads::below(1 << 32) as u32
    }
}

struct Handle(Drive, Arc<dyn File>);

impl File for Handle {
    fn len(&self) -> io::Result<u64> {
        self.1.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.on(Kind::Read, || self.1.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.on(Kind::Write, || self.1.write_at(bytes, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.on(Kind::Write, || self.1.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.on(Kind::Write, || self.1.allocate(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.on(Kind::Sync, || self.1.sync())
    }

    fn forget(&self) -> io::Result<()> {
        self.0.on(Kind::Read, || self.1.forget())
    }
}

/// What a power cut leaves.
pub fn cut(disk: &Disk, survival: crate::disk::Survival, seed: u64) -> Disk {
    disk.state().cut(survival, &mut Random::new(seed))
}
