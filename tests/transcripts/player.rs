//! Plays a story on a stage, step by step, and compares every byte.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use support::story::{Action, Document, Side, Step, Story, fits, lines_fit};

/// Where a story is played: a server, and clients that are connected to it.
/// An error says what the stage could not do.
pub trait Stage {
    /// Connects a new client.
    fn connect(&mut self, client: &str) -> io::Result<()>;
    /// Sends all these bytes.
    fn send(&mut self, client: &str, bytes: &[u8]) -> io::Result<()>;
    /// Takes what comes from the server, and waits for it if necessary.
    fn receive(&mut self, client: &str) -> io::Result<Received>;
    /// Waits until the server has dealt with all that was sent, and takes what
    /// has come then.
    fn receive_at_rest(&mut self, client: &str) -> io::Result<Received>;
    /// Waits until something has come from the server, and leaves it unread.
    fn await_output(&mut self, client: &str) -> io::Result<()>;
    /// Closes the client's sending half.
    fn send_no_more(&mut self, client: &str) -> io::Result<()>;
    /// Closes the client's connection, and waits until the server notices.
    fn close(&mut self, client: &str) -> io::Result<()>;
    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> io::Result<()>;
    /// How much more time has passed on the stage than in the story.
    fn lag(&self) -> Duration;
    /// Switches drain mode on.
    fn drain(&mut self) -> io::Result<()>;
}

/// What a client finds when it reads.
pub enum Received {
    /// These bytes, at least one.
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
    /// Nothing.
    Nothing,
}

/// Plays the story, with the steps that are meant for this server. An error
/// names the file, the line, what should have come and what came, and how late the
/// stage was when that step began.
pub fn play(story: &Story, side: Side, stage: &mut impl Stage) -> Result<(), (String, Duration)> {
    let mut player = Player {
        stage,
        unread: BTreeMap::new(),
    };
    for step in story.steps_for(side) {
        let lag = player.stage.lag();
        let at = |Mismatch(reason)| format!("{}:{}: {reason}", story.name, step.line);
        player.play_step(&step).map_err(|why| (at(why), lag))?;
    }
    let lag = player.stage.lag();
    let at = |Mismatch(reason)| format!("{}: at the end: {reason}", story.name);
    player.finish().map_err(|why| (at(why), lag))
}

struct Player<'a, S> {
    stage: &'a mut S,
    /// What each connected client has received, without what a step has already
    /// expected.
    unread: BTreeMap<String, Vec<u8>>,
}

