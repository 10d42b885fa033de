//! Where a story is played: a server that was started for it, and clients that
//! are connected to this server. Everything comes from the real server, and is
//! compared with what the story tells.

use super::learner::stopped;
use super::server::Server;
use super::story::{Action, Document, Step, fits, lines_fit};
use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::client::{Client, Event};
use crate::server::reply::{RawReply, Reply};
use crate::server::stats;
use crate::signals::{Calls, wait_for};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a reply may take that must come.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing comes to a client that waits.
const SILENCE: Duration = Duration::from_millis(100);

pub struct Stage {
    /// It ends together with the stage.
    _server: Server,
    address: Address,
    clients: BTreeMap<String, Actor>,
}

/// A client in the story.
struct Actor {
    client: Client,
    /// The body of the reply whose line came last.
    body: Option<Vec<u8>>,
}

/// Why a step could not be played.
pub enum Trouble {
    /// Something else came than the story tells.
    Differs(String),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

impl Stage {
    /// Starts a server with these options, on a port that the system chooses.
    pub fn start(options: &[String], signals: &Calls) -> Outcome<Stage> {
        let mut server = Server::start(options)?;
        let port = server.port(signals)?;
        Ok(Stage {
            _server: server,
            address: Address::local(port),
            clients: BTreeMap::new(),
        })
    }

    /// Plays this step, and returns what is to be seen of it.
    pub fn play(&mut self, step: &Step, signals: &Calls) -> Result<String, Trouble> {
        let name = step.client.as_str();
        let differs = |came: &str| {
            let told = line_of(step);
            Err(Trouble::Differs(format!("not '{told}' but '{came}'")))
        };
        match &step.action {
            Action::Pass(time) => {
                let until = Instant::now() + *time;
                if wait_for(&[signals.as_fd()], Some(until)) == [true] {
                    return Err(stopped().into());
                }
            }
            Action::Closes => {
                self.clients.remove(name);
                self.await_clients(signals)?;
            }
            Action::Send(bytes) => self.actor(name)?.client.queue_bytes(bytes),
            Action::Waits => {
                if let Some(reply) = self.receive(name, SILENCE, signals)? {
                    return differs(&shown(&reply.line));
                }
            }
            Action::IsClosed => match self.receive(name, PATIENCE, signals) {
                Err(Failure::Unreachable(_)) => drop(self.clients.remove(name)),
                Ok(reply) => {
                    let line = reply.map_or("nothing".into(), |reply| shown(&reply.line));
                    return differs(&line);
                }
                Err(failure) => return Err(failure.into()),
            },
            Action::Expect(pattern) => {
                let pattern = pattern.strip_suffix(b"\r\n").unwrap_or(pattern);
                let came = match self.actor(name)?.body.take() {
                    Some(body) => body,
                    None => self.head(name, signals)?,
                };
                let came_text = shown(&came);
                return match fits(pattern, &came) {
                    true => Ok(format!("{name}< {came_text}")),
                    false => differs(&came_text),
                };
            }
            Action::ExpectDocument(Document { head, lines }) => {
                let line = self.head(name, signals)?;
                let body = self.actor(name)?.body.take().unwrap_or_default();
                let body = String::from_utf8_lossy(&body);
                let came: Vec<_> = body.lines().collect();
                let patterns: Vec<_> = lines.iter().map(|(_, line)| line.as_str()).collect();
                if !fits(head.trim_ascii_end(), &line) || !lines_fit(&patterns, &came) {
                    return differs(&format!("{} {}", shown(&line), came.join(", ")));
                }
                let mut text = format!("{name}< {}", shown(&line));
                for pattern in patterns {
                    let found = |line: &&&str| fits(pattern.as_bytes(), line.as_bytes());
                    let line = came.iter().find(found).unwrap_or(&"...");
                    text += &format!("\n    {line}");
                }
                return Ok(text);
            }
            Action::ReadsLater | Action::Connects | Action::SendsNoMore | Action::Drain => {
                let what = format!("line {} is not for the tutor", step.line);
                return Err(Failure::Refused(what).into());
            }
        }
        Ok(line_of(step))
    }

    /// Has this client send these bytes, and returns what comes to it soon: the first line,
    /// or what a story says if there is none.
    pub fn try_out(&mut self, name: &str, bytes: &[u8], signals: &Calls) -> Outcome<String> {
        self.actor(name)?.client.queue_bytes(bytes);
        match self.receive(name, 3 * SILENCE, signals) {
            Ok(Some(reply)) => Ok(shown(&reply.line)),
            Ok(None) => Ok("(waits)".into()),
            Err(Failure::Unreachable(_)) => Ok("(is closed)".into()),
            Err(failure) => Err(failure),
        }
    }

