//! Masks what two servers may answer differently: times, and facts about the process and
//! the machine.

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

/// Replies in a form that is the same for both servers if they agree.
pub fn masked(replies: &[u8]) -> Vec<u8> {
    let lines = replies.split_inclusive(|&byte| byte == b'\n');
    lines.map(masked_line).collect::<Vec<_>>().concat()
}

fn masked_line(line: &[u8]) -> Vec<u8> {
    let colon = line.windows(2).position(|pair| pair == b": ");
    let is_own = |key: &[u8]| OWN.iter().any(|one| one.as_bytes() == key);
    match colon.map(|at| (&line[..at], line[at + 2..].trim_ascii_end())) {
        // The length of a document depends on what is masked.
        None if line.starts_with(b"OK ") => b"OK\n".into(),
        Some((key, _)) if is_own(key) => [key, b": *\n"].concat(),
        // The id of a server; that of a job is shorter.
        Some((b"id", value)) if value.len() == 16 => b"id: *\n".into(),
        _ => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_must_differ_are_masked() {
        let ours = b"OK 35\r\n---\nid: 7\ntube: a\nage: 3\npri: 5\nversion: \"1.13\"\n";
        let theirs = b"OK 34\r\n---\nid: 7\ntube: a\nage: 4\npri: 5\nversion: 1.12\n";
        assert_eq!(masked(ours), masked(theirs));
        let other = b"OK 34\r\n---\nid: 8\ntube: a\nage: 4\npri: 5\nversion: 1.12\n";
        assert_ne!(masked(other), masked(theirs));
        let job = b"RESERVED 1 3\r\nid:\r\n";
        assert_eq!(masked(job), job);
    }
}
