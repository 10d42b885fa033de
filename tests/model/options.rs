//! The four options after a put.

use super::{
    Client, Job, LIMIT_OVERHEAD, Model, OPTIONS_OVERHEAD, Options, SECOND, State, Tombstone,
};
use super::{KICK, commands::name, documents::word};
use std::collections::BTreeSet;

impl Options {
    /// `None` if one of these is no option.
    pub(super) fn read(options: &[&str]) -> Option<Options> {
        let mut read = Options::default();
        for option in options {
            let parts: Vec<&str> = option.split(':').collect();
            let number = |text: &str| {
                let is_number = text.chars().all(|c| c.is_ascii_digit());
                is_number.then(|| text.parse::<u32>().ok())?
            };
            let had_it = match parts[..] {
                ["idp", key] => read.unique.replace((name(key)?.into(), 0)).is_some(),
                ["idp", key, seconds] => {
                    let seconds = number(seconds)?.min(31_536_000);
                    let unique = (name(key)?.into(), seconds.into());
                    read.unique.replace(unique).is_some()
                }
                ["con", key] => read.limit.replace((name(key)?.into(), 1)).is_some(),
                ["con", key, most] => {
                    let most = number(most).filter(|&most| most > 0)? as usize;
                    read.limit.replace((name(key)?.into(), most)).is_some()
                }
                ["try", tries] => {
                    let tries = number(tries).filter(|&tries| tries > 0)?;
                    read.tries.replace(tries).is_some()
                }
                ["exp", seconds] => {
                    let seconds = number(seconds).filter(|&seconds| seconds > 0)?;
                    read.expires_after.replace(seconds.into()).is_some()
                }
                _ => return None,
            };
            if had_it {
                return None;
            }
        }
        Some(read)
    }

    /// As after a put, each with a space before it.
    pub(super) fn written(&self) -> String {
        let mut text = String::new();
        match &self.unique {
            Some((key, 0)) => text += &format!(" idp:{key}"),
            Some((key, seconds)) => text += &format!(" idp:{key}:{seconds}"),
            None => {}
        }
        if let Some((key, most)) = &self.limit {
            text += &format!(" con:{key}:{most}");
        }
        if let Some(tries) = self.tries {
            text += &format!(" try:{tries}");
        }
        if let Some(seconds) = self.expires_after {
            text += &format!(" exp:{seconds}");
        }
        text
    }

    pub(super) fn memory(&self) -> usize {
        let unique = self.unique.iter().map(|(key, _)| key.len());
        let keys = unique.chain(self.limit.iter().map(|(key, _)| key.len()));
        if self.written().is_empty() {
            0
        } else {
            OPTIONS_OVERHEAD + keys.sum::<usize>()
        }
    }
}

impl Job {
    /// When its time is over, if that makes a difference.
    pub(super) fn expires_at(&self) -> Option<u64> {
        let after = self
            .options
            .expires_after
            .filter(|_| self.events[KICK] == 0)?;
        Some(self.created + after * SECOND)
    }

    /// When the clock deletes it, if it stays in its state.
    pub(super) fn may_expire_at(&self) -> Option<u64> {
        let may_expire = matches!(self.state, State::Ready | State::Delayed { .. });
        self.expires_at().filter(|_| may_expire)
    }
}

