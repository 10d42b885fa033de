//! The bytes of the binlog: names of files, the header of a segment, the frame
//! before each record, and the records. Pure: values to bytes and back; no file is
//! opened here.
//!
//! A segment is a header, then records one after the other, each after its frame,
//! then zeros. A record lies in one segment. What follows the 16 zeros after the
//! last record may be left over from an earlier use of the file. Integers of a
//! fixed length are little-endian.
//!
//! **Header**, 44 bytes:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 8 | `beanpole` |
//! | 8 | 4 | version of the format: 6 |
//! | 12 | 4 | the segment's number, as in the file's name |
//! | 16 | 4 | the oldest segment that was needed when this one began |
//! | 20 | 8 | where the records of the segment before end; 0 if there is none |
//! | 28 | 8 | the next job id when this one began |
//! | 36 | 4 | the segment's salt, a random number |
//! | 40 | 4 | CRC-32 of the 40 bytes before |
//!
//! **Frame**, 16 bytes:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 4 | length of the record, without the frame; 0 ends the segment |
//! | 4 | 4 | how many bytes before this frame were not known to be synced when it was written |
//! | 8 | 4 | CRC-32 of the segment's number (4 bytes), the frame's offset (8) and the 8 bytes before, combined with the salt by exclusive or |
//! | 12 | 4 | CRC-32, continued from the one before, of the record |
//!
//! A frame with a length of 2^32-1 has no record. It says that the next segment was
//! synced, so that recovery notices if the newest segment is missing or its header damaged.
//!
//! Because of the number and the offset in its checksum, a record is valid only where
//! it was written. Because of the salt, a client cannot make a body that contains a
//! valid frame. If a record is bad, the second field of later frames says whether it
//! had been synced; if it had, it is damage and not a torn tail.
//!
//! **Record**: a byte for its kind, then what this kind has. A *number* is a varint
//! (LEB128): 7 bits in a byte, the lowest first, in as few bytes as it needs; the
//! highest bit of a byte says that another one follows.
//!
//! | kind | | |
//! |---|---|---|
//! | 1 | put | the job's fields; number: the length of a text; the text; the body with CR LF up to the end |
//! | 2 | update | the job's fields |
//! | 3 | delete | number: id |
//! | 4 | mark (the low-water mark) | number: the oldest segment that is needed from here on |
//! | 5 | pause | number: its length in seconds, 0 if it is over; number: its end, 0 if it is over; the name of the tube |
//!
//! The **fields** of a job, in this order:
//!
//! - the numbers id, from 1 to 2^63-1, priority, delay and TTR, both in seconds;
//! - at most one number, which depends on the state: none for a ready job, the position
//!   among the buried jobs, below 2^63, for a buried one, the end of the delay for a delayed one, and
//!   for a deleted one the time when its key becomes free;
//! - the numbers of reserves, timeouts, releases, buries and kicks, and of tries that
//!   have failed (the time to run or the connection ended first), unless all of them
//!   are 0;
//! - in 8 bytes, the time of the put.
//!
//! Times are in nanoseconds since the Unix epoch. An update has all fields, not only
//! those that have changed. The kind of a put or an update says which there are: to 1
//! or 2 the state is added (0 ready, 8 buried, 16 delayed, 24 deleted), and 32 if there
//! are counters.
//!
//! The **text** is the name of the tube, and the options of the put as the command
//! had them, with a space before each. When the key of a deleted job stays taken,
//! the job is put again in the state deleted (a tombstone), with its unique key alone
//! and an empty body. When the time of the key is over, a delete record follows.

use crate::engine::{JobFields, Lengths, StoredJob, StoredPause, StoredState, Time};
use crate::protocol::framing::MAX_LINE;
use crate::protocol::{Body, JobId, Priority, PutOptions, Seconds, TubeName};
use crc32fast::Hasher;
use std::borrow::Cow;

/// Length of a segment's header.
pub const HEADER_LEN: u64 = 44;
/// Length of the frame before each record.
pub const FRAME_LEN: u64 = 16;

type FrameBytes = [u8; FRAME_LEN as usize];

/// The length in a frame that says that the next segment was synced. No record is
/// that long.
const CONTINUED: u32 = u32::MAX;

/// No job in a log has so high an id, and none that is buried so high a position. What is taken
/// over has ids below half of it: so as many are left for those that come, which is more than
/// anybody uses.
pub(super) const NUMBERS: u64 = 1 << 63;

