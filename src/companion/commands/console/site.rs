//! What a browser can ask for: the files of the page, facts as JSON, and
//! changes.

use super::guard::{Guard, Refusal};
use super::ring::{self, SPANS};
use super::table::{self, Sort, View};
use super::watch::Watched;
use super::{deeds, jobs};
use crate::exposition::{self, Wanted, scrape};
use crate::failure::{Failure, Outcome};
use crate::http::{Answer, Request, Site, Status, parameters};
use crate::server::client::Client;
use crate::server::stats::State;
use crate::server::trouble::sentences;
use crate::server::tubes::stats_of;
use crate::text::json::{Json, float, json};
use crate::values::Parse;
use beanpole::protocol::TubeName;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The console as a site.
pub struct Console {
    pub servers: Vec<Watched>,
    pub guard: Guard,
    pub allows_changes: bool,
    /// How many requests ask a server right now.
    pub asking: AtomicUsize,
}

/// How many requests may ask servers at once. They are fewer than the requests
/// that are answered at once, so that a silent server keeps nobody from what is
/// known without asking.
const MOST_ASKING: usize = 4;
/// The highest number of rows of the table in one answer.
const MOST_ROWS: usize = 500;

/// How many other tubes are looked at for the reason why a tube stands still.
const MOST_OTHERS: usize = 100;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// The files of the page, by their paths.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/console.js", SCRIPT, include_str!("page/console.js")),
    ("/elements.js", SCRIPT, include_str!("page/elements.js")),
    ("/curves.js", SCRIPT, include_str!("page/curves.js")),
    ("/tubes.js", SCRIPT, include_str!("page/tubes.js")),
    ("/tube.js", SCRIPT, include_str!("page/tube.js")),
    ("/job.js", SCRIPT, include_str!("page/job.js")),
    ("/changes.js", SCRIPT, include_str!("page/changes.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// Where the page has its token.
const PAGE_TOKEN: &str = "PAGE-TOKEN";

/// Nothing is loaded from elsewhere, nothing runs that stands in the page, and
/// no other page may show or keep this one.
const SAFETY: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

impl Site for Console {
    fn room_for_body(&self, head: &Request) -> Result<usize, Answer> {
        if head.method != "POST" {
            return Ok(0);
        }
        self.check_change(head).map_err(refused)?;
        Ok(deeds::LONGEST_REQUEST)
    }

    fn answer(&self, request: &Request) -> Answer {
        let answer = match request.method.as_str() {
            "GET" => self.get(request),
            "POST" => self.change(request),
            _ => Err((Status::MethodNotAllowed, "only GET and POST are known here")),
        };
        let answer = answer.unwrap_or_else(refused);
        Answer {
            headers: SAFETY,
            ..answer
        }
    }
}

fn refused((status, reason): Refusal) -> Answer {
    Answer {
        headers: SAFETY,
        ..failed(status, reason)
    }
}

fn failed(status: Status, reason: impl std::fmt::Display) -> Answer {
    written(status, &json!({"error": reason.to_string()}))
}

fn written(status: Status, value: &Json) -> Answer {
    Answer {
        kind: JSON,
        ..Answer::text(status, value.to_string())
    }
}

/// What a question brings, or why there is no answer. A server that is gone or
/// refuses is a 502; a 503 says that this console has too much to do itself.
fn told(outcome: Outcome<Json>) -> Answer {
    match outcome {
        Ok(value) => written(Status::Ok, &value),
        Err(failure) => {
            let status = match failure {
                Failure::Usage(_) => Status::BadRequest,
                Failure::Missing(_) => Status::NotFound,
                _ => Status::BadGateway,
            };
            failed(status, failure)
        }
    }
}

/// The parameters of a question.
struct Question(Vec<(String, String)>);

impl Question {
    /// The value of this parameter; empty if it is missing.
    fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    fn read<T: Parse>(&self, name: &str) -> Outcome<T> {
        let about = |reason| Failure::Usage(format!("{name}: {reason}"));
        T::parse(self.text(name)).map_err(about)
    }

    /// The value of a parameter that may be missing.
    fn optional<T: Parse>(&self, name: &str) -> Outcome<Option<T>> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.read(name).map(Some),
        }
    }

    fn index(&self, name: &str) -> usize {
        self.text(name).parse().unwrap_or(0)
    }
}