impl Model {
    /// Deletes the jobs whose time is over, and forgets the keys whose time is over.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        let is_left = |id| self.left.jobs.contains(&id);
        self.tombstones
            .retain(|key| key.until > now || is_left(key.id));
        let expired = self
            .jobs
            .iter()
            .filter_map(|job| Some((job.may_expire_at()?, job.id)));
        let expired = expired.filter(|&(at, id)| at <= now && !is_left(id));
        let mut expired: Vec<_> = expired.collect();
        expired.sort_unstable();
        for (_, id) in expired {
            let job = self.remove(id);
            self.tube(&job.tube).unwrap().expired += 1;
            self.forget_tube_if_unused(&job.tube);
            self.expired += 1;
        }
    }

    /// The answer to a put whose key is taken.
    pub(super) fn inserted_before(&mut self, put: &Job, tube: &str) -> Option<String> {
        let (key, _) = put.options.unique.as_ref()?;
        let has_key = |job: &&mut Job| {
            let unique = job.options.unique.as_ref();
            job.tube == tube && unique.is_some_and(|(one, _)| one == key)
        };
        if let Some(job) = self.jobs.iter_mut().find(has_key) {
            let (id, state) = (job.id, word(job.state).to_uppercase());
            if put.priority >= job.priority {
                return Some(format!("INSERTED {id} {state}"));
            }
            job.priority = put.priority;
            return Some(format!("INSERTED {id} {state} {}", put.priority));
        }
        let has_key = |one: &&Tombstone| one.tube == tube && one.key == *key;
        let tombstone = self.tombstones.iter().find(has_key)?;
        Some(format!("INSERTED {} DELETED", tombstone.id))
    }

    /// Removes a job. Its key may stay taken.
    pub(super) fn remove(&mut self, id: u64) -> Job {
        let position = self.jobs.iter().position(|job| job.id == id);
        let job = self.jobs.remove(position.expect("it is there"));
        if let Some((key, seconds @ 1..)) = &job.options.unique {
            self.tombstones.push(Tombstone {
                id: job.id,
                tube: job.tube.clone(),
                key: key.clone(),
                until: self.now + seconds * SECOND,
            });
        }
        job
    }

    /// Whether jobs with the same limit are in as many tubes as they may be, and
    /// none of them in this one.
    pub(super) fn is_spread_too_far(&self, options: &Options, tube: &str) -> bool {
        let Some((key, _)) = &options.limit else {
            return false;
        };
        let tubes: BTreeSet<&str> = self.with_limit(key).map(|(job, _)| &*job.tube).collect();
        tubes.len() >= 1000 && !tubes.contains(tube)
    }

    /// The jobs with a limit of this key, each with the limit.
    fn with_limit(&self, key: &str) -> impl Iterator<Item = (&Job, usize)> + Clone {
        self.jobs.iter().filter_map(move |job| {
            let (its, most) = job.options.limit.as_ref()?;
            (its == key).then_some((job, *most))
        })
    }

    /// How many more jobs with the limit of this one may be reserved.
    pub(super) fn places_free(&self, job: &Job) -> usize {
        let Some((key, _)) = &job.options.limit else {
            return usize::MAX;
        };
        let others = self.with_limit(key);
        let reserved = |(other, _): &(&Job, usize)| other.state.holder().is_some();
        let taken = others.clone().filter(reserved).count();
        let most = others.map(|(_, most)| most).max();
        most.expect("this one at least").saturating_sub(taken)
    }

    /// The reservations for which `ends` says so, by the client and the time, in the order
    /// in which they end.
    pub(super) fn ended(&self, ends: impl Fn(Client, u64) -> bool) -> Vec<u64> {
        let ended = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { by, until } if ends(by, until) => Some((until, job.id)),
            _ => None,
        });
        let ended = ended.filter(|(_, id)| !self.left.jobs.contains(id));
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, id)| id).collect()
    }

    /// Ends these reservations: their tries have failed.
    pub(super) fn end_silently(&mut self, ends: impl Fn(Client, u64) -> bool) {
        for id in self.ended(ends) {
            let job = self.job_mut(id);
            job.state = State::Ready;
            if let Some(tries) = job.options.tries {
                job.options.failed_tries += 1;
                if job.options.failed_tries >= tries {
                    self.bury(id);
                }
            }
        }
        self.bury_if_wanted();
    }

    /// In which order jobs are buried whose times to run end at the same moment
    /// is left open. So the model takes the order from the other side.
    pub fn order_burials(&mut self, order: impl Fn(u64) -> Option<u64>) {
        let mut buried: Vec<(u64, &mut u64)> = Vec::new();
        for job in &mut self.jobs {
            if let State::Buried { number } = &mut job.state
                && let Some(order) = order(job.id)
            {
                buried.push((order, number));
            }
        }
        let mut numbers: Vec<u64> = buried.iter().map(|(_, number)| **number).collect();
        numbers.sort_unstable();
        buried.sort_by_key(|(order, _)| *order);
        for ((_, place), number) in buried.into_iter().zip(numbers) {
            *place = number;
        }
    }

    pub(super) fn memory_of_options(&self) -> usize {
        let jobs = self.jobs.iter().map(|job| job.options.memory());
        let limits = self
            .jobs
            .iter()
            .filter_map(|job| job.options.limit.as_ref());
        let limits: BTreeSet<_> = limits.map(|(key, _)| key).collect();
        jobs.sum::<usize>() + self.memory_of_tombstones() + limits.len() * LIMIT_OVERHEAD
    }

    fn memory_of_tombstones(&self) -> usize {
        let memory = |one: &Tombstone| OPTIONS_OVERHEAD + one.tube.len() + one.key.len();
        self.tombstones.iter().map(memory).sum()
    }

    /// What the unique keys take that are taken, also after their jobs are deleted.
    pub(super) fn memory_of_keys(&self) -> usize {
        let of_jobs = self.jobs.iter().filter_map(|job| {
            let (key, _) = job.options.unique.as_ref()?;
            Some(OPTIONS_OVERHEAD + job.tube.len() + key.len())
        });
        of_jobs.sum::<usize>() + self.memory_of_tombstones()
    }

    /// Whether the key of a job that is to be put has room: keys may take a quarter.
    pub(super) fn has_room_for_key(&self, options: &Options, tube: &str) -> bool {
        let most = self.max_memory.unwrap_or(usize::MAX) / 4;
        options.unique.as_ref().is_none_or(|(key, _)| {
            self.memory_of_keys() + OPTIONS_OVERHEAD + tube.len() + key.len() <= most
        })
    }

    /// What list-jobs shows of the options.
    pub(super) fn facts_of_options(&self, job: &Job) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some((key, seconds)) = &job.options.unique {
            facts.push(format!("idempotency-key: {key}"));
            facts.push(format!("idempotency-ttl: {seconds}"));
        }
        if let Some((key, most)) = &job.options.limit {
            facts.push(format!("concurrency-key: {key}"));
            facts.push(format!("concurrency-limit: {most}"));
            facts.push(format!("concurrency-free: {}", self.places_free(job)));
        }
        if let Some(tries) = job.options.tries {
            let left = tries.saturating_sub(job.options.failed_tries);
            facts.push(format!("tries: {tries}"));
            facts.push(format!("tries-left: {left}"));
        }
        if let Some(at) = job.expires_at() {
            let left = at.saturating_sub(self.now) / SECOND;
            facts.push(format!("expires-in: {left}"));
        }
        facts
    }
}
