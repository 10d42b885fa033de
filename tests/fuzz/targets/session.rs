//! The commands of several clients, and when they come. The engine must answer
//! as the naive model does, byte for byte. Each byte of the input decides one
//! thing: which client acts, what it does, and to which job.

#![no_main]

#[path = "../../model/naive.rs"]
mod naive;
#[allow(dead_code, reason = "the tests with seeds use the rest")]
#[path = "../../model/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use world::{Random, World};

fuzz_target!(|data: &[u8]| {
    let repeat = "give this input to the target again".to_string();
    let mut world = World::new(Random::told(data), 20, repeat);
    while !world.random.is_over() {
        if world.random.one_in(200) {
            world.restart()
        } else {
            world.step()
        }
    }
});
