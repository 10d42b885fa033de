//! The laboratory: instruments of those who make the servers, which no user
//! needs and nothing installs.
//!
//! `bench` measures our server and beanstalkd with the same load, in turns,
//! and holds the figures against goals; `make bench` runs it.
//!
//! `attack` does to a server what clients should not: [`attacks`] has clients
//! that misbehave, and tells what a well-behaved one feels meanwhile;
//! [`differential`] looks for commands that our server and beanstalkd answer
//! differently; [`soak`] has many clients do everything at once, and keeps
//! account of each job. `tests/laboratory/attack.sh` runs them small.

pub mod attacks;
pub mod bench;
pub mod differential;
mod peer;
pub mod port;
pub mod soak;
