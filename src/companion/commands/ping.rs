//! `ping`: measures how fast a server answers one of its smallest commands.

use crate::command::{Command, Interval, Invocation, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use crate::signals::{Calls, SIGINT, SIGTERM};
use crate::text::output::Output;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

pub const PING: Command = Command {
    name: "ping",
    about: "measure how fast a server answers",
    options: || described(OPTIONS),
    run: ping,
    ..Command::BLANK
};

options! {
    count: NonZeroU64 =
        Opt::value("n", "count", "N", "ask so often (default: until interrupted)")
        => NonZeroU64::MAX,
    interval: Interval =
        Opt::value("i", "interval", "TIME", "from one to the next (default: 1)")
        => Interval(Duration::from_secs(1)),
    quiet: bool = Opt::flag("q", "quiet", "only the summary"),
}

fn ping(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    let most = options.count.get();
    let mut interrupted = Calls::by_signals(&[SIGINT, SIGTERM])?;
    let mut output = Output::new();
    let mut latencies = Latencies::default();
    let begun = Instant::now();
    let mut client = invocation.connect()?;
    output.line(format_args!(
        "{}: connected in {} ms",
        invocation.servers[0].title(),
        milliseconds(begun.elapsed())
    ))?;
    output.sync()?;
    let mut outcome = Ok(Status::Done);
    while (latencies.0.len() as u64) < most {
        let asked = Instant::now();
        match client.call("list-tube-used") {
            Ok(Reply::Using(_)) => latencies.record(asked.elapsed()),
            Ok(other) => return Err(Failure::unexpected("list-tube-used", &other)),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
        if !options.quiet {
            let took = milliseconds(asked.elapsed());
            output.line(format_args!("{}: {took} ms", latencies.0.len() as u64))?;
            output.sync()?;
        }
        if (latencies.0.len() as u64) < most {
            interrupted.wait(Some(asked + options.interval.0));
            if interrupted.take() {
                break;
            }
        }
    }
    let shares = [("50%", 0.5), ("90%", 0.9), ("99%", 0.99)];
    let shares = shares
        .map(|(name, share)| format!("{name} within {}", milliseconds(latencies.quantile(share))));
    output.line(format_args!(
        "{} answers: {}, longest {} ms",
        latencies.0.len() as u64,
        shares.join(", "),
        milliseconds(latencies.quantile(1.0))
    ))?;
    output.sync()?;
    outcome
}

/// The time that each answer took, in microseconds: 4 bytes for a request, of
/// which there are a hundred a second at most.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
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

fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}
