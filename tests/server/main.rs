//! The daemon as clients and administrators meet it: how it starts and ends, which
//! user it becomes, what it says, what clients that come in crowds or behave badly
//! take from others, and what it does when something runs out.
//!
//! What each command answers, the transcripts show.

mod activation;
mod binlog;
mod bounds;
mod durability;
mod ending;
mod limits;
mod listing;
mod log;
mod manager;
mod options;
mod pieces;
mod promises;
mod user;
mod waiting;
