//! Clients that come in crowds, or talk without a pause.

use super::target::Target;
use crate::peer::Peer;
use std::io::{self};
use std::thread;
use std::time::Instant;

/// Does this on so many threads. Returns the sum of what they return.
fn all_at_once(
    clients: usize,
    doing: impl Fn(usize) -> io::Result<usize> + Sync,
) -> io::Result<usize> {
    let doing = &doing;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| scope.spawn(move || doing(number)))
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("an attacker does not panic"));
        results.sum()
    })
}

pub fn connections(target: &Target) -> io::Result<String> {
    let each = target.size(2000, 20_000) / 8;
    let count = all_at_once(8, |_| {
        for number in 0..each {
            let mut peer = Peer::connect(target.address)?;
            match number % 4 {
                0 => drop(peer.ask("list-tube-used\r\n")?),
                1 => peer.send("watch somewhere\r\nreserve\r\n")?,
                2 => peer.reset()?,
                _ => {}
            }
        }
        Ok(each)
    })?;
    Ok(format!("{count} connections"))
}

pub fn pipelined_cycles(target: &Target) -> io::Result<String> {
    let until = Instant::now() + target.duration();
    let batch = b"put 0 0 60 8\r\nabcdefgh\r\nreserve\r\n".repeat(200);
    let jobs = all_at_once(target.size(10, 50), |_| {
        let mut peer = Peer::connect(target.address)?;
        peer.ask_all(b"use crowd\r\nwatch crowd\r\nignore default\r\n", 3, "")?;
        let mut jobs = 0;
        while Instant::now() < until {
            peer.send(&batch)?;
            let mut deletes = String::new();
            for _ in 0..400 {
                let (line, _) = peer.reply()?;
                if let Some(id) = line.strip_prefix("RESERVED ") {
                    let id = id.split(' ').next().unwrap_or_default();
                    deletes += &format!("delete {id}\r\n");
                }
            }
            peer.ask_all(deletes.as_bytes(), 200, "DELETED")?;
            jobs += 200;
        }
        Ok(jobs)
    })?;
    Ok(format!("{jobs} jobs"))
}
