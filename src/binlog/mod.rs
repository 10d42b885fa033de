//! The binlog: what was acknowledged is kept.
//!
//! **The promise.** Every change of a job's state becomes a record in a log on
//! disk; a restart reads it and has the jobs again, with everything that
//! `stats-job` tells of them. With [`SyncMode::Always`] a change is acknowledged
//! when its record is synced, so a power cut loses nothing acknowledged. With
//! `Every` and `Never` it is acknowledged when its record is written, so the
//! end of the process loses nothing, and a power cut no more than was not
//! synced yet. What cannot be kept is not acknowledged: after a write or a sync
//! that failed, nothing is, ever again. Then it is not known whether what was
//! refused so was kept: the next start may show it.
//!
//! # What is on the disk
//!
//! The binlog is cut into *segments*, the files `binlog.1`, `binlog.2` and so on:
//! each a header, then records, then zeros. The newest one is written to. Beside
//! them there may be two files of zeros: the *spare*, `binlog.spare`, in which
//! the next segment will begin, and the *reserve*, `binlog.reserve`, which is the
//! room for it once the disk is full. `frame` and `record` have the bytes,
//! beanpole-binlog(5) the list of all states in which the directory may be found,
//! and five stories in `tests/binlog/stories` show it at work.
//!
//! *A put* is one record behind the last one: the job with all its fields, tube
//! and body, written into zeros that are there already, then synced. *A change*
//! of the job's state is a shorter record of its fields, *a delete* one of its
//! id. A record lies in one segment, whatever its length.
//!
//! *A new segment* begins when a record would go beyond `-s`, in this order:
//!
//! 1. The newest segment is synced, and cut behind its last record.
//! 2. The header of the next one is written into the spare, and synced. It says
//!    where the records of the segment before end.
//! 3. The spare gets the name of that segment, and the directory is synced.
//! 4. Only then come records. Soon there is another spare.
//!
//! *A segment goes* when no live job's latest put is in it: in the order of the
//! numbers, so whatever came later about a job outlives its put. A *mark* behind
//! all by which the jobs were deleted or put again names the oldest segment
//! still needed; when it is synced, the file is removed, or becomes the spare.
//!
//! From this follow the two things on which recovery builds. *Only the end can
//! be torn:* what is missing is behind the last sync, in the newest segment, and
//! was not promised. *What is needed is there.* Damage (flipped bits, files cut
//! short or lost) is something else than a torn end. Each record's checksum
//! covers all of it and its place in the binlog, each header says where the
//! segment before it ends, and each record how far the binlog was synced when it
//! was written: what is bad although it had been synced was damaged, and nothing
//! is served until somebody has looked at it.
//!
//! # How a change gets there
//!
//! ```text
//!  worker, before the server's lock    reserve_put   room for a put, or OUT_OF_MEMORY
//!  worker, timer, under that lock      append        into memory, in the order of changes
//!  worker, after it, before replies    commit        written and synced, by somebody
//! ```
//!
//! A change has one name, the engine's [`Change`], and on disk one form, a
//! [`Record`]. [`append`](Binlog::append) makes the one of the other; it makes no
//! system call and copies no body.
//!
//! [`commit`](Binlog::commit) is group commit: who finds nobody writing takes
//! the `writer`, writes for all who have appended anything so far, syncs once,
//! and tells each whose records were among it. Who finds somebody writing
//! leaves word what is to happen then, and next time the first to come writes.
//! That may be the committer, a thread that looks after those who wait and
//! syncs in time what nobody waits for.
//!
//! A job may be handed out before its own put is kept: nobody may be told of it
//! before [`kept_from`](Binlog::kept_from) is committed, or after a power cut
//! somebody would hold a job that never was, and another one of the same id.
//!
//! # How space comes back
//!
//! With each append, a few live jobs of the oldest segment are put again at the
//! end, if there is too much garbage: no pause, and the disk holds at most twice
//! what lives and three times the larger of `-s` and the largest body. A full
//! disk stops puts, and nothing else. `room` has the reckoning.
//!
//! # Who holds what, in which order
//!
//! The server's lock comes first, if it is held at all; under it, only `append` and
//! what `stats`, `stats-job` and a reservation ask for are allowed. Then `upkeep`,
//! held by the one who sees to the spare and to empty segments, for as long as that
//! takes. Then the `tail`, for moments. The rest (`turn`, `progress`, `schedule`)
//! for moments, nothing being locked meanwhile. The writer is no lock: it is handed
//! from thread to thread, and may wait for `upkeep`, so nobody waits for the writer
//! who holds that.
//!
//! # In which order to read
//!
//! `frame` and `record`, `tail` with `ledger`, `writer`, `commit`, `room`, `spare`; then
//! `segment`, `opening` and `recovery`; then `beanstalkd` and `import`. Below all of them is
//! `storage`, with the `fence` around a directory that two machines can use, where
//! the tests put a disk of their own that loses and breaks whatever a real one might.

