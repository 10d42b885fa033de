//! `crowd`: each client is a thread that waits for one socket. With `--work put`
//! it puts jobs; with `cycle` it puts a job, reserves one and deletes it; with
//! `handoff` half of the clients put jobs, and the others reserve and delete
//! them.
//!
//! With `--together` all jobs are there before, in a tube that is paused. When
//! the pause ends, all are due at once, and the clients reserve and delete them.
//!
//! This is how the programs of users work. The other scenarios drive all
//! connections from one thread. If that thread shares the CPUs with the server,
//! much depends on when it has its turns.

use super::setting::{connect, left};
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::{self, Load};
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::histogram::Histogram;
use crate::load::jobs::Shape;
use crate::load::reply::Reply;
use crate::load::wire::{PATIENCE, Wire};
use crate::load::work::{PUT, Work};
use crate::load::{TUBE, stat};
use companion::failure::{Failure, Outcome};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// With `--together`: how long the tube is paused.
const PAUSE: Duration = Duration::from_secs(3);
/// The same: how many jobs are put at once.
const AT_ONCE: usize = 64;

/// Lets the clients work, and then counts the jobs that they have left behind.
pub fn run(load: &Load, server: &Server) -> Outcome<Vec<Figure>> {
    if load.depth > 1 || load.rate.is_some() || load.priorities > 1 {
        return Failure::usage("crowd takes no --depth, --rate or --priorities");
    }
    if load.together && load.work != load::Work::Cycle {
        return Failure::usage("crowd takes either --together or --work");
    }
    let workers = match load.work {
        load::Work::Put | load::Work::Cycle => load.connections,
        // They come in pairs, so that as many jobs are taken as are put.
        load::Work::Handoff if load.connections % 2 == 1 => {
            return Failure::usage("crowd --work handoff takes an even number of connections");
        }
        load::Work::Handoff => load.connections / 2,
    };
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
        Left::Jobs(all) => Left::Jobs(all.div_ceil(workers)),
        until => until,
    };
    let shift = |number: usize| Shift {
        part: match load.work {
            _ if load.together => Part::Take,
            load::Work::Cycle => Part::Cycle,
            load::Work::Handoff if number % 2 == 1 => Part::Take,
            load::Work::Put | load::Work::Handoff => Part::Put,
        },
        body: load.body,
        left,
        due,
    };
    let done = thread::scope(|scope| {
        // The connections stay open until all figures are taken.
        let start = |(number, client)| scope.spawn(move || Client::work(client, shift(number)));
        let working: Vec<_> = clients.iter_mut().enumerate().map(start).collect();
        let mut all = Worked::default();
        for client in working {
            all.add(&client.join().expect("no client panics")?);
        }
        io::Result::Ok(all)
    });
    let done = done.map_err(Failure::of("a client of a crowd"))?;
    let mut figures = match due {
        None => meter.stop(&Done::commands(done.latency.count()))?,
        Some(_) => Vec::new(),
    };
    let what = due.map_or("", |_| "late: ");
    figures.extend(latencies(what, &done.latency));
    figures.extend(size(server)?);
    let after = control.ask_data("stats")?;
    let put_before = due.map_or(0, |_| done.taken);
    let more = |key| Ok((stat(&before, key)?, stat(&after, key)?));
    let (ready, reserved) = (more("current-jobs-ready")?, more("current-jobs-reserved")?);
    if ready.0 + put_before + done.put != ready.1 + done.taken || reserved.0 != reserved.1 {
        return Failure::refused("the server has not as many jobs as it should");
    }
    if !server.is_ours() {
        let drained = clients[0].drain(ready.1 - ready.0);
        drained.map_err(Failure::of("deleting a crowd's jobs"))?;
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

/// What one client does.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// It puts jobs.
    Put,
    /// It puts a job, reserves one and deletes it.
    Cycle,
    /// It reserves a job and deletes it.
    Take,
}

/// A client's part of a run.
#[derive(Clone, Copy)]
struct Shift {
    part: Part,
    body: usize,
    left: Left,
    /// When all jobs were due, if they were there before.
    due: Option<Instant>,
}

/// What clients have done: how many jobs they have put and taken, and how long
/// each reply took, or else how late each job came that was due before.
#[derive(Default)]
struct Worked {
    put: u64,
    taken: u64,
    latency: Histogram,
}

impl Worked {
    fn add(&mut self, other: &Worked) {
        self.put += other.put;
        self.taken += other.taken;
        self.latency.add(&other.latency);
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

    /// Works as long as anything is left.
    fn work(&mut self, shift: Shift) -> io::Result<Worked> {
        let Shift {
            part,
            body,
            mut left,
            due,
        } = shift;
        let mut done = Worked::default();
        let mut put = format!("put 0 0 60 {body}\r\n").into_bytes();
        put.resize(put.len() + body, b'x');
        put.extend(b"\r\n");
        // When the time is over, nobody may be left waiting.
        let reserve: &[u8] = match left {
            Left::Jobs(_) => b"reserve\r\n",
            Left::Until(_) => b"reserve-with-timeout 1\r\n",
        };
        let mut received = vec![0; body + 2];
        while left.take(1, Instant::now()) > 0 {
            if part != Part::Take {
                let sent = Instant::now();
                self.ask(&put, "INSERTED")?;
                done.latency.record(sent.elapsed());
                done.put += 1;
            }
            if part == Part::Put {
                continue;
            }
            let since = due.unwrap_or_else(Instant::now);
            let line = self.line(reserve)?;
            if line == "TIMED_OUT" {
                continue;
            }
            done.latency.record(since.elapsed());
            let job = after(&line, "RESERVED")?;
            self.0.read_exact(&mut received)?;
            if due.is_none() && !put.ends_with(&received) {
                return Err(io::Error::other("a body is not what was put"));
            }
            let id = job.split(' ').next().unwrap_or_default();
            let sent = Instant::now();
            self.ask(format!("delete {id}\r\n").as_bytes(), "DELETED")?;
            if due.is_none() {
                done.latency.record(sent.elapsed());
            }
            done.taken += 1;
        }
        Ok(done)
    }

    /// Reserves and deletes so many jobs.
    fn drain(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let job = self.ask(b"reserve\r\n", "RESERVED")?;
            let (id, size) = job.split_once(' ').unwrap_or_default();
            let size: usize = size.parse().map_err(io::Error::other)?;
            self.0.read_exact(&mut vec![0; size + 2])?;
            self.ask(format!("delete {id}\r\n").as_bytes(), "DELETED")?;
        }
        Ok(())
    }

    /// Sends a request and reads a line. Returns what follows the word that is
    /// wanted there.
    fn ask(&mut self, request: &[u8], wanted: &str) -> io::Result<String> {
        after(&self.line(request)?, wanted).map(str::to_string)
    }

    /// Sends a request and reads a line.
    fn line(&mut self, request: &[u8]) -> io::Result<String> {
        self.0.get_mut().write_all(request)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// What follows the word that is wanted at the beginning of a line.
fn after<'a>(line: &'a str, wanted: &str) -> io::Result<&'a str> {
    match line.strip_prefix(wanted) {
        Some(rest) => Ok(rest.trim_start()),
        None => Err(io::Error::other(format!("{line:?} instead of {wanted}"))),
    }
}
