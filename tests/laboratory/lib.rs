//! The laboratory: instruments of those who make the servers, which no user
//! needs and nothing installs.
//!
//! `bench` measures our server and beanstalkd with the same load, in turns,
//! and holds the figures against goals; `make bench` runs it.

pub mod bench;
pub mod port;
