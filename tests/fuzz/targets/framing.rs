//! The bytes of a client: they must give the same requests, however they are
//! cut into segments.
//!
//! The first byte chooses the size of the largest body. Each of the next seven
//! chooses the length of a segment, and these lengths are used again and again.

#![no_main]

use beanpole::protocol::{Framer, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((shape, bytes)) = data.split_at_checked(8) else {
        return;
    };
    let max_job_size = [0, 10, 1000, 70_000][usize::from(shape[0] % 4)];
    let whole = requests(max_job_size, [bytes]);
    let mut rest = bytes;
    let mut lengths = shape[1..].iter().cycle();
    let segments = std::iter::from_fn(|| {
        let length = lengths.next().map_or(1, |&length| usize::from(length) + 1);
        let (segment, left) = rest.split_at(length.min(rest.len()));
        rest = left;
        (!segment.is_empty()).then_some(segment)
    });
    assert_eq!(requests(max_job_size, segments), whole);
});

fn requests<'a>(max_job_size: u32, segments: impl IntoIterator<Item = &'a [u8]>) -> Vec<Request> {
    let mut framer = Framer::new(max_job_size);
    let (mut input, mut requests) = (Vec::new(), Vec::new());
    for segment in segments {
        input.extend_from_slice(segment);
        let mut unread = &input[..];
        while let Some(request) = framer.next(&mut unread) {
            requests.push(request);
        }
        let left = unread.len();
        input.drain(..input.len() - left);
    }
    requests
}
