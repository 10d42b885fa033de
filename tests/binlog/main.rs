//! The binlog against power cuts, disks that fail or are full, damage, another
//! server's files and long traffic. All random numbers come from seeds, and
//! nothing waits for the clock.

use beanpole::{binlog, engine, protocol};
use support::search;

mod churn;
mod clocks;
mod damage;
#[allow(dead_code, reason = "the simulator uses the rest")]
mod disk;
mod faults;
mod fence;
#[allow(dead_code, reason = "the simulator uses the rest")]
mod history;
mod model;
mod pauses;
mod stories;
mod takeover;
