//! Transfer of jobs from one tube to another, on the same server or on another
//! one: the part that `move`, `copy` and `console` share.

mod moving;

use crate::command::{DRY_RUN, INPUT, Invocation, Opt, described, ids_of_input, options, word};
use crate::failure::{Failure, Outcome};
use crate::selection::{SELECTION, Selection};
use crate::server::client::{Client, Terms};
use crate::server::names::{Server, warn_of};
use crate::server::place::{Placed, Placement, Placer};
use crate::server::stats::{JobFacts, State};
use crate::server::take::Room;
use crate::server::task::Task;
use crate::server::tubes::Patterns;
use beanpole::protocol::{JobId, TubeName};

options! {
    to: Option<Server> =
        Opt::value("", "to", "ADDR", "the server of the second tube, if another"),
    dry_run: bool = DRY_RUN,
}

/// The options that `move` and `copy` share.
pub fn transfer_options() -> Vec<Opt> {
    [described(OPTIONS), described(SELECTION)].concat()
}

/// Which jobs are transferred.
#[derive(Clone)]
pub enum From {
    /// The jobs of this tube.
    Tube(TubeName),
    /// The jobs with these ids.
    Ids(Vec<JobId>),
}

/// Both ends of a transfer.
pub struct Transfer {
    pub client: Client,
    pub from: From,
    to: TubeName,
    pub placer: Placer,
    pub states: Vec<State>,
    /// Whether nothing is to be done but to say how many jobs it would be.
    pub dry_run: bool,
    /// Whether fewer jobs are wanted than there are.
    pub is_limited: bool,
    /// How many jobs have been transferred, and how many still may be.
    pub task: Task,
    room: Room,
}

impl Transfer {
    /// A transfer between the tubes that the operands name.
    pub fn new(invocation: &Invocation, doing: &'static str) -> Outcome<Transfer> {
        let options = invocation.read(OPTIONS)?;
        let [from, to] = invocation.operands() else {
            return Failure::usage("from which tube to which? give two");
        };
        let to = word(to)?;
        options.to.iter().for_each(warn_of);
        let target = options.to.as_ref().unwrap_or(&invocation.servers[0]);
        let mut client = invocation.connect()?;
        let mut target = invocation.connect_to(&target.address)?;
        let own = OPTIONS.len();
        let (from, selection) = match from.as_str() {
            INPUT => {
                let mut ids = ids_of_input()?;
                ids.sort();
                ids.dedup();
                let all = Patterns::default();
                let selection = Selection::of(invocation, own, &mut client, &all)?.free()?;
                if !selection.is_plain() {
                    return Failure::usage("ids and conditions exclude each other");
                }
                (From::Ids(ids), selection)
            }
            tubes => {
                let tubes = Patterns(vec![word(tubes)?]);
                let mut selection = Selection::of(invocation, own, &mut client, &tubes)?.free()?;
                let id_of = |end: &mut Client| Ok(end.server_stats()?.text("id").to_owned());
                if selection.scope.tubes.contains(&to) && id_of(&mut client)? == id_of(&mut target)?
                {
                    selection.scope.tubes.retain(|tube| *tube != to);
                }
                match (selection.scope.tubes.as_slice(), selection.is_plain()) {
                    ([], _) => return Failure::usage("both are the same tube"),
                    ([tube], true) => (From::Tube(tube.clone()), selection),
                    _ => (From::Ids(selection.ids(&mut client)?.0), selection),
                }
            }
        };
        let there = match &from {
            From::Ids(ids) => ids.len() as u64,
            From::Tube(tube) => client.known_tube(tube)?.jobs_in(&selection.scope.states),
        };
        let left = selection.most().min(there);
        Ok(Transfer {
            client,
            from,
            to,
            placer: Placer::new(target),
            states: selection.scope.states,
            dry_run: options.dry_run,
            is_limited: left < there,
            task: Task::new(doing, left),
            room: Room::default(),
        })
    }

    /// A transfer of up to `left` jobs in these states to another tube of the
    /// same server, over these two connections. It goes on until it is done,
    /// and shows nothing.
    pub fn within(
        [client, target]: [Client; 2],
        from: From,
        to: TubeName,
        states: Vec<State>,
        left: u64,
    ) -> Transfer {
        Transfer {
            client,
            from,
            to,
            placer: Placer::new(target),
            states,
            dry_run: false,
            is_limited: true,
            task: Task::quiet(left),
            room: Room::default(),
        }
    }

    /// Puts these jobs into the other tube, and returns the ids that they have
    /// there. If not all could be put, the failure says why.
    pub fn place(&mut self, jobs: &[(JobFacts, Vec<u8>)]) -> (Vec<JobId>, Outcome<()>) {
        self.room.learn(jobs.iter().map(|(_, body)| body.len()));
        let placements: Vec<_> = jobs
            .iter()
            .map(|(job, body)| Placement {
                tube: self.to.clone(),
                terms: Terms {
                    priority: job.priority,
                    delay: job.delay_left(),
                    ttr: job.ttr,
                },
                words: job.words(),
                buried: job.state == State::Buried,
                body: body.clone(),
            })
            .collect();
        let Placed { ids, outcome, .. } = self.placer.place(&placements);
        let unanswered = &jobs[ids.len()..];
        let outcome = outcome.map_err(|failure| match (unanswered, failure) {
            ([], failure) => failure,
            ([(first, _), ..], failure @ Failure::Unreachable(_)) => {
                let (count, address) = (unanswered.len(), self.placer.address());
                let line = format!(
                    "the answers about {count} jobs, from {} on, are missing: they are \
                     still here, and some may be there, too: 'beanpole ls -a {address} {}' lists \
                     them last",
                    first.id, self.to
                );
                failure.with(line)
            }
            ([(job, _), ..], failure) => failure.about(format_args!("job {}", job.id)),
        });
        (ids, outcome)
    }

    /// Takes as many of these ids as belong into one batch, if another batch
    /// may begin. The others stay in `ids`.
    pub fn next_of<'a>(&mut self, ids: &mut &'a [JobId]) -> Outcome<Option<&'a [JobId]>> {
        if ids.is_empty() || !self.task.goes_on()? {
            return Ok(None);
        }
        Ok(ids.split_off(..self.at_once().min(ids.len())))
    }

    /// How many jobs belong into the next batch.
    pub fn at_once(&self) -> usize {
        let left = usize::try_from(self.task.left).unwrap_or(usize::MAX);
        left.min(self.room.jobs())
    }

    /// Prints how many jobs were transferred, even after a failure.
    pub fn finish(self, outcome: Outcome<()>) -> Outcome<()> {
        self.placer.say_what_is_lost();
        self.task.finish(outcome)
    }
}
