//! Replies on their way to a client: encoded, and sent in few writes.

use super::Stream;
use super::client::UNCOPIED_BODY;
use crate::protocol::{Body, Reply};
use std::io::{self, IoSlice};

/// How many bytes of replies are gathered before they are sent. For a client that
/// does not read, the server holds about this much here, as much again in the
/// batch, and one body or list.
pub const SEND_BYTES: usize = 64 * 1024;

/// How much memory stays allocated for the next replies, in bytes.
const CAPACITY_KEPT: usize = 4 * 1024;

/// A client's output.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Large bodies, each with the place in `bytes` where it belongs.
    bodies: Vec<(usize, Body)>,
    /// The memory of the list that is being sent, in bytes.
    pub list_bytes: usize,
}

impl Output {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes are held for the client.
    pub fn held(&self) -> usize {
        let bodies = self.bodies.iter().map(|(_, body)| body.wire().len());
        self.bytes.len() + bodies.sum::<usize>() + self.list_bytes
    }

    /// Adds a reply.
    pub fn add(&mut self, reply: &Reply) {
        reply.encode(&mut self.bytes);
        match reply.body() {
            Some(body) if body.wire().len() >= UNCOPIED_BODY => {
                self.bodies.push((self.bytes.len(), body.clone()));
            }
            Some(body) => self.bytes.extend_from_slice(body.wire()),
            None => {}
        }
    }

    /// Adds a part of a reply.
    pub fn add_part(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    /// Sends everything, as long as it [goes on](Stream::write_all).
    pub fn send(
        &mut self,
        stream: &Stream,
        goes_on: impl FnMut(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.bodies.is_empty() {
            stream.write_all(&mut [IoSlice::new(&self.bytes)], goes_on)?;
        } else {
            let mut pieces = Vec::with_capacity(2 * self.bodies.len() + 1);
            let mut from = 0;
            for (at, body) in &self.bodies {
                pieces.push(IoSlice::new(&self.bytes[from..*at]));
                pieces.push(IoSlice::new(body.wire()));
                from = *at;
            }
            pieces.push(IoSlice::new(&self.bytes[from..]));
            stream.write_all(&mut pieces, goes_on)?;
            self.bodies.clear();
        }
        self.bytes.clear();
        self.bytes.shrink_to(CAPACITY_KEPT);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::JobId;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn short_bodies_are_copied_and_long_ones_are_sent_from_where_they_are() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream(ours.into());
        let mut output = Output::default();
        assert!(output.is_empty());
        let found = |length: usize| Reply::Found(JobId(1), Body::new(&vec![b'x'; length - 2]));
        output.add(&found(UNCOPIED_BODY - 1));
        assert!(output.bodies.is_empty() && !output.is_empty());
        output.add(&found(UNCOPIED_BODY));
        assert_eq!(output.bodies.len(), 1);
        output.add(&Reply::TimedOut);
        output.send(&stream, |_| Ok(())).unwrap();
        stream.close();
        let (short, long) = ("x".repeat(2045), "x".repeat(2046));
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).unwrap();
        let expected =
            format!("FOUND 1 2045\r\n{short}\r\nFOUND 1 2046\r\n{long}\r\nTIMED_OUT\r\n");
        assert_eq!(sent, expected);
        assert!(output.is_empty());
    }
}
