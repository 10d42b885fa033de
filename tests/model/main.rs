//! The engine against a naive model: random commands of several clients and
//! random steps of the clock.
//!
//! A failure shows the whole history and its seed; `MODEL_SEED=17` plays that
//! one again, `MODEL_RUNS=100000` plays so many seeds.

#[path = "naive.rs"]
mod naive;
mod world;

use beanpole::engine::{Change, ConnectionId, Engine, Outcome, Time};
use beanpole::protocol::{Reply, Request};
use naive::Client;
use std::env;
use world::{Jobs, Keeper, World};

/// How many histories are played, and how many steps each has.
const RUNS: u64 = 300;
const STEPS: usize = 400;

const MAX_JOB_SIZE: usize = 20;

#[test]
fn the_engine_does_what_the_model_does() {
    let number = |name| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let seeds = match number("MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MODEL_RUNS").unwrap_or(RUNS),
    };
    for seed in seeds {
        let repeat = format!("MODEL_SEED={seed} cargo test --test model");
        let mut world = World::new(seed, MAX_JOB_SIZE, Memory::default(), repeat);
        for _ in 0..STEPS {
            match world.random.one_in(500) {
                true => restart(&mut world),
                false => world.step(),
            }
        }
    }
}

/// The engine ends, and another one begins with what was kept.
fn restart(world: &mut World<Memory>) {
    world.model.restart();
    let mut engine = world::engine(&world.model);
    for stored in world.keeper.jobs().values() {
        engine.restore(stored.clone());
    }
    engine.set_next_id(world.engine.next_id());
    world.go_on_with(engine);
}

/// Keeps what changes in memory.
#[derive(Default)]
struct Memory(Jobs);

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
                    // It may have changed again since, and be gone.
                    if let Some(stored) = engine.stored(id) {
                        self.0.insert(id, stored);
                    }
                }
                Change::Delete { id, .. } => drop(self.0.remove(&id).expect("a job in the log")),
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
