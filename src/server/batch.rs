//! A batch: the commands of a client that have arrived together. It is executed in
//! time slices, so that no other client waits long for the lock, however much this one
//! asks for.

use super::memory::MemoryPart;
use super::outbox::{SEND_BYTES, memory, size};
use super::shared::{Guarded, SLICE_STEPS, Shared};
use crate::binlog::Lsn;
use crate::engine::{ConnectionId, Outcome, Time};
use crate::log;
use crate::protocol::{Command, Reply, Request};
use std::collections::VecDeque;
use std::time::Duration;

/// How many requests are taken from the input at once.
pub const REQUESTS_AT_ONCE: usize = 64;

/// For how many requests or replies a silent client keeps memory.
const CAPACITY_KEPT: usize = 4;

/// A batch with more requests than these is a bulk batch: workers with fewer go first.
const FEW_REQUESTS: usize = 8;

/// How many bytes of replies each client may have even if there is no room for replies.
const FEW_BYTES: usize = 2 * 1024;

/// After each group of this many requests, a time slice checks whether other threads
/// wait for the lock, and whether the binlog is short of disk space.
const CHECK_EVERY: usize = 16;

/// Requests in their order, and the replies to those that are executed.
#[derive(Default)]
pub struct Batch {
    requests: VecDeque<Request>,
    replies: Vec<Reply>,
    /// About how many bytes the replies have.
    size: usize,
    /// About how much memory they take.
    memory: usize,
    /// How many bytes of replies are gathered before they are sent: few if there is no room
    /// for many.
    pub gathers: usize,
    /// Up to where the binlog must be durable before the replies are sent.
    needed: Option<Lsn>,
    /// Whether there is no room for the request that comes next, because the disk is full.
    disk_is_full: bool,
    /// Whether the next request that depends on clients which have hung up waits until they
    /// have left. Set when bytes are read, and when replies are sent between two requests.
    pub awaits_leavers: bool,
}

/// What comes after a time slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another time slice, when the binlog has disk space for it.
    Continue,
    /// The same, with room for a record of this length; or the next request is refused.
    AwaitRoom(u64),
    /// Another time slice, when those clients have left that had hung up before.
    AwaitLeavers,
    /// The replies are to be posted now: all is executed, or there are many.
    Post,
    /// The client waits for a job.
    Wait,
    /// The connection is to be closed.
    Close,
}

impl Batch {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request. Returns whether another one may be added after it.
    pub fn push(&mut self, request: Request) -> bool {
        let may_wait = matches!(request, Request::Command(_, Command::Reserve(_)));
        self.requests.push_back(request);
        // Requests after one that may wait are parsed when it has its answer.
        !may_wait && self.requests.len() < REQUESTS_AT_ONCE
    }

    /// Whether this is a bulk batch.
    pub fn is_bulk(&self) -> bool {
        let is_rest = matches!(self.requests.front(), Some(Request::Continue(_)));
        self.requests.len() > FEW_REQUESTS || is_rest
    }

    /// Executes requests until it is time to send the replies. With `is_bulk`, workers
    /// with less to do go first. What this worker holds does not count against its own
    /// client's puts. The replies count from the moment at which they are made, before
    /// another worker can make more.
    pub fn execute_slices(
        &mut self,
        shared: &Shared,
        id: ConnectionId,
        part: &mut MemoryPart,
        is_bulk: bool,
    ) -> Next {
        let before = part.bytes;
        loop {
            // Each time slice holds the lock once. If it turns out to be a
            // bulk batch, it lets others go first from then on.
            let is_bulk = is_bulk || self.is_bulk();
            let slice = |state: &mut Guarded, now| {
                // This holds until the lock is released.
                state.engine.outside.memory -= before;
                if shared.has_binlog_backpressure() {
                    Next::Continue
                } else {
                    let next = self.execute_slice(shared, state, id, now);
                    // What is less is part of what each client takes.
                    if self.memory > FEW_BYTES {
                        part.set(before as usize + self.memory);
                    }
                    next
                }
            };
            let next = if is_bulk {
                shared.with_lock_last(slice)
            } else {
                shared.with_lock(slice)
            };
            match next {
                Next::Continue => shared.await_disk_space(),
                Next::AwaitRoom(len) => self.await_room(len, shared),
                next => return next,
            }
        }
    }

