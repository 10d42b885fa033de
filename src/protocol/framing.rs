//! Framing: the bytes of a connection to [`Request`]s.
//!
//! Finds where lines end, which bytes are a body, and which bytes to throw
//! away. It has no input buffer: the bytes come from the caller's buffer. The
//! exception is a long body that has not arrived completely. It grows here as
//! it arrives, so that the caller can read the rest of it directly into this
//! memory.

use super::command::{self, Command, Put, Rest};
use super::{Body, Reply};

/// The longest line, with its CR LF, in bytes.
pub const MAX_LINE: usize = 224;

/// The longest body, in bytes with its CR LF, that stays in the caller's input
/// until it is complete. A longer one is read into memory of its own: this
/// costs one more system call, but at most this many bytes are copied.
pub const MAX_BUFFERED_BODY: usize = 16 * 1024;

/// The least by which the memory for a long body grows, in bytes.
const MIN_GROWTH: usize = 64 * 1024;

/// What the engine is asked to do. Requests come in the order in which the
/// client sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A command. Before it, its place among those that are [counted](command::counted), if
    /// it is one of them. Of a `put` this is the line only: if a body follows, the body is
    /// the next request, and the put is answered there.
    Command(Option<usize>, Command),
    /// The body of the `put` before, or why there is none.
    Body(Result<Body, NoBody>),
    /// A line that is answered without looking at any state.
    Refused(Reply),
    /// The client speaks HTTP, and the connection is to be closed. Perhaps a page of the web
    /// has its reader's browser send this: the next lines, which it can choose, would be
    /// commands. No line after it is looked at.
    Http,
    /// The client did not send this one: it continues a command that has used up
    /// its time slice.
    Continue(Rest),
}

/// Why the bytes after the line of a `put` are no body. All of them were read
/// and thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBody {
    /// The body is larger than the server takes: `JOB_TOO_BIG`.
    TooBig,
    /// The bytes do not end in CR LF: `EXPECTED_CRLF`.
    NoCrlf,
    /// There was no room for the body: `OUT_OF_MEMORY`.
    NoRoom,
}

/// Cuts one connection's bytes into requests.
pub struct Framer {
    max_job_size: u32,
    expecting: Expecting,
}

enum Expecting {
    Line,
    /// The rest of a line that is too long.
    EndOfLine,
    /// The body of a put whose line has been handed out.
    Body(GrowingBody),
    /// Bytes to throw away, then this request.
    Nothing {
        left: u64,
        then: NoBody,
    },
}

/// A body that is arriving.
pub struct GrowingBody {
    /// The bytes of a long body that have arrived. The reader of the socket
    /// appends the next ones: at most [`missing`](Self::missing) of them.
    pub bytes: Vec<u8>,
    /// The length of the complete body, with its CR LF.
    length: usize,
}

impl GrowingBody {
    /// How many bytes are still to come.
    pub fn missing(&self) -> usize {
        self.length - self.bytes.len()
    }

    /// Allocates memory for more bytes: for as many as have arrived already, but
    /// at least [`MIN_GROWTH`]. So bytes that the client announces and does not
    /// send take none. Returns whether there is some.
    fn grow(&mut self) -> bool {
        if self.bytes.len() < self.bytes.capacity() {
            return true;
        }
        let more = self.bytes.len().max(MIN_GROWTH).min(self.missing());
        self.bytes.try_reserve_exact(more).is_ok()
    }
}

impl Framer {
    /// The framer of a new connection. Bodies may have up to `max_job_size`
    /// bytes.
    pub fn new(max_job_size: u32) -> Framer {
        Framer {
            max_job_size,
            expecting: Expecting::Line,
        }
    }

