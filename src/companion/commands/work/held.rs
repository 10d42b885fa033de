//! A job that we hold, and how we keep it.
//!
//! The server gives a job for its time to run; each touch begins that anew.
//! We touch three times as often as needed, and count the time from when a
//! touch was sent, so our end of the lease is never later than the server's.
//! While the lease lasts, a lost connection is not a lost job: the server may
//! be restarting, and whoever has not been asked cannot have given the job
//! away. We connect again and take the job back by its id, if it is the same
//! job and nobody else has had it in between. A server that has forgotten the
//! job, having restarted without a binlog, gives it to nobody: then the command
//! may end in peace.

use super::common::{Adrift, Common};
use crate::failure::{Failure, Outcome};
use crate::server::client::{self, Client, Event};
use crate::server::reply::{Job, Reply};
use crate::server::stats::{JobFacts, State};
use crate::signals::{Calls, wait_for};
use crate::text::output::complain;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A job that we hold.
pub struct Held<'a> {
    common: &'a Common,
    link: Link<'a>,
    pub job: JobFacts,
    pub body: Vec<u8>,
    /// When the server may give it to somebody else.
    lease: Instant,
    /// When to touch it next.
    next_touch: Instant,
    /// When the touch was sent whose reply has not come.
    touching: Option<Instant>,
    /// When to connect again, if the connection is lost.
    retry: Instant,
}

/// What ties the job to us.
enum Link<'a> {
    /// The connection that has reserved it.
    Connection(Client),
    /// None, and it is to be taken back; meanwhile no other slot takes a job,
    /// which might be this one.
    Adrift { _note: Adrift<'a> },
    /// The server has lost the job: nobody can give it to anybody.
    Forgotten,
    /// Nothing: it is not ours, for this reason. The connection is closed; it
    /// may still owe a reply, which is nobody's.
    Gone(String),
}

/// From one attempt to connect to the next.
const RETRY: Duration = Duration::from_millis(200);
/// Who has no job waits so long when a server is back: by then those who have
/// one have taken it back.
pub const PRECEDENCE: Duration = Duration::from_millis(500);
/// How long an attempt may take: meanwhile nobody looks at the command.
const ATTEMPT: Duration = Duration::from_secs(2);

impl<'a> Held<'a> {
    /// Takes over a job that this connection has just reserved, and asks for
    /// its facts. `None`: it is gone again.
    pub fn new(common: &'a Common, mut client: Client, job: Job) -> Outcome<Option<Held<'a>>> {
        let id = job.id;
        let sent = Instant::now();
        client.queue(format_args!("stats-job {id}"));
        client.queue(format_args!("touch {id}"));
        let facts = client::facts("stats-job", client.reply()?)?.unwrap_or_default();
        if client.reply()? != Reply::Touched {
            return Ok(None);
        }
        let mut held = Held {
            common,
            link: Link::Connection(client),
            job: JobFacts::read(facts).map_err(Failure::Refused)?,
            body: job.body,
            lease: sent,
            next_touch: sent,
            touching: None,
            retry: sent,
        };
        held.renewed(sent);
        Ok(Some(held))
    }

    /// The connection, if there is one that can be used for another job.
    pub fn into_client(self) -> Option<Client> {
        match self.link {
            Link::Connection(client) => Some(client),
            _ => None,
        }
    }

    /// Why the job is not ours any more, if so.
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
        let ttr = Duration::from_secs(self.job.ttr.0.max(1).into());
        self.lease = sent + ttr;
        self.next_touch = sent + ttr / 3;
        self.touching = None;
    }

    /// Keeps the job until somebody calls, the time is up, or it is lost.
    pub fn keep(&mut self, calls: &Calls, until: Option<Instant>) {
        loop {
            let now = Instant::now();
            let mut wake = until.map_or(self.lease, |until| until.min(self.lease));
            let client = match &mut self.link {
                Link::Forgotten | Link::Gone(_) => return calls.wait(until),
                _ if now >= self.lease => {
                    return self
                        .lose("its time to run was over before the server could be reached");
                }
                _ if now >= wake => return,
                Link::Adrift { .. } if now >= self.retry => {
                    self.take_back();
                    if self.loss().is_some() {
                        return;
                    }
                    continue;
                }
                Link::Adrift { .. } => {
                    wake = wake.min(self.retry);
                    wait_for(&[calls.as_fd()], Some(wake));
                    if Instant::now() < wake {
                        return;
                    }
                    continue;
                }
                Link::Connection(client) => client,
            };
            if self.touching.is_none() {
                if now >= self.next_touch {
                    client.queue(format_args!("touch {}", self.job.id));
                    self.touching = Some(now);
                } else {
                    wake = wake.min(self.next_touch);
                }
            }
            match client.wait(Some(wake), &[calls.as_fd()]) {
                Ok(Event::Time) => {}
                Ok(Event::Other) => return,
                Ok(Event::Reply(reply)) => match (client.understand(reply), self.touching) {
                    (Ok(Reply::Touched), Some(sent)) => self.renewed(sent),
                    (Ok(Reply::NotFound), _) => return self.lose("the server took it back"),
                    (Ok(other), _) => return self.lose(format!("the server answered {other}")),
                    (Err(failure), _) => return self.lose(failure.to_string()),
                },
                Err(failure) => self.disconnected(&failure),
            }
        }
    }

