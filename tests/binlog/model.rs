//! Gives random traffic of all kinds to a log, and knows what the log must
//! hold.

use crate::disk::{Disk, Random};
use crate::history::apply;
pub use crate::history::{History, Jobs};
use beanpole::binlog::storage::Storage;
use beanpole::binlog::{Binlog, Error, Lsn, Record, SyncMode, put_len, recovery};
use beanpole::engine::{Change, JobFields, StoredJob, StoredState, Time};
use beanpole::protocol::{Body, JobId, Priority, PutOptions, Seconds, TubeName};
use std::sync::Arc;

/// A log, with the state that a server has beside it.
pub struct Server {
    pub log: Arc<Binlog>,
    pub jobs: Jobs,
    /// How many bytes the puts of all jobs take.
    pub live_bytes: u64,
    pub history: History,
    /// How many changes are appended at once.
    pub at_once: usize,
    gathered: Vec<Change>,
    lsn: Lsn,
}

/// How a server's traffic is mixed.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub longest_body: u64,
    /// When this number of jobs exists, the traffic has deletes instead of puts.
    pub most_jobs: usize,
    /// One body in this number nearly fills a segment. 0: none does.
    pub long_one_in: u64,
}

impl Server {
    pub fn new(opened: Opened) -> Server {
        let history = History::new(opened.jobs.clone(), opened.next_id.0);
        Server {
            log: opened.binlog,
            live_bytes: opened.jobs.values().map(put_len).sum(),
            jobs: opened.jobs,
            history,
            at_once: 1,
            gathered: Vec::new(),
            lsn: Lsn::START,
        }
    }

    pub fn open(disk: &Disk) -> Server {
        Server::new(open(disk))
    }

    /// Executes one command: a put, an update or a deletion. Returns false if
    /// the put was refused.
    pub fn command(&mut self, traffic: Traffic, random: &mut Random) -> bool {
        let which = random.below(self.jobs.len().max(1) as u64) as usize;
        let some = self.jobs.keys().nth(which).copied();
        match (some, random.below(10)) {
            (Some(id), 0..=2) if self.has_key(id) => self.delete_leaving_a_tombstone(id),
            (Some(id), 0..=2) => self.delete(id),
            (Some(id), 3..=5) if self.jobs[&id].is_deleted() => self.delete(id),
            (Some(id), 3..=5) => self.update(id, random),
            (Some(id), _) if self.jobs.len() >= traffic.most_jobs => self.delete(id),
            _ => {
                let mut len = random.below(traffic.longest_body + 1);
                if traffic.long_one_in > 0 && random.one_in(traffic.long_one_in) {
                    len = 3000 + random.below(800);
                }
                let id = JobId(self.history.next_id);
                return self.put_with(len as usize, options_of(id), random);
            }
        }
        true
    }

    /// Puts a job, if there is room. Returns whether there was.
    pub fn put(&mut self, len: usize, random: &mut Random) -> bool {
        self.put_with(len, None, random)
    }

    fn put_with(
        &mut self,
        len: usize,
        options: Option<Box<PutOptions>>,
        random: &mut Random,
    ) -> bool {
        let id = JobId(self.history.next_id);
        // No body is all zeros, because zeros look like bytes that were never
        // written.
        let byte = 1 + random.below(255) as u8;
        let job = StoredJob {
            fields: JobFields {
                id,
                priority: Priority(random.next() as u32),
                ttr: Seconds(1 + random.below(100) as u32),
                created_at: Time::from_nanos(random.next()),
                ..JobFields::default()
            },
            tube: TubeName::parse(&b"abcdefgh"[..1 + random.below(8) as usize]).unwrap(),
            options,
            body: Body::new(&vec![byte; len]),
        };
        let put = put_len(&job);
        let jobs = &self.jobs;
        if !self.log.make_room(put, &|work| work(jobs)) {
            return false;
        }
        self.history.next_id = id.0 + 1;
        self.live_bytes += put;
        self.append(Change::Put(id), Record::Put(job));
        true
    }

    pub fn update(&mut self, id: JobId, random: &mut Random) {
        let job = &self.jobs[&id];
        let [reserves, timeouts, releases, buries, kicks] = job.fields.counters;
        let buries = buries + random.below(2) as u32;
        let fields = JobFields {
            priority: Priority(random.below(5) as u32),
            delay: Seconds(random.below(9) as u32),
            state: match random.below(3) {
                0 => StoredState::Ready,
                1 => StoredState::Buried {
                    order: random.next() >> 1,
                },
                _ => StoredState::Delayed {
                    until: Time::from_nanos(random.next()),
                },
            },
            counters: [reserves + 1, timeouts, releases, buries, kicks],
            failed_tries: match &job.options {
                Some(options) if options.tries.is_some() => random.below(3) as u32,
                _ => 0,
            },
            ..job.fields
        };
        self.append(Change::Update(id), Record::Update(fields));
    }

