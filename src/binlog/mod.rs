//! The binlog: a write-ahead log of all changes of jobs.
//!
//! **The promise.** Every change of a job's state becomes a record in a log on disk. A
//! restart reads the log and has the jobs again, with everything that `stats-job` shows
//! of them. (A reservation is in the log when it ends, so `reserves` may lack the one
//! that the end of the server has cut short.) With [`SyncMode::Always`] a change is
//! acknowledged when its record is synced, so a power cut loses nothing acknowledged.
//! With `Every` and `Never` it is acknowledged when its record is written, so the end of
//! the process loses nothing, and a power cut loses only what was not synced yet. What
//! the log cannot hold is not acknowledged. After a write or a sync has failed, nothing
//! is acknowledged any more. A change whose acknowledgement was refused for this reason
//! may be on the disk all the same; then it takes effect at the next start.
//!
//! # What is on the disk
//!
//! The binlog is cut into *segments*, the files `segment.1`, `segment.2` and so
//! on. Each has a header, then records, then zeros. Records are written to the
//! newest segment. The next segments begin in *prepared segments*: preallocated
//! files (`segment.spare`, `segment.spare2` and so on), or segments that are not needed
//! any more. `format` describes the bytes, beanpole-binlog(5) lists all states in which the
//! directory may be found, and five stories in `tests/binlog/stories` show it at work.
//!
//! *A put* is one record at the end of the log: the job with all its fields, tube
//! and body, written over the zeros of the preallocated file, then synced. *A change* of
//! the job's state is a shorter record with its fields; *a delete* is a record
//! with its id. A record lies in one segment, whatever its length.
//!
//! *A new segment* begins when a record does not fit into the file of the newest
//! one, in this order:
//!
//! 1. The newest segment is synced.
//! 2. The header of the next segment is written into a prepared one, whose file is renamed
//!    to the name of that segment. The header says where the records of the previous
//!    segment end.
//! 3. Records are written to it. With its first sync, and a sync of the directory, they
//!    are durable, and so are the header and the name.
//! 4. Only then a last frame in the previous segment says that another one follows. Soon
//!    another segment is prepared.
//!
//! *A segment is obsolete* when no live job has its latest put in it. Segments
//! become obsolete in the order of their numbers, so all later records about a job
//! outlive its put. A *mark*, which lies after the records that deleted the jobs or put
//! them again, names the oldest segment that is still needed: it is the low-water mark
//! of the log. When the mark is synced, an obsolete segment is recycled as a prepared one,
//! under its old name, or removed.
//!
//! Recovery relies on two facts that follow from this. *Only the end can be
//! torn:* what is missing after a power cut comes after the last sync, in the
//! newest segment, and was never acknowledged. It may be all of that segment, header and name
//! too. *No needed segment is missing.* Damage
//! (flipped bits, files cut short or lost) is different from a torn tail. Each
//! record's checksum covers the whole record and its position in the binlog. Each
//! header says where the previous segment ends. Each record says how far its
//! segment was synced when it was written. So if bytes are bad although they had
//! been synced, this is damage, and the server does not start before an administrator
//! has repaired it.
//!
//! # How a change reaches the log
//!
//! ```text
//!  worker, under the server's lock     admits        whether there is room for a put
//!  worker, without it                  make_room     waits for room, or OUT_OF_MEMORY
//!  worker, timer, under that lock      append        into memory, in the order of changes
//!  worker, after it, before replies    commit_then   group commit: written, with -f 0 synced
//! ```
//!
//! The engine calls a change a [`Change`], and on disk it is a [`Record`].
//! [`append`](Binlog::append) makes one from the other; it makes no system call
//! and copies no body.
//!
//! [`commit_then`](Binlog::commit_then) is group commit: one thread writes and
//! syncs what all threads have appended, and notifies those that wait. See `log`.
//!
//! [`needed_for`](Binlog::needed_for) says up to which LSN the log must be durable
//! before a reply is sent. A job may be reserved before its put is durable, but no
//! client may get the reply. Otherwise, after a power cut, a client could hold a job
//! that is lost, while a new job has the same id.
//!
//! # Compaction and disk use
//!
//! If there is too much garbage, each append also puts a few live jobs of the
//! oldest segment again at the end. So there is no pause. The files take at most
//!
//! ```text
//!  2 × live bytes  +  5 × length of a segment  +  unused ends of segments
//! ```
//!
//! where each put is counted at its maximum length ([`put_len`]). All segments have one
//! length, which is chosen at the start (`recovery`). A full disk stops puts, and nothing
//! else: `tail` has the rule for that.
//!
//! # Locks, and their order
//!
//! 1. The server's lock, if it is held at all. Under it, only `admits`,
//!    `append`, `needed_for`, `has_backpressure`, what `stats` and `stats-job` ask for, and
//!    the compaction for a put are allowed.
//! 2. `tail`, briefly.
//!
//! `segment` is held while the current segment is synced, and after a failure while the
//! waiters are notified; `lease` is held while a thread checks that the lock of a shared
//! directory is still ours. `commit_queue` is held
//! briefly, and its holder takes no other lock. The writer is no lock: threads hand it to
//! each other. While the segments thread works on a file, the file is in no list: so the
//! writer and this thread wait for each other only while one of them syncs.
//!
//! # What each mechanism is for
//!
//! Each serves a promise of beanpoled(8) or beanpole-binlog(5), and a test fails
//! without it.
//!
//! | mechanism | promise | test |
//! |---|---|---|
//! | one encoding, checksums bound to position and salt (`format`) | damage is named, and never taken for a record | `a_flipped_bit_in_a_closed_log_is_noticed_or_harmless`, `a_torn_tail_with_a_frame_in_a_body_is_not_reported_as_damage` |
//! | frames say how far the segment was synced | a torn tail is not taken for damage, nor damage for a torn tail | `the_newest_segment_cut_at_any_byte_gives_all_complete_changes_before_the_cut` |
//! | order of a rotation (`log`) | a power cut tears the newest segment only | the simulator: `random histories` |
//! | header and name become durable with the first records (`log`), the name at the same time by another thread (`files`) | with `-f 50`, a put waits for one sync where a segment begins, besides the one that runs | `a_new_segment_and_its_name_are_synced_at_the_same_time`, `where_replies_wait_for_no_sync_a_new_segment_makes_them_wait_for_one`, `a_newest_segment_without_header_is_damage_only_if_it_was_synced`, `a_header_that_an_earlier_process_has_left_is_replaced_before_its_file_is_a_segment` |
//! | marks before removal (`tail`, `files`) | a segment is removed only when nothing needs it | the simulator: `random histories` |
//! | what a put waits for is not synced (`files`) | where syncs take long, no put waits for those of new files | `a_put_that_waits_for_files_waits_for_no_sync` |
//! | group commit (`log`) | one sync serves all threads that wait | `waiting_for_another_threads_write_does_not_swallow_an_earlier_wake_up`, and the rows of `tests/bench` |
//! | each sync checks that the file has a name (`log`) | nothing is acknowledged in a directory that was removed | `a_server_whose_directory_or_segment_is_removed_or_renamed_ends` |
//! | gathering (`log`) | with `-f 0` a put waits for one sync, not for two | `the_next_sync_waits_for_all_clients_of_the_last_one_for_a_part_of_its_time`, `what_is_due_waits_with_the_others_for_the_clients_of_the_last_sync` |
//! | committer | changes that no client waits for are written in time | `a_change_that_no_client_waits_for_is_written_long_before_its_sync_is_due` |
//! | syncer | with `-f 50`, changes are synced in time, and no put waits for that | the simulator: `a record written during a sync is synced in time`; `a_change_that_comes_during_a_write_and_a_sync_waits_for_the_write_alone` |
//! | the thread that writes wakes the committer, if a write is due then | a disk that hangs costs no CPU | `the_committer_sleeps_while_another_thread_writes_and_then_writes_what_is_due` |
//! | one sync at a time, the first failure is final | nothing is acknowledged after a failure | the simulator: `a sync that runs while another one fails acknowledges nothing` |
//! | `needed_for` | no client sees a job before its put is durable | `a_reply_about_a_job_waits_for_its_put_whatever_the_order_of_the_ids` |
//! | puts leave two prepared segments unused | a full disk stops puts and nothing else | `changes_of_all_jobs_never_outrun_a_full_disk_that_loses_blocks_to_names` |
//! | puts counted at their longest | a full disk stops nothing else with small jobs, too | `a_full_disk_has_room_for_every_change_of_small_jobs` |
//! | backpressure | work on many jobs does not outrun a full disk | `changes_of_all_jobs_never_outrun_a_full_disk_that_loses_blocks_to_names` |
//! | where a full disk lacks a block, the newest segment or a prepared one gives the end of its file, and if that is not enough, a prepared segment goes | a new name may need a block, and so may a write where the file system copies on write: a segment begins all the same | `a_rename_without_room_is_repeated_after_a_prepared_segment_is_removed`, `a_name_that_wants_many_blocks_at_once_gets_those_of_a_prepared_segment`, `changes_of_all_jobs_never_outrun_a_full_disk_that_loses_blocks_to_names`, `a_write_that_needs_another_block_on_a_full_disk_gets_that_of_a_prepared_segment` |
//! | prepared segments are open | a segment begins when descriptors are short | `a_segment_begins_even_if_the_process_can_open_no_more_files` |
//! | recycling | the steady state creates and removes no file | `the_steady_state_creates_and_removes_no_file` |
//! | credit for compaction | the bound on disk use | `disk_use_stays_bounded_under_endless_puts_and_deletes_beside_live_jobs` |
//! | compaction for a put, bound on live bytes | on a full disk a delete makes room for the next put | `a_delete_on_a_full_disk_makes_room_for_the_next_put` |
//! | segments take at most an eighth of the room (`recovery`) | a small disk suffices | `a_segment_takes_an_eighth_of_the_room_if_that_is_less_than_asked_for`, `a_start_on_a_full_disk_admits_puts_as_soon_as_before` |
//! | noise in prepared segments where nothing can be allocated (`storage`) | a full disk stops puts and nothing else where files are compressed, too | the machines of `tests/machines/vm`: `jffs2`, `ubifs` |
//! | files with another name are not used again | a file that is linked elsewhere, or that a power cut has renamed half, keeps its records | `a_file_with_another_name_is_not_used_again` |
//! | unsharing of copied blocks (reflinks) | a copy of the directory takes no room that deletes need | `a_copy_that_shares_its_blocks_takes_no_room_that_deletes_need` |
//! | a file that is used again is unshared first, which writes it on a full XFS, then allocated | one that was only allocated is not given up there | `a_file_that_was_never_written_is_used_again_on_a_full_disk` |
//! | what was not known to be synced is written again, and read from the disk (`recovery`) | a start relies on nothing that is only in memory | the simulator: `random histories`, `records that recovery dropped neither return nor follow new ones` |
//! | names are synced first (`recovery`) | a kill between a rename and its sync loses nothing | the simulator: `random histories` |
//! | the first segment has its name before others are prepared (`recovery`) | a log that has lost all its segments is not taken for a new one | `a_log_that_lost_all_its_segments_is_not_taken_for_a_new_one` |
//! | the latest record of a pause is live, like a put (`live`) | a pause outlives a restart, as long as its tube | `a_pause_outlives_a_restart_as_long_as_its_tube`, `compaction_keeps_each_pause_and_the_files_stay_few`, and the simulator |
//! | copies count only with a file that says so, then other names for the files (`import`) | beanstalkd's jobs are neither lost nor doubled | `a_power_cut_during_a_takeover_neither_loses_nor_doubles_a_job`, `segments_that_are_lost_during_a_takeover_are_missed_or_copied_again`, `a_takeover_that_fails_at_any_operation_may_be_done_again` |
//! | names that beanstalkd does not read; a list of the files that were taken over (`import`) | started on our directory, it harms nothing, and its new jobs are not taken for old ones | `beanstalkd_may_be_started_again_after_a_takeover_that_was_interrupted`, `beanstalkd_on_our_directory_harms_nothing` |
//! | lock of the directory, which is held by a descriptor (`lease`) | one server at a time, in the right directory | `removing_the_lock_file_admits_no_second_server`, `a_server_whose_directory_is_replaced_ends_without_touching_the_new_one` |
//! | fencing: the lock is checked between a write and its answer, and each server has names and segments of its own (`lease`) | a server that has lost the lock acknowledges nothing and damages nothing | `a_lost_lock_loses_nothing_acknowledged_and_no_late_write_spoils_the_log` |
//! | no file is recycled on shared storage | no stale page of a cache is read | `a_stale_page_cache_does_not_mislead_a_server_that_takes_over` |
//! | lease | a server that has lost the lock sends nothing about jobs | the simulator: `random histories` |
//!
//! # Reading order
//!
//! `format`, `live`, `tail`, `log`, `files`; then `segment` and `recovery`; then
//! `import`. Below all of them is `storage`, and in `lease` the real directory, which two
//! machines may share. The tests replace that one by a disk that loses and breaks
//! whatever a real one might. `error` has the messages for the operator.

