//! Two machines share one directory. At any moment the lock goes from one
//! machine to the other, and the first one does not know that it has lost the
//! lock: what it still writes comes too late. The simulator knows no late writes and no
//! stale caches, but machines that stall, and what these may still send to their clients.

use crate::disk::{Disk, Random};
use crate::model::{Opened, SIZE, Server, Traffic, recover};
use crate::search;
use crate::takeover::{a_life, lives, version_7};
use beanpole::binlog::storage::{File, Source, Storage};
use beanpole::binlog::{Error, SyncMode};
use beanpole::protocol::JobId;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const TRAFFIC: Traffic = Traffic {
    longest_body: 900,
    most_jobs: 15,
    long_one_in: 10,
};

/// What happens just before one of the next operations, and before which one.
type Event = Arc<Mutex<(u64, Option<Box<dyn FnOnce() + Send>>)>>;

/// A disk that machines share.
#[derive(Clone, Default)]
struct Shared {
    disk: Disk,
    /// Which machine has the lock.
    holder: Arc<AtomicU64>,
}

/// The disk as one machine sees it, in the worst case: when a file that it has
/// seen before is changed by another machine, it never learns of the change.
#[derive(Clone)]
struct Machine {
    shared: Shared,
    number: u64,
    /// The files as this machine knows them, each with its number on the disk as its
    /// name.
    cache: Disk,
    event: Event,
}

impl Machine {
    fn new(shared: &Shared, number: u64) -> Machine {
        Machine {
            shared: shared.clone(),
            number,
            cache: Disk::default(),
            event: Arc::default(),
        }
    }

    fn open(&self) -> Result<Opened, Error> {
        recover(Arc::new(self.clone()), SyncMode::Always, SIZE)
    }

    /// Takes the lock, removes the files that other machines have prepared, and
    /// opens the log.
    fn take_over(&self) -> Server {
        self.shared.holder.store(self.number, Ordering::SeqCst);
        remove_prepared(&self.shared.disk);
        Server::new(self.open().unwrap_or_else(|error| panic!("{error}")))
    }

    fn own_name(&self, name: &str) -> String {
        match name {
            _ if name.starts_with("segment.spare") => format!("{name}.{}", self.number),
            _ => name.to_owned(),
        }
    }

    /// Is called just before each operation that changes something, when
    /// nothing can prevent the operation any more.
    fn before_change(&self) {
        let mut event = self.event.lock().unwrap();
        let (left, happens) = &mut *event;
        let happens = match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                None
            }
            None => happens.take(),
        };
        drop(event);
        happens.into_iter().for_each(|happens| happens());
    }

    /// A file that this machine has opened or created, as it sees the file.
    fn file(&self, name: &str, file: Arc<dyn File>) -> io::Result<Arc<dyn File>> {
        let name = self.own_name(name);
        let number = self.shared.disk.number_of(&name).unwrap().to_string();
        if self.cache.number_of(&number).is_none() {
            self.cache.put(&number, &self.shared.disk.contents(&name));
        }
        let cached = self.cache.open(&number)?;
        Ok(Arc::new(Seen(self.clone(), file, cached)))
    }
}

