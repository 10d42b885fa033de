//! The results of a run: named figures with their units.

use super::accounting::{self, Usage};
use super::load::Load;
use super::servers::Server;
use crate::load::histogram::Histogram;
use companion::failure::Failure;
use nix::unistd::Pid;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, the same in all runs of a scenario.
    pub name: String,
    /// Its unit, as it is printed.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
}

/// Makes a figure.
pub fn figure(name: impl Into<String>, unit: &'static str, value: f64) -> Figure {
    Figure {
        name: name.into(),
        unit,
        value,
    }
}

/// The figures of a distribution of latencies.
pub fn latencies(what: &str, latency: &Histogram) -> [Figure; 4] {
    let tell = |name: &str, value: Duration| figure(format!("{what}{name}"), "us", micros(value));
    [
        tell("p50", latency.quantile(0.5)),
        tell("p99", latency.quantile(0.99)),
        tell("p99.9", latency.quantile(0.999)),
        tell("longest", latency.longest()),
    ]
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

/// Measures a part of a run.
pub struct Meter {
    begun: Instant,
    own_cpu: Duration,
    server: Option<(Pid, Usage)>,
}

/// How much was done in the part that was measured.
pub struct Done {
    /// Commands sent to the server.
    pub commands: u64,
    /// What throughput counts.
    pub unit: &'static str,
    /// How many of these there were.
    pub count: u64,
}

impl Done {
    /// For a run whose throughput counts commands.
    pub fn commands(commands: u64) -> Done {
        Done {
            commands,
            unit: "commands/s",
            count: commands,
        }
    }
}

impl Meter {
    /// Begins to measure.
    pub fn start(server: &Server) -> Result<Meter, Failure> {
        let own_cpu = accounting::cpu_time(Pid::this())?;
        let usage = server
            .pid
            .map(|pid| Ok((pid, Usage::before(pid)?)))
            .transpose()?;
        Ok(Meter {
            begun: Instant::now(),
            own_cpu,
            server: usage,
        })
    }

    /// Ends the measurement, and returns its figures.
    pub fn stop(self, done: &Done) -> Result<Vec<Figure>, Failure> {
        let wall = self.begun.elapsed();
        let spent = self
            .server
            .map(|(pid, usage)| usage.spent(pid))
            .transpose()?;
        let own = accounting::cpu_time(Pid::this())?.saturating_sub(self.own_cpu);
        let each = |value: f64| value / done.commands.max(1) as f64;
        let throughput = done.count as f64 / wall.as_secs_f64();
        let mut figures = vec![figure("throughput", done.unit, throughput)];
        if let Some(spent) = spent {
            figures.extend([
                figure("CPU per command", "us", each(micros(spent.cpu))),
                figure("of it in the kernel", "%", spent.system_share * 100.0),
                figure(
                    "voluntary switches per command",
                    "",
                    each(spent.voluntary as f64),
                ),
                figure(
                    "involuntary switches per command",
                    "",
                    each(spent.involuntary as f64),
                ),
            ]);
        }
        figures.push(figure(
            "generator's CPU per command",
            "us",
            each(micros(own)),
        ));
        Ok(figures)
    }
}

/// Looks on idly, and tells what the server does meanwhile.
pub fn idle(server: &Server, load: &Load) -> Result<Vec<Figure>, Failure> {
    let usage = |pid| Ok((pid, Usage::before(pid)?));
    let usage = server.pid.map(usage).transpose()?;
    let watched = Duration::from_secs_f64(load.idle_seconds.max(0.1));
    sleep(watched);
    let Some((pid, usage)) = usage else {
        return Ok(Vec::new());
    };
    let spent = usage.spent(pid)?;
    let a_second = |value: f64| value / watched.as_secs_f64();
    let cpu = a_second(micros(spent.cpu)) / 1000.0;
    let switches = a_second(spent.voluntary as f64);
    Ok(vec![
        figure("idle CPU", "ms/s", cpu),
        figure("idle switches", "1/s", switches),
    ])
}

/// Memory and threads of the server now.
pub fn size(server: &Server) -> Result<Vec<Figure>, Failure> {
    let Some(pid) = server.pid else {
        return Ok(Vec::new());
    };
    let rss = accounting::resident(pid)? as f64 / 1e6;
    let threads = accounting::threads(pid)? as f64;
    Ok(vec![
        figure("RSS", "MB", rss),
        figure("threads", "", threads),
    ])
}
