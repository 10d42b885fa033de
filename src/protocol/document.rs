//! The YAML that some replies carry: statistics, and lists. This file only knows what
//! keys and values look like on the wire.
//!
//! Names are never quoted, because many clients cut a line at its colon and keep the
//! quotes. Other texts that the server does not choose are quoted: a YAML reader would
//! take an `os` of `#1 SMP` for a comment.

use super::TubeName;
use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

/// A dictionary: lines of a key and its value, in the order in which they are
/// sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(Vec<u8>);

impl Document {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a key and its value, which is no text, at the end.
    pub fn add(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a Vec takes all bytes");
    }

    /// The same for a number, in less time.
    pub fn add_number(&mut self, key: &str, number: impl Into<u64>) {
        self.push(&[key, ": "]);
        push_number(&mut self.0, number.into());
        self.0.push(b'\n');
    }

    /// Adds a key and a name.
    pub fn add_name(&mut self, key: &str, name: &TubeName) {
        self.push(&[key, ": ", name.as_str(), "\n"]);
    }

    /// Adds a key and a text, which is quoted unless it has the form of a name.
    pub fn add_name_or_text(&mut self, key: &str, text: &str) {
        match TubeName::parse(text.as_bytes()) {
            Some(name) => self.add_name(key, &name),
            None => self.add_text(key, text),
        }
    }

    /// Adds a key and any text at the end. The text is quoted, so that a reader
    /// can parse the document whatever the host is called.
    pub fn add_text(&mut self, key: &str, text: &str) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        self.push(&[key, ": \"", &text, "\"\n"]);
    }

    fn push(&mut self, parts: &[&str]) {
        let parts = parts.iter().map(|part| part.as_bytes());
        parts.for_each(|part| self.0.extend_from_slice(part));
    }

    /// A part of a list: each item takes a line, and then comes the number to continue
    /// from, 0 if this is the last part.
    pub fn list(
        key: &str,
        items: impl ExactSizeIterator<Item = Document>,
        next: Option<u64>,
    ) -> Document {
        let mut list = Document(Vec::with_capacity(512 * items.len()));
        let none = if items.len() == 0 { " []" } else { "" };
        list.push(&[key, ":", none, "\n"]);
        for item in items {
            let facts = item.0.strip_suffix(b"\n").unwrap_or(b"");
            let mut before = "- {";
            for fact in facts.split(|&byte| byte == b'\n') {
                list.0.extend_from_slice(before.as_bytes());
                list.0.extend_from_slice(fact);
                before = ", ";
            }
            list.0.extend_from_slice(b"}\n");
        }
        list.add_number("next", next.unwrap_or(0));
        list
    }

    /// Appends the keys and values, after their length.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        begin(self.len(), out);
        out.extend_from_slice(&self.0);
    }
}

/// Appends the length of a text of YAML, and the line before it.
fn begin(length: usize, out: &mut Vec<u8>) {
    out.reserve_exact(length + 40);
    write!(out, " {}\r\n---\n", length + 4).expect("a Vec takes all bytes");
}

/// For how many bytes of memory a job, a connection or a tube in a list counts: what it
/// takes with long names, as the engine gives it and as text.
pub const LISTED_EACH: usize = 3000;

/// Appends the digits of a number. (`write!` takes several times as long.)
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    // The longest number has 20 digits.
    let mut digits = [0; 20];
    let (mut rest, mut from) = (number, digits.len());
    while rest > 0 || from == digits.len() {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[from..]);
}

/// Names of tubes, in the order in which they are sent. There may be very many.
/// They are kept in groups, and a copy of the list shares the groups with the
/// original, so making a copy under the lock costs little.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TubeNames {
    groups: Vec<Arc<Vec<TubeName>>>,
    /// How many bytes they have together.
    bytes: usize,
}

/// How many names a group has. Every group but the last is full.
const GROUP: usize = 64;

