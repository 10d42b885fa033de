//! A job's body, as it travels on the wire.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A body of this length or more, in bytes with its CR LF, is *long*: it is not copied into
/// replies.
const LONG: usize = 2048;

/// The bytes that the producer sent, followed by CR LF. A clone shares them.
#[derive(Clone)]
pub struct Body(Bytes);

#[derive(Clone)]
enum Bytes {
    /// One allocation: most bodies are short, and there may be millions.
    Short(Arc<[u8]>),
    Long(Arc<Long>),
}

struct Long {
    /// If it was received into a vector of its own, it stays there, and is not copied.
    wire: Vec<u8>,
    /// What is to be dropped together with it.
    token: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Body {
    /// A body of these bytes; CR LF is added.
    pub fn new(content: &[u8]) -> Body {
        Body::from_wire([content, b"\r\n"].concat()).expect("it ends in CR LF")
    }

    /// The body with these bytes on the wire; `None` if they do not end in CR LF. A vector
    /// with a long body is kept as it is.
    pub fn from_wire(wire: impl AsRef<[u8]> + Into<Arc<[u8]>> + Into<Vec<u8>>) -> Option<Body> {
        let bytes = wire.as_ref();
        let (is_body, is_long) = (bytes.ends_with(b"\r\n"), bytes.len() >= LONG);
        let long = |wire, token| Bytes::Long(Arc::new(Long { wire, token }));
        is_body.then(|| {
            Body(if is_long {
                long(wire.into(), OnceLock::new())
            } else {
                Bytes::Short(wire.into())
            })
        })
    }

    /// Whether it is so long that it is not copied.
    pub fn is_long(&self) -> bool {
        matches!(self.0, Bytes::Long(_))
    }

    /// If this is a long body that others share, makes a token that is dropped together
    /// with the last of them.
    pub fn keep_with_others<T: Any + Send + Sync>(&self, token: impl FnOnce() -> T) {
        if let Bytes::Long(long) = &self.0
            && Arc::strong_count(long) > 1
        {
            long.token.get_or_init(|| Box::new(token()));
        }
    }

    /// The bytes that the producer sent, without the CR LF.
    pub fn content(&self) -> &[u8] {
        let wire = self.wire();
        &wire[..wire.len() - 2]
    }

    /// The bytes with the CR LF that ends them on the wire.
    pub fn wire(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(wire) => wire,
            Bytes::Long(long) => &long.wire,
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
        assert_eq!(
            Body::from_wire(b"hello\r\n".to_vec()),
            Some(Body::new(b"hello"))
        );
        assert_eq!(Body::from_wire(b"hello".to_vec()), None);
    }

    #[test]
    fn a_long_body_keeps_its_token_until_nobody_shares_it() {
        let token = Arc::new(());
        let keep = |body: &Body| body.keep_with_others(|| Arc::clone(&token));
        let first = Body::new(&[b'x'; LONG]);
        keep(&first);
        assert_eq!(Arc::strong_count(&token), 1, "nobody shares it");
        let second = first.clone();
        keep(&first);
        keep(&second);
        drop(first);
        assert_eq!(Arc::strong_count(&token), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&token), 1);
    }
}
