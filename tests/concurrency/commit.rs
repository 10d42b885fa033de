//! Group commit in each order: whoever is told that his change is kept finds it
//! on the disk, everybody is told once, and nobody waits for ever, not even
//! after a failure.

use crate::binlog::{Binlog, Event, Failed, NoRoom, Opened, Position, SyncMode, longest_put};
use crate::disk::Disk;
use crate::sync::{Mutex, let_time_pass, thread};
use beanpole::engine::{Change, Counters, StoredJob, StoredState, Time};
use beanpole::protocol::{Body, JobId, Priority, Seconds, TubeName};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

type Jobs = BTreeMap<JobId, StoredJob>;

struct Log {
    disk: Arc<Disk>,
    binlog: Arc<Binlog>,
    /// The lock under which changes are made.
    jobs: Mutex<Jobs>,
}

fn open(sync: SyncMode) -> Arc<Log> {
    let disk = Arc::new(Disk::default());
    let opened = Binlog::open_in(disk.clone(), sync, 4096, BTreeMap::new());
    let Opened { binlog, jobs, .. } = opened.expect("nothing is wrong with it");
    let jobs = Mutex::new(jobs);
    Arc::new(Log { disk, binlog, jobs })
}

/// As what is told of at once is kept.
fn at_once(sync: SyncMode) -> SyncMode {
    match sync {
        SyncMode::Every(_) => SyncMode::Never,
        other => other,
    }
}

/// The third is longer than what a segment has left.
fn body(id: u64) -> String {
    let times = if id == 3 { 1000 } else { 2 };
    format!("job {id}").repeat(times)
}

impl Log {
    fn put(&self, id: u64) -> Position {
        // Left to those who need it later: what is tried is how they are told.
        let (Ok(()) | Err(NoRoom)) = self.binlog.make_room(longest_put(body(id).len() + 2));
        let mut jobs = self.jobs.lock().unwrap();
        jobs.insert(JobId(id), job(id));
        self.binlog.append(&[Change::Put(JobId(id))], &*jobs)
    }

    /// Whether it is where this log promises it to be, once its time is over.
    fn is_kept(&self, id: u64, sync: SyncMode) -> bool {
        match sync {
            SyncMode::Never => self.disk.has(body(id).as_bytes()),
            SyncMode::Always | SyncMode::Every(_) => self.disk.keeps(body(id).as_bytes()),
        }
    }
}

/// Three threads put and wait, each in its way; the log is closed.
pub fn told(sync: SyncMode) {
    let log = open(sync);
    let tell = |_: Event<'_>| ();
    log.binlog.spawn_threads(tell).expect("threads");
    let told = Arc::new(AtomicUsize::new(0));
    let waiting = log.clone();
    let one = thread::spawn(move || {
        for id in [1, 2] {
            let position = waiting.put(id);
            assert_eq!(waiting.binlog.commit(position), Ok(()));
            assert!(waiting.is_kept(id, at_once(sync)), "job {id} is not kept");
        }
    });
    let (leaving, counted) = (log.clone(), told.clone());
    let two = thread::spawn(move || {
        let position = leaving.put(3);
        let log = leaving.clone();
        leaving.binlog.commit_then(position, move |kept| {
            assert_eq!(kept, Ok(()));
            assert!(log.is_kept(3, at_once(sync)), "job 3 is not kept");
            counted.fetch_add(1, Ordering::SeqCst);
        });
    });
    // Nobody waits for this one.
    log.put(4);
    log.binlog.write_soon();
    one.join().unwrap();
    two.join().unwrap();
    assert_eq!(log.binlog.close(), Ok(()));
    for id in 1..=4 {
        assert!(log.is_kept(id, SyncMode::Always), "job {id} is lost");
    }
    assert_eq!(told.load(Ordering::SeqCst), 1, "everybody is told once");
}

/// What nobody waits for is on the disk some time all the same.
pub fn kept_in_time(sync: SyncMode) {
    let_time_pass(true);
    let log = open(sync);
    log.binlog.spawn_threads(|_| ()).expect("threads");
    let putting = log.clone();
    let other = thread::spawn(move || {
        putting.put(1);
        putting.binlog.write_soon();
    });
    for id in [2, 3] {
        log.put(id);
        log.binlog.write_soon();
    }
    other.join().unwrap();
    let is_kept = || (1..=3).all(|id| log.is_kept(id, sync));
    let looks = (0..10_000).take_while(|_| !is_kept());
    looks.for_each(|_| thread::yield_now());
    assert!(is_kept(), "nobody has written it");
    assert_eq!(log.binlog.close(), Ok(()));
    let_time_pass(false);
}

/// The same on a disk that breaks.
pub fn told_of_a_failure(sync: SyncMode) {
    let log = open(sync);
    log.disk.fail_after(thread_rng().gen_range(0..4));
    let told = Arc::new(AtomicUsize::new(0));
    let failures = told.clone();
    let tell = move |event: Event<'_>| {
        if let Event::Failed(_) = event {
            failures.fetch_add(1, Ordering::SeqCst);
        }
    };
    log.binlog.spawn_threads(tell).expect("threads");
    let answered = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (1..=3)
        .map(|id| {
            let (log, answered) = (log.clone(), answered.clone());
            thread::spawn(move || {
                let position = log.put(id);
                let then = {
                    let log = log.clone();
                    move |kept: Result<(), Failed>| {
                        assert!(
                            kept.is_err() || log.is_kept(id, at_once(sync)),
                            "job {id} is lost"
                        );
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                };
                match id {
                    1 => log.binlog.commit_then(position, then),
                    _ => then(log.binlog.commit(position)),
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let closed = log.binlog.close();
    assert_eq!(answered.load(Ordering::SeqCst), 3, "everybody is told once");
    match log.binlog.failure() {
        Some(_) => {
            let position = log.put(4);
            assert_eq!(log.binlog.commit(position), Err(Failed));
        }
        None => assert_eq!(closed, Ok(())),
    }
    assert!(told.load(Ordering::SeqCst) <= 1);
}

fn job(id: u64) -> StoredJob {
    StoredJob {
        id: JobId(id),
        tube: TubeName::parse(b"default").expect("a name"),
        body: Body::new(body(id).as_bytes()),
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(60),
        state: StoredState::Ready,
        created_at: Time::default(),
        counters: Counters::default(),
        words: None,
    }
}
