//! Framing: the bytes of a connection to [`Request`]s.
//!
//! Finds where lines end, which bytes are a body, and what to throw away. It
//! holds no input buffer of its own: bytes come from the caller's, but for a
//! large body that has not wholly arrived, which gets its final allocation at
//! once so that the rest can be read straight into it.

use super::command::{self, Command, LineError, Put};
use super::{Body, Reply};
use crate::sys;
use std::sync::Arc;

/// The longest line, with its CR LF, in bytes.
pub const MAX_LINE: usize = 224;

/// The longest body, in bytes with its CR LF, that is left in the caller's
/// input until it is complete. A longer one is read into its own allocation:
/// one more system call then, but never more than this much copied.
pub const MAX_BUFFERED_BODY: usize = 16 * 1024;

/// What the engine is asked to do, in the order in which it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A command. A `put` whose body follows is answered when that has come:
    /// the next request then tells of the body.
    Command(Command),
    /// The body of the `put` before.
    Body(Body),
    /// The body of the `put` before did not end in CR LF: `EXPECTED_CRLF`.
    BodyWithoutCrlf,
    /// The body of the `put` before had no room and was thrown away:
    /// `OUT_OF_MEMORY`.
    BodyWithoutRoom,
    /// The body of the `put` before was above the size limit and was thrown
    /// away: `JOB_TOO_BIG`.
    BodyTooBig,
    /// A line that is answered without looking at any state.
    Refused(Reply),
}

impl Request {
    /// Whether the connection may have to wait for the answer.
    pub fn may_wait(&self) -> bool {
        matches!(
            self,
            Request::Command(Command::Reserve | Command::ReserveWithTimeout(_))
        )
    }
}

/// Cuts one connection's bytes into requests.
pub struct Framer {
    max_job_size: u32,
    expecting: Expecting,
}

enum Expecting {
    Line,
    /// The rest of a line that is too long. Holds whether the last byte seen
    /// was a CR.
    EndOfLine {
        after_cr: bool,
    },
    /// The body of a put whose line has been handed out.
    Body(Put),
    /// The rest of a body: its allocation and how much of it has come.
    RestOfBody {
        wire: Arc<[u8]>,
        filled: usize,
    },
    /// So many bytes that nobody wants, then this request.
    Nothing {
        left: u64,
        then: Request,
    },
}

impl Framer {
    /// For a new connection. Bodies may have up to `max_job_size` bytes.
    pub fn new(max_job_size: u32) -> Framer {
        Framer {
            max_job_size,
            expecting: Expecting::Line,
        }
    }

