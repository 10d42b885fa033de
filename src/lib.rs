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
//! 2. [`protocol::command`]: each command, its grammar and its replies.
//! 3. [`engine`]: what the commands do. `commands.rs` has a method for each,
//!    `transitions.rs` tells how a job passes from state to state.
//! 4. [`server`]: the threads, and the life of a connection.
//! 5. [`binlog`]: how jobs outlive the process, a power cut and a full disk.
//!
//! # The one lock
//!
//! A mutex in `server/shared.rs` guards the engine. While it is held nobody
//! makes a system call, logs, or copies or frees a body: a worker reads and
//! parses before it takes the lock, and encodes, wakes others and writes after
//! it has let go. What arrived together is executed under one lock and
//! answered with one write. So a command on a quiet connection costs two
//! system calls, and a thousand pipelined ones hardly more.
//!
//! # Waiting
//!
//! A worker whose client waits in `reserve` sleeps on a condition variable of
//! its own until the answer lies there: a job, `TIMED_OUT`, `DEADLINE_SOON`.
//! Whoever makes a job ready finds in the engine who is to have it, first come
//! first served, sends it on and wakes that worker alone. Everything that the
//! clock does goes through the engine's timer wheel and one thread that sleeps
//! until it is next due, or longer as long as nobody waits. A client that leaves
//! while it waits is noticed by a thread that watches for nothing else. With
//! nothing to do, nothing runs.
//!
//! # What is not here
//!
//! No async runtime and no event loop: a thread for each connection, which
//! costs some 10 kB for each and is easy to follow. No users, passwords or
//! encryption: the protocol has none. No trait between engine and server:
//! there is one of each.

pub mod arguments;
pub mod binlog;
pub mod engine;
pub mod log;
pub mod options;
pub mod protocol;
pub mod server;
mod sys;
