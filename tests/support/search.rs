//! How long random searches go on: tests and attacks alike take the number that
//! they try from here. `BEANPOLE_SEARCH=20` tries twenty times as many.

use std::env;
use std::ops::Range;

/// The usual number of tries, as often as the environment asks for.
pub fn tries(usual: u64) -> u64 {
    let times = env::var("BEANPOLE_SEARCH").map_or(1, |text| match text.parse() {
        Ok(times @ 1..) => times,
        _ => panic!("BEANPOLE_SEARCH={text} is no number of times"),
    });
    usual * times
}

/// The usual seeds, and as many after them as the environment asks for.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    usual.start..usual.start + tries(usual.end - usual.start)
}
