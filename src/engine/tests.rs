//! Tests with very many tubes, jobs or waiting clients: no call takes long, and
//! clients are served in the right order.

use super::connection::MAX_WATCHED;
use super::*;
use crate::protocol::{Framer, Request, Seconds};

/// An engine whose time does not advance.
struct Bench(Engine);

impl Bench {
    fn new() -> Bench {
        Bench(Engine::new(Config::new(100), Time::default()))
    }

    fn connect(&mut self) -> ConnectionId {
        self.0.connect(Peer::default(), Time::default())
    }

    /// A connection that watches this many tubes beside `default`: `0`, `1`
    /// and so on.
    fn watching(&mut self, count: usize) -> ConnectionId {
        let id = self.connect();
        (0..count).for_each(|tube| drop(self.ask(id, &format!("watch {tube}\r\n"))));
        id
    }

    fn put(&mut self, id: ConnectionId, tube: usize, put: &str) {
        self.ask(id, &format!("use {tube}\r\nput {put}\r\n\r\n"));
    }

    /// The outcome of the last of these requests, and the steps of the
    /// longest call.
    fn ask(&mut self, id: ConnectionId, text: &str) -> (Outcome, usize) {
        self.ask_at(id, text, Time::default())
    }

    fn ask_at(&mut self, id: ConnectionId, text: &str, now: Time) -> (Outcome, usize) {
        let mut framer = Framer::new(100);
        let (mut outcome, mut longest) = (Outcome::Quit, 0);
        let mut input = text.as_bytes();
        while let Some(mut request) = framer.next(&mut input) {
            loop {
                self.0.effects.steps = 0;
                outcome = self.0.execute(id, request, now);
                longest = longest.max(self.0.effects.steps);
                let Outcome::Unfinished(rest) = outcome else {
                    break;
                };
                request = Request::Continue(rest);
            }
        }
        (outcome, longest)
    }

