//! Tubes: their queues, the connections that wait at them, and the list of all
//! tubes.

use super::counts::JobCounts;
use super::job::restored_at;
use super::ready::ReadyQueue;
use super::slab::{ConnectionIndex, TubeIndex};
use super::{Change, Engine, Owner, Time, memory};
use crate::protocol::document::TubeNames;
use crate::protocol::{JobId, Priority, Seconds, TubeName};
use std::collections::{BTreeMap, BTreeSet};

/// The order in which connections begin to wait: a smaller one came earlier.
pub type Order = u64;

/// A tube. It exists while it holds a job in any state, or while a connection
/// uses or watches it. `default` always exists.
#[derive(Default)]
pub struct Tube {
    /// Its number. No other tube gets it in this run.
    pub id: u64,
    pub name: TubeName,
    /// The ready jobs that a reserve may take.
    pub ready: ReadyQueue,
    /// The first ready job of each key whose concurrency limit is reached: a
    /// reserve passes these over, and they are only peeked at.
    pub passed_over: ReadyQueue,
    /// The delayed jobs by the end of their delay, in nanoseconds. Of the jobs in a page only
    /// the first is here, because the others are found in the page.
    pub delayed: BTreeSet<(u64, JobId)>,
    /// The buried jobs by the order of their burial. Here, too, is only the first of a page.
    pub buried: BTreeSet<(u64, JobId)>,
    /// Its jobs: those in the collections above and in the queues of keys, and the
    /// reserved ones, which are in collections of the connections.
    pub jobs: JobCounts,
    /// The connections that wait here.
    pub waiting: BTreeMap<Order, ConnectionIndex>,
    /// When its timer rings; nothing happens to it before.
    pub timer: Option<Time>,
    /// While this is `Some`, `reserve` takes no job from this tube.
    /// (`reserve-job` does.)
    pub pause: Option<Pause>,
    /// Connections that use it.
    pub using: usize,
    /// Connections that watch it.
    pub watching: usize,
    pub deletes: u64,
    pub pauses: u64,
    /// Its position in the list of names.
    pub position: usize,
}

#[derive(Clone, Copy)]
pub struct Pause {
    pub length: Seconds,
    pub until: Time,
}

/// A pause of a tube, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPause {
    /// The tube.
    pub tube: TubeName,
    /// How long it is in all; 0 if it is over.
    pub length: Seconds,
    /// When it ends.
    pub until: Time,
}

impl StoredPause {
    /// The end of a pause.
    pub fn over(tube: TubeName) -> StoredPause {
        StoredPause {
            tube,
            length: Seconds(0),
            until: Time::default(),
        }
    }
}

impl Tube {
    /// The job that a reserve gets from this tube.
    pub fn offer(&self) -> Option<(Priority, JobId)> {
        self.ready.first().filter(|_| self.pause.is_none())
    }

    /// The connection that has waited longest for a job that this tube has.
    pub fn first_to_serve(&self) -> Option<(Order, ConnectionIndex)> {
        let (&order, &connection) = self.waiting.first_key_value()?;
        self.offer().map(|_| (order, connection))
    }

    /// Where the first ready job of a key is.
    pub fn firsts(&mut self, is_at_limit: bool) -> &mut ReadyQueue {
        if is_at_limit {
            &mut self.passed_over
        } else {
            &mut self.ready
        }
    }

    /// The next ready job, whether or not the limit of its key is reached.
    pub fn next_ready(&self) -> Option<JobId> {
        let firsts = [self.ready.first(), self.passed_over.first()];
        firsts.into_iter().flatten().min().map(|(_, id)| id)
    }

    /// When the clock alone next changes something here.
    pub fn next_event(&self) -> Option<Time> {
        let matures = self.delayed.first();
        let matures = matures.map(|&(until, _)| Time::from_nanos(until));
        let resumes = self.pause.map(|pause| pause.until);
        matures.into_iter().chain(resumes).min()
    }
}

/// The tube `default`, which is created first.
pub const DEFAULT: TubeIndex = TubeIndex::new(0);

/// The tubes by their names.
#[derive(Default)]
pub struct TubesByName {
    indices: BTreeMap<TubeName, TubeIndex>,
    /// In the order of `list-tubes`: when a tube is removed, the last one takes
    /// its position, as in beanstalkd.
    pub list: TubeNames,
}

impl Engine {
    pub(super) fn find_tube(&self, name: &TubeName) -> Option<TubeIndex> {
        self.tubes_by_name.indices.get(name).copied()
    }

    pub(super) fn find_or_make_tube(&mut self, name: &TubeName) -> TubeIndex {
        if let Some(index) = self.find_tube(name) {
            return index;
        }
        let names = &mut self.tubes_by_name;
        let index = self.tubes.insert(|id| Tube {
            id,
            name: name.clone(),
            position: names.list.len(),
            ..Tube::default()
        });
        names.indices.insert(name.clone(), index);
        names.list.push(name.clone());
        if index != DEFAULT {
            self.memory += name.as_str().len() as u64 + memory::TUBE;
        }
        index
    }

    /// The pause of a tube as the log must hold it, if the tube is there and paused.
    pub fn stored_pause(&self, tube: &TubeName) -> Option<StoredPause> {
        let Pause { length, until } = self.tubes[self.find_tube(tube)?].pause?;
        Some(StoredPause {
            tube: tube.clone(),
            length,
            until,
        })
    }

    /// Brings back a pause of an earlier run, when all jobs are back. Returns false if there
    /// is no such tube any more.
    pub fn restore_pause(&mut self, pause: &StoredPause) -> bool {
        let Some(tube) = self.find_tube(&pause.tube) else {
            return false;
        };
        let (length, now) = (pause.length, self.now);
        let until = restored_at(pause.until, now + length, now);
        self.tubes[tube].pause = Some(Pause { length, until });
        self.set_timer(Owner::Tube(tube));
        true
    }

    /// Whether a `pause-tube` begins a pause: there is the tube, and no pause of it.
    pub fn begins_pause(&self, tube: &TubeName, length: Seconds) -> bool {
        let tube = self.find_tube(tube).map(|tube| &self.tubes[tube]);
        length > Seconds(0) && tube.is_some_and(|tube| tube.pause.is_none())
    }

    /// Removes a tube if it has no jobs and no connections. It may still have been
    /// paused, so its timer is cleared.
    pub(super) fn remove_tube_if_unused(&mut self, index: TubeIndex) {
        let tube = &self.tubes[index];
        if index == DEFAULT || tube.jobs.sum() + tube.using + tube.watching > 0 {
            return;
        }
        let mut tube = self.tubes.remove(tube.id).expect("it was there");
        self.timers.wheel.clear(Owner::Tube(index), &mut tube.timer);
        let names = &mut self.tubes_by_name;
        names.indices.remove(&tube.name);
        names.list.swap_remove(tube.position);
        self.memory -= tube.name.as_str().len() as u64 + memory::TUBE;
        if let Some(moved) = names.list.get(tube.position) {
            self.tubes[names.indices[moved]].position = tube.position;
        }
        if tube.pause.is_some() {
            self.effects.steps += 1;
            self.record(Change::Pause(tube.name));
        }
    }
}
