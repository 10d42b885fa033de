//! A load generator: one thread drives many connections, checks each reply and
//! counts each latency. What watches connections is for Linux alone, since other
//! systems have no epoll.
//!
//! In reading order: [`wire`] and [`reply`] (the connections), [`jobs`]
//! (bodies, and their check when they come back), [`arrivals`] (when work
//! begins), [`work`] (put, reserve and delete as steps), [`handoff`], and
//! [`histogram`].

pub mod arrivals;
#[cfg(target_os = "linux")]
pub mod handoff;
pub mod histogram;
pub mod jobs;
pub mod reply;
#[cfg(target_os = "linux")]
mod tube;
#[cfg(target_os = "linux")]
pub mod wire;
#[cfg(target_os = "linux")]
pub mod work;

#[cfg(target_os = "linux")]
pub use tube::{TUBE, clean_up, enter, stat, wait_for_waiters};
