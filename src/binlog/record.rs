//! The bytes of a segment: its header, the frame around each record, and the
//! records. Pure: values to bytes and back; no file is opened here.
//!
//! All integers are little-endian. A segment is a header, then records one
//! after the other, then zeros. A record that does not fit goes on in the next
//! segment, right behind the header; only a frame is never divided.
//!
//! **Header**, 40 bytes:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 8 | `beanpole` |
//! | 8 | 4 | version of the format: 1 |
//! | 12 | 4 | the segment's number, as in the file's name |
//! | 16 | 4 | the oldest segment that was needed when this one began |
//! | 20 | 4 | where the records of the segment before end; 0 if there is none |
//! | 24 | 4 | where the first record begins that does not come from the one before |
//! | 28 | 8 | the next job id when this one began |
//! | 36 | 4 | CRC-32 of the 36 bytes before |
//!
//! **Frame**, 16 bytes before each record:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 4 | length of the record, without the frame; 0 ends the segment |
//! | 4 | 4 | how far this segment was known to be synced when this was written |
//! | 8 | 4 | CRC-32 of the segment's number, the frame's offset, and the 8 bytes before |
//! | 12 | 4 | CRC-32, continued from the one before, of the record |
//!
//! The number and the offset in the CRC make a record worthless anywhere but
//! in its own place. The second field tells, after damage, whether what is
//! bad had been synced: then it is no torn tail.
//!
//! **Records** begin with a byte of which the low 4 bits are the kind:
//!
//! | kind | fields |
//! |---|---|
//! | 1 full | id u64, priority u32, delay u32, TTR u32, created u64, \[moment u64\], \[counters\], length of the tube's name u8, name, body with CR LF up to the end of the record |
//! | 2 update | id u64, priority u32, delay u32, \[moment u64\], \[counters\] |
//! | 3 delete | id u64 |
//! | 4 mark | the oldest segment needed from here on u32 |
//!
//! In a full record and an update that byte has 16 more if the job is delayed,
//! and 32 more if it is buried. Then the moment is there: until when, or its
//! place among the buried jobs. It has 128 more if the counters are there;
//! else they are all 0. They are reserves, timeouts, releases, buries and
//! kicks, each in as many bytes as it needs: 7 bits in each, the lowest first,
//! and 128 more where another one follows. Delay and TTR are in seconds, times
//! in nanoseconds since the Unix epoch.

mod decode;
mod encode;
mod frame;
mod header;

pub use decode::Tubes;
pub use frame::{Frame, Place};
pub use header::Header;

use crate::engine::{Counters, StoredJob, StoredState};
use crate::protocol::{JobId, Priority, Seconds};

/// Length of a segment's header.
pub const HEADER_LEN: u32 = 40;
/// Length of the frame before each record.
pub const FRAME_LEN: u32 = 16;

/// A full record's shortest part before the body.
const SHORTEST_PREFIX: usize = 1 + 8 + 4 + 4 + 4 + 8 + 1;
/// What a full record may grow by in its life: a moment, and counters below 128.
pub(super) const GROWTH: u32 = 8 + 5;

const FULL: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const MARK: u8 = 4;
const DELAYED: u8 = 16;
const BURIED: u8 = 32;
const COUNTED: u8 = 128;

/// The name of a segment's file.
pub fn segment_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// The number of the segment in the file of this name, if it is the name of one.
pub fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("binlog.")?.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// The length, with its frame, of the full record of a job that nothing has happened to yet.
///
/// `body_len` is with CR LF. No body is near the 4 GiB that a length can say:
/// the server accepts none above 1 GiB.
pub(super) fn full_len(tube_len: usize, body_len: usize) -> u32 {
    frame_len(SHORTEST_PREFIX + tube_len + body_len)
}

fn frame_len(record_len: usize) -> u32 {
    FRAME_LEN + u32::try_from(record_len).expect("a body has at most 1 GiB")
}

/// A change of state that needs neither tube nor body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Whose.
    pub id: JobId,
    /// The priority from now on.
    pub priority: Priority,
    /// The delay that was asked for last.
    pub delay: Seconds,
    /// The state from now on.
    pub state: StoredState,
    /// The counters from now on.
    pub counters: Counters,
}

