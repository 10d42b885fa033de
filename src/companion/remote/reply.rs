//! Replies as a client reads them: the bytes of a stream become a [`RawReply`],
//! and this becomes a [`Reply`].
//!
//! The daemon has another type, in `protocol`, for the opposite direction.
//! There the engine makes a reply; here it may come from any server.

use super::facts::{self, Facts, JobFacts};
use crate::failure::{Failure, Outcome};
use crate::text::shown;
use beanpole::protocol::JobId;
use std::fmt;

/// A reply as it came: its line and, if the first word announces one, a chunk.
#[derive(Debug, PartialEq, Eq)]
pub struct RawReply {
    /// The line, without CR LF.
    pub line: Vec<u8>,
    /// The chunk after the line, without CR LF, or as much of it as was wanted.
    pub chunk: Option<Vec<u8>>,
}

/// A reply that the protocol knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Inserted(JobId),
    /// A put with a unique key made no job: this one has the key. The rest of the
    /// reply is its state, and its priority if the put has changed it.
    InsertedBefore(JobId, String),
    /// It answers `put`: the job exists, but is buried.
    Buried(JobId),
    Reserved(Job),
    Found(Job),
    /// A YAML document.
    Ok(Vec<u8>),
    /// It answers `kick`.
    Kicked(u64),
    /// The request about a job, a tube or a connection is done.
    Done(&'static str),
    /// The answer is no: there is no such thing, or it is not in a state for the request.
    No(&'static str),
    /// The server cannot or will not do that.
    Refused(&'static str),
}

/// The id and the body of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    /// As much of the body as was wanted.
    pub body: Vec<u8>,
    /// How many bytes all of it has.
    pub size: u64,
    /// What the server tells of it, if `reserve-with-stats` has told all of that: of a job
    /// with options there is more to tell.
    pub facts: Option<Box<JobFacts>>,
}

/// A reply of one word, its kind, and what it means in words for people, if that is to be said.
type Word = (&'static str, fn(&'static str) -> Reply, &'static str);

#[rustfmt::skip]
const WORDS: [Word; 18] = [
    ("BURIED", Reply::Done, ""),
    ("KICKED", Reply::Done, ""),
    ("DELETED", Reply::Done, ""),
    ("RELEASED", Reply::Done, ""),
    ("TOUCHED", Reply::Done, ""),
    ("PAUSED", Reply::Done, ""),
    ("CLOSED", Reply::Done, ""),
    ("NOT_FOUND", Reply::No, "no such job or tube, or not in a state for this"),
    ("NOT_IGNORED", Reply::No, ""),
    ("TIMED_OUT", Reply::No, "no job came in time"),
    ("DEADLINE_SOON", Reply::No, ""),
    ("EXPECTED_CRLF", Reply::Refused, ""),
    ("JOB_TOO_BIG", Reply::Refused, "the body is larger than the server takes"),
    ("DRAINING", Reply::Refused, "the server takes no new jobs"),
    ("OUT_OF_MEMORY", Reply::Refused, "the server has no room for it"),
    ("INTERNAL_ERROR", Reply::Refused, "the server is in trouble"),
    ("BAD_FORMAT", Reply::Refused, ""),
    ("UNKNOWN_COMMAND", Reply::Refused, "the server does not know this command"),
];

/// A longer line does not come from a queue: the longest known reply is `USING`
/// with a name of 200 bytes.
const LONGEST_LINE: usize = 1024;
/// The largest body that a server can be told to take, in bytes. Memory is taken only as
/// the body comes.
pub const LARGEST_BODY: u64 = 1 << 30;
/// The largest document, in bytes: a list of 300,000 tubes with the longest
/// names. All others are much smaller.
const LARGEST_DOCUMENT: u64 = 1 << 26;

impl RawReply {
    /// The reply at the start of these bytes, and its length, which is more than they are
    /// if the end of its body is not wanted; `None` if it has not come to its end. Of a job's
    /// body only the first `wanted` bytes are kept.
    pub fn parse(bytes: &[u8], wanted: u64) -> Result<Option<(RawReply, usize)>, String> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return match bytes.len() {
                ..=LONGEST_LINE => Ok(None),
                _ => Err(not_understood(&bytes[..40])),
            };
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let line = line
            .strip_suffix(b"\r")
            .ok_or_else(|| not_understood(line))?;
        let whole = |chunk: Option<&[u8]>, length| {
            let (line, chunk) = (line.into(), chunk.map(<[u8]>::to_vec));
            Ok(Some((RawReply { line, chunk }, length)))
        };
        let mut words = line.split(|&byte| byte == b' ');
        // The size follows the id, if there is one.
        let (most, kept, size) = match words.next() {
            Some(b"OK") => (LARGEST_DOCUMENT, u64::MAX, words.next()),
            Some(b"RESERVED" | b"FOUND") => (LARGEST_BODY, wanted, words.nth(1)),
            _ => return whole(None, end + 1),
        };
        match size.and_then(number).ok_or_else(|| not_understood(line))? {
            size if size > most => Err(format!(
                "the server announces {size} bytes, more than the {most} that a reply can have"
            )),
            size if size > kept => match rest.get(..kept as usize) {
                Some(begun) => whole(Some(begun), end + 3 + size as usize),
                None => Ok(None),
            },
            size => match rest.split_at_checked(size as usize) {
                Some((chunk, [b'\r', b'\n', ..])) => whole(Some(chunk), end + 3 + chunk.len()),
                Some((_, [] | [b'\r'])) | None => Ok(None),
                Some(_) => Err(format!(
                    "what follows '{}' does not end where the line says",
                    line.escape_ascii()
                )),
            },
        }
    }

    /// The meaning of the reply, if it belongs to the protocol.
    pub fn understand(self) -> Result<Reply, String> {
        let line = shown(&self.line, false);
        let words: Vec<&str> = line.split(' ').collect();
        let count = words.get(1).and_then(|word| number(word.as_bytes()));
        let id = count.map(JobId);
        let size = words.get(2).and_then(|word| number(word.as_bytes()));
        let job = |body, facts| {
            let (id, size) = (id?, size?);
            Some(Job {
                id,
                body,
                size,
                facts,
            })
        };
        let known = match (words.as_slice(), self.chunk) {
            (["OK", _], Some(chunk)) => Some(Reply::Ok(chunk)),
            (["RESERVED", _, _, told @ ..], Some(body)) => {
                let facts = id.and_then(|id| JobFacts::of_reserved(id, told));
                job(body, facts.map(Box::new)).map(Reply::Reserved)
            }
            (["FOUND", _, _], Some(body)) => job(body, None).map(Reply::Found),
            (["INSERTED", _], _) => id.map(Reply::Inserted),
            (["INSERTED", _, rest @ ..], _) if rest.len() <= 2 => {
                id.map(|id| Reply::InsertedBefore(id, rest.join(" ")))
            }
            (["BURIED", _], _) => id.map(Reply::Buried),
            (["KICKED", _], _) => count.map(Reply::Kicked),
            (["WATCHING", _], _) => count.map(|_| Reply::Done("WATCHING")),
            (["USING", _], _) => Some(Reply::Done("USING")),
            ([word], _) => {
                let known = WORDS.iter().find(|(known, ..)| known == word);
                known.map(|(word, kind, _)| kind(word))
            }
            _ => None,
        };
        known.ok_or_else(|| not_understood(&self.line))
    }
}