    /// The next request, its bytes taken from the front of `input`; `None` if
    /// more bytes are needed. What is then left of `input` must come again,
    /// with more behind it: a caller that can hold [`needed`](Self::needed)
    /// bytes always gets on.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Request> {
        match &mut self.expecting {
            Expecting::Line => self.line(input),
            Expecting::EndOfLine { after_cr } => {
                let end = end_of_long_line(input, after_cr)?;
                *input = &input[end..];
                self.expecting = Expecting::Line;
                Some(Request::Refused(Reply::BadFormat))
            }
            Expecting::Body(put) => {
                let length = wire_length(put);
                let Some((wire, rest)) = input.split_at_checked(length) else {
                    if length > MAX_BUFFERED_BODY {
                        self.begin_body(length, input);
                    }
                    return None;
                };
                *input = rest;
                self.expecting = Expecting::Line;
                Some(body(wire.into()))
            }
            Expecting::RestOfBody { wire, filled } => {
                let missing = unshared(wire, *filled);
                let taken = missing.len().min(input.len());
                missing[..taken].copy_from_slice(&input[..taken]);
                *input = &input[taken..];
                self.advance_body(taken)
            }
            Expecting::Nothing { left, .. } => {
                let taken = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                *input = &input[taken..];
                *left -= taken as u64;
                if *left > 0 {
                    return None;
                }
                match std::mem::replace(&mut self.expecting, Expecting::Line) {
                    Expecting::Nothing { then, .. } => Some(then),
                    _ => unreachable!("matched above"),
                }
            }
        }
    }

    /// How many bytes of input the next request can take at most, before it is
    /// complete or on its way into a space of its own.
    pub fn needed(&self) -> usize {
        match &self.expecting {
            Expecting::Body(put) => wire_length(put).min(MAX_BUFFERED_BODY),
            _ => MAX_LINE,
        }
    }

    /// Where the next bytes belong if they are the rest of a body: reading
    /// them into this space, and no further, spares a copy. Tell
    /// [`advance_body`](Self::advance_body) how many have come.
    pub fn body_space(&mut self) -> Option<&mut [u8]> {
        match &mut self.expecting {
            Expecting::RestOfBody { wire, filled } => Some(unshared(wire, *filled)),
            _ => None,
        }
    }

    /// So many bytes have been put into [`body_space`](Self::body_space); the
    /// request, if the body is now complete.
    pub fn advance_body(&mut self, count: usize) -> Option<Request> {
        let Expecting::RestOfBody { wire, filled } = &mut self.expecting else {
            return None;
        };
        *filled += count;
        if *filled < wire.len() {
            return None;
        }
        match std::mem::replace(&mut self.expecting, Expecting::Line) {
            Expecting::RestOfBody { wire, .. } => Some(body(wire)),
            _ => unreachable!("matched above"),
        }
    }

    /// Throws the body of the last `put` away as it comes, for want of room;
    /// [`Request::BodyWithoutRoom`] stands in its place.
    pub fn refuse_body(&mut self) {
        let left = match &self.expecting {
            Expecting::Body(put) => wire_length(put),
            Expecting::RestOfBody { wire, filled } => wire.len() - filled,
            _ => return,
        };
        self.expecting = Expecting::Nothing {
            left: left as u64,
            then: Request::BodyWithoutRoom,
        };
    }

    fn line(&mut self, input: &mut &[u8]) -> Option<Request> {
        let window = &input[..input.len().min(MAX_LINE)];
        // As in the reference server, the first CR decides: without a LF
        // behind it, it hides every later end of line from view.
        let cr = window.iter().position(|&byte| byte == b'\r');
        let Some(end) = cr.filter(|&cr| window.get(cr + 1) == Some(&b'\n')) else {
            if window.len() == MAX_LINE {
                let after_cr = window.ends_with(b"\r");
                *input = &input[MAX_LINE..];
                self.expecting = Expecting::EndOfLine { after_cr };
                return self.next(input);
            }
            return None;
        };
        let line = &input[..end];
        *input = &input[end + 2..];
        Some(match command::parse(line) {
            Ok(Command::Put(put)) => self.put(put),
            Ok(command) => Request::Command(command),
            Err(LineError::Malformed) => Request::Refused(Reply::BadFormat),
            Err(LineError::Unknown) => Request::Refused(Reply::UnknownCommand),
        })
    }

    fn put(&mut self, put: Put) -> Request {
        self.expecting = if put.size > self.max_job_size {
            Expecting::Nothing {
                left: u64::from(put.size) + 2,
                then: Request::BodyTooBig,
            }
        } else if put.trailing {
            Expecting::Line
        } else {
            Expecting::Body(put)
        };
        Request::Command(Command::Put(put))
    }

    fn begin_body(&mut self, length: usize, input: &mut &[u8]) {
        let mut wire = sys::zeroed_bytes(length);
        let filled = input.len();
        unshared(&mut wire, 0)[..filled].copy_from_slice(input);
        *input = &[];
        self.expecting = Expecting::RestOfBody { wire, filled };
    }
}

fn wire_length(put: &Put) -> usize {
    put.size as usize + 2
}

fn body(wire: Arc<[u8]>) -> Request {
    Body::from_wire(wire).map_or(Request::BodyWithoutCrlf, Request::Body)
}

fn unshared(wire: &mut Arc<[u8]>, from: usize) -> &mut [u8] {
    let bytes = Arc::get_mut(wire).expect("a body is shared only once it is complete");
    &mut bytes[from..]
}

