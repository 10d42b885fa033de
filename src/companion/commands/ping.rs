//! `ping`: measures how fast servers answer one of their smallest commands.

use crate::command::{Interval, Invocation, Run, last_of};
use crate::failure::{Failure, Outcome};
use crate::server::address::Server;
use crate::server::client::Client;
use crate::server::reply::Reply;
use crate::signals::{Calls, SIGINT, SIGTERM};
use crate::text::json::{Json, float, json};
use crate::text::output::Output;
use crate::values::parse;
use clap::Args;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Ping {
    /// ask so often (default: until interrupted)
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroUsize>,
    /// from one to the next (default: 1)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Interval>)]
    interval: Option<Interval>,
    /// write the summary as JSON, and nothing else
    #[arg(short, long)]
    json: bool,
}

impl Run for Ping {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let most = self.count.map_or(usize::MAX, NonZeroUsize::get);
        let interval = self.interval.map_or(Duration::from_secs(1), |time| time.0);
        let interrupted = Calls::by_signals(&[SIGINT, SIGTERM])?;
        let pinged = |server| Pinged {
            server,
            link: invocation.connect_to(&server.address),
            latencies: Vec::new(),
        };
        let mut all: Vec<Pinged> = invocation.servers.iter().map(pinged).collect();
        let mut output = Output::new();
        for round in 1..=most {
            let asked = Instant::now();
            for one in &mut all {
                if let Some(took) = one.ask().filter(|_| !self.json) {
                    output.line(format_args!("{}: {took:.3} ms", one.server.title()))?;
                }
            }
            output.sync()?;
            if round == most || all.iter().all(|one| one.link.is_err()) {
                break;
            }
            interrupted.wait(Some(asked + interval));
            if interrupted.take() {
                break;
            }
        }
        drop(output);
        let told = all.iter().filter(|one| !one.latencies.is_empty());
        let told = told.map(|one| (one.server, one)).collect();
        invocation.show(self.json, told, |one| one.to_json(), |one| one.text())?;
        last_of(all.into_iter().filter_map(|one| one.link.err()))
    }
}

/// A server, and what was measured.
struct Pinged<'a> {
    server: &'a Server,
    /// The connection, or why there is none.
    link: Outcome<Client>,
    /// How many milliseconds each answer took.
    latencies: Vec<f64>,
}

impl Pinged<'_> {
    /// How many milliseconds an answer took, if it came.
    fn ask(&mut self) -> Option<f64> {
        const REQUEST: &str = "list-tube-used";
        let asked = Instant::now();
        let failure = match self.link.as_mut().ok()?.call(REQUEST) {
            Ok(Reply::Using(_)) => {
                let took = asked.elapsed().as_secs_f64() * 1000.0;
                self.latencies.push(took);
                return Some(took);
            }
            Ok(other) => Failure::unexpected(REQUEST, &other),
            Err(failure) => failure,
        };
        self.link = Err(failure);
        None
    }

    /// The times that 50, 90, 99 and 100 % of the answers did not exceed.
    fn within(&self) -> [f64; 4] {
        let mut all = self.latencies.clone();
        all.sort_by(f64::total_cmp);
        [50, 90, 99, 100].map(|percent| {
            let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(place).copied().unwrap_or(0.0)
        })
    }

    fn text(&self) -> String {
        let (answers, [half, most, nearly_all, longest]) = (self.latencies.len(), self.within());
        format!(
            "{answers} answers: 50% within {half:.3}, 90% within {most:.3}, \
             99% within {nearly_all:.3}, longest {longest:.3} ms\n"
        )
    }

    fn to_json(&self) -> Json {
        let [half, most, nearly_all, longest] = self.within().map(float);
        json!({
            "server": self.server.title(),
            "answers": self.latencies.len(),
            "50%-ms": half, "90%-ms": most, "99%-ms": nearly_all, "longest-ms": longest,
        })
    }
}
