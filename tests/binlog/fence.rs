//! Two machines share one directory. At any moment the lock goes from one
//! machine to the other, and the first one does not know that it has lost the
//! lock. It may also stand still for a while, and then go on.

use crate::disk::{Disk, Random};
use crate::model::{Jobs, Server, Traffic};
use crate::search;
use beanpole::binlog::storage::{File, Storage};
use beanpole::binlog::{Binlog, Failed, LEASE, RECHECK_AFTER, SharedLock, SyncMode};
use beanpole::protocol::DependsOn;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SIZE: u64 = 4096;
const TRAFFIC: Traffic = Traffic {
    longest_body: 900,
    most_jobs: 15,
    long_one_in: 10,
};

type Event = Box<dyn FnOnce() + Send>;

/// A disk that machines share.
#[derive(Clone, Default)]
struct Shared {
    disk: Disk,
    /// Which machine has the lock.
    holder: Arc<AtomicU64>,
    /// The time, in nanoseconds.
    now: Arc<AtomicU64>,
}

impl Shared {
    fn pass(&self, time: Duration) {
        self.now.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

/// The disk as one machine sees it, in the worst case: when a file that it has
/// seen before is changed by another machine, it never learns of the change.
#[derive(Clone)]
struct Machine {
    shared: Shared,
    number: u64,
    /// The contents of files as this machine knows them, by their number on the
    /// disk.
    remembered: Arc<Mutex<BTreeMap<usize, Vec<u8>>>>,
    /// An event, and after how many more operations it happens: it comes just
    /// before the next one.
    event: Arc<Mutex<(u64, Option<Event>)>>,
    /// What happens when the storage has answered the next lock check, and this
    /// machine has not yet got the answer.
    answered: Arc<Mutex<Option<Event>>>,
}

impl Machine {
    fn new(shared: &Shared, number: u64) -> Machine {
        Machine {
            shared: shared.clone(),
            number,
            remembered: Arc::default(),
            event: Arc::default(),
            answered: Arc::default(),
        }
    }

    /// Takes the lock, removes the files that other machines have prepared, and
    /// opens the log.
    fn take_over(&self, size: u64) -> Server {
        self.shared.holder.store(self.number, Ordering::SeqCst);
        for name in self.shared.disk.names() {
            if name.starts_with("binlog.spare") {
                self.shared.disk.remove(&name).unwrap();
            }
        }
        let opened = Binlog::open_in(Arc::new(self.clone()), SyncMode::Always, size, Jobs::new());
        Server::new(opened.unwrap_or_else(|error| panic!("{error}")))
    }

    fn own_name(&self, name: &str) -> String {
        match name {
            _ if name.starts_with("binlog.spare") => format!("{name}.{}", self.number),
            _ => name.to_owned(),
        }
    }

    /// Is called just before each operation that changes something, when
    /// nothing can prevent the operation any more.
    fn before_change(&self) {
        let mut event = self.event.lock().unwrap();
        let happens = match event.0.checked_sub(1) {
            Some(left) => {
                event.0 = left;
                None
            }
            None => event.1.take(),
        };
        drop(event);
        if let Some(happens) = happens {
            happens();
        }
    }

    /// This machine stands still for as long as another one needs to get the
    /// lock, right after its next lock check was answered.
    fn stand_still_at_the_next_look(&self) {
        let shared = self.shared.clone();
        self.answer_the_next_look(move || {
            shared.pass(LEASE);
            shared.holder.store(2, Ordering::SeqCst);
        });
    }

    /// This happens when the next lock check was answered.
    fn answer_the_next_look(&self, event: impl FnOnce() + Send + 'static) {
        *self.answered.lock().unwrap() = Some(Box::new(event));
    }

    fn is_over(&self) -> bool {
        self.event.lock().unwrap().1.is_none()
    }

    /// A file that this machine has opened or created, as it sees the file.
    fn file(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        let number = self.shared.disk.number_of(&self.own_name(name)).unwrap();
        let contents = || self.shared.disk.contents(&self.own_name(name));
        let mut remembered = self.remembered.lock().unwrap();
        remembered.entry(number).or_insert_with(contents);
        Arc::new(Seen(self.clone(), number, file))
    }
}

impl Storage for Machine {
    fn list(&self) -> io::Result<Vec<String>> {
        self.shared.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.shared.disk.open(&self.own_name(name))?;
        Ok(self.file(name, file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check()?;
        self.before_change();
        let file = self.shared.disk.create(&self.own_name(name))?;
        Ok(self.file(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check()?;
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
        self.check()?;
        self.before_change();
        self.shared.disk.remove(&self.own_name(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.before_change();
        self.shared.disk.sync()
    }

    fn shared_lock(&self) -> Option<&dyn SharedLock> {
        Some(self)
    }
}

impl SharedLock for Machine {
    fn check(&self) -> io::Result<()> {
        let is_ours = self.shared.holder.load(Ordering::SeqCst) == self.number;
        if let Some(event) = self.answered.lock().unwrap().take() {
            event();
        }
        match is_ours {
            true => Ok(()),
            false => Err(io::Error::other("another machine has it")),
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now.load(Ordering::SeqCst))
    }
}

/// A file as a machine sees it, and its number on the disk.
struct Seen(Machine, usize, Arc<dyn File>);

impl Seen {
    /// Changes the file on the disk, and what the machine remembers of it.
    fn change(
        &self,
        change: impl FnOnce(&dyn File) -> io::Result<()>,
        remember: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        self.0.before_change();
        change(&*self.2)?;
        remember(self.0.remembered.lock().unwrap().get_mut(&self.1).unwrap());
        Ok(())
    }
}

impl File for Seen {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.remembered.lock().unwrap()[&self.1].len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let remembered = self.0.remembered.lock().unwrap();
        let rest = remembered[&self.1].get(offset as usize..).unwrap_or(&[]);
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(
            |file| file.write_at(bytes, offset),
            |seen| {
                let (start, end) = (offset as usize, offset as usize + bytes.len());
                seen.resize(seen.len().max(end), 0);
                seen[start..end].copy_from_slice(bytes);
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let remember = |seen: &mut Vec<u8>| seen.resize(len as usize, 0);
        self.change(|file| file.set_len(len), remember)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let remember = |seen: &mut Vec<u8>| seen.resize(seen.len().max(len as usize), 0);
        self.change(|file| file.allocate(len), remember)
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|file| file.sync(), |_| {})
    }
}

/// Executes so many commands. After each, commits it and does the work of the
/// log's threads. Returns false as soon as one was not acknowledged.
fn serve(server: &mut Server, commands: u32, random: &mut Random) -> bool {
    (0..commands).all(|_| {
        server.command(TRAFFIC, random);
        server.commit() && server.log.work_once().is_ok()
    })
}

/// The lock goes to another machine just before the operation of this number.
/// The first machine still does that operation, too late. Returns false if
/// there were not so many operations.
fn lose_the_lock_at(operation: u64) -> bool {
    let shared = Shared::default();
    let random = &mut Random::new(3);
    let (first, second) = (Machine::new(&shared, 1), Machine::new(&shared, 2));
    let mut loser = first.take_over(SIZE);
    let taken = Arc::new(Mutex::new(None));
    let takes_over = {
        let (taken, second, mut random) = (taken.clone(), second.clone(), random.clone());
        move || {
            let mut winner = second.take_over(SIZE);
            let found = winner.jobs.clone();
            assert!(serve(&mut winner, 2, &mut random));
            *taken.lock().unwrap() = Some((winner, found));
        }
    };
    *first.event.lock().unwrap() = (operation, Some(Box::new(takes_over)));
    let served = serve(&mut loser, 80, random);
    if !first.is_over() {
        return false;
    }
    let (mut winner, found) = taken.lock().unwrap().take().expect("it has taken over");
    let kept = loser.history.explains(&found);
    assert!(
        kept.is_some(),
        "operation {operation}: not all was taken over"
    );
    if served {
        // The late operation was the last one, so no command has failed yet.
        match loser.jobs.keys().next().copied() {
            Some(id) => loser.delete(id),
            None => assert!(loser.put(1, random)),
        }
        assert!(!loser.commit(), "operation {operation}");
    }
    let why = loser.log.failure().expect("it has failed").to_string();
    assert!(
        why.contains("another machine has it") || why.contains("binlog.spare"),
        "{why}"
    );
    assert!(serve(&mut winner, 2, random), "operation {operation}");
    let third = Machine::new(&shared, 3).take_over(SIZE);
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
fn nothing_is_acknowledged_between_the_loss_of_the_lock_and_the_next_lock_check() {
    let shared = Shared::default();
    let random = &mut Random::new(1);
    let mut server = Machine::new(&shared, 1).take_over(SIZE);
    assert!(server.put(3, random) && server.commit());
    // The sync will succeed, but then another machine has the lock.
    shared.holder.store(2, Ordering::SeqCst);
    assert!(server.put(3, random));
    assert!(!server.commit());
    let names = shared.disk.names();
    server.log.work_once().ok();
    assert!(server.log.close().is_err());
    assert_eq!(shared.disk.names(), names);
    assert_eq!(
        server.log.failure().unwrap().to_string(),
        "the lock on the binlog directory is lost: another machine has it; \
         nothing is acknowledged or changed there any more"
    );
}

/// Nothing was changed, so there is nothing to sync.
#[test]
fn a_server_that_has_lost_the_lock_tells_nothing_of_jobs_soon_after_its_last_lock_check() {
    let shared = Shared::default();
    shared.pass(LEASE);
    let log = Machine::new(&shared, 1).take_over(SIZE).log;
    assert_eq!(log.ensure_lease(), Ok(()));
    shared.holder.store(2, Ordering::SeqCst);
    // What the last lock check says holds for a moment. The storage takes longer to
    // give the lock of a silent machine away.
    shared.pass(RECHECK_AFTER);
    assert_eq!(log.ensure_lease(), Ok(()));
    shared.pass(Duration::from_nanos(1));
    assert_eq!(log.ensure_lease(), Err(Failed));
    assert!(log.failure().is_some());
}

/// Otherwise a server whose looks take long could never tell anything.
#[test]
fn a_slow_check_of_the_lock_covers_the_reply_that_asked_for_it() {
    let shared = Shared::default();
    shared.pass(LEASE);
    let machine = Machine::new(&shared, 1);
    let log = machine.take_over(SIZE).log;
    let storage = shared.clone();
    machine.answer_the_next_look(move || storage.pass(LEASE - Duration::from_nanos(1)));
    assert_eq!(log.ensure_lease(), Ok(()));
    let answered = machine.answered.lock().unwrap();
    assert!(answered.is_none(), "it has looked");
}

#[test]
fn a_server_that_stalls_during_a_check_of_the_lock_checks_again() {
    let shared = Shared::default();
    shared.pass(LEASE);
    let machine = Machine::new(&shared, 1);
    let log = machine.take_over(SIZE).log;
    machine.stand_still_at_the_next_look();
    assert_eq!(log.ensure_lease(), Err(Failed));
}

#[test]
fn a_server_that_stalls_after_a_sync_does_not_acknowledge_it() {
    let shared = Shared::default();
    shared.pass(LEASE);
    let machine = Machine::new(&shared, 1);
    let mut server = machine.take_over(SIZE);
    assert!(server.put(3, &mut Random::new(1)));
    machine.stand_still_at_the_next_look();
    let needed = server.log.needed_for(DependsOn::AllSoFar).unwrap();
    assert_eq!(server.log.commit(needed), Ok(()));
    assert_eq!(
        server.log.ensure_lease(),
        Err(Failed),
        "before a reply leaves"
    );
}

#[test]
fn a_server_on_a_local_disk_needs_no_check_of_the_lock() {
    let disk = Disk::default();
    let opened = Binlog::open_in(Arc::new(disk), SyncMode::Always, SIZE, Jobs::new());
    let log = opened.unwrap().binlog;
    assert_eq!(log.ensure_lease(), Ok(()));
}

#[test]
fn a_stale_page_cache_does_not_mislead_a_server_that_takes_over() {
    let shared = Shared::default();
    let machines = [Machine::new(&shared, 1), Machine::new(&shared, 2)];
    for seed in search::seeds(0..20) {
        let random = &mut Random::new(seed);
        let mut before: Option<Server> = None;
        for machine in machines.iter().cycle().take(10) {
            let mut server = machine.take_over(SIZE);
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

#[test]
fn a_needed_segment_of_zeros_is_refused_as_a_possible_stale_cache() {
    for (len, is_taken) in [(0, true), (SIZE as usize, false)] {
        let shared = Shared::default();
        shared.disk.put("binlog.1", &vec![0; len]);
        let machine = Machine::new(&shared, 0);
        let opened = Binlog::open_in(Arc::new(machine), SyncMode::Always, SIZE, Jobs::new());
        let told = opened.err().map(|error| error.to_string());
        assert_eq!(told.is_none(), is_taken);
        if let Some(told) = told {
            let why = "binlog.1 is damaged at offset 0: it holds only zeros here, though another machine may have written to it; ";
            assert!(told.starts_with(why), "{told}");
            assert_eq!(shared.disk.contents("binlog.1"), vec![0; len]);
        }
    }
}

/// Each start begins a segment of its own.
#[test]
fn segments_without_jobs_are_removed_after_a_start_though_nothing_is_written() {
    let shared = Shared::default();
    drop(Machine::new(&shared, 1).take_over(SIZE));
    let log = Machine::new(&shared, 2).take_over(SIZE).log;
    log.spawn_threads(|_| ()).unwrap();
    let is_gone = |_: u32| {
        thread::sleep(Duration::from_millis(1));
        !shared.disk.names().contains(&"binlog.1".to_owned())
    };
    assert!((0..10_000).any(is_gone), "{:?}", shared.disk.names());
    log.close().unwrap();
}
