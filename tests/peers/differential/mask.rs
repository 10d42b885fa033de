//! Masks what two servers may answer differently: times, facts about the
//! process and the machine, and the quotes around texts.

/// Keys whose values are not compared.
const OWN: &[&str] = &[
    "age",
    "cmd-stats",
    "hostname",
    "id",
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
    "max-connections",
    "max-memory",
    "memory-used",
    "put-refusal",
    "puts-refused",
    "reserved-by",
    "total-buries",
    "total-kicks",
    "total-releases",
    "total-reserves",
    "total-timeouts",
];

/// The reply in a form that is the same for both servers if they agree.
pub fn masked(line: &[u8], chunk: Option<&[u8]>) -> Vec<u8> {
    let Some(chunk) = chunk else {
        return line.to_vec();
    };
    if !line.starts_with(b"OK ") {
        return [line, b"\r\n", chunk].concat();
    }
    // The length of the document depends on what is masked, so it is left out.
    let mut text = b"OK".to_vec();
    let is_job = chunk.starts_with(b"---\nid: ");
    for line in chunk.split(|&byte| byte == b'\n') {
        let is_added = |key: &&str| {
            let rest = line.strip_prefix(key.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b": "))
        };
        if ADDED.iter().any(is_added) {
            continue;
        }
        text.push(b'\n');
        let colon = line.windows(2).position(|pair| pair == b": ");
        let Some((key, value)) = colon.map(|at| (&line[..at], &line[at + 2..])) else {
            text.extend_from_slice(line);
            continue;
        };
        let is_own = OWN.iter().any(|own| own.as_bytes() == key) && !(is_job && key == b"id");
        let value = if is_own { b"*" } else { unquoted(value) };
        text.extend_from_slice(&[key, b": ", value].concat());
    }
    text
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_must_differ_are_masked() {
        let ours = b"---\nid: 7\ntube: \"a\"\nage: 3\npri: 5\nreserved-by: 0\n";
        let theirs = b"---\nid: 7\ntube: a\nage: 4\npri: 5\n";
        assert_eq!(masked(b"OK 51", Some(ours)), masked(b"OK 34", Some(theirs)));
        let other = b"---\nid: 8\ntube: a\nage: 4\npri: 5\n";
        assert_ne!(
            masked(b"OK 34", Some(other)),
            masked(b"OK 34", Some(theirs))
        );
        let job = masked(b"RESERVED 1 3", Some(b"id:"));
        assert_eq!(job, b"RESERVED 1 3\r\nid:");
    }
}
