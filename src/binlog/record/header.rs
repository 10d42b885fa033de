//! The header of a segment, to bytes and back.

use super::HEADER_LEN;
use super::decode::Fields;
use crate::protocol::JobId;

const MAGIC: &[u8; 8] = b"beanpole";
const VERSION: u32 = 1;

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub number: u32,
    /// The oldest segment that was needed when this one began.
    pub oldest: u32,
    /// Where the records of the one before end; 0 if there is none.
    pub previous_end: u32,
    /// Where the first record begins that does not come from the one before.
    pub first: u32,
    /// No job had this id or a higher one when this one began.
    pub next_id: JobId,
}

impl Header {
    /// The header as it stands at the start of the file.
    pub fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut bytes = Vec::with_capacity(HEADER_LEN as usize);
        bytes.extend_from_slice(MAGIC);
        let fields = [
            VERSION,
            self.number,
            self.oldest,
            self.previous_end,
            self.first,
        ];
        bytes.extend_from_slice(fields.map(u32::to_le_bytes).as_flattened());
        bytes.extend_from_slice(&self.next_id.0.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.try_into().expect("the fields make up the header")
    }

    /// The header in the file of this number; else what is wrong with it.
    pub fn decode(bytes: &[u8; HEADER_LEN as usize], number: u32) -> Result<Header, &'static str> {
        let mut fields = Fields(bytes);
        if fields.take(8) != Some(MAGIC) {
            return Err("this is not a binlog segment");
        }
        let header = |fields: &mut Fields| {
            let version = fields.u32()?;
            let header = Header {
                number: fields.u32()?,
                oldest: fields.u32()?,
                previous_end: fields.u32()?,
                first: fields.u32()?,
                next_id: JobId(fields.u64()?),
            };
            Some((version, header, fields.u32()?))
        };
        let (version, header, crc) =
            header(&mut fields).expect("the bytes are as long as a header");
        if crc != crc32fast::hash(&bytes[..bytes.len() - 4]) {
            return Err("the header's checksum is wrong");
        }
        match header {
            _ if version != VERSION => Err("the segment is of another version of the format"),
            _ if header.number != number => Err("the segment is another one by its header"),
            _ => Ok(header),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_no_other_is_taken_for_it() {
        let header = Header {
            number: 3,
            oldest: 2,
            previous_end: 4711,
            first: 50,
            next_id: JobId(12),
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes, 3), Ok(header));
        assert!(Header::decode(&bytes, 4).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped, 3).is_err(), "bit {bit}");
        }
    }
}
