//! Clients that make the server hold much: tubes, jobs, or replies that nobody
//! reads.

use super::rude::connect;
use super::target::Target;
use crate::peer::Peer;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many commands are sent together, if all of them are answered.
const BATCH: usize = 500;

/// Sends the commands of these numbers, in batches. All replies must begin so.
fn each(
    peer: &mut Peer,
    numbers: std::ops::Range<usize>,
    word: &str,
    command: impl Fn(usize) -> String,
) -> io::Result<()> {
    for first in numbers.clone().step_by(BATCH) {
        let batch = first..numbers.end.min(first + BATCH);
        let commands: String = batch.clone().map(&command).collect();
        peer.ask_all(commands.as_bytes(), batch.len(), word)?;
    }
    Ok(())
}

/// Reserves and deletes jobs until none is left. Returns how many there were.
fn drain(peer: &mut Peer) -> io::Result<usize> {
    for count in 0.. {
        let reply = peer.ask("reserve-with-timeout 0\r\n")?;
        let Some(id) = reply.strip_prefix("RESERVED ") else {
            return Ok(count);
        };
        let id = id.split(' ').next().unwrap_or_default();
        let deleted = peer.ask(format!("delete {id}\r\n"))?;
        if deleted != "DELETED" {
            return Err(io::Error::other(format!("`{deleted}` to delete {id}")));
        }
    }
    unreachable!("a range without an end")
}

pub fn unread_jobs(target: &Target) -> io::Result<String> {
    let (clients, bodies) = (target.size(30, 100), 100);
    let mut producer = Peer::connect(target.address)?;
    producer.ask("use unread\r\n")?;
    let body = "x".repeat(60_000);
    let mut peers = connect(target, clients)?;
    let mut held = 0;
    for peer in &mut peers {
        let mut ids = Vec::new();
        for _ in 0..bodies {
            let reply = producer.ask(format!("put 0 0 60 60000\r\n{body}\r\n"))?;
            match reply.strip_prefix("INSERTED ") {
                Some(id) => ids.push(id.to_string()),
                // The limit of memory works.
                None if reply == "OUT_OF_MEMORY" => break,
                None => return Err(io::Error::other(format!("`{reply}` to a put"))),
            }
        }
        let peeks: String = ids.iter().map(|id| format!("peek {id}\r\n")).collect();
        peer.press(peeks.as_bytes(), Instant::now() + Duration::from_secs(1))?;
        held += ids.len();
        // When the first reply has come, all of them are on their way.
        if !ids.is_empty() {
            peer.stream.peek(&mut [0; 1])?;
        }
        for id in &ids {
            producer.ask(format!("delete {id}\r\n"))?;
        }
    }
    sleep(target.duration());
    Ok(format!("{} kB of bodies peeked at", held * 60))
}

/// How much memory a silent connection may take, in bytes: the manual's figure,
/// and a share of the gaps between the pieces of memory that others use.
const SILENT: u64 = 12_000 + 4_000;

/// Lets each of many clients do something, and then nothing. Whatever it did, a
/// silent client may take no more memory than the manual says.
fn silent_after(
    target: &Target,
    clients: usize,
    doing: impl Fn(&mut Peer) -> io::Result<()>,
) -> io::Result<String> {
    let before = super::gauge::Held::by(target.pid).unwrap_or_default();
    let mut peers = connect(target, clients)?;
    for peer in &mut peers {
        doing(peer)?;
    }
    // The last clients must be silent for a while as well, and the server gives
    // memory back late.
    let most = clients as u64 * SILENT;
    let calm = super::gauge::Held {
        memory: before.memory + most,
        threads: u64::MAX,
        descriptors: u64::MAX,
    };
    let until = Instant::now() + Duration::from_secs(20);
    let held = super::gauge::Held::once_calm(target.pid, calm, until).unwrap_or_default();
    let grown = held.memory.saturating_sub(before.memory);
    let said = format!("{} bytes for each while silent", grown / clients as u64);
    match grown <= most {
        true => Ok(said),
        false => Err(io::Error::other(said)),
    }
}

pub fn silent_after_all_sizes(target: &Target) -> io::Result<String> {
    silent_after(target, target.size(200, 500), |peer| {
        peer.ask_all(b"use sizes\r\nwatch sizes\r\nignore default\r\n", 3, "")?;
        for size in (0..1000).step_by(16) {
            put_and_delete(peer, size, 8)?;
        }
        Ok(())
    })
}

/// Puts so many jobs of this size together, and then deletes them together.
fn put_and_delete(peer: &mut Peer, size: usize, count: usize) -> io::Result<()> {
    let body = "x".repeat(size);
    let puts = format!("put 0 0 60 {size}\r\n{body}\r\n").repeat(count);
    peer.ask_all(puts.as_bytes(), count, "INSERTED")?;
    delete_all(peer, count)
}

/// Watches so many tubes, or as many as the server makes in a minute. On a
/// server that needs more time for each further tube, all of them would take
/// hours.
fn watch_tubes(peer: &mut Peer, tubes: usize) -> io::Result<usize> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut made = 0;
    while made < tubes && Instant::now() < until {
        let next = tubes.min(made + BATCH);
        each(peer, made..next, "WATCHING", |number| {
            format!("watch tube-{number}\r\n")
        })?;
        made = next;
    }
    Ok(made)
}

