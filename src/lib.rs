//! beanpole: a work-queue server that speaks the beanstalk protocol.
//!
//! Clients put jobs into tubes. Other clients reserve these jobs, do what they
//! say, and delete them. If a client does not finish a job in time, another
//! client gets it. That is all. This crate is the daemon `beanpoled`, which
//! does this; the program `beanpole` is its companion.
//!
//! # The picture
//!
//! ```text
//!   main ──> server ──> binlog ──> engine ──> protocol
//!  (wiring)  (threads,   (files)    (pure)     (pure)
//!             sockets)
//! ```
//!
//! Nothing points back. [`protocol`] turns bytes into requests and replies into bytes.
//! [`engine`] holds all jobs, tubes and connections: commands and time go in, replies and
//! wake-ups come out. It knows no socket, file, thread or clock. The shell around these
//! two is thin: [`server`] has the threads and the sockets, and `main.rs` is a table of
//! contents of how the daemon starts and ends. An arrow shows which part uses which: the
//! server also calls the engine itself, and appends the engine's changes to [`binlog`],
//! the write-ahead log. No change is acknowledged to a client before its record is
//! durable there. The companion, a package of its own in `src/companion`, is a client
//! like any other.
//!
//! # Reading order
//!
//! 1. `tests/transcripts/01-a-jobs-life.txt` and those after it: the protocol
//!    as stories. The tests play them against the engine, the server and
//!    beanstalkd.
//! 2. [`protocol::command`]: each command, its grammar, its replies, and what
//!    decides between them.
//! 3. [`engine`]: what the commands do. `commands` has a line or a method
//!    for each command. `transitions.rs` begins with a table of how a job
//!    passes from state to state.
//! 4. [`server`]: a table of all threads; [`server::outbox`]: which of them sends a reply,
//!    and what it waits for.
//! 5. [`binlog`]: how jobs outlive the process, a power cut and a full disk.
//!
//! # What happens on `put`
//!
//! A client says `put 0 0 60 5` and `hello`, to a server with `-b` and `-f 0`. The story
//! is `tests/transcripts/01-a-jobs-life.txt`, the grammar is at
//! [`Command::Put`](protocol::Command::Put).
//!
//! 1. The client's [`worker`](server::worker) reads the bytes. In `parse` it gets two
//!    requests from them, the line and the body: [`Framer::next`](protocol::Framer::next).
//! 2. It takes the one lock and has the engine execute both:
//!    [`Batch::execute_slices`](server::batch::Batch::execute_slices). The line gives the
//!    job its id. The body is executed when the disk has room for the job, or refused.
//! 3. The engine inserts the job (`engine/commands/producers.rs`), and `enter` in
//!    `engine/transitions.rs` puts it into the ready queue of its tube. If another client
//!    waits for it, `serve` reserves it for that one and notes the reply.
//! 4. The change is appended to the binlog, in memory:
//!    [`Shared::execute_and_append`](server::shared::Shared::execute_and_append). The
//!    binlog says up to which LSN it must be durable before `INSERTED` is sent:
//!    [`Binlog::needed_for`](binlog::Binlog::needed_for).
//! 5. The lock is released, in [`Shared::unlock`](server::shared::Shared::unlock). The
//!    answer to a client that waited goes to that client's outbox.
//! 6. The worker posts `INSERTED`, with the LSN, to its own client's outbox:
//!    [`Client::post`](server::outbox::Client::post). When it has nothing more to
//!    execute, it calls [`Client::start_flush`](server::outbox::Client::start_flush),
//!    which sends what is ready and begins the commit for the rest.
//! 7. If no other thread is writing the binlog, this worker writes and syncs it for all
//!    clients that wait: [`Binlog::commit_then`](binlog::Binlog::commit_then), which is
//!    group commit. Otherwise it reads the next command, and the next write takes its
//!    changes along. (If its replies might not fit into the socket, it sleeps instead.)
//! 8. The thread that has synced calls [`durable`](binlog::Waiter::durable) of each outbox
//!    that waits for this, and that call sends `INSERTED`. Its own client's `INSERTED` it
//!    sends next, in `finish`.
//!
//! `release`, `bury`, `kick` and `delete` go the same way. `engine/transitions.rs` begins
//! with a table of what each of them does with a job.
//!
//! # What happens on `reserve`
//!
//! 1. The first steps are those above. But no job is ready, so the engine notes that this
//!    client waits at each tube that it watches: [`Outcome::Waiting`](engine::Outcome::Waiting).
//! 2. The worker frees its buffers and sleeps, on a condition variable of its own:
//!    [`Client::await_answer`](server::outbox::Client::await_answer).
//! 3. A job becomes ready by another client's `put`, `release` or `kick`; or the
//!    [`timer`](server::timer) has the engine tick, and a delay, a time to run or the
//!    timeout of the `reserve` is over; or the [`acceptor`](server::acceptor) sees that
//!    the peer has hung up. The thread that has caused this gets the answer from the
//!    engine, first come first served.
//! 4. It posts the answer to the outbox, in step 5 above:
//!    [`Client::answer`](server::outbox::Client::answer). If the job's put is not durable
//!    yet, this begins the commit, as in step 7. If it is durable, this thread sends the
//!    answer at once and wakes the worker. An answer with a long body it leaves to the
//!    worker.
//! 5. The worker sends what was left to it, and reads the next command.
//!
//! The clock acts only through the engine's timer wheel: each request first does
//! what is due, and one thread sleeps until something is. With nothing to do, no
//! thread runs, unless an option asks for that: a watchdog, a timeout of idle clients, or
//! a directory that another machine could take over. (Then one thread checks every two
//! seconds that the lock is still ours.)
//!
//! # The one lock
//!
//! A mutex guards the engine; `server/shared.rs` says what may not happen while
//! it is held. A worker reads and parses before it takes the lock. It encodes
//! replies, wakes other threads and writes after it has released the lock. (Only the
//! text of some statistics is made under it.) Commands that arrived together are
//! executed together and answered with one write. So a command on a quiet connection
//! costs two system calls, and a thousand pipelined commands hardly more.
//!
//! No thread holds the lock for long. Work on very many jobs is done in time slices, and a
//! batch of commands is interrupted when it has cost much. A worker with one command
//! goes before workers with hundreds: `lock.rs`, which also says why the mutex is not the
//! standard library's.
//!
//! # Many cores
//!
//! Most of what a single command costs the processor is its two system calls,
//! and no thread holds the lock during these. So throughput grows with the cores
//! until the lock is never free. By the times for which it is held, some twenty cores
//! would do that (`tests/bench/README.md`). The next step would be a lock for
//! each tube: a `reserve` of several tubes would take their locks in order, and
//! `stats` would have to add up.
//!
//! # What is not here
//!
//! No async runtime and no event loop: there is a thread for each connection,
//! which costs some 35 kB, most of them the kernel's, and is easy to follow. No users,
//! passwords or encryption: the protocol has none. No trait between engine and server:
//! there is one of each.
//!
//! # Terms
//!
//! The words of the field are used in its sense; this is what each of them
//! names here.
//!
//! - **Connection**: one client's socket, and what the engine keeps for it: the
//!   tube that it uses, those that it watches, the jobs that it holds. *Worker* is
//!   the thread that serves a connection; in `stats` and in the manual
//!   it is a client that has reserved, as in beanstalkd.
//! - **Options of a put**: what may follow its numbers: a *unique key* (`idp`), a
//!   *concurrency limit* (`con`), a *try limit* (`try`) and an *expiry* (`exp`).
//!   `protocol/options.rs` has a line on what each does.
//! - **Outbox**: the replies that are to be sent to one client, in their order.
//! - **Answer**: the reply to a `reserve` that has had to wait, such as a job or
//!   `TIMED_OUT`. The thread that ends the wait hands it to the outbox.
//! - **Half-closed**: the peer sends no more, but still reads. *Closed*: it does
//!   neither. The system reports both in the same way (on Linux, `EPOLLRDHUP`):
//!   as a *hang-up*.
//! - **Narrow socket**: one for which the kernel holds little, because a control group
//!   pays for that. It is made *wide* for a long body.
//! - **Batch**: the commands of one client that have arrived together. A *bulk*
//!   batch has many, and lets workers with few take the lock first. (What is written to
//!   the binlog in one group commit is a *group* of records.)
//! - **Binlog**: the write-ahead log.
//! - **LSN**, log sequence number: a position in the binlog, in bytes. A record is
//!   *written* when it is in a file, and *synced* when it outlives a power cut. The
//!   binlog is *durable* up to an LSN when the records before it are as safe as the
//!   options promise: synced with `-f 0`, otherwise written.
//! - **Group commit**: one write and one sync for all threads that wait. The *writer* is
//!   what a thread must hold to write to the binlog; threads hand it to each other. The
//!   *committer* is the thread that writes in time what no other thread does, and with
//!   `-f MS` the *syncer* is the one that syncs.
//! - **Segment**: one file of the binlog. A *prepared* segment is a preallocated
//!   file in which the next segment begins (`segment.spare` on disk). An *obsolete*
//!   one has no live bytes, nor has any before it: it is *recycled*, which makes it a
//!   prepared segment as it is, or removed. The *segments thread* does this.
//! - **Room**: disk space for a put, in files that are prepared.
//! - **Torn tail**: what an unfinished write has left after the last whole record, on
//!   the disk. *Tail* alone is the end of the log in memory: what is appended and not
//!   yet taken to be written. The type `Tail` also keeps the accounts of live bytes and
//!   room.
//! - **Names**: the entries of the binlog's directory. They are synced with the
//!   directory, not with a file.
//! - **Live bytes**: the latest put records of the jobs that exist. All other bytes
//!   are *garbage*.
//! - **Compaction**: moving live jobs out of the oldest segment, by writing them
//!   again at the end of the log, so that this segment becomes obsolete.
//! - **Tombstone**: what remains of a deleted job while its unique key is still taken. In
//!   the log it is a put record, which counts as live. (An ordinary deletion is a delete
//!   record.)
//! - **Mark**: the record that names the oldest segment that is still needed, the
//!   log's low-water mark.
//! - **Lease**: the time for which the directory is certainly ours, on storage that
//!   another machine can take over. It begins with a *lock check*: the server reads
//!   whether the lock is still its own. *Fencing* keeps a server that has lost the lock
//!   from writing or answering.
//! - **Backpressure**: making a client wait, instead of buffering more for it. A
//!   *slow client* does not read its replies.
//! - **Drain mode**: the server answers `DRAINING` to puts, until it ends.
//! - **Simulator** (`tests/simulator`): it runs the whole server on threads, a disk and a
//!   clock of its own, with power cuts. Its *judge* compares each reply with a model.
//! - **Trim**: returning memory that is no longer used, to the allocator or the
//!   system.
//! - **Time slice**: how much of long work is done under one hold of the lock, and in one
//!   call of the engine. Its cost is counted in *steps*: how many jobs, tubes and
//!   connections the engine examines or changes.

pub mod binlog;
pub mod engine;
mod lock;
pub mod log;
pub mod options;
pub mod protocol;
pub mod server;
mod sync;
mod sys;

#[cfg(simulated)]
pub use server::simulator;

/// A number of 64 bits that threads share. The standard library has it only for
/// processors that have such numbers.
pub use sys::AtomicU64;
