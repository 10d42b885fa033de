//! The bytes of a segment: its header, the frame before each record, and the
//! records. Pure: values to bytes and back; no file is opened here.
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
//! The number and the offset in the CRC make a record worthless anywhere but
//! in its own place. The second field tells, after damage, whether what is
//! bad had been synced: then it is no torn tail.
//!
//! **Records** begin with a byte that tells their kind:
//!
//! | kind | | |
//! |---|---|---|
//! | 1 | put | the job's fields, length of the tube's name u8, name, body with CR LF up to the end |
//! | 2 | update | the job's fields |
//! | 3 | delete | id u64 |
//! | 4 | mark | the oldest segment needed from here on u32 |
//!
//! **The job's fields**, 57 bytes: id u64, priority u32, delay u32, TTR u32,
//! when it was put u64, state u8 (1 ready, 3 buried, 4 delayed), a moment u64
//! (when the delay ends, or the place among the buried jobs, else 0), and five
//! counters of u32 each: reserves, timeouts, releases, buries, kicks. Delay and
//! TTR are in seconds, times in nanoseconds since the Unix epoch. All of them
//! are there in each record, so a job that is put again takes the same room
//! whatever has happened to it, and a record is still shorter than beanstalkd's.

use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use crc32fast::Hasher;
use std::collections::HashSet;
use std::io::{self, Read};

/// Length of a segment's header.
pub const HEADER_LEN: u64 = 40;
/// Length of the frame before each record.
pub const FRAME_LEN: u64 = 16;

const MAGIC: &[u8; 8] = b"beanpole";
const VERSION: u32 = 2;

const PUT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const MARK: u8 = 4;
const READY: u8 = 1;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;

/// Length of the job's fields.
const FIELDS_LEN: usize = 57;

/// The name of a segment's file.
pub(super) fn segment_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// The number of the segment in the file of this name, if it is the name of one.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("binlog.")?.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// The length, with its frame, of a put; of tube and body in bytes, the body
/// with CR LF. (None is near 4 GiB: the server accepts no body above 1 GiB.)
pub(super) fn put_len(tube_len: usize, body_len: usize) -> u64 {
    FRAME_LEN + (1 + FIELDS_LEN + 1 + tube_len + body_len) as u64
}

/// One step of a job's life, or of the log's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A job with everything. Replaces what was known of it.
    Put(StoredJob),
    /// What a job has become.
    Update(Update),
    /// The job is gone.
    Delete(JobId),
    /// The oldest segment that is needed from here on.
    Mark(u32),
}

/// Everything about a job but its tube and its body, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // they are those of a stored job
pub struct Update {
    pub id: JobId,
    pub priority: Priority,
    pub delay: Seconds,
    pub ttr: Seconds,
    pub created_at: Time,
    pub state: StoredState,
    pub counters: Counters,
}

impl Update {
    /// What a job has become, without its tube and body.
    pub fn of(job: &StoredJob) -> Update {
        Update {
            id: job.id,
            priority: job.priority,
            delay: job.delay,
            ttr: job.ttr,
            created_at: job.created_at,
            state: job.state,
            counters: job.counters,
        }
    }

