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
//! | 6 | update with tries | the job's fields, tries that nobody ended u32 |
//! | 7 | short delete | id |
//! | from 128 on | short | what 1, 2, 5 and 6 say, with short fields |
//!
//! **The job's fields**, 57 bytes: id u64, priority u32, delay u32, TTR u32,
//! time of the put u64, state u8 (1 ready, 3 buried, 4 delayed), a number u64
//! (the end of the delay, or the place among the buried jobs, else 0), and five
//! counters of u32 each: reserves, timeouts, releases, buries, kicks. Delay and
//! TTR are in seconds, times in nanoseconds since the Unix epoch. A record has
//! all fields.
//!
//! **The short fields** are the same in the same order. Most numbers of most
//! jobs are small, so they are written with 7 bits in a byte, the lowest first,
//! and the highest bit of a byte says that there is another one. But the time
//! of the put and the number are u64. The state stands in the kind. The number
//! is left out if the job is ready, and the counters if all are 0. The kind is
//! the sum of 128, the state (0 ready, 1 buried, 2 delayed, 3 deleted), 4 if
//! the counters follow, 8 if this is an update, and 16 if a put has words or an
//! update tries. A job of 57 bytes or more in short fields is written with the
//! long ones. So no put is longer than one of kind 1 or 5, whatever has
//! happened to the job: [`put_len`].
//!
//! **The words**, 18 bytes and the keys: `idp`: length of the key u8, key,
//! seconds u32; `con`: length of the key u8, key, limit u32; `try`: tries u32;
//! tries that nobody ended u32. All is 0 for a word that the job does not have.
//! When such a job is deleted and its key stays taken, it is put again in the
//! state deleted (5 in the long fields), with the word `idp` alone and an empty
//! body; the number is the end of that time. When the time is over, this is
//! deleted in turn.
//!
//! An update without tries says that no try has ended without a word.

use super::frame::{FRAME_LEN, Fields, Frame, Place, to_id};
use crate::engine::{Counters, StoredJob, StoredState, StoredWords, Time};
use crate::protocol::framing::MAX_LINE;
use crate::protocol::{Body, JobId, Key, Limit, Priority, Seconds, TubeName, Unique, Words};
use crc32fast::Hasher;
use std::collections::HashSet;
use std::io::{self, BufRead};

const PUT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const MARK: u8 = 4;
const PUT_WITH_WORDS: u8 = 5;
const UPDATE_WITH_TRIES: u8 = 6;
const READY: u8 = 1;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;
const DELETED: u8 = 5;

const SHORT_DELETE: u8 = 7;
/// The kinds from this one on have short fields. The other numbers are added to
/// it; the lowest two bits are the state.
const SHORT: u8 = 128;
const STATE: u8 = 3;
const HAS_COUNTERS: u8 = 4;
const IS_UPDATE: u8 = 8;
const HAS_MORE: u8 = 16;
const MOST_SHORT: u8 = SHORT | STATE | HAS_COUNTERS | IS_UPDATE | HAS_MORE;

/// Length of the job's fields.
const FIELDS_LEN: usize = 57;

/// Length of the job's words without the keys.
const WORDS_LEN: usize = 18;

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

/// Everything about a job except its tube, its words and its body, which never
/// change.
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
    /// How many tries nobody has ended.
    pub failed: u32,
}

impl Update {
    /// The fields of a job, without its tube, words and body.
    pub fn of(job: &StoredJob) -> Update {
        Update {
            id: job.id,
            priority: job.priority,
            delay: job.delay,
            ttr: job.ttr,
            created_at: job.created_at,
            state: job.state,
            counters: job.counters,
            failed: job.words.as_ref().map_or(0, |words| words.failed),
        }
    }

    /// Changes the fields of a job to these.
    pub fn apply(self, job: &mut StoredJob) {
        let words = job.words.take().map(|mut words| {
            words.failed = self.failed;
            words
        });
        *job = StoredJob {
            words,
            ..self.with(job.tube.clone(), job.body.clone())
        };
    }

