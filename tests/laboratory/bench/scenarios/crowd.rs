//! `crowd`: each client is a thread that waits for one socket. It puts a job,
//! reserves one and deletes it, again and again.
//!
//! This is how the programs of users work. The other scenarios drive all
//! connections from one thread. If that thread shares the CPUs with the server,
//! much depends on when it has its turns.

use super::setting::left;
use crate::bench::figures::{Done, Figure, Meter, latencies, size};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use companion::failure::{Failure, Outcome};
use companion::load::arrivals::Left;
use companion::load::histogram::Histogram;
use companion::load::wire::{PATIENCE, Wire};
use companion::load::{TUBE, stat};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

/// Lets the clients work, and then checks that they have left no job behind.
pub fn run(load: &Load, server: &Server) -> Outcome<Vec<Figure>> {
    let mut control = Wire::connect(&server.at(), 1, PATIENCE)?;
    let before = control.ask_data("stats")?;
    let clients: io::Result<Vec<_>> = (0..load.connections)
        .map(|_| Client::connect(server))
        .collect();
    let clients = clients.map_err(Failure::of("connecting a crowd"))?;
    let meter = Meter::start(server)?;
    let left = match left(load.length) {
        Left::Jobs(all) => Left::Jobs(all.div_ceil(load.connections)),
        until => until,
    };
    let latency = thread::scope(|scope| {
        let start = |mut client: Client| scope.spawn(move || client.work(load.body, left));
        let working: Vec<_> = clients.into_iter().map(start).collect();
        let mut latency = Histogram::default();
        for client in working {
            latency.add(&client.join().expect("no client panics")?);
        }
        io::Result::Ok(latency)
    });
    let latency = latency.map_err(Failure::of("a client of a crowd"))?;
    let mut figures = meter.stop(&Done::commands(latency.count()))?;
    figures.extend(latencies("", &latency));
    figures.extend(size(server)?);
    let after = control.ask_data("stats")?;
    for key in ["current-jobs-ready", "current-jobs-reserved"] {
        if stat(&before, key)? != stat(&after, key)? {
            return Failure::refused(format!("{key} is not what it was before"));
        }
    }
    Ok(figures)
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

    /// Works as long as anything is left. Returns how long each reply took.
    fn work(&mut self, body: usize, mut left: Left) -> io::Result<Histogram> {
        let mut latency = Histogram::default();
        let mut timed = |client: &mut Client, request: &[u8], wanted| {
            let sent = Instant::now();
            let rest = client.ask(request, wanted)?;
            latency.record(sent.elapsed());
            io::Result::Ok(rest)
        };
        let mut put = format!("put 0 0 60 {body}\r\n").into_bytes();
        put.resize(put.len() + body, b'x');
        put.extend(b"\r\n");
        let mut received = vec![0; body + 2];
        while left.take(1, Instant::now()) > 0 {
            timed(self, &put, "INSERTED")?;
            let job = timed(self, b"reserve\r\n", "RESERVED")?;
            self.0.read_exact(&mut received)?;
            let id = job.split(' ').next().unwrap_or_default();
            timed(self, format!("delete {id}\r\n").as_bytes(), "DELETED")?;
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
