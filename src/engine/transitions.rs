//! How jobs pass from state to state, which connection gets them, and what the
//! clock does.
//!
//! | What happens, and where | ready | delayed | reserved | buried |
//! |---|---|---|---|---|
//! | `put`: `insert` | begins | begins, with a delay | | |
//! | `reserve`, at once or after a wait: `reserve` | to reserved | | | |
//! | `reserve-job`: `reserve` | to reserved | to reserved | | to reserved |
//! | `release`: `release` | | | to ready, or delayed | |
//! | `bury`: `bury` | | | to buried | |
//! | `touch`: `touch` | | | stays, for longer | |
//! | `kick`, `kick-job`: `kick_one` | | to ready | | to ready |
//! | `delete`: `delete` | ends | ends | ends | ends |
//! | the delay is over: `end_delays` | | to ready | | |
//! | the time to run is over: `time_out_jobs` | | | to ready, or buried | |
//! | the connection ends: `disconnect` | | | to ready, or buried | |
//!
//! A job whose expiry is over is deleted where it is ready or delayed, or would be so
//! again: `expire`.
//!
//! A reserved job for which another connection has asked `bury-later` goes to
//! buried wherever it would go to ready, and at a `touch`.
//!
//! Where a cell is empty, the command answers NOT_FOUND or takes another job. A
//! reserved job can be released, buried, touched and deleted only by the
//! connection that has reserved it.
//!
//! Only `move_job` moves a job from one collection to another: it leaves one and enters
//! one, and `leave` and `enter` also keep the counts and timers right. The options of a put
//! come in there, and know nothing of the table above: see `options`.

use super::connection::Wait;
use super::counts::JobCounts;
use super::job::{Job, QueueEntry, State};
use super::slab::{ConnectionIndex, TubeIndex};
use super::{Change, Engine, JobId, Owner, Reply, Time};
use crate::protocol::Event;
use crate::protocol::command::Ask;

/// In the log, a change is about so long.
const BYTES_A_STEP: usize = 64;

impl Engine {
    /// Does a time slice of what is due by now, and returns whether anything was. If more
    /// is due, [`wake_at`](Self::wake_at) is still in the past. A reserve that comes then
    /// gets the best of the jobs that are ready, though a better one may be due.
    #[inline]
    pub fn tick(&mut self, now: Time) -> bool {
        self.now = now;
        let is_due = self.is_due();
        if is_due {
            self.do_what_is_due();
        }
        is_due
    }

    pub(super) fn is_due(&self) -> bool {
        self.wake_at().is_some_and(|at| at <= self.now)
    }

    fn do_what_is_due(&mut self) {
        // First those that have been due for longer.
        if self.has_unserved() {
            self.serve();
            if self.has_unserved() {
                return;
            }
        }
        let mut due = Vec::new();
        self.timers.wheel.advance(self.now, self.slice(), &mut due);
        self.effects.steps += due.len();
        // All of it counts as one moment: a connection that waits when jobs
        // become ready at the same moment gets the best of them.
        let most = self.effects.steps + self.slice();
        for &owner in &due {
            match owner {
                // `serve` begins with these.
                Owner::Ends => self.timers.ends_timer = None,
                Owner::Tube(tube) => self.end_delays(tube, most),
                Owner::Connection(connection) => self.time_out_jobs(connection, most),
            }
        }
        self.serve();
        // Only now is it known which connections still wait, and which were
        // served.
        let most = self.effects.steps + self.slice();
        for &owner in &due {
            match owner {
                // Its last job may have expired, and the tube with it.
                Owner::Tube(tube) if self.tubes.get(tube).is_none() => continue,
                Owner::Connection(waits) if self.effects.steps < most => self.end_wait(waits),
                _ => {}
            }
            self.set_timer(owner);
        }
    }

