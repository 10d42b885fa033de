//! All jobs by their ids, in pages of neighbours.

use super::job::Job;
use crate::protocol::JobId;
use std::collections::btree_map::{BTreeMap, Entry};

/// How many ids share a page.
const PAGE: u64 = 32;

/// All jobs. Ids are given in sequence, so in a long queue a job costs its own 64 bytes and
/// two or three for its page. An allocation for each job, and an entry in an ordered map,
/// would cost 65 more. A page of which most jobs are deleted has room only for those that
/// are left.
#[derive(Default)]
pub struct Jobs {
    /// By their numbers.
    pages: BTreeMap<u64, Page>,
    /// The number of the page to which new jobs are added. That one has room for all its
    /// jobs, and stays when it is empty: otherwise each job on a server with empty queues
    /// would allocate it.
    newest: u64,
}

/// The jobs whose id / 32 is the number of the page.
#[derive(Default)]
struct Page {
    /// Bit n is set if the job with id % 32 = n exists.
    ids: u32,
    /// In the order of their ids.
    jobs: Vec<Job>,
}

impl Page {
    /// The position of a job, or `Err` with the one that it would have.
    fn position(&self, id: JobId) -> Result<usize, usize> {
        let before = (self.ids & (bit(id) - 1)).count_ones() as usize;
        match self.ids & bit(id) {
            0 => Err(before),
            _ => Ok(before),
        }
    }

    /// The jobs of the page, which has this number.
    fn jobs(&self, number: u64) -> impl Iterator<Item = (JobId, &Job)> {
        let ids = (number * PAGE..).map(JobId);
        let ids = ids.filter(|&id| self.ids & bit(id) != 0);
        self.jobs.iter().zip(ids).map(|(job, id)| (id, job))
    }
}

fn bit(id: JobId) -> u32 {
    1 << (id.0 % PAGE)
}

impl Jobs {
    pub fn get(&self, id: JobId) -> Option<&Job> {
        let page = self.pages.get(&(id.0 / PAGE))?;
        page.jobs.get(page.position(id).ok()?)
    }

    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let page = self.pages.get_mut(&(id.0 / PAGE))?;
        let position = page.position(id).ok()?;
        page.jobs.get_mut(position)
    }

    /// Adds a job whose id is not in use.
    pub fn insert(&mut self, id: JobId, job: Job) {
        let number = id.0 / PAGE;
        if number > self.newest {
            let before = std::mem::replace(&mut self.newest, number);
            self.trim(before);
        }
        // Most jobs are in the last page, which is found without a search.
        let page = match self.pages.last_entry() {
            Some(last) if *last.key() == number => last.into_mut(),
            _ => self.pages.entry(number).or_default(),
        };
        if number == self.newest {
            page.jobs.reserve_exact(PAGE as usize - page.jobs.len());
        }
        let position = page.position(id).expect_err("the id is not in use");
        page.jobs.insert(position, job);
        page.ids |= bit(id);
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let page = self.pages.get_mut(&(id.0 / PAGE))?;
        let job = page.jobs.remove(page.position(id).ok()?);
        page.ids &= !bit(id);
        if page.jobs.len() * 2 <= page.jobs.capacity() && id.0 / PAGE != self.newest {
            self.trim(id.0 / PAGE);
        }
        Some(job)
    }

    /// Frees what a page does not need any longer. The jobs that are left move to a block of
    /// their own. If the old block were cut off after them, a body would be allocated there,
    /// and later the rest would be too short for a new page.
    fn trim(&mut self, number: u64) {
        let Entry::Occupied(mut page) = self.pages.entry(number) else {
            return;
        };
        let jobs = &mut page.get_mut().jobs;
        if jobs.is_empty() {
            page.remove();
        } else if jobs.len() * 2 <= jobs.capacity() {
            let mut left = Vec::with_capacity(jobs.len());
            left.append(jobs);
            *jobs = left;
        }
    }

    /// The jobs from this id on.
    pub fn from(&self, id: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        let pages = self.pages.range(id.0 / PAGE..);
        let jobs = pages.flat_map(|(&number, page)| page.jobs(number));
        jobs.skip_while(move |&(other, _)| other < id)
    }

    /// The other jobs of a job's page, at most 31.
    pub fn neighbours(&self, id: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        let page = self.pages.get(&(id.0 / PAGE)).into_iter();
        let jobs = page.flat_map(move |page| page.jobs(id.0 / PAGE));
        jobs.filter(move |&(other, _)| other != id)
    }

    /// How many pages have jobs.
    pub fn page_count(&self) -> u64 {
        let newest = self.pages.last_key_value();
        let empty = usize::from(newest.is_some_and(|(_, page)| page.jobs.is_empty()));
        (self.pages.len() - empty) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Time;
    use crate::engine::job::State;
    use crate::engine::tube::DEFAULT;
    use crate::protocol::{Body, Priority, Seconds};

    fn jobs(ids: &[u64]) -> Jobs {
        let mut jobs = Jobs::default();
        for &id in ids {
            let job = Job {
                body: Body::new(id.to_string().as_bytes()),
                created_at: Time::default(),
                state: State::Ready,
                tube: DEFAULT,
                priority: Priority(0),
                delay: Seconds(0),
                ttr: Seconds(1),
                details: None,
            };
            jobs.insert(JobId(id), job);
        }
        jobs
    }

    #[test]
    fn jobs_are_found_by_their_ids_in_whatever_order_they_came() {
        let mut jobs = jobs(&[33, 3, 63, 32, 1_000_000_007, 34]);
        let sorted = [3, 32, 33, 34, 63, 1_000_000_007].map(JobId);
        for (index, id) in sorted.into_iter().enumerate() {
            let from = |id| jobs.from(JobId(id)).map(|(id, _)| id);
            assert!(from(id.0).eq(sorted[index..].iter().copied()));
            assert!(from(id.0 + 1).eq(sorted[index + 1..].iter().copied()));
        }
        assert!(jobs.remove(JobId(35)).is_none());
        for (gone, id) in sorted.into_iter().enumerate() {
            assert_eq!(jobs.from(JobId(0)).count(), 6 - gone);
            assert_eq!(
                jobs.get(id).unwrap().body,
                Body::new(id.0.to_string().as_bytes())
            );
            assert!(jobs.remove(id).is_some());
            assert!(jobs.get(id).is_none());
        }
        assert_eq!(jobs.page_count(), 0);
    }

    /// Clients could use up ids by puts that are refused.
    #[test]
    fn a_page_with_few_jobs_takes_little_memory() {
        let mut jobs = jobs(&(0..100).map(|page| page * PAGE).collect::<Vec<_>>());
        let capacities = |jobs: &Jobs| -> Vec<_> {
            let pages = jobs.pages.values();
            pages.map(|page| page.jobs.capacity()).collect()
        };
        assert_eq!(capacities(&jobs)[..99], [1; 99]);
        assert_eq!(jobs.page_count(), 100);
        jobs = self::jobs(&(0..1000).collect::<Vec<_>>());
        assert!(capacities(&jobs).into_iter().all(|capacity| capacity == 32));
        for id in (0..1000).filter(|id| id % 16 != 5) {
            assert!(jobs.remove(JobId(id)).is_some());
        }
        assert_eq!(capacities(&jobs)[..31], [2; 31]);
    }
}
