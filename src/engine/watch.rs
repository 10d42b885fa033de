//! The tubes that a connection watches, and how it finds the best job in them.
//!
//! Most connections watch a few tubes. Such a connection looks at each of them
//! when it reserves, and stands in the queue of each while it waits.
//!
//! A connection that watches many tubes would look at nearly all of them in
//! vain. It looks at a tube once, when it begins to watch it, and from then on
//! it listens there: it is in the tube's list of listeners until the tube has a
//! better job to offer than before. Then the tube tells it, and its next reserve
//! looks there again. So a reserve costs as much as has happened in these tubes
//! since the last one, and a wait costs nothing: whoever listens can be served.

use super::PIECE;
use super::slab::{ConnectionIndex, TubeIndex};
use super::tube::{Order, Tubes};
use crate::protocol::{JobId, Priority};
use std::collections::{BTreeMap, BTreeSet};

/// A connection that watches more tubes than this listens to them.
const LISTENS_ABOVE: usize = 16;

/// The tubes that a connection watches; at least one.
#[derive(Default)]
pub struct Watched {
    /// In the order of `list-tubes-watched`.
    tubes: Vec<TubeIndex>,
    /// `Some` once it has watched more than a few.
    pub listening: Option<Box<Listening>>,
}

/// What a connection knows about the many tubes that it watches.
#[derive(Default)]
pub struct Listening {
    /// The position of each tube in the order of `list-tubes-watched`.
    positions: BTreeMap<TubeIndex, u32>,
    /// Its key among the listeners of the tube at each position; `None` if it
    /// must look at the tube.
    keys: Vec<Option<Order>>,
    /// The tubes that it must look at, because they have told it so or are new.
    told: BTreeSet<TubeIndex>,
    /// The best jobs of the tubes that had one when it looked, best first. A
    /// tube's best job may have gone since then, but no better one has come.
    best: BTreeSet<(Priority, JobId, TubeIndex)>,
}

impl Watched {
    /// A new connection watches this one.
    pub fn only(tube: TubeIndex) -> Watched {
        Watched {
            tubes: vec![tube],
            listening: None,
        }
    }

    pub fn tubes(&self) -> &[TubeIndex] {
        &self.tubes
    }

    pub fn contains(&self, tube: TubeIndex) -> bool {
        match &self.listening {
            Some(many) => many.positions.contains_key(&tube),
            None => self.tubes.contains(&tube),
        }
    }

    /// Adds a tube that it does not watch yet.
    pub fn add(&mut self, tube: TubeIndex) {
        self.tubes.push(tube);
        if self.listening.is_none() && self.tubes.len() > LISTENS_ABOVE {
            let many = self.listening.insert(Box::default());
            self.tubes.iter().for_each(|&one| many.add(one));
        } else if let Some(many) = &mut self.listening {
            many.add(tube);
        }
    }

    /// Removes a tube, and gives its position to the last one, as the reference
    /// server does. Returns the key of the connection among the tube's
    /// listeners, if it is one of them. It must not be waiting.
    pub fn remove(&mut self, tube: TubeIndex) -> Option<Order> {
        let Some(many) = &mut self.listening else {
            let position = self.tubes.iter().position(|&one| one == tube);
            self.tubes.swap_remove(position.expect("it is watched"));
            return None;
        };
        let position = many.positions.remove(&tube).expect("it is watched");
        self.tubes.swap_remove(position as usize);
        if let Some(&moved) = self.tubes.get(position as usize) {
            many.positions.insert(moved, position);
        }
        many.told.remove(&tube);
        many.keys.swap_remove(position as usize)
    }
}

impl Listening {
    fn add(&mut self, tube: TubeIndex) {
        let position = u32::try_from(self.keys.len());
        let position = position.expect("fewer than 2^32 tubes");
        self.positions.insert(tube, position);
        self.keys.push(None);
        self.told.insert(tube);
    }

    /// The tube has a better job than before, and the connection is in its list
    /// of listeners no more.
    pub fn tell(&mut self, tube: TubeIndex) {
        self.set_key(tube, None);
        self.told.insert(tube);
    }

    /// The connection has this key among the tube's listeners now.
    pub fn set_key(&mut self, tube: TubeIndex, key: Option<Order>) {
        let position = self.positions.get(&tube);
        let position = *position.expect("only who watches a tube listens");
        self.keys[position as usize] = key;
    }

    /// Looks at the tubes that it must look at, or at a piece of them, and
    /// listens to them. Returns how many there were.
    pub fn look(&mut self, me: ConnectionIndex, order: Order, tubes: &mut Tubes) -> usize {
        for looked in 0..PIECE {
            let Some(index) = self.told.pop_first() else {
                return looked;
            };
            self.set_key(index, Some(order));
            tubes[index].listeners.insert(order, me);
            self.note_best(index, tubes);
        }
        PIECE
    }

    /// Whether it has looked at all tubes that it must look at.
    pub fn has_looked(&self) -> bool {
        self.told.is_empty()
    }

