//! Pauses of tubes, over restarts: the engine beside the log, at times of its own. The
//! simulator has the power cuts.

use crate::disk::Disk;
use beanpole::binlog::{Binlog, SyncMode, recovery};
use beanpole::engine::{Config, ConnectionId, Engine, Outcome, Peer, Time};
use beanpole::protocol::{Framer, Reply, Seconds, TubeName};
use std::sync::Arc;

const NOON: Time = Time::from_nanos(1_800_000_000 * 1_000_000_000);

/// A server, and the time of its clock.
struct Server {
    engine: Engine,
    log: Arc<Binlog>,
    client: ConnectionId,
    now: Time,
}

impl Server {
    fn start(disk: &Disk, now: Time) -> Server {
        let config = Config {
            keeps_changes: true,
            ..Config::new(100)
        };
        let mut engine = Engine::new(config, now);
        let storage = Arc::new(disk.clone());
        let opened = recovery::recover(storage, SyncMode::Always, 4096, &mut engine);
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        engine.set_next_id(opened.next_id);
        let client = engine.connect(Peer::default(), now);
        let log = opened.binlog;
        let mut server = Server {
            engine,
            log,
            client,
            now,
        };
        // As the server does before it listens.
        server.say("");
        server
    }

    /// Has a client say this, and commits what it changes. Returns the last reply.
    fn say(&mut self, text: &str) -> Option<Reply> {
        let (mut framer, mut input) = (Framer::new(100), text.as_bytes());
        let mut last = None;
        self.engine.tick(self.now);
        while let Some(request) = framer.next(&mut input) {
            if let Outcome::Reply(reply) = self.engine.execute(self.client, request, self.now) {
                last = Some(reply);
            }
            self.log();
        }
        self.log();
        last
    }

    fn log(&mut self) {
        let changes = std::mem::take(&mut self.engine.effects.changes);
        let lsn = self.log.append(&changes, &self.engine);
        self.log.commit(lsn).unwrap();
        self.log.flush_and_recycle().unwrap();
    }

    /// How long the pause of a tube is, and how much of it is left, in seconds.
    fn pause(&self, tube: &str) -> Option<(u32, u64)> {
        let pause = self.engine.stored_pause(&name(tube))?;
        Some((pause.length.0, pause.until.since(self.now).as_secs()))
    }
}

fn name(tube: &str) -> TubeName {
    TubeName::parse(tube.as_bytes()).unwrap()
}

const PUT: &str = "use mail\r\nput 0 0 60 1\r\nx\r\n";

#[test]
fn a_pause_outlives_a_restart_as_long_as_its_tube() {
    let disk = Disk::default();
    let mut server = Server::start(&disk, NOON);
    server.say(PUT);
    server
        .say("pause-tube mail 100\r\npause-tube default 50\r\nuse empty\r\npause-tube empty 9\r\n");
    let mut server = Server::start(&disk, NOON + Seconds(10));
    let found = ["mail", "default", "empty"].map(|tube| server.pause(tube));
    assert_eq!(found, [Some((100, 90)), Some((50, 40)), None]);
    // Another one replaces it, and 0 ends it.
    server.say("pause-tube mail 7\r\npause-tube default 0\r\n");
    let mut server = Server::start(&disk, NOON + Seconds(11));
    assert_eq!(
        ["mail", "default"].map(|tube| server.pause(tube)),
        [Some((7, 6)), None]
    );
    // With its last job, the tube goes. A tube that comes later is another one.
    server.say("delete 1\r\n");
    server.say(PUT);
    assert_eq!(Server::start(&disk, NOON).pause("mail"), None);
}

/// Otherwise a job that is put there a day later would wait for a pause that nobody sees.
#[test]
fn a_pause_that_a_start_has_not_recovered_never_comes_back() {
    let disk = Disk::default();
    Server::start(&disk, NOON).say("use mail\r\npause-tube mail 100\r\n");
    let mut server = Server::start(&disk, NOON);
    server.say(PUT);
    assert_eq!(server.pause("mail"), None);
    let mut server = Server::start(&disk, NOON);
    assert_eq!(server.pause("mail"), None);
    // A pause of the new tube is recovered.
    server.say("pause-tube mail 7\r\n");
    assert_eq!(Server::start(&disk, NOON).pause("mail"), Some((7, 7)));
}

