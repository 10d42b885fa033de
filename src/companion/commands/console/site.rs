//! What a browser can ask for: the files of the page, facts as JSON, and
//! changes; and who may ask and change.
//!
//! A page of another site must neither read what is here nor change it, even in
//! the browser of someone who may. Such a page can send requests here, but it
//! cannot read our answers and cannot hide its origin. Its last way is a name of
//! its own that suddenly means our address: [`crate::http`] refuses that.

use super::answers::{self, LONGEST};
use crate::failure::{Failure, Outcome};
use crate::http::{Answer, Link, Request};
use crate::remote::client_list;
use crate::remote::curves::{Point, SLOTS, SPANS, Slots};
use crate::remote::trouble::{sentences, words};
use crate::remote::tubes::{RATES, TABLE};
use crate::remote::watch::{Counted, sorted};
use crate::remote::{Client, Column, Facts, Known, Refusal, Tube, Watched};
use crate::text::json::{Json, float, json};
use crate::values::{Parse, matches};
use beanpole::protocol::TubeName;
use std::sync::{Arc, MutexGuard};

/// The console as a site.
pub struct Console {
    pub servers: Vec<Arc<Watched>>,
    /// What every request for facts or changes must know, if anything.
    pub token: Option<String>,
    /// What a request for facts may know instead.
    pub read_only: Option<String>,
    pub allows_changes: bool,
    /// Each request that asks a server right now has a clone.
    pub asking: Arc<()>,
}

/// How many requests may ask servers at once. They are few, so that a silent
/// server keeps nobody from what is known without asking.
const MOST_ASKING: usize = 4;
/// How many rows of the table are in one answer.
const ROWS: usize = 100;

const ONLY_LOOKS: &str = "this console only looks: it was started without --allow-changes, or \
                          the token is that of --read-only";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: their paths, their types and what is in them.
