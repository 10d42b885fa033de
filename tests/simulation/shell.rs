//! What the server does between clients, engine and log. It appends each change
//! before it makes the next one, and sends no reply before the log keeps what
//! the reply promises.

use crate::history::{History, apply};
use crate::ledger::{Fact, Kept, Ledger};
use crate::naive::Client;
use crate::world::{Jobs, Keeper};
use beanpole::binlog::longest_put;
use beanpole::binlog::{Binlog, Failed, NoRoom, Opened, Position, Record, SyncMode, Update};
use beanpole::engine::{Change, ConnectionId, Engine, Outcome, Time};
use beanpole::protocol::framing::NoBody;
use beanpole::protocol::{Command, JobId, Reply, Request, RestsOn};
use std::collections::VecDeque;
use std::sync::Arc;

/// The log, and what the test knows of it.
pub struct Shell {
    /// `None` when the server has ended.
    log: Option<Arc<Binlog>>,
    sync: SyncMode,
    /// The jobs as the log has them.
    jobs: Jobs,
    history: History,
    ledger: Ledger,
    /// What was certain when all changes were synced the last time.
    synced: Ledger,
    synced_changes: usize,
    /// The replies that wait for the log, in their order.
    owed: VecDeque<Owed>,
    refused: bool,
    pub refused_puts: u64,
}

/// A reply that waits until the log keeps all changes up to a position.
struct Owed {
    client: Client,
    position: Position,
    /// How many changes there were up to that position.
    changes: usize,
    fact: Option<Fact>,
}

impl Shell {
    pub fn new(opened: Opened<Jobs>, sync: SyncMode) -> Shell {
        let ledger = Ledger::new(&opened.jobs, opened.next_id);
        Shell {
            log: Some(opened.binlog),
            sync,
            history: History::new(opened.jobs.clone(), opened.next_id.0),
            jobs: opened.jobs,
            synced: ledger.clone(),
            ledger,
            synced_changes: 0,
            owed: VecDeque::new(),
            refused: false,
            refused_puts: 0,
        }
    }

    fn log(&self) -> Arc<Binlog> {
        self.log.clone().expect("the server runs")
    }

    pub fn take_log(&mut self) -> Option<Arc<Binlog>> {
        self.log.take()
    }

    pub fn failure(&self) -> String {
        let log = self.log();
        log.failure().map_or_else(String::new, ToString::to_string)
    }

    /// Commits the changes that replies wait for, and sends the replies.
    pub fn deliver(&mut self) -> Result<(), Failed> {
        while let Some(owed) = self.owed.front() {
            self.log().commit(owed.position)?;
            let owed = self.owed.pop_front().expect("it was there");
            self.history.kept = self.history.kept.max(owed.changes);
            if let Some(fact) = owed.fact {
                self.ledger.note(fact);
            }
        }
        Ok(())
    }

    /// Does the work of the log's threads.
    pub fn work_once(&mut self) -> Result<(), Failed> {
        let log = self.log();
        if let SyncMode::Every(_) = self.sync {
            log.write_soon();
        }
        log.work_once()?;
        if let SyncMode::Every(_) = self.sync {
            self.note_synced();
        }
        Ok(())
    }

    pub fn close(&mut self) -> Result<(), Failed> {
        self.log().close()?;
        self.note_synced();
        self.history.kept = self.history.len();
        Ok(())
    }

    fn note_synced(&mut self) {
        self.synced = self.ledger.clone();
        self.synced_changes = self.history.len();
    }

    /// What may not be lost when the process ends.
    pub fn acknowledged(&self) -> Kept {
        Kept {
            ledger: self.ledger.clone(),
            history: self.history.clone(),
        }
    }

    /// What may not be lost when the power fails, in the modes that do not sync
    /// before each acknowledgement.
    pub fn synced(&self) -> Kept {
        let mut history = self.history.clone();
        history.kept = self.synced_changes;
        Kept {
            ledger: self.synced.clone(),
            history,
        }
    }

    /// Sends a reply when the log keeps what the reply promises.
    fn owe(&mut self, client: Client, reply: &Reply, fact: Option<Fact>) {
        let (fact, changes) = match reply.rests_on() {
            RestsOn::Nothing => (fact, 0),
            RestsOn::PutOf(id) => (fact.or(Some(Fact::Seen(id))), 0),
            RestsOn::AllSoFar => (fact, self.history.len()),
        };
        if let Some(position) = self.log().needed_for(reply.rests_on()) {
            self.owed.push_back(Owed {
                client,
                position,
                changes,
                fact,
            });
        } else if let Some(fact) = fact {
            self.ledger.note(fact);
        }
    }
}

impl Keeper for Shell {
    fn execute(
        &mut self,
        engine: &mut Engine,
        (client, id): (Client, ConnectionId),
        mut request: Request,
        now: Time,
    ) -> Outcome {
        let log = self.log();
        self.refused = false;
        if let Request::Body(Ok(body)) = &request
            && log.make_room(longest_put(body.wire().len())) == Err(NoRoom)
        {
            request = Request::Body(Err(NoBody::NoRoom));
            self.refused = true;
            self.refused_puts += 1;
        }
        let deleted = match request {
            Request::Command(Command::Delete(id)) => Some(id),
            _ => None,
        };
        let outcome = engine.execute(id, request, now);
        self.keep(&engine.effects.changes, engine);
        engine.effects.changes.clear();
        if let Outcome::Reply(reply) = &outcome {
            let fact = match (reply, deleted) {
                (Reply::Inserted(id), _) => Some(there(*id, engine)),
                (Reply::InsertedBefore { id, state, .. }, _) => state.map(|_| there(*id, engine)),
                (Reply::Deleted, Some(id)) => {
                    self.ledger.delete(id);
                    self.synced.delete(id);
                    Some(Fact::Gone(id))
                }
                _ => None,
            };
            self.owe(client, reply, fact);
        }
        outcome
    }

    fn refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    fn keep(&mut self, changes: &[Change], engine: &Engine) {
        if changes.is_empty() {
            return;
        }
        self.log().append(changes, engine);
        for change in changes {
            let record = match *change {
                Change::Put(id) => engine.stored(id).map(Record::Put),
                Change::Update(id) => {
                    let stored = engine.stored(id);
                    stored.map(|job| Record::Update(Update::of(&job)))
                }
                // If its key is still taken, something is left of it.
                Change::Delete { id, .. } => {
                    let rest = engine.stored(id);
                    Some(rest.map_or(Record::Delete(id), Record::Put))
                }
            };
            // The job may have been deleted since. Then its deletion comes
            // later in this list.
            let Some(record) = record else { continue };
            apply(&mut self.jobs, &record);
            self.history.push(record);
        }
    }

    fn answer(&mut self, client: Client, reply: &Reply) {
        self.owe(client, reply, None);
    }

    fn is_owed(&self, client: Client) -> bool {
        self.owed.iter().any(|owed| owed.client == client)
    }

    fn jobs(&self) -> &Jobs {
        &self.jobs
    }
}

fn there(id: JobId, engine: &Engine) -> Fact {
    let job = engine.stored(id).expect("it was put just now");
    Fact::There(id, job.body.content().to_vec())
}
