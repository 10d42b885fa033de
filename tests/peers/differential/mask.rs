//! Masks what two servers may answer differently: times, facts about the
//! process and the machine, and the quotes around texts.

/// Keys whose values are not compared.
const OWN: &[&str] = &[
    "age",
    "hostname",
    "os",
    "pause-time-left",
    "pid",
    "platform",
    "rusage-stime",
    "rusage-utime",
    "time-left",
    "uptime",
    "version",
];

/// Keys that only our server has. They come after those of both.
const ADDED: &[&str] = &[
    "binlog-live-size",
    "binlog-size",
    "idempotency-keys-taken",
    "jobs-expired",
    "max-connections",
    "max-jobs-per-tube",
    "max-memory",
    "memory-used",
    "put-refusal",
    "puts-refused",
    "puts-refused-by-tubes",
];

/// Replies in a form that is the same for both servers if they agree.
pub fn masked(replies: &[u8]) -> Vec<u8> {
    let lines = replies.split_inclusive(|&byte| byte == b'\n');
    lines.map(masked_line).collect::<Vec<_>>().concat()
}

fn masked_line(line: &[u8]) -> Vec<u8> {
    let colon = line.windows(2).position(|pair| pair == b": ");
    let is_key = |keys: &[&str], key: &[u8]| keys.iter().any(|one| one.as_bytes() == key);
    match colon.map(|at| (&line[..at], line[at + 2..].trim_ascii_end())) {
        // The length of a document depends on what is masked.
        None if line.starts_with(b"OK ") => b"OK\n".into(),
        None => line.into(),
        Some((key, _)) if is_key(ADDED, key) => Vec::new(),
        Some((key, _)) if is_key(OWN, key) => [key, b": *\n"].concat(),
        // The id of a server; that of a job is shorter.
        Some((b"id", value)) if value.len() == 16 => b"id: *\n".into(),
        Some((key, value)) => {
            let quoted = value.strip_prefix(b"\"");
            let inner = quoted.and_then(|inner| inner.strip_suffix(b"\""));
            [key, b": ", inner.unwrap_or(value), b"\n"].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_must_differ_are_masked() {
        let ours = b"OK 35\r\n---\nid: 7\ntube: \"a\"\nage: 3\npri: 5\nputs-refused: 0\n";
        let theirs = b"OK 34\r\n---\nid: 7\ntube: a\nage: 4\npri: 5\n";
        assert_eq!(masked(ours), masked(theirs));
        let other = b"OK 34\r\n---\nid: 8\ntube: a\nage: 4\npri: 5\n";
        assert_ne!(masked(other), masked(theirs));
        let job = b"RESERVED 1 3\r\nid:\r\n";
        assert_eq!(masked(job), job);
    }
}
