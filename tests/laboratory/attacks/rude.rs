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
