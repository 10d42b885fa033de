//! `metrics`: the statistics as text for Prometheus. The text is printed, put
//! into a file for a textfile collector, or served by HTTP.

use crate::command::{Invocation, Run, last_of};
use crate::exposition::{KIND, SCRAPE_PATIENCE, Wanted, scrape};
use crate::failure::Outcome;
use crate::http::{self, Answer, Request, Site};
use crate::server::address::Server;
use crate::server::tubes::{Pattern, Patterns};
use crate::signals::end_at_signals;
use crate::text::output::WholeFile;
use crate::text::output::{complain, note, print};
use crate::values::parse;
use clap::{Args, ValueHint};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct Metrics {
    /// of tubes only this one; may be repeated (default: all)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// of N tubes: those in trouble, and the largest (default: all)
    #[arg(long = "tubes", value_name = "N")]
    most: Option<NonZeroUsize>,
    /// with the age of the next ready job of each tube
    #[arg(long)]
    age: bool,
    /// write this file, all of it at once (default: stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// serve them by HTTP at this HOST:PORT or PORT
    #[arg(long, value_name = "ADDR", conflicts_with = "output")]
    listen: Option<String>,
    /// scrapers know this machine by this name; may be repeated (default: localhost)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

impl Run for Metrics {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let wanted = Wanted {
            tubes: Patterns(self.tubes),
            most: self.most.map(NonZeroUsize::get),
            age: self.age,
        };
        let (servers, patience) = (&invocation.servers, invocation.patience);
        if let Some(listen) = &self.listen {
            end_at_signals()?;
            let listener = http::bind(listen)?;
            note(format_args!("serving {}/metrics", http::url(&listener)?));
            let scraped = Scraped {
                servers: servers.clone(),
                patience: patience.min(SCRAPE_PATIENCE),
                wanted,
            };
            http::serve(&listener, self.hosts, scraped)
        }
        let (text, failures) = scrape(servers, patience, &wanted);
        if let Some(file) = &self.output {
            let mut file = WholeFile::create(file, 0o644)?;
            file.bytes(text.as_bytes())?;
            file.finish()?;
        } else {
            print(text)?;
        }
        last_of(failures)
    }
}

/// What is served: the metrics alone.
struct Scraped {
    servers: Vec<Server>,
    patience: Duration,
    wanted: Wanted,
}

impl Site for Scraped {
    fn answer(&self, request: &Request) -> Result<Answer, Answer> {
        if request.path != "/metrics" {
            return Err(Answer::refusal(404, "only /metrics is here"));
        }
        let (text, failures) = scrape(&self.servers, self.patience, &self.wanted);
        failures.iter().for_each(|failure| complain!("{failure}"));
        Ok(Answer::ok(KIND, text))
    }
}
