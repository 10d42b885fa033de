//! The part of HTTP/1.1 that `metrics --listen` and `console` need: one request
//! for each connection, with a body of a known length or none. The package
//! httparse reads the heads.
//!
//! Each connection has a thread. The number of connections is bounded: for one
//! more, the oldest one is closed. So clients that send nothing, or read no answer,
//! do not block others, and no number of clients makes this program grow.
//!
//! It leaves out connections that stay open, encodings of bodies, the reason
//! phrases of statuses, and TLS.

use crate::failure::{Failure, Outcome};
use crate::remote::reply::number;
use crate::text::output::complain;
use httparse::Status::{Complete, Partial};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::iter;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// The names and values after the `?`, decoded.
    pub parameters: Vec<(String, String)>,
    /// The headers, with their names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The content type.
    kind: &'static str,
    /// Its pieces: many clients may share a long one.
    body: Arc<Vec<String>>,
}

/// A connection whose answer is being made. Lines of JSON may be sent before it; then the
/// answer is the last of them.
pub struct Link<'a> {
    stream: &'a TcpStream,
    /// Whether such a line was sent.
    pub has_begun: bool,
}

/// How long a connection may send nothing, or take nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to take all of its answer, and how many bytes are given at once.
const ENOUGH: Duration = Duration::from_secs(10);
const PIECE: usize = 1 << 16;
const LONGEST_HEAD: usize = 8192;
const MOST_HEADERS: usize = 64;
const MOST_CONNECTIONS: usize = 64;
/// The stack of a thread, in bytes.
const STACK: usize = 512 << 10;

/// Nothing is loaded from elsewhere, no code within the page runs, and no other page
/// may embed or cache this one.
const SAFETY: &str = "\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\n\
    X-Frame-Options: DENY\r\n\
    Referrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cache-Control: no-store\r\n";

impl Request {
    /// The value of a header, whose name is given in small letters; `None` if
    /// it is missing or there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// The value of a parameter; empty if it is missing.
    pub fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Whether the browser used a name of ours: a page of another site may have its
    /// own name resolve to our address. A numeric address cannot be redefined.
    fn is_for(&self, hosts: &[String]) -> bool {
        let host = self.header("host").unwrap_or_default();
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            _ => host,
        };
        let is = |own: &str| own.eq_ignore_ascii_case(name);
        let number = name.trim_matches(['[', ']']).parse::<IpAddr>();
        number.is_ok() || is("localhost") || hosts.iter().any(|own| is(own))
    }

    /// Whether it asks for something, and changes nothing.
    pub fn is_question(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }

    /// The size of the body, if the request is for one of these hosts and its body has up
    /// to `most` bytes. Without bodies, nothing can be changed.
    fn admit(&self, hosts: &[String], most: usize) -> Result<usize, Answer> {
        if !self.is_for(hosts) {
            let reason = "this host name is not known here: see --host";
            return Err(Answer::refusal(403, reason));
        }
        let size = self.size_of_body()?;
        if most == 0 && (!self.is_question() || size > 0) {
            let reason = "only GET and HEAD are known here, without a body";
            return Err(Answer::refusal(405, reason));
        }
        let admitted = usize::try_from(size).ok().filter(|size| *size <= most);
        admitted.ok_or_else(|| {
            let reason = format_args!("a body may have {most} bytes here, and this has {size}");
            Answer::refusal(413, reason)
        })
    }

    /// The number of bytes that follow the head.
    fn size_of_body(&self) -> Result<u64, Answer> {
        let has = |name| self.headers.iter().any(|(known, _)| known == name);
        if has("transfer-encoding") {
            return Err(Answer::refusal(411, "a body needs a Content-Length"));
        }
        let length = self.header("content-length");
        match length.and_then(|text| number(text.as_bytes())) {
            None if has("content-length") => Err(Answer::refusal(400, "this is no Content-Length")),
            length => Ok(length.unwrap_or(0)),
        }
    }
}

impl Answer {
    pub fn ok(kind: &'static str, body: impl Into<String>) -> Answer {
        Answer::shared(kind, vec![body.into()].into())
    }

    pub fn shared(kind: &'static str, body: Arc<Vec<String>>) -> Answer {
        Answer {
            status: 200,
            kind,
            body,
        }
    }

    /// Why there is no other answer.
    pub fn refusal(status: u16, reason: impl Display) -> Answer {
        Answer {
            status,
            ..Answer::ok("text/plain; charset=utf-8", format!("{reason}\n"))
        }
    }
}

/// A server that is lost or refuses is a 502; a 503 is our own.
impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        let status = match failure {
            Failure::Usage(_) => 400,
            Failure::Missing(_) => 404,
            _ => 502,
        };
        Answer::refusal(status, failure)
    }
}

impl<'a> Link<'a> {
    pub fn over(stream: &'a TcpStream) -> Link<'a> {
        Link {
            stream,
            has_begun: false,
        }
    }

    /// Sends such a line. A failure says that nobody waits for the answer any more.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        let head = self.head(200, "application/json", "");
        self.stream.write_all(format!("{head}{line}\n").as_bytes())
    }

