//! JSON, as the package serde_json reads and writes it, and what the package
//! leaves to us: bodies that are not text, and characters that disturb a
//! terminal.
//!
//! Numbers keep the text that they were written with, because ids do not fit
//! into a floating-point number. Objects keep their order.

use crate::text::{disturbs, pieces};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{Formatter, Serializer};
pub use serde_json::{Value as Json, json};
use std::io::{self, Write};

/// A number with all digits that distinguish it from its neighbours; `null` if
/// it is not finite.
pub fn float(value: f64) -> Json {
    let number = value.to_string().parse();
    number.map_or(Json::Null, Json::Number)
}

/// The pair that holds a body: `body` if it is text, else `body64`.
pub fn body(bytes: &[u8]) -> (String, Json) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("body".into(), text.into()),
        Err(_) => ("body64".into(), to_base64(bytes).into()),
    }
}

/// The value in these bytes. Only white space may follow it.
///
/// The error says what is wrong, and at which byte of the last line.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        format!("{what} at byte {}", error.column())
    })
}

/// Writes a line with this value, as it comes: a large one never stands in memory as text.
/// Escapes replace characters that would disturb a terminal, among them those that end a
/// line in some readers.
pub fn line(mut to: impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut to, Line))?;
    to.write_all(b"\n")
}

/// The form of a line.
struct Line;

impl Formatter for Line {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        for (piece, last) in pieces(text, disturbs) {
            to.write_all(piece.as_bytes())?;
            let units = last.map(|last| last.encode_utf16(&mut [0; 2]).to_vec());
            for unit in units.into_iter().flatten() {
                write!(to, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// These bytes in base64 of RFC 4648 with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes that this base64 encodes; `None` if it is not valid. Padding
/// must be there and its unused bits must be zero, so that each value has one
/// text.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_was_written_is_read_back() {
        let text = concat!(
            r#"{"z":null,"b":true,"big":18446744073709551615,"#,
            r#""t":"\"\\/\n\r\t\u0000\u007f\u2028\u202e\udb40\udc41é😀","a":[-1.5,1.10,[]],"o":{}}"#
        );
        let value: Json = parse(text.as_bytes()).unwrap();
        assert_eq!(value["t"], "\"\\/\n\r\t\0\x7f\u{2028}\u{202e}\u{e0041}é😀");
        assert_eq!(value["big"].as_u64(), Some(u64::MAX));
        let mut written = Vec::new();
        line(&mut written, &value).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), format!("{text}\n"));
    }

    #[test]
    fn a_fraction_keeps_its_digits_and_infinity_is_null() {
        let numbers = [0.1, 20.0, f64::NAN, f64::INFINITY].map(float);
        assert_eq!(json!(numbers).to_string(), "[0.1,20,null,null]");
    }

    #[test]
    fn an_error_names_the_byte_at_fault() {
        for (text, byte) in [
            ("1 2", 3),
            ("[1,]", 4),
            ("{a:1}", 2),
            ("\"\n\"", 0),
            ("\"\\ud800\"", 8),
        ] {
            let error = parse::<Json>(text.as_bytes()).unwrap_err();
            assert!(error.ends_with(&format!(" at byte {byte}")), "{error}");
        }
        assert!(parse::<Json>("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn each_body_has_one_text_in_base64() {
        assert_eq!(to_base64(b"\0\xff\xfe"), "AP/+");
        assert_eq!(from_base64("AP/+").as_deref(), Some(&b"\0\xff\xfe"[..]));
        assert_eq!(from_base64("Zg==").as_deref(), Some(&b"f"[..]));
        // Without its padding; with bits that mean nothing; of other digits.
        for text in ["Zg", "Zh==", "AP_-", "Zg==\n"] {
            assert_eq!(from_base64(text), None, "{text:?}");
        }
    }
}
