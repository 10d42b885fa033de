//! beanpole: a work-queue server that speaks the beanstalk protocol.
//!
//! Clients put jobs into tubes; others reserve them, do what they say, and
//! delete them. A job that its worker does not finish in time is given to
//! somebody else. That is all, and this crate is the daemon `beanpoled` that
//! does it, with the companion program `beanpole`.
//!
//! # The picture
//!
//! ```text
//!   main ──> server ──> binlog ──> engine ──> protocol
//!  (wiring)  (threads,   (files)    (pure)     (pure)
//!             sockets)
//! ```
//!
//! Nothing points back. [`protocol`] turns bytes into requests and replies
//! into bytes. [`engine`] holds all jobs, tubes and connections: commands and
//! time go in, replies and wake-ups come out, and no socket, file, thread or
//! clock is known there. The shell around these two is thin: [`server`] has
//! the threads and the sockets, and `main.rs` is a table of contents of how
//! the daemon starts and ends. Between the two stands [`binlog`]: changes of the
//! engine's state go in, and nothing is promised to a client before they are
//! kept. The companion, a package of its own below `src/companion`, is a client
//! like any other.
//!
//! # In which order to read
//!
//! 1. `tests/transcripts/01-a-jobs-life.txt` and those after it: the protocol
//!    as stories, which the tests play against the engine, against the server
//!    and against beanstalkd.
//! 2. [`protocol::command`]: each command, its grammar, its replies, and what
//!    decides between them.
//! 3. [`engine`]: what the commands do. `commands.rs` has a line or a method for
//!    each, `transitions.rs` begins with a table of how a job passes from state to
//!    state.
//! 4. [`server`]: a table of all threads, and the way of a command.
//! 5. [`binlog`]: how jobs outlive the process, a power cut and a full disk.
//!
//! To find out what one command does, `release` for example, that order is the
//! way: its story is `tests/transcripts/10-release.txt`, its line and replies
//! are at [`Command::Release`](protocol::Command::Release), and `release` in
//! `engine/commands.rs` does it.
//!
//! # The one lock
//!
//! A mutex guards the engine; `server/shared.rs` says what may not happen while
//! it is held. A worker reads and parses before it takes the lock, and encodes
//! (but for the text of `stats` and `stats-tube`), wakes others and writes after
//! it has let go. What arrived together is executed together and answered with
//! one write, so a command on a quiet connection costs two system calls, and a
//! thousand pipelined ones hardly more.
//!
//! Nobody holds it for long: what concerns very many jobs is done in pieces, a
//! batch ends when it has cost much, and whoever brings one command goes before
//! those who bring hundreds (`server/lock.rs`, `server/permits.rs`).
//!
//! # Many cores
//!
//! Of some 4.7 µs that a single command costs the processor, `put` holds the
//! lock for 0.26, `reserve` for 0.58 and `delete` for 0.45 (in batches of 64 for
//! 0.08, 0.31 and 0.13; medians, on a machine of two cores). So throughput can
//! grow to about ten cores, and the lock ends it near 2.3 million commands a
//! second, or 5.7 million in batches, less what waiting for it costs. The next
//! step would be a lock for each tube: a `reserve` of several tubes would take
//! theirs in order, and `stats` would have to add up.
//!
//! # Waiting
//!
//! A worker whose client waits in `reserve` sleeps on a condition variable of
//! its own. Whoever ends the wait (the worker whose command made a job ready,
//! the timer, the thread that notices who has left) finds in the engine who is
//! to have what, first come first served, writes a short reply to that client
//! itself, and wakes its worker alone; a long one is left to the worker. With a
//! binlog the reply waits until the job's put is kept, and who keeps it writes.
//! Everything that the clock does goes through the engine's timer wheel and one
//! thread that sleeps until it is next due. With nothing to do, nothing runs.
//!
//! # What is not here
//!
//! No async runtime and no event loop: a thread for each connection, which
//! costs some 11 kB for each and is easy to follow. No users, passwords or
//! encryption: the protocol has none. No trait between engine and server:
//! there is one of each.

pub mod arguments;
pub mod binlog;
pub mod engine;
pub mod log;
pub mod options;
pub mod protocol;
pub mod server;
mod sync;
mod sys;

/// A number of 64 bits that threads share: the standard library has none where
/// the processor has none.
pub use sys::AtomicU64;