    /// Waits until the binlog has room for the next request. The replies that are ready are
    /// sent with the next ones. If the disk is full, the request is refused.
    // Not inlined: a worker that never comes here would need a longer stack.
    #[inline(never)]
    fn await_room(&mut self, len: u64, shared: &Shared) {
        shared.await_disk_space();
        let binlog = shared.binlog.as_ref().expect("it lacks the room");
        self.disk_is_full = !binlog.make_room(len, &|work| shared.with_jobs(work));
        if binlog.is_too_long(len) {
            log::warning(
                "refused: a job longer than a file of the binlog; when the disk has more room, the next start makes the files longer",
            );
        }
    }

    /// How much memory the bodies in its requests take, in bytes.
    pub fn bodies(&self) -> usize {
        let bodies = self.requests.iter().filter_map(|request| match request {
            Request::Body(Ok(body)) => Some(body.wire().len()),
            _ => None,
        });
        bodies.sum()
    }

    /// Whether its memory should be freed when the client is silent.
    pub fn is_large(&self) -> bool {
        self.requests.capacity().max(self.replies.capacity()) > CAPACITY_KEPT
    }

    /// Frees its memory when it is empty.
    pub fn shrink(&mut self) {
        (self.requests, self.replies) = Default::default();
    }

    /// The replies, to be taken out, and what must be committed before they are sent.
    pub fn replies(&mut self) -> (&mut Vec<Reply>, Option<Lsn>) {
        (self.size, self.memory) = (0, 0);
        (&mut self.replies, self.needed.take())
    }

    fn execute_slice(
        &mut self,
        shared: &Shared,
        state: &mut Guarded,
        id: ConnectionId,
        mut now: Time,
    ) -> Next {
        let has_room = state.engine.room_for_replies() >= SEND_BYTES as u64;
        self.gathers = if has_room { SEND_BYTES } else { FEW_BYTES };
        // Each change is a step. So a slice appends no more records than a short file of the
        // binlog has room for.
        let most_changes = state.engine.outside.most_changes;
        let most_steps = most_changes.map_or(SLICE_STEPS, |most| most.min(SLICE_STEPS));
        for done in 1.. {
            let Some(request) = self.requests.pop_front() else {
                break;
            };
            if !self.disk_is_full
                && let Some(len) = shared.lacks_room_for(state, id, &request)
            {
                self.requests.push_front(request);
                return Next::AwaitRoom(len);
            }
            if self.awaits_leavers && state.engine.depends_on_leavers(id, &request) {
                self.awaits_leavers = false;
                self.requests.push_front(request);
                return Next::AwaitLeavers;
            }
            // No two requests have the same time, so what they do has an order.
            now = now + Duration::from_nanos(1);
            state.engine.outside.disk_is_full = std::mem::take(&mut self.disk_is_full);
            let outcome = shared.execute_and_append(state, id, request, now);
            match outcome {
                Outcome::Reply(reply) => {
                    self.needed = self.needed.max(shared.needed_for(&reply));
                    self.size += size(&reply);
                    self.memory += memory(&reply);
                    self.replies.push(reply);
                }
                // A put is answered after its body.
                Outcome::AwaitBody => {}
                Outcome::Unfinished(rest) => {
                    // Others go first before its next time slice.
                    self.requests.push_front(Request::Continue(rest));
                    return Next::Continue;
                }
                Outcome::Waiting => return Next::Wait,
                Outcome::Quit => return Next::Close,
            }
            if self.size >= self.gathers {
                // Replies are sent before more are encoded: the client may never read
                // them. Who has hung up meanwhile, or was closed, is looked for once more.
                self.awaits_leavers = true;
                return Next::Post;
            }
            // The cost is counted in steps, not in time: reading the clock
            // costs as much as a short command.
            let is_long = state.engine.effects.steps >= most_steps;
            let is_wanted = || shared.is_awaited() || shared.has_binlog_backpressure();
            let has_to_end = is_long || done % CHECK_EVERY == 0 && is_wanted();
            if has_to_end && !self.requests.is_empty() {
                return Next::Continue;
            }
        }
        Next::Post
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::recovery::recover;
    use crate::binlog::{Binlog, SyncMode, lock};
    use crate::engine::{Config, Engine, Peer, Shift};
    use crate::protocol::command::{Ask, Rest};
    use crate::protocol::{Framer, Seconds};
    use crate::server::{Clock, Limits};
    use std::sync::Arc;

    /// What is in this directory, in a binlog of short segments.
    fn open(directory: &tempfile::TempDir, now: Time) -> (Engine, Arc<Binlog>) {
        let config = Config {
            keeps_changes: true,
            ..Config::new(100)
        };
        let mut engine = Engine::new(config, now);
        let (storage, _) = lock(directory.path(), false).unwrap();
        let opened = recover(storage, SyncMode::Never, 4096, &mut engine).unwrap();
        (engine, opened.binlog)
    }

    /// A server with this binlog, in which no thread makes room.
    fn shared(directory: &tempfile::TempDir) -> Shared {
        let clock = Clock::start();
        let (engine, binlog) = open(directory, clock.now());
        let limits = Limits::of_one_client(100);
        Shared::new(engine, Some(binlog), clock, limits).unwrap()
    }

    fn connect(shared: &Shared) -> ConnectionId {
        shared.with_lock(|state, now| state.engine.connect(Peer::default(), now))
    }

    fn execute(batch: &mut Batch, shared: &Shared, id: ConnectionId) -> Next {
        batch.execute_slices(shared, id, &mut MemoryPart::new(&shared.memory, 0), false)
    }

    fn push(batch: &mut Batch, text: &str) {
        let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
        while let Some(request) = framer.next(&mut input) {
            batch.push(request);
        }
    }

    /// The binlog checks that a piece of long work is not too long for it.
    #[test]
    fn unique_keys_that_ended_while_the_server_was_down_are_appended_to_the_binlog_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let an_hour_ago = Clock::start().now() - Seconds(3600);
        let (mut engine, binlog) = open(&directory, an_hour_ago);
        let id = engine.connect(Peer::default(), an_hour_ago);
        for number in 1..=2100 {
            let text = format!("put 0 0 60 1 idp:{number}:60\r\nx\r\ndelete {number}\r\n");
            let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                engine.execute(id, request, an_hour_ago);
                binlog.append(&engine.effects.changes, &engine);
                engine.effects.changes.clear();
            }
            if number % 200 == 0 {
                binlog.flush_and_recycle().unwrap();
            }
        }
        binlog.close().unwrap();
        drop((engine, binlog));

