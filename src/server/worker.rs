//! A worker's life with one client: read, parse, execute, post; and wait, if a
//! command waits. The `outbox` decides when replies are sent, and by which thread.

use super::batch::{Batch, Next};
use super::input::Input;
use super::listener::NARROW;
use super::memory::MemoryPart;
use super::outbox::{CAPACITY_KEPT, Client, SEND_BYTES, SENT_TO_NARROW};
use super::shared::Shared;
use super::stats;
use crate::engine::ConnectionId;
use crate::log::{self, Level};
use crate::protocol::{Framer, JobStats, Reply, Request};
use std::fmt::Arguments;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may be silent and keep a large buffer.
const BUFFER_TIMEOUT: Duration = Duration::from_millis(100);

/// For how many bytes a wide socket has buffers, each way.
const WIDE: usize = 80 * 1024;

/// Serves one client until its connection ends.
pub fn serve(shared: &Shared, client: &Arc<Client>) {
    client.log(Level::Connections, "connected");
    let end = Worker::new(shared, client).run();
    match &end {
        Ok(()) => client.log(Level::Connections, "closed"),
        Err(error) => client.log(Level::Connections, format_args!("closed: {error}")),
    }
    shared.disconnect(client.id);
    let is_stopped = client.end();
    if end.is_ok() {
        client.stream.linger(is_stopped);
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    client: &'a Arc<Client>,
    framer: Framer,
    input: Input,
    batch: Batch,
    /// How much memory it holds for its client: input, bodies and replies, and what the
    /// kernel holds by `width` and `in_socket`.
    memory: MemoryPart,
    /// The read timeout that is set in the socket.
    read_timeout: Option<Duration>,
    /// Whether the client has waited in a `reserve`, and is in `hangups_in_reserve`.
    has_waited: bool,
    /// How many bytes the kernel may receive for a wide socket; 0 if it is not wide.
    width: usize,
    /// How many bytes of long replies the kernel may hold for a narrow socket.
    in_socket: usize,
    /// How many bytes of memory the outbox takes.
    in_outbox: usize,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, client: &'a Arc<Client>) -> Worker<'a> {
        if shared.limits.narrow_sockets {
            client.send_at_once(None);
        }
        Worker {
            shared,
            client,
            framer: Framer::new(shared.limits.max_job_size),
            input: Input::default(),
            batch: Batch::default(),
            memory: MemoryPart::new(&shared.memory, 0),
            read_timeout: None,
            has_waited: false,
            width: 0,
            in_socket: 0,
            in_outbox: 0,
        }
    }

    /// Serves until the end of the connection. What was executed is answered,
    /// whatever has ended it.
    fn run(&mut self) -> io::Result<()> {
        let end = self.read_and_execute();
        let sent = self.client.flush();
        end.and(sent)
    }

    fn read_and_execute(&mut self) -> io::Result<()> {
        loop {
            self.parse();
            if self.batch.is_empty() {
                // Only now, so that all replies to commands that came together
                // share one write.
                self.start_flush()?;
                if self.shared.is_stopping() || !self.read()? {
                    return Ok(());
                }
            } else if !self.execute_some()? {
                return Ok(());
            }
        }
    }

    /// Sends what is ready. What the client does not take may stay, if more can be read.
    fn start_flush(&mut self) -> io::Result<()> {
        let shared = self.shared;
        let most = || {
            if shared.has_memory() {
                SEND_BYTES
            } else {
                CAPACITY_KEPT
            }
        };
        self.in_outbox = self.client.start_flush(&most)?;
        self.count_memory();
        Ok(())
    }

    /// Takes complete requests out of the input, until one may have to wait.
    /// The bytes after that one are not parsed before it has its answer.
    fn parse(&mut self) {
        if !self.batch.is_empty() {
            // The replies to the first requests had to be sent before the others are executed.
            return;
        }
        let mut unparsed = self.input.unparsed();
        let mut before = unparsed;
        while let Some(request) = self.framer.next(&mut unparsed) {
            let taken = &before[..before.len() - unparsed.len()];
            log_request(self.client, &request, taken);
            before = unparsed;
            if !self.batch.push(request) {
                break;
            }
        }
        let left = unparsed.len();
        self.input.keep(left);
    }

    /// Reads once, and waits for that as long as it takes. Returns whether the client has
    /// sent anything.
    fn read(&mut self) -> io::Result<bool> {
        let idle_timeout = self.shared.limits.idle_timeout;
        let mut shrinks_after = BUFFER_TIMEOUT;
        loop {
            // After its buffer was freed, the next read allocates a new one, which
            // need not be freed again. But a reply may arrive later than that.
            let has_shrunk = shrinks_after > BUFFER_TIMEOUT;
            let holds_much = self.input.memory() > 0 || self.batch.is_large();
            let shrinks = holds_much && !has_shrunk || self.in_socket > 0;
            // These waits delay the end of a silent client a little.
            let shrinks = shrinks && idle_timeout.is_none_or(|idle| idle >= 10 * shrinks_after);
            let timeout = if shrinks {
                Some(shrinks_after)
            } else {
                idle_timeout
            };
            if self.framer.memory() > 0 || self.framer.needed() > NARROW {
                self.widen();
            }
            let stream = &self.client.stream;
            if self.read_timeout != timeout {
                stream.set_read_timeout(timeout)?;
                self.read_timeout = timeout;
            }
            let read = match self.framer.growing_body() {
                // A large body is read directly into its own memory.
                Some(body) => {
                    let missing = body.missing();
                    self.input.was_filled = false;
                    stream.read(&mut body.bytes, missing)
                }
                None => {
                    // A buffer that counts is counted before the client can fill it.
                    let (shared, memory) = (self.shared, &mut self.memory);
                    let has_room = |bytes| shared.count_if_room(memory, bytes, 0);
                    self.input.grow(self.framer.needed(), has_room);
                    self.count_memory();
                    self.input.read(&self.client.stream)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if shrinks {
                        shrinks_after *= 10;
                        self.shrink();
                    }
                    // When the lock is released, `Trim` notes what has become free.
                    let id = self.client.id;
                    let is_idle = self.shared.with_lock(|state, _| state.engine.is_idle(id));
                    if is_idle && !shrinks {
                        return Err(io::Error::other("silent for too long"));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.batch.awaits_leavers = true;
                    self.count_memory();
                    if self.framer.memory() > 0 && !self.shared.has_memory() {
                        self.framer.refuse_body();
                        self.count_memory();
                    }
                    return Ok(count > 0);
                }
            }
        }
    }

    /// Executes some of the requests, and posts their replies. Returns false if the
    /// connection is to be closed.
    fn execute_some(&mut self) -> io::Result<bool> {
        let (shared, id, is_bulk) = (self.shared, self.client.id, self.is_bulk());
        let next = self
            .batch
            .execute_slices(shared, id, &mut self.memory, is_bulk);
        let (replies, needed) = self.batch.replies();
        for reply in &mut *replies {
            complete(reply, shared, self.client);
        }
        // Bodies in the outbox count: while they wait for the disk, their jobs may be deleted.
        let (memory, unsent) = self.client.post(replies, needed);
        self.in_outbox = memory;
        self.count_memory();
        if self.shared.limits.narrow_sockets && unsent > SENT_TO_NARROW {
            self.send_at_once(unsent.min(WIDE));
        }
        if unsent >= self.batch.gathers {
            self.client.flush()?;
        }
        match next {
            Next::Wait => self.wait(),
            Next::AwaitLeavers => {
                let leavers = shared.leavers(Some(self.client));
                if !leavers.is_empty() {
                    // What is executed so far does not wait with it.
                    self.start_flush()?;
                    shared.await_leavers(leavers);
                }
                Ok(true)
            }
            next => Ok(next != Next::Close),
        }
    }

    /// Whether this is a bulk batch, or more commands have arrived than it has.
    fn is_bulk(&self) -> bool {
        // The bytes of an incomplete line or body are no further commands.
        let has_more = self.input.unparsed().len() >= self.framer.needed();
        self.batch.is_bulk() || has_more
    }

    /// Waits for the answer to a `reserve`. Meanwhile it holds as little memory as
    /// possible, because very many may wait. Returns false if the server ends: if the
    /// client was given a job, that job is ready after a restart.
    fn wait(&mut self) -> io::Result<bool> {
        self.shrink();
        // It registers only now, and only once, because most clients never
        // wait.
        if !std::mem::replace(&mut self.has_waited, true) {
            let client = self.client;
            let hangups = &self.shared.hangups_in_reserve;
            hangups.add(&client.stream.0, client.id.0)?;
        }
        if self.memory.bytes > 0 {
            // Replies count until they are sent, and no longer.
            self.client.flush()?;
            self.in_outbox = 0;
            self.count_memory();
        }
        self.client.await_answer()
    }

    /// Makes a narrow socket wide for the rest of the connection, because long bodies come
    /// slowly otherwise. A window that the peer has cannot be taken back, so what it may send
    /// counts until the end. Therefore this is done only while most of the memory is free.
    fn widen(&mut self) {
        if self.shared.limits.narrow_sockets
            && self.width == 0
            && self.client.stream.is_tcp()
            && self.shared.count_if_room(&mut self.memory, WIDE, 3)
        {
            self.width = WIDE;
            self.client.stream.widen(WIDE);
        }
    }

    /// Has long replies sent at once instead of in short pieces, if there is room for what
    /// the kernel holds of them until they have arrived.
    fn send_at_once(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.in_socket);
        if self.shared.count_if_room(&mut self.memory, more, 0) {
            self.in_socket += more;
            // Little more than that, since what follows does not count. The rest is what the
            // kernel needs beside these bytes.
            self.client.send_at_once(Some(self.in_socket + 1024));
        }
    }

    /// Notes how much memory it holds, beyond what each client costs.
    fn count_memory(&mut self) {
        if self.in_socket > 0 && self.in_outbox == 0 && self.client.stream.has_sent_all() {
            self.in_socket = 0;
            self.client.send_at_once(None);
        }
        let kernel = self.width + self.in_socket;
        let arrived = self.input.memory() + self.framer.memory() + self.batch.bodies();
        self.memory.set(arrived + self.in_outbox + kernel);
    }

    /// Frees all buffers that are empty.
    fn shrink(&mut self) {
        self.batch.shrink();
        self.in_outbox = self.client.shrink();
        self.input.shrink();
        self.count_memory();
    }
}

/// Adds to a reply what the engine does not know. Closes the socket that `CLOSED` is about,
/// and logs `OUT_OF_MEMORY`.
fn complete(reply: &mut Reply, shared: &Shared, client: &Client) {
    let fill_in_file = |job: &mut JobStats| {
        let binlog = shared.binlog.as_ref();
        job.file = binlog.map_or(0, |binlog| binlog.segment_of(job.id));
    };
    match reply {
        Reply::OutOfMemory => log::client_warning(
            &client.peer,
            "refused: OUT_OF_MEMORY ('beanpole why' says what is full)",
        ),
        // These differ between runs, and a simulated run must be reproducible.
        Reply::ServerStats(..) | Reply::MoreServerStats(_) if cfg!(simulated) => {}
        Reply::Closed(id) => shared.close(ConnectionId(*id), client),
        Reply::ServerStats(facts, draining) => stats::complete(facts, *draining, shared),
        Reply::MoreServerStats(facts) => stats::complete_more(facts, shared),
        Reply::JobStats(job) => fill_in_file(job),
        Reply::Jobs(list) => list.items.iter_mut().for_each(fill_in_file),
        _ => {}
    }
}

/// Logs a request. A command is logged as it came. Of a body only the size is
/// logged, because its contents are private. A line that is no command is not
/// shown either, because it may be part of a body.
fn log_request(client: &Client, request: &Request, line: &[u8]) {
    let write = |text: Arguments<'_>| client.log(Level::Commands, text);
    match request {
        Request::Command(..) => write(format_args!("{}", line.trim_ascii_end().escape_ascii())),
        Request::Body(Ok(body)) => write(format_args!("a body of {} bytes", body.content().len())),
        Request::Body(Err(reason)) => write(format_args!("no body: {reason:?}")),
        Request::Refused(_) => write(format_args!("a line that is no command")),
        Request::Http => log::client_warning(
            &client.peer,
            "closed: it speaks HTTP (does a web page have a browser do that?)",
        ),
        Request::Continue(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Engine, Peer};
    use crate::protocol::command::{Ask, Rest};
    use crate::protocol::framing::MAX_LINE;
    use crate::protocol::{Body, JobId};
    use crate::server::{Clock, Limits, Stream};
    use crate::sync::Ordering;
    use std::io::{IoSlice, Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// Has this done by a worker whose peer is the stream.
    fn with_worker(work: impl FnOnce(Worker, UnixStream)) {
        with_memory(None, UnixStream::pair().unwrap(), work);
    }

    /// The same by TCP, with so much memory.
    fn with_little_memory(max_memory: usize, work: impl FnOnce(Worker, TcpStream)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        with_memory(Some(max_memory), (ours, theirs), work);
    }

    /// If the memory is bounded, a group pays for sockets.
    fn with_memory<S>(
        max_memory: Option<usize>,
        (ours, theirs): (impl Into<OwnedFd>, S),
        work: impl FnOnce(Worker, S),
    ) {
        let clock = Clock::start();
        let limits = Limits {
            narrow_sockets: max_memory.is_some(),
            ..Limits::of_one_client(90_000)
        };
        let config = Config {
            max_memory: max_memory.map(|bytes| bytes as u64),
            ..Config::new(90_000)
        };
        let mut engine = Engine::new(config, clock.now());
        let id = engine.connect(Peer::default(), clock.now());
        let shared = Shared::new(engine, None, clock, limits).unwrap();
        let stream = Stream(ours.into());
        let client = Client::new(stream, Peer::default(), id, None, None);
        work(Worker::new(&shared, &Arc::new(client)), theirs);
    }

    #[test]
    fn unparsed_bytes_of_more_than_a_line_make_bulk_work_unless_they_belong_to_a_body() {
        with_worker(|mut worker, mut theirs| {
            theirs.write_all(&[b'x'; MAX_LINE - 1]).unwrap();
            worker.input.grow(0, |_| true);
            worker.input.read(&worker.client.stream).unwrap();
            assert!(!worker.is_bulk());
            theirs.write_all(b"x").unwrap();
            worker.input.read(&worker.client.stream).unwrap();
            assert!(worker.is_bulk());
            worker.framer.next(&mut &b"put 0 0 1 1000\r\n"[..]);
            assert!(!worker.is_bulk());
            let rest = Rest::Reserve(Ask::default());
            worker.batch.push(Request::Continue(rest));
            assert!(worker.is_bulk());
        });
    }

    #[test]
    fn a_narrow_socket_becomes_wide_if_there_is_room_and_then_counts() {
        with_worker(|mut worker, _theirs| {
            worker.widen();
            assert_eq!(worker.width, 0, "no group pays for this one");
        });
        // Most of the memory is left for others.
        for (limit, width) in [(3 * WIDE, 0), (5 * WIDE, WIDE)] {
            with_little_memory(limit, |mut worker, mut theirs| {
                let beginning = b"put 0 0 60 60000\r\nthe beginning";
                theirs.write_all(beginning).unwrap();
                worker.read().unwrap();
                worker.parse();
                assert_eq!(worker.width, 0);
                theirs.write_all(b" and more").unwrap();
                worker.read().unwrap();
                assert_eq!(worker.width, width);
                assert_eq!(worker.memory.bytes, width as u64 + 22);
            });
        }
        // The kernel holds nothing of it for us.
        let pair = UnixStream::pair().unwrap();
        with_memory(Some(5 * WIDE), pair, |mut worker, _theirs| {
            worker.widen();
            assert_eq!((worker.width, worker.memory.bytes), (0, 0));
        });
        // A body that is received in one piece anyway needs no more.
        for (length, width) in [(3000, 0), (8000, WIDE)] {
            with_little_memory(5 * WIDE, |mut worker, mut theirs| {
                for piece in [format!("put 0 0 60 {length}\r\nthe"), " beginning".into()] {
                    theirs.write_all(piece.as_bytes()).unwrap();
                    worker.read().unwrap();
                    worker.parse();
                }
                assert_eq!(worker.width, width, "for {length} bytes");
            });
        }
    }

    /// It sends more of them than replies fit into the socket.
    #[test]
    fn a_client_may_send_many_puts_before_it_reads_the_replies() {
        let pair = UnixStream::pair().unwrap();
        with_memory(Some(100 * WIDE), pair, |mut worker, mut theirs| {
            let put = format!("put 0 0 60 2000\r\n{}\r\n", "x".repeat(2000));
            let client = thread::spawn(move || {
                theirs.write_all(put.repeat(1000).as_bytes()).unwrap();
                theirs.shutdown(Shutdown::Write).unwrap();
                let mut replies = String::new();
                theirs.read_to_string(&mut replies).map(|_| replies)
            });
            worker.run().unwrap();
            worker.client.stream.close();
            let replies = client.join().unwrap().unwrap();
            assert_eq!(replies.matches("INSERTED").count(), 1000);
        });
    }

    #[test]
    fn a_client_that_has_not_read_its_replies_yet_may_ask_while_another_one_leaves() {
        let pair = UnixStream::pair().unwrap();
        with_memory(Some(100 * WIDE), pair, |mut worker, mut theirs| {
            let (leaver, gone) = UnixStream::pair().unwrap();
            let _leaver = worker.shared.connect(Stream(leaver.into())).ok();
            drop(gone);
            let put = format!("put 0 0 60 2000\r\n{}\r\n", "x".repeat(2000));
            let commands = put.repeat(300) + "stats-tube default\r\n" + &put.repeat(300);
            // Otherwise it would be stuck for ever.
            theirs.set_write_timeout(Some(Duration::from_secs(60))).ok();
            let client = thread::spawn(move || {
                let sent = theirs.write_all(commands.as_bytes());
                theirs.shutdown(Shutdown::Write).unwrap();
                let mut replies = String::new();
                theirs.read_to_string(&mut replies).unwrap();
                sent.map(|()| replies)
            });
            worker.run().unwrap();
            worker.client.stream.close();
            let replies = client.join().unwrap().unwrap();
            assert_eq!(replies.matches("INSERTED").count(), 600);
        });
    }

    #[test]
    fn what_the_kernel_holds_for_a_client_does_not_count_against_its_own_puts() {
        let put = |size| format!("put 0 0 60 {size}\r\n{}\r\n", "x".repeat(size));
        with_little_memory(5 * WIDE, |mut worker, mut theirs| {
            let puts = put(60_000) + &put(10_000).repeat(30);
            let mut producer = theirs.try_clone().unwrap();
            thread::spawn(move || {
                producer.write_all(puts.as_bytes()).unwrap();
                producer.shutdown(Shutdown::Write).unwrap();
            });
            let mut replies = String::new();
            let replies = thread::spawn(move || {
                theirs.read_to_string(&mut replies).unwrap();
                replies
            });
            worker.run().unwrap();
            assert_eq!(worker.width, WIDE);
            worker.client.stream.close();
            let replies = replies.join().unwrap();
            assert_eq!(replies.matches("INSERTED").count(), 31, "{replies}");
        });
    }

    #[test]
    fn a_reply_that_has_arrived_counts_no_longer_though_the_client_says_nothing() {
        let pair = UnixStream::pair().unwrap();
        with_memory(Some(5 * WIDE), pair, |mut worker, mut theirs| {
            worker.send_at_once(60_000);
            let reply = Reply::Found(JobId(1), Body::new(&[b'x'; 60_000]));
            worker.client.post(&mut vec![reply], None);
            worker.client.flush().unwrap();
            worker.input.grow(5000, |_| true);
            worker.count_memory();
            assert_eq!(worker.memory.bytes, 60_000 + 8192);
            let mut start = [0; 60_000];
            theirs.read_exact(&mut start).unwrap();
            let memory = &worker.shared.memory;
            let await_memory = |most| {
                while memory.load(Ordering::Relaxed) > most {
                    thread::yield_now();
                }
            };
            thread::scope(|threads| {
                threads.spawn(|| {
                    // It arrives only when the worker has looked once, and waits again.
                    await_memory(60_000);
                    let mut rest = [0; 100];
                    assert!(theirs.read(&mut rest).unwrap() > 0);
                    await_memory(0);
                    theirs.write_all(b"x").unwrap();
                });
                worker.read().unwrap();
            });
        });
    }

    /// Short ones that follow do not count there.
    #[test]
    fn the_kernel_holds_little_more_of_a_long_reply_than_counts() {
        let pair = UnixStream::pair().unwrap();
        with_memory(Some(5 * WIDE), pair, |mut worker, _theirs| {
            worker.send_at_once(5000);
            assert_eq!(worker.memory.bytes, 5000);
            let short = [IoSlice::new(b"USING default\r\n")];
            let send = || worker.client.stream.try_write(&short).unwrap();
            let held: usize = std::iter::repeat_with(send)
                .take_while(|&sent| sent > 0)
                .sum();
            // Each piece takes a kilobyte or so beside its bytes.
            assert!(held < 250, "{held}");
        });
    }

    /// The client may not read the replies to what came before it.
    #[test]
    fn a_body_that_has_arrived_and_is_not_executed_counts() {
        with_worker(|mut worker, _theirs| {
            let body = Body::new(&[b'x'; 60_000]);
            worker.batch.push(Request::Body(Ok(body)));
            worker.count_memory();
            assert_eq!(worker.memory.bytes, 60_002);
        });
    }

    #[test]
    fn a_client_that_waits_in_a_reserve_has_no_large_buffer() {
        with_worker(|mut worker, mut theirs| {
            theirs.write_all(b"x").unwrap();
            worker.input.grow(5000, |_| true);
            worker.input.read(&worker.client.stream).unwrap();
            worker.count_memory();
            assert_eq!(worker.memory.bytes, 8192);
            worker.input.keep(0);
            worker.shrink();
            assert_eq!(worker.memory.bytes, 0);
            // What it has not read yet counts: its job may be deleted.
            let mut found = vec![Reply::Found(JobId(1), Body::new(&[b'x'; 2000])); 30];
            worker.client.post(&mut found, None);
            worker.shrink();
            assert!(worker.memory.bytes > 60_000);
        });
    }
}