    /// Does to a job what makes its put as long as it can be.
    pub fn grow(&mut self, id: JobId, random: &mut Random) {
        let longest = u32::MAX;
        let fields = JobFields {
            priority: Priority(longest),
            delay: Seconds(longest),
            state: StoredState::Buried {
                order: random.next() >> 1,
            },
            counters: [longest; 5],
            ..self.jobs[&id].fields
        };
        self.append(Change::Update(id), Record::Update(fields));
    }

    pub fn delete(&mut self, id: JobId) {
        self.delete_with(id, Record::Delete(id));
    }

    fn has_key(&self, id: JobId) -> bool {
        let job = &self.jobs[&id];
        let options = job.options.as_ref().filter(|_| !job.is_deleted());
        options.is_some_and(|options| options.unique.is_some())
    }

    /// Deletes a job whose key is still taken.
    fn delete_leaving_a_tombstone(&mut self, id: JobId) {
        let job = self.jobs[&id].clone();
        let rest = StoredJob {
            fields: JobFields {
                state: StoredState::Deleted {
                    until: Time::from_nanos(id.0),
                },
                failed_tries: 0,
                ..job.fields
            },
            options: Some(Box::new(PutOptions {
                limit: None,
                tries: None,
                ..*job.options.expect("it has a key")
            })),
            body: Body::new(b""),
            tube: job.tube,
        };
        self.live_bytes += put_len(&rest);
        self.delete_with(id, Record::Put(rest));
    }

    fn delete_with(&mut self, id: JobId, entry: Record) {
        let job = &self.jobs[&id];
        self.live_bytes -= put_len(job);
        self.append(Change::Delete(id, job.lengths()), entry);
    }

    fn append(&mut self, change: Change, entry: Record) {
        let waits = self.gathered.is_empty();
        let jobs = &self.jobs;
        while waits && self.log.has_backpressure() && self.log.make_up(&|work| work(jobs)).is_ok() {
        }
        apply(&mut self.jobs, &entry);
        self.history.begin_request();
        self.history.push(entry);
        self.gathered.push(change);
        if self.gathered.len() >= self.at_once {
            self.lsn = self.log.append(&self.gathered, &self.jobs);
            self.gathered.clear();
        }
    }

    /// Commits all changes. Returns whether they are acknowledged.
    pub fn commit(&mut self) -> bool {
        let committed = self.log.commit(self.lsn).is_ok() && self.log.ensure_lease().is_ok();
        if committed {
            self.keep_all();
        }
        committed
    }

    /// Notes that nothing that was appended so far may be lost from now on.
    pub fn keep_all(&mut self) {
        self.history.required = self.history.len();
    }
}

/// The options of the job with this id; most have none.
fn options_of(JobId(id): JobId) -> Option<Box<PutOptions>> {
    let lines = [" idp:a:9", " con:limit:2", " try:3", " try:1 con:b idp:key"];
    let which = (id * 7 % 16) as usize;
    let options = PutOptions::parse(lines.get(which)?.as_bytes()).expect("these are options");
    Some(Box::new(options))
}

/// The length of segments, if nothing else is said.
pub const SIZE: u64 = 4096;

/// An opened log, and the jobs in it.
pub struct Opened {
    pub binlog: Arc<Binlog>,
    pub jobs: Jobs,
    pub next_id: JobId,
    pub notices: Vec<String>,
}

pub fn recover(storage: Arc<dyn Storage>, sync: SyncMode, size: u64) -> Result<Opened, Error> {
    let mut jobs = Jobs::new();
    let opened = recovery::recover(storage, sync, size, &mut jobs)?;
    Ok(Opened {
        binlog: opened.binlog,
        jobs,
        next_id: opened.next_id,
        notices: opened.notices,
    })
}

pub fn start_with(disk: &Disk, sync: SyncMode, size: u64) -> Result<Opened, Error> {
    recover(Arc::new(disk.clone()), sync, size)
}

/// Opens a log in which every write is synced.
pub fn start(disk: &Disk) -> Result<Opened, Error> {
    start_with(disk, SyncMode::Always, SIZE)
}

/// The same, if nothing is wrong with it.
pub fn open(disk: &Disk) -> Opened {
    start(disk).unwrap_or_else(|error| panic!("{error}"))
}

/// Why a start is refused.
pub fn refusal(disk: &Disk) -> String {
    start(disk).err().expect("it is refused").to_string()
}
