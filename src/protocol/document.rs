//! The YAML that some replies carry: statistics, and lists of tubes. `jobs` and
//! `connections` have the statistics of one of these.
//!
//! The engine and the server choose the keys and count the values; this file
//! only knows what they look like on the wire. Texts that the server does not
//! choose (names of tubes, and what the system says of itself) are quoted: a
//! YAML reader would take an `os` of `#1 SMP` for a comment.

use super::TubeName;
use std::fmt::Display;
use std::io::Write;
use std::iter;
use std::sync::Arc;

/// A dictionary: lines of a key and its value, in the order in which they are
/// sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(Vec<u8>);

impl Document {
    /// Adds a key and its value, which is no text, at the end.
    pub fn add(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a Vec takes all bytes");
    }

    /// The same for a number, in less time.
    pub fn add_number(&mut self, key: &str, number: impl Into<u64>) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        push_number(&mut self.0, number.into());
        self.0.push(b'\n');
    }

    /// Adds a key and a name, in quotes.
    pub fn add_name(&mut self, key: &str, name: &TubeName) {
        self.add(key, format_args!("\"{name}\""));
    }

    /// Adds a key and any text at the end. The text is quoted, so that a reader
    /// can parse the document whatever the host is called.
    pub fn add_text(&mut self, key: &str, text: &str) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        self.add(key, format_args!("\"{text}\""));
    }

    /// The lines, without the LF that ends each.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.0.strip_suffix(b"\n").unwrap_or(b"");
        lines.split(|&byte| byte == b'\n')
    }

    /// The bytes of a whole reply, with the keys of these documents.
    pub(super) fn encode(parts: &[Document], out: &mut Vec<u8>) {
        let length: usize = parts.iter().map(|part| part.0.len()).sum();
        write!(out, "OK {}\r\n---\n", length + 4).expect("a Vec takes all bytes");
        parts.iter().for_each(|part| out.extend_from_slice(&part.0));
        out.extend_from_slice(b"\r\n");
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

    /// Adds a name after the last one.
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

    /// The bytes of the whole reply, in parts: one for each group of names.
    pub fn encode(&self) -> impl Iterator<Item = String> {
        let names = self.0.iter().flat_map(|group| group.iter());
        let lines: usize = names.map(|name| name.as_str().len() + 3).sum();
        let head = format!("OK {}\r\n---\n", 4 + lines);
        let line = |name: &TubeName| format!("- {name}\n");
        let groups = self
            .0
            .iter()
            .map(move |group| group.iter().map(line).collect());
        iter::once(head).chain(groups).chain(["\r\n".into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut next = Document::default();
        next.add("uptime", 9);
        next.add("draining", "false");
        let mut out = Vec::new();
        Document::encode(&[document, next], &mut out);
        let expected = "OK 50\r\n---\nhostname: \"a\\\"b\\\\c\"\nuptime: 9\n\
            draining: false\n\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn a_list_of_tubes_is_one_reply_with_its_length() {
        let list = names(0..150);
        let whole: String = list.encode().collect();
        let expected: String = (0..150).map(|number| format!("- t{number}\n")).collect();
        let expected = format!("OK {}\r\n---\n{expected}\r\n", expected.len() + 4);
        assert_eq!(whole, expected);
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