    /// The whole job.
    pub fn with(self, tube: TubeName, body: Body) -> StoredJob {
        StoredJob {
            id: self.id,
            tube,
            body,
            priority: self.priority,
            delay: self.delay,
            ttr: self.ttr,
            created_at: self.created_at,
            state: self.state,
            counters: self.counters,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (state, moment) = match self.state {
            StoredState::Ready => (READY, 0),
            StoredState::Buried { order } => (BURIED, order),
            StoredState::Delayed { until } => (DELAYED, until.as_nanos()),
        };
        out.extend_from_slice(&self.id.0.to_le_bytes());
        for field in [self.priority.0, self.delay.0, self.ttr.0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.created_at.as_nanos().to_le_bytes());
        out.push(state);
        out.extend_from_slice(&moment.to_le_bytes());
        for counter in counters(&self.counters) {
            out.extend_from_slice(&counter.to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields) -> Option<Update> {
        let id = fields.id()?;
        let (priority, delay, ttr) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let created_at = Time::from_nanos(fields.u64()?);
        let state = match (fields.u8()?, fields.u64()?) {
            (READY, 0) => StoredState::Ready,
            // One more is the next one's: so the last one is nobody's.
            (BURIED, order) if order < u64::MAX => StoredState::Buried { order },
            (DELAYED, until) => StoredState::Delayed {
                until: Time::from_nanos(until),
            },
            _ => return None,
        };
        let counters = Counters {
            reserves: fields.u32()?,
            timeouts: fields.u32()?,
            releases: fields.u32()?,
            buries: fields.u32()?,
            kicks: fields.u32()?,
        };
        Some(Update {
            id,
            priority: Priority(priority),
            delay: Seconds(delay),
            ttr: Seconds(ttr),
            created_at,
            state,
            counters,
        })
    }
}

/// The counters in the order in which they are written.
pub(super) fn counters(counters: &Counters) -> [u32; 5] {
    let Counters {
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
    } = *counters;
    [reserves, timeouts, releases, buries, kicks]
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub number: u32,
    /// The oldest segment that was needed when this one began.
    pub oldest: u32,
    /// Where the records of the one before end; 0 if there is none.
    pub previous_end: u64,
    /// No job had this id or a higher one when this one began.
    pub next_id: JobId,
}

impl Header {
    /// The header as it stands at the start of the file.
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

    /// The header at the start of the file of this number; else what is wrong.
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

/// Where a frame stands, which its checksums depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment's number.
    pub number: u32,
    /// The offset in it.
    pub offset: u64,
}

/// What stands before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length of the record, never 0.
    pub len: u32,
    /// How many bytes before the frame were not known to be synced, or more.
    unsynced: u32,
    /// The checksum that the record must have.
    crc: u32,
    /// What that checksum continues.
    seed: u32,
}

impl Frame {
    /// The frame in these bytes, if they are one that belongs to this place.
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

    /// Up to where the segment was known to be synced when this was written at
    /// that offset.
    pub fn synced(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.unsynced.into())
    }

    /// The checksum of everything in a frame but the record's.
    fn seed(place: Place, len: u32, unsynced: u32) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&place.number.to_le_bytes());
        hasher.update(&place.offset.to_le_bytes());
        hasher.update(&len.to_le_bytes());
        hasher.update(&unsynced.to_le_bytes());
        hasher.finalize()
    }
}

impl Record {
    /// How many bytes it takes, with its frame.
    pub(super) fn len(&self) -> u64 {
        let len = match self {
            Record::Put(job) => return put_len(job.tube.as_str().len(), job.body.wire().len()),
            Record::Update(_) => 1 + FIELDS_LEN,
            Record::Delete(_) => 1 + 8,
            Record::Mark(_) => 1 + 4,
        };
        FRAME_LEN + len as u64
    }

