//! `ping`: measures how fast a server answers one of its smallest commands.

use crate::command::{Interval, Invocation, Run};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use crate::signals::{Calls, SIGINT, SIGTERM};
use crate::text::json::{float, json};
use crate::text::output::Output;
use crate::values::parse;
use clap::Args;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Ping {
    /// ask so often (default: until interrupted)
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// from one to the next (default: 1)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Interval>)]
    interval: Option<Interval>,
    /// only the summary
    #[arg(short, long)]
    quiet: bool,
    /// write the summary as JSON, and nothing else
    #[arg(short, long)]
    json: bool,
}

impl Run for Ping {
    fn run(self, invocation: &Invocation) -> Outcome {
        let most = self.count.map_or(u64::MAX, NonZeroU64::get);
        let interval = self.interval.map_or(Duration::from_secs(1), |time| time.0);
        let mut interrupted = Calls::by_signals(&[SIGINT, SIGTERM])?;
        let mut output = Output::new();
        let mut latencies = Latencies::default();
        let begun = Instant::now();
        let mut client = invocation.connect()?;
        let (title, connected) = (invocation.servers[0].title(), begun.elapsed());
        if !self.json {
            let took = milliseconds(connected);
            output.line(format_args!("{title}: connected in {took:.3} ms"))?;
            output.sync()?;
        }
        let mut outcome = Ok(Status::Done);
        while latencies.count() < most {
            let asked = Instant::now();
            match client.call("list-tube-used") {
                Ok(Reply::Using(_)) => latencies.record(asked.elapsed()),
                Ok(other) => return Err(Failure::unexpected("list-tube-used", &other)),
                Err(failure) => {
                    outcome = Err(failure);
                    break;
                }
            }
            if !self.quiet && !self.json {
                let took = milliseconds(asked.elapsed());
                output.line(format_args!("{}: {took:.3} ms", latencies.count()))?;
                output.sync()?;
            }
            if latencies.count() < most {
                interrupted.wait(Some(asked + interval));
                if interrupted.take() {
                    break;
                }
            }
        }
        let answers = latencies.count();
        let [half, most, nearly_all, longest] =
            [0.5, 0.9, 0.99, 1.0].map(|share| milliseconds(latencies.quantile(share)));
        if self.json {
            let connected = milliseconds(connected);
            let [connected, half, most, nearly_all, longest] =
                [connected, half, most, nearly_all, longest].map(float);
            output.json(&json!({
                "server": title, "connected-ms": connected, "answers": answers,
                "50%-ms": half, "90%-ms": most, "99%-ms": nearly_all, "longest-ms": longest,
            }))?;
        } else {
            output.line(format_args!(
                "{answers} answers: 50% within {half:.3}, 90% within {most:.3}, \
                 99% within {nearly_all:.3}, longest {longest:.3} ms"
            ))?;
        }
        output.sync()?;
        outcome
    }
}

/// The time that each answer took, in microseconds: 4 bytes for a request, of
/// which there are a hundred a second at most.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn record(&mut self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        self.0.push(micros);
    }

    /// The time that this share of the answers did not exceed.
    fn quantile(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        let place = (share * self.0.len() as f64).ceil() as usize;
        let micros = self.0.get(place.saturating_sub(1)).copied();
        Duration::from_micros(micros.unwrap_or(0).into())
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