impl Console {
    fn get(&self, request: &Request) -> Result<Answer, Refusal> {
        self.guard.check_host(request)?;
        let path = request.path.as_str();
        if let Some((_, kind, text)) = FILES.iter().find(|(known, ..)| *known == path) {
            let text = text.replace(PAGE_TOKEN, &self.guard.page_token);
            return Ok(Answer {
                kind,
                ..Answer::text(Status::Ok, text)
            });
        }
        self.guard.check_token(request)?;
        let question = Question(parameters(&request.query));
        Ok(told(match path {
            "/api/servers" => Ok(self.overview()),
            "/api/tubes" => Ok(self.tubes(&question)),
            "/api/tube" => self.tube(&question),
            "/api/why" => self.ask(&question, |client| self.why(&question, client))?,
            "/api/curves" => self.curves(&question),
            "/api/jobs" => self.ask(&question, |client| self.jobs(&question, client))?,
            "/api/job" => self.ask(&question, |client| jobs::job(client, question.read("id")?))?,
            "/metrics" => return self.metrics(&question),
            _ => return Err((Status::NotFound, "there is no such page")),
        }))
    }

    fn check_change(&self, request: &Request) -> Result<(), Refusal> {
        self.guard.check_host(request)?;
        self.guard.check_token(request)?;
        self.guard.check_change(request)?;
        match (self.allows_changes, request.path.as_str()) {
            (false, _) => Err((
                Status::Forbidden,
                "this console only looks: it was started without --allow-changes",
            )),
            (true, "/api/change") => Ok(()),
            (true, _) => Err((Status::NotFound, "there is nothing to change")),
        }
    }

    fn change(&self, request: &Request) -> Result<Answer, Refusal> {
        self.check_change(request)?;
        let _turn = self.turn()?;
        let said = deeds::carry_out(&self.servers, &request.body);
        Ok(told(said.map(|said| json!({"said": said}))))
    }

    fn watched(&self, question: &Question) -> Outcome<(usize, &Watched)> {
        let index = question.index("server");
        let server = self.servers.get(index);
        let server = server.ok_or_else(|| Failure::Missing("there is no such server".into()))?;
        Ok((index, server))
    }

