//! The generator's connections; the calling thread drives them all.
//!
//! A load generator shares the machine with the server that it measures, so it
//! has to cost little. A request, or a whole pipelined batch, leaves in one
//! write and is not copied. Many replies are read at once into one buffer. The
//! clock is read once before a write and once after a read. A single connection
//! blocks in `read`, as a plain client does. Several connections, or those of a
//! script that sends at moments of its own, are watched through an
//! edge-triggered epoll set, and are registered there once. So a round trip
//! costs the generator a read, a write and a share of an `epoll_wait`.
//!
//! A [`Script`] decides what is asked and checks what is answered.

use super::arrivals::Arrivals;
use super::reply::{Reply, first_reply};
use companion::failure::{Failure, Outcome};
use companion::server::address::Address;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a server may be silent before it is taken for stuck, if the caller
/// gives no other time.
pub const PATIENCE: Duration = Duration::from_secs(30);
const BUFFER: usize = 256 * 1024;

/// What a scenario does with replies: it checks each and sends what follows.
pub trait Script {
    /// A reply has come on a connection; its read ended at `at`.
    fn reply(&mut self, wire: &mut Wire, conn: usize, reply: Reply<'_>, at: Instant)
    -> Outcome<()>;

    /// Whether all requests have been sent and answered.
    fn finished(&self) -> bool;

    /// The work that is sent without waiting for a reply, if the script has
    /// any.
    fn arrivals(&mut self) -> Option<&mut Arrivals> {
        None
    }

    /// Sends the work that has arrived for a connection, unless this is busy.
    fn begin(&mut self, _: &mut Wire, _: usize, _: Instant) -> Outcome<()> {
        Ok(())
    }
}

/// A set of connections to one server, each known by its index.
pub struct Wire {
    address: Address,
    conns: Vec<Conn>,
    /// The set that watches the connections, which are then non-blocking;
    /// `None` if a single one blocks.
    epoll: Option<Epoll>,
    events: Vec<EpollEvent>,
    /// How long the server may be silent.
    patience: Duration,
    /// How much longer the server may be silent if the connections are watched.
    longer: Duration,
    buffer: Vec<u8>,
}

struct Conn {
    stream: TcpStream,
    /// The bytes that the socket has not taken yet.
    unsent: Vec<u8>,
    /// The beginning of a reply that is not complete yet.
    partial: Vec<u8>,
    sent_at: Instant,
}

impl Wire {
    /// Makes this many connections, one after the other. If the server is
    /// silent for longer than `patience`, it is taken for stuck.
    pub fn connect(address: &Address, connections: usize, patience: Duration) -> Outcome<Wire> {
        Wire::open_all(address, connections, connections > 1, patience)
    }

    /// Does the same, for scripts that send at moments of their own.
    pub fn paced(address: &Address, connections: usize, patience: Duration) -> Outcome<Wire> {
        // Without this, the system adds 50 microseconds to each wait.
        set_timerslack(1).map_err(Failure::of("asking for exact timers"))?;
        Wire::open_all(address, connections, true, patience)
    }

    fn open_all(
        address: &Address,
        connections: usize,
        watched: bool,
        patience: Duration,
    ) -> Outcome<Wire> {
        let mut wire = Wire {
            address: address.clone(),
            conns: Vec::with_capacity(connections),
            epoll: None,
            events: vec![EpollEvent::empty(); connections.clamp(1, 1024)],
            patience,
            longer: Duration::ZERO,
            buffer: vec![0; BUFFER],
        };
        if watched {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
            wire.epoll = Some(epoll.map_err(Failure::of("creating an epoll set"))?);
        }
        for index in 0..connections {
            let conn = wire.open(index)?;
            wire.conns.push(conn);
        }
        Ok(wire)
    }

    /// Lets the server be silent for this much longer, if the connections are
    /// watched.
    pub fn be_patient(&mut self, longer: Duration) {
        self.longer = longer;
    }

    /// Closes a connection and puts a new one in its place. All its replies
    /// must have been read.
    pub fn reconnect(&mut self, index: usize) -> Outcome<()> {
        let closing = self.conns[index].stream.shutdown(Shutdown::Both);
        closing.map_err(Failure::of(format!("closing connection {index}")))?;
        self.conns[index] = self.open(index)?;
        Ok(())
    }

    fn open(&self, index: usize) -> Outcome<Conn> {
        let doing = || format!("connection {index} to {}", self.address);
        let stream = self
            .address
            .connect(self.patience)
            .map_err(Failure::of(doing()))?;
        match &self.epoll {
            None => stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(self.patience)))
                .map_err(Failure::of(doing()))?,
            Some(epoll) => {
                let flags = EpollFlags::EPOLLIN
                    | EpollFlags::EPOLLOUT
                    | EpollFlags::EPOLLRDHUP
                    | EpollFlags::EPOLLET;
                let event = EpollEvent::new(flags, index as u64);
                let entered = epoll.add(stream.as_fd(), event);
                entered.map_err(Failure::of(doing()))?;
            }
        }
        Ok(Conn {
            stream,
            unsent: Vec::new(),
            partial: Vec::new(),
            sent_at: Instant::now(),
        })
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Sends requests on a connection, in one write if the socket takes them
    /// all.
    pub fn send(&mut self, index: usize, requests: &[u8]) -> Outcome<()> {
        self.send_since(index, requests, Instant::now())
    }

