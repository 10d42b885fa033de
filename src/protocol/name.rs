//! Tube names. Only valid names can become a [`TubeName`].

use std::fmt;
use std::sync::Arc;

/// The name of a tube, known to be well-formed.
///
/// The protocol's rule: 1 to 200 bytes, which are letters, digits or
/// `-+/;.$_()`, and the first is not a hyphen. A clone shares the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TubeName(Arc<str>);

impl TubeName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 200;

    /// The name, if these bytes are a valid one.
    pub fn parse(bytes: &[u8]) -> Option<TubeName> {
        let well_formed = (1..=Self::MAX_LEN).contains(&bytes.len())
            && bytes[0] != b'-'
            && bytes.iter().all(|&byte| is_name_byte(byte));
        let text = well_formed.then(|| std::str::from_utf8(bytes).ok())??;
        Some(TubeName(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a byte may be in a tube's name (a hyphen may not be the first).
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

/// `default`, the tube that each connection uses and watches at first.
impl Default for TubeName {
    fn default() -> TubeName {
        TubeName("default".into())
    }
}

impl fmt::Display for TubeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_200_bytes_of_the_alphabet_and_no_leading_hyphen() {
        for good in ["a", "A-Z+a/z;0.9$_()", "9", &"x".repeat(200)] {
            assert_eq!(TubeName::parse(good.as_bytes()).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a b", "a\t", "a*", "é", &"x".repeat(201)] {
            assert_eq!(TubeName::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
