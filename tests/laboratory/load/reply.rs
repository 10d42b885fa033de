//! The replies that a load generator meets. They refer to the bytes that were
//! received: nothing is copied.
//!
//! Only the form of a reply is checked here; the caller checks whether it is
//! the expected one. Replies that no scenario expects (OUT_OF_MEMORY,
//! NOT_FOUND, …) are `Other`, and end a run.

use companion::server::reply::{Frame, not_understood, number};
use std::fmt;

/// One complete reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `INSERTED <id>`
    Inserted(u64),
    /// `RESERVED <id> <bytes>` and the body
    Reserved(u64, &'a [u8]),
    /// `DELETED`
    Deleted,
    /// `USING <tube>`
    Using(&'a [u8]),
    /// `WATCHING <count>`
    Watching(u64),
    /// `OK <bytes>` and the data
    Data(&'a [u8]),
    /// Any other line
    Other(&'a [u8]),
}

/// The first reply in `input`, and how many bytes it takes. `None` if it is
/// incomplete. The error says what is wrong with its form.
pub fn first_reply(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let Some(frame) = Frame::first(input)? else {
        return Ok(None);
    };
    let reply = understood(frame.line, frame.chunk).ok_or_else(|| not_understood(frame.line))?;
    Ok(Some((reply, frame.length)))
}

/// The meaning of a reply; `None` if it has no number where one must be.
fn understood<'a>(line: &'a [u8], chunk: Option<&'a [u8]>) -> Option<Reply<'a>> {
    let mut parts = line.splitn(2, |&byte| byte == b' ');
    let word = parts.next()?;
    let rest = parts.next().unwrap_or_default();
    Some(match (word, chunk) {
        (b"INSERTED", None) => Reply::Inserted(number(rest)?),
        (b"DELETED", None) if rest.is_empty() => Reply::Deleted,
        (b"USING", None) => Reply::Using(rest),
        (b"WATCHING", None) => Reply::Watching(number(rest)?),
        (b"RESERVED", Some(body)) => {
            // The length after the id has been used already, to find the end of
            // the body.
            let id = rest.split(|&byte| byte == b' ').next()?;
            Reply::Reserved(number(id)?, body)
        }
        (b"OK", Some(data)) => Reply::Data(data),
        _ => Reply::Other(line),
    })
}

/// The reply as it came, with long data cut.
impl fmt::Display for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Inserted(id) => write!(f, "INSERTED {id}"),
            Reply::Reserved(id, body) => write!(f, "RESERVED {id} with {}", shown(body)),
            Reply::Deleted => f.write_str("DELETED"),
            Reply::Using(tube) => write!(f, "USING {}", tube.escape_ascii()),
            Reply::Watching(count) => write!(f, "WATCHING {count}"),
            Reply::Data(data) => write!(f, "OK with {}", shown(data)),
            Reply::Other(line) => write!(f, "{}", line.escape_ascii()),
        }
    }
}

/// Bytes of a peer for a message: they are escaped, and cut if they are long.
pub fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=80 => format!("\"{}\"", bytes.escape_ascii()),
        all => format!("\"{}…\" ({all} bytes)", bytes[..60].escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_where_they_end() {
        for (input, reply, bytes) in [
            (&b"INSERTED 7\r\nINSERTED 8\r\n"[..], Reply::Inserted(7), 12),
            (
                b"RESERVED 7 3\r\na\nb\r\nrest",
                Reply::Reserved(7, b"a\nb"),
                19,
            ),
            (b"RESERVED 7 0\r\n\r\n", Reply::Reserved(7, b""), 16),
            (b"DELETED\r\n", Reply::Deleted, 9),
            (b"WATCHING 2\r\n", Reply::Watching(2), 12),
            (b"USING a\r\n", Reply::Using(b"a"), 9),
            (b"OK 4\r\n---\n\r\n", Reply::Data(b"---\n"), 12),
            (b"NOT_FOUND\r\n", Reply::Other(b"NOT_FOUND"), 11),
        ] {
            assert_eq!(
                first_reply(input),
                Ok(Some((reply, bytes))),
                "{}",
                shown(input)
            );
        }
    }

    #[test]
    fn numbers_that_are_none_are_told() {
        for line in ["INSERTED x", "INSERTED ", "INSERTED +7", "RESERVED x 1"] {
            let input = format!("{line}\r\na\r\n");
            let told = first_reply(input.as_bytes());
            assert_eq!(told, Err(not_understood(line.as_bytes())));
        }
    }
}
