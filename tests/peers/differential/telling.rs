//! What was sent and answered, as a transcript writes it.

use std::fmt::Write;

/// What is different in two replies: one line of each, of long ones.
pub fn difference(ours: &[u8], theirs: &[u8]) -> String {
    let lines = |reply: &[u8]| {
        reply
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (ours, theirs): (Vec<_>, Vec<_>) = (lines(ours), lines(theirs));
    let mut pairs = ours.iter().zip(&theirs);
    match pairs.find(|(our, their)| our != their) {
        Some((our, their)) => format!("ours {}, theirs {}", shown(our), shown(their)),
        None => format!("ours has {} lines, theirs {}", ours.len(), theirs.len()),
    }
}

/// Bytes as a transcript shows them, the middle of long ones left out.
pub fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        ..=300 => bytes.escape_ascii().to_string(),
        all => format!("{}... ({all} bytes)", bytes[..200].escape_ascii()),
    }
}

/// What a client says, as a transcript writes it.
pub fn spoken(name: &str, bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let (line, ending) = match end {
            Some(end) => (&rest[..end], ""),
            None => (rest, "\\"),
        };
        rest = &rest[(line.len() + 2).min(rest.len())..];
        let repeated = line.len() > 20 && line.iter().all(|byte| *byte == line[0]);
        let line = match repeated {
            true => format!("{{{} times {}}}", line.len(), line[..1].escape_ascii()),
            false => line.escape_ascii().to_string(),
        };
        writeln!(text, "{name}: {line}{ending}").ok();
    }
    text
}
