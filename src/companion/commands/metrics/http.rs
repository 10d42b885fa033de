//! As much of HTTP as a scrape takes: `GET /metrics`, one request a connection.
//!
//! A few threads take connections, one at a time each; so nobody makes this
//! program grow, and who says nothing keeps one of them for some seconds only.

use crate::failure::{Failure, Outcome};
use crate::text::output::complain;
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
/// How long a connection may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, in bytes.
const LONGEST: usize = 8192;

/// Hands out this text, made anew for each request, until the program ends.
pub fn serve(address: &str, text: impl Fn() -> String + Sync) -> Outcome<Infallible> {
    let fail = |error| Failure::io(format_args!("cannot listen on {address}"), error);
    let listener = match address.parse() {
        Ok(port) => TcpListener::bind(("127.0.0.1", port)),
        Err(_) => TcpListener::bind(address),
    };
    let listener = listener.map_err(fail)?;
    let bound = listener.local_addr().map_err(fail)?;
    complain(format_args!("serving http://{bound}/metrics"));
    let serve = || -> Outcome<Infallible> {
        loop {
            match listener.accept() {
                // Who goes away before the answer is not missed.
                Ok((stream, _)) => drop(answer(stream, &text)),
                Err(error) => {
                    complain(format_args!(
                        "beanpole metrics: cannot take a connection: {error}"
                    ));
                    thread::sleep(Duration::from_secs(1));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS {
            let spawned = thread::Builder::new().spawn_scoped(scope, serve);
            if let Err(error) = spawned {
                complain(format_args!("beanpole metrics: fewer threads: {error}"));
            }
        }
        serve()
    })
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    let request = request(&mut stream)?;
    let (status, body) = match request.split(' ').collect::<Vec<_>>().as_slice() {
        ["GET", "/metrics", _] => ("200 OK", text()),
        ["GET", _, _] => ("404 Not Found", "only /metrics is here\n".into()),
        [_, _, _] => ("405 Method Not Allowed", "only GET is known\n".into()),
        _ => ("400 Bad Request", "this is no request\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    write_all(&mut stream, (head + &body).as_bytes())?;
    // To close while something unread lies here would take the answer back.
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + PATIENCE;
    while read(&mut stream, until, &mut [0; 1024])? > 0 {}
    Ok(())
}

/// Writes all of this in the time that a connection has for it.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left_until(until)?))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Reads what is there until then; 0 is the end of the stream.
fn read(stream: &mut TcpStream, until: Instant, bytes: &mut [u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(left_until(until)?))?;
    stream.read(bytes)
}

/// The time until then; none is an error.
fn left_until(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// The first line of a request, once all of its head has come.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    // What comes behind the head, a body, is of no interest.
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if head.len() > LONGEST {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut bytes = [0; 1024];
        match read(stream, until, &mut bytes)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
    let text = String::from_utf8_lossy(&head);
    Ok(text.lines().next().unwrap_or_default().into())
}