/// Otherwise it would come back where the clock shows 1970.
#[test]
fn an_end_by_the_clock_is_logged() {
    let disk = Disk::default();
    let mut server = Server::start(&disk, NOON);
    server.say(PUT);
    server.say("pause-tube mail 5\r\npause-tube default 5\r\n");
    server.now = NOON + Seconds(5);
    server.say("");
    let server = Server::start(&disk, Time::default());
    assert_eq!(
        ["mail", "default"].map(|tube| server.pause(tube)),
        [None, None]
    );
}

/// Pauses tubes, and puts so many jobs after each pause, until the disk has no room for more.
/// Returns how many tubes that are.
fn pause_until_it_is_full(server: &mut Server, puts: usize) -> usize {
    let mut tubes = 0;
    while server.log.make_room(300, &|work| work(&server.engine)) {
        tubes += 1;
        server.say(&format!(
            "watch {tubes:0180}\r\npause-tube {tubes:0180} 9\r\n"
        ));
        server.say(&format!("put 0 0 60 100\r\n{:0100}\r\n", 0).repeat(puts));
    }
    tubes
}

/// Also where there was never a job.
#[test]
fn a_full_disk_has_room_for_the_end_of_all_pauses() {
    let disk = Disk::default();
    disk.set_capacity(Some(60 * 4096));
    let mut server = Server::start(&disk, NOON);
    let tubes = pause_until_it_is_full(&mut server, 0);
    disk.set_capacity(Some(disk.used()));
    for tube in 1..=tubes {
        server.say(&format!("ignore {tube:0180}\r\n"));
        while server.log.has_backpressure() {
            server.log.make_up(&|work| work(&server.engine)).unwrap();
        }
    }
    assert_eq!(server.log.stats().live_size, 0);
}

/// Their records may need as much room as all that is live.
#[test]
fn a_full_disk_has_room_for_the_end_of_all_pauses_that_a_start_does_not_recover() {
    for puts in [0, 1] {
        let disk = Disk::default();
        disk.set_capacity(Some(60 * 4096));
        let mut server = Server::start(&disk, NOON);
        let tubes = pause_until_it_is_full(&mut server, puts);
        let jobs = server.engine.job_count();
        assert_eq!(jobs, tubes * puts);
        for _ in 0..2 {
            let mut server = Server::start(&disk, NOON);
            assert_eq!(server.engine.job_count(), jobs);
            server.say(&format!("use {tubes:0180}\r\n"));
            assert_eq!(server.pause(&format!("{tubes:0180}")), None);
            assert!(server.log.stats().live_size < 250 * (jobs as u64 + 1));
        }
    }
}

#[test]
fn no_restart_makes_a_pause_longer() {
    let disk = Disk::default();
    Server::start(&disk, NOON).say("pause-tube default 100\r\n");
    let earlier = Time::from_nanos(NOON.as_nanos() - 86_400_000_000_000);
    assert_eq!(
        Server::start(&disk, earlier).pause("default"),
        Some((100, 100))
    );
    // When the clock is right again, it is as long as it was.
    let later = NOON + Seconds(30);
    assert_eq!(
        Server::start(&disk, later).pause("default"),
        Some((100, 70))
    );
}

#[test]
fn compaction_keeps_each_pause_and_the_files_stay_few() {
    const TUBES: u32 = 300;
    let disk = Disk::default();
    let mut server = Server::start(&disk, NOON);
    for tube in 1..=TUBES {
        server.say(&format!(
            "use tube-{tube}\r\nput 0 0 60 1\r\nx\r\npause-tube tube-{tube} {tube}00\r\n"
        ));
    }
    let begun = server.log.stats().current_index;
    let mut id = u64::from(TUBES);
    while server.log.stats().oldest_index <= begun {
        id += 1;
        let tube = 1 + id % u64::from(TUBES);
        server.say(&format!("put 0 0 60 100\r\n{:0100}\r\ndelete {id}\r\n", 0));
        // Some are replaced, and some end and begin again.
        match id % 5 {
            0 => server.say(&format!("pause-tube tube-{tube} {tube}00\r\n")),
            1 => server.say(&format!(
                "pause-tube tube-{tube} 0\r\npause-tube tube-{tube} {tube}00\r\n"
            )),
            _ => None,
        };
        assert!(id < 20_000, "{:?}", server.log.stats());
    }
    let stats = server.log.stats();
    assert!(stats.size < 2 * stats.live_size + 6 * 4096, "{stats:?}");
    let kept = stats.live_size;
    let server = Server::start(&disk, NOON);
    for tube in 1..=TUBES {
        let left = Some((tube * 100, u64::from(tube) * 100));
        assert_eq!(server.pause(&format!("tube-{tube}")), left);
    }
    // What a restart counts as live is what was counted before.
    assert_eq!(server.log.stats().live_size, kept);
}
