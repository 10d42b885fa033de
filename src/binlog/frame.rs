//! The bytes around the records: the header of a segment, and the frame before
//! each record. Pure: values to bytes and back; no file is opened here.
//!
//! All integers are little-endian. A segment is a header, then records one
//! after the other, then zeros. A record lies in one segment.
//!
//! **Header**, 44 bytes:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 8 | `beanpole` |
//! | 8 | 4 | version of the format: 4 |
//! | 12 | 4 | the segment's number, as in the file's name |
//! | 16 | 4 | the oldest segment that was needed when this one began |
//! | 20 | 8 | where the records of the segment before end; 0 if there is none |
//! | 28 | 8 | the next job id when this one began |
//! | 36 | 4 | the segment's salt, a random number |
//! | 40 | 4 | CRC-32 of the 40 bytes before |
//!
//! In version 2 there is no salt, and the CRC follows at once. In version 3 all
//! is as in version 4, but no server that began such a segment knows the records
//! of the kinds from 7 on.
//!
//! **Frame**, 16 bytes before each record:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 4 | length of the record, without the frame; 0 ends the segment |
//! | 4 | 4 | how many bytes before this frame were not known to be synced when it was written |
//! | 8 | 4 | CRC-32, continued from the salt (in version 2 from 0), of the segment's number (4 bytes), the frame's offset (8), and the 8 bytes before |
//! | 12 | 4 | CRC-32, continued from the one before, of the record |
//!
//! A frame with a length of 2^32-1 has no record. It says that the next segment
//! has begun, so that a start notices if the newest segment is missing.
//!
//! What follows the 16 zeros after the last record may be left over from an
//! earlier use of the file.
//!
//! Because of the number and the offset in its CRC, a record is valid only in
//! its own place. Because of the salt, nobody who supplies a body can make bytes
//! in it that are a frame there. If a record is bad, the second field of later
//! frames tells whether it had been synced; if it had, it is damage and not a
//! torn end.

use crate::protocol::JobId;
use crc32fast::Hasher;

/// Length of a segment's header.
pub const HEADER_LEN: u64 = 44;
/// The same in version 2.
pub(super) const OLD_HEADER_LEN: u64 = 40;
/// Length of the frame before each record.
pub const FRAME_LEN: u64 = 16;

/// The length in a frame that says that the next segment has begun. No record is
/// so long.
const CONTINUED: u32 = u32::MAX;

const MAGIC: &[u8; 8] = b"beanpole";
const VERSION: u32 = 4;
/// This one has no short records, and the same header and frames.
const LONG_VERSION: u32 = 3;
/// This one has no salt either.
const OLD_VERSION: u32 = 2;

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

/// The name of the first spare. The next ones have a number behind it, from 2
/// on. Their contents are not part of the binlog.
pub(super) const SPARE: &str = "binlog.spare";

/// What earlier servers called a file like these. Each start removes it.
pub(super) const OLD_SPARE: &str = "binlog.reserve";

/// No disk has so many spares. A file whose name has a higher number is left
/// alone.
pub(super) const MOST_SPARES: usize = 1 << 16;

/// The name of a spare.
pub(super) fn spare_name(slot: usize) -> String {
    match slot {
        0 => SPARE.into(),
        _ => format!("{SPARE}{}", slot + 1),
    }
}

/// The spare of this name; `None` if this is no spare's name.
pub(super) fn spare_slot(name: &str) -> Option<usize> {
    let slot = match name.strip_prefix(SPARE)? {
        "" => 0,
        number => number.parse::<usize>().ok()?.checked_sub(1)?,
    };
    (slot < MOST_SPARES && spare_name(slot) == name).then_some(slot)
}

