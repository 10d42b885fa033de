//! The commands: a module for each one, or for a few that are alike. No command
//! uses another, but that the console serves what `metrics` writes. A module opens
//! with its entry in the list of commands and the options that it reads.

pub mod acts;
pub mod binlog;
pub mod console;
pub mod dump;
pub mod health;
pub mod ls;
pub mod metrics;
pub mod ping;
pub mod put;
pub mod raw;
pub mod reserve;
pub mod stats;
pub mod tail;
pub mod top;
pub mod work;