mod error;
mod files;
pub mod format;
pub mod import;
mod lease;
mod live;
mod log;
pub mod recovery;
pub mod segment;
pub mod storage;
mod tail;

pub use error::Error;
pub use files::WithJobs;
pub use format::{Record, max_put_len, pause_len, put_len, segment_len_for};
pub use lease::{LEASE, RECHECK_AFTER, lock, lock_to_read};
pub use log::Waiter;

use crate::engine::{Change, Engine, StoredJob, StoredPause};
use crate::lock::ContendedMutex;
use crate::protocol::{DependsOn, JobId, TubeName};
use crate::sync::thread::Thread;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, OnceLock, Ordering};
use lease::Lease;
use log::{CommitQueue, OpenSegment};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;
use tail::Tail;

/// How many changes the engine makes at most under one hold of the lock before
/// they are appended: a piece of long work has a thousand, and as many more for jobs that
/// expire meanwhile, and for pauses of tubes that go; a request has a few.
const MOST_CHANGES: usize = 3000;

/// When the binlog is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before an acknowledgement: a power cut loses nothing acknowledged.
    Always,
    /// At most this long after a change: a power cut loses only the changes of
    /// this time.
    Every(Duration),
    /// When a segment is full, before one is removed, and when the binlog is
    /// opened or closed.
    Never,
}

