//! A job that we hold, and how we keep it.
//!
//! The server gives a job for its time to run, and each touch begins that time
//! again. We touch three times as often as needed. We count the time from the
//! moment when a touch was sent, so our lease never ends later than the
//! server's.
//!
//! While the lease lasts, a lost connection does not mean that the job is lost.
//! The server may be restarting, and until it answers again it cannot have
//! given the job away. We connect again and take the job back by its id, if it
//! is the same job and no other worker has had it in between. A server that was
//! restarted without a binlog has forgotten the job, and gives it to no worker:
//! then the command may run to its end.

use super::{Common, wait_after};
use crate::failure::{Failure, Outcome};
use crate::remote::{Address, Client, Event, Job, JobFacts, Reply, State};
use crate::signals::Calls;
use crate::text::output::complain;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job that we hold.
pub struct Held {
    common: &'static Common,
    link: Link,
    pub job: JobFacts,
    /// The server that has it.
    pub address: Address,
    pub body: Vec<u8>,
    /// When the server may give the job to another worker.
    lease: Instant,
    /// When to touch the job or, without a connection, to connect again.
    next: Instant,
    /// When the touch was sent that has no reply yet.
    touching: Option<Instant>,
    /// How many connections have failed since a touch was answered.
    failures: u32,
}

/// What ties the job to us.
enum Link {
    /// The connection that has reserved it.
    Connection(Client),
    /// There is no connection, and the job is to be taken back. Meanwhile no
    /// other slot takes a job, because it could be this one.
    Adrift { _note: Arc<()> },
    /// The server has lost the job, so it can give it to no worker.
    Forgotten,
    /// Nothing: the job is not ours any more, for this reason. The connection
    /// is closed, because it may still owe a reply that belongs to no other
    /// job.
    Gone(String),
}

/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// When a server is back, a slot without a job waits this time before it takes
/// one. By then the slots with a job have taken it back.
pub const PRECEDENCE: Duration = Duration::from_millis(500);
/// How long an attempt may take; during it, nothing watches the command.
const ATTEMPT: Duration = Duration::from_secs(2);

/// For how long a reservation of this job lasts.
fn ttr_of(job: &JobFacts) -> Duration {
    Duration::from_secs(job.ttr.0.max(1).into())
}

impl Held {
    /// Takes over a job that this connection has just reserved, after it was asked for at
    /// this moment, and asks for its facts, if they are not known. `None`: it is gone.
    pub fn new(
        common: &'static Common,
        mut client: Client,
        mut job: Job,
        asked: Instant,
    ) -> Outcome<Option<Held>> {
        let id = job.id;
        let mut ask = || {
            if let Some(facts) = job.facts.take()
                // It was reserved after that moment, so our lease is not too long.
                && asked.elapsed() < ttr_of(&facts) / 3
            {
                return Ok((Some(*facts), asked));
            }
            let facts = client.job(id)?;
            let sent = Instant::now();
            let is_ours = client.call(format_args!("touch {id}"))? == Reply::Done("TOUCHED");
            Ok((facts.filter(|_| is_ours), sent))
        };
        let told = ask();
        let name = format!("job {id}{}", client.address.at_one_of(&common.servers));
        let (facts, begun) = told.map_err(|failure: Failure| failure.about(&name))?;
        let Some(facts) = facts else {
            complain!("{name}: gone before the command was started");
            return Ok(None);
        };
        let mut held = Held {
            common,
            address: client.address.clone(),
            link: Link::Connection(client),
            job: facts,
            body: job.body,
            lease: begun,
            next: begun,
            touching: None,
            failures: 0,
        };
        held.renewed(begun);
        Ok(Some(held))
    }

    /// At which server it is, for messages, if there are several.
    pub fn at(&self) -> String {
        self.address.at_one_of(&self.common.servers)
    }

    /// The connection, if it can be used for another job.
    pub fn into_client(self) -> Option<Client> {
        match self.link {
            Link::Connection(client) => Some(client),
            _ => None,
        }
    }

    /// Why the job is not ours any more; `None` if it still is.
    pub fn loss(&self) -> Option<&str> {
        match &self.link {
            Link::Gone(reason) => Some(reason),
            _ => None,
        }
    }

    fn lose(&mut self, reason: impl Into<String>) {
        self.link = Link::Gone(reason.into());
    }

    fn renewed(&mut self, sent: Instant) {
        let ttr = ttr_of(&self.job);
        self.lease = sent + ttr;
        self.next = sent + ttr / 3;
        self.touching = None;
    }

