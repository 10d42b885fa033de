//! `crowd`: each client is a thread that waits for one socket. It puts a job,
//! reserves one and deletes it, again and again.
//!
//! With `--together` all jobs are there before, in a tube that is paused. When
//! the pause ends, all are due at once, and the clients reserve and delete them.
//!
//! This is how the programs of users work. The other scenarios drive all
//! connections from one thread. If that thread shares the CPUs with the server,
//! much depends on when it has its turns.

use super::setting::{connect, left};
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use companion::failure::{Failure, Outcome};
use companion::load::arrivals::Left;
use companion::load::histogram::Histogram;
use companion::load::jobs::Shape;
use companion::load::reply::Reply;
use companion::load::wire::{PATIENCE, Wire};
use companion::load::work::{PUT, Work};
use companion::load::{TUBE, stat};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// With `--together`: how long the tube is paused.
const PAUSE: Duration = Duration::from_secs(3);
/// The same: how many jobs are put at once.
const AT_ONCE: usize = 64;

/// Lets the clients work, and then checks that they have left no job behind.
pub fn run(load: &Load, server: &Server) -> Outcome<Vec<Figure>> {
    if load.depth > 1 || load.rate.is_some() || load.priorities > 1 {
        return Failure::usage("crowd takes no --depth, --rate or --priorities");
    }
    let mut control = Wire::connect(&server.at(), 1, PATIENCE)?;
    let before = control.ask_data("stats")?;
    let clients: io::Result<Vec<_>> = (0..load.connections)
        .map(|_| Client::connect(server))
        .collect();
    let mut clients = clients.map_err(Failure::of("connecting a crowd"))?;
    let due = match load.together {
        true => Some(put_for_later(load, server, &mut control)?),
        false => None,
    };
    let meter = Meter::start(server)?;
    let left = match left(load.length) {
        Left::Jobs(all) => Left::Jobs(all.div_ceil(load.connections)),
        until => until,
    };
    let latency = thread::scope(|scope| {
        // The connections stay open until all figures are taken.
        let start = |client| scope.spawn(move || Client::work(client, load.body, left, due));
        let working: Vec<_> = clients.iter_mut().map(start).collect();
        let mut latency = Histogram::default();
        for client in working {
            latency.add(&client.join().expect("no client panics")?);
        }
        io::Result::Ok(latency)
    });
    let latency = latency.map_err(Failure::of("a client of a crowd"))?;
    let mut figures = match due {
        None => meter.stop(&Done::commands(latency.count()))?,
        Some(_) => Vec::new(),
    };
    let what = due.map_or("", |_| "late: ");
    figures.extend(latencies(what, &latency));
    figures.extend(size(server)?);
    let after = control.ask_data("stats")?;
    for key in ["current-jobs-ready", "current-jobs-reserved"] {
        if stat(&before, key)? != stat(&after, key)? {
            return Failure::refused(format!("{key} is not what it was before"));
        }
    }
    Ok(figures)
}

/// Pauses the tube and puts all jobs. Returns when the pause ends.
fn put_for_later(load: &Load, server: &Server, control: &mut Wire) -> Outcome<Instant> {
    let count = load.count()?.next_multiple_of(load.connections);
    let due = Instant::now() + PAUSE;
    let pause = format!("pause-tube {TUBE} {}\r\n", PAUSE.as_secs());
    control.ask(0..1, pause.as_bytes(), 1, |reply| {
        reply == Reply::Other(b"PAUSED")
    })?;
    let mut work = Work::new(&Shape::plain(load.body), 1, AT_ONCE, count);
    work.run(&mut connect(server, 1)?, PUT, Left::Jobs(count), None)?;
    match Instant::now() < due {
        true => Ok(due),
        false => Failure::refused("putting took longer than the pause"),
    }
}

/// A client, and what it has read ahead.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> io::Result<Client> {
        let stream = server.at().connect(PATIENCE)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Client(BufReader::new(stream));
        client.ask(format!("use {TUBE}\r\n").as_bytes(), "USING")?;
        client.ask(format!("watch {TUBE}\r\n").as_bytes(), "WATCHING")?;
        client.ask(b"ignore default\r\n", "WATCHING")?;
        Ok(client)
    }

    /// Works as long as anything is left. Returns how long each reply took, or
    /// else how late each job came that was due before.
    fn work(&mut self, body: usize, mut left: Left, due: Option<Instant>) -> io::Result<Histogram> {
        let mut latency = Histogram::default();
        let mut record = |since: Instant| latency.record(since.elapsed());
        let mut put = format!("put 0 0 60 {body}\r\n").into_bytes();
        put.resize(put.len() + body, b'x');
        put.extend(b"\r\n");
        let mut received = vec![0; body + 2];
        while left.take(1, Instant::now()) > 0 {
            if due.is_none() {
                let sent = Instant::now();
                self.ask(&put, "INSERTED")?;
                record(sent);
            }
            let since = due.unwrap_or_else(Instant::now);
            let job = self.ask(b"reserve\r\n", "RESERVED")?;
            record(since);
            self.0.read_exact(&mut received)?;
            if due.is_none() && !put.ends_with(&received) {
                return Err(io::Error::other("a body is not what was put"));
            }
            let id = job.split(' ').next().unwrap_or_default();
            let sent = Instant::now();
            self.ask(format!("delete {id}\r\n").as_bytes(), "DELETED")?;
            if due.is_none() {
                record(sent);
            }
        }
        Ok(latency)
    }

    /// Sends a request and reads a line. Returns what follows the word that is
    /// wanted there.
    fn ask(&mut self, request: &[u8], wanted: &str) -> io::Result<String> {
        self.0.get_mut().write_all(request)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.trim_end().strip_prefix(wanted) {
            Some(rest) => Ok(rest.trim_start().into()),
            None => Err(io::Error::other(format!("{line:?} instead of {wanted}"))),
        }
    }
}
