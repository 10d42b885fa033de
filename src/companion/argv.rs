//! Arguments as text for the parser of options, and back as the bytes they
//! were: bodies, paths and commands need not be UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Private characters that stand for single bytes, from this on.
const STAND_INS: u32 = 0xf700;

/// The argument as text, from which [`to_bytes`] makes it again.
pub fn to_text(argument: &OsStr) -> String {
    let mut text = String::new();
    let stand_in = |text: &mut String, byte: &u8| {
        text.extend(char::from_u32(STAND_INS + u32::from(*byte)));
    };
    for chunk in argument.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_stand_in(character) {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes);
                bytes[..character.len_utf8()]
                    .iter()
                    .for_each(|byte| stand_in(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| stand_in(&mut text, byte));
    }
    text
}

/// The bytes of the argument that became this text.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(u32::from(character).wrapping_sub(STAND_INS)) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The argument that became this text.
pub fn to_os(text: &str) -> OsString {
    OsString::from_vec(to_bytes(text))
}

fn is_stand_in(character: char) -> bool {
    (STAND_INS..STAND_INS + 256).contains(&u32::from(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_comes_back_as_it_was() {
        for bytes in [
            &b""[..],
            b"plain",
            "é\u{f700}\u{f7ff}😀".as_bytes(),
            b"\xff\x00a\xc3",
            b"\xf0\x9f",
        ] {
            assert_eq!(to_bytes(&to_text(OsStr::from_bytes(bytes))), bytes);
        }
        assert_eq!(to_text(OsStr::new("é")), "é");
    }
}
