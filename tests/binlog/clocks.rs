//! Jobs over restarts, while the system's clock is set, or while the machine
//! sleeps. The engine's time and the system's clock are told apart here.

use crate::disk::Disk;
use beanpole::binlog::{Binlog, SyncMode, recovery};
use beanpole::engine::{Config, Engine, Outcome, Peer, Shift, StoredState, Time};
use beanpole::protocol::command::Put;
use beanpole::protocol::framing::Request;
use beanpole::protocol::{Body, Command, JobId, Priority, Seconds};
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND as i64;
/// What the system's clock shows when it is right.
const NOON: Time = Time::from_nanos(1_800_000_000 * SECOND);

/// A start of the server at this time.
fn start(disk: &Disk, clock: Time) -> (Engine, Arc<Binlog>) {
    let config = Config {
        keeps_changes: true,
        ..Config::new(100)
    };
    let mut engine = Engine::new(config, clock);
    let disk = Arc::new(disk.clone());
    let recovered = recovery::recover(disk, SyncMode::Always, 4096, &mut engine);
    let opened = recovered.unwrap_or_else(|error| panic!("{error}"));
    (engine, opened.binlog)
}

/// Puts a job with this delay at this time of the engine, while the system's
/// clock is so far ahead of that.
fn put(engine: &mut Engine, log: &Binlog, delay: u32, now: Time, shift: Shift) {
    let client = engine.connect(Peer::default(), now);
    let line = Put {
        priority: Priority(0),
        delay: Seconds(delay),
        ttr: Seconds(60),
        size: 1,
        options: None,
        trailing: false,
    };
    engine.execute(client, Request::Command(Some(0), Command::Put(line)), now);
    let reply = engine.execute(client, Request::Body(Ok(Body::new(b"x"))), now);
    assert!(matches!(reply, Outcome::Reply(_)));
    engine.outside.clock_shift = shift;
    let changes = std::mem::take(&mut engine.effects.changes);
    log.commit(log.append(&changes, engine)).unwrap();
}

/// The age of job 1 and what is left of its delay, at this time.
fn age_and_delay(engine: &Engine, now: Time) -> (u64, u64) {
    let job = engine.stored(JobId(1)).expect("it is kept");
    let delay = match job.fields.state {
        StoredState::Delayed { until } => until.since(now).as_secs(),
        _ => 0,
    };
    (now.since(job.fields.created_at).as_secs(), delay)
}

#[test]
fn a_clock_that_was_wrong_at_the_start_and_then_set_moves_no_delay() {
    // Slow by a day (as after a sleep of a day), fast by ten days, or right.
    for ahead in [DAY, -10 * DAY, 0] {
        let disk = Disk::default();
        let now = NOON + Shift(-ahead);
        let (mut engine, log) = start(&disk, now);
        put(&mut engine, &log, 3600, now, Shift(ahead));
        let later = NOON + Seconds(1);
        let (engine, _) = start(&disk, later);
        assert_eq!(age_and_delay(&engine, later), (1, 3599), "{ahead}");
        assert!(engine.latest_restored <= later);
    }
}

#[test]
fn a_clock_that_went_back_makes_no_delay_longer_than_requested() {
    let disk = Disk::default();
    let (mut engine, log) = start(&disk, NOON);
    put(&mut engine, &log, 3, NOON, Shift::default());
    let year_before = NOON + Shift(-365 * DAY);
    let (engine, _) = start(&disk, year_before);
    assert_eq!(age_and_delay(&engine, year_before), (0, 3));
    assert_eq!(engine.latest_restored, NOON);
    // When the clock is right again, nothing is lost.
    let later = NOON + Seconds(2);
    let (engine, _) = start(&disk, later);
    assert_eq!(age_and_delay(&engine, later), (2, 1));
}

/// A machine without a battery begins in 1970, until the network tells it the time.
#[test]
fn a_job_from_before_the_clock_was_set_is_as_old_as_the_start() {
    let disk = Disk::default();
    let started = Time::from_nanos(60 * SECOND);
    let (mut engine, log) = start(&disk, started);
    put(&mut engine, &log, 3600, started, Shift::default());
    // Without the network, it is the same year again.
    let again = Time::from_nanos(90 * SECOND);
    let (engine, _) = start(&disk, again);
    assert_eq!(age_and_delay(&engine, again), (30, 3570));
    let (engine, _) = start(&disk, NOON);
    assert_eq!(age_and_delay(&engine, NOON), (0, 3600));
}
