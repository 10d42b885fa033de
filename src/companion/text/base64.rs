//! Base64 of RFC 4648 with padding, for bodies that are not text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// These bytes in base64.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes that this base64 stands for; `None` if it is not valid. Padding
/// must be there and its unused bits must be zero, so that each value has one
/// text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_text() {
        assert_eq!(encode(b"\0\xff\xfe"), "AP/+");
        assert_eq!(decode("AP/+").as_deref(), Some(&b"\0\xff\xfe"[..]));
        assert_eq!(decode("Zg==").as_deref(), Some(&b"f"[..]));
        // Without its padding; with bits that mean nothing; of other digits.
        for text in ["Zg", "Zh==", "AP_-", "Zg==\n"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
