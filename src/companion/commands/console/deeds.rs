//! What the page may change, if `--allow-changes` was given. A request names
//! the deed, what it is about, and its numbers; the answer says in words what
//! was done.

use super::jobs::LONGEST;
use crate::failure::{Failure, Outcome};
use crate::server::act::{self, Act, Task};
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::server::stats::{State, free_states};
use crate::server::watch::Watched;
use crate::server::writer::Transfer;
use crate::server::writer::{NewJob, Writer, Written};
use crate::text::counted;
use crate::text::json::{self, Json};
use crate::values::Parse;
use beanpole::protocol::{JobId, TubeName};
use std::sync::Arc;

/// The longest request: a job in base64, and its other values.
pub const LONGEST_REQUEST: usize = LONGEST / 3 * 4 + 4096;

/// Does what this request says, and tells what was done.
pub fn carry_out(servers: &[Arc<Watched>], request: &[u8]) -> Outcome<String> {
    let request = json::parse(request).map_err(Failure::Usage)?;
    let deed = Deed(&request);
    let server: usize = deed.number("server")?;
    let Some(server) = servers.get(server) else {
        return Failure::usage("there is no such server");
    };
    // Each deed has a connection of its own, so that none inherits a tube or a
    // job of another one.
    let client = &mut server.connect()?;
    let (action, done) = match deed.text("do")? {
        "delete" => (Act::Delete, "deleted"),
        "kick-job" => (Act::Kick, "kicked"),
        "bury" => (Act::Bury(None), "buried"),
        "release" => {
            let action = Act::Release(Some(deed.read("priority")?), deed.read("delay")?);
            return act::act(client, action, deed.read("id")?);
        }
        "kick" => return act::kick(client, &deed.read("tube")?, deed.number("count")?),
        "pause" => return act::pause(client, &deed.read("tube")?, deed.read("time")?),
        "clear" => {
            let (tube, most) = (deed.read("tube")?, deed.number("count")?);
            return act::clear(client, &tube, &deed.states()?, most);
        }
        "put" => return put(server.connect()?, &deed),
        "move" => return move_jobs(server, &deed),
        other => return Failure::usage(format!("there is no deed '{other}'")),
    };
    let ids = deed.ids()?;
    let mut said = Vec::new();
    for id in &ids {
        said.push(act::act(client, action, *id)?);
    }
    // Who acts on many jobs wants their number, and why some were left.
    let (well, ill): (Vec<_>, Vec<_>) = said.into_iter().partition(|said| said.starts_with(done));
    match (ids.len(), well.as_slice(), ill.as_slice()) {
        (1, [said], _) | (1, _, [said]) | (_, [], [said, ..]) => Ok(said.clone()),
        (_, well, []) => Ok(format!("{done} {} jobs", well.len())),
        (all, well, [first, ..]) => Ok(format!("{done} {} of {all} jobs: {first}", well.len())),
    }
}

/// A request, which is an object of JSON.
struct Deed<'a>(&'a Json);

impl<'a> Deed<'a> {
    fn text(&self, key: &str) -> Outcome<&'a str> {
        let value = self.0.get(key).and_then(Json::as_str);
        value.ok_or_else(|| Failure::Usage(format!("the text '{key}' is missing")))
    }

    fn read<T: Parse>(&self, key: &str) -> Outcome<T> {
        let about = |reason| Failure::Usage(format!("{key}: {reason}"));
        T::parse(self.text(key)?).map_err(about)
    }

    fn number<T: TryFrom<u64>>(&self, key: &str) -> Outcome<T> {
        let number = self.0.get(key).and_then(Json::as_u64);
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| Failure::Usage(format!("the number '{key}' is missing")))
    }

    /// The jobs that it is about: at least one.
    fn ids(&self) -> Outcome<Vec<JobId>> {
        let ids = self.0.get("ids").and_then(Json::as_array);
        let ids = ids.filter(|ids| !ids.is_empty());
        let ids = ids.ok_or_else(|| Failure::Usage("the list 'ids' is missing".into()))?;
        let id = |id: &Json| JobId::parse(id.as_str().unwrap_or_default());
        let ids: Result<_, _> = ids.iter().map(id).collect();
        ids.map_err(|reason| Failure::Usage(format!("ids: {reason}")))
    }

    /// The states in a list of words; all that a person may change if it is
    /// empty.
    fn states(&self) -> Outcome<Vec<State>> {
        let words = self.text("states")?.split_whitespace();
        let states: Result<Vec<State>, _> = words.map(<State as Parse>::parse).collect();
        let states = states.and_then(|states| free_states(&states));
        states.map_err(Failure::Usage)
    }
}

fn put(client: Client, deed: &Deed) -> Outcome<String> {
    let tube: TubeName = deed.read("tube")?;
    let body = json::from_base64(deed.text("body64")?);
    let body = body.ok_or_else(|| Failure::Usage("the body is not in base64".into()))?;
    let job = NewJob {
        tube: tube.clone(),
        priority: deed.read("priority")?,
        delay: deed.read("delay")?,
        ttr: deed.read("ttr")?,
        ..NewJob::with(body)
    };
    let Written {
        replies, outcome, ..
    } = Writer::new(client).write(&[job]);
    outcome?;
    match replies.first() {
        Some(Reply::Inserted(id)) => Ok(format!("put job {id} into {tube}")),
        Some(Reply::Buried(Some(id))) => Ok(format!(
            "put job {id} into {tube}, but the server was short of memory and buried it"
        )),
        Some(other) => Err(Failure::unexpected("put", other)),
        None => Failure::refused("put: there was no reply"),
    }
}

/// Moves the jobs of a tube to another tube of the same server.
fn move_jobs(server: &Watched, deed: &Deed) -> Outcome<String> {
    let (from, to): (TubeName, TubeName) = (deed.read("tube")?, deed.read("to")?);
    if from == to {
        return Failure::usage("both are the same tube");
    }
    let (states, most) = (deed.states()?, deed.number("count")?);
    let (mut client, target) = (server.connect()?, server.connect()?);
    let ids = act::found(&mut client, &from, &states, most)?;
    let (mut transfer, mut task) = (Transfer::new(target, to.clone(), true), Task::quiet(most));
    let outcome = task.carry_out(&mut transfer, &mut client, &ids, false);
    let said = format!("moved {} of {from} to {to}", counted(task.done, "job"));
    outcome
        .map(|()| said.clone())
        .map_err(|failure| failure.about(said))
}
