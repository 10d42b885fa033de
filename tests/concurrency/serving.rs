//! The server in each order: sockets are handed over, jobs put, waited for and
//! given, and it stops in the middle of that.

use crate::binlog::{Binlog, Opened, SyncMode};
use crate::disk::Disk;
use crate::server::shared::Shared;
use crate::server::workers::Workers;
use crate::server::{Clock, Limits, Peer, Stream, timer};
use crate::sync::{is_taken, let_another_take_the_lock, thread};
use beanpole::engine::{Config, Engine};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(1);

/// A server, and who accepts connections there.
struct Running {
    shared: Arc<Shared>,
    workers: Workers,
    timer: shuttle::thread::JoinHandle<()>,
    disk: Arc<Disk>,
}

impl Running {
    fn start(sync: Option<SyncMode>) -> Running {
        Running::start_for(10, sync)
    }

    /// A server for so many clients at a time.
    fn start_for(max_connections: usize, sync: Option<SyncMode>) -> Running {
        Running::start_on(Disk::default(), max_connections, sync)
    }

    fn start_on(disk: Disk, max_connections: usize, sync: Option<SyncMode>) -> Running {
        let clock = Clock::start();
        let disk = Arc::new(disk);
        let binlog = sync.map(|sync| open(&disk, sync));
        let config = Config {
            max_job_size: 100,
            max_memory: None,
            keeps_changes: binlog.is_some(),
        };
        let limits = Limits {
            max_job_size: 100,
            max_connections,
            max_connections_per_address: None,
            idle_timeout: None,
        };
        let engine = Engine::new(config, clock.now());
        let shared = Shared::new(engine, binlog, clock, limits).expect("memory");
        let shared = Arc::new(shared);
        let timing = shared.clone();
        let timer = thread::spawn(move || timer::run(&timing));
        let known = shared.timer.set(timer.thread().clone());
        known.expect("there is one timer");
        Running {
            workers: Workers::new(shared.clone()),
            shared,
            timer,
            disk,
        }
    }

    fn connect(&self) -> Peer {
        let (stream, peer) = Stream::pair(1000);
        let client = self.shared.connect(stream, None);
        let client = client.ok().expect("there is room");
        self.shared.hangups.watch(&client).expect("memory");
        self.workers.hand_over(&client).expect("a thread");
        peer
    }

    /// As the server does it, but for giving up those who do not end.
    fn stop(self) -> Arc<Disk> {
        drop(self.workers);
        self.shared.stop();
        while self.shared.await_emptiness(GRACE) > 0 {}
        self.timer.join().unwrap();
        if let Some(binlog) = &self.shared.binlog {
            assert_eq!(binlog.close().is_err(), is_taken());
        }
        self.disk
    }
}

fn open(disk: &Arc<Disk>, sync: SyncMode) -> Arc<Binlog> {
    let opened = Binlog::open_in(disk.clone(), sync, 4096, BTreeMap::new());
    let Opened { binlog, .. } = opened.expect("nothing is wrong with it");
    binlog.spawn_threads(|_| ()).expect("threads");
    binlog
}

/// Clients come and go, and workers linger or not.
pub fn each_socket_gets_a_worker() {
    let server = Running::start(None);
    for count in [2, 1] {
        let peers: Vec<Peer> = (0..count).map(|_| server.connect()).collect();
        for peer in peers {
            peer.send("list-tube-used\r\nquit\r\n");
            assert_eq!(peer.receive(2), "USING default\r\n");
        }
    }
    server.stop();
}

/// One client leaves, and the next one comes: it finds the job that the first
/// one held, also where there is room for one client only. No more workers are
/// started than there may be clients.
pub fn what_a_client_held_is_free_for_the_next(most: usize) {
    let server = Running::start_for(most, None);
    let first = server.connect();
    first.send("put 0 0 1000000 5\r\nfirst\r\nreserve\r\n");
    first.receive(3);
    first.leave();
    let next = server.connect();
    next.send("peek-ready\r\n");
    assert_eq!(next.receive(2), "FOUND 1 5\r\nfirst\r\n");
    next.leave();
    for _ in 0..2 {
        server.connect().leave();
    }
    let workers = server.shared.with_lock(|state, _| state.workers);
    assert!(workers <= most as u64, "{workers} workers");
    server.stop();
}

/// Two wait while one puts; with a log nothing is told to anybody that is not
/// kept.
pub fn who_waits_gets_the_job(sync: Option<SyncMode>) {
    let server = Running::start(sync);
    let workers = [server.connect(), server.connect()];
    let producer = server.connect();
    let disk = server.disk.clone();
    let is_kept = move |body: &[u8]| match sync {
        None => true,
        Some(SyncMode::Always) => disk.keeps(body),
        Some(_) => disk.has(body),
    };
    let (asking, is_kept_too) = (workers.clone(), is_kept.clone());
    let asking = thread::spawn(move || {
        asking.iter().for_each(|peer| peer.send("reserve\r\n"));
        asking.map(|peer| {
            let given = peer.receive(2);
            let body = given.lines().last().expect("a body");
            assert!(is_kept_too(body.as_bytes()), "{body} is given, not kept");
            given
        })
    });
    producer.send("put 0 0 1000000 5\r\nfirst\r\nput 0 0 1000000 6\r\nsecond\r\n");
    assert_eq!(producer.receive(2), "INSERTED 1\r\nINSERTED 2\r\n");
    assert!(is_kept(b"first") && is_kept(b"second"));
    let mut given = asking.join().unwrap();
    given.sort();
    assert_eq!(
        given,
        ["RESERVED 1 5\r\nfirst\r\n", "RESERVED 2 6\r\nsecond\r\n"]
    );
    workers.iter().for_each(Peer::leave);
    producer.leave();
    server.stop();
}