/// Whether the file of this name shows that there was a segment: there are no
/// such files before the first one has its name. Without this, a directory that
/// has lost all its segments would look new, and the server would start with no
/// jobs. On shared storage, each server
/// has names of its own for its spares, with numbers after them.
pub(super) fn shows_segment(name: &str) -> bool {
    let end = name.match_indices('.').nth(1).map(|(end, _)| end);
    let (name, numbers) = name.split_at(end.unwrap_or(name.len()));
    let mut numbers = numbers.split('.').skip(1).peekable();
    (name == OLD_SPARE || spare_slot(name) > Some(0))
        && numbers.peek() != Some(&FIRST)
        && numbers.all(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What follows the names of the second and the third spare until there is a
/// segment.
pub(super) const FIRST: &str = "0";

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
    /// A random number; `None` in version 2.
    pub salt: Option<u32>,
}

impl Header {
    /// How many bytes it takes.
    pub(super) fn len(&self) -> u64 {
        match self.salt {
            Some(_) => HEADER_LEN,
            None => OLD_HEADER_LEN,
        }
    }

    /// The bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN as usize);
        bytes.extend_from_slice(MAGIC);
        let version = self.salt.map_or(OLD_VERSION, |_| VERSION);
        for field in [version, self.number, self.oldest] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.previous_end, self.next_id.0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend(self.salt.into_iter().flat_map(u32::to_le_bytes));
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of the file with this number; or what is wrong
    /// with it.
    pub fn decode(start: &[u8], number: u32) -> Result<Header, &'static str> {
        let short = "the file ends within its header";
        let bytes = start.get(..OLD_HEADER_LEN as usize).ok_or(short)?;
        let is_old = bytes[8..12] == OLD_VERSION.to_le_bytes();
        let len = if is_old { OLD_HEADER_LEN } else { HEADER_LEN } as usize;
        let bytes = start.get(..len).ok_or(short)?;
        let u32_at = |offset: usize| Fields(&bytes[offset..]).u32().expect("it is within");
        let u64_at = |offset: usize| Fields(&bytes[offset..]).u64().expect("it is within");
        let header = Header {
            number: u32_at(12),
            oldest: u32_at(16),
            previous_end: u64_at(20),
            next_id: JobId(u64_at(28)),
            salt: (!is_old).then(|| u32_at(36)),
        };
        let crc_is_right = u32_at(len - 4) == crc32fast::hash(&bytes[..len - 4]);
        let ends_in_its_header = (1..OLD_HEADER_LEN).contains(&header.previous_end);
        match header {
            _ if !bytes.starts_with(MAGIC) => Err("this is not a binlog segment"),
            _ if !crc_is_right => Err("the header's checksum is wrong"),
            _ if !is_old && ![LONG_VERSION, VERSION].contains(&u32_at(8)) => {
                Err("the segment is of another version of the format")
            }
            _ if header.number != number => Err("the segment is another one by its header"),
            _ if header.oldest > number => Err("by its header, the segment itself is not needed"),
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
    /// The segment's salt; 0 in version 2.
    pub salt: u32,
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
        Frame::read(bytes).filter(|frame| frame.belongs_to(place))
    }

    /// The frame that these bytes would be, if they belong to their place.
    pub(super) fn read(bytes: &[u8; FRAME_LEN as usize]) -> Option<Frame> {
        let (fields, _) = bytes.as_chunks::<4>();
        let [len, unsynced, seed, crc] = *fields else {
            return None;
        };
        let frame = Frame {
            len: u32::from_le_bytes(len),
            unsynced: u32::from_le_bytes(unsynced),
            seed: u32::from_le_bytes(seed),
            crc: u32::from_le_bytes(crc),
        };
        (frame.len > 0).then_some(frame)
    }

    /// Whether it was written in this place.
    pub(super) fn belongs_to(&self, place: Place) -> bool {
        self.seed == Self::seed(place, self.len, self.unsynced)
    }

    /// What is written after the last record of a segment when the next one has
    /// begun. It is not synced, and there may be no room for it.
    pub(super) fn continued(place: Place) -> [u8; FRAME_LEN as usize] {
        let seed = Self::seed(place, CONTINUED, 0);
        let mut bytes = [0; FRAME_LEN as usize];
        let fields = [CONTINUED, 0, seed, seed].map(u32::to_le_bytes);
        bytes.copy_from_slice(fields.as_flattened());
        bytes
    }

    /// Whether it says that the next segment has begun.
    pub fn is_continued(&self) -> bool {
        self.len == CONTINUED
    }

    /// Up to where the segment was known to be synced when this frame was
    /// written at this offset.
    pub fn synced(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.unsynced.into())
    }

    /// The only salt with which these bytes would be a frame in this place. It
    /// is for a segment whose header is lost: CRC-32, calculated backwards.
    pub(super) fn salt(bytes: &[u8; FRAME_LEN as usize], number: u32, offset: u64) -> u32 {
        let hashed = [
            &number.to_le_bytes()[..],
            &offset.to_le_bytes(),
            &bytes[..8],
        ]
        .concat();
        let seed = bytes[8..12].try_into().expect("these are 4 bytes");
        let mut register = !u32::from_le_bytes(seed);
        for byte in hashed.into_iter().rev() {
            for _ in 0..8 {
                register = match register >> 31 {
                    1 => (register ^ 0xedb8_8320) << 1 | 1,
                    _ => register << 1,
                };
            }
            register ^= u32::from(byte);
        }
        !register
    }

    /// The checksum of the place and of the frame's first two fields.
    pub(super) fn seed(place: Place, len: u32, unsynced: u32) -> u32 {
        // One piece of 20 bytes takes half the time of four.
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&place.number.to_le_bytes());
        bytes[4..12].copy_from_slice(&place.offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        bytes[16..].copy_from_slice(&unsynced.to_le_bytes());
        let mut hasher = Hasher::new_with_initial(place.salt);
        hasher.update(&bytes);
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

    /// A number with 7 bits in a byte, in as few bytes as it needs.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = bits > 0 || shift == 0;
                return (is_shortest && number >> shift == bits).then_some(number);
            }
        }
        None
    }

    /// A job's id.
    pub fn id(&mut self) -> Option<JobId> {
        self.u64().and_then(to_id)
    }
}