pub fn tubes(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    let tubes = watch_tubes(&mut peer, target.size(9000, 9900))?;
    let mut reader = Peer::connect(target.address)?;
    for _ in 0..5 {
        reader.ask("list-tubes\r\n")?;
        reader.ask("stats\r\n")?;
    }
    // Some of the tubes go one by one, the others when the connection closes.
    each(&mut peer, 0..tubes / 20, "WATCHING", |number| {
        format!("ignore tube-{number}\r\n")
    })?;
    Ok(format!("{tubes} tubes"))
}

pub fn watched(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    let tubes = watch_tubes(&mut peer, target.size(5000, 9000))?;
    peer.ask("ignore default\r\n")?;
    each(&mut peer, 0..100, "TIMED_OUT", |_| {
        "reserve-with-timeout 0\r\n".into()
    })?;
    Ok(format!("{tubes} tubes"))
}

/// Puts so many jobs into a tube that only this connection uses. Returns their
/// ids.
fn put(peer: &mut Peer, jobs: usize, delay: u32, ttr: u32) -> io::Result<Vec<String>> {
    peer.ask_all(b"use crowd\r\nwatch crowd\r\nignore default\r\n", 3, "")?;
    let mut ids = Vec::with_capacity(jobs);
    while ids.len() < jobs {
        let count = BATCH.min(jobs - ids.len());
        let puts = format!("put 0 {delay} {ttr} 8\r\nabcdefgh\r\n").repeat(count);
        peer.ask_each(puts.as_bytes(), count, |line| {
            let id = line.strip_prefix(b"INSERTED ");
            let id = id.map(|id| String::from_utf8_lossy(id).into_owned());
            ids.push(id.ok_or_else(|| io::Error::other("a put was refused"))?);
            Ok(())
        })?;
    }
    Ok(ids)
}

pub fn kick_and_delete(target: &Target) -> io::Result<String> {
    let jobs = target.size(20_000, 1_000_000);
    let mut peer = Peer::connect(target.address)?;
    let ids = put(&mut peer, jobs, 1000, 60)?;
    let kicked = peer.ask("kick 100000000\r\n")?;
    each(&mut peer, 0..jobs, "DELETED", |number| {
        format!("delete {}\r\n", ids[number])
    })?;
    Ok(kicked)
}

pub fn list_jobs(target: &Target) -> io::Result<String> {
    let jobs = target.size(20_000, 1_000_000);
    let mut peer = Peer::connect(target.address)?;
    let ids = put(&mut peer, jobs, 0, 60)?;
    let until = Instant::now() + target.duration();
    let (mut from, mut lists) = (String::from("0"), 0);
    while Instant::now() < until {
        // Lists all jobs, and then those of a state in which there are none.
        let filter = ["", " crowd buried"][lists % 2];
        peer.send(format!("list-jobs {from} 1000{filter}\r\n"))?;
        let (_, Some(document)) = peer.reply()? else {
            break;
        };
        let text = String::from_utf8_lossy(&document);
        let next = text.rsplit_once("next: ").map(|(_, next)| next.trim());
        from = next.unwrap_or("0").into();
        lists += 1;
    }
    each(&mut peer, 0..jobs, "DELETED", |number| {
        format!("delete {}\r\n", ids[number])
    })?;
    Ok(format!("{lists} lists"))
}

pub fn close_with_reserved(target: &Target) -> io::Result<String> {
    let jobs = target.size(20_000, 1_000_000);
    let mut holder = Peer::connect(target.address)?;
    put(&mut holder, jobs, 0, 600)?;
    each(&mut holder, 0..jobs, "RESERVED", |_| "reserve\r\n".into())?;
    drop(holder);
    let mut peer = Peer::connect(target.address)?;
    peer.ask_all(b"watch crowd\r\nignore default\r\n", 2, "")?;
    delete_all(&mut peer, jobs)?;
    Ok(String::new())
}

pub fn time_outs(target: &Target) -> io::Result<String> {
    let jobs = target.size(20_000, 500_000);
    let ttr = target.size(2, 10);
    let mut holder = Peer::connect(target.address)?;
    put(&mut holder, jobs, 0, ttr)?;
    let began = Instant::now();
    each(&mut holder, 0..jobs, "RESERVED", |_| "reserve\r\n".into())?;
    let took = began.elapsed();
    sleep(Duration::from_secs(ttr.into()) + Duration::from_millis(500));
    // If the server has forgotten a job, it becomes ready when its holder goes.
    drop(holder);
    let mut peer = Peer::connect(target.address)?;
    peer.ask_all(b"watch crowd\r\nignore default\r\n", 2, "")?;
    delete_all(&mut peer, jobs)?;
    Ok(format!("reserved in {} ms", took.as_millis()))
}

/// Reserves and deletes so many jobs, many of them together.
fn delete_all(peer: &mut Peer, jobs: usize) -> io::Result<()> {
    let mut left = jobs;
    while left > 0 {
        let count = left.min(BATCH);
        peer.send("reserve\r\n".repeat(count))?;
        let mut deletes = String::new();
        for _ in 0..count {
            let (line, _) = peer.reply()?;
            let id = line.split(' ').nth(1).unwrap_or_default();
            deletes += &format!("delete {id}\r\n");
        }
        peer.ask_all(deletes.as_bytes(), count, "DELETED")?;
        left -= count;
    }
    match drain(peer)? {
        0 => Ok(()),
        more => Err(io::Error::other(format!("{more} jobs more than were put"))),
    }
}
