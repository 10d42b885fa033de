//! The records: what happens to the jobs, as bytes. Pure: values to bytes and
//! back. `frame` describes the bytes around them.
//!
//! All integers are little-endian. A record begins with a byte for its kind:
//!
//! | kind | | |
//! |---|---|---|
//! | 1 | put | the job's fields, length of the tube's name u8, name, body with CR LF up to the end |
//! | 2 | update | the job's fields |
//! | 3 | delete | id u64 |
//! | 4 | mark | the oldest segment needed from here on u32 |
//!
//! **The job's fields**, 57 bytes: id u64, priority u32, delay u32, TTR u32,
//! time of the put u64, state u8 (1 ready, 3 buried, 4 delayed), a number u64
//! (the end of the delay, or the place among the buried jobs, else 0), and five
//! counters of u32 each: reserves, timeouts, releases, buries, kicks. Delay and
//! TTR are in seconds, times in nanoseconds since the Unix epoch. Each record
//! has all fields, so a job that is put again takes the same room whatever has
//! happened to it. A record is still shorter than beanstalkd's.

use super::frame::{FRAME_LEN, Fields, Frame, Place};
use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use crc32fast::Hasher;
use std::collections::HashSet;
use std::io::{self, Read};

const PUT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const MARK: u8 = 4;
const READY: u8 = 1;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;

/// Length of the job's fields.
const FIELDS_LEN: usize = 57;

/// The length of a put with its frame, from the lengths of the tube's name and
/// of the body with CR LF, in bytes. (No put is near 4 GiB: the server accepts
/// no body above 1 GiB.)
pub(super) fn put_len(tube_len: usize, body_len: usize) -> u64 {
    FRAME_LEN + (1 + FIELDS_LEN + 1 + tube_len + body_len) as u64
}

/// A change of a job, or a mark of the binlog itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A job with everything. It replaces what was known of this job.
    Put(StoredJob),
    /// The fields of a job after a change.
    Update(Update),
    /// The job is gone.
    Delete(JobId),
    /// The oldest segment that is needed from here on.
    Mark(u32),
}

/// Everything about a job except its tube and its body, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of a stored job
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
    /// The fields of a job, without its tube and body.
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
            // The next buried job gets the next number, so the highest number
            // is never used.
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

    /// Appends frame and record to `out`, except the body, which is returned:
    /// it must be written right after them. (A large body is not worth
    /// copying.)
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

    /// Reads the record that a frame announces; `Ok(None)` if its checksum is
    /// wrong. Errors are those of `source`, and `InvalidData` if the checksum
    /// is right and the record makes no sense.
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
                let (update, tube) = (Update::decode(fields)?, tubes.read(fields)?);
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

/// The names of tubes read so far, so that each is in memory once. Also a
/// buffer for the record that is being read.
#[derive(Default)]
pub struct Tubes {
    names: HashSet<TubeName>,
    bytes: Vec<u8>,
}

impl Tubes {
    fn read(&mut self, fields: &mut Fields) -> Option<TubeName> {
        let len = fields.u8()?;
        self.name(fields.take(len.into())?)
    }

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

    /// The record in these bytes, if its checksums are right in this place.
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
            id: JobId(u64::MAX - 2),
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
        // Any program that has CRC-32 can calculate this.
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
            Record::Delete(JobId(u64::MAX - 1)),
            Record::Put(job(last, none, b"")),
            Record::Update(Update {
                id: JobId(u64::MAX - 1),
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
}
