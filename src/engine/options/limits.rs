//! `con`: how many jobs with a key may be reserved at a time, in all tubes.
//!
//! A ready job with a limit stands in a line: each key has a line for each tube
//! that has such jobs. While the key has a free place, the first job of each of
//! its lines stands in the ready queue of its tube as well, among the jobs
//! without a limit. When the key becomes full, these first jobs leave the
//! queues; when it has a place again, they come back. So a ready queue only
//! ever has jobs that `reserve` may give away, and nobody passes over anything.
//! Such a change costs a step for each tube in which the key has ready jobs,
//! however many jobs these are. So that it never costs much, the jobs of a key
//! may be in so many tubes only.

use super::SideTables;
use crate::engine::job::{Job, State};
use crate::engine::ready::ReadyQueue;
use crate::engine::slab::TubeIndex;
use crate::engine::tube::{Tube, Tubes};
use crate::engine::{Engine, JobId};
use crate::protocol::{Key, Priority};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// In how many tubes there may be jobs with the same key. A put into one more is
/// refused.
const MOST_TUBES: usize = 1000;

/// The first job of a line: its tube, its priority and its id.
type First = (TubeIndex, Priority, JobId);

/// All keys with a limit.
#[derive(Default)]
pub struct Limits {
    /// A key is here as long as a job in any state has it.
    keys: BTreeMap<Key, Places>,
    /// The first jobs of the lines of full keys.
    passed_over: BTreeSet<First>,
}

/// The places of a key.
#[derive(Default)]
pub struct Places {
    /// How many jobs name which limit. The largest counts.
    limits: BTreeMap<u32, usize>,
    /// How many of its jobs are reserved.
    pub reserved: usize,
    /// Its jobs in each tube that has any.
    lines: BTreeMap<TubeIndex, Line>,
}

/// The jobs of a key in a tube.
#[derive(Default)]
struct Line {
    /// How many there are, in any state.
    jobs: usize,
    ready: ReadyQueue,
}

impl Places {
    /// A job with this limit is in this tube.
    pub fn add(&mut self, tube: TubeIndex, most: u32) {
        *self.limits.entry(most).or_default() += 1;
        self.lines.entry(tube).or_default().jobs += 1;
    }

    /// It is gone.
    pub fn remove(&mut self, tube: TubeIndex, most: u32) {
        let jobs = self.limits.get_mut(&most).expect("the job was there");
        *jobs -= 1;
        if *jobs == 0 {
            self.limits.remove(&most);
        }
        let line = self.lines.get_mut(&tube).expect("the job was there");
        line.jobs -= 1;
        if line.jobs == 0 {
            self.lines.remove(&tube);
        }
    }

    fn free(&self) -> u64 {
        let most = self.limits.last_key_value().map_or(0, |(&most, _)| most);
        u64::from(most).saturating_sub(self.reserved as u64)
    }

    fn is_full(&self) -> bool {
        self.free() == 0
    }
}