    /// The best job of all tubes, when it has looked. `steps` counts the jobs
    /// that are gone.
    pub fn first(&mut self, tubes: &Tubes, steps: &mut usize) -> Option<JobId> {
        // Old entries of a tube may lie behind the better one that it had later.
        if self.best.len() > 2 * self.keys.len() {
            *steps += self.best.len();
            for (_, _, index) in std::mem::take(&mut self.best) {
                self.note_best(index, tubes);
            }
        }
        while let Some(&(priority, id, index)) = self.best.first() {
            let is_watched = self.positions.contains_key(&index);
            if is_watched && tubes[index].offer() == Some((priority, id)) {
                return Some(id);
            }
            *steps += 1;
            self.best.pop_first();
            self.note_best(index, tubes);
        }
        None
    }

    fn note_best(&mut self, index: TubeIndex, tubes: &Tubes) {
        if self.positions.contains_key(&index)
            && let Some((priority, id)) = tubes[index].offer()
        {
            self.best.insert((priority, id, index));
        }
    }

    /// For tests: panics if it would not find the best job of a tube that it
    /// watches.
    pub fn check(&self, watched: &[TubeIndex], tubes: &Tubes, waits: bool) {
        assert_eq!(self.positions.len(), watched.len());
        assert!(self.told.is_empty() || !waits);
        for (position, &tube) in watched.iter().enumerate() {
            assert_eq!(self.positions[&tube] as usize, position);
            assert_eq!(self.told.contains(&tube), self.keys[position].is_none());
            let Some(key) = self.keys[position] else {
                continue;
            };
            assert!(tubes[tube].listeners.contains_key(&key));
            if let Some((priority, id)) = tubes[tube].offer() {
                let best = self.best.iter().find(|&&(.., one)| one == tube);
                assert!(best.is_some_and(|best| *best <= (priority, id, tube)));
            }
        }
        assert!(
            self.told
                .iter()
                .all(|tube| self.positions.contains_key(tube))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConnectionId, Engine, Outcome, Time};
    use crate::protocol::{Framer, Reply, Request};

    /// An engine at a time that stands still.
    struct Bench(Engine);

    impl Bench {
        fn new() -> Bench {
            Bench(Engine::new(Config::new(100), Time::default()))
        }

        /// A connection that watches so many tubes beside `default`: `0`, `1`
        /// and so on.
        fn watching(&mut self, count: usize) -> ConnectionId {
            let id = self.0.connect();
            (0..count).for_each(|tube| drop(self.ask(id, &format!("watch {tube}\r\n"))));
            id
        }

        fn put(&mut self, id: ConnectionId, tube: usize, priority: u32, delay: u64) {
            self.ask(id, &format!("use {tube}\r\n"));
            self.ask(id, &format!("put {priority} {delay} 60 0\r\n\r\n"));
        }

        /// The outcome of the last of these requests, in how many pieces it was
        /// done, and how many steps they cost.
        fn ask(&mut self, id: ConnectionId, text: &str) -> (Outcome, usize, usize) {
            let mut framer = Framer::new(100);
            let mut outcome = Outcome::Quit;
            let mut pieces = 0;
            self.0.effects.steps = 0;
            let mut input = text.as_bytes();
            while let Some(mut request) = framer.next(&mut input) {
                pieces = 0;
                loop {
                    pieces += 1;
                    outcome = self.0.execute(id, request, Time::default());
                    if outcome != Outcome::Unfinished {
                        break;
                    }
                    request = Request::GoOn;
                }
            }
            (outcome, pieces, self.0.effects.steps)
        }

        /// Which jobs were given to connections that waited.
        fn given(&mut self) -> Vec<(ConnectionId, u64)> {
            let replies = self.0.effects.replies.drain(..);
            let job = |(id, reply)| match reply {
                Reply::Reserved(job, _) => (id, job.0),
                _ => panic!("{reply:?}"),
            };
            replies.map(job).collect()
        }
    }

    const EMPTY_HANDED: Outcome = Outcome::Reply(Reply::TimedOut);

    #[test]
    fn a_reserve_costs_what_has_happened_not_what_is_watched() {
        let mut bench = Bench::new();
        let many = bench.watching(5000);
        let other = bench.0.connect();
        let mut cost = |id, text| {
            let (_, _, steps) = bench.ask(id, text);
            steps
        };
        assert!(cost(many, "reserve-with-timeout 0\r\n") < 10);
        assert!(cost(other, "use 4321\r\nput 0 0 60 0\r\n\r\n") < 10);
        assert!(cost(many, "reserve\r\ndelete 1\r\n") < 10);
        assert!(cost(many, "ignore 4321\r\nwatch again\r\n") < 10);
        assert!(cost(many, "reserve\r\n") < 10);
        assert!(cost(other, "put 0 0 60 0\r\n\r\nuse 1234\r\n") < 10);
        assert!(cost(other, "put 0 0 60 0\r\n\r\n") < 10);
        assert_eq!(bench.given(), [(many, 3)]);
        bench.0.check();
    }

    /// Otherwise a portion of commands could take very long.
    #[test]
    fn a_command_costs_a_step_for_each_job_and_tube_that_it_looks_at() {
        let mut bench = Bench::new();
        let few = bench.watching(9);
        let many = bench.watching(1600);
        let other = bench.0.connect();
        for (id, text, steps) in [
            (other, "use 5\r\n", 1),
            // Copying a name costs little.
            (other, "list-tubes\r\n", 1 + 1601 / 16),
            (few, "list-tubes-watched\r\n", 11),
            (few, "reserve-with-timeout 0\r\n", 11),
            (many, "reserve-with-timeout 0\r\n", 1),
            // One listens there.
            (other, "stats-tube 5\r\n", 2),
            (other, "put 0 0 60 0\r\n\r\n", 3),
            (other, "put 0 0 60 0 con:a\r\n\r\n", 2),
            (other, "put 0 0 60 0 con:a\r\n\r\n", 2),
            (other, "list-jobs 0 2\r\n", 3),
            (few, "reserve\r\n", 12),
            // The other job with its key has to wait.
            (few, "reserve\r\n", 13),
            (few, "delete 1\r\n", 2),
            (few, "delete 2\r\n", 3),
            (few, "delete 3\r\n", 2),
            (few, "reserve\r\n", 11),
            (other, "put 0 0 60 0\r\n\r\n", 13),
            (many, "reserve\r\n", 2),
            (other, "put 0 0 60 0\r\n\r\n", 5),
        ] {
            assert_eq!(bench.ask(id, text).2, steps, "{text}");
        }
        assert_eq!(bench.given(), [(few, 4), (many, 5)]);
    }

    #[test]
    fn after_very_much_has_happened_a_reserve_is_done_in_pieces() {
        let mut bench = Bench::new();
        let many = bench.watching(2500);
        let other = bench.0.connect();
        (0..2500).for_each(|tube| bench.put(other, tube, 9, 0));
        let (outcome, pieces, _) = bench.ask(many, "reserve\r\n");
        assert!(matches!(outcome, Outcome::Reply(Reply::Reserved(id, _)) if id.0 == 1));
        assert_eq!(pieces, 3);
        let (_, pieces, steps) = bench.ask(many, "reserve\r\n");
        assert!((pieces, steps) < (2, 10));
        bench.0.check();
    }

    #[test]
    fn who_watches_many_tubes_gets_the_best_of_the_jobs_that_mature_together() {
        let mut bench = Bench::new();
        let waiting = [3, 40, 50].map(|count| bench.watching(count));
        let other = bench.0.connect();
        for (tube, priority) in [(2, 9), (45, 0), (30, 5), (1, 7)] {
            bench.put(other, tube, priority, 1);
        }
        for id in waiting {
            assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
        }
        let later = Time::default() + std::time::Duration::from_secs(2);
        bench.0.tick(later);
        bench.0.check();
        let [few, many, more] = waiting;
        assert_eq!(bench.given(), [(few, 4), (many, 3), (more, 2)]);
        bench.ask(many, "reserve-with-timeout 0\r\n");
        bench.0.check();
    }

    #[test]
    fn who_watches_and_ignores_without_end_leaves_nothing_behind() {
        let mut bench = Bench::new();
        let many = bench.watching(20);
        let other = bench.0.connect();
        bench.put(other, 0, 0, 0);
        for round in 2..200 {
            bench.put(other, 1, 1000 - round, 0);
            bench.ask(many, "ignore 1\r\nwatch 1\r\nreserve-job 1\r\n");
            bench.ask(many, "release 1 0 0\r\nreserve\r\nrelease 1 0 0\r\n");
            bench.ask(other, &format!("delete {round}\r\n"));
            bench.0.check();
        }
        let index = bench.0.find(many).expect("it is connected");
        let watched = &bench.0.connections[index].watched;
        let listening = watched.listening.as_ref().expect("it watches many");
        assert!(listening.best.len() <= 2 * 21 && listening.told.len() <= 21);
        bench.ask(many, "delete 1\r\n");
        assert_eq!(
            bench.ask(many, "reserve-with-timeout 0\r\n").0,
            EMPTY_HANDED
        );
    }

    #[test]
    fn who_watches_more_than_a_few_tubes_listens() {
        let mut watched = super::Watched::only(super::TubeIndex::new(0));
        (1..16).for_each(|tube| watched.add(super::TubeIndex::new(tube)));
        assert!(watched.listening.is_none());
        watched.add(super::TubeIndex::new(16));
        assert!(watched.listening.is_some());
    }

    #[test]
    fn it_is_known_whether_anybody_waits() {
        let mut bench = Bench::new();
        let [waiting, other] = [0; 2].map(|_| bench.0.connect());
        assert!(!bench.0.has_waiting());
        bench.ask(waiting, "reserve\r\n");
        assert!(bench.0.has_waiting());
        bench.ask(other, "put 0 0 60 0\r\n\r\n");
        assert!(!bench.0.has_waiting());
    }
}