#[rustfmt::skip]
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/console.js", SCRIPT, include_str!("page/console.js")),
    ("/words.js", SCRIPT, include_str!("page/words.js")),
    ("/tubes.js", SCRIPT, include_str!("page/tubes.js")),
    ("/curves.js", SCRIPT, include_str!("page/curves.js")),
    ("/tube.js", SCRIPT, include_str!("page/tube.js")),
    ("/job.js", SCRIPT, include_str!("page/job.js")),
    ("/body.js", SCRIPT, include_str!("page/body.js")),
    ("/changes.js", SCRIPT, include_str!("page/changes.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// Reads the value of this parameter.
pub fn read<T: Parse>(request: &Request, name: &str) -> Outcome<T> {
    let about = |reason| Failure::Usage(format!("{name}: {reason}"));
    T::parse(request.parameter(name)).map_err(about)
}

/// Reads the value of a parameter that may be missing.
pub fn optional<T: Parse>(request: &Request, name: &str) -> Outcome<Option<T>> {
    match request.parameter(name) {
        "" => Ok(None),
        _ => read(request, name).map(Some),
    }
}

fn index(request: &Request, name: &str) -> usize {
    request.parameter(name).parse().unwrap_or(0)
}

/// Whether a request was made by our own page: browsers say which page sends
/// what is more than a question.
fn comes_from_here(request: &Request) -> bool {
    let origin = request
        .header("origin")
        .and_then(|origin| origin.split_once("://"));
    let host = request.header("host");
    origin.is_some_and(|(_, of)| host.is_some_and(|host| host.eq_ignore_ascii_case(of)))
}

/// Compares without telling by the time it takes how much is right.
fn is_same(given: &str, wanted: &str) -> bool {
    let pairs = given.bytes().zip(wanted.bytes());
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    given.len() == wanted.len() && difference == 0
}

/// The first connections by the column that is wanted, as lines of text.
fn clients(client: &mut Client, request: &Request) -> Outcome<Json> {
    let by = Some(request.parameter("clients")).filter(|by| *by != "id");
    let found = match client_list::sorted(client, by) {
        // It is no failure that a server does not list them.
        Err(Failure::Refused(reason)) => {
            return Ok(json!({"text": reason, "rows": [], "more": ""}));
        }
        found => found?,
    };
    let row = |one: &Facts| json!({"id": one.text("id"), "line": client_list::line(one)});
    let more = found.len().saturating_sub(ROWS);
    Ok(json!({
        "text": client_list::titles(),
        "rows": found.iter().take(ROWS).map(row).collect::<Json>(),
        "more": if more > 0 { format!("… and {more} more") } else { String::new() },
    }))
}

/// What is in the way of the jobs of a tube.
fn why(request: &Request, client: &mut Client, server: &Watched) -> Outcome<Json> {
    let tube: TubeName = read(request, "tube")?;
    let found = server.known().tubes.get(&tube).cloned();
    let known = found.ok_or_else(|| Failure::no_tube(&tube))?;
    let said = sentences(client, &tube, &known)?;
    Ok(json!({"why": said.join(" ")}))
}

/// What is known about a server itself.
fn card(server: &Arc<Watched>) -> Json {
    let (now, known) = (server.now(), server.known());
    let facts = &known.server.facts;
    let rates = known.server.rates.unwrap_or_default();
    json!({
        "name": server.name(),
        "address": server.named.address.to_string(),
        "colour": server.named.colour.map(|colour| colour.name()),
        "lost": known.lost(now),
        "refusal": Refusal::of(facts).map(Refusal::words),
        "known": facts.get("id").is_some(),
        "version": facts.text("version"),
        "uptime": facts.number("uptime"),
        "jobs": facts.jobs(),
        "rates": rates.map(hundredths),
        "connections": facts.connections(),
        "curve": small(&known.server.slots(0, now)),
    })
}

/// A tube of a server as a row.
fn row(server: &Watched, name: &TubeName, tube: &Tube) -> Json {
    let mut row = json!({
        "server": server.name(),
        "name": name.as_str(),
        "grave": tube.is_grave(),
        "trouble": (!tube.troubles.is_empty()).then(|| words(&tube.troubles)),
        "curve": small(&tube.counted.slots(0, server.now())),
    });
    for (column, name, ..) in &TABLE[1..] {
        row[name] = tube.figure(*column).map(hundredths).into();
    }
    row
}

/// A figure or a rate, whose hundredths are fine enough for a person.
fn hundredths(figure: impl Into<f64>) -> Json {
    float((figure.into() * 100.0).round() / 100.0)
}

/// A small curve of all jobs in the last ten minutes: the highest backlog of
/// each of 60 times, and `null` for a gap.
fn small(slots: &[Option<Point>]) -> Json {
    // Counted from the end, so that a time keeps its slots while it moves.
    let times = slots.rchunks(SLOTS / 60).map(|slots| {
        let jobs = |point: &Point| point.backlog.map(u64::from).iter().sum::<u64>();
        slots.iter().flatten().map(jobs).max()
    });
    times.collect::<Vec<_>>().into_iter().rev().collect()
}

/// Whether a name is looked for by this text, in capital or small letters: as a
/// part, or as a whole if the text is a pattern.
fn fits(name: &str, search: &str) -> bool {
    let (name, search) = (name.to_ascii_lowercase(), search.to_ascii_lowercase());
    if search.contains(['*', '?']) {
        matches(search.as_bytes(), name.as_bytes())
    } else {
        name.contains(&search)
    }
}

impl Console {
    /// The answer to a request; what is told before it goes over the link.
    pub fn answer(&self, request: &Request, link: &mut Link) -> Result<Answer, Answer> {
        let path = request.path.as_str();
        let is_change = !request.is_question();
        if is_change && request.method != "POST" {
            let reason = "only GET, HEAD and POST are known here";
            return Err(Answer::refusal(405, reason));
        }
        let file = FILES.iter().find(|(known, ..)| *known == path);
        if let Some((_, kind, text)) = file.filter(|_| !is_change) {
            return Ok(Answer::ok(kind, *text));
        }
        let may_change = self.may_change(request)?;
        if is_change && !comes_from_here(request) {
            let reason = "a page of another site may change nothing";
            return Err(Answer::refusal(403, reason));
        }
        if is_change && !may_change {
            return Err(Answer::refusal(403, ONLY_LOOKS));
        }
        let json = match path {
            "/api/change" if is_change => self.ask(request, |client, server| {
                match answers::carry_out(client, server, request, link) {
                    // The head of the answer has gone.
                    Err(failure) if link.has_begun => Ok(json!({"failure": failure.to_string()})),
                    done => done,
                }
            })?,
            _ if is_change => return Err(Answer::refusal(404, "there is nothing to change")),
            "/api/known" => self.known(request)?,
            "/api/clients" => self.ask(request, |client, _| clients(client, request))?,
            "/api/why" => self.ask(request, |client, server| why(request, client, server))?,
            "/api/jobs" => self.ask(request, |client, _| answers::page(client, request))?,
            "/api/job" => self.ask(request, |client, _| {
                answers::job(client, read(request, "job")?)
            })?,
            _ => return Err(Answer::refusal(404, "there is no such page")),
        };
        Ok(Answer::ok("application/json", json.to_string()))
    }

    /// Whether this request may change something; a refusal if it may not even look.
    fn may_change(&self, request: &Request) -> Result<bool, Answer> {
        let header = request.header("authorization");
        let given = header.and_then(|value| value.strip_prefix("Bearer "));
        let knows = |token: &String| given.is_some_and(|given| is_same(given, token));
        if self.token.as_ref().is_none_or(knows) {
            return Ok(self.allows_changes);
        }
        if self.read_only.as_ref().is_some_and(knows) {
            Ok(false)
        } else {
            Err(Answer::refusal(401, "the token is missing or wrong"))
        }
    }

    /// The server that the request names, or the first one.
    fn watched(&self, request: &Request) -> Outcome<&Watched> {
        let name = request.parameter("server");
        let is_named = |server: &&Arc<Watched>| name.is_empty() || server.name() == name;
        let found = self.servers.iter().find(is_named);
        let missing = || Failure::Missing(format!("there is no server '{name}'"));
        found.map(|server| &**server).ok_or_else(missing)
    }

    /// Asks the server that the request names, unless it is known not to answer or too
    /// many ask.
    fn ask(
        &self,
        request: &Request,
        ask: impl FnOnce(&mut Client, &Watched) -> Outcome<Json>,
    ) -> Result<Json, Answer> {
        let server = self.watched(request)?;
        if let Some(reason) = server.known().lost(server.now()) {
            return Err(Answer::refusal(502, reason));
        }
        let turn = Arc::clone(&self.asking);
        if Arc::strong_count(&turn) > 1 + MOST_ASKING {
            let reason = "too many questions at once: try again";
            return Err(Answer::refusal(503, reason));
        }
        let mut client = server.connect()?;
        Ok(match request.is_question() {
            true => client.within(LONGEST as u64, |client| ask(client, server))?,
            false => ask(&mut client, server)?,
        })
    }

    /// What is known without a question, of all servers, and of what the page is about:
    /// the curves of a server or a tube, a tube, or the table of tubes.
    fn known(&self, request: &Request) -> Outcome<Json> {
        // Tubes that need a person.
        let grave = |server: &Arc<Watched>| {
            let known = server.known();
            known.existing().filter(|(_, tube)| tube.is_grave()).count()
        };
        let mut known = json!({
            "changes": self.may_change(request).unwrap_or(false),
            "grave": self.servers.iter().map(grave).sum::<usize>(),
            "servers": self.servers.iter().map(card).collect::<Json>(),
        });
        let tube: Option<TubeName> = optional(request, "tube")?;
        let server = match request.parameter("server") {
            "" => None,
            _ => self.watched(request).ok(),
        };
        if let Some(server) = server {
            known["curves"] = curves_of(server, tube.as_ref(), request);
        }
        match (server, tube) {
            (Some(server), Some(name)) => {
                let tube =
                    |tube: &Tube| json!({"row": row(server, &name, tube), "gone": tube.is_gone});
                known["tube"] = server.known().tubes.get(&name).map(tube).into();
            }
            _ if request.parameter("job").is_empty() => known["table"] = self.table(request),
            _ => {}
        }
        Ok(known)
    }

    /// The part of the table that is searched for, sorted and cut here, so that
    /// the page shows any number of tubes quickly.
    fn table(&self, request: &Request) -> Json {
        // All are held for this short time, always in the same order.
        let known: Vec<MutexGuard<Known>> = self.servers.iter().map(|one| one.known()).collect();
        let (server, search) = (request.parameter("server"), request.parameter("search"));
        let is_of_server = |index: usize| server.is_empty() || self.servers[index].name() == server;
        let only_trouble = request.parameter("trouble") == "1";
        let is_wanted = |index: usize, name: &TubeName, tube: &Tube| {
            let is_meant = !only_trouble || !tube.troubles.is_empty();
            is_of_server(index) && is_meant && fits(name.as_str(), search)
        };
        // By trouble, if no column is named.
        let by = match request.parameter("sort") {
            "name" => None,
            column => Some(Column::of(column).unwrap_or(Column::Tube)),
        };
        let mut rows = sorted(&known, is_wanted, by);
        if request.parameter("turned") == "1" {
            rows.reverse();
        }
        let in_all = known
            .iter()
            .enumerate()
            .filter(|(index, _)| is_of_server(*index));
        let total: usize = in_all.map(|(_, known)| known.existing().count()).sum();
        let (found, from) = (rows.len(), index(request, "from"));
        let page = rows.into_iter().skip(from).take(ROWS);
        let shown = page.map(|(at, name, tube)| row(&self.servers[at], name, tube));
        json!({"total": total, "found": found, "rows": shown.collect::<Json>()})
    }
}

/// The curves of a tube of this server, or of the server.
fn curves_of(server: &Watched, tube: Option<&TubeName>, request: &Request) -> Json {
    let span = index(request, "span").min(SPANS.len() - 1);
    let (now, known) = (server.now(), server.known());
    let counted = match tube {
        None => Some(&known.server),
        Some(tube) => known.tubes.get(tube).map(|tube| &tube.counted),
    };
    // Which rates this server counts.
    let counts = |known: &Counted| (0..RATES.len()).map(|rate| known.counts(rate)).collect();
    // A slot has the backlog and the rates; a gap is `null`.
    let slot = |Point { backlog, rates }: &Point| -> Json {
        let figures = backlog.iter().copied().map(f64::from);
        figures
            .chain(rates.map(f64::from))
            .map(hundredths)
            .collect()
    };
    let slots = counted.map_or(Slots::new(), |counted| counted.slots(span, now));
    let slots: Json = slots.iter().map(|point| point.as_ref().map(slot)).collect();
    let counted: Vec<bool> = counted.map_or(Vec::new(), counts);
    json!({"seconds": SPANS[span], "counted": counted, "slots": slots})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::address::Address;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// A console whose server is gone.
    fn console(token: Option<&str>) -> Console {
        let nobody = Address::parse("unix:/nowhere/socket").unwrap();
        let server = Watched::new(nobody.into(), Duration::MAX);
        Console {
            servers: vec![Arc::new(server)],
            token: token.map(String::from),
            read_only: Some("only to look".into()),
            allows_changes: true,
            asking: Arc::default(),
        }
    }

    /// The status of the answer to this request, and what is sent before it goes nowhere.
    fn status_of(console: &Console, request: &Request) -> u16 {
        let nowhere = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(nowhere.local_addr().unwrap()).unwrap();
        match console.answer(request, &mut Link::over(&stream)) {
            Ok(answer) | Err(answer) => answer.status,
        }
    }

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let owned = |(name, value): &(&str, &str)| (String::from(*name), String::from(*value));
        Request {
            method: method.into(),
            path: path.into(),
            parameters: [("tube", "mail"), ("job", "1"), ("do", "kick-job")]
                .iter()
                .map(owned)
                .collect(),
            headers: headers.iter().map(owned).collect(),
            body: "1".into(),
        }
    }

    #[test]
    fn a_lost_server_is_answered_with_502_and_a_busy_console_with_503() {
        let console = console(None);
        let questions = [
            ("GET", "/api/why"),
            ("GET", "/api/jobs"),
            ("GET", "/api/job"),
            ("POST", "/api/change"),
        ];
        let ours = [("host", "localhost"), ("origin", "http://localhost")];
        let status = |(method, path)| status_of(&console, &request(method, path, &ours));
        assert_eq!(questions.map(status), [502; 4]);
        let turns = [(); MOST_ASKING].map(|()| Arc::clone(&console.asking));
        assert_eq!(questions.map(status), [503; 4]);
        assert_eq!(status(("GET", "/api/known")), 200);
        // Each of them has given its turn back.
        drop(turns);
        assert_eq!(Arc::strong_count(&console.asking), 1);
    }

    #[test]
    fn a_token_is_required_if_there_is_one() {
        let is_admitted = |token, headers: &[_]| {
            let request = request("GET", "/api/known", headers);
            status_of(&console(token), &request) == 200
        };
        let with = |value| is_admitted(Some("secret"), &[("authorization", value)]);
        assert!(with("Bearer secret"));
        for wrong in [
            "secret",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!is_admitted(Some("secret"), &[]));
        assert!(is_admitted(None, &[]));
    }

    #[test]
    fn a_small_curve_has_the_highest_of_five_slots() {
        let slot = |jobs| {
            Some(Point {
                backlog: [jobs, 0, 0, 1],
                rates: [0.0; 4],
            })
        };
        assert_eq!(
            small(&[1, 2, 9, 4, 5, 6, 7].map(slot)).to_string(),
            "[3,10]"
        );
    }

    #[test]
    fn a_search_matches_part_of_a_name_and_a_pattern_all_of_it() {
        for (name, search) in [
            ("mail", ""),
            ("mail", "AI"),
            ("mail-eu", "mail*"),
            ("mail-eu", "*-e?"),
            ("mail", "*"),
            ("aab", "*ab"),
            ("abcabd", "*ab?*"),
            ("mail", "m**l"),
        ] {
            assert!(fits(name, search), "{name} {search}");
        }
        for (name, search) in [
            ("mail", "x"),
            ("mail-eu", "mail?"),
            ("mail", "*z"),
            ("mail", "ai*"),
            ("", "?"),
        ] {
            assert!(!fits(name, search), "{name} {search}");
        }
    }
}
