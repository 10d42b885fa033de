//! The job's fields as bytes, in puts and updates.
//!
//! **The long fields**, 57 bytes: id u64, priority u32, delay u32, TTR u32,
//! time of the put u64, state u8 (1 ready, 3 buried, 4 delayed, 5 deleted), a
//! number u64 (the end of the delay, the place among the buried jobs, or for a
//! deleted job the end of its key's time, else 0), and five counters of u32 each:
//! reserves, timeouts, releases, buries, kicks. Delay and TTR are in seconds,
//! times in nanoseconds since the Unix epoch. An update has all of them, not only
//! those that changed.
//!
//! **The short fields** are the same in the same order. Most numbers of most
//! jobs are small, so they are written with 7 bits in a byte, the lowest first,
//! and the highest bit of a byte says that there is another one. But the time
//! of the put and the number are u64. The state stands in the kind. The number
//! is left out if the job is ready, and the counters if all are 0. The kind is
//! the sum of 128, the state (0 ready, 1 buried, 2 delayed, 3 deleted), 4 if
//! the counters follow, 8 if this is an update, and 16 if a put has words or an
//! update tries. If the short fields would take 57 bytes or more, the long ones
//! are written. So no put is longer than one of kind 1 or 5, whatever has
//! happened to the job: [`put_len`](super::put_len).

use crate::binlog::frame::{Fields, to_id};
use crate::engine::{Counters, StoredJob, StoredState, Time};
use crate::protocol::{Body, JobId, Priority, Seconds, TubeName};

const PUT: u8 = 1;
const UPDATE: u8 = 2;
const PUT_WITH_WORDS: u8 = 5;
const UPDATE_WITH_TRIES: u8 = 6;
/// The kinds from this one on have short fields. The other numbers are added to
/// it; the lowest two bits are the state.
const SHORT: u8 = 128;
const STATE: u8 = 3;
const HAS_COUNTERS: u8 = 4;
const IS_UPDATE: u8 = 8;
const HAS_MORE: u8 = 16;
const MOST_SHORT: u8 = SHORT | STATE | HAS_COUNTERS | IS_UPDATE | HAS_MORE;

/// The states as a short kind has them, and what the long fields have for each.
const READY: u8 = 0;
const BURIED: u8 = 1;
const DELAYED: u8 = 2;
const DELETED: u8 = 3;
const LONG_STATES: [u8; 4] = [1, 3, 4, 5];

/// Length of the long fields.
pub(super) const FIELDS_LEN: usize = 57;

/// Whether a record of this kind is an update, and whether words or tries
/// follow the fields; `None` if it has no fields.
pub(super) fn kind_with_fields(kind: u8) -> Option<(bool, bool)> {
    match kind {
        PUT => Some((false, false)),
        PUT_WITH_WORDS => Some((false, true)),
        UPDATE => Some((true, false)),
        UPDATE_WITH_TRIES => Some((true, true)),
        SHORT..=MOST_SHORT => Some((kind & IS_UPDATE != 0, kind & HAS_MORE != 0)),
        _ => None,
    }
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
    /// How many tries have ended without a word.
    pub silent: u32,
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
            silent: job.options.as_ref().map_or(0, |words| words.silent),
        }
    }

    /// Changes the fields of a job to these.
    pub fn apply(self, job: &mut StoredJob) {
        let words = job.options.take().map(|mut words| {
            words.silent = self.silent;
            words
        });
        *job = StoredJob {
            options: words,
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
            options: None,
        }
    }

    /// Appends the kind of a put or an update, and the fields. `has_more` says
    /// whether words or tries follow.
    pub(super) fn encode(&self, is_update: bool, has_more: bool, out: &mut Vec<u8>) {
        let (state, number) = match self.state {
            StoredState::Ready => (READY, 0),
            StoredState::Buried { order } => (BURIED, order),
            StoredState::Delayed { until } => (DELAYED, until.as_nanos()),
            StoredState::Deleted { until } => (DELETED, until.as_nanos()),
        };
        let has_counters = self.counters != Counters::default();
        let is_short = self.short_len() < FIELDS_LEN;
        out.push(match (is_short, is_update, has_more) {
            (true, ..) => {
                let flag = |is_set, flag| if is_set { flag } else { 0 };
                let counters = flag(has_counters, HAS_COUNTERS);
                SHORT | state | counters | flag(is_update, IS_UPDATE) | flag(has_more, HAS_MORE)
            }
            (false, false, false) => PUT,
            (false, false, true) => PUT_WITH_WORDS,
            (false, true, false) => UPDATE,
            (false, true, true) => UPDATE_WITH_TRIES,
        });
        let encode = |field: u64, long_len: usize, out: &mut Vec<u8>| match is_short {
            true => encode_number(field, out),
            false => out.extend_from_slice(&field.to_le_bytes()[..long_len]),
        };
        encode(self.id.0, 8, out);
        for field in [self.priority.0, self.delay.0, self.ttr.0] {
            encode(field.into(), 4, out);
        }
        out.extend_from_slice(&self.created_at.as_nanos().to_le_bytes());
        if !is_short {
            out.push(LONG_STATES[usize::from(state)]);
        }
        if !is_short || state != READY {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if !is_short || has_counters {
            for counter in counters(&self.counters) {
                encode(counter.into(), 4, out);
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
    pub(super) fn fields_len(&self) -> usize {
        self.short_len().min(FIELDS_LEN)
    }

    /// The fields of a record of this kind.
    pub(super) fn decode(kind: u8, fields: &mut Fields) -> Option<Update> {
        let is_short = kind >= SHORT;
        let id = if is_short {
            fields.number()
        } else {
            fields.u64()
        };
        let id = id.and_then(to_id)?;
        let decode = |fields: &mut Fields| match is_short {
            true => u32::try_from(fields.number()?).ok(),
            false => fields.u32(),
        };
        let (priority, delay, ttr) = (decode(fields)?, decode(fields)?, decode(fields)?);
        let created_at = Time::from_nanos(fields.u64()?);
        let state = match is_short {
            true => kind & STATE,
            false => {
                let code = fields.u8()?;
                (READY..=DELETED).find(|state| LONG_STATES[usize::from(*state)] == code)?
            }
        };
        let number = match is_short && state == READY {
            true => 0,
            false => fields.u64()?,
        };
        let until = Time::from_nanos(number);
        let state = match state {
            READY if number == 0 => StoredState::Ready,
            // The next buried job gets the next number, so the highest one is
            // never used.
            BURIED if number < u64::MAX => StoredState::Buried { order: number },
            DELAYED => StoredState::Delayed { until },
            DELETED => StoredState::Deleted { until },
            _ => return None,
        };
        let mut counters = Counters::default();
        if !is_short || kind & HAS_COUNTERS != 0 {
            let mut next = || decode(fields);
            counters = Counters {
                reserves: next()?,
                timeouts: next()?,
                releases: next()?,
                buries: next()?,
                kicks: next()?,
            };
        }
        Some(Update {
            id,
            priority: Priority(priority),
            delay: Seconds(delay),
            ttr: Seconds(ttr),
            created_at,
            state,
            counters,
            silent: 0,
        })
    }
}

/// The counters in the order in which they are written.
pub(in crate::binlog) fn counters(counters: &Counters) -> [u32; 5] {
    let Counters {
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
    } = *counters;
    [reserves, timeouts, releases, buries, kicks]
}

/// How many bytes [`encode_number`] appends.
pub(super) fn number_len(number: u64) -> usize {
    let bits = (u64::BITS - number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Appends a number with 7 bits in a byte, the lowest first. The highest bit of
/// a byte says that another one follows.
pub(super) fn encode_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