/// One step of a job's life, or of the log's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A job with everything. Replaces what was known of it.
    Full(StoredJob),
    /// What has changed about a job.
    Update(Update),
    /// The job is gone.
    Delete(JobId),
    /// The oldest segment that is needed from here on.
    Mark(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Time;
    use crate::protocol::{Body, TubeName};

    const PLACE: Place = Place {
        number: 3,
        offset: 40,
    };

    fn job(state: StoredState, counters: Counters, body: &[u8]) -> StoredJob {
        StoredJob {
            id: JobId(7),
            tube: TubeName::parse(b"mail").unwrap(),
            body: Body::new(body),
            priority: Priority(1),
            delay: Seconds(2),
            ttr: Seconds(60),
            created_at: Time::from_nanos(9),
            state,
            counters,
        }
    }

    fn bytes_of(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        let body = record.encode(PLACE, 0, &mut bytes).to_vec();
        bytes.extend_from_slice(&body);
        assert_eq!(bytes.len() as u32, record.len());
        bytes
    }

    fn record_in(bytes: &[u8], place: Place) -> Option<Record> {
        let (frame, rest) = bytes.split_first_chunk()?;
        let frame = Frame::decode(frame, place)?;
        let mut source = rest;
        let record = Record::read(&frame, &mut source, &mut Tubes::default());
        record.ok().flatten().filter(|_| source.is_empty())
    }

    fn one_of_each() -> Vec<Record> {
        let counters = Counters {
            reserves: 1,
            timeouts: 127,
            releases: 128,
            buries: 1 << 21,
            kicks: u32::MAX,
        };
        let delayed = StoredState::Delayed {
            until: Time::from_nanos(u64::MAX),
        };
        let buried = StoredState::Buried { order: 5 };
        let update = |state, counters| Update {
            id: JobId(u64::MAX),
            priority: Priority(u32::MAX),
            delay: Seconds(u32::MAX),
            state,
            counters,
        };
        vec![
            Record::Full(job(StoredState::Ready, Counters::default(), b"")),
            Record::Full(job(delayed, counters, b"hello")),
            Record::Full(job(buried, Counters::default(), &[0; 1000])),
            Record::Update(update(StoredState::Ready, Counters::default())),
            Record::Update(update(delayed, Counters::default())),
            Record::Update(update(buried, counters)),
            Record::Delete(JobId(1)),
            Record::Mark(2),
        ]
    }

    #[test]
    fn a_record_is_these_bytes() {
        let put = Record::Full(job(StoredState::Ready, Counters::default(), b"hi"));
        let bytes = bytes_of(&put);
        assert_eq!(bytes[..8], [38, 0, 0, 0, 0, 0, 0, 0]); // length, synced
        assert_eq!(
            bytes[16..],
            [
                &[1][..],                  // full, ready, nothing counted
                &[7, 0, 0, 0, 0, 0, 0, 0], // id
                &[1, 0, 0, 0],             // priority
                &[2, 0, 0, 0],             // delay
                &[60, 0, 0, 0],            // TTR
                &[9, 0, 0, 0, 0, 0, 0, 0], // created
                b"\x04mail",
                b"hi\r\n",
            ]
            .concat()
        );
        let delete = bytes_of(&Record::Delete(JobId(258)));
        assert_eq!(delete[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(delete[16..], [3, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_written_is_read() {
        for record in one_of_each() {
            assert_eq!(record_in(&bytes_of(&record), PLACE), Some(record));
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_noticed() {
        for record in one_of_each() {
            let bytes = bytes_of(&record);
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(record_in(&flipped, PLACE), None, "{record:?}, bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(record_in(&bytes[..len], PLACE), None, "{record:?}, {len}");
            }
        }
    }

    #[test]
    fn a_record_counts_in_its_own_place_only() {
        let bytes = bytes_of(&Record::Delete(JobId(1)));
        for place in [
            Place { number: 4, ..PLACE },
            Place {
                offset: 37,
                ..PLACE
            },
        ] {
            assert_eq!(record_in(&bytes, place), None);
        }
    }

    #[test]
    fn segments_are_told_by_their_names() {
        assert_eq!(segment_number("binlog.12"), Some(12));
        for name in [
            "binlog.",
            "binlog.0",
            "binlog.01",
            "binlog.+1",
            "binlog.x",
            "lock",
        ] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
