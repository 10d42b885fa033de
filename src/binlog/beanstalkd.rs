//! The records of beanstalkd's own binlog, versions 7 and 5: to take over its
//! jobs, and to give jobs back to it. Pure; [`import`](super::import) knows
//! which files exist, and in which order they count.
//!
//! Its integers have the byte order and layout of the machine that wrote them.
//! The version at the start of a file tells the byte order. A 32-bit x86 packs
//! the job of version 7 into 72 bytes instead of 80; the first record tells
//! which. Version 5 is read in its 64-bit layout only.
//!
//! | version 7 | version 5 | |
//! |---|---|---|
//! | i32 | u64 | length of the tube's name; 0: a short record |
//! | | | the name, in a full record |
//! | 80 bytes (72) | 77 bytes | the job |
//! | | | the body with CR LF, in a full record |
//!
//! The job: id u64 at 0, priority u32 at 8, delay i64 at 16 (12), TTR i64 at 24
//! (20), length of the body with CR LF i32 at 32 (28), creation i64 at 40 (32),
//! deadline i64 at 48 (40), counters 5 × u32 at 56 (48), state u8 at 76 (68).
//! Times are nanoseconds, in version 5 microseconds. The states are 0 deleted,
//! 1 ready, 2 reserved, 3 buried, 4 delayed.

use super::format::{Record, Tubes, Update, counters};
use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// How a version-7 file starts; the records of [`encode`] follow.
pub const FILE_START: [u8; 4] = 7i32.to_le_bytes();

const NANOS_A_SECOND: u64 = 1_000_000_000;
const LONGEST_JOB: usize = 80;

/// How the integers of a file are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// 7 or 5.
    pub version: u32,
    big_endian: bool,
    /// Integers of 8 bytes stand at multiples of 4.
    packed: bool,
}

/// Why the records of a file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A record with id 0, or no more bytes.
    Regular,
    /// The file ends within a record (of this job, if that is known).
    CutOff(Option<JobId>),
    /// No server wrote this.
    Nonsense(&'static str),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Regular => f.write_str("the records end"),
            End::CutOff(None) => f.write_str("the file ends within a record"),
            End::CutOff(Some(id)) => {
                write!(f, "the file ends within the body of job {id}")
            }
            End::Nonsense(flaw) => f.write_str(flaw),
        }
    }
}

impl Format {
    /// The format of a file that starts with these bytes; `None` if beanstalkd
    /// did not write it.
    ///
    /// Pass the first 1024 bytes, if there are so many: they tell the layout.
    pub fn of(start: &[u8]) -> Option<Format> {
        let first: [u8; 4] = *start.first_chunk()?;
        let format = |version, big_endian| Format {
            version,
            big_endian,
            packed: false,
        };
        let format = match (u32::from_le_bytes(first), u32::from_be_bytes(first)) {
            (version @ (5 | 7), _) => format(version, false),
            (_, version @ (5 | 7)) => format(version, true),
            _ => return None,
        };
        let packed = Format {
            packed: true,
            ..format
        };
        let looks_packed = !format.fits(&start[4..]) && packed.fits(&start[4..]);
        match format.version == 7 && looks_packed {
            true => Some(packed),
            false => Some(format),
        }
    }

    /// Whether the first record makes sense in this format.
    fn fits(self, start: &[u8]) -> bool {
        let job = self.u32(start, 0).and_then(|name_len| {
            let name_len = usize::try_from(name_len).ok()?;
            let job = start.get(4..)?.get(name_len..)?.get(..self.job_len())?;
            Job::decode(job, self)
        });
        job.is_some_and(|job| job.body_len >= 2 && job.is_likely)
    }

    fn job_len(self) -> usize {
        match (self.version, self.packed) {
            (5, _) => 77,
            (_, false) => 80,
            (_, true) => 72,
        }
    }

    fn u32(self, bytes: &[u8], offset: usize) -> Option<u32> {
        let field = *bytes.get(offset..)?.first_chunk()?;
        Some(match self.big_endian {
            true => u32::from_be_bytes(field),
            false => u32::from_le_bytes(field),
        })
    }

    fn u64(self, bytes: &[u8], offset: usize) -> Option<u64> {
        let field = *bytes.get(offset..)?.first_chunk()?;
        Some(match self.big_endian {
            true => u64::from_be_bytes(field),
            false => u64::from_le_bytes(field),
        })
    }
}

/// The records of a file, one after the other.
pub struct Records<R> {
    format: Format,
    source: R,
    left: u64,
}

impl<R: Read> Records<R> {
    /// The records in a file of `len` bytes, from its start.
    pub fn new(format: Format, mut source: R, len: u64) -> io::Result<Records<R>> {
        source.read_exact(&mut [0; 4])?;
        Ok(Records {
            format,
            source,
            left: len.saturating_sub(4),
        })
    }