    /// Ends those delays of a tube's jobs that are over. Ends its pause, if
    /// that is over.
    fn end_delays(&mut self, index: TubeIndex, most_steps: usize) {
        self.tubes[index].timer = None;
        if self.effects.steps < most_steps
            && let Some(pause) = self.tubes[index].pause
            && pause.until <= self.now
        {
            self.effects.steps += 1;
            self.set_pause(index, None);
        }
        while self.effects.steps < most_steps
            && let Some(&(until, id)) = self.tubes[index].delayed.first()
            && Time::from_nanos(until) <= self.now
        {
            self.change_state(id, State::Ready, None);
        }
    }

    /// Makes a connection's reserved jobs ready again if their time to run is
    /// over, or buries them if that was their last try.
    fn time_out_jobs(&mut self, index: ConnectionIndex, most_steps: usize) {
        self.connections[index].timer = None;
        while self.effects.steps < most_steps
            && let Some(&(until, id)) = self.connections[index].reserved.first()
            && until <= self.now
        {
            self.fail_try(id, Some(Event::Timeout));
        }
    }

    /// Ends a connection's wait with `DEADLINE_SOON` or `TIMED_OUT`, if it is
    /// time. While others are to be served, there may still be a job for it.
    fn end_wait(&mut self, index: ConnectionIndex) {
        let connection = &self.connections[index];
        if let Some(wait) = connection.wait.filter(|_| !self.has_unserved()) {
            // If both are due, the protocol says that `DEADLINE_SOON` comes
            // first.
            if connection.is_deadline_soon(self.now) {
                self.answer_waiting(index, Reply::DeadlineSoon);
            } else if wait.until.is_some_and(|until| until <= self.now) {
                self.answer_waiting(index, Reply::TimedOut);
            }
        }
    }

    /// Moves a job from its state to this one, and counts the event, and a burial. It is the
    /// only way from one state to another, so it also notes what the log must hold: see
    /// [`Change`]. If the job, or another one of its key, is ready now for a connection that
    /// waits, [`serve`](Self::serve) has to follow.
    pub(super) fn change_state(&mut self, id: JobId, mut state: State, event: Option<Event>) {
        // What another connection has asked for by `bury-later` holds until the job is no
        // longer reserved.
        let is_freed = state.holder().is_none();
        if is_freed && self.burials.wanted.remove(&id) && state == State::Ready {
            state = self.buried_last();
        }
        let job = self.jobs.get_mut(id).expect("the job exists");
        let before = job.queue_entry();
        let burial = matches!(state, State::Buried { .. }).then_some(Event::Bury);
        for event in event.into_iter().chain(burial) {
            // As in beanstalkd, 0 comes after the highest number.
            let count = &mut job.details_mut().counters[event as usize];
            *count = count.wrapping_add(1);
            for jobs in [&mut self.tubes[job.tube].jobs, &mut self.counts.jobs] {
                jobs.events[event as usize] += 1;
            }
        }
        job.state = state;
        let is_known = match (before.state, state) {
            (State::Ready | State::Reserved { .. }, State::Reserved { .. }) => true,
            (State::Delayed { .. }, State::Ready) => event.is_none(),
            _ => false,
        };
        if !is_known {
            self.record(Change::Update(id));
        }
        self.move_job(id, Some(before), Some(QueueEntry { state, ..before }));
    }

    /// Gives a job to a connection that does not wait, or stops waiting right after.
    pub(super) fn reserve(&mut self, id: JobId, by: ConnectionIndex, with_stats: bool) -> Reply {
        self.connections[by].reserves += 1;
        let job = self.jobs.get(id).expect("the job exists");
        let (until, body) = (self.now + job.ttr, job.body.clone());
        let state = State::Reserved { by, until };
        self.change_state(id, state, Some(Event::Reserve));
        if with_stats {
            let job = self.jobs.get(id).expect("the job exists");
            let stats = self.job_stats(id, job);
            return Reply::ReservedWithStats(Box::new(stats), body);
        }
        Reply::Reserved(id, body)
    }

