//! A dump, as `dump` writes it and `load` reads it.
//!
//! The file has one JSON object a line:
//!
//! ```text
//! {"beanpole-dump":1,"server":"127.0.0.1:11300","version":"1.12"}
//! {"tube":"default","state":"ready","pri":0,"delay":0,"ttr":60,…,"body":"text"}
//! {"tube":"default","state":"buried","pri":0,"delay":0,"ttr":60,…,"body64":"AP8="}
//! {"beanpole-dump-end":1,"jobs":2}
//! ```
//!
//! `delay` is what is left of it. A body that is not UTF-8 is in base64. What
//! else is known of a job follows `ttr`, for people; `load` does not need it.
//! Jobs come in the order in which they were put.

/// In the first line of a dump, with the version of its format.
pub const START_KEY: &str = "beanpole-dump";
/// In its last line.
pub const END_KEY: &str = "beanpole-dump-end";
/// The only version.
pub const VERSION: u64 = 1;
