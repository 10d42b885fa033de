//! Reads a request from a socket and writes an answer, each within a bounded
//! time, however slowly the other side sends or reads.

use super::message::{Answer, Request, Site, Status};
use httparse::Status::{Complete, Partial};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may take to send its head, how long to send its body,
/// and how long to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head, in bytes.
const LONGEST_HEAD: usize = 8192;
/// The highest number of headers.
const MOST_HEADERS: usize = 64;
/// How many bytes are read at once.
const PIECE: usize = 8192;

/// A request, or the answer to what cannot be one. It is an error if the
/// connection ends first or takes too long.
pub fn request(stream: &mut TcpStream, site: &impl Site) -> io::Result<Result<Request, Answer>> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let (mut request, length) = loop {
        match head(&bytes) {
            Ok(Some(complete)) => break complete,
            Ok(None) => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
        read_some(stream, until, &mut bytes)?;
    };
    bytes.drain(..length);
    let size = match size_of_body(&request) {
        Ok(size) => size,
        Err(refusal) => return Ok(Err(refusal)),
    };
    match site.room_for_body(&request) {
        Ok(room) if size <= room as u64 => {}
        Ok(room) => {
            let text = format!("a body may have {room} bytes here, and this has {size}\n");
            return Ok(Err(Answer::text(Status::ContentTooLarge, text)));
        }
        Err(refusal) => return Ok(Err(refusal)),
    }
    let until = Instant::now() + PATIENCE;
    while (bytes.len() as u64) < size {
        read_some(stream, until, &mut bytes)?;
    }
    bytes.truncate(size as usize);
    request.body = bytes;
    Ok(Ok(request))
}

/// The request whose head is at the beginning of these bytes, and the length of
/// the head; `None` if it is not complete yet.
fn head(bytes: &[u8]) -> Result<Option<(Request, usize)>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let too_large = || Answer::text(Status::HeadTooLarge, "this head is too large\n");
    let length = match parsed.parse(bytes) {
        Ok(Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(too_large()),
        Err(_) => return Err(Answer::text(Status::BadRequest, "this is no request\n")),
    };
    let target = parsed.path.unwrap_or_default();
    let header = |header: &httparse::Header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = Request {
        method: parsed.method.unwrap_or_default().into(),
        path: path.into(),
        query: query.into(),
        headers: parsed.headers.iter().map(header).collect(),
        body: Vec::new(),
    };
    Ok(Some((request, length)))
}

/// The number of bytes that follow the head.
fn size_of_body(request: &Request) -> Result<u64, Answer> {
    if request.has("transfer-encoding") {
        return Err(Answer::text(
            Status::LengthRequired,
            "a body needs a Content-Length\n",
        ));
    }
    if !request.has("content-length") {
        return Ok(0);
    }
    // `parse` would accept a sign.
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let length = request.header("content-length").filter(digits);
    let length = length.and_then(|text| text.parse().ok());
    length.ok_or_else(|| Answer::text(Status::BadRequest, "this is no Content-Length\n"))
}

/// Writes an answer, and waits until the other side has closed the connection.
pub fn write(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (number, name) = (answer.status as u16, answer.status.name());
    let mut head = format!(
        "HTTP/1.1 {number} {name}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Connection: close\r\n",
        answer.kind,
        answer.body.len()
    );
    for (name, value) in answer.headers {
        // Writing to memory does not fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head += "\r\n";
    write_all(stream, until, head.as_bytes())?;
    write_all(stream, until, &answer.body)?;
    // If the socket were closed with unread bytes in it, the system would reset
    // the connection, and the client would lose the answer.
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    loop {
        read_some(stream, until, &mut bytes)?;
        bytes.clear();
    }
}

/// Writes all of this before this time.
fn write_all(stream: &mut TcpStream, until: Instant, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left_until(until)?))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Adds what comes next, before this time. The end of the stream is an error.
fn read_some(stream: &mut TcpStream, until: Instant, into: &mut Vec<u8>) -> io::Result<()> {
    stream.set_read_timeout(Some(left_until(until)?))?;
    let mut piece = [0; PIECE];
    match stream.read(&mut piece)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            into.extend_from_slice(&piece[..count]);
            Ok(())
        }
    }
}

/// The time left until then. If none is left, this is an error.
fn left_until(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(bytes: &[u8]) -> Result<bool, Status> {
        head(bytes)
            .map(|found| found.is_some())
            .map_err(|answer| answer.status)
    }

    #[test]
    fn a_head_is_read_once_all_of_it_is_there() {
        let bytes = b"GET /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-One: 1\r\n\r\nbody";
        for cut in 0..bytes.len() - 4 {
            assert_eq!(status_of(&bytes[..cut]), Ok(false), "{cut}");
        }
        let (request, length) = head(bytes).ok().flatten().unwrap();
        assert_eq!(
            (
                request.method.as_str(),
                request.path.as_str(),
                request.query.as_str()
            ),
            ("GET", "/a/b", "c=d")
        );
        assert_eq!(
            (request.header("host"), request.header("x-one")),
            (Some("x"), Some("1"))
        );
        assert_eq!(length, bytes.len() - 4);
    }

    #[test]
    fn what_is_no_head_or_too_much_of_one_is_refused() {
        let large = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(LONGEST_HEAD));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MOST_HEADERS + 1)
        );
        for (bytes, status) in [
            ("hello\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Status::BadRequest),
            ("\0", Status::BadRequest),
            (large.as_str(), Status::HeadTooLarge),
            (many.as_str(), Status::HeadTooLarge),
        ] {
            assert_eq!(status_of(bytes.as_bytes()), Err(status), "{bytes:.30}");
        }
    }

    #[test]
    fn a_body_has_one_length_in_digits() {
        for (headers, expected) in [
            ("", Ok(0)),
            ("Content-Length: 12\r\n", Ok(12)),
            ("Content-Length: +12\r\n", Err(Status::BadRequest)),
            (
                "Content-Length: 99999999999999999999\r\n",
                Err(Status::BadRequest),
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n",
                Err(Status::BadRequest),
            ),
            (
                "Transfer-Encoding: chunked\r\n",
                Err(Status::LengthRequired),
            ),
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{headers}\r\n");
            let (request, _) = head(bytes.as_bytes()).ok().flatten().unwrap();
            let size = size_of_body(&request).map_err(|answer| answer.status);
            assert_eq!(size, expected, "{headers}");
        }
    }
}