    /// The whole job, if it has no words.
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
            words: None,
        }
    }

    /// Appends the kind of a put or an update, and the fields. `has_more` says
    /// whether words or tries follow.
    fn encode(&self, is_update: bool, has_more: bool, out: &mut Vec<u8>) {
        if self.short_len() < FIELDS_LEN {
            return self.encode_short(is_update, has_more, out);
        }
        out.push(match (is_update, has_more) {
            (false, false) => PUT,
            (false, true) => PUT_WITH_WORDS,
            (true, false) => UPDATE,
            (true, true) => UPDATE_WITH_TRIES,
        });
        let (state, moment) = match self.state {
            StoredState::Ready => (READY, 0),
            StoredState::Buried { order } => (BURIED, order),
            StoredState::Delayed { until } => (DELAYED, until.as_nanos()),
            StoredState::Deleted { until } => (DELETED, until.as_nanos()),
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

    fn encode_short(&self, is_update: bool, has_more: bool, out: &mut Vec<u8>) {
        let (state, moment) = match self.state {
            StoredState::Ready => (0, None),
            StoredState::Buried { order } => (1, Some(order)),
            StoredState::Delayed { until } => (2, Some(until.as_nanos())),
            StoredState::Deleted { until } => (3, Some(until.as_nanos())),
        };
        let has_counters = self.counters != Counters::default();
        let flags = [
            (has_counters, HAS_COUNTERS),
            (is_update, IS_UPDATE),
            (has_more, HAS_MORE),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        out.push(flags.fold(SHORT | state, |kind, (_, flag)| kind | flag));
        encode_number(self.id.0, out);
        for field in [self.priority.0, self.delay.0, self.ttr.0] {
            encode_number(field.into(), out);
        }
        let moments = [Some(self.created_at.as_nanos()), moment];
        out.extend(moments.into_iter().flatten().flat_map(u64::to_le_bytes));
        if has_counters {
            for counter in counters(&self.counters) {
                encode_number(counter.into(), out);
            }
        }
    }

    /// The length of the fields if they are short.
    fn short_len(&self) -> usize {
        let Update {
            id,
            priority,
            delay,
            ttr,
            ..
        } = *self;
        let numbers = [priority.0, delay.0, ttr.0].map(|field| number_len(field.into()));
        let moment = match self.state {
            StoredState::Ready => 0,
            _ => 8,
        };
        let counters: usize = match self.counters == Counters::default() {
            true => 0,
            false => counters(&self.counters)
                .map(|counter| number_len(counter.into()))
                .iter()
                .sum(),
        };
        number_len(id.0) + numbers.iter().sum::<usize>() + 8 + moment + counters
    }

    /// The length of the fields as they are written.
    fn fields_len(&self) -> usize {
        self.short_len().min(FIELDS_LEN)
    }

    /// The fields of a record of this kind.
    fn decode(kind: u8, fields: &mut Fields) -> Option<Update> {
        if kind >= SHORT {
            return Update::decode_short(kind, fields);
        }
        let id = fields.id()?;
        let (priority, delay, ttr) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let created_at = Time::from_nanos(fields.u64()?);
        let state = match (fields.u8()?, fields.u64()?) {
            (READY, 0) => StoredState::Ready,
            (BURIED, order) => buried(order)?,
            (DELAYED, until) => StoredState::Delayed {
                until: Time::from_nanos(until),
            },
            (DELETED, until) => StoredState::Deleted {
                until: Time::from_nanos(until),
            },
            _ => return None,
        };
        Some(Update {
            id,
            priority: Priority(priority),
            delay: Seconds(delay),
            ttr: Seconds(ttr),
            created_at,
            state,
            counters: read_counters(|| fields.u32())?,
            failed: 0,
        })
    }

    fn decode_short(kind: u8, fields: &mut Fields) -> Option<Update> {
        let id = fields.number().and_then(to_id)?;
        let mut number = || u32::try_from(fields.number()?).ok();
        let (priority, delay, ttr) = (number()?, number()?, number()?);
        let created_at = Time::from_nanos(fields.u64()?);
        let state = match kind & STATE {
            0 => StoredState::Ready,
            1 => buried(fields.u64()?)?,
            2 => StoredState::Delayed {
                until: Time::from_nanos(fields.u64()?),
            },
            _ => StoredState::Deleted {
                until: Time::from_nanos(fields.u64()?),
            },
        };
        let counters = match kind & HAS_COUNTERS {
            0 => Counters::default(),
            _ => read_counters(|| u32::try_from(fields.number()?).ok())?,
        };
        Some(Update {
            id,
            priority: Priority(priority),
            delay: Seconds(delay),
            ttr: Seconds(ttr),
            created_at,
            state,
            counters,
            failed: 0,
        })
    }
}

/// The next buried job gets the next number, so the highest number is never
/// used.
fn buried(order: u64) -> Option<StoredState> {
    (order < u64::MAX).then_some(StoredState::Buried { order })
}

fn read_counters(mut next: impl FnMut() -> Option<u32>) -> Option<Counters> {
    Some(Counters {
        reserves: next()?,
        timeouts: next()?,
        releases: next()?,
        buries: next()?,
        kicks: next()?,
    })
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
            Record::Put(job) => {
                let (tube_len, keys_len, body_len) = lens(job);
                let saved = FIELDS_LEN - Update::of(job).fields_len();
                return put_len(tube_len, keys_len, body_len) - saved as u64;
            }
            Record::Update(update) => {
                let tries_len = if update.failed > 0 { 4 } else { 0 };
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
                Update::of(job).encode(false, job.words.is_some(), out);
                let tube = job.tube.as_str().as_bytes();
                out.push(u8::try_from(tube.len()).expect("a tube's name has at most 200 bytes"));
                out.extend_from_slice(tube);
                if let Some(words) = &job.words {
                    encode_words(words, out);
                }
                body = job.body.wire();
            }
            Record::Update(update) => {
                update.encode(true, update.failed > 0, out);
                if update.failed > 0 {
                    out.extend_from_slice(&update.failed.to_le_bytes());
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
        let (is_update, has_more) = match kind {
            PUT => (false, false),
            PUT_WITH_WORDS => (false, true),
            UPDATE => (true, false),
            UPDATE_WITH_TRIES => (true, true),
            SHORT..=MOST_SHORT => (kind & IS_UPDATE != 0, kind & HAS_MORE != 0),
            _ => {
                let record = match kind {
                    DELETE => Record::Delete(fields.id()?),
                    SHORT_DELETE => Record::Delete(fields.number().and_then(to_id)?),
                    MARK => Record::Mark(fields.u32()?),
                    _ => return None,
                };
                return fields.0.is_empty().then_some(record);
            }
        };
        let update = Update::decode(kind, fields)?;
        let record = if is_update {
            let failed = match has_more {
                true => fields.u32().filter(|&failed| failed > 0)?,
                false => 0,
            };
            Record::Update(Update { failed, ..update })
        } else {
            let tube = tubes.read(fields)?;
            let words = match has_more {
                true => Some(Box::new(decode_words(fields)?)),
                false => None,
            };
            let body = Body::from_wire(fields.take(fields.0.len())?)?;
            let job = update.with(tube, body);
            Record::Put(StoredJob { words, ..job })
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
                let words = job.words.as_ref().map(|stored| &stored.words);
                let is_key = |words: &Words| {
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
    let keys_len = job.words.as_ref().map(|stored| stored.words.keys_len());
    (job.tube.as_str().len(), keys_len, job.body.wire().len())
}

/// How many bytes [`encode_number`] appends.
fn number_len(number: u64) -> usize {
    let bits = (u64::BITS - number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Appends a number with 7 bits in a byte, the lowest first. The highest bit of
/// a byte says that another one follows.
fn encode_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn encode_words(stored: &StoredWords, out: &mut Vec<u8>) {
    let Words {
        unique,
        limit,
        tries,
    } = &stored.words;
    let unique = unique.as_ref().map(|unique| (&unique.key, unique.kept.0));
    let limit = limit.as_ref().map(|limit| (&limit.key, limit.most));
    for word in [unique, limit] {
        let (key, number) = word.map_or(("", 0), |(key, number)| (key.as_str(), number));
        out.push(u8::try_from(key.len()).expect("a key has at most 200 bytes"));
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [tries.unwrap_or(0), stored.failed] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn decode_words(fields: &mut Fields) -> Option<StoredWords> {
    let unique = decode_word(fields)?.map(|(key, kept)| Unique {
        key,
        kept: Seconds(kept),
    });
    let limit = decode_word(fields)?.map(|(key, most)| Limit { key, most });
    let (tries, failed) = (fields.u32()?, fields.u32()?);
    let words = Words {
        unique,
        limit,
        tries: (tries > 0).then_some(tries),
    };
    let has_limit = words.limit.as_ref().is_none_or(|limit| limit.most > 0);
    let has_words = words.unique.is_some() || words.limit.is_some() || tries > 0;
    let is_right = has_limit && has_words && (tries > 0 || failed == 0);
    is_right.then_some(StoredWords { words, failed })
}

/// A key and its number; `Some(None)` if the job has no such word.
fn decode_word(fields: &mut Fields) -> Option<Option<(Key, u32)>> {
    let len = fields.u8()?;
    let (key, number) = (fields.take(len.into())?, fields.u32()?);
    match len {
        0 => (number == 0).then_some(None),
        _ => Some(Some((Key::parse(key)?, number))),
    }
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
            words: None,
        }
    }

    fn with_words(words: &str, failed: u32, job: StoredJob) -> StoredJob {
        let words = Words::parse(format!(" {words}").as_bytes()).unwrap();
        StoredJob {
            words: Some(Box::new(StoredWords { words, failed })),
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
                failed: 7,
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
                &[1, 0, 0, 0], // of which nobody has ended so many
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
