//! The binlog against power cuts, disks that fail or are full, damage, another
//! server's files and long traffic. All random numbers come from seeds, and
//! nothing waits for the clock.

use beanpole::{binlog, engine, protocol};

mod churn;
mod clocks;
mod crash;
mod damage;
mod disk;
mod faults;
mod fence;
mod history;
mod keeping;
mod model;
#[path = "../laboratory/search.rs"]
mod search;
mod stories;
mod takeover;