/// How to open a binlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The directory with the segments.
    pub dir: PathBuf,
    /// When to sync.
    pub sync: SyncMode,
    /// The length of a segment, in bytes, if there is room for it: long enough for the
    /// longest put ([`segment_len_for`]).
    pub segment_size: u64,
    /// Whether to wait while another server has the directory.
    pub wait: bool,
}

impl Options {
    /// The segment size unless another one is asked for: 10 MiB.
    pub const SEGMENT_SIZE: u64 = 10 << 20;
}

/// An opened binlog, and what is known of it beside its jobs.
pub struct Opened {
    /// The binlog, ready for more changes.
    pub binlog: Arc<Binlog>,
    /// The lowest id that no job ever had.
    pub next_id: JobId,
    /// What the operator should know, a line each.
    pub notices: Vec<String>,
}

/// The jobs whose changes are logged. While a binlog is read, its jobs are
/// created here one by one, so no second collection of all jobs is needed.
pub trait Jobs {
    /// The job with this id as it is now, if it exists, or its tombstone. The binlog asks
    /// for it when the job has changed, and when it is put again. Times are by the
    /// system's clock as it is now.
    fn stored(&self, id: JobId) -> Option<StoredJob>;

    /// Adds a job. There must be no job or tombstone with its id.
    fn restore(&mut self, job: StoredJob);