/// Where the line ends that began before `input`, if it does. The reference
/// server overlooks a CR LF that its 224-byte buffer cuts in two, and then
/// swallows the next command; we do not.
fn end_of_long_line(input: &mut &[u8], after_cr: &mut bool) -> Option<usize> {
    if *after_cr && input.first() == Some(&b'\n') {
        return Some(1);
    }
    let end = input.windows(2).position(|pair| pair == b"\r\n");
    if end.is_none() && !input.is_empty() {
        *after_cr = input.ends_with(b"\r");
        *input = &[];
    }
    end.map(|at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::JobId;

    /// All requests in these segments, as a connection would read them.
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

    fn bad_format() -> Request {
        Request::Refused(Reply::BadFormat)
    }

    #[test]
    fn segments_do_not_matter() {
        let stream = b"put 0 0 1 3\r\na\r\n\r\nput 0 0 1 0\r\n\r\ndelete 1\r\nnope\r\nst";
        let put = |size| {
            Request::Command(Command::Put(Put {
                priority: crate::protocol::Priority(0),
                delay: crate::protocol::Seconds(0),
                ttr: crate::protocol::Seconds(1),
                size,
                trailing: false,
            }))
        };
        let expected = [
            put(3),
            Request::Body(Body::new(b"a\r\n")),
            put(0),
            Request::Body(Body::new(b"")),
            Request::Command(Command::Delete(JobId(1))),
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
    fn a_large_body_is_read_into_its_own_space() {
        let content = vec![b'x'; 20_000];
        let mut framer = Framer::new(65535);
        let mut input: &[u8] = b"put 0 0 1 20000\r\nxxx";
        assert!(matches!(
            framer.next(&mut input),
            Some(Request::Command(Command::Put(_)))
        ));
        assert_eq!(framer.next(&mut input), None);
        assert!(input.is_empty());
        let space = framer.body_space().unwrap();
        assert_eq!(space.len(), 20_002 - 3);
        space.copy_from_slice(&[&content[3..], b"\r\n"].concat());
        assert_eq!(framer.advance_body(19_998), None);
        let whole = framer.advance_body(1);
        assert_eq!(whole, Some(Request::Body(Body::new(&content))));
        assert_eq!(framer.body_space(), None);
    }

    #[test]
    fn a_body_must_end_in_crlf_and_takes_two_bytes_more_than_its_size() {
        let got = bytewise(10, b"put 0 0 60 1\r\nABC\r\n");
        assert_eq!(got[1], Request::BodyWithoutCrlf);
        assert_eq!(got[2..], [Request::Refused(Reply::UnknownCommand)]);
    }

    #[test]
    fn a_body_above_the_limit_is_swallowed() {
        let got = bytewise(2, b"put 0 0 1 3 x\r\nabc##quit\r\n");
        assert_eq!(
            got[1..],
            [Request::BodyTooBig, Request::Command(Command::Quit)]
        );
    }

    #[test]
    fn a_body_without_room_is_swallowed() {
        let mut framer = Framer::new(100_000);
        let mut input: &[u8] = b"put 0 0 1 50000\r\nabc";
        framer.next(&mut input);
        assert_eq!(framer.next(&mut input), None);
        framer.refuse_body();
        assert_eq!(framer.body_space(), None);
        let rest = [&[b'x'; 49_999][..], b"quit\r\n"].concat();
        let mut input = &rest[..];
        assert_eq!(framer.next(&mut input), Some(Request::BodyWithoutRoom));
        assert_eq!(input, b"quit\r\n");
    }

    #[test]
    fn a_line_of_224_bytes_passes_and_longer_ones_are_one_error() {
        let longest = [b"stats", &[b'x'; 217][..], b"\r\n"].concat();
        assert_eq!(longest.len(), MAX_LINE);
        assert_eq!(bytewise(0, &longest), [bad_format()]);
        for length in 225..700 {
            let line = [&vec![b'x'; length - 2][..], b"\r\nquit\r\n"].concat();
            let expected = [bad_format(), Request::Command(Command::Quit)];
            assert_eq!(bytewise(0, &line), expected, "{length} bytes");
            assert_eq!(requests(0, &[&line]), expected, "{length} bytes at once");
        }
    }

    #[test]
    fn a_lone_cr_hides_the_end_of_the_line_until_224_bytes_have_come() {
        let stalled = b"sta\rts\r\nstats\r\n";
        assert_eq!(bytewise(0, stalled), []);
        let filler = vec![b'x'; MAX_LINE - stalled.len()];
        let resumed = [&stalled[..], &filler, b"yy\r\nquit\r\n"].concat();
        let expected = [bad_format(), Request::Command(Command::Quit)];
        assert_eq!(bytewise(0, &resumed), expected);
    }
}
