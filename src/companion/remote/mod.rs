//! Connections to a server, and what several commands do with one.
//!
//! [`client`] is a connection; [`reply`] and [`facts`] are the answers. [`tubes`] takes
//! samples of a server and its tubes. [`watch`] keeps what samples say, for screens and
//! pages, with [`curves`]; [`trouble`] says what is wrong.
//! On these are built the [`finder`], which finds jobs and reads them, the
//! [`writer`], which puts, moves and copies them, and [`act`], which does all else
//! to them.
//! [`client_list`] is a table of all of a server, and [`form`] writes jobs and reads them from files.

pub mod act;
pub mod address;
pub mod client;
pub mod client_list;
pub mod curves;
pub mod facts;
pub mod finder;
pub mod form;
pub mod patterns;
pub mod reply;
pub mod trouble;
pub mod tubes;
pub mod watch;
pub mod writer;

// What commands name most.
pub use act::{Act, WhenFree, Work};
pub use address::{Address, Server};
pub use client::{Client, Event};
pub use facts::{Facts, JobFacts, State};
pub use finder::{Room, Scope};
pub use patterns::{Pattern, Patterns};
pub use reply::{Job, RawReply, Reply};
pub use trouble::Refusal;
pub use tubes::{Column, Sample};
pub use watch::{Known, Tube, Watched};
pub use writer::{NewJob, Transfer, Writer};
