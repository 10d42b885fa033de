//! The binlog against power cuts, failing disks, full ones, damage, another
//! server's files and long traffic. All of it is seeded, and nothing waits
//! for the clock.

mod churn;
mod crash;
mod damage;
mod disk;
mod faults;
mod fence;
mod history;
mod keeping;
mod model;
mod stories;
mod takeover;
