//! The companion program as its users see it: the real binary against real
//! servers, its output compared as text.
//!
//! Every story runs on beanpoled and, if there is one, on the beanstalkd that
//! the environment variable BEANSTALKD names (default: /usr/bin/beanstalkd).

mod binlog;
mod clients;
mod completion;
mod console;
mod cutting;
mod dumping;
mod hostile;
mod jobs;
mod keeping;
mod listing;
mod looking;
mod metrics;
mod moving;
mod naming;
mod raw;
mod refusing;
mod reserve;
mod screen;
mod sessions;
mod stopping;
mod story;
mod support;
mod top;
mod waiting;
mod why;
mod work;