/// What is wrong with a file that no server has written.
pub(super) const FOREIGN: &str = "it does not begin like a binlog segment";

const MAGIC: &[u8; 8] = b"beanpole";
pub(super) const VERSION: u32 = 6;

/// The name of a segment's file. beanstalkd reads no file of such a name.
pub fn segment_name(number: u32) -> String {
    format!("segment.{number}")
}

/// The number of the segment in the file of this name; `None` if this is no
/// segment's name.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    number_in(name, segment_name)
}

/// The number in a name that this function makes of it.
pub(super) fn number_in(name: &str, named: fn(u32) -> String) -> Option<u32> {
    let (_, number) = name.split_once('.')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (named(number) == name).then_some(number)
}

/// The name of the first prepared segment. The next ones have a number after it,
/// from 2 on. Their contents are not part of the binlog.
const PREPARED: &str = "segment.spare";

/// The name of a prepared segment.
pub(super) fn prepared_name(slot: usize) -> String {
    match slot {
        0 => PREPARED.into(),
        _ => format!("{PREPARED}{}", slot + 1),
    }
}

/// The prepared segment of this name; `None` if this is the name of none. (Numbers
/// above 2^32-1 are in no name of ours.)
pub(super) fn prepared_slot(name: &str) -> Option<usize> {
    let slot = match name.strip_prefix(PREPARED)? {
        "" => 0,
        number => number.parse::<u32>().ok()?.checked_sub(1)? as usize,
    };
    (prepared_name(slot) == name).then_some(slot)
}

/// The slot of the prepared segment of this name, whichever server has prepared it. (On
/// shared storage each server has names of its own, with further numbers.)
///
/// Any slot but 0 shows that there was a segment: the second prepared segment and the
/// later ones are created when the first segment has its name. Without this, a directory
/// that has lost all its segments would look new, and the server would start with no jobs.
pub(super) fn any_slot(name: &str) -> Option<usize> {
    let suffix = name.match_indices('.').nth(1).map(|(start, _)| start);
    let (name, suffix) = name.split_at(suffix.unwrap_or(name.len()));
    let is_number = |byte: u8| byte == b'.' || byte.is_ascii_digit();
    prepared_slot(name).filter(|_| suffix.bytes().all(is_number))
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
    /// A random number.
    pub salt: u32,
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.oldest.to_le_bytes(),
            &self.previous_end.to_le_bytes(),
            &self.next_id.0.to_le_bytes(),
            &self.salt.to_le_bytes(),
        ]
        .concat();
        let crc = crc32fast::hash(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// The header at the start of the file with this number; or what is wrong
    /// with it.
    pub fn decode(start: &[u8], number: u32) -> Result<Header, &'static str> {
        if !MAGIC.starts_with(&start[..MAGIC.len().min(start.len())]) {
            return Err(FOREIGN);
        }
        let Some(bytes) = start.first_chunk::<{ HEADER_LEN as usize }>() else {
            return Err("the file ends within its header");
        };
        let u32_at = |offset| Decoder(&bytes[offset..]).u32().expect("it is within");
        let u64_at = |offset| Decoder(&bytes[offset..]).u64().expect("it is within");
        let header = Header {
            number: u32_at(12),
            oldest: u32_at(16),
            previous_end: u64_at(20),
            next_id: JobId(u64_at(28)),
            salt: u32_at(36),
        };
        let is_sound = header.oldest <= number
            && !(1..HEADER_LEN).contains(&header.previous_end)
            && header.next_id.0 <= NUMBERS;
        match header {
            _ if u32_at(40) != crc32fast::hash(&bytes[..40]) => {
                Err("the checksum of its header is wrong")
            }
            _ if header.number != number => Err("its header is that of another segment"),
            _ if !is_sound => Err("the fields of its header are not valid"),
            _ => Ok(header),
        }
    }

    /// The version of a segment that starts with these bytes, if it is another one
    /// than ours, and the header is whole.
    pub(super) fn other_version(start: &[u8]) -> Option<u32> {
        let version = Decoder(start.strip_prefix(MAGIC)?).u32()?;
        let (header, crc) = start.split_at_checked(40)?;
        let is_whole = Decoder(crc).u32()? == crc32fast::hash(header);
        (is_whole && version != VERSION).then_some(version)
    }
}

/// The place of a frame on disk. Its checksums depend on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment's number.
    pub number: u32,
    /// The segment's salt.
    pub salt: u32,
    /// The offset in it.
    pub offset: u64,
}

