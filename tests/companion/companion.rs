//! The companion program as its users see it: the real binary against real
//! servers, its output compared as text.
//!
//! Every story runs on beanpoled and, if there is one, on the beanstalkd that
//! the environment variable BEANSTALKD names (default: /usr/bin/beanstalkd).

mod binlog;
mod clients;
mod completion;
mod console;
mod forged;
mod holding;
mod hostile;
mod lost_connection;
mod metrics;
mod moving;
mod raw;
mod reserve;
mod screen;
mod sessions;
mod stopping;
mod support;
mod terminal;
mod top;
mod verified;
mod waiting;
mod why;

// The simulated disk, whose states are written to real directories here. It finds the
// binlog's types in the root, where `binlog` has them.
#[allow(dead_code)]
#[path = "../binlog/disk.rs"]
mod disk;
#[allow(dead_code)]
#[path = "../binlog/history.rs"]
mod history;
#[allow(dead_code)]
#[path = "../binlog/model.rs"]
mod model;

use beanpole::{engine, protocol};
