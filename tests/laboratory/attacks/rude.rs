//! Clients that begin something and do not finish it: they are slow, fall
//! silent in the middle, or reset the connection.

use super::target::Target;
use crate::peer::Peer;
use std::io::{self, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Makes so many connections.
pub fn connect(target: &Target, count: usize) -> io::Result<Vec<Peer>> {
    (0..count).map(|_| Peer::connect(target.address)).collect()
}

pub fn slow_lines(target: &Target) -> io::Result<String> {
    let mut peers = connect(target, target.size(50, 300))?;
    let until = Instant::now() + target.duration();
    let mut sent = 0;
    for byte in b"list-tube-used\r\n".iter().cycle() {
        if Instant::now() > until {
            break;
        }
        for peer in &mut peers {
            peer.send([*byte])?;
        }
        sent += 1;
        sleep(Duration::from_millis(20));
    }
    let replies = sent / "list-tube-used\r\n".len();
    for peer in &mut peers {
        peer.ask_all(b"", replies, "USING default")?;
    }
    Ok(format!("{replies} replies to each"))
}

/// For `--idle-timeout 1`. A client that sends a byte now and then is not
/// silent, however long a line takes. A client that stops in the middle of a
/// line is.
pub fn trickled_lines(target: &Target) -> io::Result<String> {
    let mut peers = connect(target, target.size(50, 300))?;
    let line = b"list-tube-used\r\n";
    for byte in line {
        for peer in &mut peers {
            peer.send([*byte])?;
        }
        sleep(Duration::from_millis(200));
    }
    for peer in &mut peers {
        peer.ask_all(b"list-tu", 1, "USING default")?;
    }
    for peer in &mut peers {
        // If the server does not close a client that has stopped, this read
        // fails after the usual patience.
        if peer.stream.read(&mut [0])? > 0 {
            return Err(io::Error::other("a reply to half of a line"));
        }
    }
    Ok("served, and closed in the end".into())
}

pub fn slow_bodies(target: &Target) -> io::Result<String> {
    let mut peers = connect(target, target.size(50, 300))?;
    for peer in &mut peers {
        peer.send("put 0 0 60 60000\r\n")?;
    }
    let until = Instant::now() + target.duration();
    let mut sent = 0;
    while Instant::now() < until && sent < 60_000 {
        for peer in &mut peers {
            peer.send([b'x'; 100])?;
        }
        sent += 100;
        sleep(Duration::from_millis(20));
    }
    Ok(format!("{sent} bytes of each"))
}

/// Announces bodies of 62 kB, and sends so many bytes of each.
fn announce(target: &Target, clients: usize, sent: usize) -> io::Result<String> {
    let mut peers = connect(target, clients)?;
    for peer in &mut peers {
        peer.send("put 0 0 60 62000\r\n")?;
        peer.send(vec![b'x'; sent])?;
    }
    sleep(target.duration());
    Ok(format!("{} kB announced", clients * 62))
}

pub fn announced_bodies(target: &Target) -> io::Result<String> {
    announce(target, target.size(300, 2000), 0)
}

pub fn half_bodies(target: &Target) -> io::Result<String> {
    announce(target, target.size(100, 500), 31_000)
}

pub fn announced_gigabyte(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    peer.send("put 0 0 60 1073741824\r\n")?;
    peer.send(vec![b'x'; 1_000_000])?;
    sleep(target.duration());
    Ok(String::new())
}

pub fn refused_allocation(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    peer.send("put 0 0 60 1073741824\r\n")?;
    // While the server takes bytes of the body, it has not refused it yet.
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..1 << 10 {
        peer.send(&piece)?;
    }
    let reply = peer.ask("\r\n")?;
    match reply.as_str() {
        "OUT_OF_MEMORY" => Ok(reply),
        _ => Err(io::Error::other(format!("`{reply}` to the put of 1 GiB"))),
    }
}

pub fn announced_limit(target: &Target) -> io::Result<String> {
    let mut peer = Peer::connect(target.address)?;
    peer.send("put 0 0 60 104857000\r\n")?;
    sleep(target.duration());
    Ok(String::new())
}

pub fn resets(target: &Target) -> io::Result<String> {
    let (put, reserve) = (b"put 0 0 60 10\r\n0123456789\r\n", b"reserve\r\n");
    let mut count = 0;
    for _ in 0..target.size(3, 100) {
        for sent in 0..=put.len() {
            let mut peer = Peer::connect(target.address)?;
            peer.send("use reset\r\n")?;
            peer.send(&put[..sent])?;
            peer.reset()?;
            count += 1;
        }
        for sent in 0..=reserve.len() {
            let mut peer = Peer::connect(target.address)?;
            peer.send("watch reset\r\n")?;
            peer.send(&reserve[..sent])?;
            peer.reset()?;
            count += 1;
        }
    }
    // When the reset came, the server had executed some of the puts, or none.
    let mut peer = Peer::connect(target.address)?;
    peer.ask("watch reset\r\n")?;
    let mut jobs = 0;
    loop {
        let reply = peer.ask("reserve-with-timeout 0\r\n")?;
        let Some(id) = reply.strip_prefix("RESERVED ") else {
            break;
        };
        let id = id.split(' ').next().unwrap_or_default();
        peer.ask(format!("delete {id}\r\n"))?;
        jobs += 1;
    }
    Ok(format!("{count} resets, {jobs} jobs"))
}
