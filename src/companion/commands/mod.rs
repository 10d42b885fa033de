//! The commands that fit into a file each. A file opens with its entries in
//! the table of commands.

pub mod check;
pub mod clear;
pub mod dump;
pub mod help;
pub mod jobs;
pub mod load;
pub mod metrics;
pub mod peek;
pub mod put;
pub mod reserve;
pub mod stats;
pub mod tail;
pub mod transfer;
pub mod tubes;