    /// Sends the answer, without its body if only its head was asked for, and waits until the
    /// other side has closed the connection.
    fn end(mut self, answer: &Answer, is_head: bool) -> io::Result<()> {
        let length: usize = answer.body.iter().map(String::len).sum();
        let length = format!("Content-Length: {length}\r\n");
        let head = self.head(answer.status, answer.kind, &length);
        let mut stream = self.stream;
        let body = answer.body.iter().filter(|_| !is_head);
        let pieces = body.flat_map(|text| text.as_bytes().chunks(PIECE));
        let until = Instant::now() + ENOUGH;
        for piece in iter::once(head.as_bytes()).chain(pieces) {
            stream.write_all(piece)?;
            if Instant::now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        // If the socket were closed with unread bytes in it, the system would reset
        // the connection, and the client would lose the answer.
        stream.shutdown(Shutdown::Write)?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    }

    /// The head of the answer, unless it has gone.
    fn head(&mut self, status: u16, kind: &str, length: &str) -> String {
        match std::mem::replace(&mut self.has_begun, true) {
            true => String::new(),
            false => format!(
                "HTTP/1.1 {status} \r\nContent-Type: {kind}\r\n{length}{SAFETY}\
                 Connection: close\r\n\r\n"
            ),
        }
    }
}

/// Listens at `HOST:PORT`, or at this port of the loopback. Returns also where
/// that is.
pub fn bind(address: &str) -> Outcome<(TcpListener, SocketAddr)> {
    let bind = || {
        let listener = match address.parse() {
            Ok(port) => TcpListener::bind(("127.0.0.1", port))?,
            Err(_) => TcpListener::bind(address)?,
        };
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|error: io::Error| match error.kind() {
        ErrorKind::InvalidInput => Failure::Usage(format!(
            "'{address}' is not HOST:PORT or the PORT of this machine"
        )),
        _ => Failure::io(format_args!("cannot listen on {address}"), error),
    })
}

/// Serves what `site` answers until the program ends, to browsers that know this machine
/// by one of these names. A body may have up to `most` bytes.
pub fn serve(
    listener: &TcpListener,
    hosts: Vec<String>,
    most: usize,
    site: impl Fn(&Request, &mut Link) -> Result<Answer, Answer> + Sync + Send + 'static,
) -> ! {
    let converse: &'static _ = Box::leak(Box::new(move |stream: &TcpStream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut link = Link::over(stream);
        match read_request(stream, &hosts, most) {
            Ok(request) => {
                let answer = site(&request, &mut link);
                let is_head = request.method == "HEAD";
                link.end(&answer.unwrap_or_else(|refusal| refusal), is_head)
            }
            Err(Some(refusal)) => link.end(&refusal, false),
            Err(None) => Ok(()),
        }
    }));
    // The connections in the order in which they came. A thread shares each until it
    // has ended.
    let mut open: Vec<Arc<TcpStream>> = Vec::new();
    loop {
        let begun = listener.accept().and_then(|(stream, _)| {
            make_room(&mut open);
            let stream = Arc::new(stream);
            open.push(stream.clone());
            let serve = move || {
                // An error concerns only this client, which gets no answer.
                let _: io::Result<()> = converse(&stream);
                // It stays in the list, which would keep the connection open.
                let _ = stream.shutdown(Shutdown::Both);
            };
            thread::Builder::new().stack_size(STACK).spawn(serve)
        });
        if let Err(error) = begun {
            complain!("cannot take a connection: {error}");
            // There may be a descriptor or a thread again when one has left.
            thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Closes the oldest connections, one after the other, until there is room for another
/// one. One whose answer is just being made goes later than the next.
fn make_room(open: &mut Vec<Arc<TcpStream>>) {
    for closed in 1.. {
        open.retain(|stream| Arc::strong_count(stream) > 1);
        if open.len() < MOST_CONNECTIONS {
            return;
        }
        for stream in open.iter().take(closed) {
            // It fails only if the other side was faster.
            let _ = stream.shutdown(Shutdown::Both);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A request. Without one, the answer to what is none that may come, or nothing if the
/// client is gone.
fn read_request(
    mut stream: &TcpStream,
    hosts: &[String],
    most: usize,
) -> Result<Request, Option<Answer>> {
    let gone = |_: io::Error| None;
    let mut bytes = Vec::new();
    let mut request = loop {
        let mut piece = [0; LONGEST_HEAD];
        let count = stream.read(&mut piece).map_err(gone)?;
        bytes.extend_from_slice(&piece[..count]);
        match head(&bytes)? {
            Some(request) => break request,
            None if count == 0 => return Err(None),
            None => {}
        }
    };
    let size = request.admit(hosts, most)?;
    let missing = size.saturating_sub(request.body.len()) as u64;
    let rest = stream.take(missing).read_to_end(&mut request.body);
    rest.map_err(gone)?;
    if request.body.len() < size {
        return Err(None);
    }
    request.body.truncate(size);
    Ok(request)
}

/// The request whose head is at the beginning of these bytes, with the bytes
/// after it as its body; `None` if the head is not complete yet.
fn head(bytes: &[u8]) -> Result<Option<Request>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Answer::refusal(431, "this head is too large"));
        }
        Err(_) => return Err(Answer::refusal(400, "this is no request")),
    };
    let target = parsed.path.unwrap_or_default();
    let header = |header: &httparse::Header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        method: parsed.method.unwrap_or_default().into(),
        path: path.into(),
        parameters: parameters(query),
        headers: parsed.headers.iter().map(header).collect(),
        body: bytes[length..].into(),
    }))
}