    /// Gives ready jobs to the connections that wait for them: first come, first
    /// served, whichever tube has the job, and each gets the best job that it can
    /// have. If that takes very many steps, [`has_unserved`](Self::has_unserved) says
    /// that there is more to do.
    pub(super) fn serve(&mut self) {
        let most = self.effects.steps + self.slice();
        self.expire(most);
        while self.effects.steps < most
            && let Some((order, tube)) = self.waiting.unserved.pop_first()
        {
            self.effects.steps += 1;
            // Since this was noted, the connection may have been served from another
            // tube, or the job may have been reserved, or the tube removed. The next
            // one has begun to wait later, so no connection is overtaken.
            let Some(there) = self.tubes.get(tube) else {
                continue;
            };
            if let Some((first, connection)) = there.first_to_serve()
                && first == order
                && let Some(id) = self.best_watched(connection)
            {
                let wait = self.stop_waiting(connection);
                let with_stats = wait.is_some_and(|wait| wait.with_stats);
                let reply = self.reserve(id, connection, with_stats);
                self.answer_waiting(connection, reply);
            }
            self.waiting.note(tube, &self.tubes[tube]);
        }
    }

    /// Whether there are jobs for connections that wait. Until these have got
    /// them, no other connection may reserve.
    pub(super) fn has_unserved(&self) -> bool {
        !self.waiting.unserved.is_empty()
    }

    /// Puts a connection last in the queues of all tubes that it watches.
    pub(super) fn start_waiting(&mut self, index: ConnectionIndex, ask: Ask) {
        let order = self.waiting.next;
        self.waiting.next += 1;
        let connection = &mut self.connections[index];
        connection.wait = Some(Wait {
            order,
            until: ask.timeout.map(|timeout| self.now + timeout),
            with_stats: ask.with_stats,
        });
        for &tube in &connection.watched {
            self.tubes[tube].waiting.insert(order, index);
        }
        self.effects.steps += connection.watched.len();
        self.counts.waiting += 1;
        self.set_timer(Owner::Connection(index));
    }

    /// Takes a connection out of these queues, if it waits.
    pub(super) fn stop_waiting(&mut self, index: ConnectionIndex) -> Option<Wait> {
        let connection = &mut self.connections[index];
        let wait = connection.wait.take()?;
        for &tube in &connection.watched {
            self.tubes[tube].waiting.remove(&wait.order);
        }
        self.effects.steps += connection.watched.len();
        self.counts.waiting -= 1;
        Some(wait)
    }

    pub(super) fn answer_waiting(&mut self, index: ConnectionIndex, reply: Reply) {
        self.stop_waiting(index);
        let id = self.connections[index].id;
        self.effects.replies.push((id, reply));
    }

    /// Puts a new job into the collections that its state and its options name.
    pub(super) fn add(&mut self, id: JobId, job: Job) {
        let entry = job.queue_entry();
        self.memory += job.memory();
        self.jobs.insert(id, job);
        self.move_job(id, None, Some(entry));
    }