    /// Appends frame and record to `out`, all but the body, which is returned:
    /// it belongs right behind. (A large one is not worth copying.)
    ///
    /// `synced` is how far the segment is known to be synced.
    pub(super) fn encode(&self, place: Place, synced: u64, out: &mut Vec<u8>) -> &[u8] {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_LEN as usize]);
        let mut body: &[u8] = &[];
        match self {
            Record::Put(job) => {
                out.push(PUT);
                Update::of(job).encode(out);
                let tube = job.tube.as_str().as_bytes();
                out.push(u8::try_from(tube.len()).expect("a tube's name has at most 200 bytes"));
                out.extend_from_slice(tube);
                body = job.body.wire();
            }
            Record::Update(update) => {
                out.push(UPDATE);
                update.encode(out);
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
        let len = u32::try_from(self.len() - FRAME_LEN).expect("a body has at most 1 GiB");
        let unsynced = u32::try_from(place.offset - synced).unwrap_or(u32::MAX);
        let seed = Frame::seed(place, len, unsynced);
        let (frame, prefix) = out[start..].split_at_mut(FRAME_LEN as usize);
        let mut crc = Hasher::new_with_initial(seed);
        crc.update(prefix);
        crc.update(body);
        let fields = [len, unsynced, seed, crc.finalize()].map(u32::to_le_bytes);
        frame.copy_from_slice(fields.as_flattened());
        body
    }

    /// Reads the record that a frame announces; `Ok(None)` if its bytes are
    /// not the ones that were written. Errors are those of `source`, and
    /// `InvalidData` for a record that was written so and makes no sense.
    pub(super) fn read(
        frame: &Frame,
        source: &mut impl Read,
        tubes: &mut Tubes,
    ) -> io::Result<Option<Record>> {
        let len = usize::try_from(frame.len).map_err(io::Error::other)?;
        let mut bytes = std::mem::take(&mut tubes.bytes);
        bytes.resize(len, 0);
        source.read_exact(&mut bytes)?;
        let mut crc = Hasher::new_with_initial(frame.seed);
        crc.update(&bytes);
        let is_right = crc.finalize() == frame.crc;
        let record = is_right.then(|| Record::decode(&mut Fields(&bytes), tubes));
        tubes.bytes = bytes;
        match record {
            Some(None) => Err(io::ErrorKind::InvalidData.into()),
            record => Ok(record.flatten()),
        }
    }

    fn decode(fields: &mut Fields, tubes: &mut Tubes) -> Option<Record> {
        let record = match fields.u8()? {
            PUT => {
                let (update, tube) = (Update::decode(fields)?, fields.tube(tubes)?);
                let body = fields.take(fields.0.len())?;
                Record::Put(update.with(tube, Body::from_wire(body)?))
            }
            UPDATE => Record::Update(Update::decode(fields)?),
            DELETE => Record::Delete(fields.id()?),
            MARK => Record::Mark(fields.u32()?),
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

/// The names of tubes met so far, so that each is held in memory once; and room
/// for the record that is being read.
#[derive(Default)]
pub struct Tubes {
    names: HashSet<TubeName>,
    bytes: Vec<u8>,
}

impl Tubes {
    /// The name in these bytes, if they are one.
    pub fn name(&mut self, bytes: &[u8]) -> Option<TubeName> {
        let known = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| self.names.get(text));
        if let Some(name) = known {
            return Some(name.clone());
        }
        let name = TubeName::parse(bytes)?;
        self.names.insert(name.clone());
        Some(name)
    }
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

    /// A job's id. The last number is none, since there is no next one.
    fn id(&mut self) -> Option<JobId> {
        self.u64().filter(|id| *id < u64::MAX).map(JobId)
    }

    fn tube(&mut self, tubes: &mut Tubes) -> Option<TubeName> {
        let len = self.u8()?;
        tubes.name(self.take(len.into())?)
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
        let body = record.encode(PLACE, 40, &mut bytes).to_vec();
        bytes.extend_from_slice(&body);
        assert_eq!(bytes.len() as u64, record.len());
        bytes
    }

    fn read(bytes: &[u8], place: Place) -> io::Result<Option<Record>> {
        let Some((frame, mut source)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let Some(frame) = Frame::decode(frame, place) else {
            return Ok(None);
        };
        let record = Record::read(&frame, &mut source, &mut Tubes::default())?;
        Ok(record.filter(|_| source.is_empty()))
    }

    /// A record in these bytes that can be told to be the one that was written.
    fn record_in(bytes: &[u8], place: Place) -> Option<Record> {
        match read(bytes, place) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            other => other.unwrap(),
        }
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
            id: JobId(u64::MAX - 1),
            ..Update::of(&job(state, counters, b""))
        };
        vec![
            Record::Put(job(StoredState::Ready, Counters::default(), b"")),
            Record::Put(job(delayed, counters, b"hello")),
            Record::Put(job(buried, Counters::default(), &[0; 1000])),
            Record::Update(update(StoredState::Ready, Counters::default())),
            Record::Update(update(delayed, Counters::default())),
            Record::Update(update(buried, counters)),
            Record::Delete(JobId(1)),
            Record::Mark(2),
        ]
    }

    #[test]
    fn a_record_is_these_bytes() {
        let buried = StoredState::Buried { order: 5 };
        let counters = Counters {
            reserves: 258,
            ..Counters::default()
        };
        let put = Record::Put(job(buried, counters, b"hi"));
        let mut bytes = Vec::new();
        let place = Place {
            number: 3,
            offset: 100,
        };
        let body = put.encode(place, 40, &mut bytes).to_vec();
        bytes.extend(body);
        assert_eq!(bytes[..8], [67, 0, 0, 0, 60, 0, 0, 0]); // length, not synced
        // As any program may reckon it that knows CRC-32.
        assert_eq!(
            bytes[8..16],
            [0x50, 0x95, 0xe3, 0x50, 0x92, 0x74, 0x94, 0x8a]
        );
        assert_eq!(
            bytes[16..],
            [
                &[1][..],                  // put
                &[7, 0, 0, 0, 0, 0, 0, 0], // id
                &[1, 0, 0, 0],             // priority
                &[2, 0, 0, 0],             // delay
                &[60, 0, 0, 0],            // TTR
                &[9, 0, 0, 0, 0, 0, 0, 0], // put at
                &[3],                      // buried
                &[5, 0, 0, 0, 0, 0, 0, 0], // as the fifth
                &[2, 1, 0, 0],             // reserves
                &[0; 16],                  // the other counters
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
    fn a_number_at_its_end_makes_no_sense() {
        let last = StoredState::Buried { order: u64::MAX };
        let none = Counters::default();
        for record in [
            Record::Delete(JobId(u64::MAX)),
            Record::Put(job(last, none, b"")),
            Record::Update(Update {
                id: JobId(u64::MAX),
                ..Update::of(&job(StoredState::Ready, none, b""))
            }),
        ] {
            let error = read(&bytes_of(&record), PLACE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
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
