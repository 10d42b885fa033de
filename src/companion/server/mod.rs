//! Connections to a server, and what several commands do with one.
//!
//! [`client`] is a connection; [`reply`] and [`stats`] are the answers. On
//! these are built [`list`], [`sweep`] and [`census`], which find jobs without
//! taking them, and [`take`] and [`place`], which take many jobs out or put
//! them in.

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