impl Place {
    /// The checksum of the place and of the first two fields of a frame there.
    fn seed(self, len: u32, unsynced: u32) -> u32 {
        // One piece of 20 bytes takes half the time of four.
        let (low, high) = (self.offset as u32, (self.offset >> 32) as u32);
        let fields = [self.number, low, high, len, unsynced].map(u32::to_le_bytes);
        crc32fast::hash(fields.as_flattened()) ^ self.salt
    }
}

/// The bytes before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length of the record, never 0.
    pub len: u32,
    /// How many bytes before the frame were not known to be synced; `u32::MAX`
    /// means that many or more.
    unsynced: u32,
    /// The checksum of these two and of the place.
    seed: u32,
    /// The checksum of the record, continued from `seed`.
    crc: u32,
}

impl Frame {
    /// Decodes a frame, without a check that it [belongs](Self::belongs_to) to its place.
    pub(super) fn read(bytes: &FrameBytes) -> Option<Frame> {
        let mut fields = Decoder(bytes);
        let len = fields.u32().filter(|len| *len > 0)?;
        Some(Frame {
            len,
            unsynced: fields.u32()?,
            seed: fields.u32()?,
            crc: fields.u32()?,
        })
    }

    /// Whether it was written in this place.
    pub(super) fn belongs_to(&self, place: Place) -> bool {
        self.seed == place.seed(self.len, self.unsynced)
    }

    /// Whether this is the record that it announces.
    pub(super) fn announces(&self, record: &[u8]) -> bool {
        self.crc == crc_of(self.seed, [record, &[]])
    }

    /// The salt with which it would belong to a place whose salt is unknown (and 0 in
    /// `place`).
    pub(super) fn salt_in(&self, place: Place) -> u32 {
        self.seed ^ place.seed(self.len, self.unsynced)
    }

    /// What is written after the last record of a segment when the next one has
    /// begun. It is not synced, and there may be no room for it.
    pub(super) fn continued(place: Place) -> FrameBytes {
        encode_frame(place, CONTINUED, 0, [&[], &[]])
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
}

/// The frame of a record in two parts.
fn encode_frame(place: Place, len: u32, unsynced: u32, record: [&[u8]; 2]) -> FrameBytes {
    let seed = place.seed(len, unsynced);
    let fields = [len, unsynced, seed, crc_of(seed, record)].map(u32::to_le_bytes);
    let bytes = fields.as_flattened().try_into();
    bytes.expect("four fields of 4 bytes are a frame")
}

/// The checksum of a record in two parts, continued from that of its frame.
fn crc_of(seed: u32, record: [&[u8]; 2]) -> u32 {
    let mut crc = Hasher::new_with_initial(seed);
    record.iter().for_each(|part| crc.update(part));
    crc.finalize()
}

/// A change of a job, or a mark of the binlog itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A job with all its fields, tube, options and body. It replaces what was known
    /// of this job.
    Put(StoredJob),
    /// The fields of a job after a change.
    Update(JobFields),
    /// The job is deleted.
    Delete(JobId),
    /// The oldest segment that is needed from here on.
    Mark(u32),
    /// A pause of a tube, which replaces the one before, or says that it is over.
    Pause(StoredPause),
}

const PUT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const MARK: u8 = 4;
const PAUSE: u8 = 5;
/// The bits of a kind that distinguish these.
const WHAT: u8 = 7;
/// The lowest of the two bits of the state.
const STATE: u8 = 8;
const HAS_COUNTERS: u8 = 32;
/// All kinds are lower.
const NO_KIND: u8 = 64;

impl Record {
    /// How many bytes it takes, with its frame.
    pub(super) fn len(&self) -> u64 {
        let mut bytes = Vec::with_capacity(MOST_FIELDS);
        let body = self.encode_to(&mut bytes);
        FRAME_LEN + (bytes.len() + body.len()) as u64
    }