    /// How many bytes are not read yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next record and the id of its job; no record if that job's body does
    /// not end in CR LF. The place of a buried job among the others is left 0.
    /// Errors are those of the source.
    pub(super) fn next(
        &mut self,
        tubes: &mut Tubes,
    ) -> io::Result<Result<(JobId, Option<Record>), End>> {
        if self.left == 0 {
            return Ok(Err(End::Regular));
        }
        let mut bytes = [0; 8];
        let name_len = if self.format.version == 5 {
            self.fill(&mut bytes)?;
            self.format.u64(&bytes, 0)
        } else {
            self.fill(&mut bytes[..4])?;
            self.format.u32(&bytes, 0).map(u64::from)
        };
        let mut bytes = [0; TubeName::MAX_LEN];
        let name_len = name_len.and_then(|len| usize::try_from(len).ok());
        let Some(name) = name_len.and_then(|len| bytes.get_mut(..len)) else {
            return Ok(Err(End::Nonsense("no tube's name is that long")));
        };
        if !self.fill(name)? {
            return Ok(Err(End::CutOff(None)));
        }
        let mut bytes = [0; LONGEST_JOB];
        let bytes = &mut bytes[..self.format.job_len()];
        if !self.fill(bytes)? {
            return Ok(Err(End::CutOff(None)));
        }
        if name.is_empty() && bytes.iter().all(|byte| *byte == 0) {
            return Ok(Err(End::Regular));
        }
        let Some(job) = Job::decode(bytes, self.format).filter(|job| job.update.id.0 > 0) else {
            return Ok(Err(End::Nonsense("this is not a job")));
        };
        let id = job.update.id;
        // So 2^63 ids are left for new jobs, more than anybody uses.
        if id.0 >= 1 << 63 {
            return Ok(Err(End::Nonsense("no job has so large an id")));
        }
        if name.is_empty() {
            let record = match job.is_deleted {
                true => Record::Delete(id),
                false => Record::Update(job.update),
            };
            return Ok(Ok((id, Some(record))));
        }
        let Some(tube) = tubes.name(name) else {
            return Ok(Err(End::Nonsense("no tube has such a name")));
        };
        if u64::from(job.body_len) > self.left {
            return Ok(Err(End::CutOff(Some(id))));
        }
        let len = usize::try_from(job.body_len).map_err(io::Error::other)?;
        let mut wire: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        self.fill(Arc::get_mut(&mut wire).expect("nobody else knows it yet"))?;
        let record = match Body::from_wire(wire) {
            _ if job.is_deleted => Some(Record::Delete(id)),
            body => body.map(|body| Record::Put(job.update.with(tube, None, body))),
        };
        Ok(Ok((id, record)))
    }

    /// Fills the buffer, if so many bytes are left.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(left) = self.left.checked_sub(buffer.len() as u64) else {
            return Ok(false);
        };
        self.source.read_exact(buffer)?;
        self.left = left;
        Ok(true)
    }
}

/// A job as it is in the file.
struct Job {
    update: Update,
    body_len: u32,
    is_deleted: bool,
    /// Whether a client could have asked for these times.
    is_likely: bool,
}

impl Job {
    fn decode(bytes: &[u8], format: Format) -> Option<Job> {
        let at = |natural, packed| if format.packed { packed } else { natural };
        // In nanoseconds.
        let time = |offset| {
            // beanstalkd's times are signed, and never negative.
            let time = i64::try_from(format.u64(bytes, offset)?).unwrap_or(0);
            let time = time.unsigned_abs();
            Some(match format.version {
                5 => time.saturating_mul(1000),
                _ => time,
            })
        };
        let counter = |index: usize| format.u32(bytes, at(56, 48) + 4 * index);
        let (delay, ttr) = (time(at(16, 12))?, time(at(24, 20))?);
        let body_len = format.u32(bytes, at(32, 28))?;
        let deadline = Time::from_nanos(time(at(48, 40))?);
        let state = *bytes.get(at(76, 68))?;
        let seconds = |nanos: u64| u32::try_from(nanos / NANOS_A_SECOND);
        let is_seconds = |nanos| nanos % NANOS_A_SECOND == 0 && seconds(nanos).is_ok();
        let seconds = |nanos| seconds(nanos).unwrap_or(u32::MAX);
        let job = Job {
            update: Update {
                id: JobId(format.u64(bytes, 0)?),
                priority: Priority(format.u32(bytes, 8)?),
                delay: Seconds(seconds(delay)),
                ttr: Seconds(seconds(ttr).max(1)),
                created_at: Time::from_nanos(time(at(40, 32))?),
                state: match state {
                    3 => StoredState::Buried { order: 0 },
                    4 => StoredState::Delayed { until: deadline },
                    _ => StoredState::Ready,
                },
                counters: Counters {
                    reserves: counter(0)?,
                    timeouts: counter(1)?,
                    releases: counter(2)?,
                    buries: counter(3)?,
                    kicks: counter(4)?,
                },
                silent: 0,
            },
            body_len,
            is_deleted: state == 0,
            is_likely: is_seconds(ttr) && is_seconds(delay),
        };
        (state <= 4 && i32::try_from(body_len).is_ok()).then_some(job)
    }
}

/// Appends the full version-7 record of a job to `out`, as a 64-bit
/// little-endian machine writes it. It has no place for the words of a job, nor
/// for what is left of a deleted one.
pub fn encode(job: &StoredJob, out: &mut Vec<u8>) {
    let tube = job.tube.as_str().as_bytes();
    let body = job.body.wire();
    let len = |len: usize| i32::try_from(len).expect("names and bodies are shorter than 2 GiB");
    out.extend_from_slice(&len(tube.len()).to_le_bytes());
    out.extend_from_slice(tube);
    let (state, deadline) = match job.state {
        StoredState::Deleted { .. } => (0, 0),
        StoredState::Ready => (1, 0),
        StoredState::Buried { .. } => (3, 0),
        StoredState::Delayed { until } => (4, until.as_nanos()),
    };
    let time = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX).to_le_bytes();
    out.extend_from_slice(&job.id.0.to_le_bytes());
    out.extend_from_slice(&job.priority.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(job.delay.as_nanos()));
    out.extend_from_slice(&time(job.ttr.as_nanos()));
    out.extend_from_slice(&len(body.len()).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time(job.created_at.as_nanos()));
    out.extend_from_slice(&time(deadline));
    for counter in counters(&job.counters) {
        out.extend_from_slice(&counter.to_le_bytes());
    }
    out.extend_from_slice(&[state, 0, 0, 0]);
    out.extend_from_slice(body);
}
