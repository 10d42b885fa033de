//! The frame before each record, from bytes; with the record, it is encoded.

use super::FRAME_LEN;
use super::decode::Fields;

/// A place in a segment, which its checksums depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment.
    pub number: u32,
    /// The offset of the frame in it.
    pub offset: u32,
}

/// What stands before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length of the record, never 0.
    pub len: u32,
    /// How far the segment was known to be synced.
    pub synced: u32,
    /// The checksum that the record must have.
    pub(super) crc: u32,
    /// What that checksum continues.
    pub(super) seed: u32,
}

impl Frame {
    /// The frame in these bytes, if they are one that belongs to this place.
    pub fn decode(bytes: &[u8; FRAME_LEN as usize], place: Place) -> Option<Frame> {
        let mut fields = Fields(bytes);
        let (len, synced) = (fields.u32()?, fields.u32()?);
        let (seed, crc) = (fields.u32()?, fields.u32()?);
        let plausible = len > 0 && synced <= place.offset;
        let frame = Frame {
            len,
            synced,
            crc,
            seed,
        };
        (plausible && seed == Self::seed(place, len, synced)).then_some(frame)
    }

    /// The checksum of everything in a frame but the record's.
    pub(super) fn seed(place: Place, len: u32, synced: u32) -> u32 {
        let fields = [place.number, place.offset, len, synced].map(u32::to_le_bytes);
        crc32fast::hash(fields.as_flattened())
    }
}