    /// Removes a job, if it exists.
    fn forget(&mut self, id: JobId) -> Option<StoredJob>;

    /// The pause of a tube as it is now, if there is one. The binlog asks for it when it has
    /// changed, and when it is recorded again. Times are as for [`stored`](Self::stored).
    fn pause(&self, _tube: &TubeName) -> Option<StoredPause> {
        None
    }

    /// Adds a pause, after all jobs. Returns false if there is no such tube.
    fn restore_pause(&mut self, _pause: &StoredPause) -> bool {
        false
    }
}

impl Jobs for Engine {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        let job = Engine::stored(self, id);
        // From the engine's clock to the system's.
        job.map(|job| job.moved_by(self.outside.clock_shift))
    }

    fn restore(&mut self, job: StoredJob) {
        Engine::restore(self, job);
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        Engine::forget(self, id)
    }

    fn pause(&self, tube: &TubeName) -> Option<StoredPause> {
        let mut pause = self.stored_pause(tube)?;
        pause.until = pause.until + self.outside.clock_shift;
        Some(pause)
    }

    fn restore_pause(&mut self, pause: &StoredPause) -> bool {
        Engine::restore_pause(self, pause)
    }
}

impl Jobs for BTreeMap<JobId, StoredJob> {
    fn stored(&self, id: JobId) -> Option<StoredJob> {
        self.get(&id).cloned()
    }

