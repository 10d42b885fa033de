//! Records to bytes.

use super::frame::{Frame, Place};
use super::{BURIED, COUNTED, DELAYED, DELETE, FRAME_LEN, FULL, MARK, Record, UPDATE};
use super::{frame_len, full_len};
use crate::engine::{Counters, StoredState};
use crc32fast::Hasher;

impl Record {
    /// How many bytes it takes, with its frame.
    pub(in crate::binlog) fn len(&self) -> u32 {
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
