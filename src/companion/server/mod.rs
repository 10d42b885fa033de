//! What speaks to a server, and what several commands want to know of one.
//!
//! [`client`] is a connection, [`reply`] and [`stats`] are what comes back.
//! Above them: [`list`], [`sweep`] and [`census`] find jobs without taking them,
//! [`take`] and [`place`] take jobs out and put them in, many at a time.

pub mod address;
pub mod by_id;
pub mod census;
pub mod client;
pub mod form;
pub mod list;
pub mod names;
pub mod place;
pub mod reply;
pub mod stats;
pub mod sweep;
pub mod take;
pub mod tubes;