    fn disconnected(&mut self, failure: &Failure) {
        let id = self.job.id;
        complain(format_args!(
            "beanpole work: job {id}: {failure}; trying to keep it"
        ));
        self.link = Link::Adrift {
            _note: self.common.adrift(),
        };
        self.touching = None;
        self.retry = Instant::now();
    }

    /// Tells the server what becomes of the job, for as long as it takes to
    /// reach the server, unless we are to stop meanwhile. The error says why
    /// the server did not want to hear it, and what that means.
    pub fn settle(&mut self, line: &str, calls: &mut Calls) -> Result<(), String> {
        let mut asked = false;
        loop {
            if matches!(self.link, Link::Adrift { .. }) {
                self.take_back();
            }
            let client = match &mut self.link {
                // If the connection broke after we had asked, we were heard.
                Link::Forgotten if asked => return Ok(()),
                Link::Forgotten => return Err("the server does not know it any more".into()),
                Link::Gone(reason) => return Err(format!("{reason}; it may run again")),
                Link::Adrift { .. } if self.common.gives_up(Instant::now() >= self.lease) => {
                    return Err("the server cannot be reached; it may run again".into());
                }
                Link::Adrift { .. } => {
                    calls.wait(Some(self.retry));
                    calls.take();
                    continue;
                }
                Link::Connection(client) => client,
            };
            asked = true;
            client.queue(line);
            // A touch may still be under way: its reply comes first.
            let before = match self.touching.take() {
                Some(_) => client.reply().map(drop),
                None => Ok(()),
            };
            match before.and_then(|()| client.reply()) {
                Ok(Reply::Deleted | Reply::Released | Reply::Buried(_)) => return Ok(()),
                Ok(Reply::NotFound) => self.lose("the server took it back"),
                Ok(other) => self.lose(format!("the server answered {other}")),
                Err(failure) => self.disconnected(&failure),
            }
        }
    }

    /// Tries to connect and to take the job back, unless it has been tried just
    /// now. If that cannot be done, it stays adrift.
    fn take_back(&mut self) {
        let sent = Instant::now();
        if sent < self.retry {
            return;
        }
        let id = self.job.id;
        match self.try_to_take_back() {
            Ok(Link::Connection(mut client)) => {
                client.patience = self.common.patience;
                complain(format_args!("beanpole work: job {id}: taken back"));
                self.link = Link::Connection(client);
                self.job.reserves += 1;
                self.renewed(sent);
            }
            Ok(link) => self.link = link,
            Err(reason) => {
                if self.common.options.verbose {
                    complain(format_args!("beanpole work: job {id}: {reason}"));
                }
                self.retry = Instant::now() + RETRY;
            }
        }
    }

    /// What ties the job to us then; an error: perhaps it can be had later.
    fn try_to_take_back(&self) -> Outcome<Link<'a>> {
        let id = self.job.id;
        let later = |reason: &str| Failure::refused(reason);
        let mut client = Client::connect(&self.common.address, ATTEMPT)?;
        client.watch_only(&self.common.tubes)?;
        let Some(now) = client.job(id)? else {
            return Ok(Link::Forgotten);
        };
        let body = match client.call(format_args!("peek {id}"))? {
            Reply::Found(job) => Some(job.body),
            _ => None,
        };
        let is_same = now.tube == self.job.tube
            && now.ttr == self.job.ttr
            && now.age >= self.job.age
            && body.as_ref() == Some(&self.body);
        if !is_same {
            // It has lost ours, and this is another one of the same number.
            return Ok(Link::Forgotten);
        }
        if now.reserves > self.job.reserves {
            return Ok(Link::Gone("somebody else has had it in between".into()));
        }
        if now.state == State::Reserved {
            // By our own connection, of whose end the server has not heard.
            return later("the server still waits for the lost connection");
        }
        match client.call(format_args!("reserve-job {id}"))? {
            Reply::Reserved(_) => Ok(Link::Connection(client)),
            Reply::NotFound => later("it was not to be had"),
            other => {
                let what = format!("reserve-job: the server answered {other}");
                Ok(Link::Gone(what))
            }
        }
    }
}
