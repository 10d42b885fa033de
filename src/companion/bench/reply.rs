//! The replies that a load generator meets, cut out of what was received.
//!
//! Only the shapes are checked here; whether a reply is the one that was due
//! is the business of those who asked. Replies that no scenario hopes for
//! (OUT_OF_MEMORY, NOT_FOUND, …) are `Other`, and end a run.

/// One complete reply.
#[derive(Debug, PartialEq, Eq)]
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

/// The longest line that a well-formed reply can have: `USING` and a name.
const LONGEST_LINE: usize = 224;

/// The first reply in `input` and how many bytes it takes; `None` while it is
/// incomplete. The error says what is wrong with its form.
pub fn first_reply(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let searched = &input[..input.len().min(LONGEST_LINE)];
    let Some(end) = searched.iter().position(|&byte| byte == b'\n') else {
        return match input.len() < LONGEST_LINE {
            true => Ok(None),
            false => Err(format!("a line without an end: {}", shown(searched))),
        };
    };
    let Some(line) = input[..end].strip_suffix(b"\r") else {
        return Err(format!(
            "a line that ends without CR: {}",
            shown(&input[..end])
        ));
    };
    let after = end + 1;
    let plain = |reply| Ok(Some((reply, after)));
    if let Some(id) = line.strip_prefix(b"INSERTED ") {
        plain(Reply::Inserted(number(id)?))
    } else if let Some(rest) = line.strip_prefix(b"RESERVED ") {
        let Some(space) = rest.iter().position(|&byte| byte == b' ') else {
            return Err(format!("a number is missing: {}", shown(line)));
        };
        let id = number(&rest[..space])?;
        with_body(input, after, number(&rest[space + 1..])?, |body| {
            Reply::Reserved(id, body)
        })
    } else if let Some(bytes) = line.strip_prefix(b"OK ") {
        with_body(input, after, number(bytes)?, Reply::Data)
    } else if line == b"DELETED" {
        plain(Reply::Deleted)
    } else if let Some(tube) = line.strip_prefix(b"USING ") {
        plain(Reply::Using(tube))
    } else if let Some(count) = line.strip_prefix(b"WATCHING ") {
        plain(Reply::Watching(number(count)?))
    } else {
        plain(Reply::Other(line))
    }
}

/// The reply whose body of `bytes` bytes begins at `start`, if all of it is there.
fn with_body<'a>(
    input: &'a [u8],
    start: usize,
    bytes: u64,
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
) -> Result<Option<(Reply<'a>, usize)>, String> {
    let end = usize::try_from(bytes)
        .ok()
        .and_then(|bytes| start.checked_add(bytes));
    let Some((end, after)) = end.and_then(|end| Some((end, end.checked_add(2)?))) else {
        return Err(format!("a body of {bytes} bytes"));
    };
    if input.len() < after {
        return Ok(None);
    }
    match &input[end..after] {
        b"\r\n" => Ok(Some((reply(&input[start..end]), after))),
        other => Err(format!(
            "a body of {bytes} bytes that ends in {}",
            shown(other)
        )),
    }
}

/// The number that these digits, and nothing else, write.
pub fn number(digits: &[u8]) -> Result<u64, String> {
    let wrong = || format!("not a number: {}", shown(digits));
    if digits.is_empty() {
        return Err(wrong());
    }
    digits.iter().try_fold(0u64, |value, &byte| match byte {
        b'0'..=b'9' => value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(byte - b'0')))
            .ok_or_else(wrong),
        _ => Err(wrong()),
    })
}

/// Bytes from a peer, fit for a message: escaped, and cut where they are long.
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
    fn an_unfinished_reply_is_waited_for_at_every_byte() {
        let whole = b"RESERVED 12 5\r\nhello\r\n";
        for end in 0..whole.len() {
            assert_eq!(first_reply(&whole[..end]), Ok(None), "{end} bytes");
        }
        assert_eq!(
            first_reply(whole),
            Ok(Some((Reply::Reserved(12, b"hello"), 22)))
        );
    }

    #[test]
    fn malformed_replies_are_told() {
        for (input, message) in [
            (&b"INSERTED x\r\n"[..], "not a number: \"x\""),
            (b"INSERTED \r\n", "not a number: \"\""),
            (
                b"INSERTED 7\n",
                "a line that ends without CR: \"INSERTED 7\"",
            ),
            (b"RESERVED 7\r\n", "a number is missing: \"RESERVED 7\""),
            (
                b"RESERVED 7 2\r\nabcd",
                "a body of 2 bytes that ends in \"cd\"",
            ),
            (
                b"INSERTED 18446744073709551616\r\n",
                "not a number: \"18446744073709551616\"",
            ),
            (
                b"OK 18446744073709551615\r\n",
                "a body of 18446744073709551615 bytes",
            ),
        ] {
            assert_eq!(first_reply(input), Err(message.into()));
        }
        let endless = [b'x'; 300];
        assert!(
            first_reply(&endless)
                .unwrap_err()
                .starts_with("a line without an end")
        );
    }
}