    /// How many bytes it takes at most with its frame, whatever happens to the job of a put.
    pub(super) fn longest(&self) -> u64 {
        match self {
            Record::Put(job) => put_len(job),
            Record::Pause(pause) => pause_len(&pause.tube),
            _ => self.len(),
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
        let body = self.encode_to(out);
        let (frame, record) = out[start..].split_at_mut(FRAME_LEN as usize);
        let len = u32::try_from(record.len() + body.len()).expect("a body has at most 1 GiB");
        let unsynced = u32::try_from(place.offset - synced).unwrap_or(u32::MAX);
        frame.copy_from_slice(&encode_frame(place, len, unsynced, [record, body]));
        body
    }

    /// Appends the record, except the body.
    fn encode_to(&self, out: &mut Vec<u8>) -> &[u8] {
        match self {
            Record::Put(job) => {
                job.fields.encode(PUT, out);
                let text = text(job);
                encode_numbers([text.len() as u64], out);
                out.extend(text.bytes());
                return job.body.wire();
            }
            Record::Update(fields) => fields.encode(UPDATE, out),
            Record::Delete(id) => encode_numbers([DELETE.into(), id.0], out),
            Record::Mark(oldest) => encode_numbers([MARK.into(), (*oldest).into()], out),
            Record::Pause(pause) => {
                let (length, until) = (pause.length.0.into(), pause.until.as_nanos());
                encode_numbers([PAUSE.into(), length, until], out);
                out.extend(pause.tube.as_str().bytes());
            }
        }
        &[]
    }

    /// The record in these bytes; `None` if they make no sense. `tube` is that of the
    /// last put that was read: most jobs are in the same one, and share its name.
    pub(super) fn decode(bytes: &[u8], tube: &mut Option<TubeName>) -> Option<Record> {
        let mut bytes = Decoder(bytes);
        let kind = bytes.u8()?;
        let record = match kind & WHAT {
            PUT if kind < NO_KIND => {
                let fields = JobFields::decode(kind, &mut bytes)?;
                let text_len = usize::try_from(bytes.number()?).ok()?;
                let text = bytes.0.split_off(..text_len)?;
                let end = text.iter().position(|byte| *byte == b' ');
                let (name, options) = text.split_at(end.unwrap_or(text.len()));
                let is_same = |tube: &TubeName| tube.as_str().as_bytes() == name;
                let last = tube.take().filter(is_same);
                *tube = last.or_else(|| TubeName::parse(name));
                let job = StoredJob {
                    fields,
                    tube: tube.clone()?,
                    options: match options {
                        [] => None,
                        options => Some(Box::new(PutOptions::parse(options)?)),
                    },
                    body: Body::from_wire(std::mem::take(&mut bytes.0))?,
                };
                (!job.is_deleted() || is_tombstone(&job)).then_some(Record::Put(job))?
            }
            UPDATE if kind < NO_KIND => {
                let fields = JobFields::decode(kind, &mut bytes)?;
                let is_deleted = matches!(fields.state, StoredState::Deleted { .. });
                (!is_deleted).then_some(Record::Update(fields))?
            }
            DELETE if kind == DELETE => Record::Delete(bytes.id()?),
            MARK if kind == MARK => Record::Mark(u32::try_from(bytes.number()?).ok()?),
            PAUSE if kind == PAUSE => {
                let ([length], until) = (bytes.numbers()?, Time::from_nanos(bytes.number()?));
                Record::Pause(StoredPause {
                    tube: TubeName::parse(std::mem::take(&mut bytes.0))?,
                    length: Seconds(length),
                    until,
                })
            }
            _ => return None,
        };
        bytes.0.is_empty().then_some(record)
    }
}

/// Whether this may be the tombstone of a deleted job whose key is still taken.
fn is_tombstone(job: &StoredJob) -> bool {
    let is_key = job.options.as_deref().is_some_and(PutOptions::is_key_alone);
    is_key && job.body.content().is_empty()
}

/// The name of a job's tube, and its options.
fn text(job: &StoredJob) -> Cow<'_, str> {
    let tube = job.tube.as_str();
    match &job.options {
        Some(options) => format!("{tube} {options}").into(),
        None => tube.into(),
    }
}

/// The longest fields of a job without the id. A job without options has no tries to
/// count.
const MOST_FIELDS: usize = 3 * U32_LEN + U64_LEN + 5 * U32_LEN + 1 + 8;
const U32_LEN: usize = 5;
const U64_LEN: usize = 10;

/// The length that the put of a job has at most with its frame, in bytes, whatever
/// happens to the job: when it is put again, its counters and numbers may be longer.
pub fn put_len(job: &StoredJob) -> u64 {
    put_len_of(job.fields.id, job.lengths())
}

