//! JSON, written and read, as far as `--json`, `dump`, `load` and `bench` need
//! it.
//!
//! Numbers keep the text that they were written with, because ids do not fit
//! into a floating-point number. Objects keep their order. Bodies that are not
//! text are written in base64, under a key of their own.

use crate::text::base64;
use std::fmt::{self, Write};

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    Null,
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// How deep values may be nested: nothing that we read needs more than three.
const DEEPEST: usize = 32;

impl Json {
    /// A whole number.
    pub fn number(value: impl Into<u64>) -> Json {
        Json::Number(value.into().to_string())
    }

    /// A number with all digits that distinguish it from its neighbours; `null`
    /// if it is not finite.
    pub fn float(value: f64) -> Json {
        match value.is_finite() {
            true => Json::Number(value.to_string()),
            false => Json::Null,
        }
    }

    /// A text.
    pub fn text(value: impl fmt::Display) -> Json {
        Json::Text(value.to_string())
    }

    /// An object with these keys, in this order.
    pub fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
        Json::Object(pairs.map(|(key, value)| (key.into(), value)).into())
    }

    /// A number if this is one in JSON, else a text.
    pub fn number_or_text(value: &str) -> Json {
        match parse(value.as_bytes()) {
            Ok(number @ Json::Number(_)) => number,
            _ => Json::Text(value.into()),
        }
    }

    /// The pair that holds a body: `body` if it is text, else `body64`.
    pub fn body(bytes: &[u8]) -> (String, Json) {
        match std::str::from_utf8(bytes) {
            Ok(text) => ("body".into(), Json::text(text)),
            Err(_) => ("body64".into(), Json::Text(base64::encode(bytes))),
        }
    }

    /// The value of this key, if this is an object and has the key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(pairs) => pairs.iter().find(|(known, _)| known == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The text, if this is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if this is one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Json::Number(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// The value in these bytes. Only white space may follow it.
///
/// The error says what is wrong, and at which byte.
pub fn parse(bytes: &[u8]) -> Result<Json, String> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(DEEPEST).and_then(|value| {
        reader.skip_space();
        match reader.peek() {
            None => Ok(value),
            Some(_) => Err("something follows the value"),
        }
    });
    value.map_err(|what| format!("{what} at byte {}", reader.at + 1))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Read<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips the next bytes for which `is_such` holds, and returns how many.
    fn skip(&mut self, is_such: impl Fn(&u8) -> bool) -> usize {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().take_while(|byte| is_such(byte)).count();
        self.at += count;
        count
    }

    fn skip_space(&mut self) {
        self.skip(|byte| b" \t\r\n".contains(byte));
    }

    fn digits(&mut self) -> usize {
        self.skip(u8::is_ascii_digit)
    }

    fn take(&mut self, text: &str) -> bool {
        let there = self.bytes[self.at..].starts_with(text.as_bytes());
        if there {
            self.at += text.len();
        }
        there
    }

    fn value(&mut self, depth: usize) -> Read<Json> {
        self.skip_space();
        match self.peek() {
            _ if depth == 0 => Err("values within values, too deep"),
            Some(b'{') => self.object(depth - 1),
            Some(b'[') => self.array(depth - 1),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.take("null") => Ok(Json::Null),
            _ if self.take("true") => Ok(Json::Bool(true)),
            _ if self.take("false") => Ok(Json::Bool(false)),
            Some(_) => Err("no JSON value"),
            None => Err("the end, where a value should be,"),
        }
    }

    fn object(&mut self, depth: usize) -> Read<Json> {
        let mut pairs = Vec::new();
        self.items("}", |reader| {
            if reader.peek() != Some(b'"') {
                return Err("no key in double quotes");
            }
            let key = reader.text()?;
            reader.skip_space();
            if !reader.take(":") {
                return Err("no ':' after a key");
            }
            pairs.push((key, reader.value(depth)?));
            Ok(())
        })?;
        Ok(Json::Object(pairs))
    }

    fn array(&mut self, depth: usize) -> Read<Json> {
        let mut values = Vec::new();
        self.items("]", |reader| {
            values.push(reader.value(depth)?);
            Ok(())
        })?;
        Ok(Json::Array(values))
    }

    /// Reads the items between the bracket here and its counterpart.
    fn items(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.at += 1;
        self.skip_space();
        if self.take(close) {
            return Ok(());
        }
        loop {
            self.skip_space();
            item(self)?;
            self.skip_space();
            match self.take(",") {
                true => {}
                false if self.take(close) => return Ok(()),
                false => return Err("no ',' between two values"),
            }
        }
    }

    fn number(&mut self) -> Read<Json> {
        let start = self.at;
        let _ = self.take("-");
        if !self.take("0") && self.digits() == 0 {
            return Err("a number without digits");
        }
        if self.take(".") && self.digits() == 0 {
            return Err("a number without digits after its point");
        }
        if self.take("e") || self.take("E") {
            let _ = self.take("+") || self.take("-");
            if self.digits() == 0 {
                return Err("a number without digits in its exponent");
            }
        }
        // The bytes are ASCII: nothing else was accepted.
        let number = String::from_utf8_lossy(&self.bytes[start..self.at]);
        Ok(Json::Number(number.into_owned()))
    }

    fn text(&mut self) -> Read<String> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                None => return Err("the end within a text"),
                Some(b'"') => {
                    self.at += 1;
                    return String::from_utf8(text).map_err(|_| "a text that is not UTF-8");
                }
                Some(b'\\') => {
                    let escaped = self.escape()?;
                    text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(..=0x1f) => return Err("a control byte within a text"),
                Some(byte) => {
                    self.at += 1;
                    text.push(byte);
                }
            }
        }
    }

    fn escape(&mut self) -> Read<char> {
        self.at += 1;
        if self.take("u") {
            let mut units = vec![self.unit()?];
            if (0xd800..0xdc00).contains(&units[0]) && self.take("\\u") {
                units.push(self.unit()?);
            }
            let decoded = String::from_utf16(&units).map_err(|_| "half a character")?;
            return decoded.chars().next().ok_or("half a character");
        }
        let letter = self.peek();
        self.at += usize::from(letter.is_some());
        let known = LETTERS.bytes().position(|known| Some(known) == letter);
        let meant = known.and_then(|place| MEANT.chars().nth(place));
        meant.ok_or("an unknown escape")
    }

    fn unit(&mut self) -> Read<u16> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.ok_or("no four hexadecimal digits after \\u")?;
        self.at += 4;
        let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or(0) as u16;
        Ok(digits
            .iter()
            .fold(0, |unit, digit| unit * 16 + value(digit)))
    }
}

