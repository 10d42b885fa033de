//! Connections to a server, and what several commands do with one.
//!
//! [`client`] is a connection; [`reply`] and [`stats`] are the answers, and a
//! [`sample`] is all that is asked about a server at one time. [`watch`] keeps what
//! samples say, for screens and pages, with [`curves`] and [`columns`].
//! On these are built [`list`] and [`finder`], which find jobs without
//! taking them, [`take`] and [`place`], which take many jobs out or put them in,
//! and [`change`], which does what a person asks for on a screen. A [`task`] is
//! work on many jobs that a signal may end.

pub mod address;
pub mod by_id;
pub mod change;
pub mod client;
pub mod columns;
pub mod curves;
pub mod finder;
pub mod form;
pub mod list;
pub mod names;
pub mod place;
pub mod reply;
pub mod sample;
pub mod stats;
pub mod take;
pub mod task;
pub mod trouble;
pub mod tubes;
pub mod watch;
