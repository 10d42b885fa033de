//! Clients that come in crowds, or talk without a pause.

use super::rude::connect;
use super::target::Target;
use crate::peer::{Peer, Random};
use std::io::{self, Read, Write};
use std::net::Shutdown;
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

pub fn garbage(target: &Target) -> io::Result<String> {
    let until = Instant::now() + target.duration();
    let bytes = all_at_once(target.size(4, 8), |number| {
        let peer = Peer::connect(target.address)?;
        let mut random = Random::new(number as u64);
        // The garbage is cut into lines, some of them without an end. Otherwise
        // it could announce a body by chance, and the server would wait for it.
        let mut bytes: Vec<u8> = (0..64 * 1024).map(|_| random.next() as u8).collect();
        for at in (0..bytes.len() - 1).step_by(60) {
            bytes[at..at + 2].copy_from_slice(b"\r\n");
        }
        let (mut reads, mut writes) = (peer.stream.try_clone()?, &peer.stream);
        thread::scope(|scope| {
            let reader = scope.spawn(move || io::copy(&mut reads, &mut io::sink()));
            let mut sent = 0;
            while Instant::now() < until {
                writes.write_all(&bytes)?;
                sent += bytes.len();
            }
            writes.shutdown(Shutdown::Write)?;
            reader.join().expect("a reader does not panic")?;
            Ok(sent)
        })
    })?;
    Ok(format!("{} MB", bytes / 1_000_000))
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

pub fn descriptors(target: &Target) -> io::Result<String> {
    let mut peers = connect(target, 100)?;
    let mut served = 0;
    for peer in &mut peers {
        // A connection that is not accepted gets no answer.
        let patience = std::time::Duration::from_millis(50);
        peer.stream.set_read_timeout(Some(patience))?;
        served += usize::from(peer.ask("list-tube-used\r\n").is_ok());
    }
    thread::sleep(target.duration());
    match served {
        // 32 are enough for a small box. beanstalkd serves 59.
        32.. => Ok(format!("{served} of 100 served")),
        _ => Err(io::Error::other(format!("only {served} of 100 are served"))),
    }
}

pub fn mappings(target: &Target) -> io::Result<String> {
    let (bodies, clients) = (target.size(300, 10_000), target.size(300, 8000));
    let mut producer = Peer::connect(target.address)?;
    producer.ask_all(b"use large\r\nwatch large\r\nignore default\r\n", 3, "")?;
    let body = "x".repeat(131_072);
    for _ in 0..bodies {
        let reply = producer.ask(format!("put 0 0 60 131072\r\n{body}\r\n"))?;
        if !reply.starts_with("INSERTED") {
            return Err(io::Error::other(format!("`{reply}` to a put")));
        }
    }
    let mut peers = connect(target, clients)?;
    let mut served = 0;
    for peer in &mut peers {
        served += usize::from(peer.ask("list-tube-used\r\n").is_ok());
    }
    drop(peers);
    for _ in 0..bodies {
        let (line, _) = {
            producer.send("reserve\r\n")?;
            producer.reply()?
        };
        let id = line.split(' ').nth(1).unwrap_or_default();
        producer.ask(format!("delete {id}\r\n"))?;
    }
    Ok(format!("{served} of {clients} served"))
}

pub fn pipelined_stats(target: &Target) -> io::Result<String> {
    let until = Instant::now() + target.duration();
    let batch = b"stats\r\n".repeat(100);
    let replies = all_at_once(target.size(10, 50), |_| {
        let mut peer = Peer::connect(target.address)?;
        let mut replies = 0;
        while Instant::now() < until {
            peer.ask_all(&batch, 100, "OK ")?;
            replies += 100;
        }
        Ok(replies)
    })?;
    Ok(format!("{replies} replies"))
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

/// The neighbour alone makes enough lines in the log. This client makes more.
pub fn unread_log(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    let batch = b"list-tube-used\r\n".repeat(100);
    let until = Instant::now() + target.duration();
    peer.stream.set_read_timeout(Some(target.duration()))?;
    let mut replies = 0;
    while Instant::now() < until {
        if let Err(error) = peer.ask_all(&batch, 100, "USING") {
            return Err(io::Error::other(format!(
                "after {replies} replies no more: {error}"
            )));
        }
        replies += 100;
    }
    // All replies are read before the connection is closed.
    peer.stream.shutdown(Shutdown::Write)?;
    peer.stream.read_to_end(&mut Vec::new())?;
    Ok(format!("{replies} replies"))
}
