//! Clients that have hung up, and that their workers still serve.
//!
//! When a client closes its connection, its worker learns it when the worker
//! gets to run. The worker of a client that connects after that may run before.
//! It would find jobs still reserved that nobody holds any more: scripts that
//! come one after the other would see that often. So the worker of a new client
//! waits for those that had hung up before.
//!
//! A client that has closed only its sending half looks like one that is gone,
//! and may stay for long. So nobody waits long for it, and those who come later
//! do not wait for it at all.

use crate::engine::{ConnectionId, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// How long others wait for a client that has hung up, at most. Its worker needs
/// so long to notice it only if the CPUs are very busy, or while it waits for the
/// disk or for a client that does not read. (The end of the server waits for the
/// acceptor, which may be waiting here.)
const PATIENCE: Duration = Duration::from_millis(500);

// The next two are for the acceptor, when all places are taken.

/// How long it waits for the news that a client has hung up, before it refuses
/// one that is too many.
const NEWS_WITHIN: Duration = Duration::from_millis(5);

/// How long it does not wait for such news after there was none. Otherwise a
/// client that connects again and again, and is refused, would hold up those
/// for whom there is a place.
const NO_NEWS: Duration = Duration::from_millis(100);

/// The clients that have hung up, in the order in which it was noticed.
#[derive(Default)]
pub struct Leavers {
    noticed: VecDeque<(Time, ConnectionId)>,
    /// How many threads wait for one of them to be gone: workers, and the
    /// acceptor.
    pub awaited_by: usize,
    /// Until then no news is awaited.
    no_news_until: Time,
}

impl Leavers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.noticed.is_empty()
    }

    /// Adds a client that has hung up.
    pub fn add(&mut self, id: ConnectionId, now: Time) {
        self.noticed.push_back((now, id));
    }

    /// How long a client that connected at this time waits until the next one is
    /// gone; `None` if none is left that hung up before. Those that are gone or
    /// have stayed too long must have been [dropped](Self::drop_gone) now.
    pub fn wait_of(&self, connected_at: Time, now: Time) -> Option<Duration> {
        let &(noticed_at, _) = self.noticed.front()?;
        let until = noticed_at + PATIENCE;
        (noticed_at <= connected_at).then(|| until.since(now))
    }

    /// Forgets the first ones, as long as they are gone or have stayed too long.
    pub fn drop_gone(&mut self, now: Time, is_there: impl Fn(ConnectionId) -> bool) {
        while let Some(&(noticed_at, id)) = self.noticed.front() {
            if is_there(id) && noticed_at + PATIENCE > now {
                return;
            }
            self.noticed.pop_front();
        }
    }

    /// Until when the acceptor waits for the news that a client has hung up;
    /// `None` for not at all.
    pub fn news_end(&self, now: Time) -> Option<Time> {
        (now >= self.no_news_until).then(|| now + NEWS_WITHIN)
    }

    /// There was no such news, or none that helped.
    pub fn note_no_news(&mut self, now: Time) {
        self.no_news_until = now + NO_NEWS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::default() + Duration::from_millis(millis)
    }

    /// How long a client waits, with those that are still there.
    fn wait_of(
        leavers: &mut Leavers,
        connected_at: u64,
        now: u64,
        is_there: impl Fn(ConnectionId) -> bool,
    ) -> Option<Duration> {
        leavers.drop_gone(at(now), is_there);
        leavers.wait_of(at(connected_at), at(now))
    }

    #[test]
    fn a_client_waits_for_those_that_hung_up_before_it_came_and_not_for_long() {
        let [early, late] = [1, 2].map(ConnectionId);
        let mut leavers = Leavers::default();
        leavers.add(early, at(10));
        leavers.add(late, at(50));
        let all = |_| true;
        let left = Duration::from_millis(490);
        assert_eq!(wait_of(&mut leavers, 30, 20, all), Some(left));
        assert_eq!(wait_of(&mut leavers, 30, 20, |id| id != early), None);
        assert_eq!(wait_of(&mut leavers, 60, 60, all), Some(left));
        assert_eq!(wait_of(&mut leavers, 60, 550, all), None);
        assert!(leavers.is_empty());
    }

    #[test]
    fn news_that_did_not_come_is_not_awaited_again_at_once() {
        let mut leavers = Leavers::default();
        assert_eq!(leavers.news_end(at(10)), Some(at(15)));
        leavers.note_no_news(at(15));
        assert_eq!(leavers.news_end(at(20)), None);
        assert_eq!(leavers.news_end(at(114)), None);
        assert_eq!(leavers.news_end(at(115)), Some(at(120)));
    }
}
