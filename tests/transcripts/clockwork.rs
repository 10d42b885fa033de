//! The stage without sockets. It is the engine itself, with a clock that moves
//! when a story says so. Each client is two buffers.

use crate::player::{Received, Stage};
use beanpole::engine::{Config, ConnectionId, Engine, Outcome, Time};
use beanpole::options::{self, Invocation};
use beanpole::protocol::{Document, Framer, Reply};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::time::Duration;
use support::story::{Side, Story};

/// When each story begins: some day in the year 2026.
const START: Time = Time::from_nanos(1_795_000_000_000_000_000);
/// By how much each request moves the clock on.
const MOMENT: Duration = Duration::from_millis(1);

/// An engine and the clients that it knows.
pub struct Clockwork {
    engine: Engine,
    now: Time,
    max_job_size: u32,
    clients: BTreeMap<String, Client>,
}

struct Client {
    id: ConnectionId,
    framer: Framer,
    /// What it has sent, and the engine has not executed yet.
    input: Vec<u8>,
    /// The replies to it that it has not received yet.
    output: Vec<u8>,
    state: ClientState,
    sends_no_more: bool,
}

#[derive(PartialEq)]
enum ClientState {
    Served,
    Waiting,
    Closed,
}

impl Clockwork {
    /// Makes a new engine, with the options that the story gives to the server.
    pub fn new(story: &Story) -> Clockwork {
        let options = story.server_options(Side::Beanpole).map(OsString::from);
        let Ok(Invocation::Serve(options)) = options::parse(options) else {
            panic!("{}: these are not options to serve with", story.name);
        };
        let max_job_size = options.max_job_size;
        let config = Config {
            max_job_size,
            max_memory: options.max_memory,
            max_jobs_per_tube: options.max_jobs_per_tube,
            keeps_changes: false,
        };
        Clockwork {
            engine: Engine::new(config, START),
            now: START,
            max_job_size,
            clients: BTreeMap::new(),
        }
    }

    fn client(&mut self, client: &str) -> &mut Client {
        self.clients
            .get_mut(client)
            .expect("a client that is connected")
    }

    /// Executes what this client has sent, until it has to wait. If that
    /// answers the reserve of another client, executes what that one sent
    /// behind it.
    fn run(&mut self, client: &str) {
        let mut names = vec![client.to_owned()];
        while let Some(name) = names.pop() {
            self.run_one(&name);
            names.extend(self.deliver());
        }
    }

    fn run_one(&mut self, name: &str) {
        let (uptime, mut closed) = (self.now.since(START), None);
        let client = self
            .clients
            .get_mut(name)
            .expect("a client that is connected");
        while client.state == ClientState::Served {
            let mut unread = client.input.as_slice();
            let request = client.framer.next(&mut unread);
            client.input.drain(..client.input.len() - unread.len());
            let Some(request) = request else {
                if client.sends_no_more {
                    client.state = ClientState::Closed;
                }
                break;
            };
            self.now = self.now + MOMENT;
            match self.engine.execute(client.id, request, self.now) {
                Outcome::Reply(reply) => {
                    if let Reply::Closed(id) = reply {
                        closed = Some(ConnectionId(id));
                    }
                    client.answer(reply, uptime);
                    if closed.is_some() {
                        break;
                    }
                }
                Outcome::AwaitBody => {}
                Outcome::Unfinished(_) => unreachable!("stories are short"),
                Outcome::Waiting => client.state = ClientState::Waiting,
                Outcome::Quit => client.state = ClientState::Closed,
            }
        }
        if client.state == ClientState::Closed {
            self.engine.disconnect(client.id, self.now);
        }
        let mut others = self.clients.values_mut();
        if let Some(other) = others.find(|other| Some(other.id) == closed) {
            other.state = ClientState::Closed;
            self.engine.disconnect(other.id, self.now);
            self.run_one(name);
        }
    }