pub mod beanstalkd;
mod commit;
mod error;
mod fence;
pub mod frame;
pub mod import;
mod ledger;
mod opening;
pub mod record;
mod recovery;
mod room;
pub mod segment;
mod spare;
pub mod storage;
mod tail;
mod writer;

pub use error::Error;
pub use record::{Record, Update};

use crate::engine::{Change, Engine, StoredJob};
use crate::protocol::JobId;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, OnceLock, Ordering};
use commit::{Schedule, Turn};
use record::put_len;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::{Directory, Storage};
use tail::Tail;
use writer::{Progress, Writer};

/// When the binlog is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before an acknowledgement: a power cut loses nothing acknowledged.
    Always,
    /// At most so long after a change: a power cut loses no more than that.
    Every(Duration),
    /// When a segment is full, and before one is removed.
    Never,
}

/// How to open a binlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The directory with the segments.
    pub dir: PathBuf,
    /// When to sync.
    pub sync: SyncMode,
    /// Where a segment ends, in bytes. Only one with a longer record is longer.
    pub segment_size: u64,
    /// Whether to wait while another server has the directory.
    pub wait: bool,
}

impl Options {
    /// The segment size unless another one is asked for: 10 MiB.
    pub const SEGMENT_SIZE: u64 = 10 << 20;
}

/// A binlog that was opened, and what it held.
pub struct Opened<J = BTreeMap<JobId, StoredJob>> {
    /// To write on.
    pub binlog: Arc<Binlog>,
    /// The jobs that live.
    pub jobs: J,
    /// The lowest id that no job ever had.
    pub next_id: JobId,
    /// What the person in front of it should know, a line each.
    pub notices: Vec<String>,
}

/// The jobs whose changes are logged. When a binlog is opened, they come to life
/// here one by one, as it is read: there is no second place with all of them.
pub trait Jobs {
    /// The job of this id as it is now, if it lives. The binlog asks for it when
    /// it has changed, and when it is put again.
    fn stored(&self, id: JobId) -> Option<StoredJob>;

    /// Adds a job, in the place of the one that had its id; whether there was one.
    fn restore(&mut self, job: StoredJob) -> bool;

    /// Removes a job.
    fn forget(&mut self, id: JobId) -> Option<StoredJob>;
}

impl Jobs for Engine {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        Engine::stored(self, id)
    }

    fn restore(&mut self, job: StoredJob) -> bool {
        let before = Engine::forget(self, job.id);
        Engine::restore(self, job);
        before.is_some()
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        Engine::forget(self, id)
    }
}

impl Jobs for BTreeMap<JobId, StoredJob> {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        self.get(&id).cloned()
    }

    fn restore(&mut self, job: StoredJob) -> bool {
        self.insert(job.id, job).is_some()
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        self.remove(&id)
    }
}

/// A place in the binlog: what was appended before it is what `commit` waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// There is no room on the disk for another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The binlog has failed, and nothing more will be kept: see [`Binlog::failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// For `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The oldest segment that is needed.
    pub oldest_index: u32,
    /// The segment being written.
    pub current_index: u32,
    /// Records written since the start.
    pub records_written: u64,
    /// How many of them moved a job to another segment.
    pub records_migrated: u64,
    /// Where a segment ends, as it was asked for.
    pub max_size: u64,
}

