//! What anybody may say: `peek` and its variants, `kick` and `pause-tube`.

use crate::engine::job::State;
use crate::engine::slab::{ConnectionIndex, TubeIndex};
use crate::engine::tube::Pause;
use crate::engine::{Change, Engine, Outcome, Owner, SLICE};
use crate::protocol::command::{Kick, Rest};
use crate::protocol::{Event, JobId, Reply, Seconds, TubeName};

/// How many jobs a long kick changes in one time slice. It is few, because a full
/// disk has little room for the changes of one slice.
const KICKED_AT_ONCE: usize = 20;

impl Engine {
    pub(super) fn peek(&self, id: JobId) -> Option<Reply> {
        let job = self.jobs.get(id)?;
        Some(Reply::Found(id, job.body.clone()))
    }

    pub(super) fn kick(&mut self, by: ConnectionIndex, bound: u32) -> Outcome {
        let tube = self.used_tube(by);
        let [_, delayed, _, buried] = tube.jobs.by_state;
        let only_buried = buried > 0;
        // It kicks as many jobs as there are now, at most. One that is buried or
        // delayed while this kick is under way may be among them.
        let there = if only_buried { buried } else { delayed };
        let kick = Kick {
            only_buried,
            left: there.min(bound as usize),
            kicked: 0,
        };
        self.kick_some(by, kick)
    }

    /// Does a time slice of a kick. Each job is offered to the waiting connections
    /// before the next one is kicked.
    pub(super) fn kick_some(&mut self, by: ConnectionIndex, mut kick: Kick) -> Outcome {
        let most = self.effects.steps + SLICE;
        for _ in 0..KICKED_AT_ONCE.min(kick.left) {
            if self.has_unserved() || self.effects.steps >= most {
                break;
            }
            let tube = self.used_tube(by);
            let jobs = match kick.only_buried {
                true => &tube.buried,
                false => &tube.delayed,
            };
            let Some(&(_, id)) = jobs.first() else {
                kick.left = 0;
                break;
            };
            self.kick_one(id);
            kick.kicked += 1;
            kick.left -= 1;
        }
        if kick.left == 0 {
            return Outcome::Reply(Reply::KickedCount(kick.kicked));
        }
        Outcome::Unfinished(Rest::Kick(kick))
    }

    pub(super) fn kick_job(&mut self, id: JobId) -> Option<Reply> {
        let state = self.jobs.get(id)?.state;
        matches!(state, State::Buried { .. } | State::Delayed { .. }).then(|| {
            self.kick_one(id);
            Reply::Kicked
        })
    }

    fn kick_one(&mut self, id: JobId) {
        let job = self.jobs.get_mut(id).expect("the job exists");
        job.details_mut().failed_tries = 0;
        self.change_state(id, State::Ready, Some(Event::Kick));
        self.serve();
    }

    pub(super) fn pause_tube(&mut self, name: &TubeName, length: Seconds) -> Option<Reply> {
        if self.outside.disk_is_full && self.begins_pause(name, length) {
            return Some(Reply::OutOfMemory);
        }
        let tube = self.find_tube(name)?;
        let until = self.now + length;
        let pause = (length > Seconds(0)).then_some(Pause { length, until });
        self.tubes[tube].pauses += 1;
        self.set_pause(tube, pause);
        self.set_timer(Owner::Tube(tube));
        Some(Reply::Paused)
    }

    /// Begins, replaces or ends a pause. The caller sets the tube's timer.
    pub(in crate::engine) fn set_pause(&mut self, index: TubeIndex, pause: Option<Pause>) {
        let tube = &mut self.tubes[index];
        let before = std::mem::replace(&mut tube.pause, pause);
        if before.is_some() || pause.is_some() {
            let name = tube.name.clone();
            self.record(Change::Pause(name));
        }
        self.waiting.note(index, &self.tubes[index]);
    }
}