    fn restore(&mut self, job: StoredJob) {
        self.insert(job.fields.id, job);
    }

    fn forget(&mut self, id: JobId) -> Option<StoredJob> {
        self.remove(&id)
    }
}

/// A log sequence number: a position in the binlog, counted in bytes from the beginning
/// of the segment that was the newest when it was opened. `commit` waits for all that
/// was appended before this position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(u64);

impl Lsn {
    /// Before all that is appended.
    pub const START: Lsn = Lsn(0);
}

/// The binlog has failed, and nothing more is acknowledged or logged: see
/// [`Binlog::failure`]. For those who wait for room: or it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// What `stats` shows of the binlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The oldest segment that is needed.
    pub oldest_index: u32,
    /// The segment being written.
    pub current_index: u32,
    /// Records appended since the start.
    pub records_written: u64,
    /// How many of these records moved a job to another segment.
    pub records_migrated: u64,
    /// The bytes of all files: of segments, and of the room prepared for more.
    pub size: u64,
    /// The live bytes.
    pub live_size: u64,
}

/// What the binlog's threads report while it is in use.
#[derive(Debug)]
pub enum Event<'a> {
    /// A put of this length was refused. In most cases the disk is full. (The files have so
    /// many bytes that were taken over from beanstalkd and are still there.)
    NoRoom(u64, &'a Error, u64),
    /// There is room for such a put again.
    Room,
    /// A file that is not needed any more could not be removed. The next start
    /// tries again.
    NotRemoved(&'a Error),
    /// A write or a sync failed. From now on nothing is acknowledged or logged:
    /// the server has to end.
    Failed(&'a Error),
}

/// The binlog: the log of all changes, open for more.
///
/// Call [`append`](Self::append) under the server's lock, right after the
/// change. Call everything that may wait without that lock.
pub struct Binlog {
    storage: Arc<dyn Storage>,
    sync: SyncMode,
    /// What is appended. Held briefly; its holder takes no other lock and
    /// touches no file.
    tail: Mutex<Tail>,
    /// The writer, if it is free, the threads that wait for a commit, and when the committer
    /// has to act. Held briefly.
    commit_queue: ContendedMutex<CommitQueue>,
    /// The current segment. Held by a thread while it syncs it: one at a time.
    segment: Mutex<Arc<OpenSegment>>,
    /// Up to which LSN the binlog is durable.
    durable: AtomicU64,
    /// The committer's thread, to wake it.
    committer: OnceLock<Thread>,
    /// With `tail`: the segments thread is asked for something, or has done it; or a sync has
    /// become due at some time.
    files_changed: Condvar,
    failure: OnceLock<Error>,
    /// Not used where no other machine can take the directory over.
    lease: Mutex<Lease>,
}

impl Binlog {
    /// Whether there is room for a put of this length (see [`max_put_len`]). If
    /// so, the put may be executed and appended under the same hold of the
    /// server's lock. If not, call [`make_room`](Self::make_room) without that
    /// lock, and then ask again.
    pub fn admits(&self, len: u64) -> bool {
        self.tail().admits(len)
    }

    /// Whether a put of this length is longer than the segments, which the start has made
    /// short because the disk had no more room.
    pub fn is_too_long(&self, len: u64) -> bool {
        self.tail().is_too_long(len)
    }

    /// Appends changes, in memory. Call it under the lock under which they were
    /// made, so that the binlog has the changes in their order.
    ///
    /// What depends on them waits for the LSN: see [`commit`](Self::commit).
    ///
    /// At most [`MOST_CHANGES`] at once: so a full disk has room for them.
    pub fn append(&self, changes: &[Change], jobs: &dyn Jobs) -> Lsn {
        debug_assert!(changes.len() <= MOST_CHANGES, "{}", changes.len());
        let mut tail = self.tail();
        tail.append(changes, jobs);
        tail.end
    }

    /// The LSN that must be durable before a reply that depends on this is sent;
    /// `None` if there is nothing to wait for, which is the usual case for
    /// the put of a job. Call it under the server's lock.
    pub fn needed_for(&self, depends_on: DependsOn) -> Option<Lsn> {
        match depends_on {
            DependsOn::Nothing => None,
            DependsOn::AllSoFar => Some(self.tail().end),
            DependsOn::PutOf(id) => {
                let durable = Lsn(self.durable.load(Ordering::Acquire));
                self.tail().put_durable_at(id, durable)
            }
        }
    }

    /// What `stats` shows of the binlog.
    pub fn stats(&self) -> Stats {
        let tail = self.tail();
        Stats {
            oldest_index: tail.live.oldest(),
            current_index: tail.live.current(),
            records_written: tail.written,
            records_migrated: tail.migrated,
            size: tail.file_len(),
            live_size: tail.live.total,
        }
    }

    /// Whether puts are refused because the disk is full: there is no room for
    /// any, or there was none for the last one and still is none.
    pub fn refuses_puts(&self) -> bool {
        let tail = self.tail();
        let refused = tail.refused.as_ref();
        tail.refuses_puts() || refused.is_some_and(|(put, _)| !tail.admits(*put))
    }

    /// How many jobs may change in one time slice: so a full disk has room for them.
    pub fn most_changes(&self) -> usize {
        self.tail().most_changes()
    }

    /// The segment with the latest put of a live job. For a job that is deleted, 0
    /// or any segment.
    pub fn segment_of(&self, id: JobId) -> u32 {
        self.tail().live.segment_of(id).unwrap_or(0)
    }

    /// Why the binlog failed, if it did.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// An error, if it has failed.
    fn check_failure(&self) -> Result<(), Failed> {
        self.failure.get().map_or(Ok(()), |_| Err(Failed))
    }

    /// The error for which it cannot continue.
    fn error(&self) -> Error {
        let full = self.tail().no_room.clone();
        let error = self.failure().cloned().or(full);
        error.expect("it is asked for after an error")
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        locked(self.tail.lock())
    }

    fn segment(&self) -> MutexGuard<'_, Arc<OpenSegment>> {
        locked(self.segment.lock())
    }
}

/// A ready job, for unit tests.
#[cfg(test)]
fn ready_job(id: JobId, body: &[u8]) -> StoredJob {
    use crate::engine::JobFields;
    use crate::protocol::{Body, Seconds, TubeName};
    StoredJob {
        fields: JobFields {
            id,
            ttr: Seconds(60),
            ..JobFields::default()
        },
        tube: TubeName::parse(b"t").unwrap(),
        options: None,
        body: Body::new(body),
    }
}

/// A thread that panics ends the process, so what a lock guards is always
/// consistent.
fn locked<T>(result: std::sync::LockResult<T>) -> T {
    result.expect("no thread panics while it holds a lock of the binlog")
}
