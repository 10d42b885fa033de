//! Lists that a client gets in parts: `list-jobs` and `list-connections`.

use super::Document;
use std::io::{self, Write};

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
    /// Writes the whole reply, line by line.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        let none = if self.items.is_empty() { " []" } else { "" };
        let head = format!("---\n{}:{none}\n", T::KEY);
        let end = format!("next: {}\n", self.next.unwrap_or(0));
        // The length comes before the text, and the whole text may be too
        // large for memory: so each line is formatted twice.
        let mut line = Vec::new();
        let mut length = head.len() + end.len();
        for item in &self.items {
            write_line(item, &mut line);
            length += line.len();
        }
        write!(out, "OK {length}\r\n{head}")?;
        for item in &self.items {
            write_line(item, &mut line);
            out.write_all(&line)?;
        }
        write!(out, "{end}\r\n")
    }
}

fn write_line(item: &impl Listed, line: &mut Vec<u8>) {
    line.clear();
    for fact in item.document().lines() {
        line.extend_from_slice(if line.is_empty() { b"- {" } else { b", " });
        line.extend_from_slice(fact);
    }
    line.extend_from_slice(b"}\n");
}
