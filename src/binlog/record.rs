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

use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use crc32fast::Hasher;
use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;

/// Length of a segment's header.
pub const HEADER_LEN: u32 = 40;
/// Length of the frame before each record.
pub const FRAME_LEN: u32 = 16;

const MAGIC: &[u8; 8] = b"beanpole";
const VERSION: u32 = 1;
/// A full record's longest part before the body.
const LONGEST_PREFIX: usize = SHORTEST_PREFIX + 8 + 5 * 5 + TubeName::MAX_LEN;
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
    crc: u32,
    /// What that checksum continues.
    seed: u32,
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

    fn seed(place: Place, len: u32, synced: u32) -> u32 {
        let fields = [place.number, place.offset, len, synced].map(u32::to_le_bytes);
        crc32fast::hash(fields.as_flattened())
    }
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

impl Record {
    /// How many bytes it takes, with its frame.
    pub(super) fn len(&self) -> u32 {
        let optional = |state: &StoredState, counters: &Counters| {
            let moment = if *state == StoredState::Ready { 0 } else { 8 };
            moment + counters_len(counters)
        };
        match self {
            Record::Full(job) => {
                full_len(job.tube.as_str().len(), job.body.wire().len())
                    + optional(&job.state, &job.counters)
            }
            Record::Update(update) => FRAME_LEN + 17 + optional(&update.state, &update.counters),
            Record::Delete(_) => FRAME_LEN + 9,
            Record::Mark(_) => FRAME_LEN + 5,
        }
    }

    /// Appends frame and record to `out`, all but the body, which is returned:
    /// it belongs right behind. (A large one is not worth copying.)
    ///
    /// `synced` is how far the segment is known to be synced.
    pub fn encode(&self, place: Place, synced: u32, out: &mut Vec<u8>) -> &[u8] {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_LEN as usize]);
        let mut body: &[u8] = &[];
        match self {
            Record::Full(job) => {
                out.extend_from_slice(&[FULL | flags(&job.state, &job.counters)]);
                out.extend_from_slice(&job.id.0.to_le_bytes());
                out.extend_from_slice(&job.priority.0.to_le_bytes());
                out.extend_from_slice(&job.delay.0.to_le_bytes());
                out.extend_from_slice(&job.ttr.0.to_le_bytes());
                out.extend_from_slice(&job.created_at.as_nanos().to_le_bytes());
                encode_optional(&job.state, &job.counters, out);
                let tube = job.tube.as_str().as_bytes();
                out.push(u8::try_from(tube.len()).expect("a tube's name has at most 200 bytes"));
                out.extend_from_slice(tube);
                body = job.body.wire();
            }
            Record::Update(update) => {
                out.extend_from_slice(&[UPDATE | flags(&update.state, &update.counters)]);
                out.extend_from_slice(&update.id.0.to_le_bytes());
                out.extend_from_slice(&update.priority.0.to_le_bytes());
                out.extend_from_slice(&update.delay.0.to_le_bytes());
                encode_optional(&update.state, &update.counters, out);
            }
            Record::Delete(id) => {
                out.push(DELETE);
                out.extend_from_slice(&id.0.to_le_bytes());
            }
            Record::Mark(oldest) => {
                out.push(MARK);
                out.extend_from_slice(&oldest.to_le_bytes());
            }
        }
        let (frame, prefix) = out[start..].split_at_mut(FRAME_LEN as usize);
        let len = self.len() - FRAME_LEN;
        debug_assert_eq!(frame_len(prefix.len() + body.len()), self.len());
        let seed = Frame::seed(place, len, synced);
        let mut crc = Hasher::new_with_initial(seed);
        crc.update(prefix);
        crc.update(body);
        let fields = [len, synced, seed, crc.finalize()].map(u32::to_le_bytes);
        frame.copy_from_slice(fields.as_flattened());
        body
    }

    /// Reads the record that a frame announces; `Ok(None)` if its bytes are
    /// not the ones that were written. Errors are those of `source`.
    ///
    /// A body is read straight into the allocation that it stays in.
    pub fn read(
        frame: &Frame,
        source: &mut impl Read,
        tubes: &mut Tubes,
    ) -> io::Result<Option<Record>> {
        let len = frame.len as usize;
        let mut first = [0; LONGEST_PREFIX];
        let first = &mut first[..len.min(LONGEST_PREFIX)];
        source.read_exact(first)?;
        let mut crc = Hasher::new_with_initial(frame.seed);
        crc.update(first);
        let mut fields = Fields(first);
        let kind = fields.u8().unwrap_or(0);
        let record = if kind & 0xf == FULL {
            let Some(job) = FullPrefix::decode(kind, &mut fields, tubes) else {
                return Ok(None);
            };
            let mut wire: Arc<[u8]>;
            let body_len = len - first.len() + fields.0.len();
            if body_len == fields.0.len() {
                wire = fields.0.into();
            } else {
                wire = std::iter::repeat_n(0, body_len).collect();
                let bytes = Arc::get_mut(&mut wire).expect("nobody else knows it yet");
                let (begun, rest) = bytes.split_at_mut(fields.0.len());
                begun.copy_from_slice(fields.0);
                source.read_exact(rest)?;
                crc.update(rest);
            }
            Body::from_wire(wire).map(|body| Record::Full(job.with(body)))
        } else {
            decode_short(kind, fields)
        };
        Ok(record.filter(|_| crc.finalize() == frame.crc))
    }
}