    /// The jobs that the server has: the id of each, and its state.
    /// Another client asks for them, and is gone afterwards.
    pub fn jobs(&self, signals: &Calls) -> Outcome<BTreeMap<u64, String>> {
        let mut client = Client::connect(&self.address, PATIENCE)?;
        let Reply::Ok(document) = client.call("list-jobs 0 1000")? else {
            return Failure::refused("the server does not list its jobs");
        };
        client.queue("quit");
        let until = Instant::now() + PATIENCE;
        match client.wait(Some(until), &[signals.as_fd()]) {
            Ok(Event::Other) => return Err(stopped()),
            // The server has closed the connection.
            _ => drop(client),
        }
        let (jobs, _) = stats::jobs(&document).map_err(Failure::Refused)?;
        let jobs = jobs
            .iter()
            .map(|job| (job.number("id"), job.text("state").into()));
        Ok(jobs.collect())
    }

    /// Waits until the server knows no more clients than the story.
    fn await_clients(&mut self, signals: &Calls) -> Outcome<()> {
        let until = Instant::now() + PATIENCE;
        let mut client = Client::connect(&self.address, PATIENCE)?;
        let known = u64::try_from(self.clients.len() + 1).unwrap_or(u64::MAX);
        while client.server_stats()?.number("current-connections") > known {
            let soon = Instant::now() + Duration::from_millis(5);
            if wait_for(&[signals.as_fd()], Some(soon)) == [true] {
                return Err(stopped());
            }
            if soon > until {
                return Failure::refused("the server does not notice that a client has gone");
            }
        }
        Ok(())
    }

    /// The client of this name. It connects when it is first named.
    fn actor(&mut self, name: &str) -> Outcome<&mut Actor> {
        match self.clients.entry(name.into()) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => {
                let client = Client::connect(&self.address, PATIENCE)?;
                Ok(place.insert(Actor { client, body: None }))
            }
        }
    }

    /// The line of the next reply; its body is kept for the step after this.
    fn head(&mut self, name: &str, signals: &Calls) -> Result<Vec<u8>, Trouble> {
        let reply = self.receive(name, PATIENCE, signals)?;
        let reply = reply.ok_or_else(|| Trouble::Differs(format!("{name} gets nothing")))?;
        self.actor(name)?.body = reply.chunk;
        Ok(reply.line)
    }

    fn receive(
        &mut self,
        name: &str,
        patience: Duration,
        signals: &Calls,
    ) -> Outcome<Option<RawReply>> {
        let until = Some(Instant::now() + patience);
        match self.actor(name)?.client.wait(until, &[signals.as_fd()])? {
            Event::Reply(reply) => Ok(Some(reply)),
            Event::Time => Ok(None),
            Event::Other => Err(stopped()),
        }
    }
}

/// What a story writes for this step. Lines that are sent are several lines.
pub fn line_of(step: &Step) -> String {
    let name = &step.client;
    match &step.action {
        Action::Send(bytes) => {
            let lines = lines_of(bytes);
            let lines = lines.iter().map(|line| format!("{name}: {line}"));
            let text = lines.collect::<Vec<_>>().join("\n");
            match bytes.ends_with(b"\r\n") {
                true => text,
                false => text + "\\",
            }
        }
        Action::Expect(bytes) => format!("{name}< {}", lines_of(bytes).join("\\r\\n")),
        Action::ExpectDocument(document) => format!("{name}< {}", shown(&document.head)),
        Action::Waits => format!("{name} (waits)"),
        Action::Closes => format!("{name} (closes)"),
        Action::IsClosed => format!("{name} (is closed)"),
        Action::Pass(time) if time.as_secs_f64() == 1.0 => "-- 1 second passes".into(),
        Action::Pass(time) => format!("-- {} seconds pass", time.as_secs_f64()),
        Action::ReadsLater | Action::Connects | Action::SendsNoMore | Action::Drain => {
            String::new()
        }
    }
}

/// The lines in what a client sends, as a story writes them.
pub fn lines_of(bytes: &[u8]) -> Vec<String> {
    shown(bytes).split("\\r\\n").map(String::from).collect()
}

/// Bytes as a story writes them, without the end of the line.
fn shown(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\r\n").unwrap_or(bytes);
    bytes
        .escape_ascii()
        .to_string()
        .replace("\\\"", "\"")
        .replace("\\'", "'")
        .replace("\\x00", "\\0")
}
