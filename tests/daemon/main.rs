//! The daemon as an administrator meets it: how it starts and ends, which user
//! it becomes, what it says, and what it does when something runs out.
//!
//! A test that needs root runs only if `TEST_AS_ROOT` is in the environment.

mod activation;
mod binlog;
mod ending;
mod keeping;
mod limits;
mod log;
mod manager;
mod options;
#[path = "../laboratory/port.rs"]
mod port;
mod program;
mod promises;
mod user;
