//! `metrics`: the statistics as text for Prometheus. The text is printed, put
//! into a file for a textfile collector, or served by HTTP.

use crate::command::{Command, Invocation, Kind, Opt, at_most_one, described, options};
use crate::exposition::{KIND, SCRAPE_PATIENCE, Wanted, scrape};
use crate::failure::{Outcome, Status};
use crate::http::{self, Answer, Request, Site};
use crate::server::address::Address;
use crate::server::tubes::{Pattern, Patterns};
use crate::signals::end_at_signals;
use crate::text::file::WholeFile;
use crate::text::output::{complain, note, print};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

pub const METRICS: Command = Command {
    name: "metrics",
    about: "write the statistics as text for Prometheus, or serve them",
    options: || described(OPTIONS),
    run: metrics,
    ..Command::BLANK
};

options! {
    tubes: Vec<Pattern> =
        Opt::value("t", "tube", "TUBE", "of tubes only this one; may be repeated (default: all)")
            .of(Kind::Tube).many(),
    age: bool = Opt::flag("", "age", "with the age of the next ready job of each tube"),
    output: Option<OsString> =
        Opt::value("o", "output", "FILE", "write this file, all of it at once (default: stdout)").of(Kind::File),
    listen: Option<String> =
        Opt::value("", "listen", "ADDR", "serve them by HTTP at this HOST:PORT or PORT"),
}

fn metrics(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    at_most_one(&[
        ("output", options.output.is_some()),
        ("listen", options.listen.is_some()),
    ])?;
    let wanted = Wanted {
        tubes: Patterns(options.tubes),
        age: options.age,
    };
    let address = invocation.address();
    let patience = invocation.patience;
    if let Some(listen) = &options.listen {
        end_at_signals()?;
        let listener = http::bind(listen)?;
        note(format_args!("serving {}/metrics", http::url(&listener)?));
        let patience = patience.min(SCRAPE_PATIENCE);
        let scraped = Scraped {
            address,
            patience,
            wanted,
        };
        http::serve(&listener, &scraped)
    }
    let (text, failure) = scrape(address, patience, &wanted);
    if let Some(file) = &options.output {
        let mut file = WholeFile::create(Path::new(file), 0o644)?;
        file.bytes(text.as_bytes())?;
        file.finish()?;
    } else {
        print(text)?;
    }
    failure.map_or(Ok(Status::Done), Err)
}

/// What is served: the metrics alone.
struct Scraped<'a> {
    address: &'a Address,
    patience: Duration,
    wanted: Wanted,
}

impl Site for Scraped<'_> {
    fn room_for_body(&self, head: &Request) -> Result<usize, Answer> {
        match head.method.as_str() {
            "GET" => Ok(0),
            _ => Err(only_get()),
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/metrics") => {}
            ("GET", _) => return Answer::text(http::Status::NotFound, "only /metrics is here\n"),
            _ => return only_get(),
        }
        let (text, failure) = scrape(self.address, self.patience, &self.wanted);
        if let Some(failure) = failure {
            complain!("{failure}");
        }
        Answer {
            kind: KIND,
            ..Answer::text(http::Status::Ok, text)
        }
    }
}

fn only_get() -> Answer {
    Answer::text(http::Status::MethodNotAllowed, "only GET is known\n")
}