/// The same from the job's id and lengths. (No put is near 4 GiB: the server accepts no
/// body above 1 GiB.)
pub(super) fn put_len_of(id: JobId, lengths: Lengths) -> u64 {
    let (options_len, tries_len) = match lengths.keys {
        Some(keys_len) => (PutOptions::LONGEST.len() + keys_len, U32_LEN - 1),
        None => (0, 0),
    };
    let fields_len = number_len(id.0) + MOST_FIELDS + tries_len;
    let text_len = lengths.tube + options_len;
    let text_len = number_len(text_len as u64) + text_len;
    FRAME_LEN + (1 + fields_len + text_len + lengths.body) as u64
}

/// The length that the record of a pause of this tube has at most with its frame, in bytes.
pub fn pause_len(tube: &TubeName) -> u64 {
    FRAME_LEN + (1 + U32_LEN + U64_LEN + tube.as_str().len()) as u64
}

/// The length of the longest put with a body of this length, in bytes with CR
/// LF, whatever its id, tube and options are.
pub fn max_put_len(body_len: usize) -> u64 {
    let lengths = Lengths {
        tube: TubeName::MAX_LEN,
        keys: Some(MAX_LINE),
        body: body_len,
    };
    put_len_of(JobId(u64::MAX), lengths)
}

/// How long a segment must be so that there is room in it for each put with a body of at most
/// this length, in bytes with CR LF.
pub fn segment_len_for(body_len: usize) -> u64 {
    HEADER_LEN + max_put_len(body_len)
}

impl JobFields {
    /// Appends the kind of a record with these fields, and the fields.
    fn encode(&self, what: u8, out: &mut Vec<u8>) {
        let (state, number) = match self.state {
            StoredState::Ready => (0, None),
            StoredState::Buried { order } => (1, Some(order)),
            StoredState::Delayed { until } => (2, Some(until.as_nanos())),
            StoredState::Deleted { until } => (3, Some(until.as_nanos())),
        };
        let [a, b, c, d, e] = self.counters;
        let counts = [a, b, c, d, e, self.failed_tries].map(u64::from);
        let counts = Some(counts).filter(|counts| *counts != [0; 6]);
        let kind = what + state * STATE + u8::from(counts.is_some()) * HAS_COUNTERS;
        let [priority, delay, ttr] = [self.priority.0, self.delay.0, self.ttr.0].map(u64::from);
        let numbers = [kind.into(), self.id.0, priority, delay, ttr].into_iter();
        let counts = counts.into_iter().flatten();
        encode_numbers(numbers.chain(number).chain(counts), out);
        out.extend(self.created_at.as_nanos().to_le_bytes());
    }

    /// The fields of a record of this kind.
    fn decode(kind: u8, bytes: &mut Decoder) -> Option<JobFields> {
        let id = bytes.id()?;
        let [priority, delay, ttr] = bytes.numbers()?;
        let state = kind / STATE % 4;
        let number = match state {
            0 => 0,
            _ => bytes.number()?,
        };
        let until = Time::from_nanos(number);
        let state = match state {
            0 => StoredState::Ready,
            1 if number >= NUMBERS => return None,
            1 => StoredState::Buried { order: number },
            2 => StoredState::Delayed { until },
            _ => StoredState::Deleted { until },
        };
        let counts = match kind & HAS_COUNTERS {
            0 => [0; 6],
            _ => bytes.numbers()?,
        };
        let [counters @ .., failed_tries] = counts;
        Some(JobFields {
            id,
            priority: Priority(priority),
            delay: Seconds(delay),
            ttr: Seconds(ttr),
            created_at: Time::from_nanos(bytes.u64()?),
            state,
            counters,
            failed_tries,
        })
    }
}