/// What the threads have to tell while the binlog is in use.
#[derive(Debug)]
pub enum Event<'a> {
    /// There is no room for another segment: puts will be refused.
    Full(&'a Error),
    /// There is room again.
    Room,
    /// A write or a sync failed. Nothing more is acknowledged, and nothing
    /// will be kept: the server has to end.
    Failed(&'a Error),
}

/// The binlog: the log of all changes, open for more.
///
/// [`append`](Self::append) belongs under the server's lock, right after the
/// change; everything that may wait belongs outside.
pub struct Binlog {
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    /// As it was asked for.
    segment_size: u64,
    /// What is appended. Held for moments, innermost; no file is touched meanwhile.
    tail: Mutex<Tail>,
    /// Who writes, and who waits for it. Held for moments.
    turn: Mutex<Turn>,
    /// How far the files have come. Held for moments.
    progress: Mutex<Progress>,
    /// Up to where commits are fulfilled, and where the binlog ends: copies, to be
    /// read without a lock.
    reached: AtomicU64,
    end: AtomicU64,
    /// Held by the one who sees to the spare and to empty segments, as long as
    /// that takes.
    upkeep: Mutex<()>,
    /// What the threads have to do.
    schedule: Mutex<Schedule>,
    /// Wakes the committer.
    scheduled: Condvar,
    /// Wakes the thread that sees to the files.
    upkeep_wanted: Condvar,
    /// Whether the committer knows already that something waits.
    pending: AtomicBool,
    failure: OnceLock<Error>,
}

impl Binlog {
    /// Locks a directory and reads what it holds.
    ///
    /// Its jobs go to `jobs`, in which there is none. Those of a directory that
    /// beanstalkd wrote are taken over. Whatever is wrong with the directory,
    /// no segment in it is changed by an error.
    pub fn open<J: Jobs>(options: &Options, jobs: J) -> Result<Opened<J>, Error> {
        let directory = Arc::new(Directory::lock(&options.dir, options.wait)?);
        Binlog::open_in(directory, options.sync, options.segment_size, jobs)
    }

    /// The same in any storage.
    pub fn open_in<J: Jobs>(
        storage: Arc<dyn Storage>,
        sync: SyncMode,
        segment_size: u64,
        jobs: J,
    ) -> Result<Opened<J>, Error> {
        recovery::recover(storage, sync, segment_size, jobs)
    }

    /// Sets room aside for a put, before the state is locked. It may wait
    /// until a file is made.
    ///
    /// `tube_len` may be more than it will be; `body_len` is with CR LF.
    pub fn reserve_put(&self, tube_len: usize, body_len: usize) -> Result<Room<'_>, NoRoom> {
        let len = put_len(tube_len, body_len);
        self.let_in(len)?;
        Ok(Room { binlog: self, len })
    }

    /// Appends changes, in memory. Belongs under the lock under which they were
    /// made, so that the order of the binlog is the order of changes.
    ///
    /// The position is for [`commit`](Self::commit).
    pub fn append(&self, changes: &[Change], jobs: &dyn Jobs) -> Position {
        let mut tail = self.tail();
        for change in changes {
            tail.append(*change, jobs);
        }
        self.end.store(tail.end.0, Ordering::Release);
        tail.end
    }

    /// The position that must be committed before anything may be told of a job
    /// to anybody; `None` if its put is kept, which it usually is. May be asked
    /// under the server's lock.
    pub fn kept_from(&self, id: JobId) -> Option<Position> {
        let reached = self.reached.load(Ordering::Acquire);
        if reached >= self.end.load(Ordering::Acquire) {
            return None;
        }
        self.tail().kept_from(id, Position(reached))
    }

    /// For `stats`.
    pub fn stats(&self) -> Stats {
        let tail = self.tail();
        Stats {
            oldest_index: tail.ledger.oldest(),
            current_index: tail.ledger.current(),
            records_written: tail.written,
            records_migrated: tail.migrated,
            max_size: self.segment_size,
        }
    }

    /// The earliest segment that a live job needs; 0 for any other.
    pub fn segment_of(&self, id: JobId) -> u32 {
        self.tail().ledger.segment_of(id).unwrap_or(0)
    }

    /// Why the binlog failed, if it did.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// A binlog whose current segment is the writer's.
    fn new(
        storage: Arc<dyn Storage>,
        sync: SyncMode,
        segment_size: u64,
        tail: Tail,
        writer: Writer,
    ) -> Binlog {
        Binlog {
            storage,
            sync,
            segment_size,
            tail: Mutex::new(tail),
            progress: Mutex::new(writer.progress(Position::default())),
            turn: Mutex::new(Turn::new(writer)),
            reached: AtomicU64::new(0),
            end: AtomicU64::new(0),
            upkeep: Mutex::new(()),
            schedule: Mutex::default(),
            scheduled: Condvar::new(),
            upkeep_wanted: Condvar::new(),
            pending: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    /// Why it cannot go on.
    fn into_error(self) -> Error {
        let full = held(self.tail.into_inner()).full.and_then(Arc::into_inner);
        let error = self.failure.into_inner().or(full);
        error.expect("it is asked for after an error")
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        held(self.tail.lock())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        held(self.progress.lock())
    }
}

/// What a lock guards is whole, or else the process has ended.
fn held<T>(locked: std::sync::LockResult<T>) -> T {
    locked.expect("no thread panics while it holds a lock of the binlog")
}

/// Room set aside for a put; dropping it gives back what was not used. Hold it
/// until the put is appended, or will not be.
pub struct Room<'a> {
    binlog: &'a Binlog,
    len: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.binlog.tail().release(self.len);
    }
}