    /// Does the same, but counts the time from an earlier moment, when the
    /// requests were due.
    pub fn send_since(&mut self, index: usize, requests: &[u8], since: Instant) -> Outcome<()> {
        let conn = &mut self.conns[index];
        conn.sent_at = since;
        let mut taken = 0;
        if conn.unsent.is_empty() {
            taken = write_some(&mut conn.stream, requests).map_err(Failure::of(sending(index)))?;
        }
        conn.unsent.extend_from_slice(&requests[taken..]);
        Ok(())
    }

    /// When the last requests of a connection were sent, or were due.
    pub fn sent_at(&self, index: usize) -> Instant {
        self.conns[index].sent_at
    }

    /// Reads replies and gives them to the script until it is finished.
    pub fn drive(&mut self, script: &mut impl Script) -> Outcome<()> {
        while !script.finished() {
            let now = Instant::now();
            let arrivals = script.arrivals();
            for conn in arrivals.map_or_else(Vec::new, |arrivals| arrivals.arrived(now)) {
                script.begin(self, conn, now)?;
            }
            // The arrivals may have done no more than find that no work is
            // left.
            if !script.finished() {
                self.step(script)?;
            }
        }
        Ok(())
    }

    /// Waits once, at most until work is due, and handles all replies that
    /// came.
    fn step(&mut self, script: &mut impl Script) -> Outcome<()> {
        let Some(epoll) = &self.epoll else {
            return self.receive(0, script, false);
        };
        let patience = self.patience + self.longer;
        let mut timeout = EpollTimeout::try_from(patience).unwrap_or(EpollTimeout::MAX);
        let due = script.arrivals().and_then(|arrivals| arrivals.next());
        if let Some(due) = due {
            // An epoll set counts in milliseconds, `ppoll` in nanoseconds.
            let left = TimeSpec::from_duration(due.saturating_duration_since(Instant::now()));
            let mut set = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut set, Some(left), None) {
                Ok(_) | Err(Errno::EINTR) => timeout = EpollTimeout::ZERO,
                Err(errno) => return Err(Failure::of("waiting for replies")(errno)),
            }
        }
        let mut events = std::mem::take(&mut self.events);
        let count = match epoll.wait(&mut events, timeout) {
            Err(Errno::EINTR) => 0,
            Ok(0) if due.is_none() => return Err(silent_for(patience)),
            other => other.map_err(Failure::of("waiting for replies"))?,
        };
        for event in &events[..count] {
            // The index was a usize when the connection was registered.
            let index = event.data() as usize;
            if !self.conns[index].unsent.is_empty() {
                self.flush(index)?;
            }
            let ended = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
            if event.events().intersects(EpollFlags::EPOLLIN | ended) {
                self.receive(index, script, event.events().intersects(ended))?;
            }
        }
        self.events = events;
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Outcome<()> {
        let conn = &mut self.conns[index];
        let taken =
            write_some(&mut conn.stream, &conn.unsent).map_err(Failure::of(sending(index)))?;
        conn.unsent.drain(..taken);
        if conn.unsent.is_empty() {
            conn.unsent = Vec::new();
        }
        Ok(())
    }