    /// The next request. Its bytes are removed from the front of `input`.
    /// `None` if more bytes are needed; then the caller must pass what is left
    /// of `input` again, with more bytes after it. A caller that can hold
    /// [`needed`](Self::needed) bytes always makes progress.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Request> {
        match &mut self.expecting {
            Expecting::Line => self.line(input),
            Expecting::EndOfLine => {
                let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
                    skip_but_last_cr(input, input.len());
                    return None;
                };
                *input = &input[end + 2..];
                self.expecting = Expecting::Line;
                Some(Request::Refused(Reply::BadFormat))
            }
            Expecting::Body(body) if body.length <= MAX_BUFFERED_BODY.min(input.len()) => {
                let (wire, rest) = input.split_at(body.length);
                *input = rest;
                self.expecting = Expecting::Line;
                Some(Request::Body(Body::from_wire(wire).ok_or(NoBody::NoCrlf)))
            }
            Expecting::Body(body) => {
                if body.length <= MAX_BUFFERED_BODY || body.bytes.is_empty() && input.is_empty() {
                    return None;
                }
                if !body.grow() {
                    self.refuse_body();
                    return self.next(input);
                }
                let room = body.bytes.capacity() - body.bytes.len();
                let taken = input.len().min(body.missing()).min(room);
                body.bytes.extend_from_slice(&input[..taken]);
                *input = &input[taken..];
                if body.missing() == 0 {
                    let whole = Body::from_wire(std::mem::take(&mut body.bytes));
                    self.expecting = Expecting::Line;
                    return Some(Request::Body(whole.ok_or(NoBody::NoCrlf)));
                }
                // Either more bytes came than there was room for, or none are
                // left.
                (!input.is_empty()).then(|| self.next(input))?
            }
            Expecting::Nothing { left, then } => {
                let taken = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                *input = &input[taken..];
                *left -= taken as u64;
                if *left > 0 {
                    return None;
                }
                let then = *then;
                self.expecting = Expecting::Line;
                Some(Request::Body(Err(then)))
            }
        }
    }

    /// How many bytes of input the caller must be able to hold until the next
    /// request is complete, or until its body grows here.
    pub fn needed(&self) -> usize {
        match &self.expecting {
            Expecting::Body(body) if body.length <= MAX_BUFFERED_BODY => body.length,
            _ => MAX_LINE,
        }
    }

    /// The body that the next bytes belong to, if they belong to a body that
    /// grows here. A caller that reads directly into it saves a copy, and then
    /// calls [`next`](Self::next). If there is no memory for these bytes, they
    /// are thrown away as they come.
    pub fn growing_body(&mut self) -> Option<&mut GrowingBody> {
        if let Expecting::Body(body) = &mut self.expecting
            && !body.bytes.is_empty()
            && !body.grow()
        {
            self.refuse_body();
        }
        match &mut self.expecting {
            Expecting::Body(body) if !body.bytes.is_empty() => Some(body),
            _ => None,
        }
    }

    /// How much memory this takes, in bytes.
    pub fn memory(&self) -> usize {
        match &self.expecting {
            Expecting::Body(body) => body.bytes.len(),
            _ => 0,
        }
    }

    /// Throws away the body that is arriving, because there is no room for it.
    /// The request will be [`NoBody::NoRoom`].
    pub fn refuse_body(&mut self) {
        if let Expecting::Body(body) = &self.expecting {
            self.expecting = Expecting::Nothing {
                left: body.missing() as u64,
                then: NoBody::NoRoom,
            };
        }
    }

    fn line(&mut self, input: &mut &[u8]) -> Option<Request> {
        let window = &input[..input.len().min(MAX_LINE)];
        if is_http(window) {
            *input = &[];
            return Some(Request::Http);
        }
        // As in beanstalkd, the first CR decides: if no LF follows it, any later CR LF
        // in the line is not seen.
        let cr = window.iter().position(|&byte| byte == b'\r');
        let Some(end) = cr.filter(|&cr| window.get(cr + 1) == Some(&b'\n')) else {
            if window.len() == MAX_LINE {
                skip_but_last_cr(input, MAX_LINE);
                self.expecting = Expecting::EndOfLine;
                return self.next(input);
            }
            return None;
        };
        let line = &input[..end];
        *input = &input[end + 2..];
        Some(match command::parse(line) {
            Ok((place, Command::Put(put))) => Request::Command(place, self.put(put)),
            Ok((place, command)) => Request::Command(place, command),
            Err(reply) => Request::Refused(reply),
        })
    }

    /// Decides what the bytes after the line of a put are, and the first of its refusals.
    fn put(&mut self, put: Put) -> Command {
        if put.size > self.max_job_size {
            self.expecting = Expecting::Nothing {
                left: u64::from(put.size) + 2,
                then: NoBody::TooBig,
            };
            return Command::PutTooBig;
        }
        if put.trailing {
            return Command::Malformed;
        }
        self.expecting = Expecting::Body(GrowingBody {
            bytes: Vec::new(),
            length: put.size as usize + 2,
        });
        Command::Put(put)
    }
}

/// Whether these bytes begin like a request of HTTP that has a body, or like the line that
/// each request has before it.
fn is_http(line: &[u8]) -> bool {
    let start = line.get(..5).unwrap_or_default();
    start.eq_ignore_ascii_case(b"post ") || start.eq_ignore_ascii_case(b"host:")
}

