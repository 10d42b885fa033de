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

use super::plan::{Adrift, Common, Plan};
use crate::failure::{Failure, Outcome};
use crate::server::client::{Client, Event};
use crate::server::reply::{Job, Reply};
use crate::server::stats::{Facts, JobFacts, State};
use crate::signals::{Calls, wait_for};
use crate::text::output::complain;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A job that we hold.
pub struct Held<'a> {
    plan: &'a Plan,
    common: &'a Common,
    link: Link<'a>,
    pub job: JobFacts,
    body: Vec<u8>,
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
    /// Nothing: it is not ours.
    Gone,
}

/// What ended a while of keeping a job.
pub enum Kept {
    /// Somebody calls.
    Called,
    /// The time is up.
    Time,
    /// The job is not ours any more, for this reason.
    Lost(String),
}

/// What became of an attempt to take a job back.
enum TakenBack {
    Ours(Client),
    /// It cannot be had now, but perhaps later, for this reason.
    NotYet(String),
    Lost(String),
    /// The server does not know it any more.
    Forgotten,
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
    pub fn new(
        (plan, common): (&'a Plan, &'a Common),
        mut client: Client,
        job: Job,
    ) -> Outcome<(Option<Held<'a>>, Facts)> {
        let id = job.id;
        let sent = Instant::now();
        client.queue(format_args!("stats-job {id}"));
        client.queue(format_args!("touch {id}"));
        let reply = client.reply()?;
        let facts = crate::server::client::facts("stats-job", reply)?.unwrap_or_default();
        let touched = client.reply()?;
        if touched != Reply::Touched {
            return Ok((None, facts));
        }
        let mut held = Held {
            plan,
            common,
            link: Link::Connection(client),
            job: JobFacts::read(facts.clone()).map_err(Failure::Refused)?,
            body: job.body,
            lease: sent,
            next_touch: sent,
            touching: None,
            retry: sent,
        };
        held.renewed(sent);
        Ok((Some(held), facts))
    }

    /// The job's body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The connection, if there is one that can be used for another job.
    pub fn into_client(self) -> Option<Client> {
        match self.link {
            Link::Connection(client) => Some(client),
            _ => None,
        }
    }

    /// Leaves the job to the server: without the connection nobody holds it.
    pub fn abandon(&mut self) {
        self.link = Link::Gone;
    }

    fn renewed(&mut self, sent: Instant) {
        let ttr = Duration::from_secs(self.job.ttr.0.max(1).into());
        self.lease = sent + ttr;
        self.next_touch = sent + ttr / 3;
        self.touching = None;
    }

    /// Keeps the job until somebody calls, the time is up, or it is lost.
    pub fn keep(&mut self, calls: &Calls, until: Option<Instant>) -> Kept {
        loop {
            if matches!(self.link, Link::Forgotten) {
                calls.wait(until);
                return Kept::Called;
            }
            let now = Instant::now();
            if now >= self.lease {
                return Kept::Lost(
                    "its time to run was over before the server could be reached".into(),
                );
            }
            if until.is_some_and(|until| now >= until) {
                return Kept::Time;
            }
            let mut wake = until.map_or(self.lease, |until| until.min(self.lease));
            let Link::Connection(client) = &mut self.link else {
                if now < self.retry {
                    wait_for(&[calls.as_fd()], Some(wake.min(self.retry)));
                    if Instant::now() < wake.min(self.retry) {
                        return Kept::Called;
                    }
                    continue;
                }
                match self.take_back() {
                    Ok(()) => continue,
                    Err(reason) => return Kept::Lost(reason),
                }
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
                Ok(Event::Other) => return Kept::Called,
                Ok(Event::Reply(reply)) => match (client.understand(reply), self.touching) {
                    (Ok(Reply::Touched), Some(sent)) => self.renewed(sent),
                    (Ok(Reply::NotFound), _) => {
                        return Kept::Lost("the server took it back".into());
                    }
                    (Ok(other), _) => return Kept::Lost(format!("the server answered {other}")),
                    (Err(failure), _) => return Kept::Lost(failure.to_string()),
                },
                Err(failure) => self.disconnected(&failure),
            }
        }
    }

    fn disconnected(&mut self, failure: &Failure) {
        complain(format_args!(
            "beanpole work: job {}: {failure}; trying to keep it",
            self.job.id
        ));
        self.link = Link::Adrift {
            _note: self.common.adrift(),
        };
        self.touching = None;
        self.retry = Instant::now();
    }

