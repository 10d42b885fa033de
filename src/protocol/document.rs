//! The YAML that some replies carry: statistics, and lists of tubes.
//!
//! The engine and the server choose the keys and count the values; this file
//! only knows what they look like on the wire. Texts that the server does not
//! choose (names of tubes, and what the system says of itself) are quoted: a
//! YAML reader would take an `os` of `#1 SMP` for a comment.

use super::TubeName;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::sync::Arc;

/// A dictionary: lines of a key and its value, in the order in which they are
/// sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(String);

impl Document {
    /// Adds a key and its value, which is no text, at the end.
    pub fn add(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a String takes all text");
    }

    /// Adds a key and any text at the end. The text is quoted, so that a reader
    /// can parse the document whatever the host is called.
    pub fn add_text(&mut self, key: &str, text: &str) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        self.add(key, format_args!("\"{text}\""));
    }

    /// Inserts the keys of another document in front of this key.
    ///
    /// # Panics
    ///
    /// If there is no such key, or if it is the first one.
    pub fn insert_before(&mut self, key: &str, others: &Document) {
        let before = self.0.find(&format!("\n{key}: "));
        self.0
            .insert_str(before.expect("the key is there") + 1, &others.0);
    }

    /// The bytes of the whole reply.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Document(lines) = self;
        let length = lines.len() + 4;
        write!(out, "OK {length}\r\n---\n{lines}\r\n").expect("a Vec takes all bytes");
    }
}

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
pub struct TubeNames(Vec<Arc<Vec<TubeName>>>);

/// How many names a group has. Every group but the last is full.
const GROUP: usize = 64;

impl TubeNames {
    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.0
            .last()
            .map_or(0, |last| (self.0.len() - 1) * GROUP + last.len())
    }

    /// The name at this position, if there is one.
    pub fn get(&self, position: usize) -> Option<&TubeName> {
        self.0.get(position / GROUP)?.get(position % GROUP)
    }

    /// Adds a name behind the last one.
    pub fn push(&mut self, name: TubeName) {
        match self.0.last_mut().filter(|last| last.len() < GROUP) {
            Some(last) => Arc::make_mut(last).push(name),
            None => self.0.push(Arc::new(vec![name])),
        }
    }

    /// Removes the name at `position`; the last name takes its place.
    ///
    /// # Panics
    ///
    /// If there is no name at this position.
    pub fn swap_remove(&mut self, position: usize) {
        let last_group = self.0.last_mut().expect("a list with a name in it");
        let last = Arc::make_mut(last_group).pop().expect("no group is empty");
        if last_group.is_empty() {
            self.0.pop();
        }
        if position < self.len() {
            Arc::make_mut(&mut self.0[position / GROUP])[position % GROUP] = last;
        }
    }

    /// Writes the whole reply, name by name.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        let names = || self.0.iter().flat_map(|group| group.iter());
        let lines: usize = names().map(|name| name.as_str().len() + 3).sum();
        write!(out, "OK {}\r\n---\n", 4 + lines)?;
        for name in names() {
            out.write_all(b"- ")?;
            out.write_all(name.as_str().as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.write_all(b"\r\n")
    }
}

impl FromIterator<TubeName> for TubeNames {
    fn from_iter<I: IntoIterator<Item = TubeName>>(names: I) -> TubeNames {
        let mut list = TubeNames::default();
        names.into_iter().for_each(|name| list.push(name));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> TubeName {
        TubeName::parse(format!("t{number}").as_bytes()).unwrap()
    }

    #[test]
    fn texts_of_the_system_cannot_break_the_document() {
        let mut document = Document::default();
        document.add_text("hostname", r#"a"b\c"#);
        document.add("draining", "false");
        let mut between = Document::default();
        between.add("uptime", 9);
        document.insert_before("draining", &between);
        let mut out = Vec::new();
        document.encode(&mut out);
        let expected = "OK 50\r\n---\nhostname: \"a\\\"b\\\\c\"\nuptime: 9\n\
            draining: false\n\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn a_list_is_one_reply() {
        let list: TubeNames = (0..150).map(name).collect();
        let mut whole = Vec::new();
        list.encode(&mut whole).unwrap();
        let expected: String = (0..150).map(|number| format!("- t{number}\n")).collect();
        let expected = format!("OK {}\r\n---\n{expected}\r\n", expected.len() + 4);
        assert_eq!(whole, expected.as_bytes());
    }

    #[test]
    fn a_copy_of_a_list_does_not_change_with_it() {
        let mut list: TubeNames = (0..65).map(name).collect();
        let copy = list.clone();
        list.swap_remove(64);
        list.swap_remove(0);
        let expected: TubeNames = [63].into_iter().chain(1..63).map(name).collect();
        assert_eq!((list.len(), &list), (63, &expected));
        assert_eq!(copy, (0..65).map(name).collect());
    }
}