    /// Keeps the job until a call comes, the time is up, or something about the
    /// job changes.
    pub fn keep(&mut self, calls: &Calls, until: Option<Instant>) {
        let now = Instant::now();
        let at_latest = |at: Instant| Some(until.map_or(at, |until| until.min(at)));
        let client = match &mut self.link {
            Link::Forgotten | Link::Gone(_) => return calls.wait(until),
            _ if now >= self.lease => {
                return self.lose("its time to run was over before the server could be reached");
            }
            Link::Adrift { .. } if now >= self.next => return self.take_back(),
            Link::Adrift { .. } => return calls.wait(at_latest(self.next.min(self.lease))),
            Link::Connection(client) => client,
        };
        if self.touching.is_none() && now >= self.next {
            client.queue(format_args!("touch {}", self.job.id));
            self.touching = Some(now);
        }
        let next = match self.touching {
            Some(_) => self.lease,
            None => self.next,
        };
        match client.wait(at_latest(next), &[calls.as_fd()]) {
            Ok(Event::Time | Event::Other) => {}
            Ok(Event::Reply(reply)) => match (client.understand(reply), self.touching) {
                (Ok(Reply::Done("TOUCHED")), Some(sent)) => {
                    self.failures = 0;
                    self.renewed(sent);
                }
                (Ok(Reply::No(_)), _) => self.lose("the server took it back"),
                (Ok(other), _) => self.lose(format!("the server answered {other}")),
                (Err(failure), _) => self.lose(failure.to_string()),
            },
            Err(failure) => self.disconnected(&failure),
        }
    }

    fn disconnected(&mut self, failure: &Failure) {
        complain!("job {}: {failure}; trying to keep it", self.job.id);
        let _note = Arc::clone(&self.common.adrift);
        self.link = Link::Adrift { _note };
        self.touching = None;
        // At once, but not again and again.
        let before = self.failures.checked_sub(1);
        self.next = Instant::now() + before.map_or(Duration::ZERO, wait_after);
        self.failures += 1;
    }

    /// Tells the server with this line what to do with the job. If the server
    /// cannot be reached, this tries again until the run gives up. The error
    /// says why the job was not settled, and what may happen to it.
    pub fn settle(&mut self, line: &str, calls: &Calls) -> Result<(), String> {
        let mut asked = false;
        loop {
            let now = Instant::now();
            let client = match &mut self.link {
                // We had asked before the connection broke, and the job is
                // gone: so the server has heard us.
                Link::Forgotten if asked => return Ok(()),
                Link::Forgotten => return Err("the server does not know it any more".into()),
                Link::Gone(reason) => return Err(format!("{reason}; it may run again")),
                Link::Adrift { .. } if now >= self.next => {
                    self.take_back();
                    continue;
                }
                Link::Adrift { .. } if self.common.gives_up(now >= self.lease) => {
                    return Err("the server cannot be reached; it may run again".into());
                }
                Link::Adrift { .. } => {
                    calls.wait(Some(self.next));
                    continue;
                }
                Link::Connection(client) => client,
            };
            asked = true;
            client.queue(line);
            // A touch may still be under way; its reply comes first.
            let before = self.touching.take().map(|_| client.reply()).transpose();
            match before.and_then(|_| client.reply()) {
                Ok(Reply::Done(_)) => return Ok(()),
                Ok(Reply::No(_)) => self.lose("the server took it back"),
                Ok(other) => self.lose(format!("the server answered {other}")),
                Err(failure) => self.disconnected(&failure),
            }
        }
    }

    /// Tries to connect and to take the job back. If the attempt fails, the job
    /// stays adrift.
    fn take_back(&mut self) {
        let sent = Instant::now();
        match self.try_to_take_back() {
            Ok(link) => {
                if let Link::Connection(client) = &link {
                    self.common.found(&client.address);
                    self.address = client.address.clone();
                    complain!("job {}{}: taken back", self.job.id, self.at());
                    self.job.reserves += 1;
                    self.renewed(sent);
                }
                self.link = link;
            }
            Err(_) => self.next = Instant::now() + RETRY,
        }
    }

    /// Connects and takes the job back. Returns the new tie; after an error, a
    /// later attempt may succeed.
    fn try_to_take_back(&self) -> Outcome<Link> {
        let id = self.job.id;
        let mut client = self.common.connect(ATTEMPT)?;
        let Some(now) = client.job(id)? else {
            return Ok(Link::Forgotten);
        };
        let body = client.ask(format_args!("peek {id}"), Reply::job)?;
        let is_same = now.tube == self.job.tube
            && now.ttr == self.job.ttr
            && now.age >= self.job.age
            && body.is_some_and(|job| job.body == self.body);
        if !is_same {
            // The server has lost our job, and this is another one with the
            // same id.
            return Ok(Link::Forgotten);
        }
        if now.reserves > self.job.reserves {
            return Ok(Link::Gone("somebody else has had it in between".into()));
        }
        if now.state == State::Reserved {
            // Our old connection holds it: the server has not noticed its end
            // yet.
            return Failure::refused("the server still waits for the lost connection");
        }
        match client.call(format_args!("reserve-job {id}"))? {
            Reply::Reserved(_) => {
                client.patience = self.common.patience;
                Ok(Link::Connection(client))
            }
            Reply::No(_) => Failure::refused("it was not to be had"),
            other => Ok(Link::Gone(format!(
                "reserve-job: the server answered {other}"
            ))),
        }
    }
}
