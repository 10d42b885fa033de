//! The life of a client: what it does, and how it leaves.

use crate::{Delete, TUBES, World, body};
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, UnixAddr, setsockopt, socket, sockopt,
};
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use support::{Client, Random, patience};

/// Longer than a round takes.
const LONG_TTR: u32 = 1000;

/// For how long the server waits at least until a client has received what came before the
/// end.
const LINGERS_FOR: Duration = Duration::from_secs(1);

pub struct Life<'a> {
    world: &'a World,
    /// Its number among all clients.
    name: u64,
    random: &'a mut Random,
    client: Client<TcpStream>,
    /// The jobs that it has: their numbers, and the server's ids.
    held: Vec<(u64, String)>,
    /// Whether there are replies that it has not read.
    has_unread: bool,
}

impl<'a> Life<'a> {
    /// Connects.
    pub fn begin(world: &'a World, name: u64, random: &'a mut Random) -> io::Result<Life<'a>> {
        let stream = connect(world, random.one_in(2))?;
        Ok(Life {
            world,
            name,
            random,
            client: Client::over(stream),
            held: Vec::new(),
            has_unread: false,
        })
    }

    /// Lives to the end. It is an error if the server ends it, or answers wrongly.
    pub fn live(mut self) -> io::Result<()> {
        let lived = self.act();
        // From now on its jobs may be given to others.
        for (number, _) in std::mem::take(&mut self.held) {
            self.let_go(number, "leaves");
        }
        lived.and_then(|()| self.leave())
    }

    fn act(&mut self) -> io::Result<()> {
        let [used, watched] = [(); 2].map(|()| *self.random.choose(&TUBES));
        self.expect(&format!("use {used}"), "USING")?;
        self.expect(&format!("watch {watched}"), "WATCHING")?;
        for _ in 0..self.random.below(10) {
            match self.random.below(16) {
                0..5 => self.put()?,
                5..9 => self.reserve()?,
                9..13 => self.finish()?,
                13 => self.ask(&["stats", "list-tubes", "peek-ready", "list-tubes-watched"])?,
                14 => self.ask(&["kick 3", "peek-buried", "peek-delayed", "list-tube-used"])?,
                _ => return self.do_not_read(),
            }
        }
        Ok(())
    }

    /// Puts one job, or some in one go.
    fn put(&mut self) -> io::Result<()> {
        let count = if self.random.one_in(4) {
            self.random.below(20)
        } else {
            1
        };
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let is_short = self.random.one_in(8);
            let number = self.world.new_job(is_short);
            let length = *self.random.choose(&[0, 10, 100, 1000, 50_000]);
            let body = body(number, length);
            let delay = u32::from(self.random.one_in(8));
            let ttr = if is_short { 1 } else { LONG_TTR };
            let priority = self.random.below(3);
            let head = format!("put {priority} {delay} {ttr} {}\r\n", body.len());
            bytes.extend([head.as_bytes(), &body, b"\r\n"].concat());
            numbers.push(number);
        }
        self.client.try_send(bytes)?;
        for number in numbers {
            let line = self.client.try_line()?;
            if !line.starts_with("INSERTED ") {
                return Err(io::Error::other(format!("put: {line}")));
            }
            let event = format!("put by {}: {line}", self.name);
            self.world
                .note(number, event, |job| job.is_acknowledged = true);
        }
        Ok(())
    }

    fn reserve(&mut self) -> io::Result<()> {
        let asked_at = self.world.now();
        let timeout = self.random.below(2);
        self.client
            .try_send(format!("reserve-with-timeout {timeout}\r\n"))?;
        let (line, body) = self.client.reply()?;
        match (line.split(' ').collect::<Vec<_>>()[..].as_ref(), body) {
            (["RESERVED", id, _], Some(body)) => {
                let given = self.world.judge_given(self.name, asked_at, &body);
                self.held
                    .extend(given.map(|number| (number, id.to_string())));
                Ok(())
            }
            (["TIMED_OUT" | "DEADLINE_SOON"], None) => Ok(()),
            _ => Err(io::Error::other(format!("reserve: {line}"))),
        }
    }

    /// Does one of the things that a client does with a job that it has.
    fn finish(&mut self) -> io::Result<()> {
        let Some((number, id)) = self.held.pop() else {
            return Ok(());
        };
        let (line, done) = match self.random.below(8) {
            0 => (format!("touch {id}"), "TOUCHED"),
            1 => (format!("bury {id} 1"), "BURIED"),
            2 => (format!("release {id} 1 1"), "RELEASED"),
            3 => (format!("release {id} 1 0"), "RELEASED"),
            _ => (format!("delete {id}"), "DELETED"),
        };
        match done {
            "TOUCHED" => self.held.push((number, id)),
            _ => self.let_go(number, &format!("sends {line}")),
        }
        let mut may_time_out = false;
        self.world
            .note(number, format!("{} asks", self.name), |job| {
                may_time_out = job.has_short_ttr;
                if done == "DELETED" && job.delete == Delete::No {
                    job.delete = Delete::Sent;
                }
            });
        self.client.try_send(format!("{line}\r\n"))?;
        let answer = self.client.try_line()?;
        let now = self.world.now();
        self.world
            .note(number, format!("{} got {answer}", self.name), |job| {
                if answer == "DELETED" {
                    job.delete = Delete::Deleted(now);
                }
            });
        if answer == done || may_time_out && answer == "NOT_FOUND" {
            Ok(())
        } else {
            Err(io::Error::other(format!("{line}: {answer}; job {number}")))
        }
    }

    fn ask(&mut self, questions: &[&str]) -> io::Result<()> {
        let question = self.random.choose(questions);
        self.client.try_send(format!("{question}\r\n"))?;
        self.client.reply().map(drop)
    }

    /// Asks for something, and reads nothing from then on.
    fn do_not_read(&mut self) -> io::Result<()> {
        self.has_unread = true;
        let what = match self.random.below(7) {
            // It may be given a job, and goes without having seen it.
            0 => "reserve\r\n".into(),
            1 => "reserve-with-timeout 1\r\n".into(),
            2 => "peek-ready\r\n".repeat(60) + "reserve-with-timeout 1\r\n",
            3 => "peek-ready\r\n".repeat(60),
            4 => "stats\r\nlist-tubes\r\n".repeat(30),
            // Nobody puts anything there, so only its leaving ends the wait.
            5 => "watch empty\r\nignore default\r\nignore mail\r\nignore thumbs\r\nreserve\r\n"
                .into(),
            _ => match self.held.pop() {
                Some((number, id)) => {
                    self.world.note(number, "an unread delete".into(), |job| {
                        job.holder = None;
                        job.delete = Delete::Sent;
                    });
                    format!("delete {id}\r\n")
                }
                None => "put 0 0 1 9\r\nhalf".into(),
            },
        };
        self.client.try_send(what)
    }

    /// Leaves in one of the ways in which clients leave.
    fn leave(mut self) -> io::Result<()> {
        match self.random.below(8) {
            0 => drop(self.client),
            1 => {
                // The server may have closed already, if half a put came before.
                let (Ok(()) | Err(_)) = self.client.try_send("quit\r\n");
            }
            2 if !self.has_unread => {
                let mut stream = self.client.stream().try_clone()?;
                self.client.try_send("quit\r\n")?;
                read_to_end(&mut stream)?;
            }
            3 => {
                let mut stream = self.client.stream().try_clone()?;
                shut_down(&stream, Shutdown::Write)?;
                read_to_end(&mut stream)?;
            }
            4 => self.client.vanish(),
            5 => shut_down(self.client.stream(), Shutdown::Both)?,
            6 if !self.has_unread => return self.quit_and_send_more(),
            _ => {
                shut_down(self.client.stream(), Shutdown::Write)?;
            }
        }
        Ok(())
    }

    /// Sends `quit` when many replies are on their way, and goes on sending while it reads
    /// them: each comes all the same, unless that takes longer than the server waits.
    fn quit_and_send_more(mut self) -> io::Result<()> {
        const REPLIES: usize = 60;
        setsockopt(self.client.stream(), sockopt::RcvBuf, &8192)?;
        let begun = Instant::now();
        self.client
            .try_send("stats\r\n".repeat(REPLIES) + "quit\r\n" + &"x".repeat(2000))?;
        for count in 0..REPLIES {
            // The server may have closed already.
            let (Ok(()) | Err(_)) = self.client.try_send("list-tubes\r\n");
            match self.client.reply() {
                Ok(_) => {}
                Err(error)
                    if begun.elapsed() < LINGERS_FOR || error.kind() == ErrorKind::WouldBlock =>
                {
                    let text = format!("{count} of {REPLIES} replies, and quit: {error}");
                    return Err(io::Error::other(text));
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn let_go(&self, number: u64, how: &str) {
        let event = format!("{} {how}", self.name);
        self.world.note(number, event, |job| {
            // The clock may have given it to somebody else.
            job.holder = job.holder.filter(|holder| *holder != self.name);
        });
    }

    fn expect(&mut self, line: &str, word: &str) -> io::Result<()> {
        self.client.try_send(format!("{line}\r\n"))?;
        let answer = self.client.try_line()?;
        if answer.starts_with(word) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{line}: {answer}")))
        }
    }
}

/// Reads what the server still sends, up to the end in order.
fn read_to_end(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_to_end(&mut Vec::new()).map(drop)
}

/// Connects over TCP or over the Unix socket. Both are read, written and shut down by the same
/// calls, so the type is that of one of them.
fn connect(world: &World, is_unix: bool) -> io::Result<TcpStream> {
    let stream = if is_unix {
        // It does not wait for room in the queue of connections, which is long.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        socket::connect(socket.as_raw_fd(), &UnixAddr::new(&world.socket)?)?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream
    } else {
        let stream = TcpStream::connect(("127.0.0.1", world.port))?;
        stream.set_nodelay(true)?;
        stream
    };
    stream.set_read_timeout(Some(patience()))?;
    Ok(stream)
}

fn shut_down(stream: &TcpStream, how: Shutdown) -> io::Result<()> {
    match stream.shutdown(how) {
        // The server may have closed its end already.
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
