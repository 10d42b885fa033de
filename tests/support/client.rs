//! A client that does only what it is told: it also sends half a command, and reads
//! replies only when it is told to.

use crate::{patience, until};
use nix::sys::socket::{setsockopt, sockopt};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a server.
pub struct Client<S: Read = TcpStream>(BufReader<S>);

/// A job in the answer to `reserve` or `peek`.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    pub id: u64,
    pub body: Vec<u8>,
}

impl Client {
    /// A client of the server at this port of the loopback.
    pub fn connect(port: u16) -> Client {
        Client::at((Ipv4Addr::LOCALHOST, port).into()).expect("a server")
    }

    pub fn at(address: SocketAddr) -> io::Result<Client> {
        Client::new(TcpStream::connect(address)?)
    }

    pub fn new(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience()))?;
        stream.set_write_timeout(Some(patience()))?;
        Ok(Client(BufReader::with_capacity(1 << 16, stream)))
    }

    /// Its own address, as the server's log names it.
    pub fn name(&self) -> String {
        let address = self.stream().local_addr().expect("a connection");
        address.to_string()
    }

    /// Closes the connection. Merely dropped, it would stay open while another test
    /// starts a server: the new process has a copy of each socket until it begins its
    /// own program.
    pub fn close(self) {
        self.stream()
            .shutdown(Shutdown::Both)
            .expect("a connection");
    }

    /// Sends nothing more, but goes on reading.
    pub fn send_no_more(&mut self) {
        self.stream()
            .shutdown(Shutdown::Write)
            .expect("a connection");
    }

    /// Waits until something has come, and leaves it unread.
    pub fn await_output(&mut self) {
        self.stream().peek(&mut [0]).expect("something");
    }

    /// Waits until the server has read all that was sent.
    pub fn await_read(&self) {
        let number = self.stream().local_addr().expect("a port").port();
        let port = format!(":{number:04X}");
        until("all is read", || {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
            // A line has the address of one end of a connection, the address of the
            // other end, the state, and how many bytes wait to be sent and to be read.
            let mut ends = table.lines().filter(|line| {
                let mut ports = line.split_whitespace().skip(1).take(2);
                ports.any(|address| address.ends_with(&port))
            });
            ends.all(|end| end.contains(" 00000000:00000000 "))
                .then_some(())
        });
    }
}

impl Client<UnixStream> {
    pub fn connect_unix(path: impl AsRef<Path>) -> Client<UnixStream> {
        let stream = UnixStream::connect(path).expect("a server");
        stream.set_read_timeout(Some(patience())).expect("a socket");
        Client::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client(BufReader::new(stream))
    }

    /// The socket, for what no client should do to it.
    pub fn stream(&self) -> &S {
        self.0.get_ref()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("a server that reads");
    }

