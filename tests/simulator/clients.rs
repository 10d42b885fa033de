//! Clients, each a thread that does what its plan says.

use crate::simulator::hangup::Door;
use crate::simulator::judge::{self, Event, next_reply, see};
use crate::simulator::life;
use crate::simulator::plan::Action;
use crate::simulator::stream::{Peer, Stream};
use crate::simulator::{threads, world};
use crate::sync::thread;
use std::sync::Arc;
use std::time::Duration;

/// How long a client waits for a reply that it is owed.
const PATIENCE: Duration = Duration::from_secs(6);

/// What a client knows of its connection.
struct Line<'a> {
    name: &'a str,
    caller: usize,
    peer: Peer,
    heard: Vec<u8>,
    /// How many replies it should get, and how many it has got.
    asked: usize,
    replies: usize,
    /// The last job that it has reserved.
    held: String,
    is_over: bool,
}

pub fn live(does: &[Action], name: &str, door: &Arc<Door>, room: usize) {
    let mut line = Line::connect(name, door, room);
    for action in does {
        match action {
            Action::Causes(incident) => life::cause(*incident),
            Action::Reconnects => {
                line.leave();
                line = Line::connect(name, door, room);
            }
            _ if line.is_over => {}
            Action::Sends(commands) => line.say(commands),
            Action::Exchanges(commands) => {
                line.say(commands);
                line.hear();
            }
            Action::SendsPart(command, bytes) => {
                line.say_part(command, *bytes);
                line.leave();
            }
            Action::Reads => line.hear(),
            Action::Waits(millis) => thread::park_timeout(Duration::from_millis(*millis)),
            Action::HalfCloses => {
                see(Event::IsDone(line.caller));
                line.peer.half_close();
                see(Event::HalfCloses(line.caller));
                line.hear();
                line.is_over = true;
            }
        }
    }
    line.leave();
}

/// The last client: it ends the pause of the default tube, whose record would keep its
/// segment, and deletes all jobs. It stays away until no key is taken any more.
pub fn sweep(door: &Arc<Door>, room: usize) {
    let mut line = Line::connect("the sweeper", door, room);
    if threads::one_in(20) {
        // If each of these leaked a little memory, it would be much together.
        let round = |n| {
            [
                format!("use t{n}\r\n"),
                format!("watch t{n}\r\n"),
                format!("ignore t{n}\r\n"),
                "put 0 0 60 1\r\nx\r\n".into(),
            ]
        };
        line.say(&(0..60).flat_map(round).collect::<Vec<_>>());
        line.hear();
    }
    let deletes = judge::jobs().map(|id| format!("delete {id}\r\n"));
    let resumes = ["pause-tube default 0\r\n".into()].into_iter();
    let commands: Vec<_> = resumes.chain(deletes).chain(["stats\r\n".into()]).collect();
    line.say(&commands);
    line.hear();
    line.leave();
    thread::park_timeout(judge::time_of_keys());
}

impl<'a> Line<'a> {
    fn connect(name: &'a str, door: &Arc<Door>, room: usize) -> Line<'a> {
        let window = if threads::one_in(2) { room / 2 } else { 0 };
        let caller = judge::caller(name);
        let (stream, peer) = Stream::pair(caller, room, window, door);
        door.call((caller, peer.clone(), stream));
        Line {
            name,
            caller,
            peer,
            heard: Vec::new(),
            asked: 0,
            replies: 0,
            held: "1".into(),
            is_over: false,
        }
    }

    fn say(&mut self, commands: &[String]) {
        let mut bytes = Vec::new();
        for command in commands {
            let command = command.replace("{}", &self.held);
            let (line, body) = command.split_once("\r\n").expect("a line");
            see(Event::Says(self.caller, line));
            if !body.is_empty() {
                see(Event::Says(self.caller, body));
            }
            if line == "quit" {
                self.is_over = true;
            }
            self.asked += 1;
            bytes.extend_from_slice(command.as_bytes());
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let count = if threads::one_in(2) {
                rest.len()
            } else {
                1 + threads::below(rest.len() as u64) as usize
            };
            self.peer.send(&rest[..count]);
            rest = &rest[count..];
            if !rest.is_empty() && threads::one_in(4) {
                let millis = 1 + threads::below(100);
                thread::park_timeout(Duration::from_millis(millis));
            }
        }
        see(Event::HasSaid(self.caller));
    }

    fn say_part(&mut self, command: &str, bytes: usize) {
        let (line, _) = command.split_once("\r\n").expect("a line");
        if bytes >= line.len() + 2 {
            see(Event::Says(self.caller, line));
        }
        self.asked += 1;
        self.peer.send(&command.as_bytes()[..bytes]);
    }

    /// Reads until all replies are there, or none is to come.
    fn hear(&mut self) {
        // The reply may be about to arrive at the moment when the patience ends.
        let mut was_silent = false;
        while self.replies < self.asked {
            let since = threads::now();
            match self.peer.receive(PATIENCE) {
                None => {
                    self.is_over = true;
                    return;
                }
                Some(bytes) if bytes.is_empty() && world::stalled_after(since) => {}
                Some(bytes) if bytes.is_empty() => {
                    if judge::may_be_silent(self.caller) || world::is_struck() {
                        return;
                    }
                    assert!(
                        !std::mem::replace(&mut was_silent, true),
                        "{} is not served: it has {} replies of {}",
                        self.name,
                        self.replies,
                        self.asked
                    );
                }
                Some(bytes) => self.heard.extend(bytes),
            }
            let mut heard = &self.heard[..];
            while let Some(reply) = next_reply(&mut heard) {
                self.replies += 1;
                if let Some(rest) = reply.strip_prefix("RESERVED ") {
                    self.held = rest.split(' ').next().unwrap_or("1").to_owned();
                }
            }
            self.heard = heard.to_vec();
        }
    }

    fn leave(&mut self) {
        self.is_over = true;
        see(Event::IsDone(self.caller));
        self.peer.leave();
        see(Event::Closes(self.caller));
    }
}