        let shared = shared(&directory);
        let has_keys = || shared.with_lock(|state, _| state.engine.wake_at().is_some());
        assert!(has_keys());
        shared.catch_up();
        assert!(!has_keys());
    }

    /// As if the clock had been set right since the start.
    #[test]
    fn the_systems_clock_is_read_before_a_change_is_appended() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let hour = Shift(3_600_000_000_000);
        let id = connect(&shared);
        shared.with_lock(|state, _| state.engine.outside.clock_shift = hour);
        let shift_after = |text: &str| {
            let mut batch = Batch::default();
            push(&mut batch, text);
            execute(&mut batch, &shared, id);
            shared.with_lock(|state, _| state.engine.outside.clock_shift)
        };
        assert_eq!(shift_after("peek-ready\r\n"), hour);
        let Shift(ahead) = shift_after("put 0 0 60 1\r\nx\r\n");
        assert!(ahead < hour.0 / 2, "{ahead}");
    }

    /// Otherwise very many keys could expire in a time slice with few commands.
    #[test]
    fn keys_that_expire_count_towards_the_time_slice() {
        let mut engine = Engine::new(Config::new(100), Time::default());
        let id = engine.connect(Peer::default(), Time::default());
        for number in 1..=100 {
            let text = format!("put 0 0 60 1 idp:{number}:60\r\nx\r\ndelete {number}\r\n");
            let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                engine.execute(id, request, Time::default());
            }
        }
        engine.effects.steps = 0;
        engine.tick(Time::default() + Seconds(3600));
        assert!(engine.effects.steps >= 100, "{}", engine.effects.steps);
    }

    /// A client whose connection broke before it got DELETED may ask again.
    #[test]
    fn not_found_waits_until_the_delete_of_the_job_is_durable() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let ask = |text: &str| {
            let id = connect(&shared);
            let mut batch = Batch::default();
            push(&mut batch, text);
            assert!(execute(&mut batch, &shared, id) == Next::Post);
            let (replies, needed) = batch.replies();
            (std::mem::take(replies), needed)
        };
        ask("put 0 0 60 1\r\nx\r\n");
        let (first, needed) = ask("delete 1\r\n");
        assert_eq!(first, [Reply::Deleted]);
        assert!(needed.is_some());
        assert_eq!(ask("delete 1\r\n"), (vec![Reply::NotFound], needed));
    }

    #[test]
    fn backpressure_delays_replies_only_while_requests_are_left_to_execute() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let id = connect(&shared);
        let mut batch = Batch::default();
        push(&mut batch, "put 0 0 60 1\r\nx\r\n");
        assert!(execute(&mut batch, &shared, id) == Next::Post);
        batch.replies().0.clear();
        // After CHECK_EVERY requests, a time slice checks whether disk space is short.
        let changes = "reserve-job 1\r\nrelease 1 0 0\r\n".repeat(CHECK_EVERY / 2);
        while !shared.has_binlog_backpressure() {
            push(&mut batch, &changes);
            assert!(execute(&mut batch, &shared, id) == Next::Post);
            assert_eq!(batch.replies().0.drain(..).len(), CHECK_EVERY);
        }
        push(&mut batch, &changes);
        assert!(execute(&mut batch, &shared, id) == Next::Post);
        assert!(!shared.has_binlog_backpressure());
        assert_eq!(batch.replies().0.drain(..).len(), CHECK_EVERY);
    }

    /// Very many may leave at once.
    #[test]
    fn a_client_leaves_when_the_binlog_has_disk_space_for_that() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let (id, holder) = (connect(&shared), connect(&shared));
        let mut batch = Batch::default();
        push(&mut batch, &"put 0 0 60 1\r\nx\r\n".repeat(2));
        assert!(execute(&mut batch, &shared, id) == Next::Post);
        push(&mut batch, "reserve-job 2\r\n");
        assert!(execute(&mut batch, &shared, holder) == Next::Post);
        while !shared.has_binlog_backpressure() {
            push(&mut batch, "reserve-job 1\r\nrelease 1 0 0\r\n");
            assert!(execute(&mut batch, &shared, id) == Next::Post);
        }
        shared.disconnect(holder);
        assert!(!shared.has_binlog_backpressure());
    }

    #[test]
    fn a_batch_takes_64_requests_and_none_after_one_that_may_wait() {
        let mut batch = Batch::default();
        let mut take = |text: &str| {
            let request = Framer::new(100).next(&mut text.as_bytes());
            batch.push(request.expect("a request"))
        };
        for _ in 1..REQUESTS_AT_ONCE {
            assert!(take("peek-ready\r\n"));
        }
        assert!(!take("peek-ready\r\n"));
        assert!(!Batch::default().push(Framer::new(100).next(&mut &b"reserve\r\n"[..]).unwrap()));
    }

    #[test]
    fn requests_that_were_read_together_wait_once_for_clients_that_have_hung_up() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let id = connect(&shared);
        let mut batch = Batch {
            awaits_leavers: true,
            ..Batch::default()
        };
        push(&mut batch, "use a\r\n");
        push(&mut batch, &"peek-ready\r\n".repeat(REQUESTS_AT_ONCE - 1));
        assert!(execute(&mut batch, &shared, id) == Next::AwaitLeavers);
        assert_eq!(batch.replies().0.drain(..).len(), 1);
        assert!(execute(&mut batch, &shared, id) == Next::Post);
        assert_eq!(batch.replies().0.len(), REQUESTS_AT_ONCE - 1);
    }

    #[test]
    fn many_requests_or_the_rest_of_a_long_one_are_a_bulk_batch() {
        let mut batch = Batch::default();
        push(&mut batch, &"peek-ready\r\n".repeat(FEW_REQUESTS));
        assert!(!batch.is_bulk());
        push(&mut batch, "peek-ready\r\n");
        assert!(batch.is_bulk());
        let mut rest = Batch::default();
        rest.push(Request::Continue(Rest::Reserve(Ask::default())));
        assert!(rest.is_bulk());
    }

    /// Where the files of the binlog are short, there is room for the records of a short one.
    #[test]
    fn a_time_slice_ends_after_its_number_of_steps() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        for (most_changes, steps) in [
            (None, SLICE_STEPS),
            (Some(20_000), SLICE_STEPS),
            (Some(8), 8),
        ] {
            let mut batch = Batch::default();
            push(&mut batch, &"peek-ready\r\n".repeat(3));
            shared.with_lock(|state, now| {
                let id = state.engine.connect(Peer::default(), now);
                state.engine.outside.most_changes = most_changes;
                state.engine.effects.steps = steps - 2;
                assert!(batch.execute_slice(&shared, state, id, now) == Next::Continue);
            });
            assert_eq!(*batch.replies().0, [Reply::NotFound, Reply::NotFound]);
        }
    }

    #[test]
    fn a_time_slice_ends_early_when_another_thread_waits_for_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let mut batch = Batch::default();
        push(&mut batch, &"peek-ready\r\n".repeat(2 * CHECK_EVERY));
        std::thread::scope(|scope| {
            shared.with_lock(|state, now| {
                let id = state.engine.connect(Peer::default(), now);
                scope.spawn(|| shared.with_lock(|_, _| ()));
                while !shared.is_awaited() {
                    std::thread::yield_now();
                }
                assert!(batch.execute_slice(&shared, state, id, now) == Next::Continue);
                assert_eq!(batch.replies.len(), CHECK_EVERY);
            });
        });
    }

    /// Lists and statistics may be long: each is sent before the next is encoded.
    #[test]
    fn a_long_reply_is_sent_before_the_next_one_is_encoded() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let id = connect(&shared);
        let replies = |text: &str| {
            let mut batch = Batch::default();
            push(&mut batch, text);
            assert!(execute(&mut batch, &shared, id) == Next::Post);
            batch.replies().0.len()
        };
        replies(&format!("put 0 0 60 90\r\n{}\r\n", "x".repeat(90)));
        let peeks = REQUESTS_AT_ONCE - 1;
        assert_eq!(replies(&"peek 1\r\n".repeat(peeks)), peeks);
        for long in [
            "stats\r\n",
            "stats-job 1\r\n",
            "stats-tube default\r\n",
            "list-tubes\r\n",
            "list-jobs 0 10\r\n",
        ] {
            assert_eq!(replies(&long.repeat(2)), 1, "{long}");
        }
    }

    /// Otherwise a crowd that asks at once would get more than there is memory for.
    #[test]
    fn a_long_reply_counts_as_memory_from_the_moment_at_which_it_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let id = connect(&shared);
        let name = "n".repeat(200);
        let counted = |text: &str| {
            let (mut batch, mut part) = (Batch::default(), MemoryPart::new(&shared.memory, 0));
            push(&mut batch, text);
            batch.execute_slices(&shared, id, &mut part, false);
            let mut text = Vec::new();
            batch
                .replies
                .iter()
                .for_each(|reply| reply.encode(&mut text));
            (part.bytes as usize, text.len())
        };
        for number in 0..64 {
            counted(&format!("watch {number}{}\r\n", &name[2..]));
            counted(&format!("put 0 0 60 90\r\n{}\r\n", "x".repeat(90)));
        }
        counted(&format!("use {name}\r\n"));
        for _ in 0..64 {
            connect(&shared);
        }
        for long in [
            "list-tubes",
            "list-tubes-watched",
            "list-jobs 0 100",
            "list-connections 0 100",
            "list-tube-stats 0 100",
            "reserve-with-stats 0",
        ] {
            let (counted, length) = counted(&format!("{long}\r\n"));
            assert!(counted >= length, "{long}: {counted} for {length}");
        }
        let (counted, length) = counted(&"list-tube-used\r\n".repeat(60));
        assert!(counted >= length, "{counted} for {length}");
    }

    #[test]
    fn few_replies_are_gathered_if_there_is_no_room_for_many() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(&directory);
        let id = connect(&shared);
        let replies = || {
            let (mut batch, mut part) = (Batch::default(), MemoryPart::new(&shared.memory, 0));
            push(&mut batch, &"peek 1\r\n".repeat(REQUESTS_AT_ONCE - 1));
            batch.execute_slices(&shared, id, &mut part, false);
            batch.replies.len()
        };
        let mut batch = Batch::default();
        push(
            &mut batch,
            &format!("put 0 0 60 90\r\n{}\r\n", "x".repeat(90)),
        );
        execute(&mut batch, &shared, id);
        assert_eq!(replies(), REQUESTS_AT_ONCE - 1);
        shared.with_lock(|state, _| {
            state.engine.config.max_memory = Some(state.engine.memory());
        });
        assert!(replies() < 30);
    }
}