fn flags(state: &StoredState, counters: &Counters) -> u8 {
    let state = match state {
        StoredState::Ready => 0,
        StoredState::Delayed { .. } => DELAYED,
        StoredState::Buried { .. } => BURIED,
    };
    let counted = if *counters == Counters::default() {
        0
    } else {
        COUNTED
    };
    state | counted
}

fn encode_optional(state: &StoredState, counters: &Counters, out: &mut Vec<u8>) {
    match state {
        StoredState::Ready => {}
        StoredState::Delayed { until } => out.extend_from_slice(&until.as_nanos().to_le_bytes()),
        StoredState::Buried { order } => out.extend_from_slice(&order.to_le_bytes()),
    }
    if *counters != Counters::default() {
        for mut counter in in_order(counters) {
            while counter > 0x7f {
                out.push(counter.to_le_bytes()[0] | 0x80);
                counter >>= 7;
            }
            out.push(counter.to_le_bytes()[0]);
        }
    }
}

fn counters_len(counters: &Counters) -> u32 {
    let len = |counter: u32| (32 - counter.leading_zeros()).div_ceil(7).max(1);
    match *counters == Counters::default() {
        true => 0,
        false => in_order(counters).map(len).iter().sum(),
    }
}

fn in_order(counters: &Counters) -> [u32; 5] {
    let Counters {
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
    } = *counters;
    [reserves, timeouts, releases, buries, kicks]
}

/// The names of tubes met so far, so that each is held in memory once.
#[derive(Default)]
pub struct Tubes(HashSet<TubeName>);

impl Tubes {
    /// The name in these bytes, if they are one.
    pub fn name(&mut self, bytes: &[u8]) -> Option<TubeName> {
        let known = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| self.0.get(text));
        if let Some(name) = known {
            return Some(name.clone());
        }
        let name = TubeName::parse(bytes)?;
        self.0.insert(name.clone());
        Some(name)
    }
}

/// A full record without its body.
struct FullPrefix {
    id: JobId,
    tube: TubeName,
    priority: Priority,
    delay: Seconds,
    ttr: Seconds,
    created_at: Time,
    state: StoredState,
    counters: Counters,
}

impl FullPrefix {
    fn decode(kind: u8, fields: &mut Fields, tubes: &mut Tubes) -> Option<FullPrefix> {
        let id = JobId(fields.u64()?);
        let priority = Priority(fields.u32()?);
        let delay = Seconds(fields.u32()?);
        let ttr = Seconds(fields.u32()?);
        let created_at = Time::from_nanos(fields.u64()?);
        let (state, counters) = fields.optional(kind)?;
        let tube_len = fields.u8()?;
        Some(FullPrefix {
            id,
            tube: tubes.name(fields.take(tube_len.into())?)?,
            priority,
            delay,
            ttr,
            created_at,
            state,
            counters,
        })
    }

    fn with(self, body: Body) -> StoredJob {
        StoredJob {
            id: self.id,
            tube: self.tube,
            body,
            priority: self.priority,
            delay: self.delay,
            ttr: self.ttr,
            created_at: self.created_at,
            state: self.state,
            counters: self.counters,
        }
    }
}

fn decode_short(kind: u8, mut fields: Fields) -> Option<Record> {
    let record = match kind {
        DELETE => Record::Delete(JobId(fields.u64()?)),
        MARK => Record::Mark(fields.u32()?),
        _ if kind & 0xf == UPDATE => {
            let id = JobId(fields.u64()?);
            let priority = Priority(fields.u32()?);
            let delay = Seconds(fields.u32()?);
            let (state, counters) = fields.optional(kind)?;
            Record::Update(Update {
                id,
                priority,
                delay,
                state,
                counters,
            })
        }
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

/// Bytes, field by field; `None` when there are not enough of them.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|field| field[0])
    }

    fn u32(&mut self) -> Option<u32> {
        let field = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(field))
    }

    fn u64(&mut self) -> Option<u64> {
        let field = self.take(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(field))
    }

    /// The moment and the counters, as far as the record's first byte announces them.
    fn optional(&mut self, kind: u8) -> Option<(StoredState, Counters)> {
        let state = match kind & 0x70 {
            0 => StoredState::Ready,
            DELAYED => StoredState::Delayed {
                until: Time::from_nanos(self.u64()?),
            },
            BURIED => StoredState::Buried { order: self.u64()? },
            _ => return None,
        };
        let mut counters = Counters::default();
        if kind & COUNTED != 0 {
            counters = Counters {
                reserves: self.counter()?,
                timeouts: self.counter()?,
                releases: self.counter()?,
                buries: self.counter()?,
                kicks: self.counter()?,
            };
        }
        Some((state, counters))
    }

    fn counter(&mut self) -> Option<u32> {
        let mut counter = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.u8()?;
            counter |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(counter).ok();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
