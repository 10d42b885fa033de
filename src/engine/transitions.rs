//! How jobs pass from state to state, who gets them, and what the clock does.
//!
//! `leave` and `enter` are the only places where a job moves between
//! collections, so counts and timers are kept right in these two.

use super::connection::Wait;
use super::job::State;
use super::{Change, ConnectionId, Engine, Owner};
use super::{JobId, Reply, Time};
use crate::protocol::Priority;
use crate::protocol::stats::JobCounts;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many jobs of a tube become ready in one call, so that nobody holds a
/// lock for long when very many mature at once.
const MATURE_AT_ONCE: usize = 1000;

impl Engine {
    /// Lets what is due by now happen. At most some thousand jobs become ready
    /// in one call: if there are more, [`wake_at`](Self::wake_at) says so.
    pub fn tick(&mut self, now: Time) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        // As if all of it happened at once: who waits until the very moment at
        // which jobs become ready gets the best of them.
        for owner in &due {
            match *owner {
                Owner::Tube(tube) => self.tube_is_due(tube, now),
                Owner::Connection(connection) => self.time_out_jobs(connection, now),
            }
        }
        self.serve(now);
        for owner in due.drain(..) {
            match owner {
                Owner::Tube(tube) => self.set_tube_timer(tube),
                Owner::Connection(connection) => self.end_wait(connection, now),
            }
        }
        self.due = due;
    }

    fn tube_is_due(&mut self, place: u32, now: Time) {
        let tube = &mut self.tubes[place];
        if tube.pause.is_some_and(|pause| pause.until <= now) {
            tube.pause = None;
            self.unserved.push(place);
        }
        for _ in 0..MATURE_AT_ONCE {
            match self.tubes[place].delayed.first() {
                Some((until, id)) if until <= now => self.change_state(id, State::Ready),
                _ => break,
            }
        }
    }

    fn time_out_jobs(&mut self, place: u32, now: Time) {
        while let Some(&(until, id)) = self.connections[place].reserved.first() {
            if until > now {
                break;
            }
            self.jobs[id].history_mut().timeouts += 1;
            self.timeouts += 1;
            self.record(Change::Update(id));
            self.change_state(id, State::Ready);
        }
    }

    /// Ends a connection's wait, if it is time and nothing has come.
    fn end_wait(&mut self, place: u32, now: Time) {
        let connection = &self.connections[place];
        if let Some(wait) = connection.wait {
            if connection.deadline_soon_at().is_some_and(|at| at <= now) {
                self.answer_waiting(place, Reply::DeadlineSoon);
            } else if wait.until.is_some_and(|until| until <= now) {
                self.answer_waiting(place, Reply::TimedOut);
            }
        }
        self.set_connection_timer(place);
    }

    /// Moves a job to the ready queue, from whatever state.
    pub(super) fn make_ready(&mut self, id: JobId, now: Time) {
        self.change_state(id, State::Ready);
        self.serve(now);
    }

    /// Moves a job to this state, from whatever other one.
    pub(super) fn change_state(&mut self, id: JobId, state: State) {
        let (tube, priority) = (self.jobs[id].tube, self.jobs[id].priority);
        self.leave(id, tube, priority);
        self.jobs[id].state = state;
        self.enter(id, tube, priority, state);
    }

    /// Gives a job to a connection that does not wait.
    pub(super) fn reserve(&mut self, id: JobId, place: u32, now: Time) -> Reply {
        let job = &mut self.jobs[id];
        job.history_mut().reserves += 1;
        let (until, body) = (now + job.ttr, job.body.clone());
        self.record(Change::Update(id));
        self.change_state(id, State::Reserved { by: place, until });
        Reply::Reserved(id, body)
    }

    /// Gives the ready jobs of the unserved tubes to those who wait for them:
    /// first come, first served, and to each the best job that it can have.
    pub(super) fn serve(&mut self, now: Time) {
        if self.unserved.is_empty() {
            return;
        }
        let mut tubes = std::mem::take(&mut self.unserved);
        tubes.sort_unstable();
        tubes.dedup();
        let first = tubes.drain(..).filter_map(|tube| self.first_to_serve(tube));
        let mut next: BinaryHeap<_> = first.collect();
        self.unserved = tubes;
        while let Some(Reverse((order, tube))) = next.pop() {
            // Another tube may have served it, or given this one's job away.
            let place = self.tubes[tube].waiting.get(&order).copied();
            let served = place.and_then(|place| Some((place, self.first_ready(place)?)));
            if let Some((place, id)) = served {
                self.stop_waiting(place);
                let reply = self.reserve(id, place, now);
                self.effects.replies.push((self.id(place), reply));
            }
            next.extend(self.first_to_serve(tube));
        }
    }

    /// The order in which the first connection came that a tube has a job for,
    /// and the tube.
    fn first_to_serve(&self, place: u32) -> Option<Reverse<(u64, u32)>> {
        let tube = &self.tubes[place];
        tube.ready.first().filter(|_| tube.pause.is_none())?;
        let (&order, _) = tube.waiting.first_key_value()?;
        Some(Reverse((order, place)))
    }

    /// Puts a connection last in the queues of all tubes that it watches.
    pub(super) fn start_waiting(&mut self, place: u32, until: Option<Time>) {
        let order = self.next_wait;
        self.next_wait += 1;
        let connection = &mut self.connections[place];
        connection.wait = Some(Wait { order, until });
        for &tube in &connection.watched {
            self.tubes[tube].waiting.insert(order, place);
        }
        self.waiting += 1;
        self.set_connection_timer(place);
    }

    pub(super) fn stop_waiting(&mut self, place: u32) {
        let connection = &mut self.connections[place];
        let Some(wait) = connection.wait.take() else {
            return;
        };
        for &tube in &connection.watched {
            self.tubes[tube].waiting.remove(&wait.order);
        }
        self.waiting -= 1;
        self.set_connection_timer(place);
    }

    pub(super) fn answer_waiting(&mut self, place: u32, reply: Reply) {
        self.stop_waiting(place);
        self.effects.replies.push((self.id(place), reply));
    }

    /// Takes a job out of the collection that its state names.
    pub(super) fn leave(&mut self, id: JobId, tube: u32, priority: Priority) {
        let state = self.jobs[id].state;
        let from = &mut self.tubes[tube];
        match state {
            State::Ready => from.ready.remove(priority, id),
            State::Delayed { position, .. } => from.delayed.remove(position, |id, position| {
                self.jobs.set_position(id, position)
            }),
            State::Buried { order } => {
                from.buried.remove(&order);
            }
            State::Reserved { by, until } => {
                self.connections[by].reserved.remove(&(until, id));
            }
        }
        count(&mut self.tubes[tube].jobs, state, priority, |n| *n -= 1);
        count(&mut self.totals, state, priority, |n| *n -= 1);
        self.set_timer_after(tube, state);
    }

    /// Puts a job into the collection that its state names.
    pub(super) fn enter(&mut self, id: JobId, tube: u32, priority: Priority, state: State) {
        let into = &mut self.tubes[tube];
        match state {
            State::Ready => {
                into.ready.insert(priority, id);
                if !into.waiting.is_empty() {
                    self.unserved.push(tube);
                }
            }
            State::Delayed { until, .. } => into.delayed.insert(until, id, |id, position| {
                self.jobs.set_position(id, position)
            }),
            State::Buried { order } => {
                into.buried.insert(order, id);
            }
            State::Reserved { by, until } => {
                self.connections[by].reserved.insert((until, id));
            }
        }
        count(&mut self.tubes[tube].jobs, state, priority, |n| *n += 1);
        count(&mut self.totals, state, priority, |n| *n += 1);
        self.set_timer_after(tube, state);
    }

    pub(super) fn record(&mut self, change: Change) {
        if self.config.journal {
            self.effects.changes.push(change);
        }
    }

    /// Sets the timer that depends on the jobs in this state.
    fn set_timer_after(&mut self, tube: u32, state: State) {
        match state {
            State::Delayed { .. } => self.set_tube_timer(tube),
            State::Reserved { by, .. } => self.set_connection_timer(by),
            State::Ready | State::Buried { .. } => {}
        }
    }

    pub(super) fn set_tube_timer(&mut self, place: u32) {
        let tube = &self.tubes[place];
        self.wheel.set(tube.timer, tube.next_event());
    }

    pub(super) fn set_connection_timer(&mut self, place: u32) {
        let connection = &self.connections[place];
        self.wheel.set(connection.timer, connection.next_event());
    }

    fn id(&self, place: u32) -> ConnectionId {
        let serial = self.connections[place].serial;
        ConnectionId { place, serial }
    }
}

/// Changes the counts that a job in this state appears in.
fn count(counts: &mut JobCounts, state: State, priority: Priority, change: fn(&mut usize)) {
    match state {
        State::Ready => {
            change(&mut counts.ready);
            if priority.is_urgent() {
                change(&mut counts.urgent);
            }
        }
        State::Delayed { .. } => change(&mut counts.delayed),
        State::Reserved { .. } => change(&mut counts.reserved),
        State::Buried { .. } => change(&mut counts.buried),
    }
}