impl Limits {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether the key is in as many tubes as it may be, and not in this one.
    pub fn is_everywhere_but_in(&self, tube: TubeIndex, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|places| {
            places.lines.len() >= MOST_TUBES && !places.lines.contains_key(&tube)
        })
    }

    /// How many more jobs with this key may be reserved now.
    pub fn free(&self, key: &Key) -> u64 {
        self.keys.get(key).map_or(0, Places::free)
    }

    /// Makes a key share its text with the jobs that have the same key.
    pub fn share(&self, key: &mut Key) {
        if let Some((known, _)) = self.keys.get_key_value(key) {
            *key = known.clone();
        }
    }

    /// Of the ready jobs of a tube whose keys are full, the first.
    pub fn first_passed_over(&self, tube: TubeIndex) -> Option<(Priority, JobId)> {
        let from = (tube, Priority(0), JobId(0));
        let &(first, priority, id) = self.passed_over.range(from..).next()?;
        (first == tube).then_some((priority, id))
    }

    /// Changes the line of a key in a tube.
    fn change_line(
        &mut self,
        key: &Key,
        (index, tube): (TubeIndex, &mut Tube),
        change: impl FnOnce(&mut ReadyQueue),
    ) {
        let places = self.keys.get_mut(key).expect("one of its jobs is there");
        let is_full = places.is_full();
        let line = places.lines.get_mut(&index);
        let line = &mut line.expect("one of its jobs is here").ready;
        let before = line.first();
        change(line);
        let after = line.first();
        if before == after {
            return;
        }
        match is_full {
            true => {
                before.map(|(priority, id)| self.passed_over.remove(&(index, priority, id)));
                after.map(|(priority, id)| self.passed_over.insert((index, priority, id)));
            }
            false => {
                before.inspect(|&(priority, id)| tube.ready.remove(priority, id));
                after.inspect(|&(priority, id)| tube.ready.insert(priority, id));
            }
        }
    }

    /// Changes the places of a key. Says whether it is full now, if that is
    /// another answer than before, and which jobs are the first of its lines.
    fn change_places(
        &mut self,
        key: &Key,
        change: impl FnOnce(&mut Places),
    ) -> Option<(bool, Vec<First>)> {
        let places = match self.keys.get_mut(key) {
            Some(places) => places,
            None => self.keys.entry(key.clone()).or_default(),
        };
        let was_full = places.is_full();
        change(places);
        let is_full = places.is_full();
        let first = |(&tube, line): (&TubeIndex, &Line)| {
            let (priority, id) = line.ready.first()?;
            Some((tube, priority, id))
        };
        let first = || places.lines.iter().filter_map(first).collect();
        let changed = (was_full != is_full).then(first);
        if places.limits.is_empty() {
            self.keys.remove(key);
        }
        changed.map(|first| (is_full, first))
    }

    /// Panics if the jobs of each key do not stand where they belong. Returns
    /// how many jobs of each tube stand in lines and not in its queue.
    pub fn check(
        &self,
        tubes: &Tubes,
        mut jobs: HashMap<Key, Vec<(JobId, &Job, u32)>>,
    ) -> HashMap<TubeIndex, usize> {
        let mut hidden = HashMap::new();
        let mut passed_over = BTreeSet::new();
        for (key, places) in &self.keys {
            let jobs = jobs.remove(key).expect("a key has jobs");
            let count =
                |is: fn(State) -> bool| jobs.iter().filter(|(_, job, _)| is(job.state)).count();
            assert_eq!(
                places.reserved,
                count(|s| matches!(s, State::Reserved { .. }))
            );
            let lines = places.lines.values().map(|line| line.ready.len());
            assert_eq!(lines.sum::<usize>(), count(|s| s == State::Ready));
            assert_eq!(places.limits.values().sum::<usize>(), jobs.len());
            let most = jobs.iter().map(|&(_, _, most)| most).max();
            assert_eq!(places.limits.last_key_value().map(|(&most, _)| most), most);
            for (&tube, line) in &places.lines {
                let here = jobs.iter().filter(|(_, job, _)| job.tube == tube);
                assert_eq!(line.jobs, here.count());
                let Some((priority, id)) = line.ready.first() else {
                    continue;
                };
                let is_in = tubes[tube].ready.has(priority, id);
                assert_eq!(is_in, !places.is_full(), "job {id} of the key {key}");
                if places.is_full() {
                    passed_over.insert((tube, priority, id));
                }
                *hidden.entry(tube).or_default() += line.ready.len() - usize::from(is_in);
            }
        }
        assert!(jobs.is_empty());
        assert_eq!(passed_over, self.passed_over);
        hidden
    }
}

impl SideTables {
    /// Puts a ready job into the queue of its tube or, if it has a limit, into
    /// the line of its key.
    pub fn add_ready(&mut self, tube: (TubeIndex, &mut Tube), priority: Priority, id: JobId) {
        match self
            .jobs
            .get(&id)
            .and_then(|job| job.options.limit.as_ref())
        {
            None => tube.1.ready.insert(priority, id),
            Some(limit) => {
                let limits = &mut self.limits;
                limits.change_line(&limit.key, tube, |line| line.insert(priority, id));
            }
        }
    }

    /// Takes a ready job out of there.
    pub fn remove_ready(&mut self, tube: (TubeIndex, &mut Tube), priority: Priority, id: JobId) {
        match self
            .jobs
            .get(&id)
            .and_then(|job| job.options.limit.as_ref())
        {
            None => tube.1.ready.remove(priority, id),
            Some(limit) => {
                let limits = &mut self.limits;
                limits.change_line(&limit.key, tube, |line| line.remove(priority, id));
            }
        }
    }

    fn key_of(&self, id: JobId) -> Option<&Key> {
        Some(&self.of(id)?.options.limit.as_ref()?.key)
    }

    /// Whether nobody may reserve this job now because of its limit.
    pub fn is_full_for(&self, id: JobId) -> bool {
        self.key_of(id)
            .is_some_and(|key| self.limits.free(key) == 0)
    }
}

impl Engine {
    /// Takes or frees a place of the key of a job that changes its state.
    pub(in crate::engine) fn move_place(&mut self, id: JobId, before: State, after: State) {
        let is_reserved = |state| matches!(state, State::Reserved { .. });
        let (was, is) = (is_reserved(before), is_reserved(after));
        if was == is {
            return;
        }
        if let Some(key) = self.options.key_of(id).cloned() {
            self.change_places(&key, |places| match is {
                true => places.reserved += 1,
                false => places.reserved -= 1,
            });
        }
    }

    /// Changes the places of a key. If it becomes full by that, its jobs leave
    /// the ready queues; if it has a free place now, they come back, and the
    /// caller serves.
    pub(super) fn change_places(&mut self, key: &Key, change: impl FnOnce(&mut Places)) {
        let changed = self.options.limits.change_places(key, change);
        let Some((is_full, first)) = changed else {
            return;
        };
        self.effects.steps += first.len();
        for job @ (index, priority, id) in first {
            let tube = &mut self.tubes[index];
            let passed_over = &mut self.options.limits.passed_over;
            if is_full {
                tube.ready.remove(priority, id);
                passed_over.insert(job);
                continue;
            }
            passed_over.remove(&job);
            tube.ready.insert(priority, id);
            if tube.is_awaited_for(priority, id) {
                self.note_unserved(index);
            }
        }
    }
}
