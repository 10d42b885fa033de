//! The format of a dump, as `dump` writes it and `load` reads it.
//!
//! Each line of the file is one JSON object:
//!
//! ```text
//! {"beanpole-dump":1,"server":"127.0.0.1:11300","version":"1.12"}
//! {"tube":"default","state":"ready","pri":0,"delay":0,"ttr":60,…,"body":"text"}
//! {"tube":"default","state":"buried","pri":0,"delay":0,"ttr":60,…,"body64":"AP8="}
//! {"beanpole-dump-end":1,"jobs":2}
//! ```
//!
//! `words` are those of the put, if it has any. `delay` is the delay that is
//! left. A body that is not UTF-8 is in base64. Other facts about a job follow
//! `ttr`; they are for people, and `load` does not need them. Jobs come in the
//! order in which they were put.

/// The key in the first line of a dump; its value is the version of the format.
pub const START_KEY: &str = "beanpole-dump";
/// The key in the last line.
pub const END_KEY: &str = "beanpole-dump-end";
/// The only version of the format.
pub const VERSION: u64 = 1;
