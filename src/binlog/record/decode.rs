//! Records from bytes, which may be any.

use super::frame::Frame;
use super::{
    BURIED, COUNTED, DELAYED, DELETE, FULL, MARK, Record, SHORTEST_PREFIX, UPDATE, Update,
};
use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};
use crc32fast::Hasher;
use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;

/// A full record's longest part before the body.
const LONGEST_PREFIX: usize = SHORTEST_PREFIX + 8 + 5 * 5 + TubeName::MAX_LEN;

impl Record {
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
