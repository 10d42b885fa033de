//! The laboratory: instruments for the people who make the server. No user
//! needs them, and nothing installs them.
//!
//! `bench` measures our server and beanstalkd with the same load, in turns, and
//! compares the figures with goals. `make bench` runs it. [`load`] is what puts
//! the load on a server: one thread with many connections.
//!
//! `attack` does to a server what clients should not do. [`attacks`] has
//! clients that misbehave, and tells what a well-behaved client feels
//! meanwhile. [`differential`] looks for commands that our server and
//! beanstalkd answer differently. `tests/peers/attacks` runs their small forms.

pub mod attacks;
pub mod bench;
pub mod differential;
pub mod load;
mod peer;
