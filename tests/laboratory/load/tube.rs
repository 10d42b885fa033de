//! The tube of a run, and the server's numbers about it.

use super::jobs::Ledger;
use super::reply::Reply;
use super::wire::Wire;
use companion::failure::{Failure, Outcome};
use companion::server::address::Address;
use std::time::{Duration, Instant};

/// The tube that the jobs go through.
pub const TUBE: &str = "beanpole-bench";

/// Makes these connections use that tube and watch no other.
pub fn enter(mut wire: Wire) -> Outcome<Wire> {
    let requests = format!("use {TUBE}\r\nwatch {TUBE}\r\nignore default\r\n");
    wire.ask(0..wire.connections(), requests.as_bytes(), 3, |reply| {
        matches!(reply, Reply::Using(_) | Reply::Watching(1 | 2))
    })?;
    Ok(wire)
}

/// The number of this key in the data of `stats`, `stats-job` or `stats-tube`.
pub fn stat(stats: &str, key: &str) -> Outcome<u64> {
    let value = stats
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let value = value.and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| Failure::Refused(format!("no number for {key} in the server's stats")))
}

/// Waits until this many connections wait in `reserve`.
pub fn wait_for_waiters(control: &mut Wire, waiters: usize) -> Outcome<()> {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = control.ask_data(&format!("stats-tube {TUBE}"))?;
        let waiting = stat(&stats, "current-waiting")?;
        if waiting == waiters as u64 {
            return Ok(());
        }
        if Instant::now() > give_up {
            let what = format!("{waiting} of {waiters} connections wait in reserve after 60 s");
            return Failure::refused(what);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Deletes the jobs that a run has left on a server.
pub fn clean_up(address: &Address, patience: Duration, ledger: &Ledger) -> Outcome<()> {
    let mut wire = Wire::connect(address, 1, patience)?;
    let left: Vec<u64> = ledger.left().collect();
    for batch in left.chunks(1000) {
        let delete = |&job: &u64| format!("delete {}\r\n", ledger.id(job));
        let requests: String = batch.iter().map(delete).collect();
        let deleted = |reply: Reply<'_>| reply == Reply::Deleted;
        wire.ask(0..1, requests.as_bytes(), batch.len(), deleted)?;
    }
    Ok(())
}