/// A job's id. The two highest numbers are no ids: a header may have to name
/// the next id, and one more must be left after that.
pub(super) fn to_id(number: u64) -> Option<JobId> {
    (number < u64::MAX - 1).then_some(JobId(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_these_files_knows_that_there_was_a_segment() {
        let shows = |names: &[&str]| names.iter().all(|name| shows_segment(name));
        assert!(shows(&[
            "binlog.reserve",
            "binlog.spare2",
            "binlog.spare12"
        ]));
        assert!(shows(&["binlog.reserve.17", "binlog.spare2.17.3"]));
        for name in ["binlog.1", "binlog.spare", "binlog.spare.17.3", "lock", ""] {
            assert!(!shows_segment(name), "{name}");
        }
        for name in [
            "binlog.spare2.0",
            "binlog.spare2.0.17.3",
            "binlog.spare2.old",
        ] {
            assert!(!shows_segment(name), "{name}");
        }
    }

    #[test]
    fn a_header_is_these_bytes_and_no_others_are_taken_for_it() {
        let header = Header {
            number: 3,
            oldest: 2,
            previous_end: 4711,
            next_id: JobId(12),
            salt: Some(0x1234_5678),
        };
        let bytes = header.encode();
        assert_eq!(
            bytes[..40],
            [
                &b"beanpole"[..],
                &[4, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0],
                &[0x67, 0x12, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0],
                &[0x78, 0x56, 0x34, 0x12],
            ]
            .concat()
        );
        assert_eq!(Header::decode(&bytes, 3), Ok(header));
        assert!(Header::decode(&bytes, 4).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped, 3).is_err(), "bit {bit}");
        }
        let old = Header {
            salt: None,
            ..header
        };
        assert_eq!(old.encode().len(), 40);
        assert_eq!(Header::decode(&old.encode(), 3), Ok(old));
        let within = Header {
            previous_end: 39,
            ..header
        };
        assert!(Header::decode(&within.encode(), 3).is_err());
        let needless = Header {
            oldest: 4,
            ..header
        };
        assert!(Header::decode(&needless.encode(), 3).is_err());
        let last = Header {
            next_id: JobId(u64::MAX),
            ..header
        };
        assert!(Header::decode(&last.encode(), 3).is_err());
        let mut newer = bytes;
        newer[8] = 5;
        let crc = crc32fast::hash(&newer[..40]);
        newer[40..].copy_from_slice(&crc.to_le_bytes());
        let flaw = "the segment is of another version of the format";
        assert_eq!(Header::decode(&newer, 3), Err(flaw));
    }

    #[test]
    fn the_salt_of_a_frame_can_be_found() {
        let place = Place {
            number: 3,
            salt: 0x89ab_cdef,
            offset: 44,
        };
        let fields = [7, 4, Frame::seed(place, 7, 4), 0].map(u32::to_le_bytes);
        let bytes: [u8; 16] = fields.as_flattened().try_into().unwrap();
        assert!(Frame::decode(&bytes, place).is_some_and(|frame| frame.synced(44) == 40));
        assert_eq!(Frame::salt(&bytes, 3, 44), 0x89ab_cdef);
        let fields = [0, 4, Frame::seed(place, 0, 4), 0].map(u32::to_le_bytes);
        let empty = fields.as_flattened().try_into().unwrap();
        assert_eq!(Frame::decode(&empty, place), None);
    }

    #[test]
    fn spares_are_told_by_their_names() {
        assert_eq!(spare_slot("binlog.spare"), Some(0));
        assert_eq!(spare_slot("binlog.spare2"), Some(1));
        assert_eq!(spare_slot("binlog.spare65536"), Some(MOST_SPARES - 1));
        for name in ["1", "02", "+2", "65537", "x"] {
            assert_eq!(spare_slot(&format!("binlog.spare{name}")), None, "{name}");
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
            "binlog.spare",
            "lock",
        ] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