    /// Sends bytes that the server may no longer read.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.get_mut().write_all(bytes.as_ref())
    }

    /// Reads this number of lines, or fewer if the connection ends.
    pub fn lines(&mut self, count: usize) -> Vec<String> {
        let lines = (&mut self.0).lines().take(count);
        lines.map_while(Result::ok).collect()
    }

    /// Reads a line, and returns it without its CR LF.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// The same; it is an error if the connection ends before or within the line.
    pub fn try_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let text = line.strip_suffix("\r\n").map(str::to_owned);
        text.ok_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, format!("after {line:?}")))
    }

    /// Sends a line, and returns the line that answers it.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.line()
    }

    /// Sends a line, and expects this answer.
    #[track_caller]
    pub fn exchange(&mut self, line: &str, answer: &str) {
        self.send(format!("{line}\r\n"));
        self.expect(&format!("{answer}\r\n"));
    }

    /// Reads what the server sends. It must be this text.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let mut bytes = Vec::new();
        while bytes.len() < text.len() {
            let come = match self.0.fill_buf() {
                Ok([]) => panic!("the end after {:?}", String::from_utf8_lossy(&bytes)),
                Ok(come) => &come[..come.len().min(text.len() - bytes.len())],
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
            };
            bytes.extend_from_slice(come);
            let count = come.len();
            self.0.consume(count);
            // What is wrong is told at once, not when the rest does not come.
            assert_eq!(
                String::from_utf8_lossy(&bytes),
                String::from_utf8_lossy(&text.as_bytes()[..bytes.len()]),
                "the beginning of what was to come",
            );
        }
    }

    /// Reads the end of the connection. The server must send nothing before it.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                panic!("expecting the end: {error}")
            }
            // A reset is an end as well: the server has not read all.
            Ok(_) | Err(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
        }
    }

    /// Returns what a single system call reads.
    pub fn receive_once(&mut self) -> Vec<u8> {
        assert!(self.0.buffer().is_empty());
        let bytes = self.0.fill_buf().expect("something").to_vec();
        self.0.consume(bytes.len());
        bytes
    }

    /// The next reply: its line, and the body or document if it has one.
    pub fn reply(&mut self) -> io::Result<(String, Option<Vec<u8>>)> {
        let line = self.try_line()?;
        let words: Vec<_> = line.split(' ').collect();
        let size = match words[..] {
            ["RESERVED" | "FOUND", _, size] | ["OK", size] => size,
            _ => return Ok((line, None)),
        };
        let size: usize = size.parse().map_err(io::Error::other)?;
        let mut body = vec![0; size + 2];
        self.0.read_exact(&mut body)?;
        if body.split_off(size) == b"\r\n" {
            Ok((line, Some(body)))
        } else {
            Err(io::Error::other(format!(
                "{line}: a body of another length"
            )))
        }
    }

    /// Puts a job with a long time to run, and returns its id.
    #[track_caller]
    pub fn put(&mut self, body: impl AsRef<[u8]>) -> u64 {
        self.send(put(body.as_ref()));
        self.inserted()
    }

    /// Reads the answer to a put, and returns the id in it.
    #[track_caller]
    pub fn inserted(&mut self) -> u64 {
        let line = self.line();
        let id = line.strip_prefix("INSERTED ").map(str::parse);
        id.unwrap_or_else(|| panic!("not inserted: {line}"))
            .expect("an id")
    }

    #[track_caller]
    pub fn reserve(&mut self) -> Job {
        self.send("reserve\r\n");
        self.job()
    }

    /// Reads the answer to a `reserve` or a `peek`, and returns the job in it.
    #[track_caller]
    pub fn job(&mut self) -> Job {
        self.job_or_none().expect("a job")
    }

    /// The same, but the answer may be `NOT_FOUND`.
    #[track_caller]
    pub fn job_or_none(&mut self) -> Option<Job> {
        let (line, body) = self.reply().expect("a reply");
        let Some(body) = body else {
            assert_eq!(line, "NOT_FOUND");
            return None;
        };
        let id = line.split(' ').nth(1).map(str::parse);
        let id = id.expect("an id").expect("a number");
        Some(Job { id, body })
    }

    #[track_caller]
    pub fn delete(&mut self, id: u64) {
        assert_eq!(self.ask(&format!("delete {id}")), "DELETED");
    }

    /// Sends a line, and returns the document that answers it.
    #[track_caller]
    pub fn document(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        let (line, text) = self.reply().expect("a reply");
        String::from_utf8(text.unwrap_or_else(|| panic!("{line}"))).expect("text")
    }

    /// A value of `stats`, or of `list-server-stats` if `stats` does not have it.
    #[track_caller]
    pub fn stat(&mut self, key: &str) -> String {
        let mut facts = self.document("stats");
        if !facts.contains(&format!("\n{key}: ")) {
            facts = self.document("list-server-stats");
        }
        field(&facts, key).to_owned()
    }

    /// A number of `stats`.
    #[track_caller]
    pub fn count(&mut self, key: &str) -> u64 {
        self.stat(key).parse().expect("a number")
    }
}

impl<S: Read + Write + AsFd> Client<S> {
    /// Resets the connection (RST), instead of closing it in order.
    pub fn vanish(self) {
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(self.stream(), sockopt::Linger, &at_once).expect("a socket's option");
    }
}

/// The value after `key:` in a text of lines.
#[track_caller]
pub(crate) fn field(text: &str, key: impl Display) -> &str {
    let begin = format!("{key}:");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&begin));
    let value = values.next().unwrap_or_else(|| panic!("{begin} in {text}"));
    value.trim()
}

/// The bytes of a put: the line and the body.
pub fn put(body: &[u8]) -> Vec<u8> {
    let line = format!("put 0 0 1000 {}\r\n", body.len());
    [line.as_bytes(), body, b"\r\n"].concat()
}
