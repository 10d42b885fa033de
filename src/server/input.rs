//! Bytes that have been read from a client and not yet understood.

use super::Stream;
use std::io;

/// The buffer's size at first, and the most that it grows to, in bytes.
const SMALL: usize = 512;
const LARGE: usize = 64 * 1024;

/// From this size on, in bytes, it is not kept by a client that is silent.
const WORTH_GIVING_BACK: usize = 4 * 1024;

/// A client's input.
#[derive(Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// The bytes before this one have been understood.
    start: usize,
    /// Whether the last read has filled the buffer: then more may be waiting.
    was_filled: bool,
}

impl Input {
    /// What is not understood yet.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Forgets all but the last so many bytes.
    pub fn keep(&mut self, left: usize) {
        self.start = self.buffer.len() - left;
    }

    /// Reads once; how many bytes. The buffer can then hold `needed` at least.
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

    /// Something else took what has come: that says nothing about this buffer.
    pub fn note_bypass(&mut self) {
        self.was_filled = false;
    }

    /// How much memory it has, in bytes, if it has grown so far that a silent
    /// client should not keep it; else 0.
    pub fn held(&self) -> usize {
        let size = self.buffer.capacity();
        if size < WORTH_GIVING_BACK { 0 } else { size }
    }

    /// Frees what nothing is in.
    pub fn give_back(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.was_filled = false;
        self.buffer.shrink_to_fit();
    }
}
