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
//! | 5 | put with words | like a put, with the job's words before the body |
//! | 6 | update with tries | the job's fields, tries that have ended without a word u32 |
//! | 7 | short delete | id |
//! | from 128 on | short | what 1, 2, 5 and 6 say, with short fields |
//!
//! `fields` and `words` describe the bytes of these. An update without tries says
//! that no try has ended without a word.

mod fields;
mod words;

pub use fields::Update;
pub(super) use fields::counters;

use super::frame::{FRAME_LEN, Fields, Frame, Place, to_id};
use crate::engine::{StoredJob, StoredState};
use crate::protocol::framing::MAX_LINE;
use crate::protocol::{Body, JobId, PutOptions, TubeName};
use crc32fast::Hasher;
use fields::{FIELDS_LEN, encode_number, kind_with_fields, number_len};
use std::collections::HashSet;
use std::io::{self, BufRead};
use words::WORDS_LEN;

const DELETE: u8 = 3;
const MARK: u8 = 4;
const SHORT_DELETE: u8 = 7;

/// The length that a put with its frame has at most, whatever happens to the
/// job, from the lengths of the tube's name, of the keys (`None` if the job has
/// no words) and of the body with CR LF, in bytes. (No put is near 4 GiB: the
/// server accepts no body above 1 GiB.)
pub fn put_len(tube_len: usize, keys_len: Option<usize>, body_len: usize) -> u64 {
    let words_len = keys_len.map_or(0, |keys_len| WORDS_LEN + keys_len);
    FRAME_LEN + (1 + FIELDS_LEN + 1 + tube_len + words_len + body_len) as u64
}