    /// Tells the server what becomes of the job, for as long as it takes to
    /// reach the server or until `give_up` says so, which is told whether the
    /// job's time to run is over. The error says why the server did not want
    /// to hear it, and what that means.
    pub fn settle(
        &mut self,
        line: &str,
        calls: &mut Calls,
        give_up: impl Fn(bool) -> bool,
    ) -> Result<(), String> {
        let mut asked = false;
        loop {
            if matches!(self.link, Link::Adrift { .. }) {
                self.take_back()
                    .map_err(|reason| format!("{reason}; it may run again"))?;
            }
            if matches!(self.link, Link::Forgotten) {
                // If the connection broke after we had asked, we were heard.
                return if asked {
                    Ok(())
                } else {
                    Err("the server does not know it any more".into())
                };
            }
            let Link::Connection(client) = &mut self.link else {
                if give_up(Instant::now() >= self.lease) {
                    return Err("the server cannot be reached; it may run again".into());
                }
                calls.wait(Some(self.retry));
                calls.take();
                continue;
            };
            // A touch may still be under way: its reply comes first.
            let touching = self.touching.take().is_some();
            asked = true;
            client.queue(line);
            let first = if touching {
                client.reply().map(drop)
            } else {
                Ok(())
            };
            let reason = match first.and_then(|()| client.reply()) {
                Ok(Reply::Deleted | Reply::Released | Reply::Buried(_)) => return Ok(()),
                Ok(Reply::NotFound) => "the server took it back; it may run again".into(),
                Ok(other) => format!("the server answered {other}; it may run again"),
                Err(failure) => {
                    self.disconnected(&failure);
                    continue;
                }
            };
            self.abandon();
            return Err(reason);
        }
    }

    /// Tries to connect and to take the job back. If that cannot be done now,
    /// there is no connection afterwards; an error says that it is lost.
    fn take_back(&mut self) -> Result<(), String> {
        let sent = Instant::now();
        if sent < self.retry {
            return Ok(());
        }
        match self.try_to_take_back() {
            Ok(TakenBack::Ours(mut client)) => {
                client.set_patience(self.plan.patience);
                complain(format_args!(
                    "beanpole work: job {}: taken back",
                    self.job.id
                ));
                self.link = Link::Connection(client);
                self.job.reserves += 1;
                self.renewed(sent);
            }
            Ok(TakenBack::Lost(reason)) => {
                self.link = Link::Gone;
                return Err(reason);
            }
            Ok(TakenBack::Forgotten) => self.link = Link::Forgotten,
            Ok(TakenBack::NotYet(reason)) => self.later(&reason),
            Err(failure) => self.later(&failure.to_string()),
        }
        Ok(())
    }

    fn later(&mut self, reason: &str) {
        if self.plan.verbose {
            complain(format_args!("beanpole work: job {}: {reason}", self.job.id));
        }
        self.retry = Instant::now() + RETRY;
    }

    fn try_to_take_back(&self) -> Outcome<TakenBack> {
        let id = self.job.id;
        let mut client = Client::connect(&self.plan.address, ATTEMPT)?;
        client.watch_only(&self.plan.tubes)?;
        let Some(now) = client.job(id)? else {
            return Ok(TakenBack::Forgotten);
        };
        let body = match client.call(format_args!("peek {id}"))? {
            Reply::Found(job) => Some(job.body),
            _ => None,
        };
        let same = now.tube == self.job.tube
            && now.ttr == self.job.ttr
            && now.age >= self.job.age
            && body.as_ref() == Some(&self.body);
        if !same {
            // It has lost ours, and this is another one of the same number.
            return Ok(TakenBack::Forgotten);
        }
        if now.reserves > self.job.reserves {
            return Ok(TakenBack::Lost(
                "somebody else has had it in between".into(),
            ));
        }
        if now.state == State::Reserved {
            // By our own connection, of whose end the server has not heard.
            return Ok(TakenBack::NotYet(
                "the server still waits for the lost connection".into(),
            ));
        }
        match client.call(format_args!("reserve-job {id}"))? {
            Reply::Reserved(_) => Ok(TakenBack::Ours(client)),
            Reply::NotFound => Ok(TakenBack::NotYet("it was not to be had".into())),
            other => Ok(TakenBack::Lost(format!(
                "reserve-job: the server answered {other}"
            ))),
        }
    }
}
