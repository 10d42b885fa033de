//! Histories of several steps: the process is killed or its disk fails, another
//! one starts while the kernel lives on, and at last the power fails.

use crate::disk::{Disk, Random, Survival};
use crate::model::{History, Jobs, Server, Traffic};
use beanpole::binlog::{Binlog, SyncMode};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 4096;
const TRAFFIC: Traffic = Traffic {
    longest_body: 900,
    most_jobs: 12,
    long_one_in: 12,
};

/// What has happened since the last start that succeeded.
struct Past {
    history: History,
    /// So many changes were synced, so no power cut may undo them.
    durable: usize,
}

impl Past {
    /// An error if these jobs are not those of some moment at or after the last
    /// change that has to be there.
    fn check(&self, jobs: &Jobs, is_power_cut: bool) -> Result<(), String> {
        let mut history = self.history.clone();
        if is_power_cut {
            history.kept = self.durable;
        }
        let after = if is_power_cut {
            "the power cut"
        } else {
            "a kill"
        };
        match history.explains(jobs) {
            Some(_) => Ok(()),
            None => Err(format!("jobs lost, doubled or wrong after {after}")),
        }
    }
}

/// One process, from its start until it is killed. Some operation of the disk
/// may fail, and the process goes on after that for a while. Returns whether it
/// could start, or what is wrong.
fn live(disk: &Disk, sync: SyncMode, past: &mut Past, random: &mut Random) -> Result<bool, String> {
    let has_fault = random.one_in(2);
    if has_fault {
        let early = random.one_in(3);
        let operation = disk.operations() + 1 + random.below(if early { 40 } else { 400 });
        disk.fail_at(operation, ErrorKind::Other);
    } else if random.one_in(2) {
        disk.stop_after(random.below(400));
    }
    let is_hit = || disk.failed().is_some() || disk.is_stopped();
    let opened = Binlog::open_in(Arc::new(disk.clone()), sync, SIZE, Jobs::new());
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if is_hit() => {
            drop(error);
            return Ok(false);
        }
        Err(error) => return Err(format!("after a kill: {error}")),
    };
    past.check(&opened.jobs, false)?;
    let mut server = Server::new(opened);
    let mut durable = 0;
    let mut left = random.below(60);
    while left > 0 {
        left -= 1;
        let had_failed = server.log.failure().is_some();
        server.command(TRAFFIC, random);
        let appended = server.history.len();
        let is_kept = server.commit();
        if is_kept && had_failed {
            return Err("acknowledged after a failure".into());
        }
        if is_kept && sync == SyncMode::Always {
            durable = appended;
        }
        if let SyncMode::Every(_) = sync {
            server.log.write_soon();
        }
        let is_tended = server.log.work_once().is_ok();
        if let (true, SyncMode::Every(_)) = (is_tended && is_kept, sync) {
            durable = appended;
        }
        if had_failed {
            // Other threads go on for a moment.
            left = left.min(5);
        }
        if let Some(failure) = server.log.failure()
            && !is_hit()
        {
            return Err(format!("it failed by itself: {failure}"));
        }
    }
    if random.one_in(4) && server.log.close().is_ok() {
        durable = server.history.len();
        server.keep_all();
    }
    *past = Past {
        history: server.history,
        durable,
    };
    Ok(true)
}

/// Plays one history. Returns how many processes could start, or what is wrong.
fn play(seed: u64, sync: SyncMode) -> Result<u64, String> {
    let random = &mut Random::new(seed);
    let mut disk = Disk::default();
    let mut past = Past {
        history: History::new(Jobs::new(), 1),
        durable: 0,
    };
    let mut started = 0;
    for _ in 0..1 + random.below(4) {
        started += u64::from(live(&disk, sync, &mut past, random)?);
        let next = disk.state().kill();
        disk = next;
    }
    let survival = match random.one_in(2) {
        true => Survival::Nothing,
        false => Survival::Something,
    };
    let last = disk.state().cut(survival, random);
    let opened = Binlog::open_in(Arc::new(last.clone()), sync, SIZE, Jobs::new());
    let opened = opened.map_err(|error| format!("after the power cut: {error}"))?;
    past.check(&opened.jobs, true)?;
    match opened.next_id.0 >= past.history.first_id() {
        true => Ok(started),
        false => Err(format!("id {} comes again", opened.next_id)),
    }
}

fn play_all(sync: SyncMode) {
    let (mut started, mut wrong) = (0, Vec::new());
    for seed in 1..800 {
        match play(seed, sync) {
            Ok(starts) => started += starts,
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    println!("{started} processes started");
    assert!(
        wrong.is_empty(),
        "{sync:?}: {} wrong: {wrong:#?}",
        wrong.len()
    );
    assert!(started > 1000);
}

#[test]
fn synced_always_no_history_loses_what_was_acknowledged() {
    play_all(SyncMode::Always);
}

#[test]
fn synced_sometimes_no_history_loses_what_was_synced() {
    play_all(SyncMode::Every(Duration::ZERO));
}

#[test]
fn synced_never_each_history_can_go_on() {
    play_all(SyncMode::Never);
}
