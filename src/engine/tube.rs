//! Tubes: their queues, the connections that wait at them, and the list of all
//! tubes.

use super::Time;
use super::counts::JobCounts;
use super::ready::ReadyQueue;
use super::slab::{ConnectionIndex, OfTubes, Slab, TubeIndex};
use crate::protocol::document::TubeNames;
use crate::protocol::{JobId, Priority, Seconds, TubeName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// The order in which connections begin to wait: a smaller one came earlier.
pub type Order = u64;

/// A tube. It exists while it holds a job in any state, or while a connection
/// uses or watches it. `default` always exists.
pub struct Tube {
    pub name: TubeName,
    pub ready: ReadyQueue,
    /// The delayed jobs, by the end of their delay.
    pub delayed: BTreeSet<(Time, JobId)>,
    /// The buried jobs, by the order of their burial.
    pub buried: BTreeMap<u64, JobId>,
    /// How many jobs it has, by state: those in the collections above, and the
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
    pub total_jobs: u64,
    /// How often its jobs had each [`Event`](super::counts::Event).
    pub events: [u64; 5],
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

impl Tube {
    /// Whether connections may have to be told of this job, which has just
    /// become ready: it is better than all that were ready here before.
    pub fn is_awaited_for(&self, priority: Priority, id: JobId) -> bool {
        !self.waiting.is_empty() && self.ready.first() == Some((priority, id))
    }

    /// The job that a reserve gets from this tube.
    pub fn offer(&self) -> Option<(Priority, JobId)> {
        self.ready.first().filter(|_| self.pause.is_none())
    }

    /// When the clock alone next changes something here.
    pub fn next_event(&self) -> Option<Time> {
        let matures = self.delayed.first().map(|&(until, _)| until);
        let resumes = self.pause.map(|pause| pause.until);
        matures.into_iter().chain(resumes).min()
    }

    fn is_unused(&self) -> bool {
        self.jobs.sum() + self.using + self.watching == 0
    }
}

/// The tubes that exist, by index and by name.
pub struct Tubes {
    pub members: Slab<OfTubes, Tube>,
    by_name: BTreeMap<TubeName, TubeIndex>,
    /// In the order of `list-tubes`: when a tube is removed, the last one takes
    /// its position, as in the reference server.
    pub names: TubeNames,
    /// The lengths of all names, in bytes.
    name_bytes: u64,
}

impl Tubes {
    /// The tube `default`.
    pub const DEFAULT: TubeIndex = TubeIndex::new(0);

    /// What a tube takes in memory besides its name, in bytes. It has up to four
    /// collections, and each of them takes 200 bytes for its first members.
    const OVERHEAD: u64 = 1200;

    /// No tubes: the first one made must be `default`.
    pub fn new() -> Tubes {
        Tubes {
            members: Slab::new(),
            by_name: BTreeMap::new(),
            names: TubeNames::default(),
            name_bytes: 0,
        }
    }

    pub fn find(&self, name: &TubeName) -> Option<TubeIndex> {
        self.by_name.get(name).copied()
    }

    pub fn find_or_make(&mut self, name: &TubeName) -> TubeIndex {
        if let Some(index) = self.find(name) {
            return index;
        }
        let position = self.names.len();
        let index = self.members.insert(Tube {
            name: name.clone(),
            ready: ReadyQueue::default(),
            delayed: BTreeSet::new(),
            buried: BTreeMap::new(),
            jobs: JobCounts::default(),
            waiting: BTreeMap::new(),
            timer: None,
            pause: None,
            using: 0,
            watching: 0,
            total_jobs: 0,
            events: [0; 5],
            deletes: 0,
            pauses: 0,
            position,
        });
        self.by_name.insert(name.clone(), index);
        self.names.push(name.clone());
        self.name_bytes += name.as_str().len() as u64;
        index
    }

    /// Removes a tube if it has no jobs and no connections, and returns it.
    pub fn remove_if_unused(&mut self, index: TubeIndex) -> Option<Tube> {
        if index == Self::DEFAULT || !self[index].is_unused() {
            return None;
        }
        let tube = self.members.remove(index).expect("it was there");
        self.by_name.remove(&tube.name);
        self.names.swap_remove(tube.position);
        if let Some(moved) = self.names.get(tube.position) {
            let moved = self.by_name[moved];
            self[moved].position = tube.position;
        }
        self.name_bytes -= tube.name.as_str().len() as u64;
        Some(tube)
    }

    /// What the tubes other than `default` take, in bytes.
    pub fn memory(&self) -> u64 {
        let names = self.name_bytes - self[Self::DEFAULT].name.as_str().len() as u64;
        names + (self.members.len() as u64 - 1) * Self::OVERHEAD
    }
}

impl Index<TubeIndex> for Tubes {
    type Output = Tube;

    fn index(&self, index: TubeIndex) -> &Tube {
        &self.members[index]
    }
}

impl IndexMut<TubeIndex> for Tubes {
    fn index_mut(&mut self, index: TubeIndex) -> &mut Tube {
        &mut self.members[index]
    }
}
