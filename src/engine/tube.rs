//! Tubes: their queues, who waits at them, and which of them exist.

use super::Time;
use super::delayed::DelayQueue;
use super::ready::ReadyQueue;
use super::slab::Slab;
use super::wheel::TimerId;
use crate::protocol::stats::JobCounts;
use crate::protocol::{JobId, Seconds, TubeName};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Index, IndexMut};

/// A tube. It lives while it holds a job in any state, or a connection uses or
/// watches it; `default` always lives.
pub struct Tube {
    pub name: TubeName,
    pub ready: ReadyQueue,
    pub delayed: DelayQueue,
    /// By the order of burying.
    pub buried: BTreeMap<u64, JobId>,
    /// How many jobs it has, by state; those in the collections above, and the
    /// reserved ones, which the connections hold.
    pub jobs: JobCounts,
    /// The places of the connections that wait here, by the order in which
    /// they came.
    pub waiting: BTreeMap<u64, u32>,
    /// Nothing is reserved from it by the queue while this is `Some`.
    pub pause: Option<Pause>,
    /// Set to the end of the first delay or of the pause, whichever is sooner.
    pub timer: TimerId,
    /// Connections that use it.
    pub using: usize,
    /// Connections that watch it.
    pub watching: usize,
    pub total_jobs: u64,
    pub deletes: u64,
    pub pauses: u64,
    /// Its place in the list of tubes.
    position: usize,
}

#[derive(Clone, Copy)]
pub struct Pause {
    pub length: Seconds,
    pub until: Time,
}

impl Tube {
    /// What happens next by the clock alone.
    pub fn next_event(&self) -> Option<Time> {
        let matures = self.delayed.first().map(|(until, _)| until);
        let resumes = self.pause.map(|pause| pause.until);
        matures.into_iter().chain(resumes).min()
    }

    fn is_unused(&self) -> bool {
        let JobCounts {
            ready,
            reserved,
            delayed,
            buried,
            ..
        } = self.jobs;
        ready + reserved + delayed + buried + self.using + self.watching == 0
    }
}

/// The tubes that exist, by place and by name.
pub struct Tubes {
    members: Slab<Tube>,
    by_name: HashMap<TubeName, u32>,
    /// Places, in the order in which `list-tubes` names them: when a tube goes,
    /// the last one takes its position, as in the reference server.
    list: Vec<u32>,
}

impl Tubes {
    /// The place of the tube `default`.
    pub const DEFAULT: u32 = 0;

    /// No tubes: the first one made must be `default`.
    pub fn new() -> Tubes {
        Tubes {
            members: Slab::new(),
            by_name: HashMap::new(),
            list: Vec::new(),
        }
    }

    pub fn find(&self, name: &TubeName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub fn find_or_make(&mut self, name: &TubeName, timer: impl FnOnce(u32) -> TimerId) -> u32 {
        if let Some(place) = self.find(name) {
            return place;
        }
        let position = self.list.len();
        let place = self.members.insert_with(|place| Tube {
            name: name.clone(),
            ready: ReadyQueue::default(),
            delayed: DelayQueue::default(),
            buried: BTreeMap::new(),
            jobs: JobCounts::default(),
            waiting: BTreeMap::new(),
            pause: None,
            timer: timer(place),
            using: 0,
            watching: 0,
            total_jobs: 0,
            deletes: 0,
            pauses: 0,
            position,
        });
        self.by_name.insert(name.clone(), place);
        self.list.push(place);
        place
    }

    /// Removes a tube if nothing keeps it alive; the timer that it had.
    pub fn remove_if_unused(&mut self, place: u32) -> Option<TimerId> {
        if place == Self::DEFAULT || !self[place].is_unused() {
            return None;
        }
        let tube = self.members.remove(place)?;
        self.by_name.remove(&tube.name);
        self.list.swap_remove(tube.position);
        if let Some(&moved) = self.list.get(tube.position) {
            self[moved].position = tube.position;
        }
        Some(tube.timer)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// In the order of `list-tubes`.
    pub fn iter(&self) -> impl Iterator<Item = &Tube> {
        self.list.iter().map(|&place| &self[place])
    }
}

impl Index<u32> for Tubes {
    type Output = Tube;

    fn index(&self, place: u32) -> &Tube {
        &self.members[place]
    }
}

impl IndexMut<u32> for Tubes {
    fn index_mut(&mut self, place: u32) -> &mut Tube {
        &mut self.members[place]
    }
}
