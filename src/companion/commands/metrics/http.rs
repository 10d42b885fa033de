//! The part of HTTP that a scrape needs: `GET /metrics`, with one request for
//! each connection.
//!
//! A few threads take connections, and each serves one at a time. So no client
//! can make this program grow, and a silent client occupies a thread only for
//! some seconds.

use crate::failure::{Failure, Outcome};
use crate::text::output::complain;
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
/// How long a connection may take to send its request, and how long to take the
/// answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, in bytes.
const LONGEST: usize = 8192;

/// Serves this text until the program ends; it is made again for each request.
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
                // An error concerns only this client, which gets no answer.
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
    // If the socket were closed with unread bytes in it, the system would reset
    // the connection, and the client would lose the answer.
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + PATIENCE;
    while read(&mut stream, until, &mut [0; 1024])? > 0 {}
    Ok(())
}

/// Writes all of this, within the time that a connection has for it.
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

/// Reads what comes before this time; 0 is the end of the stream.
fn read(stream: &mut TcpStream, until: Instant, bytes: &mut [u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(left_until(until)?))?;
    stream.read(bytes)
}

/// The time left until then. If none is left, this is an error.
fn left_until(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// The first line of a request, after its whole head has come.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    // A body after the head is of no interest.
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
