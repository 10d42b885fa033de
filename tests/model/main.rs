//! Compares the engine with a naive model, by random commands of several
//! clients and random steps of the clock.
//!
//! A failure shows the whole history and its seed. `MODEL_SEED=17` plays the
//! seed 17 again, `MODEL_RUNS=100000` plays this number of seeds.

#[path = "naive.rs"]
mod naive;
#[path = "world.rs"]
mod world;

use std::env;
use support::search;
use world::{Random, World};

/// How many histories are played, and how many steps each has.
const RUNS: u64 = 300;
const STEPS: usize = 400;

const MAX_JOB_SIZE: usize = 20;

#[test]
fn the_engine_answers_random_clients_as_the_model_does() {
    let number = |name| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let seeds = match number("MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MODEL_RUNS").unwrap_or_else(|| search::tries(RUNS)),
    };
    for seed in seeds {
        let repeat = format!("MODEL_SEED={seed} cargo test --test model");
        let mut world = World::new(Random::new(seed), MAX_JOB_SIZE, repeat);
        for _ in 0..STEPS {
            if world.random.one_in(500) {
                world.restart()
            } else {
                world.step()
            }
        }
    }
}