    /// Takes a job out of all collections.
    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        let entry = self.jobs.get(id)?.queue_entry();
        self.move_job(id, Some(entry), None);
        let job = self.jobs.remove(id)?;
        self.memory -= job.memory();
        Some(job)
    }

    /// Moves a job from one collection to another. A new job comes from none, and one that is
    /// deleted goes to none; meanwhile it is among [`jobs`](Self::jobs).
    pub(super) fn move_job(&mut self, id: JobId, from: Option<QueueEntry>, to: Option<QueueEntry>) {
        let has_options = from.or(to).is_some_and(|entry| entry.has_options);
        if has_options {
            self.untie(id, from);
        }
        if let Some(entry) = from {
            self.leave(id, entry);
        }
        if let Some(entry) = to {
            self.enter(id, entry);
        }
        if has_options {
            self.tie(id, from, to);
        }
    }

    /// Takes a job out of the collection that its state names.
    fn leave(&mut self, id: JobId, entry: QueueEntry) {
        self.effects.steps += 1;
        match entry.state {
            State::Ready => self.tubes[entry.tube].ready.remove(entry.priority, id),
            State::Delayed { .. } | State::Buried { .. } => self.change_first(id, entry, false),
            State::Reserved { by, until } => {
                self.connections[by].reserved.remove(&(until, id));
            }
        }
        self.count(entry.tube, |jobs| jobs.change(entry, |n| *n -= 1));
    }

    /// Puts a job into the collection that its state names.
    fn enter(&mut self, id: JobId, entry: QueueEntry) {
        match entry.state {
            State::Ready => {
                self.tubes[entry.tube].ready.insert(entry.priority, id);
                self.waiting.note(entry.tube, &self.tubes[entry.tube]);
            }
            State::Delayed { .. } => {
                self.change_first(id, entry, true);
                self.set_timer(Owner::Tube(entry.tube));
            }
            State::Buried { .. } => self.change_first(id, entry, true),
            State::Reserved { by, until } => {
                self.connections[by].reserved.insert((until, id));
                self.set_timer(Owner::Connection(by));
            }
        }
        self.count(entry.tube, |jobs| jobs.change(entry, |n| *n += 1));
    }

    /// Adds a delayed or buried job to those of its tube, or takes it out. Of each page only
    /// the first job is in that collection, in place of the one that is first without it.
    fn change_first(&mut self, id: JobId, entry: QueueEntry, is_added: bool) {
        let is_like = |(_, job): &(JobId, &Job)| {
            job.tube == entry.tube && job.state.name() == entry.state.name()
        };
        let others = self.jobs.neighbours(id).filter(is_like);
        let other = others.map(|(id, job)| (job.state.order(), id)).min();
        let first = (entry.state.order(), id);
        if other.is_none_or(|other| first < other) {
            let tube = &mut self.tubes[entry.tube];
            let firsts = match entry.state {
                State::Delayed { .. } => &mut tube.delayed,
                _ => &mut tube.buried,
            };
            let (before, after) = if is_added {
                (other, Some(first))
            } else {
                (Some(first), other)
            };
            before.map(|before| firsts.remove(&before));
            firsts.extend(after);
        }
    }

    /// The state of the next job that is buried.
    pub(super) fn buried_last(&mut self) -> State {
        let order = self.burials.next;
        self.burials.next += 1;
        State::Buried { order }
    }

    pub(super) fn record(&mut self, change: Change) {
        if self.config.keeps_changes {
            // A record with names (a job that is deleted may leave its key) takes as much room
            // as those of several changes.
            let names = match &change {
                Change::Pause(tube) => tube.as_str().len(),
                Change::Delete(_, lengths) => lengths.keys.map_or(0, |keys| lengths.tube + keys),
                Change::Put(_) | Change::Update(_) => 0,
            };
            self.effects.steps += names / BYTES_A_STEP;
            self.effects.changes.push(change);
        }
    }

    /// Counts something of the jobs of a tube, and of all.
    pub(super) fn count(&mut self, tube: TubeIndex, change: impl Fn(&mut JobCounts)) {
        change(&mut self.tubes[tube].jobs);
        change(&mut self.counts.jobs);
    }

    /// Sets a timer to what comes next for its owner, if that is earlier. (It never has to
    /// be later: see `wheel.rs`.)
    pub(super) fn set_timer(&mut self, owner: Owner) {
        let (due, timer) = match owner {
            Owner::Ends => (
                self.timers.ends.first().map(|&(at, _)| at),
                &mut self.timers.ends_timer,
            ),
            Owner::Tube(index) => {
                let tube = &mut self.tubes[index];
                (tube.next_event(), &mut tube.timer)
            }
            Owner::Connection(index) => {
                let connection = &mut self.connections[index];
                (connection.next_event(), &mut connection.timer)
            }
        };
        self.timers.wheel.set(owner, due, timer);
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::{Config, ConnectionId, Engine, Outcome, Peer, Time};
    use crate::protocol::{Framer, Seconds};

    fn connect(engine: &mut Engine) -> ConnectionId {
        engine.connect(Peer::default(), Time::default())
    }

    fn ask(engine: &mut Engine, id: ConnectionId, text: &str, now: Time) {
        let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
        while let Some(request) = framer.next(&mut input) {
            let outcome = engine.execute(id, request, now);
            assert!(matches!(outcome, Outcome::Reply(_) | Outcome::AwaitBody));
        }
    }

    /// How many jobs are ready, delayed, reserved and buried.
    type Counts = [usize; 4];

    /// The counts after each tick until nothing is due, and what it cost.
    fn ticks(engine: &mut Engine, now: Time) -> Vec<(Counts, usize)> {
        let tick = || {
            engine.effects.steps = 0;
            let counts = engine.tick(now).then_some(engine.counts.jobs.by_state)?;
            Some((counts, engine.effects.steps))
        };
        std::iter::from_fn(tick).collect()
    }

    /// A connection that waits is in the queues of all tubes that it watches.
    #[test]
    fn waits_for_very_many_tubes_end_one_after_the_other() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        for _ in 0..3 {
            let id = connect(&mut engine);
            for tube in 1..1500 {
                ask(
                    &mut engine,
                    id,
                    &format!("watch {tube}\r\n"),
                    Time::default(),
                );
            }
            let wait = Framer::new(100).next(&mut &b"reserve-with-timeout 1\r\n"[..]);
            let waits = engine.execute(id, wait.unwrap(), Time::default());
            assert_eq!(waits, Outcome::Waiting);
        }
        let answers = || {
            engine.effects.steps = 0;
            let is_due = engine.tick(Time::default() + Seconds(1));
            is_due.then(|| (engine.effects.replies.drain(..).len(), engine.effects.steps))
        };
        let answers: Vec<_> = std::iter::from_fn(answers).collect();
        assert_eq!(answers, [(1, 1503), (1, 1502), (1, 1501)]);
    }

    /// No other client can do anything meanwhile.
    #[test]
    fn very_many_jobs_change_a_thousand_at_a_time() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let [puts, works] = [(); 2].map(|()| connect(&mut engine));
        let after = |seconds| Time::default() + Seconds(seconds);
        for number in 0..2500 {
            let text = format!("use {}\r\nput 0 1 1 0\r\n\r\n", number % 2);
            ask(&mut engine, puts, &text, after(0));
        }
        assert_eq!(
            ticks(&mut engine, after(1)),
            [
                ([1000, 1500, 0, 0], 1002),
                ([2000, 500, 0, 0], 1002),
                ([2500, 0, 0, 0], 501)
            ]
        );
        let all = "watch 0\r\nwatch 1\r\n".to_string() + &"reserve\r\n".repeat(2500);
        ask(&mut engine, works, &all, after(1));
        assert_eq!(
            ticks(&mut engine, after(2)),
            [
                ([1000, 0, 1500, 0], 1001),
                ([2000, 0, 500, 0], 1001),
                ([2500, 0, 0, 0], 501)
            ]
        );
        ask(&mut engine, works, &all, after(2));
        for tube in 2..4500 {
            ask(&mut engine, works, &format!("watch {tube}\r\n"), after(2));
        }
        let mut slices = Vec::new();
        while !engine.disconnect(works, after(2)) {
            slices.push((engine.counts.jobs.by_state, engine.tubes.len()));
        }
        assert_eq!(
            slices,
            [
                ([1000, 0, 1500, 0], 3502),
                ([2000, 0, 500, 0], 2502),
                ([2500, 0, 0, 0], 1502),
                ([2500, 0, 0, 0], 502)
            ]
        );
    }
}
