//! One of the many clients.

use super::ledger::{Ledger, body};
use crate::peer::{Peer, Random};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The tubes in which all clients work.
pub const TUBES: [&str; 5] = ["default", "mail", "images", "a", "b"];

/// The time to run of half of the jobs, in seconds. The others have one second.
const LONG: u64 = 120;

/// How much of its time to run a job surely has left when the reply to the
/// reserve has come. A machine may be slow, so it is nothing if the time to run
/// is one second.
fn sure(ttr: u64) -> Duration {
    Duration::from_secs(ttr / 2)
}

/// A client, with the jobs that it holds.
pub struct Worker<'a> {
    address: SocketAddr,
    number: u64,
    random: Random,
    ledger: &'a Mutex<Ledger>,
    held: Vec<u64>,
    /// The last id that this connection was given.
    last_id: u64,
}

impl Worker<'_> {
    pub fn new(address: SocketAddr, number: u64, seed: u64, ledger: &Mutex<Ledger>) -> Worker<'_> {
        Worker {
            address,
            number,
            random: Random::new(seed),
            ledger,
            held: Vec::new(),
            last_id: 0,
        }
    }

    /// Does one thing after another, at random, until this moment.
    pub fn work(mut self, until: Instant) {
        while Instant::now() < until {
            if let Err(error) = self.one_connection(until) {
                let fault = format!("client {}: {error}", self.number);
                self.enter(|ledger, _| ledger.fault(fault));
            }
            self.let_go();
        }
    }

    /// Notes that the client holds nothing any more. Must be called before its
    /// connection ends, because then its jobs become ready.
    fn let_go(&mut self) {
        for id in std::mem::take(&mut self.held) {
            self.enter(|ledger, _| ledger.releasing(id));
        }
    }

    fn enter(&self, entry: impl FnOnce(&mut Ledger, u64)) {
        let mut ledger = self.ledger.lock().expect("no client panics");
        entry(&mut ledger, self.number);
    }

    /// Works on one connection, until it ends or the client drops it.
    fn one_connection(&mut self, until: Instant) -> io::Result<()> {
        let mut peer = Peer::connect(self.address)?;
        self.last_id = 0;
        while Instant::now() < until {
            if self.random.one_in(200) {
                self.let_go();
                self.enter(|ledger, _| ledger.cut_off());
                return self.leave(peer);
            }
            self.step(&mut peer)?;
        }
        self.let_go();
        Ok(())
    }

    /// Drops the connection in some rude way. The server may do what the client
    /// last asked for, or not.
    fn leave(&mut self, mut peer: Peer) -> io::Result<()> {
        // A job that it reserves here is not entered in the ledger, because
        // nobody knows whether it got the job.
        match self.random.below(6) {
            0 => peer.send("reserve\r\n")?,
            1 => peer.send("put 0 0 60 100\r\nhalf of a body")?,
            2 => peer.send("stats\r\nlist-tubes\r\nstats\r\n")?,
            3 => peer.send("quit\r\n")?,
            4 => return peer.reset(),
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, peer: &mut Peer) -> io::Result<()> {
        let tube = *self.random.choose(&TUBES);
        match self.random.below(100) {
            0..30 if !self.is_enough() => self.put(peer),
            0..62 if self.held.len() < 5 => self.reserve(peer),
            0..82 => self.finish(peer),
            82..85 => expect(peer, &format!("use {tube}\r\n"), &["USING"]),
            85..88 => expect(peer, &format!("watch {tube}\r\n"), &["WATCHING"]),
            88..90 => {
                let ignore = format!("ignore {tube}\r\n");
                expect(peer, &ignore, &["WATCHING", "NOT_IGNORED"])
            }
            90..93 => {
                let kick = format!("kick {}\r\n", 1 + self.random.below(20));
                expect(peer, &kick, &["KICKED"])
            }
            93 => expect(peer, "stats\r\n", &["OK"]),
            94 => expect(peer, "list-tubes\r\n", &["OK"]),
            95 => {
                let stats = format!("stats-tube {tube}\r\n");
                expect(peer, &stats, &["OK", "NOT_FOUND"])
            }
            96 => expect(peer, "peek-ready\r\n", &["FOUND", "NOT_FOUND"]),
            97 => expect(peer, "peek-buried\r\n", &["FOUND", "NOT_FOUND"]),
            98 => {
                let pause = format!("pause-tube {tube} {}\r\n", self.random.below(2));
                expect(peer, &pause, &["PAUSED", "NOT_FOUND"])
            }
            _ => expect(peer, "dance\r\n", &["UNKNOWN_COMMAND"]),
        }
    }

    /// Whether there are enough jobs. More than that are not put, so that the
    /// server does not hold more and more while this goes on.
    fn is_enough(&self) -> bool {
        let ledger = self.ledger.lock().expect("no client panics");
        ledger.alive() >= 5000
    }

    fn put(&mut self, peer: &mut Peer) -> io::Result<()> {
        let length = match self.random.below(40) {
            0 => 10_000 + self.random.below(50_000),
            _ => self.random.below(300),
        };
        let ttr = *self.random.choose(&[1, LONG]);
        let delay = *self.random.choose(&[0, 0, 0, 1]);
        let pri = self.random.below(3);
        let line = format!("put {pri} {delay} {ttr} {length}\r\n");
        let reply = peer.ask([line.as_bytes(), &body(length), b"\r\n"].concat())?;
        let id = reply
            .strip_prefix("INSERTED ")
            .and_then(|id| id.parse().ok());
        let id: u64 = id.ok_or_else(|| io::Error::other(format!("`{reply}` to a put")))?;
        let last = std::mem::replace(&mut self.last_id, id);
        self.enter(|ledger, client| {
            ledger.inserted(id);
            if id <= last {
                ledger.fault(format!("client {client} was given {id} after {last}"));
            }
        });
        Ok(())
    }

    fn reserve(&mut self, peer: &mut Peer) -> io::Result<()> {
        let timeout = usize::from(self.random.one_in(20));
        let asked = Instant::now();
        peer.send(format!("reserve-with-timeout {timeout}\r\n"))?;
        let (line, chunk) = peer.reply()?;
        let mut words = line.split(' ');
        match (
            words.next(),
            words.next().and_then(|id| id.parse::<u64>().ok()),
        ) {
            (Some("RESERVED"), Some(id)) => {
                let body = chunk.unwrap_or_default();
                self.enter(|ledger, client| ledger.reserved(id, &body, client, asked));
                self.held.push(id);
                Ok(())
            }
            (Some("TIMED_OUT" | "DEADLINE_SOON"), _) => Ok(()),
            _ => Err(io::Error::other(format!("`{line}` to a reserve"))),
        }
    }

    /// Finishes its work on one of the jobs that it holds.
    fn finish(&mut self, peer: &mut Peer) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.held.len());
        let id = self.held[at];
        let what = self.random.below(10);
        if what < 2 {
            return self.touch(peer, id);
        }
        self.held.swap_remove(at);
        if what < 7 {
            self.enter(|ledger, _| ledger.deleting(id));
            let reply = peer.ask(format!("delete {id}\r\n"))?;
            match reply.as_str() {
                "DELETED" => self.enter(|ledger, _| ledger.deleted(id)),
                // The job's time to run was over.
                "NOT_FOUND" => self.enter(|ledger, client| ledger.not_deleted(id, client)),
                _ => return Err(io::Error::other(format!("`{reply}` to a delete"))),
            }
            return Ok(());
        }
        self.enter(|ledger, _| ledger.releasing(id));
        match what {
            7 => expect(peer, &format!("bury {id} 1\r\n"), &["BURIED", "NOT_FOUND"]),
            8 => {
                let release = format!("release {id} 1 0\r\n");
                expect(peer, &release, &["RELEASED", "NOT_FOUND"])
            }
            _ => {
                let release = format!("release {id} 2 1\r\n");
                expect(peer, &release, &["RELEASED", "NOT_FOUND"])
            }
        }
    }

    /// Touches a job. Asks for its time to run as well, to know how long the
    /// job surely stays with this client: if another client gets it before
    /// that, the server has broken a promise.
    fn touch(&mut self, peer: &mut Peer, id: u64) -> io::Result<()> {
        peer.send(format!("stats-job {id}\r\n"))?;
        let (_, text) = peer.reply()?;
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        let ttr = text.lines().find_map(|line| line.strip_prefix("ttr: "));
        let ttr = ttr.and_then(|ttr| ttr.parse().ok()).unwrap_or(1);
        let reply = peer.ask(format!("touch {id}\r\n"))?;
        match reply.as_str() {
            "TOUCHED" => self.enter(|ledger, client| ledger.touched(id, client, sure(ttr))),
            "NOT_FOUND" => {
                self.held.retain(|&held| held != id);
                self.enter(|ledger, client| ledger.not_found(id, client, "touch"));
            }
            _ => return Err(io::Error::other(format!("`{reply}` to a touch"))),
        }
        Ok(())
    }
}

/// Whether the reply begins with one of these words.
fn expect(peer: &mut Peer, command: &str, words: &[&str]) -> io::Result<()> {
    let reply = peer.ask(command)?;
    let word = reply.split(' ').next().unwrap_or_default();
    match words.contains(&word) {
        true => Ok(()),
        false => {
            let command = command.trim_end();
            Err(io::Error::other(format!("`{reply}` to `{command}`")))
        }
    }
}