impl Source for Machine {
    fn list(&self) -> io::Result<Vec<String>> {
        let suffix = format!(".{}", self.number);
        let own = |name: String| match name.strip_suffix(&suffix) {
            Some(own) if own.starts_with("segment.spare") => own.to_owned(),
            _ => name,
        };
        Ok(self.shared.disk.list()?.into_iter().map(own).collect())
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Storage::open(self, name)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl Storage for Machine {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.shared.disk.open(&self.own_name(name))?;
        self.file(name, file)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check_lock()?;
        self.before_change();
        let file = self.shared.disk.create(&self.own_name(name))?;
        self.file(name, file)
    }

    fn has(&self, name: &str) -> io::Result<bool> {
        self.shared.disk.has(&self.own_name(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_lock()?;
        let is_used_again = from.starts_with("segment") && from == self.own_name(from);
        assert!(!is_used_again, "an old page of {from} may be read");
        // The machine has asked before whether the new name is taken.
        let is_taken = self.shared.disk.number_of(to).is_some();
        self.before_change();
        let (from, to) = (self.own_name(from), self.own_name(to));
        if !is_taken && self.shared.disk.number_of(&from).is_some() {
            self.shared.disk.remove(&to).ok();
        }
        self.shared.disk.rename(&from, &to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_lock()?;
        self.before_change();
        self.shared.disk.remove(&self.own_name(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.before_change();
        self.shared.disk.sync()
    }

    fn free(&self) -> Option<u64> {
        None
    }

    fn check_lock(&self) -> io::Result<()> {
        if self.shared.holder.load(Ordering::SeqCst) == self.number {
            Ok(())
        } else {
            Err(io::Error::other("another machine has it"))
        }
    }
}

/// A file of a machine, on the disk and in its cache.
struct Seen(Machine, Arc<dyn File>, Arc<dyn File>);

impl Seen {
    /// Changes the file on the disk, and in the cache.
    fn change(&self, change: impl Fn(&dyn File) -> io::Result<()>) -> io::Result<()> {
        self.0.before_change();
        change(&*self.1)?;
        change(&*self.2)
    }
}

impl File for Seen {
    fn len(&self) -> io::Result<u64> {
        self.2.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.2.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|file| file.write_at(bytes, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|file| file.set_len(len))
    }

    fn allocate(&self, len: u64, written: u64) -> io::Result<()> {
        self.change(|file| file.allocate(len, written))
    }

    fn links(&self) -> io::Result<u64> {
        Ok(1)
    }

    fn unshare(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|file| file.sync())
    }

    fn forget(&self) -> io::Result<()> {
        let mut bytes = vec![0; self.1.len()? as usize];
        self.1.read_at(&mut bytes, 0)?;
        self.2.write_at(&bytes, 0)
    }
}

/// Executes this number of commands. After each, commits it and does the work of the
/// log's threads. Returns false as soon as one was not acknowledged.
fn serve(server: &mut Server, commands: u32, random: &mut Random) -> bool {
    (0..commands).all(|_| {
        server.command(TRAFFIC, random);
        server.commit() && server.log.flush_and_recycle().is_ok()
    })
}

/// The lock goes to another machine just before the operation of this number.
/// The first machine still does that operation, too late. Returns false if
/// there were fewer operations.
fn lose_the_lock_at(operation: u64) -> bool {
    let shared = Shared::default();
    let random = &mut Random::new(3);
    let (first, second) = (Machine::new(&shared, 1), Machine::new(&shared, 2));
    let mut loser = first.take_over();
    let taken = Arc::new(Mutex::new(None));
    let takes_over = {
        let (taken, second, mut random) = (taken.clone(), second.clone(), random.clone());
        move || {
            let mut winner = second.take_over();
            let found = winner.jobs.clone();
            assert!(serve(&mut winner, 2, &mut random));
            *taken.lock().unwrap() = Some((winner, found));
        }
    };
    *first.event.lock().unwrap() = (operation, Some(Box::new(takes_over)));
    let served = serve(&mut loser, 80, random);
    let Some((mut winner, found)) = taken.lock().unwrap().take() else {
        return false; // there were fewer operations
    };
    let kept = loser.history.explains(&found);
    assert!(
        kept.is_some(),
        "operation {operation}: not all was taken over"
    );
    if served {
        // The late operation was the last one, so no command has failed yet.
        let id = *loser.jobs.keys().next().expect("there is a job");
        loser.delete(id);
        assert!(!loser.commit(), "operation {operation}");
    }
    let why = loser.log.failure().expect("it has failed").to_string();
    assert!(
        why.contains("another machine has it") || why.contains("segment.spare"),
        "{why}"
    );
    assert!(serve(&mut winner, 2, random), "operation {operation}");
    let third = Machine::new(&shared, 3).take_over();
    assert_eq!(third.jobs, winner.jobs, "operation {operation}");
    assert!(third.history.next_id >= winner.history.next_id);
    true
}

#[test]
fn a_lost_lock_loses_nothing_acknowledged_and_no_late_write_spoils_the_log() {
    let tried = (0..)
        .take_while(|operation| lose_the_lock_at(*operation))
        .count();
    println!("the lock was lost at each of {tried} operations");
    assert!(tried > 200);
}

#[test]
fn a_stale_page_cache_does_not_mislead_a_server_that_takes_over() {
    let shared = Shared::default();
    let machines = [Machine::new(&shared, 1), Machine::new(&shared, 2)];
    for seed in search::seeds(0..20) {
        let random = &mut Random::new(seed);
        let mut before: Option<Server> = None;
        for machine in machines.iter().cycle().take(10) {
            let mut server = machine.take_over();
            if let Some(before) = before {
                assert_eq!(server.jobs, before.jobs);
            }
            assert!(serve(&mut server, 40, random));
            before = Some(server);
        }
        let names = shared.disk.names();
        names.iter().for_each(|name| shared.disk.remove_file(name));
    }
}

/// Each start begins a segment of its own.
#[test]
fn segments_without_jobs_are_removed_after_a_start_even_if_nothing_is_written() {
    let shared = Shared::default();
    drop(Machine::new(&shared, 1).take_over());
    let log = Machine::new(&shared, 2).take_over().log;
    log.spawn_threads(|_| ()).unwrap();
    let is_gone = |_: u32| {
        thread::sleep(Duration::from_millis(1));
        !shared.disk.names().contains(&"segment.1".to_owned())
    };
    assert!((0..10_000).any(is_gone), "{:?}", shared.disk.names());
    log.close().unwrap();
}

/// Removes what other servers have prepared, as each server does when it gets the lock.
fn remove_prepared(disk: &Disk) {
    let names = disk.names().into_iter();
    let prepared = names.filter(|name| name.starts_with("segment.spare"));
    prepared.for_each(|name| disk.remove_file(&name));
}

#[test]
fn a_late_write_refuses_no_start_of_the_server_that_takes_over() {
    for operation in 0..12 {
        let shared = Shared::default();
        let (first, second) = (Machine::new(&shared, 1), Machine::new(&shared, 2));
        let mut loser = first.take_over();
        assert!(serve(&mut loser, 15, &mut Random::new(3)));
        shared.holder.store(2, Ordering::SeqCst);
        remove_prepared(&shared.disk);
        let late = move || {
            let id = *loser.jobs.keys().next().expect("there is a job");
            loser.delete(id);
            assert!(!loser.commit());
        };
        *second.event.lock().unwrap() = (operation, Some(Box::new(late)));
        let opened = second.open();
        assert!(opened.is_ok(), "{operation}: {:?}", opened.err());
    }
}

/// Just before any operation of a takeover from beanstalkd, which this machine still does. In
/// some cases the copies of a takeover that was interrupted are there, and both servers remove
/// them.
#[test]
fn a_lock_lost_during_a_takeover_neither_loses_nor_doubles_a_job() {
    let mut tried = 0;
    for stop in [0, 28, 34, 40, 44, 48, 52] {
        for operation in 0.. {
            let shared = Shared::default();
            for (name, records) in ["binlog.2", "binlog.3"].iter().zip(a_life()) {
                shared.disk.put(name, &version_7(&records));
            }
            shared.disk.stop_after(stop);
            shared.holder.store(9, Ordering::SeqCst);
            drop(Machine::new(&shared, 9).open());
            let shared = Shared {
                disk: shared.disk.state().kill(),
                holder: Arc::default(),
            };
            let (first, second) = (Machine::new(&shared, 1), Machine::new(&shared, 2));
            shared.holder.store(1, Ordering::SeqCst);
            remove_prepared(&shared.disk);
            let taken = Arc::new(Mutex::new(None));
            let winners = taken.clone();
            let takes_over = move || {
                let mut winner = second.take_over();
                assert_eq!(winner.jobs, lives());
                winner.delete(JobId(1));
                assert!(winner.commit());
                *winners.lock().unwrap() = Some(winner.jobs);
            };
            *first.event.lock().unwrap() = (operation, Some(Box::new(takes_over)));
            let _loser = first.open();
            let Some(jobs) = taken.lock().unwrap().take() else {
                break;
            };
            tried += 1;
            shared.holder.store(3, Ordering::SeqCst);
            remove_prepared(&shared.disk);
            let started = Machine::new(&shared, 3).open();
            let third = started.unwrap_or_else(|error| panic!("{stop} {operation}: {error}"));
            assert_eq!(third.jobs, jobs, "{stop} {operation}");
        }
    }
    assert!(tried > 40, "{tried}");
}
