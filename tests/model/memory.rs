//! A server without a log, which keeps its jobs in memory.

use crate::naive::Client;
use crate::world::{self, Jobs, Keeper, World};
use beanpole::engine::{Change, ConnectionId, Engine, Outcome, Time};
use beanpole::protocol::{JobId, Reply, Request};

/// Ends the engine, and starts another one with the jobs that were kept.
pub fn restart(world: &mut World<Memory>) {
    world.model.restart();
    // A reservation that has not ended may not have been kept.
    for job in &mut world.model.jobs {
        job.reserves = world.keeper.0[&JobId(job.id)].counters.reserves;
    }
    let mut engine = world::engine(&world.model);
    for stored in world.keeper.jobs().values() {
        engine.restore(stored.clone());
    }
    engine.set_next_id(world.engine.next_id());
    world.go_on_with(engine);
}

/// The jobs that are kept.
#[derive(Default)]
pub struct Memory(Jobs);

impl Keeper for Memory {
    fn execute(
        &mut self,
        engine: &mut Engine,
        (_, id): (Client, ConnectionId),
        request: Request,
        now: Time,
    ) -> Outcome {
        engine.execute(id, request, now)
    }

    fn refused(&mut self) -> bool {
        false
    }

    fn keep(&mut self, changes: &[Change], engine: &Engine) {
        for change in changes {
            match *change {
                Change::Put(id) | Change::Update(id) => {
                    // The job may have been deleted since.
                    if let Some(stored) = engine.stored(id) {
                        self.0.insert(id, stored);
                    }
                }
                Change::Delete { id, .. } => {
                    self.0.remove(&id).expect("a job in the log");
                    // If its key is still taken, something is left of it.
                    self.0.extend(engine.stored(id).map(|rest| (id, rest)));
                }
            }
        }
    }

    fn answer(&mut self, _: Client, _: &Reply) {}

    fn is_owed(&self, _: Client) -> bool {
        false
    }

    fn jobs(&self) -> &Jobs {
        &self.0
    }
}
