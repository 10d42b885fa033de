//! The bytes around the records: the header of a segment, and the frame before
//! each record. Pure: values to bytes and back; no file is opened here.
//!
//! All integers are little-endian. A segment is a header, then records one
//! after the other, then zeros. A record lies in one segment.
//!
//! **Header**, 40 bytes:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 8 | `beanpole` |
//! | 8 | 4 | version of the format: 2 |
//! | 12 | 4 | the segment's number, as in the file's name |
//! | 16 | 4 | the oldest segment that was needed when this one began |
//! | 20 | 8 | where the records of the segment before end; 0 if there is none |
//! | 28 | 8 | the next job id when this one began |
//! | 36 | 4 | CRC-32 of the 36 bytes before |
//!
//! **Frame**, 16 bytes before each record:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 4 | length of the record, without the frame; 0 ends the segment |
//! | 4 | 4 | how many bytes before this frame were not known to be synced when it was written |
//! | 8 | 4 | CRC-32 of the segment's number (4 bytes), the frame's offset (8), and the 8 bytes before |
//! | 12 | 4 | CRC-32, continued from the one before, of the record |
//!
//! Because of the number and the offset in its CRC, a record is valid only in
//! its own place. If a record is bad, the second field of later frames tells
//! whether it had been synced; if it had, it is damage and not a torn end.

use crate::protocol::JobId;
use crc32fast::Hasher;

/// Length of a segment's header.
pub const HEADER_LEN: u64 = 40;
/// Length of the frame before each record.
pub const FRAME_LEN: u64 = 16;

const MAGIC: &[u8; 8] = b"beanpole";
const VERSION: u32 = 2;

/// The name of a segment's file.
pub(super) fn segment_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// The number of the segment in the file of this name; `None` if this is no
/// segment's name.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("binlog.")?.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub number: u32,
    /// The oldest segment that was needed when this one began.
    pub oldest: u32,
    /// Where the records of the previous segment end; 0 if there is none.
    pub previous_end: u64,
    /// When this segment began, no job had this id or a higher one.
    pub next_id: JobId,
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut bytes = Vec::with_capacity(HEADER_LEN as usize);
        bytes.extend_from_slice(MAGIC);
        for field in [VERSION, self.number, self.oldest] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.previous_end, self.next_id.0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.try_into().expect("the fields make up the header")
    }

    /// The header at the start of the file with this number; or what is wrong
    /// with it.
    pub fn decode(start: &[u8], number: u32) -> Result<Header, &'static str> {
        let Some(bytes) = start.first_chunk::<{ HEADER_LEN as usize }>() else {
            return Err("the file ends within its header");
        };
        let u32_at = |offset: usize| Fields(&bytes[offset..]).u32().expect("it is within");
        let u64_at = |offset: usize| Fields(&bytes[offset..]).u64().expect("it is within");
        let header = Header {
            number: u32_at(12),
            oldest: u32_at(16),
            previous_end: u64_at(20),
            next_id: JobId(u64_at(28)),
        };
        let crc_is_right = u32_at(36) == crc32fast::hash(&bytes[..36]);
        let ends_in_its_header = (1..HEADER_LEN).contains(&header.previous_end);
        match header {
            _ if !bytes.starts_with(MAGIC) => Err("this is not a binlog segment"),
            _ if !crc_is_right => Err("the header's checksum is wrong"),
            _ if u32_at(8) != VERSION => Err("the segment is of another version of the format"),
            _ if header.number != number => Err("the segment is another one by its header"),
            _ if ends_in_its_header => Err("by its header, the segment before ends within its own"),
            _ if header.next_id == JobId(u64::MAX) => Err("by its header, no id is left for a job"),
            _ => Ok(header),
        }
    }
}

/// Where a frame stands. Its checksums depend on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment's number.
    pub number: u32,
    /// The offset in it.
    pub offset: u64,
}

/// The bytes before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length of the record, never 0.
    pub len: u32,
    /// How many bytes before the frame were not known to be synced; `u32::MAX`
    /// also stands for more.
    pub(super) unsynced: u32,
    /// The checksum that the record must have.
    pub(super) crc: u32,
    /// The checksum that `crc` continues.
    pub(super) seed: u32,
}

impl Frame {
    /// The frame in these bytes, if they are a frame that belongs to this
    /// place.
    pub fn decode(bytes: &[u8; FRAME_LEN as usize], place: Place) -> Option<Frame> {
        let mut fields = Fields(bytes);
        let frame = Frame {
            len: fields.u32()?,
            unsynced: fields.u32()?,
            seed: fields.u32()?,
            crc: fields.u32()?,
        };
        let is_right = || frame.seed == Self::seed(place, frame.len, frame.unsynced);
        (frame.len > 0 && is_right()).then_some(frame)
    }

    /// Up to where the segment was known to be synced when this frame was
    /// written at this offset.
    pub fn synced(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.unsynced.into())
    }

    /// The checksum of the place and of the frame's first two fields.
    pub(super) fn seed(place: Place, len: u32, unsynced: u32) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&place.number.to_le_bytes());
        hasher.update(&place.offset.to_le_bytes());
        hasher.update(&len.to_le_bytes());
        hasher.update(&unsynced.to_le_bytes());
        hasher.finalize()
    }
}

/// Reads bytes field by field; `None` when there are not enough bytes.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|field| field[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        let field = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(field))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let field = self.take(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(field))
    }

    /// A job's id. The two highest numbers are no ids: a header may have to
    /// name the next id, and one more must be left after that.
    pub fn id(&mut self) -> Option<JobId> {
        self.u64().filter(|id| *id < u64::MAX - 1).map(JobId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes_and_no_others_are_taken_for_it() {
        let header = Header {
            number: 3,
            oldest: 2,
            previous_end: 4711,
            next_id: JobId(12),
        };
        let bytes = header.encode();
        assert_eq!(
            bytes[..36],
            [
                &b"beanpole"[..],
                &[2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0],
                &[0x67, 0x12, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat()
        );
        assert_eq!(Header::decode(&bytes, 3), Ok(header));
        assert!(Header::decode(&bytes, 4).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped, 3).is_err(), "bit {bit}");
        }
        let within = Header {
            previous_end: 39,
            ..header
        };
        assert!(Header::decode(&within.encode(), 3).is_err());
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
            "binlog.spare",
            "lock",
        ] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