/// The message about such a line.
pub fn not_understood(line: &[u8]) -> String {
    let line = line[..line.len().min(LONGEST_LINE)].escape_ascii();
    format!("the server answered '{line}', which is not of the beanstalk protocol")
}

/// The number that these bytes write, if they are digits and nothing else.
pub fn number(digits: &[u8]) -> Option<u64> {
    // `parse` would accept a sign, but a sign is no digit.
    let digits = digits.first()?.is_ascii_digit().then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// What an answer says. It is a failure if it is none to what was `asked`.
impl Reply {
    /// The request is done.
    pub fn done(self, asked: &str) -> Outcome<()> {
        match self {
            Reply::Done(_) => Ok(()),
            other => Err(Failure::unexpected(asked, &other)),
        }
    }

    /// Whether the request is done.
    pub fn is_done(self, asked: &str) -> Outcome<bool> {
        match self {
            Reply::Done(_) => Ok(true),
            Reply::No(_) => Ok(false),
            other => Err(Failure::unexpected(asked, &other)),
        }
    }

    /// The job, if there is one.
    pub fn job(self, asked: &str) -> Outcome<Option<Job>> {
        match self {
            Reply::Found(job) | Reply::Reserved(job) => Ok(Some(job)),
            Reply::No(_) => Ok(None),
            other => Err(Failure::unexpected(asked, &other)),
        }
    }

    /// What is in the document.
    pub fn read<T>(self, asked: &str, parse: fn(&[u8]) -> Result<T, String>) -> Outcome<T> {
        match self {
            Reply::Ok(document) => parse(&document)
                .map_err(|reason| Failure::Unreachable(format!("{asked}: {reason}"))),
            other => Err(Failure::unexpected(asked, &other)),
        }
    }

    /// The dictionary, if there is one.
    pub fn facts(self, asked: &str) -> Outcome<Option<Facts>> {
        match self {
            Reply::No(_) => Ok(None),
            other => other.read(asked, Facts::parse).map(Some),
        }
    }

    /// What is listed, and the number from which to go on.
    pub fn listed(self, asked: &str) -> Outcome<(Vec<Facts>, Option<u64>)> {
        self.read(asked, facts::list)
    }
}

impl Failure {
    /// The failure for a reply with which the command cannot go on.
    pub fn unexpected(asked: impl fmt::Display, reply: &Reply) -> Failure {
        let line = reply.to_string();
        let known = WORDS.iter().find(|(word, ..)| *word == line);
        Failure::Refused(match known {
            Some((.., meaning)) if !meaning.is_empty() => format!("{asked}: {meaning} ({line})"),
            _ => format!("{asked}: the server answered {line}"),
        })
    }
}

/// The line of the reply, without CR LF and without the data.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Inserted(id) => write!(f, "INSERTED {id}"),
            Reply::InsertedBefore(id, rest) => write!(f, "INSERTED {id} {rest}"),
            Reply::Buried(id) => write!(f, "BURIED {id}"),
            Reply::Reserved(job) => write!(f, "RESERVED {} {}", job.id, job.size),
            Reply::Found(job) => write!(f, "FOUND {} {}", job.id, job.size),
            Reply::Ok(document) => write!(f, "OK {}", document.len()),
            Reply::Kicked(count) => write!(f, "KICKED {count}"),
            Reply::Done(word) | Reply::No(word) | Reply::Refused(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
        let parsed = RawReply::parse(bytes, u64::MAX)?;
        parsed
            .map(|(raw, length)| Ok((raw.understand()?, length)))
            .transpose()
    }

    #[test]
    fn a_reply_is_read_once_it_is_complete() {
        let wire = b"RESERVED 7 4\r\na\r\nb\r\nDELETED\r\n";
        let job = Job {
            id: JobId(7),
            body: b"a\r\nb".into(),
            size: 4,
            facts: None,
        };
        for cut in 0..20 {
            assert_eq!(read(&wire[..cut]), Ok(None), "{cut} bytes");
        }
        assert_eq!(read(wire), Ok(Some((Reply::Reserved(job), 20))));
        assert_eq!(read(&wire[20..]), Ok(Some((Reply::Done("DELETED"), 9))));
    }

    #[test]
    fn a_body_is_kept_as_far_as_it_is_wanted() {
        let wire = b"FOUND 7 4\r\nabcd\r\n";
        for body in 0..4 {
            let cut = 11 + body as usize;
            let parse = |bytes| RawReply::parse(bytes, body);
            assert_eq!(parse(&wire[..cut - 1]), Ok(None));
            let (raw, length) = parse(&wire[..cut]).unwrap().unwrap();
            assert_eq!(
                (raw.chunk.as_deref(), length),
                (Some(&wire[11..cut]), wire.len())
            );
            let Ok(Reply::Found(Job { size: 4, .. })) = raw.understand() else {
                panic!("all of it has four bytes");
            };
        }
    }

    #[test]
    fn each_reply_of_one_word_is_known_and_written_as_it_was_read() {
        for (word, kind, _) in WORDS {
            let wire = format!("{word}\r\n");
            assert_eq!(read(wire.as_bytes()), Ok(Some((kind(word), wire.len()))));
            assert_eq!(kind(word).to_string(), word);
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_an_error_at_once() {
        for wire in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"OK\r\n",
            b"OK many\r\n",
            b"OK 18446744073709551615\r\n",
            b"OK 1\r\nabcd",
            b"RESERVED x 1\r\na\r\n",
            b"INSERTED -1\r\n",
            b"DELETED\n",
            b"\r\n",
            b"\xff\r\n",
            &[b'x'; 2000],
        ] {
            assert!(read(wire).is_err(), "{}", wire.escape_ascii());
        }
    }
}