    /// The turn to ask a server; it is over when the result goes.
    fn turn(&self) -> Result<Turn<'_>, Refusal> {
        let turn = Turn(&self.asking);
        match self.asking.fetch_add(1, Ordering::Relaxed) < MOST_ASKING {
            true => Ok(turn),
            false => Err((Status::Unavailable, "too many questions at once: try again")),
        }
    }

    /// Asks the server that the question names, unless it is known not to
    /// answer.
    fn ask(
        &self,
        question: &Question,
        ask: impl FnOnce(&mut Client) -> Outcome<Json>,
    ) -> Result<Outcome<Json>, Refusal> {
        let server = match self.watched(question) {
            Ok((_, server)) => server,
            Err(failure) => return Ok(Err(failure)),
        };
        if let Some(reason) = server.known().trouble(server.now()) {
            return Ok(Err(Failure::Unreachable(reason)));
        }
        let _turn = self.turn()?;
        Ok(server.connect().and_then(|mut client| ask(&mut client)))
    }

    fn overview(&self) -> Json {
        let servers = self.servers.iter().map(|server| {
            let (now, known) = (server.now(), server.known());
            let facts = &known.facts;
            let address = server.named.address.to_string();
            json!({
                "name": server.named.name.as_ref().unwrap_or(&address),
                "address": address,
                "care": server.named.colour.is_some(),
                "trouble": known.trouble(now),
                "known": facts.get("id").is_some(),
                "version": facts.text("version"),
                "uptime": facts.number("uptime"),
                "draining": facts.text("draining") == "true",
                "jobs": State::ALL.map(|state| facts.jobs_in(&[state])),
                "rates": known.rates.map(|rate| float((rate * 10.0).round() / 10.0)),
                "tubes": facts.number("current-tubes"),
                "connections": facts.number("current-connections"),
                "producers": facts.number("current-producers"),
                "workers": facts.number("current-workers"),
                "waiting": facts.number("current-waiting"),
                "curve": ring::small(&known.curves.slots(0, now)),
            })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "changes": self.allows_changes,
            "servers": servers.collect::<Json>(),
        })
    }

    fn tubes(&self, question: &Question) -> Json {
        let view = View {
            search: question.text("search").into(),
            sort: Sort::named(question.text("sort")),
            is_turned: question.text("turned") == "1",
            server: question.text("server").parse().ok(),
            from: question.index("from"),
            count: question.index("count").clamp(1, MOST_ROWS),
        };
        table::to_json(&self.servers, &view)
    }

    fn tube(&self, question: &Question) -> Outcome<Json> {
        let (index, server) = self.watched(question)?;
        let name: TubeName = question.read("tube")?;
        let known = server.known();
        let tube = known.tubes.get(&name);
        let tube = tube.ok_or_else(|| Failure::no_tube(&name))?;
        Ok(json!({
            "row": table::row(index, server.now(), &name, tube),
            "gone": tube.is_gone,
            "urgent": tube.urgent,
            "using": tube.using,
            "total": tube.counters[0],
            "deleted": tube.counters[1],
        }))
    }

    /// What is in the way of the jobs of a tube.
    fn why(&self, question: &Question, client: &mut Client) -> Outcome<Json> {
        let (_, server) = self.watched(question)?;
        let tube: TubeName = question.read("tube")?;
        let facts = client.known_tube(&tube)?;
        let others: Vec<_> = server.known().with_ready().take(MOST_OTHERS).collect();
        let others = stats_of(client, &others)?;
        let said = sentences(client, &tube, &facts, &others)?;
        Ok(json!({"why": said.join(" ")}))
    }

    fn curves(&self, question: &Question) -> Outcome<Json> {
        let (_, server) = self.watched(question)?;
        let span = question.index("span").min(SPANS.len() - 1);
        let (now, known) = (server.now(), server.known());
        let slots = match question.optional::<TubeName>("tube")? {
            None => ring::to_json(&known.curves.slots(span, now)),
            Some(tube) => {
                let curves = known.tubes.get(&tube).and_then(|tube| tube.curves.as_ref());
                let slots = curves.map(|curves| curves.slots(span, now));
                ring::to_json(&slots.unwrap_or_default())
            }
        };
        Ok(json!({"seconds": SPANS[span], "slots": slots}))
    }

    fn jobs(&self, question: &Question, client: &mut Client) -> Outcome<Json> {
        let wanted = jobs::Wanted {
            tube: question.read("tube")?,
            state: question.optional("state")?,
            text: question.text("text").into(),
            from: question.optional("from")?,
        };
        jobs::page(client, &wanted)
    }

    fn metrics(&self, question: &Question) -> Result<Answer, Refusal> {
        let Ok((_, server)) = self.watched(question) else {
            return Err((Status::NotFound, "there is no such server"));
        };
        let _turn = self.turn()?;
        let patience: Duration = exposition::SCRAPE_PATIENCE;
        let (text, _) = scrape(&server.named.address, patience, &Wanted::default());
        Ok(Answer {
            kind: exposition::KIND,
            ..Answer::text(Status::Ok, text)
        })
    }
}

/// Counts a request that asks a server.
struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::address::Address;
    use std::net::TcpListener;

    /// A request that comes from our own page.
    fn request(method: &str, path: &str, console: &Console) -> Request {
        let headers = [
            ("host", "localhost:8080"),
            ("origin", "http://localhost:8080"),
            ("x-beanpole-page", console.guard.page_token.as_str()),
        ];
        Request {
            method: method.into(),
            path: path.into(),
            query: "tube=mail&id=1".into(),
            headers: headers
                .map(|(name, value)| (String::from(name), String::from(value)))
                .into(),
            body: br#"{"server":0,"do":"kick-job","id":"1"}"#.into(),
        }
    }

    #[test]
    fn a_server_that_is_gone_is_502_and_a_busy_console_is_503() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = Address::parse("unix:/nowhere/socket").unwrap();
        let console = Console {
            servers: vec![Watched::new(nobody.into(), Duration::MAX)],
            guard: Guard::new(&listener, None, Vec::new()).unwrap(),
            allows_changes: true,
            asking: AtomicUsize::new(0),
        };
        let questions = [
            ("GET", "/api/why"),
            ("GET", "/api/jobs"),
            ("GET", "/api/job"),
            ("POST", "/api/change"),
        ];
        let status = |(method, path)| console.answer(&request(method, path, &console)).status;
        assert_eq!(questions.map(status), [Status::BadGateway; 4]);
        console.asking.store(MOST_ASKING, Ordering::Relaxed);
        assert_eq!(questions.map(status), [Status::Unavailable; 4]);
        assert_eq!(status(("GET", "/metrics")), Status::Unavailable);
        assert_eq!(status(("GET", "/api/tubes")), Status::Ok);
        // Each of them has given its turn back.
        assert_eq!(console.asking.into_inner(), MOST_ASKING);
    }
}