/// Throws away the first `length` bytes of a long line. If the last of them is a
/// CR, it stays, since an LF may follow it. (beanstalkd does not notice a CR LF that
/// its 224-byte buffer cuts in two, and so loses the next command.)
fn skip_but_last_cr(input: &mut &[u8], length: usize) {
    let stays = usize::from(input[..length].ends_with(b"\r"));
    *input = &input[length - stays..];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::JobId;

    /// All requests in these pieces of input, as a connection would read them.
    fn requests(max_job_size: u32, segments: &[&[u8]]) -> Vec<Request> {
        let mut framer = Framer::new(max_job_size);
        let mut buffer = Vec::new();
        let mut requests = Vec::new();
        for segment in segments {
            buffer.extend_from_slice(segment);
            let mut input = &buffer[..];
            while let Some(request) = framer.next(&mut input) {
                requests.push(request);
            }
            buffer = input.to_vec();
        }
        assert!(buffer.len() < framer.needed());
        requests
    }

    fn bytewise(max_job_size: u32, bytes: &[u8]) -> Vec<Request> {
        let segments: Vec<&[u8]> = bytes.chunks(1).collect();
        requests(max_job_size, &segments)
    }

    fn quit() -> Request {
        Framer::new(0).next(&mut &b"quit\r\n"[..]).unwrap()
    }

    fn bad_format() -> Request {
        Request::Refused(Reply::BadFormat)
    }

    #[test]
    fn requests_are_the_same_however_their_bytes_arrive() {
        let stream = b"put 0 0 1 3\r\na\r\n\r\nput 0 0 1 0\r\n\r\ndelete 1\r\nnope\r\nst";
        let put = |size| {
            let put = Command::Put(Put {
                priority: crate::protocol::Priority(0),
                delay: crate::protocol::Seconds(0),
                ttr: crate::protocol::Seconds(1),
                size,
                options: None,
                trailing: false,
            });
            Request::Command(Some(0), put)
        };
        let expected = [
            put(3),
            Request::Body(Ok(Body::new(b"a\r\n"))),
            put(0),
            Request::Body(Ok(Body::new(b""))),
            Request::Command(Some(7), Command::Delete(JobId(1))),
            Request::Refused(Reply::UnknownCommand),
        ];
        assert_eq!(requests(10, &[stream]), expected);
        assert_eq!(bytewise(10, stream), expected);
        for cut in 0..stream.len() {
            let (one, two) = stream.split_at(cut);
            assert_eq!(requests(10, &[one, two]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_long_body_is_read_into_memory_of_its_own() {
        let content = vec![b'x'; 20_000];
        let mut framer = Framer::new(65535);
        let mut input: &[u8] = b"put 0 0 1 20000\r\nxxx";
        assert!(matches!(
            framer.next(&mut input),
            Some(Request::Command(_, Command::Put(_)))
        ));
        assert_eq!(framer.next(&mut input), None);
        assert!(input.is_empty());
        let body = framer.growing_body().unwrap();
        assert_eq!(body.missing(), 20_002 - 3);
        body.bytes.extend_from_slice(&content[3..]);
        body.bytes.push(b'\r');
        assert_eq!(framer.next(&mut input), None);
        framer.growing_body().unwrap().bytes.push(b'\n');
        let whole = framer.next(&mut input);
        assert_eq!(whole, Some(Request::Body(Ok(Body::new(&content)))));
        assert!(framer.growing_body().is_none());
    }

    #[test]
    fn a_body_takes_memory_for_the_bytes_that_have_arrived_not_for_those_announced() {
        let mut framer = Framer::new(1 << 30);
        let mut input: &[u8] = b"put 0 0 1 1073741824\r\n";
        framer.next(&mut input);
        assert_eq!(framer.next(&mut input), None);
        assert!(framer.growing_body().is_none());
        let mut input = &[b'x'; 100_000][..];
        assert_eq!(framer.next(&mut input), None);
        assert_eq!((input.len(), framer.memory()), (0, 100_000));
        assert!(framer.growing_body().unwrap().bytes.capacity() <= 200_000);
    }

    #[test]
    fn a_body_must_end_in_crlf_and_takes_two_bytes_more_than_its_size() {
        let got = bytewise(10, b"put 0 0 60 1\r\nABC\r\n");
        assert_eq!(got[1], Request::Body(Err(NoBody::NoCrlf)));
        assert_eq!(got[2..], [Request::Refused(Reply::UnknownCommand)]);
    }

    #[test]
    fn a_body_above_the_limit_is_discarded() {
        let got = bytewise(2, b"put 0 0 1 3 x\r\nabc##quit\r\n");
        assert_eq!(got[1..], [Request::Body(Err(NoBody::TooBig)), quit()]);
    }

    #[test]
    fn a_body_without_room_is_discarded() {
        let mut framer = Framer::new(100_000);
        let mut input: &[u8] = b"put 0 0 1 50000\r\nabc";
        framer.next(&mut input);
        assert_eq!(framer.next(&mut input), None);
        framer.refuse_body();
        assert!(framer.growing_body().is_none());
        let rest = [&[b'x'; 49_999][..], b"quit\r\n"].concat();
        let mut input = &rest[..];
        let refused = Request::Body(Err(NoBody::NoRoom));
        assert_eq!(framer.next(&mut input), Some(refused));
        assert_eq!(input, b"quit\r\n");
    }

    #[test]
    fn a_line_may_have_224_bytes_and_a_longer_one_is_one_error() {
        let longest = [b"stats", &[b'x'; 217][..], b"\r\n"].concat();
        assert_eq!(longest.len(), MAX_LINE);
        assert_eq!(bytewise(0, &longest), [bad_format()]);
        for length in 225..700 {
            let line = [&vec![b'x'; length - 2][..], b"\r\nquit\r\n"].concat();
            let expected = [bad_format(), quit()];
            assert_eq!(bytewise(0, &line), expected, "{length} bytes");
            assert_eq!(requests(0, &[&line]), expected, "{length} bytes at once");
        }
    }

    #[test]
    fn a_line_of_http_is_known_by_its_first_five_bytes_where_a_command_is_expected() {
        for line in ["POST / HTTP/1.1", "Host: a", "host:a", "POST \rdelete 1"] {
            let long = format!("{line}{}", "x".repeat(300));
            for line in [line, &long] {
                let text = format!("stats x\r\n{line}\r\ndelete 1\r\n");
                assert_eq!(
                    requests(0, &[text.as_bytes()]),
                    [bad_format(), Request::Http]
                );
            }
        }
        assert_eq!(
            requests(0, &[b"nonsense\r\nHos", b"t", b":"]).pop(),
            Some(Request::Http)
        );
        let others = "POSTS 1\r\npost\r\n Host:\r\nHosts:\r\nGET / HTTP/1.1\r\n";
        let unknown = Request::Refused(Reply::UnknownCommand);
        assert_eq!(bytewise(0, others.as_bytes()), vec![unknown; 5]);
        let body = bytewise(9, b"put 0 0 1 7\r\nHost: a\r\n").pop();
        assert_eq!(body, Some(Request::Body(Ok(Body::new(b"Host: a")))));
        let long = format!("{}\rHost: a\r\n", "x".repeat(MAX_LINE - 1));
        assert_eq!(bytewise(0, long.as_bytes()), [bad_format()]);
    }

    #[test]
    fn a_lone_cr_hides_the_end_of_the_line_until_224_bytes_have_come() {
        let stalled = b"sta\rts\r\nstats\r\n";
        assert_eq!(bytewise(0, stalled), []);
        let filler = vec![b'x'; MAX_LINE - stalled.len()];
        let resumed = [&stalled[..], &filler, b"yy\r\nquit\r\n"].concat();
        let expected = [bad_format(), quit()];
        assert_eq!(bytewise(0, &resumed), expected);
    }

    /// The framer after the line of a put with this size.
    fn awaiting(size: usize) -> Framer {
        let mut framer = Framer::new(1 << 20);
        let line = format!("put 0 0 1 {size}\r\n");
        framer.next(&mut line.as_bytes()).expect("a put");
        framer
    }

    #[test]
    fn a_short_body_stays_in_the_input_until_it_is_complete() {
        const LONGEST: usize = MAX_BUFFERED_BODY - 2;
        assert_eq!(awaiting(LONGEST).needed(), MAX_BUFFERED_BODY);
        assert_eq!(awaiting(LONGEST + 1).needed(), MAX_LINE);
        for (size, left) in [(LONGEST, 3), (LONGEST + 1, 0)] {
            let (mut framer, mut input) = (awaiting(size), &b"xxx"[..]);
            assert_eq!(framer.next(&mut input), None);
            assert_eq!((input.len(), framer.memory()), (left, 3 - left));
        }
    }

    #[test]
    fn the_memory_of_a_long_body_doubles_as_its_bytes_arrive() {
        let mut framer = awaiting(1_000_000);
        assert_eq!(framer.next(&mut &b""[..]), None);
        assert!(framer.growing_body().is_none());
        framer.next(&mut &b"x"[..]);
        for _ in 0..3 {
            let body = framer.growing_body().expect("some of it has come");
            assert_eq!(body.bytes.capacity(), MIN_GROWTH);
            body.bytes.push(b'x');
        }
        let body = framer.growing_body().expect("some of it has come");
        body.bytes.resize(MIN_GROWTH, b'x');
        for factor in [2, 4] {
            let body = framer.growing_body().expect("some of it has come");
            assert_eq!(body.bytes.capacity(), factor * MIN_GROWTH);
            body.bytes.resize(factor * MIN_GROWTH, b'x');
        }
    }
}
