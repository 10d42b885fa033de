//! A client of the server, and the random numbers that choose what clients do.

use crate::server::{PATIENCE, until};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

pub struct Client {
    stream: BufReader<TcpStream>,
}

/// A job in the answer to `reserve` or `peek`.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    pub id: u64,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
        stream.set_nodelay(true).expect("a socket's option");
        let patience = Some(PATIENCE);
        stream
            .set_read_timeout(patience)
            .expect("a socket's option");
        stream
            .set_write_timeout(patience)
            .expect("a socket's option");
        Client {
            stream: BufReader::with_capacity(1 << 16, stream),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut stream = self.stream.get_ref();
        stream
            .write_all(bytes.as_ref())
            .expect("a server that reads");
    }

    /// Sends bytes that the server may no longer read, because it ends.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_ref().write_all(bytes.as_ref())
    }

    /// Reads so many lines, or fewer if the connection ends.
    pub fn lines(&mut self, count: usize) -> Vec<String> {
        let lines = (&mut self.stream).lines().take(count);
        lines.map_while(Result::ok).collect()
    }

    /// Reads a line, and returns it without its CR LF.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line of text");
        let text = line.strip_suffix("\r\n");
        text.unwrap_or_else(|| panic!("a line without an end: {line:?}"))
            .into()
    }

    /// Sends a line, and returns the line that answers it.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.line()
    }

    /// Reads what the server sends. It must be this text.
    pub fn expect(&mut self, text: &str) {
        let mut bytes = Vec::new();
        while bytes.len() < text.len() {
            let come = match self.stream.fill_buf() {
                Ok([]) => panic!("the end after {:?}", String::from_utf8_lossy(&bytes)),
                Ok(come) => &come[..come.len().min(text.len() - bytes.len())],
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
            };
            bytes.extend_from_slice(come);
            let count = come.len();
            self.stream.consume(count);
            // What is wrong is told at once, not when the rest does not come.
            assert_eq!(
                String::from_utf8_lossy(&bytes),
                String::from_utf8_lossy(&text.as_bytes()[..bytes.len()]),
                "the beginning of what was to come",
            );
        }
    }

    /// Closes the connection. Merely dropped, it would stay open while another
    /// test starts a server: the new process has a copy of each socket until it
    /// begins its own program.
    pub fn close(self) {
        let stream = self.stream.get_ref();
        stream.shutdown(Shutdown::Both).expect("a connection");
    }

    /// Reads the end of the connection. The server must send nothing before it.
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("expecting the end: {error}"),
        }
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    /// Returns what a single system call reads.
    pub fn receive_once(&mut self) -> Vec<u8> {
        assert!(self.stream.buffer().is_empty());
        self.stream.fill_buf().expect("something");
        let bytes = self.stream.buffer().to_vec();
        self.stream.consume(bytes.len());
        bytes
    }

    /// Waits until something has come, and leaves it unread.
    pub fn await_output(&mut self) {
        let mut byte = [0];
        self.stream.get_ref().peek(&mut byte).expect("something");
    }

    /// Waits until the server has read all that was sent.
    pub fn await_read(&self) {
        let port = self.stream.get_ref().local_addr().expect("a port").port();
        let port = format!(":{port:04X}");
        until(|| {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
            // A line has the address of one end of a connection, the address
            // of the other end, the state, and how many bytes wait to be sent
            // and to be read.
            let mut ends = table.lines().filter(|line| {
                let ports = line.split_whitespace().skip(1).take(2);
                ports.into_iter().any(|address| address.ends_with(&port))
            });
            ends.all(|end| end.contains(" 00000000:00000000 "))
                .then_some(())
        });
    }

    /// Puts a job with a long time to run, and returns its id.
    pub fn put(&mut self, body: impl AsRef<[u8]>) -> u64 {
        self.send(put(body.as_ref()));
        self.inserted()
    }

    /// Reads the answer to a put, and returns the id in it.
    pub fn inserted(&mut self) -> u64 {
        let line = self.line();
        let id = line.strip_prefix("INSERTED ").map(str::parse);
        id.unwrap_or_else(|| panic!("not inserted: {line}"))
            .expect("an id")
    }

    pub fn reserve(&mut self) -> Job {
        self.send("reserve\r\n");
        self.job()
    }

    /// Reads the answer to a `reserve` or a `peek`, and returns the job in it.
    pub fn job(&mut self) -> Job {
        self.job_or_none().expect("a job")
    }

    /// The same, but the answer may be `NOT_FOUND`.
    pub fn job_or_none(&mut self) -> Option<Job> {
        let line = self.line();
        let words: Vec<_> = line.split(' ').collect();
        let ["RESERVED" | "FOUND", id, size] = words[..] else {
            assert_eq!(line, "NOT_FOUND");
            return None;
        };
        let mut body = vec![0; size.parse::<usize>().expect("a size") + 2];
        self.stream.read_exact(&mut body).expect("a body");
        assert_eq!(body.split_off(body.len() - 2), b"\r\n");
        let id = id.parse().expect("an id");
        Some(Job { id, body })
    }

    pub fn delete(&mut self, id: u64) {
        assert_eq!(self.ask(&format!("delete {id}")), "DELETED");
    }

    /// Sends a line, and returns the document that answers it.
    pub fn document(&mut self, line: &str) -> String {
        let head = self.ask(line);
        let size = head.strip_prefix("OK ").expect("a document");
        let mut text = vec![0; size.parse::<usize>().expect("a size") + 2];
        self.stream.read_exact(&mut text).expect("a document");
        String::from_utf8(text).expect("text")
    }

    /// A value of `stats`.
    pub fn stat(&mut self, key: &str) -> String {
        let text = self.document("stats");
        let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(": ")?.to_owned());
        let mut values = text.lines().filter_map(value);
        values.next().unwrap_or_else(|| panic!("{key} in {text}"))
    }

    /// Sends nothing more, but goes on reading.
    pub fn send_no_more(&mut self) {
        let stream = self.stream.get_ref();
        stream.shutdown(Shutdown::Write).expect("a connection");
    }

    /// Resets the connection (RST), instead of closing it in order.
    pub fn vanish(self) {
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(self.stream.get_ref(), sockopt::Linger, &at_once).expect("a socket's option");
    }
}

/// The bytes of a put: the line and the body.
pub fn put(body: &[u8]) -> Vec<u8> {
    let line = format!("put 0 0 1000 {}\r\n", body.len());
    [line.as_bytes(), body, b"\r\n"].concat()
}

/// Numbers that are the same for the same seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).map(|_| self.next().to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        bytes.truncate(count);
        bytes
    }
}
