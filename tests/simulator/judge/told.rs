//! What a client was told: the bytes that it got, and the replies that it should get.

use super::Caller;
use crate::protocol::Reply;

/// A reply to a client.
pub struct Expected {
    pub text: String,
    /// How many changes must be durable if it was sent.
    pub depends_on: usize,
}

impl Caller {
    /// How many changes must be durable because of the replies that it got.
    pub fn told(&self, has_failed: bool) -> usize {
        let Some(peer) = &self.peer else { return 0 };
        let name = &self.name;
        let mut bytes = peer.answered();
        bytes.truncate(self.written.unwrap_or(bytes.len()));
        let mut required = 0;
        for (number, reply) in replies(&bytes).enumerate() {
            let Some(right) = self.expected.get(number) else {
                panic!("{name} was told {reply:?}, which nobody said");
            };
            assert!(
                self.most_replies.is_none_or(|most| number < most),
                "{name} waited when the server stopped, and was told {reply:?}"
            );
            if normal(&reply) == normal(&right.text) {
                required = required.max(right.depends_on);
            } else {
                assert!(
                    reply == "INTERNAL_ERROR\r\n" && has_failed,
                    "{name} was told {reply:?}, not {:?}",
                    right.text
                );
            }
        }
        required
    }
}

/// The whole replies among these bytes.
pub fn replies(mut bytes: &[u8]) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || next_reply(&mut bytes))
}

/// Takes a whole reply out of what was heard.
pub fn next_reply(heard: &mut &[u8]) -> Option<String> {
    let end = heard.windows(2).position(|two| two == b"\r\n")? + 2;
    let line = String::from_utf8_lossy(&heard[..end]);
    let size = match line.trim_end().split(' ').collect::<Vec<_>>()[..] {
        ["OK", size, ..] | ["RESERVED" | "FOUND", _, size, ..] => Some(size),
        _ => None,
    };
    let body = match size {
        Some(size) => size.parse::<usize>().ok()? + 2,
        None => 0,
    };
    let (whole, rest) = heard.split_at_checked(end + body)?;
    *heard = rest;
    Some(String::from_utf8_lossy(whole).into_owned())
}

/// Without what the model does not know: the order of tubes, their numbers, which a start
/// gives anew to all that the log has seen, and files.
pub fn normal(reply: &str) -> String {
    let Some(rest) = reply.strip_prefix("OK ") else {
        return reply.to_owned();
    };
    let all = rest.lines().skip(1);
    let lines = all.filter(|line| !line.starts_with("file:"));
    let is_of_tubes = rest.contains("\ntubes:");
    let without_number = |line| match str::split_once(line, ", name: ") {
        Some((_, tube)) => tube,
        None if is_of_tubes && line != "next: 0" && line.starts_with("next: ") => "next",
        None => line,
    };
    let mut lines: Vec<_> = lines.map(without_number).collect();
    lines.sort_unstable();
    lines.join("\n")
}

pub fn text(reply: &Reply) -> String {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes.extend(reply.body().into_iter().flat_map(|body| body.wire()));
    String::from_utf8(bytes).expect("all bodies are text")
}
