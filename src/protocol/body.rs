//! A job's body, as it travels on the wire.

use std::fmt;
use std::sync::Arc;

/// The bytes that the producer sent, followed by CR LF. A clone shares them.
#[derive(Clone)]
pub struct Body(Bytes);

#[derive(Clone)]
enum Bytes {
    /// One allocation: most bodies are short, and there may be millions.
    Whole(Arc<[u8]>),
    /// A long body. It stays in the vector into which it was received, so it is
    /// not copied again.
    Grown(Arc<Vec<u8>>),
}

impl Body {
    /// A body of these bytes; CR LF is added.
    pub fn new(content: &[u8]) -> Body {
        Body(Bytes::Whole([content, b"\r\n"].concat().into()))
    }

    /// The body with these bytes on the wire; `None` if they do not end in CR
    /// LF.
    pub fn from_wire(wire: impl Into<Arc<[u8]>>) -> Option<Body> {
        let wire = wire.into();
        wire.ends_with(b"\r\n").then_some(Body(Bytes::Whole(wire)))
    }

    /// Like [`from_wire`](Self::from_wire), without copying: the body keeps the
    /// vector.
    pub fn from_grown(wire: Vec<u8>) -> Option<Body> {
        wire.ends_with(b"\r\n")
            .then(|| Body(Bytes::Grown(Arc::new(wire))))
    }

    /// The bytes that the producer sent, without the CR LF.
    pub fn content(&self) -> &[u8] {
        let wire = self.wire();
        &wire[..wire.len() - 2]
    }

    /// The bytes with the CR LF that ends them on the wire.
    pub fn wire(&self) -> &[u8] {
        match &self.0 {
            Bytes::Whole(wire) => wire,
            Bytes::Grown(wire) => wire,
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.wire() == other.wire()
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.content().escape_ascii().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_takes_two_machine_words_beside_its_bytes() {
        assert_eq!(size_of::<Body>(), 2 * size_of::<usize>());
        let grown = Body::from_grown(b"hello\r\n".to_vec());
        assert_eq!(grown, Some(Body::new(b"hello")));
        assert_ne!(grown, Some(Body::new(b"world")));
        assert_eq!(Body::from_grown(b"hello".to_vec()), None);
    }
}