    /// Ticks until nothing is due. Returns how often, and the steps of the
    /// longest call.
    fn tick(&mut self, now: Time) -> (usize, usize) {
        let (mut ticks, mut longest) = (0, 0);
        while self.0.wake_at().is_some_and(|at| at <= now) {
            self.0.effects.steps = 0;
            self.0.tick(now);
            longest = longest.max(self.0.effects.steps);
            ticks += 1;
        }
        (ticks, longest)
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

fn reply(reply: Reply) -> Outcome {
    Outcome::Reply(reply)
}

#[test]
fn a_command_costs_a_step_for_each_job_and_tube_that_it_examines() {
    let mut bench = Bench::new();
    let [few, many] = [9, 1600].map(|count| bench.watching(count));
    let other = bench.connect();
    for (id, text, steps) in [
        (other, "use 5\r\n", 1),
        // Copying a name costs little.
        (other, "list-tubes\r\n", 1 + 1601 / 16),
        (few, "list-tubes-watched\r\n", 11),
        (few, "reserve-with-timeout 0\r\n", 11),
        (many, "reserve-with-timeout 0\r\n", 1602),
        (other, "stats-tube 5\r\n", 1),
        (other, "put 0 0 60 0\r\n\r\n", 1),
        (other, "put 0 0 60 0 con:a\r\n\r\n", 1),
        (other, "put 0 0 60 0 con:a\r\n\r\n", 1),
        (other, "list-jobs 0 2\r\n", 3),
        (few, "reserve\r\n", 12),
        // The other job with its key has to wait.
        (few, "reserve\r\n", 13),
        (few, "delete 1\r\n", 2),
        (few, "delete 2\r\n", 3),
        (few, "delete 3\r\n", 2),
        // It waits in the queues of ten tubes, and leaves them again.
        (few, "reserve\r\n", 21),
        (other, "put 0 0 60 0\r\n\r\n", 23),
        (many, "reserve\r\n", 3203),
        (other, "put 0 0 60 0\r\n\r\n", 3205),
    ] {
        assert_eq!(bench.ask(id, text).1, steps, "{text}");
    }
    assert_eq!(bench.given(), [(few, 4), (many, 5)]);
}

#[test]
fn waiting_clients_get_the_best_of_the_jobs_whose_delays_end_together() {
    let mut bench = Bench::new();
    let waiting = [3, 40, 50].map(|count| bench.watching(count));
    let other = bench.connect();
    for (tube, priority) in [(2, 9), (45, 0), (30, 5), (1, 7)] {
        bench.put(other, tube, &format!("{priority} 1 60 0"));
    }
    for id in waiting {
        assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
    }
    bench.tick(Time::default() + Seconds(2));
    let [few, many, more] = waiting;
    assert_eq!(bench.given(), [(few, 4), (many, 3), (more, 2)]);
}

/// 500 clients wait in 500 tubes each, and a job becomes ready in each tube.
#[test]
fn very_many_waiting_clients_are_served_in_slices_and_in_order() {
    let mut bench = Bench::new();
    let waiting: Vec<_> = (0..500).map(|_| bench.watching(500)).collect();
    let late = bench.watching(500);
    let other = bench.connect();
    (0..500).for_each(|tube| bench.put(other, tube, "0 1 60 0"));
    for &id in &waiting {
        assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
    }
    let now = Time::default() + Seconds(1);
    // The first call does what is due; a put and a reserve come meanwhile.
    let (outcome, put) = bench.ask_at(other, "use 7\r\nput 9 0 60 0\r\n\r\n", now);
    assert_eq!(outcome, reply(Reply::Inserted(JobId(501))));
    assert!((1..100).contains(&bench.0.effects.replies.len()));
    // A client that comes later does not overtake those that wait.
    let (outcome, reserve) = bench.ask_at(late, "reserve\r\n", now);
    let Outcome::Reply(Reply::Reserved(JobId(501), _)) = outcome else {
        panic!("{outcome:?}");
    };
    for longest in [put, reserve] {
        assert!(longest < 5 * SLICE, "{longest} steps");
    }
    let expected: Vec<_> = waiting.into_iter().zip(1..).collect();
    assert_eq!(bench.given(), expected);
}

/// As of a log with short files.
#[test]
fn a_slice_has_no_more_changes_than_the_caller_has_room_for() {
    let mut bench = Bench::new();
    let worker = bench.connect();
    (0..10).for_each(|_| bench.put(worker, 1, "0 1 60 0"));
    bench.0.outside.most_changes = Some(4);
    let is_ready = |engine: &Engine, id| {
        let job = engine.stored(JobId(id)).expect("it is there");
        matches!(job.fields.state, StoredState::Ready)
    };
    let now = Time::default() + Seconds(1);
    for ready in [4, 8, 10] {
        assert!(bench.0.tick(now));
        let found = (1..=10).filter(|&id| is_ready(&bench.0, id));
        assert_eq!(found.count(), ready);
    }
}

/// Each of 1,000 tubes has a job of each key.
#[test]
fn a_client_with_jobs_of_many_limits_leaves_in_slices() {
    let mut bench = Bench::new();
    let (holder, other) = (bench.watching(1000), bench.connect());
    for key in 0..10 {
        let put = format!("0 0 60 0 con:{key}");
        (0..1000).for_each(|tube| bench.put(other, tube, &put));
        bench.ask(holder, "reserve\r\n");
    }
    let mut is_over = false;
    while !is_over {
        bench.0.effects.steps = 0;
        is_over = bench.0.disconnect(holder, Time::default());
        let steps = bench.0.effects.steps;
        assert!(steps < 4 * SLICE, "{steps} steps");
    }
}

/// So many records fit into what a full disk has for a slice.
#[test]
fn changes_whose_records_have_long_names_are_made_in_shorter_slices() {
    let (mut bench, after) = (Bench::new(), Time::default() + Seconds(1));
    bench.0.config.keeps_changes = true;
    bench.0.outside.most_changes = Some(100);
    let id = bench.connect();
    for number in 0..100 {
        let put = format!("put 0 0 60 0 exp:1 idp:{number:0100}:9\r\n\r\n");
        let pause = format!("watch {number:0200}\r\npause-tube {number:0200} 9\r\n");
        bench.ask(id, &format!("use default\r\n{put}{pause}"));
    }
    let changes = |bench: &mut Bench| bench.0.effects.changes.drain(..).len();
    changes(&mut bench);
    assert!(bench.0.tick(after));
    assert!((30..60).contains(&changes(&mut bench)));
    bench.tick(after);
    changes(&mut bench);
    assert!(!bench.0.disconnect(id, after));
    assert!((20..40).contains(&changes(&mut bench)));
}

/// Each of 1,000 tubes has a job of the one key, and very many clients wait.
#[test]
fn a_limit_with_room_again_does_not_cost_a_step_for_each_tube_and_client() {
    let mut bench = Bench::new();
    let other = bench.connect();
    (0..1000).for_each(|tube| bench.put(other, tube, "0 0 60 0 con:key"));
    let holder = bench.watching(1000);
    let (_, longest) = bench.ask(holder, "reserve\r\n");
    assert!(longest < 3 * SLICE, "{longest} steps");
    let waiting: Vec<_> = (0..3000).map(|_| bench.watching(17)).collect();
    for &id in &waiting {
        assert_eq!(bench.ask(id, "reserve\r\n").0, Outcome::Waiting);
    }
    let (_, longest) = bench.ask(holder, "use 3\r\nput 5 0 60 0 con:key:2\r\n\r\n");
    assert!(longest < 4 * SLICE, "{longest} steps");
    bench.tick(Time::default());
    assert_eq!(bench.given(), [(waiting[0], 2)]);
    let (_, longest) = bench.ask(holder, "delete 1\r\n");
    assert!(longest < 4 * SLICE, "{longest} steps");
    bench.tick(Time::default());
    assert_eq!(bench.given(), [(waiting[1], 3)]);
}

#[test]
fn jobs_with_one_limit_may_be_in_a_thousand_tubes_and_a_put_into_one_more_is_refused() {
    let mut bench = Bench::new();
    let id = bench.connect();
    (0..1000).for_each(|tube| bench.put(id, tube, "0 0 60 0 con:key"));
    let put = "put 0 0 60 0 con:key\r\n\r\n";
    let refused = reply(Reply::OutOfMemory);
    assert_eq!(bench.ask(id, &format!("use 1000\r\n{put}")).0, refused);
    let again = bench.ask(id, &format!("use 7\r\n{put}")).0;
    assert_eq!(again, reply(Reply::Inserted(JobId(1002))));
    bench.ask(id, "delete 1\r\n");
    let again = bench.ask(id, &format!("use 1000\r\n{put}")).0;
    assert_eq!(again, reply(Reply::Inserted(JobId(1003))));
}

#[test]
fn a_connection_may_watch_ten_thousand_tubes() {
    let mut bench = Bench::new();
    let id = bench.watching(MAX_WATCHED - 1);
    let again = bench.ask(id, "watch 77\r\n").0;
    assert_eq!(again, reply(Reply::Watching(MAX_WATCHED)));
    let refused = reply(Reply::OutOfMemory);
    assert_eq!(bench.ask(id, "watch one-more\r\n").0, refused);
    bench.ask(id, "ignore 77\r\n");
    let again = bench.ask(id, "watch one-more\r\n").0;
    assert_eq!(again, reply(Reply::Watching(MAX_WATCHED)));
    // The memory of the list is freed.
    (0..MAX_WATCHED).for_each(|tube| drop(bench.ask(id, &format!("ignore {tube}\r\n"))));
    let index = bench.0.find(id).expect("it is connected");
    assert!(bench.0.connections[index].watched.capacity() < 10);
}

/// However it came to that, it is no reason to end the server.
#[test]
fn a_request_of_a_connection_that_is_not_there_closes_it() {
    let mut bench = Bench::new();
    let id = bench.connect();
    assert!(bench.0.disconnect(id, Time::default()));
    assert_eq!(bench.ask(id, "peek-ready\r\n").0, Outcome::Quit);
    assert_eq!(bench.ask(id, "put 0 0 60 0\r\n\r\n").0, Outcome::Quit);
    assert!(!bench.0.body_becomes_job(id));
}

/// It answers in which state that job is.
#[test]
fn a_put_with_a_taken_key_depends_on_clients_that_leave_if_another_one_holds_the_job() {
    let mut bench = Bench::new();
    let [holder, other] = [(); 2].map(|()| bench.connect());
    let line = "put 0 0 60 0 idp:a\r\n";
    bench.ask(holder, &format!("{line}\r\n"));
    for (command, depends) in [("", false), ("reserve\r\n", true)] {
        bench.ask(holder, command);
        for (id, depends) in [(holder, false), (other, depends)] {
            bench.ask(id, line);
            let body = Request::Body(Ok(Body::new(b"")));
            assert_eq!(bench.0.depends_on_leavers(id, &body), depends);
            bench.0.execute(id, body, Time::default());
        }
    }
}

#[test]
fn commands_of_workers_are_never_refused_for_memory() {
    let mut bench = Bench::new();
    let producer = bench.connect();
    (0..300).for_each(|tube| bench.put(producer, tube, "0 0 60 0"));
    bench.0.config.max_memory = Some(bench.0.memory());
    let worker = bench.connect();
    let refused = reply(Reply::OutOfMemory);
    assert_eq!(bench.ask(producer, "put 0 0 60 0\r\n\r\n").0, refused);
    assert_eq!(bench.ask(worker, "watch new\r\n").0, refused);
    for tube in 0..100 {
        let outcome = bench.ask(worker, &format!("watch {tube}\r\n")).0;
        assert_eq!(outcome, reply(Reply::Watching(tube + 2)));
    }
    assert_eq!(bench.ask(worker, "watch 100\r\n").0, refused);
    for id in 1..=100 {
        let outcome = bench.ask(worker, "reserve\r\n").0;
        assert!(matches!(outcome, Outcome::Reply(Reply::Reserved(JobId(job), _)) if job == id));
    }
    let text = "bury 2 0\r\nrelease 3 0 9\r\ntouch 4\r\nkick-job 2\r\nkick-job 3\r\n";
    assert_eq!(bench.ask(worker, text).0, reply(Reply::Kicked));
    (1..=100).for_each(|id| drop(bench.ask(worker, &format!("delete {id}\r\n"))));
    let outcome = bench.ask(producer, "put 0 0 60 0\r\n\r\n").0;
    assert!(matches!(outcome, Outcome::Reply(Reply::Inserted(_))));
}

/// A client that reads part after part sees everything, however full the memory is.
#[test]
fn with_little_memory_lists_are_shorter_and_have_at_least_one_item() {
    const LIMIT: u64 = 1_000_000;
    let mut bench = Bench::new();
    bench.0.config.max_memory = Some(LIMIT);
    let producer = bench.connect();
    (0..20).for_each(|tube| bench.put(producer, tube, "0 0 60 0"));
    let ids: Vec<_> = (0..20).map(|_| bench.connect()).collect();
    let mut items = |room: Option<u64>, command: &str| {
        // The rest is taken by what clients hold.
        let all = LIMIT + LIMIT / 16;
        bench.0.outside.memory = room.map_or(0, |room| all - bench.0.memory() - room);
        let (mut counts, mut from) = (Vec::new(), 0);
        loop {
            let reply = match bench.ask(ids[0], &format!("{command} {from} 100\r\n")).0 {
                Outcome::Reply(reply) => reply,
                other => panic!("{other:?}"),
            };
            let mut text = Vec::new();
            reply.encode(&mut text);
            let text = String::from_utf8(text).unwrap();
            counts.push(text.matches("\n- {").count());
            let (_, next) = text.trim_end().rsplit_once("\nnext: ").unwrap();
            from = next.parse::<u64>().unwrap();
            if from == 0 {
                return counts;
            }
        }
    };
    for (command, count) in [
        ("list-jobs", 20),
        ("list-connections", 21),
        ("list-tube-stats", 21),
    ] {
        assert_eq!(items(None, command), [count], "{command}");
        assert_eq!(items(Some(100_000), command), [count], "{command}");
        let some = items(Some(20_000), command);
        assert!(some[0] > 1 && some[0] < 10, "{command}: {some:?}");
        assert_eq!(some.iter().sum::<usize>(), count, "{command}: {some:?}");
        assert_eq!(items(Some(0), command), vec![1; count], "{command}");
    }
}

/// A key may be taken for a year after its job is deleted.
#[test]
fn unique_keys_take_at_most_a_quarter_of_the_memory() {
    let mut bench = Bench::new();
    let id = bench.connect();
    bench.0.config.max_memory = Some(100_000);
    let put = |number| format!("put 0 0 60 0 idp:{number}:31536000\r\n\r\n");
    let mut taken = Vec::new();
    while let Outcome::Reply(Reply::Inserted(job)) = bench.ask(id, &put(taken.len())).0 {
        taken.push(job.0);
        if taken.len() % 2 == 0 {
            bench.ask(id, &format!("delete {job}\r\n"));
        }
    }
    assert_eq!(taken.len(), 25_000 / 409);
    assert_eq!(bench.0.job_count(), taken.len().div_ceil(2));
    let refused = reply(Reply::OutOfMemory);
    assert_eq!(bench.ask(id, &put(taken.len())).0, refused);
    // One whose key is taken is answered as ever, and others go on.
    let known = bench.ask(id, &put(1)).0;
    assert_eq!(known, reply(Reply::InsertedBefore(JobId(2), None, None)));
    let other = bench.ask(id, "put 0 0 60 0 con:a\r\n\r\n").0;
    assert!(matches!(other, Outcome::Reply(Reply::Inserted(_))));
    // A delete is never refused, and leaves its key taken.
    assert_eq!(bench.ask(id, "delete 1\r\n").0, reply(Reply::Deleted));
    assert_eq!(bench.ask(id, &put(taken.len())).0, refused);
    // In a year there is room again.
    bench.0.tick(Time::default() + Seconds(31_536_000));
    let later = bench.ask(id, &put(0)).0;
    assert!(matches!(later, Outcome::Reply(Reply::Inserted(_))));
}
