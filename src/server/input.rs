//! Bytes that were read from a client and not parsed yet.

use super::Stream;
use std::io;

/// The size of the buffer at first, and at most, in bytes. It grows in few steps, so that
/// few sizes are in use, as in `outbox`.
const SMALL: usize = 512;
const LARGE: usize = 64 * 1024;

/// A silent client does not keep a buffer of this size or more, in bytes.
const WORTH_FREEING: usize = 4 * 1024;

/// A client's input.
#[derive(Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// The bytes before this index are parsed.
    start: usize,
    /// Whether the last read filled the buffer: then more bytes may be waiting.
    /// A read directly into a large body's own memory says nothing about this buffer.
    pub was_filled: bool,
}

impl Input {
    /// The bytes that are not parsed yet.
    pub fn unparsed(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Forgets all bytes except the last `left`.
    pub fn keep(&mut self, left: usize) {
        self.start = self.buffer.len() - left;
    }

    /// Makes the buffer large enough for `needed` bytes, and larger if the last read has
    /// filled it and there is room for so many more.
    pub fn grow(&mut self, needed: usize, has_room: impl FnOnce(usize) -> bool) {
        self.buffer.drain(..self.start);
        self.start = 0;
        let size = self.buffer.capacity().max(SMALL);
        let larger = (size * 8).min(LARGE);
        let grows = self.was_filled && size < LARGE;
        if grows && (larger <= WORTH_FREEING || has_room(larger - size)) {
            // If the system has none, the smaller buffer does.
            let (Ok(()) | Err(_)) = self.buffer.try_reserve_exact(larger - self.buffer.len());
        }
        let wanted = size.max(needed).next_power_of_two();
        self.buffer.reserve_exact(wanted - self.buffer.len());
    }

    /// Reads once into a buffer that has room, and returns how many bytes came.
    pub fn read(&mut self, stream: &Stream) -> io::Result<usize> {
        let count = stream.read(&mut self.buffer, usize::MAX)?;
        self.was_filled = self.buffer.len() == self.buffer.capacity();
        Ok(count)
    }

    /// The size of the buffer, in bytes, if it has grown so far that a silent
    /// client should not keep it; else 0.
    pub fn memory(&self) -> usize {
        let size = self.buffer.capacity();
        if size < WORTH_FREEING { 0 } else { size }
    }

    /// Frees the memory that holds no unparsed bytes.
    pub fn shrink(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.was_filled = false;
        self.buffer.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn read(input: &mut Input, stream: &Stream) -> (usize, usize) {
        input.grow(0, |_| true);
        let count = input.read(stream).unwrap();
        (count, input.buffer.capacity())
    }

    #[test]
    fn the_buffer_grows_while_it_is_filled_and_is_freed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (stream, mut input) = (Stream(ours.into()), Input::default());
        theirs.write_all(&[b'x'; 10]).unwrap();
        assert_eq!(read(&mut input, &stream), (10, SMALL));
        input.keep(0);
        theirs.write_all(&[b'x'; 5000]).unwrap();
        assert_eq!(read(&mut input, &stream), (SMALL, SMALL));
        input.keep(0);
        assert_eq!(input.memory(), 0);
        assert_eq!(read(&mut input, &stream), (4096, WORTH_FREEING));
        input.keep(0);
        assert_eq!(read(&mut input, &stream), (392, LARGE / 2));
        assert_eq!(input.memory(), LARGE / 2);
        input.keep(5);
        input.shrink();
        assert_eq!((input.unparsed(), input.memory()), (&b"xxxxx"[..], 0));
    }

    #[test]
    fn a_buffer_that_is_filled_repeatedly_grows_to_its_largest_size_only() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (stream, mut input) = (Stream(ours.into()), Input::default());
        for _ in 0..10 {
            theirs.write_all(&[b'x'; LARGE]).unwrap();
            while input.unparsed().len() < LARGE {
                read(&mut input, &stream);
            }
            input.keep(0);
        }
        assert_eq!(input.memory(), LARGE);
    }
}
