//! The YAML that some replies carry: statistics, and lists of tubes.
//!
//! Which keys there are and what they count is the business of those who
//! count; here is only what it looks like on the wire. Texts that the server
//! does not choose (names of tubes, and what the system says of itself) are
//! quoted: an `os` of `#1 SMP` would be a comment to a YAML reader.

use super::TubeName;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// A dictionary: keys and values, in the order in which they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(Vec<(&'static str, Value)>);

/// What a key can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A time in seconds, with six digits behind the point.
    Micros(Duration),
    /// A word of the protocol's own.
    Word(&'static str),
    /// Any text, which is quoted.
    Text(String),
    /// The name of a tube, which is quoted.
    Name(TubeName),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl Document {
    /// Adds a key, behind those that are there.
    pub fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push((key, value.into()));
    }

    /// Puts the keys of another one in front of this key.
    ///
    /// # Panics
    ///
    /// If there is no such key.
    pub fn insert_before(&mut self, key: &str, others: Document) {
        let at = self.0.iter().position(|(one, _)| *one == key);
        let at = at.expect("the key is there");
        self.0.splice(at..at, others.0);
    }

    /// The bytes of the whole reply.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut yaml = b"---\n".to_vec();
        for (key, value) in &self.0 {
            match value {
                Value::Number(number) => writeln!(yaml, "{key}: {number}"),
                Value::Word(word) => writeln!(yaml, "{key}: {word}"),
                Value::Text(text) => writeln!(yaml, "{key}: \"{}\"", escaped(text)),
                Value::Name(name) => writeln!(yaml, "{key}: \"{name}\""),
                Value::Micros(time) => {
                    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
                    writeln!(yaml, "{key}: {seconds}.{micros:06}")
                }
            }
            .expect("a Vec takes all bytes");
        }
        begin(out, yaml.len());
        out.extend_from_slice(&yaml);
        out.extend_from_slice(b"\r\n");
    }
}

/// Whatever a host is called, the document stays one that can be read.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The first line of the reply, for so many bytes of YAML.
pub(super) fn begin(out: &mut Vec<u8>, len: usize) {
    write!(out, "OK {len}\r\n").expect("a Vec takes all bytes");
}

/// Appends the digits of a number: `write!` takes several times as long.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    // The longest number has 20.
    let mut digits = [0; 20];
    let (mut rest, mut from) = (number, digits.len());
    while rest > 0 || from == digits.len() {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[from..]);
}

/// Names of tubes, in the order in which they are sent. There may be very many:
/// they are kept in groups, which are shared with whoever has the list that
/// this is a copy of, so a copy costs little under a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TubeNames(Vec<Arc<Vec<TubeName>>>);

/// How many names a group has; all but the last are full.
const GROUP: usize = 64;

impl TubeNames {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.0
            .last()
            .map_or(0, |last| (self.0.len() - 1) * GROUP + last.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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

    /// Takes the name out that stands at `position`; the last one takes its
    /// place.
    ///
    /// # Panics
    ///
    /// If there is none at this position.
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

    /// The bytes of the whole reply, handed to `take` in pieces of some
    /// kilobytes.
    ///
    /// # Errors
    ///
    /// The first error of `take`.
    pub fn encode<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let names = self.0.iter().flat_map(|group| group.iter());
        let lines: usize = names.map(|name| name.as_str().len() + 3).sum();
        let mut piece = Vec::new();
        begin(&mut piece, 4 + lines);
        piece.extend_from_slice(b"---\n");
        for group in &self.0 {
            for name in group.iter() {
                piece.extend_from_slice(b"- ");
                piece.extend_from_slice(name.as_str().as_bytes());
                piece.push(b'\n');
            }
            take(&piece)?;
            piece.clear();
        }
        take(b"\r\n")
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
        document.add("hostname", Value::Text(r#"a"b\c"#.into()));
        document.add("tube", Value::Name(TubeName::default_tube()));
        document.add("uptime", 9_u64);
        document.add(
            "rusage-utime",
            Value::Micros(Duration::from_micros(1_000_042)),
        );
        document.add("draining", Value::Word("false"));
        let mut out = Vec::new();
        document.encode(&mut out);
        let expected = "OK 89\r\n---\nhostname: \"a\\\"b\\\\c\"\ntube: \"default\"\nuptime: 9\n\
            rusage-utime: 1.000042\ndraining: false\n\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn a_list_leaves_in_pieces_and_is_one_reply() {
        let list: TubeNames = (0..150).map(name).collect();
        let (mut whole, mut pieces) = (Vec::new(), 0);
        let taken = list.encode(|piece| {
            whole.extend_from_slice(piece);
            pieces += 1;
            Ok::<(), ()>(())
        });
        assert_eq!((taken, pieces), (Ok(()), 4));
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