/// Of two jobs with a limit of one at a time, in two tubes, one is reserved. A
/// client that waits in the other tube gets the other job when the place is
/// free, whether by a delete or because the worker leaves.
pub fn who_waits_gets_the_job_of_a_limit(is_deleted: bool) {
    let server = Running::start(None);
    let [worker, waiting, producer] = [(); 3].map(|()| server.connect());
    producer.send("put 0 0 1000000 5 con:a\r\nfirst\r\n");
    producer.send("use other\r\nput 0 0 1000000 6 con:a\r\nsecond\r\n");
    producer.receive(3);
    worker.send("reserve\r\n");
    assert_eq!(worker.receive(2), "RESERVED 1 5\r\nfirst\r\n");
    let asking = waiting.clone();
    let asking = thread::spawn(move || {
        asking.send("watch other\r\nignore default\r\nreserve\r\n");
        asking.receive(4)
    });
    match is_deleted {
        true => worker.send("delete 1\r\n"),
        false => worker.leave(),
    }
    let given = asking.join().unwrap();
    assert_eq!(
        given,
        "WATCHING 2\r\nWATCHING 1\r\nRESERVED 2 6\r\nsecond\r\n"
    );
    for peer in [waiting, producer] {
        peer.leave();
    }
    if is_deleted {
        worker.leave();
    }
    server.stop();
}

/// One sends commands one after the other without waiting for replies, while
/// another one has the log written as well: each reply comes in its turn.
pub fn replies_come_in_their_turn() {
    let server = Running::start(Some(SyncMode::Always));
    let [hasty, other] = [(); 2].map(|()| server.connect());
    other.send("put 0 0 1000000 5\r\nother\r\n");
    hasty.send("put 0 0 1000000 5\r\nfirst\r\n");
    hasty.send("put 0 0 1000000 6\r\nsecond\r\n");
    hasty.send("list-tube-used\r\n");
    let told = hasty.receive(3);
    let may_be_told = [[1, 2], [1, 3], [2, 3]].map(|[first, second]| {
        format!("INSERTED {first}\r\nINSERTED {second}\r\nUSING default\r\n")
    });
    assert!(may_be_told.contains(&told), "{told}");
    [hasty, other].iter().for_each(Peer::leave);
    server.stop();
}

/// One works on a job, one waits, one puts another job while the server stops:
/// nobody else is given the first one, and what was told is kept.
pub fn a_stop_hands_nothing_on(sync: Option<SyncMode>) {
    let server = Running::start(sync);
    let [worker, waiting, producer] = [(); 3].map(|()| server.connect());
    producer.send("put 0 0 1000000 5\r\nfirst\r\n");
    producer.receive(1);
    worker.send("reserve\r\n");
    assert_eq!(worker.receive(2), "RESERVED 1 5\r\nfirst\r\n");
    let (asking, putting) = (waiting.clone(), producer.clone());
    let asking = thread::spawn(move || asking.send("reserve\r\n"));
    let putting = thread::spawn(move || putting.send("put 0 0 1000000 6\r\nsecond\r\n"));
    let disk = server.stop();
    asking.join().unwrap();
    putting.join().unwrap();
    let given = waiting.receive(9);
    let may_be_given = ["", "RESERVED 2 6\r\nsecond\r\n"];
    assert!(may_be_given.contains(&&*given), "{given}");
    let told = producer.receive(9);
    let is_told = told == "INSERTED 1\r\nINSERTED 2\r\n";
    assert!(is_told || told == "INSERTED 1\r\n", "{told}");
    if sync.is_some() {
        assert!(disk.keeps(b"first"));
        assert!(disk.keeps(b"second") || !is_told && given.is_empty());
    }
}

/// One reserves, one waits for a moment, one puts a job for that one.
/// Meanwhile the server stands still, and another machine takes the lock: the
/// sockets notice if anything is told of jobs after that.
pub fn who_has_lost_the_lock_tells_nothing() {
    let_another_take_the_lock(false);
    let server = Running::start_on(Disk::shared(), 10, Some(SyncMode::Always));
    let [producer, hasty, patient] = [(); 3].map(|()| server.connect());
    producer.send("put 0 0 1000000 5\r\nfirst\r\n");
    assert_eq!(producer.receive(1), "INSERTED 1\r\n");
    patient.send("watch other\r\nignore default\r\nreserve-with-timeout 1\r\n");
    patient.receive(2);
    let other = thread::spawn(|| let_another_take_the_lock(true));
    hasty.send("reserve\r\n");
    producer.send("use other\r\nput 0 0 1000000 6\r\nsecond\r\nstats-job 1\r\n");
    other.join().unwrap();
    let told = producer.receive(4);
    assert!(
        told.contains("INSERTED 2") || !told.contains("OK"),
        "{told}"
    );
    for peer in [&producer, &hasty, &patient] {
        peer.leave();
    }
    server.stop();
    let_another_take_the_lock(false);
}
