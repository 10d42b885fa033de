//! The companion program as its users see it: the real binary against real
//! servers, its output compared as text.
//!
//! Every story runs on beanpoled and, if there is one, on the beanstalkd that
//! the environment variable BEANSTALKD names (default: /usr/bin/beanstalkd).

mod binlog;
mod clients;
mod completion;
mod console;
mod full_disk;
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
mod tail;
mod terminal;
mod top;
mod waiting;
mod why;