/// How many bytes [`encode_numbers`] appends for one.
fn number_len(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

/// Appends numbers. (A kind is one, too, since it is so low that it has one byte.)
fn encode_numbers(numbers: impl IntoIterator<Item = u64>, out: &mut Vec<u8>) {
    for mut number in numbers {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }
}

/// Reads bytes field by field; `None` when there are not enough bytes.
struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.split_off(..N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in as few bytes as it needs.
    fn number(&mut self) -> Option<u64> {
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

    /// Numbers of 32 bits.
    fn numbers<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u32::try_from(self.number()?).ok()?;
        }
        Some(numbers)
    }

    fn id(&mut self) -> Option<JobId> {
        let id = self.number()?;
        (1..NUMBERS).contains(&id).then_some(JobId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Counters;

    const PLACE: Place = Place {
        number: 3,
        salt: 0x89ab_cdef,
        offset: 100,
    };

    #[test]
    fn segments_are_known_by_their_names() {
        assert_eq!(segment_number("segment.12"), Some(12));
        assert_eq!(segment_number("binlog.12"), None);
        for end in ["", "0", "01", "+1", "x", "spare"] {
            assert_eq!(segment_number(&format!("segment.{end}")), None, "{end}");
        }
    }

    #[test]
    fn prepared_segments_are_known_by_their_names() {
        assert_eq!(prepared_slot("segment.spare"), Some(0));
        assert_eq!(prepared_slot("segment.spare2"), Some(1));
        assert_eq!(prepared_slot("segment.spare65537"), Some(65536));
        for number in ["1", "02", "+2", "4294967296", "x"] {
            let name = format!("segment.spare{number}");
            assert_eq!(prepared_slot(&name), None, "{name}");
        }
    }

    #[test]
    fn a_second_prepared_segment_of_any_server_shows_that_there_was_a_segment() {
        for name in ["segment.spare2", "segment.spare12", "segment.spare2.17.3"] {
            assert!(any_slot(name) > Some(0), "{name}");
        }
        for name in [
            "segment.1",
            "segment.spare",
            "segment.spare.17.3",
            "segment.spare2.old",
            "lock",
            "",
        ] {
            assert!(any_slot(name).is_none_or(|slot| slot == 0), "{name}");
        }
    }

    fn header() -> Header {
        Header {
            number: 3,
            oldest: 2,
            previous_end: 4711,
            next_id: JobId(12),
            salt: 0x1234_5678,
        }
    }

    #[test]
    fn a_header_is_encoded_as_documented_and_any_flipped_bit_is_detected() {
        let bytes = header().encode();
        assert_eq!(
            bytes[..40],
            [
                &b"beanpole"[..],
                &[6, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0],
                &[0x67, 0x12, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0],
                &[0x78, 0x56, 0x34, 0x12],
            ]
            .concat()
        );
        assert_eq!(Header::decode(&bytes, 3), Ok(header()));
        assert_eq!(Header::other_version(&bytes), None);
        assert!(Header::decode(&bytes, 4).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped, 3).is_err(), "bit {bit}");
            assert_eq!(Header::other_version(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        let (mut within, mut needless, mut last) = (header(), header(), header());
        within.previous_end = 43;
        needless.oldest = 4;
        last.next_id = JobId(NUMBERS + 1);
        for header in [within, needless, last] {
            assert!(Header::decode(&header.encode(), 3).is_err(), "{header:?}");
        }
    }

    #[test]
    fn a_segment_of_another_version_is_distinguished_from_damage() {
        for version in [5, 7] {
            let mut bytes = header().encode();
            bytes[8] = version;
            let crc = crc32fast::hash(&bytes[..40]).to_le_bytes();
            bytes[40..].copy_from_slice(&crc);
            assert_eq!(Header::other_version(&bytes), Some(version.into()));
        }
    }

    #[test]
    fn a_frame_with_the_length_of_no_record_is_none() {
        let read = |len| Frame::read(&encode_frame(PLACE, len, 0, [&[], &[]]));
        assert!(read(1).is_some() && read(CONTINUED).is_some() && read(0).is_none());
    }

    #[test]
    fn the_salt_is_recovered_from_a_frame_when_the_header_is_lost() {
        let bytes = bytes_of(&Record::Delete(JobId(1)));
        let frame = Frame::read(bytes.first_chunk().unwrap()).unwrap();
        assert_eq!(frame.salt_in(Place { salt: 0, ..PLACE }), PLACE.salt);
        assert!(frame.belongs_to(PLACE));
    }

    fn job(state: StoredState, counters: Counters, body: &[u8]) -> StoredJob {
        StoredJob {
            fields: JobFields {
                id: JobId(7),
                priority: Priority(1),
                delay: Seconds(2),
                ttr: Seconds(60),
                created_at: Time::from_nanos(9),
                state,
                counters,
                failed_tries: 0,
            },
            tube: TubeName::parse(b"mail").unwrap(),
            options: None,
            body: Body::new(body),
        }
    }

    fn with_options(text: &str, failed_tries: u32, mut job: StoredJob) -> StoredJob {
        job.options = PutOptions::parse(text.as_bytes()).map(Box::new);
        job.fields.failed_tries = failed_tries;
        job
    }

    const NONE: Counters = [0; 5];
    const MOST: Counters = [u32::MAX; 5];
    const BURIED: StoredState = StoredState::Buried { order: 5 };
    const DELETED: StoredState = StoredState::Deleted {
        until: Time::from_nanos(9),
    };

    /// A job whose numbers are all at their ends.
    fn longest(text: &str) -> StoredJob {
        let until = Time::from_nanos(u64::MAX);
        let mut job = job(StoredState::Delayed { until }, MOST, b"hi");
        job.fields = JobFields {
            id: JobId(NUMBERS - 1),
            priority: Priority(u32::MAX),
            delay: Seconds(u32::MAX),
            ttr: Seconds(u32::MAX),
            ..job.fields
        };
        match text {
            "" => job,
            text => with_options(text, u32::MAX, job),
        }
    }

    fn one_of_each() -> Vec<Record> {
        let counters = [u32::MAX, 127, 128, 1 << 21, u32::MAX];
        let key = with_options(" idp:a:60", 0, job(DELETED, NONE, b""));
        let all = with_options(" idp:a:60 con:bc:2 try:3", 2, job(BURIED, counters, b"hi"));
        vec![
            Record::Put(job(StoredState::Ready, NONE, b"")),
            Record::Put(job(BURIED, NONE, &[0; 1000])),
            Record::Put(longest("")),
            Record::Put(key),
            Record::Put(with_options(
                " try:1",
                0,
                job(StoredState::Ready, NONE, b""),
            )),
            Record::Update(all.fields),
            Record::Put(all),
            Record::Update(job(StoredState::Ready, NONE, b"").fields),
            Record::Update(longest("").fields),
            Record::Delete(JobId(1)),
            Record::Mark(2),
            Record::Pause(pause(u32::MAX, u64::MAX)),
            Record::Pause(StoredPause::over(TubeName::default())),
        ]
    }

    fn pause(length: u32, until: u64) -> StoredPause {
        StoredPause {
            tube: TubeName::parse(b"mail").unwrap(),
            length: Seconds(length),
            until: Time::from_nanos(until),
        }
    }

    /// A record with its frame, in its place.
    fn bytes_of(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        let body = record.encode(PLACE, 40, &mut bytes).to_vec();
        bytes.extend(body);
        assert_eq!(bytes.len() as u64, record.len(), "{record:?}");
        bytes
    }

    /// The bytes of the record in these, if all checksums are right in this place.
    fn checked(bytes: &[u8], place: Place) -> Option<&[u8]> {
        let (frame, rest) = bytes.split_first_chunk()?;
        let frame = Frame::read(frame).filter(|frame| frame.belongs_to(place))?;
        let record = rest.get(..frame.len as usize)?;
        frame.announces(record).then_some(record)
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        Record::decode(bytes, &mut None)
    }

    #[test]
    fn a_record_is_encoded_as_documented() {
        let counters = [258, 0, 0, 0, 0];
        let bytes = bytes_of(&Record::Put(job(BURIED, counters, b"hi")));
        assert_eq!(bytes[..8], [30, 0, 0, 0, 60, 0, 0, 0]); // length, not synced
        // Any program that has CRC-32 can calculate this.
        assert_eq!(
            bytes[8..16],
            [0xa8, 0xbe, 0x6b, 0x17, 0xdc, 0xd7, 0x70, 0xc1]
        );
        let fields = [7, 1, 2, 60, 5, 0x82, 2, 0, 0, 0, 0, 0];
        let put_at = [9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            bytes[16..],
            [&[1 + 8 + 32], &fields[..], &put_at, b"\x04mailhi\r\n"].concat()
        );
        let text = " idp:key:60 con:ab:2 try:3";
        let options = with_options(text, 1, job(BURIED, counters, b"hi"));
        let fields = [7, 1, 2, 60, 5, 0x82, 2, 0, 0, 0, 0, 1];
        let rest = [b"\x1email", text.as_bytes(), b"hi\r\n"].concat();
        assert_eq!(
            bytes_of(&Record::Put(options))[16..],
            [&[1 + 8 + 32], &fields[..], &put_at, &rest].concat()
        );
        let ready = job(StoredState::Ready, NONE, b"").fields;
        assert_eq!(
            bytes_of(&Record::Update(ready))[16..],
            [&[2, 7, 1, 2, 60][..], &put_at].concat()
        );
        assert_eq!(bytes_of(&Record::Delete(JobId(258)))[16..], [3, 0x82, 2]);
        assert_eq!(bytes_of(&Record::Mark(2))[16..], [4, 2]);
        let paused = bytes_of(&Record::Pause(pause(60, 258)));
        assert_eq!(paused[16..], *b"\x05\x3c\x82\x02mail");
    }

    #[test]
    fn a_record_is_valid_only_at_the_segment_and_offset_it_was_written_to() {
        let other_places = [
            Place { number: 4, ..PLACE },
            Place { salt: 1, ..PLACE },
            Place {
                offset: 99,
                ..PLACE
            },
        ];
        for record in one_of_each() {
            let bytes = bytes_of(&record);
            assert_eq!(decode(checked(&bytes, PLACE).unwrap()), Some(record));
            for place in other_places {
                assert_eq!(checked(&bytes, place), None, "{place:?}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_noticed() {
        for record in one_of_each() {
            let bytes = bytes_of(&record);
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(checked(&flipped, PLACE), None, "{record:?}, bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(checked(&bytes[..len], PLACE), None, "{record:?}, {len}");
            }
        }
    }

    /// So a job that is put again fits where its earlier put did.
    #[test]
    fn a_put_is_never_longer_than_the_length_reserved_for_it() {
        for record in one_of_each() {
            match &record {
                Record::Put(job) => assert!(record.len() <= put_len(job), "{record:?}"),
                Record::Pause(pause) => assert!(record.len() <= pause_len(&pause.tube)),
                _ => {}
            }
        }
        // The longest time of a unique key was ten digits once.
        for (text, less) in [
            ("", 0),
            (
                " idp:a:31536000 con:b:4294967295 try:4294967295 exp:4294967295",
                2,
            ),
        ] {
            let tube = TubeName::parse(&[b'a'; 200]).unwrap();
            let longest = StoredJob {
                tube,
                ..longest(text)
            };
            let len = put_len(&longest);
            assert_eq!(Record::Put(longest).len(), len - less);
            assert!(len <= max_put_len(4));
        }
    }

    #[test]
    fn numbers_are_read_back_and_overlong_encodings_are_refused() {
        for number in [0, 1, 127, 128, 16383, 16384, u64::MAX / 2, u64::MAX] {
            let mut bytes = Vec::new();
            encode_numbers([number], &mut bytes);
            assert_eq!(bytes.len(), number_len(number));
            assert_eq!(Decoder(&bytes).number(), Some(number));
        }
        let beyond = [&[0xff; 9][..], &[2]].concat();
        for wrong in [&[0x80, 0][..], &[0x80], &beyond, &[0xff; 11]] {
            assert_eq!(Decoder(wrong).number(), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_record_that_no_server_writes_is_rejected() {
        let deleted = |body| job(DELETED, NONE, body);
        let ready = || job(StoredState::Ready, NONE, b"");
        let last = StoredState::Buried { order: NUMBERS };
        let id = JobId(NUMBERS);
        for record in [
            // A tombstone with more than a key, or with none.
            Record::Put(deleted(b"")),
            Record::Put(with_options(" idp:a:60", 0, deleted(b"hello"))),
            Record::Put(with_options(" idp:a:60 con:b", 0, deleted(b""))),
            Record::Put(with_options(" try:3", 0, deleted(b""))),
            Record::Put(with_options(" idp:a exp:60", 0, deleted(b""))),
            Record::Update(deleted(b"").fields),
            // Numbers at their ends.
            Record::Delete(id),
            Record::Put(job(last, NONE, b"")),
            Record::Update(JobFields {
                id,
                ..ready().fields
            }),
        ] {
            assert_eq!(
                decode(checked(&bytes_of(&record), PLACE).unwrap()),
                None,
                "{record:?}"
            );
        }
        let update = bytes_of(&Record::Update(ready().fields))[16..].to_vec();
        for (wrong, bytes) in [
            ("nothing", vec![]),
            ("an unknown kind", vec![7, 1]),
            ("a pause of no tube", vec![5, 1, 1]),
            ("a delete with counters", vec![32 + 3, 1]),
            ("a mark with more", vec![4, 1, 0]),
            (
                "an update of a kind too high",
                [&[64 + 2], &update[1..]].concat(),
            ),
            ("an update with more", [&update[..], &[0]].concat()),
        ] {
            assert_eq!(decode(&bytes), None, "{wrong}");
        }
    }
}