    /// Reads what a connection has, and gives the complete replies to the
    /// script. If the connection is known to have ended, its end is read, too.
    fn receive(&mut self, index: usize, script: &mut impl Script, ended: bool) -> Outcome<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let conn = &mut self.conns[index];
            let kept = conn.partial.len();
            if buffer.len() < kept + BUFFER / 2 {
                buffer.resize(kept + BUFFER, 0);
            }
            buffer[..kept].copy_from_slice(&conn.partial);
            let room = buffer.len() - kept;
            let read = match conn.stream.read(&mut buffer[kept..]) {
                Ok(0) => {
                    return Failure::refused(format!("the server closed connection {index}"));
                }
                Ok(read) => read,
                Err(err) if err.kind() == ErrorKind::Interrupted => continue,
                Err(err) if err.kind() == ErrorKind::WouldBlock && self.epoll.is_some() => break,
                Err(err) if err.kind() == ErrorKind::WouldBlock => {
                    return Err(silent_for(self.patience));
                }
                Err(err) => return Err(Failure::of(format!("reading connection {index}"))(err)),
            };
            conn.partial.clear();
            let at = Instant::now();
            let mut rest = &buffer[..kept + read];
            while !rest.is_empty() {
                let malformed = |what| Failure::Refused(format!("connection {index}: {what}"));
                let Some((reply, length)) = first_reply(rest).map_err(malformed)? else {
                    break;
                };
                script.reply(self, index, reply, at)?;
                rest = &rest[length..];
            }
            self.conns[index].partial.extend_from_slice(rest);
            // A read that did not fill the buffer has taken all bytes; later
            // bytes make a new event.
            if read < room && !ended {
                break;
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Sends the same requests on these connections, and waits until each has
    /// got this many replies of the wanted kind. It is for setting up, not for
    /// measuring.
    pub fn ask(
        &mut self,
        conns: Range<usize>,
        requests: &[u8],
        replies: usize,
        wanted: impl FnMut(Reply<'_>) -> bool,
    ) -> Outcome<()> {
        struct Asking<F>(usize, F);
        impl<F: FnMut(Reply<'_>) -> bool> Script for Asking<F> {
            fn reply(
                &mut self,
                _: &mut Wire,
                conn: usize,
                reply: Reply<'_>,
                _: Instant,
            ) -> Outcome<()> {
                let left = self.0.checked_sub(1).filter(|_| (self.1)(reply));
                self.0 = left.ok_or_else(|| unexpected(conn, reply))?;
                Ok(())
            }
            fn finished(&self) -> bool {
                self.0 == 0
            }
        }
        let mut asking = Asking(replies * conns.len(), wanted);
        for conn in conns {
            self.send(conn, requests)?;
        }
        self.drive(&mut asking)
    }

    /// The data of an `OK` reply to a request on the first connection, as text.
    pub fn ask_data(&mut self, request: &str) -> Outcome<String> {
        let mut data = String::new();
        self.ask(0..1, format!("{request}\r\n").as_bytes(), 1, |reply| {
            let Reply::Data(bytes) = reply else {
                return false;
            };
            data = String::from_utf8_lossy(bytes).into_owned();
            true
        })?;
        Ok(data)
    }
}

fn silent_for(patience: Duration) -> Failure {
    Failure::Refused(format!("no reply for {} s", patience.as_secs_f64()))
}

fn sending(index: usize) -> String {
    format!("sending on connection {index}")
}

/// The failure for a reply that was not due.
pub fn unexpected(conn: usize, reply: Reply<'_>) -> Failure {
    Failure::Refused(format!("connection {conn}: unexpected reply {reply}"))
}

/// Writes as much as the socket takes, and returns how many bytes that was: 0
/// if it would block.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match stream.write(&bytes[taken..]) {
            Ok(count) => taken += count,
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) if err.kind() == ErrorKind::WouldBlock => break,
            Err(err) => return Err(err),
        }
    }
    Ok(taken)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    /// A server of one thread. It sends these bytes on each of its connections,
    /// a few at a time, and closes all of them when the other end of `end` is
    /// dropped.
    pub fn server(
        connections: usize,
        answer: &'static [u8],
        piece: usize,
        end: Receiver<()>,
    ) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut streams = Vec::new();
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                for piece in answer.chunks(piece) {
                    stream.write_all(piece).unwrap();
                }
                streams.push(stream);
            }
            end.recv().unwrap_err();
        });
        Address::local(port)
    }

    struct Collect {
        wanted: usize,
        got: Vec<String>,
    }

    impl Script for Collect {
        fn reply(
            &mut self,
            _: &mut Wire,
            conn: usize,
            reply: Reply<'_>,
            _: Instant,
        ) -> Outcome<()> {
            self.got.push(format!("{conn} {reply}"));
            Ok(())
        }
        fn finished(&self) -> bool {
            self.got.len() >= self.wanted
        }
    }

    #[test]
    fn replies_arrive_whole_and_in_order_however_they_were_cut() {
        let answer = b"INSERTED 7\r\nRESERVED 7 2\r\nab\r\nDELETED\r\n";
        let replies = ["INSERTED 7", "RESERVED 7 with \"ab\"", "DELETED"];
        for connections in [1, 3] {
            for piece in [1, 5, answer.len()] {
                let (_open, end) = channel();
                let address = server(connections, answer, piece, end);
                let mut wire = Wire::connect(&address, connections, PATIENCE).unwrap();
                let mut collect = Collect {
                    wanted: 3 * connections,
                    got: Vec::new(),
                };
                wire.drive(&mut collect).unwrap();
                for conn in 0..connections {
                    let of_conn = format!("{conn} ");
                    let got = collect
                        .got
                        .iter()
                        .filter_map(|told| told.strip_prefix(&of_conn));
                    assert_eq!(got.collect::<Vec<_>>(), replies);
                }
            }
        }
    }

    #[test]
    fn a_connection_that_ends_early_is_a_failure() {
        for connections in [1, 2] {
            let (open, end) = channel();
            let address = server(connections, b"DELETED\r\n", 9, end);
            let mut wire = Wire::connect(&address, connections, PATIENCE).unwrap();
            drop(open);
            let mut collect = Collect {
                wanted: 9,
                got: Vec::new(),
            };
            let failure = wire.drive(&mut collect).unwrap_err().to_string();
            assert!(
                failure.contains("the server closed connection"),
                "{failure}"
            );
        }
    }
}