/// The letters after a backslash, and the characters that they mean.
const LETTERS: &str = "\"\\/bfnrt";
const MEANT: &str = "\"\\/\x08\x0c\n\r\t";

/// Writes the value on one line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => value.fmt(f),
            Json::Number(text) => f.write_str(text),
            Json::Text(text) => write_text(f, text),
            Json::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { ',' } else { '[' })?;
                }
                f.write_str(if values.is_empty() { "[]" } else { "]" })
            }
            Json::Object(pairs) => {
                for (index, (key, value)) in pairs.iter().enumerate() {
                    f.write_char(if index > 0 { ',' } else { '{' })?;
                    write_text(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if pairs.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            // Control characters, and those that end a line in some readers.
            '\0'..='\x1f' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                write!(f, "\\u{:04x}", u32::from(character))?;
            }
            other => f.write_char(other)?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let value = Json::Object(vec![
            ("n".into(), Json::Null),
            ("b".into(), Json::Bool(true)),
            ("big".into(), Json::number(u64::MAX)),
            ("t".into(), Json::text("\"\\/\n\r\t\0\x7f\u{2028}é😀")),
            (
                "a".into(),
                Json::Array(vec![Json::Number("-1.5e3".into()), Json::Array(vec![])]),
            ),
            ("o".into(), Json::Object(vec![])),
        ]);
        let text = concat!(
            r#"{"n":null,"b":true,"big":18446744073709551615,"#,
            r#""t":"\"\\/\n\r\t\u0000\u007f\u2028é😀","a":[-1.5e3,[]],"o":{}}"#
        );
        assert_eq!(value.to_string(), text);
        assert_eq!(parse(text.as_bytes()), Ok(value));
    }

    #[test]
    fn a_fraction_keeps_its_digits_and_infinity_is_nothing() {
        let numbers = [0.1, 20.0, f64::NAN, f64::INFINITY].map(Json::float);
        let value = Json::object([("list", Json::Array(numbers.into()))]);
        assert_eq!(value.to_string(), r#"{"list":[0.1,20,null,null]}"#);
    }

    #[test]
    fn escapes_and_space_are_read() {
        let value = parse(b" { \"a\" : [ \"\\u00e9\\ud83d\\ude00\\/\\b\\f\" , 0 ] } \n").unwrap();
        assert_eq!(value.to_string(), "{\"a\":[\"é😀/\\u0008\\u000c\",0]}");
    }

    #[test]
    fn an_error_names_its_byte() {
        for (text, error) in [
            ("", "the end, where a value should be, at byte 1"),
            ("nul", "no JSON value at byte 1"),
            ("1 2", "something follows the value at byte 3"),
            ("[1,]", "no JSON value at byte 4"),
            ("[1", "no ',' between two values at byte 3"),
            ("{a:1}", "no key in double quotes at byte 2"),
            ("{\"a\"1}", "no ':' after a key at byte 5"),
            ("01", "something follows the value at byte 2"),
            ("-", "a number without digits at byte 2"),
            ("1.", "a number without digits after its point at byte 3"),
            ("1e", "a number without digits in its exponent at byte 3"),
            ("\"a", "the end within a text at byte 3"),
            ("\"\\", "an unknown escape at byte 3"),
            ("\"\n\"", "a control byte within a text at byte 2"),
            ("\"\\ud800\"", "half a character at byte 8"),
            (
                "\"\\u+123\"",
                "no four hexadecimal digits after \\u at byte 4",
            ),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(error.into()), "{text}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