impl TubeNames {
    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        let last = self.groups.last();
        last.map_or(0, |last| (self.groups.len() - 1) * GROUP + last.len())
    }

    /// How many bytes the whole reply has, at most.
    pub fn reply_len(&self) -> usize {
        self.bytes + 3 * self.len() + 40
    }

    /// The name at this position, if there is one.
    pub fn get(&self, position: usize) -> Option<&TubeName> {
        self.groups.get(position / GROUP)?.get(position % GROUP)
    }

    /// Adds a name after the last one.
    pub fn push(&mut self, name: TubeName) {
        self.bytes += name.as_str().len();
        match self.groups.last_mut().filter(|last| last.len() < GROUP) {
            Some(last) => Arc::make_mut(last).push(name),
            None => self.groups.push(Arc::new(vec![name])),
        }
    }

    /// Removes the name at `position`; the last name takes its place.
    ///
    /// # Panics
    ///
    /// If there is no name at this position.
    pub fn swap_remove(&mut self, position: usize) {
        let groups = &mut self.groups;
        let last_group = groups.last_mut().expect("a list with a name in it");
        let mut name = Arc::make_mut(last_group).pop().expect("no group is empty");
        if last_group.is_empty() {
            groups.pop();
        }
        if position < self.len() {
            let group = Arc::make_mut(&mut self.groups[position / GROUP]);
            std::mem::swap(&mut group[position % GROUP], &mut name);
        }
        self.bytes -= name.as_str().len();
    }

    /// Appends a line for each, after their length.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        begin(self.bytes + 3 * self.len(), out);
        for name in self.groups.iter().flat_map(|group| group.iter()) {
            out.extend_from_slice(b"- ");
            out.extend_from_slice(name.as_str().as_bytes());
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Reply;

    fn names(numbers: impl IntoIterator<Item = usize>) -> TubeNames {
        let mut names = TubeNames::default();
        for number in numbers {
            names.push(TubeName::parse(format!("t{number}").as_bytes()).unwrap());
        }
        names
    }

    #[test]
    fn a_text_with_quotes_and_backslashes_is_escaped() {
        let mut document = Document::default();
        document.add_text("hostname", r#"a"b\c"#);
        document.add("uptime", 9);
        document.add("draining", "false");
        let mut out = Vec::new();
        Reply::ServerStats(document, false).encode(&mut out);
        let expected = "OK 50\r\n---\nhostname: \"a\\\"b\\\\c\"\nuptime: 9\n\
            draining: false\n\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn a_name_is_never_quoted_and_a_host_only_if_it_is_no_name() {
        for name in ["mails", "42", "2024-01-15", "null", "1e3"] {
            let mut document = Document::default();
            document.add_name("tube", &TubeName::parse(name.as_bytes()).unwrap());
            document.add_name_or_text("hostname", name);
            let expected = format!("tube: {name}\nhostname: {name}\n");
            assert_eq!(document.0, expected.as_bytes());
        }
        let mut document = Document::default();
        document.add_name_or_text("hostname", "-a");
        document.add_name_or_text("platform", "x86_64 #1");
        document.add_name_or_text("platform", "");
        let expected = "hostname: \"-a\"\nplatform: \"x86_64 #1\"\nplatform: \"\"\n";
        assert_eq!(document.0, expected.as_bytes());
    }

    #[test]
    fn a_list_of_tubes_is_one_reply_with_its_length() {
        let list = names(0..150);
        let mut whole = Vec::new();
        Reply::Tubes(list.clone()).encode(&mut whole);
        let expected: String = (0..150).map(|number| format!("- t{number}\n")).collect();
        let expected = format!("OK {}\r\n---\n{expected}\r\n", expected.len() + 4);
        assert_eq!(whole, expected.as_bytes());
        assert!(whole.len() <= list.reply_len());
    }

    #[test]
    fn a_copy_of_a_list_of_tubes_does_not_change_with_it() {
        let mut list = names(0..65);
        let copy = list.clone();
        list.swap_remove(64);
        list.swap_remove(0);
        let expected = names([63].into_iter().chain(1..63));
        assert_eq!((list.len(), &list), (63, &expected));
        assert_eq!(copy, names(0..65));
    }
}