/// The length of the longest put with a body of this length, in bytes with CR
/// LF, whatever its tube and words are.
pub fn longest_put(body_len: usize) -> u64 {
    put_len(TubeName::MAX_LEN, Some(MAX_LINE), body_len)
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

impl Record {
    /// How many bytes it takes, with its frame.
    pub(super) fn len(&self) -> u64 {
        let len = match self {
            Record::Put(job) => {
                let (tube_len, keys_len, body_len) = lens(job);
                let saved = FIELDS_LEN - Update::of(job).fields_len();
                return put_len(tube_len, keys_len, body_len) - saved as u64;
            }
            Record::Update(update) => {
                let tries_len = if update.silent > 0 { 4 } else { 0 };
                1 + update.fields_len() + tries_len
            }
            Record::Delete(id) => 1 + number_len(id.0).min(8),
            Record::Mark(_) => 1 + 4,
        };
        FRAME_LEN + len as u64
    }

    /// How many bytes it may come to take: a job that is put again may have
    /// more to tell.
    pub(super) fn grown_len(&self) -> u64 {
        match self {
            Record::Put(job) => {
                let (tube_len, keys_len, body_len) = lens(job);
                put_len(tube_len, keys_len, body_len)
            }
            Record::Update(_) | Record::Delete(_) | Record::Mark(_) => self.len(),
        }
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
                Update::of(job).encode(false, job.options.is_some(), out);
                let tube = job.tube.as_str().as_bytes();
                out.push(u8::try_from(tube.len()).expect("a tube's name has at most 200 bytes"));
                out.extend_from_slice(tube);
                if let Some(words) = &job.options {
                    words::encode(words, out);
                }
                body = job.body.wire();
            }
            Record::Update(update) => {
                update.encode(true, update.silent > 0, out);
                if update.silent > 0 {
                    out.extend_from_slice(&update.silent.to_le_bytes());
                }
            }
            Record::Delete(id) if number_len(id.0) <= 8 => {
                out.push(SHORT_DELETE);
                encode_number(id.0, out);
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
        source: &mut impl BufRead,
        tubes: &mut Tubes,
    ) -> io::Result<Option<Record>> {
        let decode = |bytes: &[u8], tubes: &mut Tubes| Record::decode(&mut Fields(bytes), tubes);
        Record::read_with(frame, source, tubes, decode)
    }

    /// The same, but only a mark is decoded: the segment that it names.
    pub(super) fn read_mark(
        frame: &Frame,
        source: &mut impl BufRead,
        tubes: &mut Tubes,
    ) -> io::Result<Option<Option<u32>>> {
        let decode = |bytes: &[u8], tubes: &mut Tubes| match bytes[0] {
            MARK => match Record::decode(&mut Fields(bytes), tubes)? {
                Record::Mark(oldest) => Some(Some(oldest)),
                _ => None,
            },
            _ => Some(None),
        };
        Record::read_with(frame, source, tubes, decode)
    }

    fn read_with<T>(
        frame: &Frame,
        source: &mut impl BufRead,
        tubes: &mut Tubes,
        decode: impl Fn(&[u8], &mut Tubes) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let len = usize::try_from(frame.len).map_err(io::Error::other)?;
        let is_right = |bytes: &[u8]| {
            let mut crc = Hasher::new_with_initial(frame.seed);
            crc.update(bytes);
            crc.finalize() == frame.crc
        };
        let record = if let Some(bytes) = source.fill_buf()?.get(..len) {
            // Most records need not be copied.
            let record = is_right(bytes).then(|| decode(bytes, tubes));
            source.consume(len);
            record
        } else {
            let mut bytes = std::mem::take(&mut tubes.bytes);
            bytes.resize(len, 0);
            source.read_exact(&mut bytes)?;
            let record = is_right(&bytes).then(|| decode(&bytes, tubes));
            tubes.bytes = bytes;
            record
        };
        match record {
            Some(None) => Err(io::ErrorKind::InvalidData.into()),
            record => Ok(record.flatten()),
        }
    }

    fn decode(fields: &mut Fields, tubes: &mut Tubes) -> Option<Record> {
        let kind = fields.u8()?;
        let Some((is_update, has_more)) = kind_with_fields(kind) else {
            let record = match kind {
                DELETE => Record::Delete(fields.id()?),
                SHORT_DELETE => Record::Delete(fields.number().and_then(to_id)?),
                MARK => Record::Mark(fields.u32()?),
                _ => return None,
            };
            return fields.0.is_empty().then_some(record);
        };
        let update = Update::decode(kind, fields)?;
        let record = if is_update {
            let silent = match has_more {
                true => fields.u32().filter(|&tries| tries > 0)?,
                false => 0,
            };
            Record::Update(Update { silent, ..update })
        } else {
            let tube = tubes.read(fields)?;
            let words = match has_more {
                true => Some(Box::new(words::decode(fields)?)),
                false => None,
            };
            let body = Body::from_wire(fields.take(fields.0.len())?)?;
            let job = update.with(tube, body);
            Record::Put(StoredJob {
                options: words,
                ..job
            })
        };
        (fields.0.is_empty() && record.makes_sense()).then_some(record)
    }
}

impl Record {
    /// Whether something is left of each job that is deleted, and nothing but
    /// its key.
    fn makes_sense(&self) -> bool {
        match self {
            Record::Put(job) if job.is_deleted() => {
                let words = job.options.as_ref().map(|stored| &stored.options);
                let is_key = |words: &PutOptions| {
                    words.unique.is_some() && words.limit.is_none() && words.tries.is_none()
                };
                words.is_some_and(is_key) && job.body.content().is_empty()
            }
            Record::Update(update) => !matches!(update.state, StoredState::Deleted { .. }),
            _ => true,
        }
    }
}

/// The lengths that the length of a job's put depends on: of the name of its
/// tube, of its keys, and of its body with CR LF.
pub fn lens(job: &StoredJob) -> (usize, Option<usize>, usize) {
    let keys_len = job.options.as_ref().map(|stored| stored.options.keys_len());
    (job.tube.as_str().len(), keys_len, job.body.wire().len())
}

/// The names of tubes read so far, so that each is in memory once. Also a
/// buffer for the record that is being read.
#[derive(Default)]
pub struct Tubes {
    names: HashSet<TubeName>,
    /// The last one that was read: the next job is mostly in the same tube.
    last: Option<TubeName>,
    bytes: Vec<u8>,
}

impl Tubes {
    fn read(&mut self, fields: &mut Fields) -> Option<TubeName> {
        let len = fields.u8()?;
        self.name(fields.take(len.into())?)
    }

    /// The name in these bytes, if they are one.
    pub fn name(&mut self, bytes: &[u8]) -> Option<TubeName> {
        let last = self.last.as_ref();
        if let Some(name) = last.filter(|name| name.as_str().as_bytes() == bytes) {
            return Some(name.clone());
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let name = match self.names.get(text) {
            Some(name) => name.clone(),
            None => TubeName::parse(bytes)?,
        };
        self.names.insert(name.clone());
        self.last = Some(name.clone());
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Counters, StoredOptions, Time};
    use crate::protocol::{Priority, Seconds};

    const PLACE: Place = Place {
        number: 3,
        salt: 0,
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
            options: None,
        }
    }

    fn with_words(words: &str, silent: u32, job: StoredJob) -> StoredJob {
        let words = PutOptions::parse(format!(" {words}").as_bytes()).unwrap();
        StoredJob {
            options: Some(Box::new(StoredOptions {
                options: words,
                silent,
            })),
            ..job
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
        let deleted = StoredState::Deleted {
            until: Time::from_nanos(9),
        };
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
            Record::Put(with_words(
                "idp:a:60 con:bc:2 try:3",
                2,
                job(buried, counters, b"hello"),
            )),
            Record::Put(with_words(
                "try:1",
                0,
                job(StoredState::Ready, Counters::default(), b""),
            )),
            Record::Put(with_words(
                "idp:a:60",
                0,
                job(deleted, Counters::default(), b""),
            )),
            Record::Update(Update {
                silent: 7,
                ..update(StoredState::Ready, counters)
            }),
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
            salt: 0,
            offset: 100,
        };
        let body = put.encode(place, 40, &mut bytes).to_vec();
        bytes.extend(body);
        assert_eq!(bytes[..8], [36, 0, 0, 0, 60, 0, 0, 0]); // length, not synced
        // Any program that has CRC-32 can calculate this.
        assert_eq!(
            bytes[8..16],
            [0xf2, 0x3c, 0xcd, 0x8a, 0xff, 0x20, 0x48, 0x81]
        );
        assert_eq!(
            bytes[16..],
            [
                &[128 + 1 + 4][..],        // buried, with counters
                &[7],                      // id
                &[1],                      // priority
                &[2],                      // delay
                &[60],                     // TTR
                &[9, 0, 0, 0, 0, 0, 0, 0], // put at
                &[5, 0, 0, 0, 0, 0, 0, 0], // as the fifth
                &[0x82, 2],                // reserves
                &[0; 4],                   // the other counters
                b"\x04mail",
                b"hi\r\n",
            ]
            .concat()
        );
        let words = with_words("idp:key:60 con:ab:2 try:3", 1, job(buried, counters, b"hi"));
        let with_words = bytes_of(&Record::Put(words));
        assert_eq!(with_words[16], 128 + 1 + 4 + 16);
        assert_eq!(with_words[17..48], bytes[17..48]); // up to the name of the tube
        assert_eq!(
            with_words[48..],
            [
                &b"\x03key"[..],
                &[60, 0, 0, 0], // for so many seconds
                b"\x02ab",
                &[2, 0, 0, 0], // so many at a time
                &[3, 0, 0, 0], // tries
                &[1, 0, 0, 0], // so many have ended without a word
                b"hi\r\n",
            ]
            .concat()
        );
        let new = bytes_of(&Record::Put(job(
            StoredState::Ready,
            Counters::default(),
            b"hi",
        )));
        let fields = [128, 7, 1, 2, 60, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(new[16..], [&fields[..], b"\x04mailhi\r\n"].concat());
        let ready = job(StoredState::Ready, Counters::default(), b"");
        let update = bytes_of(&Record::Update(Update::of(&ready)));
        let fields = [128 + 8, 7, 1, 2, 60, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(update[16..], fields);
        let delete = bytes_of(&Record::Delete(JobId(258)));
        assert_eq!(delete[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(delete[16..], [7, 0x82, 2]);
    }

    /// Where the long fields are the shorter ones, they are written. Servers
    /// before this one have written no others.
    #[test]
    fn a_long_record_is_these_bytes() {
        let long = StoredJob {
            id: JobId(u64::MAX - 2),
            priority: Priority(u32::MAX),
            ..job(StoredState::Buried { order: 5 }, many(), b"hi")
        };
        let bytes = bytes_of(&Record::Put(long));
        assert_eq!(bytes[..4], [67, 0, 0, 0]);
        assert_eq!(
            bytes[16..],
            [
                &[1][..],                                  // put
                &[253, 255, 255, 255, 255, 255, 255, 255], // id
                &[255; 4],                                 // priority
                &[2, 0, 0, 0],                             // delay
                &[60, 0, 0, 0],                            // TTR
                &[9, 0, 0, 0, 0, 0, 0, 0],                 // put at
                &[3],                                      // buried
                &[5, 0, 0, 0, 0, 0, 0, 0],                 // as the fifth
                &[255; 20],                                // the counters
                b"\x04mail",
                b"hi\r\n",
            ]
            .concat()
        );
        let delete = bytes_of(&Record::Delete(JobId(u64::MAX - 2)));
        let id = [253, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(delete[16..], [&[3], &id[..]].concat());
    }

    fn many() -> Counters {
        Counters {
            reserves: u32::MAX,
            timeouts: u32::MAX,
            releases: u32::MAX,
            buries: u32::MAX,
            kicks: u32::MAX,
        }
    }

    /// So what is put again has room where what was put before had room.
    #[test]
    fn no_put_is_longer_than_it_may_grow_to() {
        for record in one_of_each() {
            assert!(record.len() <= record.grown_len(), "{record:?}");
        }
        let longest = StoredJob {
            id: JobId(u64::MAX - 2),
            priority: Priority(u32::MAX),
            delay: Seconds(u32::MAX),
            ttr: Seconds(u32::MAX),
            ..job(StoredState::Buried { order: 5 }, many(), b"hi")
        };
        let longest = Record::Put(longest);
        assert_eq!(longest.len(), longest.grown_len());
    }

    #[test]
    fn a_number_has_no_byte_too_many() {
        for number in [0, 1, 127, 128, 16383, 16384, u64::MAX / 2, u64::MAX] {
            let mut bytes = Vec::new();
            encode_number(number, &mut bytes);
            assert_eq!(bytes.len(), number_len(number));
            assert_eq!(Fields(&bytes).number(), Some(number));
        }
        let beyond = [&[0xff; 9][..], &[2]].concat();
        for wrong in [&[0x80, 0][..], &[0x80], &beyond, &[0xff; 11]] {
            assert_eq!(Fields(wrong).number(), None, "{wrong:?}");
        }
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
    fn of_a_deleted_job_only_its_key_may_be_left() {
        let until = Time::from_nanos(9);
        let deleted = |body| job(StoredState::Deleted { until }, Counters::default(), body);
        for record in [
            Record::Put(deleted(b"")),
            Record::Put(with_words("idp:a:60", 0, deleted(b"hello"))),
            Record::Put(with_words("idp:a:60 con:b", 0, deleted(b""))),
            Record::Put(with_words("try:3", 0, deleted(b""))),
            Record::Update(Update::of(&deleted(b""))),
        ] {
            let error = read(&bytes_of(&record), PLACE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
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

    /// An update without tries is a record of another kind.
    #[test]
    fn an_update_with_no_tries_makes_no_sense() {
        let update = Update::of(&job(StoredState::Ready, Counters::default(), b""));
        let mut bytes = bytes_of(&Record::Update(Update {
            silent: 7,
            ..update
        }));
        let end = bytes.len();
        assert_eq!(bytes[end - 4..], [7, 0, 0, 0]);
        bytes[end - 4] = 0;
        assert_makes_no_sense(&mut bytes);
    }

    /// Gives these bytes the right checksum, and reads them.
    fn assert_makes_no_sense(bytes: &mut [u8]) {
        let seed = bytes[8..12].try_into().unwrap();
        let mut crc = Hasher::new_with_initial(u32::from_le_bytes(seed));
        crc.update(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.finalize().to_le_bytes());
        let error = read(bytes, PLACE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_ready_job_has_no_number() {
        let ready = StoredJob {
            id: JobId(u64::MAX - 2),
            priority: Priority(u32::MAX),
            delay: Seconds(u32::MAX),
            ttr: Seconds(u32::MAX),
            ..job(StoredState::Ready, many(), b"")
        };
        let mut bytes = bytes_of(&Record::Put(ready));
        assert_eq!(bytes[45..54], [1, 0, 0, 0, 0, 0, 0, 0, 0]); // the state, and 0
        bytes[46] = 1;
        assert_makes_no_sense(&mut bytes);
    }

    #[test]
    fn the_short_fields_are_shorter_than_the_long_ones() {
        let with_reserves = |reserves| {
            let counters = Counters {
                reserves,
                timeouts: 1 << 14,
                releases: 1 << 14,
                buries: 1 << 14,
                kicks: 1 << 14,
            };
            let put = Record::Put(StoredJob {
                id: JobId(u64::MAX - 2),
                priority: Priority(u32::MAX),
                delay: Seconds(u32::MAX),
                ttr: Seconds(u32::MAX),
                ..job(StoredState::Buried { order: 5 }, counters, b"")
            });
            bytes_of(&put)[16]
        };
        // With three bytes for the number they take 56, with four 57.
        assert_eq!(with_reserves((1 << 21) - 1), 128 + 1 + 4);
        assert_eq!(with_reserves(1 << 21), 1);
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
