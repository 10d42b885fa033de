//! Bytes that were read from a client and not parsed yet.

use super::Stream;
use std::io;

/// The size of the buffer at first, and at most, in bytes.
const SMALL: usize = 512;
const LARGE: usize = 64 * 1024;

/// A silent client does not keep a buffer of this size or more, in bytes.
const WORTH_GIVING_BACK: usize = 4 * 1024;

/// A client's input.
#[derive(Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// The bytes before this index are parsed.
    start: usize,
    /// Whether the last read filled the buffer: then more bytes may be waiting.
    /// A read that went elsewhere says nothing about this buffer.
    pub was_filled: bool,
}

impl Input {
    /// The bytes that are not parsed yet.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Forgets all bytes except the last `left`.
    pub fn keep(&mut self, left: usize) {
        self.start = self.buffer.len() - left;
    }

    /// Reads once, and returns how many bytes came. Before that, makes the
    /// buffer large enough for `needed` bytes.
    pub fn read(&mut self, stream: &Stream, needed: usize) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let wanted = match self.buffer.capacity() {
            0 => SMALL,
            size if self.was_filled => (size * 2).min(LARGE),
            size => size,
        };
        let wanted = wanted.max(needed).next_power_of_two();
        self.buffer.reserve_exact(wanted - self.buffer.len());
        let count = stream.read(&mut self.buffer, usize::MAX)?;
        self.was_filled = self.buffer.len() == self.buffer.capacity();
        Ok(count)
    }

    /// The size of the buffer, in bytes, if it has grown so far that a silent
    /// client should not keep it; else 0.
    pub fn held(&self) -> usize {
        let size = self.buffer.capacity();
        if size < WORTH_GIVING_BACK { 0 } else { size }
    }

    /// Frees the memory that holds no unparsed bytes.
    pub fn give_back(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.was_filled = false;
        self.buffer.shrink_to_fit();
    }
}