/// The names and values of a query, decoded.
fn parameters(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = parts.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let pairs = pairs.map(|(name, value)| (decoded(name), decoded(value)));
    pairs.collect()
}

/// A part of a query without its codes. What is not UTF-8 becomes the
/// replacement character; a `%` without two digits stands for itself.
fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    let (mut bytes, mut at) = (Vec::new(), 0);
    while let Some(&byte) = text.as_bytes().get(at) {
        let code = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        let meant = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(meant.unwrap_or(byte));
        at += if meant.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request {
        let owned = |(name, value): &(&str, &str)| (String::from(*name), String::from(*value));
        Request {
            headers: headers.iter().map(owned).collect(),
            ..Request::default()
        }
    }

    fn status_of(bytes: &[u8]) -> Result<bool, u16> {
        let found = head(bytes).map(|found| found.is_some());
        found.map_err(|answer| answer.status)
    }

    #[test]
    fn a_head_is_parsed_once_it_is_complete() {
        let bytes = b"GET /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-One: 1\r\n\r\nbody";
        for cut in 0..bytes.len() - 4 {
            assert_eq!(status_of(&bytes[..cut]), Ok(false), "{cut}");
        }
        let request = head(bytes).ok().flatten().unwrap();
        let read = (request.method.as_str(), request.path.as_str());
        assert_eq!(read, ("GET", "/a/b"));
        assert_eq!(request.parameter("c"), "d");
        assert_eq!(request.header("host"), Some("x"));
        assert_eq!(request.header("x-one"), Some("1"));
        assert_eq!(request.body, b"body");
    }

    #[test]
    fn a_malformed_or_too_large_head_is_refused() {
        let large = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(LONGEST_HEAD));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MOST_HEADERS + 1)
        );
        for (bytes, status) in [
            ("hello\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            ("\0", 400),
            (large.as_str(), 431),
            (many.as_str(), 431),
        ] {
            assert_eq!(status_of(bytes.as_bytes()), Err(status), "{bytes:.30}");
        }
    }

    #[test]
    fn a_body_needs_exactly_one_length_in_digits() {
        for (headers, expected) in [
            ("", Ok(0)),
            ("Content-Length: 12\r\n", Ok(12)),
            ("Content-Length: +12\r\n", Err(400)),
            ("Content-Length: 99999999999999999999\r\n", Err(400)),
            ("Content-Length: 1\r\nContent-Length: 1\r\n", Err(400)),
            ("Transfer-Encoding: chunked\r\n", Err(411)),
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{headers}\r\n");
            let request = head(bytes.as_bytes()).ok().flatten().unwrap();
            let size = request.size_of_body().map_err(|answer| answer.status);
            assert_eq!(size, expected, "{headers}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_malformed_codes_stay() {
        for (query, expected) in [
            ("", vec![]),
            ("a=1&b", vec![("a", "1"), ("b", "")]),
            ("q=a%20b+c%2B&&q=%C3%A9", vec![("q", "a b c+"), ("q", "é")]),
            (
                "q=%&r=%4&s=%zz&t=%ff&u=%+1&v=%é",
                vec![
                    ("q", "%"),
                    ("r", "%4"),
                    ("s", "%zz"),
                    ("t", "\u{fffd}"),
                    ("u", "% 1"),
                    ("v", "%é"),
                ],
            ),
            ("x=a=b", vec![("x", "a=b")]),
        ] {
            let found = parameters(query);
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, expected, "{query}");
        }
    }

    #[test]
    fn only_own_host_names_and_addresses_are_answered() {
        let hosts = ["queue.example".into()];
        let is_ours = |host: &str| request(&[("host", host)]).is_for(&hosts);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::1]",
            "10.1.2.3",
            "queue.example:80",
        ] {
            assert!(is_ours(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "localhost:80@evil",
            "[::1]x",
            "[::1",
            "queue.example:x",
            "::1",
        ] {
            assert!(!is_ours(host), "{host}");
        }
        assert!(!request(&[]).is_for(&hosts));
        assert!(!request(&[("host", "localhost"), ("host", "localhost")]).is_for(&hosts));
    }
}
