//! Base64 of RFC 4648 with padding, for bodies that are not text.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value of each digit; 64 for what is none.
const VALUES: [u8; 256] = {
    let mut values = [64; 256];
    let mut value = 0;
    while value < 64 {
        values[DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// These bytes in base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            let used = digit <= chunk.len();
            text.push(if used {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// The bytes that this base64 stands for, or `None` if it is none: padding
/// must be there and its unused bits zero, so that each value has one text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut chunks = text.as_bytes().chunks(4).peekable();
    while let Some(chunk) = chunks.next() {
        let used = chunk.iter().take_while(|&&byte| byte != b'=').count();
        let padded_right = chunk[used..].iter().all(|&byte| byte == b'=');
        let is_last = chunks.peek().is_none();
        if chunk.len() != 4 || used < 2 || !padded_right || (used < 4 && !is_last) {
            return None;
        }
        let mut bits = 0u32;
        for byte in &chunk[..used] {
            let value = VALUES[usize::from(*byte)];
            if value == 64 {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - used);
        let [_, three @ ..] = bits.to_be_bytes();
        if three[used - 1..].iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&three[..used - 1]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_and_all_bytes_go_both_ways() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
    }

    #[test]
    fn what_is_not_base64_has_no_bytes() {
        for text in [
            "Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Z g=", "Zm9v\n",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