impl<S: Stage> Player<'_, S> {
    fn play_step(&mut self, Step { client, action, .. }: &Step) -> Result<(), Mismatch> {
        if !client.is_empty() && !self.unread.contains_key(client) {
            self.stage.connect(client)?;
            self.unread.insert(client.clone(), Vec::new());
        }
        match action {
            Action::Connects => {}
            Action::Send(bytes) => self.stage.send(client, bytes)?,
            Action::Expect(pattern) => drop(self.expect_line(client, pattern)?),
            Action::ExpectDocument(document) => self.expect_document(client, document)?,
            Action::Waits => self.expect_silence(client)?,
            Action::ReadsLater => self.stage.await_output(client)?,
            Action::SendsNoMore => self.stage.send_no_more(client)?,
            Action::Closes => {
                self.expect_nothing_unread(client)?;
                self.unread.remove(client);
                self.stage.close(client)?;
            }
            Action::IsClosed => self.expect_end(client)?,
            Action::Pass(time) => self.stage.pass(*time)?,
            Action::Drain => self.stage.drain()?,
        }
        Ok(())
    }

    /// Each client closes its sending half. Then the end of the stream must
    /// come to it, and nothing before.
    fn finish(&mut self) -> Result<(), Mismatch> {
        for client in self.unread.clone().keys() {
            self.stage.send_no_more(client)?;
            self.expect_end(client)?;
        }
        Ok(())
    }

    /// Takes a line that fits the pattern.
    fn expect_line(&mut self, client: &str, pattern: &[u8]) -> Result<Vec<u8>, Mismatch> {
        loop {
            match compare(pattern, &self.unread[client]) {
                Comparison::Fits(length) => return Ok(self.take(client, length)),
                Comparison::MayFit if self.receive(client)? => {}
                _ => {
                    let (wanted, unread) = (show(pattern), show(&self.unread[client]));
                    return Err(Mismatch(format!(
                        "{client} should get {wanted}, but gets {unread}"
                    )));
                }
            }
        }
    }

    fn expect_document(&mut self, client: &str, document: &Document) -> Result<(), Mismatch> {
        let head = self.expect_line(client, &document.head)?;
        let digits = String::from_utf8_lossy(&head).replace(|c: char| !c.is_ascii_digit(), "");
        let length = digits
            .parse::<usize>()
            .map_err(|_| Mismatch(format!("no length in {}", show(&head))))?;
        while self.unread[client].len() < length + 2 && self.receive(client)? {}
        let available = self.unread[client].len();
        let bytes = self.take(client, available.min(length + 2));
        let text = String::from_utf8_lossy(&bytes);
        let whole = text
            .strip_suffix("\n\r\n")
            .filter(|_| bytes.len() == length + 2);
        let whole =
            whole.ok_or_else(|| Mismatch(format!("not a document of {length} bytes: {text:?}")))?;
        let lines: Vec<&str> = whole.split('\n').collect();
        let patterns: Vec<&str> = document
            .lines
            .iter()
            .map(|(_, line)| line.as_str())
            .collect();
        if lines_fit(&patterns, &lines) {
            return Ok(());
        }
        let fits_none = |pattern: &&str| {
            !lines
                .iter()
                .any(|line| fits(pattern.as_bytes(), line.as_bytes()))
        };
        let missing: Vec<&str> = patterns
            .into_iter()
            .filter(|&line| line != "...")
            .filter(fits_none)
            .collect();
        Err(Mismatch(format!(
            "{client} gets another document, without {missing:?}: {lines:?}"
        )))
    }

    fn expect_silence(&mut self, client: &str) -> Result<(), Mismatch> {
        self.expect_nothing_unread(client)?;
        match self.stage.receive_at_rest(client)? {
            Received::Nothing => Ok(()),
            Received::End => Err(Mismatch(format!("{client} should wait, but is closed"))),
            Received::Bytes(bytes) => Err(Mismatch(format!(
                "{client} should wait, but gets {}",
                show(&bytes)
            ))),
        }
    }

    fn expect_end(&mut self, client: &str) -> Result<(), Mismatch> {
        while self.receive(client)? {}
        self.expect_nothing_unread(client)?;
        if !matches!(self.stage.receive(client)?, Received::End) {
            return Err(Mismatch(format!("{client} should be closed, but is not")));
        }
        self.unread.remove(client);
        Ok(self.stage.close(client)?)
    }

    fn expect_nothing_unread(&self, client: &str) -> Result<(), Mismatch> {
        match self.unread[client].as_slice() {
            [] => Ok(()),
            unread => Err(Mismatch(format!("{client} also gets {}", show(unread)))),
        }
    }

    /// Reads more of what the server sends. Returns whether more came.
    fn receive(&mut self, client: &str) -> io::Result<bool> {
        let Received::Bytes(bytes) = self.stage.receive(client)? else {
            return Ok(false);
        };
        self.unread
            .get_mut(client)
            .expect("a client that is connected")
            .extend(bytes);
        Ok(true)
    }

    fn take(&mut self, client: &str, length: usize) -> Vec<u8> {
        self.unread
            .get_mut(client)
            .expect("a client that is connected")
            .drain(..length)
            .collect()
    }
}

/// Why a story fails: what came, and what should have come.
struct Mismatch(String);

impl From<io::Error> for Mismatch {
    fn from(error: io::Error) -> Mismatch {
        Mismatch(error.to_string())
    }
}

/// How received bytes compare with a pattern, while more bytes may still come.
enum Comparison {
    /// The first bytes fit the pattern; this is their number.
    Fits(usize),
    MayFit,
    Differs,
}

/// A pattern with placeholders stands for one line, wherever its CR LF comes. A
/// pattern without placeholders may stand for any bytes.
fn compare(pattern: &[u8], bytes: &[u8]) -> Comparison {
    if pattern.contains(&b'<') {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n");
        match end.map(|start| start + 2) {
            Some(length) if fits(pattern, &bytes[..length]) => Comparison::Fits(length),
            Some(_) => Comparison::Differs,
            None => Comparison::MayFit,
        }
    } else if bytes.starts_with(pattern) {
        Comparison::Fits(pattern.len())
    } else if pattern.starts_with(bytes) {
        Comparison::MayFit
    } else {
        Comparison::Differs
    }
}

/// Bytes as a transcript writes them. If they are many, only the first 300.
fn show(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".to_owned(),
        [start @ .., _] if start.len() > 400 => {
            format!("`{}`… ({} bytes)", start[..300].escape_ascii(), bytes.len())
        }
        bytes => format!("`{}`", bytes.escape_ascii()),
    }
}