    /// Gives the answers to the clients that waited. Returns their names.
    fn deliver(&mut self) -> Vec<String> {
        let mut served = Vec::new();
        for (id, reply) in std::mem::take(&mut self.engine.effects.replies) {
            let waiting = self.clients.iter_mut().find(|(_, client)| client.id == id);
            let (name, client) = waiting.expect("only who is there is answered");
            assert!(
                client.state == ClientState::Waiting,
                "{name} gets an answer without waiting"
            );
            client.state = ClientState::Served;
            client.answer(reply, Duration::ZERO);
            served.push(name.clone());
        }
        served
    }
}

impl Client {
    fn answer(&mut self, mut reply: Reply, uptime: Duration) {
        if let Reply::ServerStats(facts, draining) = &mut reply {
            add_process(facts, uptime, *draining);
        }
        if let Reply::MoreServerStats(facts) = &mut reply {
            facts.add("binlog-size", 0_u32);
            facts.add("binlog-live-size", 0_u32);
            facts.add("max-connections", 1000_u32);
        }
        reply.encode(&mut self.output);
        self.output
            .extend_from_slice(reply.body().map_or(&[], |body| body.wire()));
    }
}

impl Stage for Clockwork {
    fn connect(&mut self, client: &str) -> io::Result<()> {
        let new = Client {
            id: self.engine.connect(client.into(), self.now),
            framer: Framer::new(self.max_job_size),
            input: Vec::new(),
            output: Vec::new(),
            state: ClientState::Served,
            sends_no_more: false,
        };
        self.clients.insert(client.to_owned(), new);
        Ok(())
    }

    fn send(&mut self, client: &str, bytes: &[u8]) -> io::Result<()> {
        self.client(client).input.extend_from_slice(bytes);
        self.run(client);
        Ok(())
    }

    fn receive(&mut self, client: &str) -> io::Result<Received> {
        let client = self.client(client);
        Ok(match std::mem::take(&mut client.output) {
            output if !output.is_empty() => Received::Bytes(output),
            _ if client.state == ClientState::Closed => Received::End,
            _ => Received::Nothing,
        })
    }

    fn receive_at_rest(&mut self, client: &str) -> io::Result<Received> {
        self.receive(client)
    }

    fn await_output(&mut self, client: &str) -> io::Result<()> {
        if self.client(client).output.is_empty() {
            Err(io::Error::other("nothing came"))
        } else {
            Ok(())
        }
    }

    fn send_no_more(&mut self, client: &str) -> io::Result<()> {
        let Client {
            id,
            state,
            sends_no_more,
            ..
        } = self.client(client);
        *sends_no_more = true;
        if *state != ClientState::Closed {
            let id = *id;
            self.engine.half_close(id);
            self.deliver();
            self.run(client);
        }
        Ok(())
    }

    fn close(&mut self, client: &str) -> io::Result<()> {
        self.send_no_more(client)?;
        self.clients.remove(client);
        Ok(())
    }

    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    fn pass(&mut self, time: Duration) -> io::Result<()> {
        let end = self.now + time;
        while let Some(due) = self.engine.wake_at().filter(|&due| due <= end) {
            self.now = due.max(self.now);
            self.engine.tick(self.now);
            for client in self.deliver() {
                self.run(&client);
            }
        }
        self.now = end;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.engine.outside.draining = true;
        Ok(())
    }
}

/// Adds to `stats` what the server adds, because the engine does not know it.
fn add_process(facts: &mut Document, uptime: Duration, draining: bool) {
    facts.add("pid", 1_u32);
    facts.add_text("version", "1.13");
    facts.add("rusage-utime", "0.000000");
    facts.add("rusage-stime", "0.000000");
    facts.add("uptime", uptime.as_secs());
    facts.add("binlog-oldest-index", 0_u32);
    facts.add("binlog-current-index", 0_u32);
    facts.add("binlog-records-migrated", 0_u32);
    facts.add("binlog-records-written", 0_u32);
    facts.add("binlog-max-size", 10_u32 << 20);
    facts.add("draining", draining);
    facts.add("id", "0123456789abcdef");
    facts.add_name_or_text("hostname", "host");
    facts.add_text("os", "#1 SMP");
    facts.add_name_or_text("platform", "x86_64");
}
