//! Lists that a client gets in parts: `list-jobs`, `list-connections` and
//! `list-tube-stats`.

use super::Document;
use std::io::Write;

/// A part of a list, in the order of the ids, and where the next part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// What is listed.
    pub items: Vec<T>,
    /// The first id that this part leaves out; `None` if it is the last part.
    pub next: Option<u64>,
}

/// What can be listed: each item takes a line.
pub trait Listed {
    /// The key of the list.
    const KEY: &'static str;

    /// What is shown of it.
    fn document(&self) -> Document;
}

impl<T: Listed> List<T> {
    /// Appends the whole reply.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let none = if self.items.is_empty() { " []" } else { "" };
        writeln!(out, "---\n{}:{none}", T::KEY).expect("a Vec takes all bytes");
        for item in &self.items {
            let mut before = "- {";
            for fact in item.document().lines() {
                out.extend_from_slice(before.as_bytes());
                out.extend_from_slice(fact);
                before = ", ";
            }
            out.extend_from_slice(b"}\n");
        }
        writeln!(out, "next: {}", self.next.unwrap_or(0)).expect("a Vec takes all bytes");
        let head = format!("OK {}\r\n", out.len() - start);
        out.splice(start..start, head.into_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
