//! `metrics`: the statistics as text for Prometheus. The text is printed, put into a
//! file for a collector of text files, or served by HTTP.
//!
//! A metric has the name of the key of the statistics that has its figure: [`metric`] is
//! the rule. `beanstalk_up` says whether a server answers; if it does not, this is its
//! only metric.

use crate::command::{Invocation, Run, interval, last_of};
use crate::failure::{Failure, Outcome};
use crate::http::{self, Answer, Request};
use crate::remote::client::{PATIENCE, ask_all};
use crate::remote::tubes::Asked;
use crate::remote::{Client, Facts, Known, Pattern, Patterns, Refusal, Sample, Server, Tube};
use crate::signals::end_at_signals;
use crate::text::output::{Output, complain, note};
use crate::values::{Count, parse};
use beanpole::protocol::TubeName;
use clap::{Args, ValueHint};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Metrics {
    /// of tubes only this one; may be repeated (default: all)
    #[arg(short = 't', long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// of N tubes: those in trouble, and the largest (default: all)
    #[arg(long = "tubes", value_name = "N", value_parser = parse::<Count>)]
    most: Option<Count>,
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
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let (listen, hosts) = (self.listen.take(), std::mem::take(&mut self.hosts));
        let exporter = Exporter {
            servers: invocation.servers.clone(),
            timeout: invocation.timeout,
            wanted: self,
            last: Mutex::default(),
        };
        if let Some(listen) = listen {
            end_at_signals()?;
            let (listener, bound) = http::bind(&listen)?;
            note(format_args!("serving http://{bound}/metrics"));
            http::serve(&listener, hosts, 0, move |request, _| {
                exporter.answer(request)
            })
        }
        let (text, failures) = exporter.text(None);
        let mut output = Output::to(exporter.wanted.output.as_deref(), 0o644)?;
        for piece in &text {
            output.bytes(piece.as_bytes())?;
        }
        output.finish()?;
        last_of(failures)
    }
}

/// The content type of the text.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How long servers may take to answer for a scrape if the scraper does not say when it
/// gives up: as a rule, after 10 seconds.
const SCRAPE_PATIENCE: Duration = Duration::from_secs(8);
/// How long before that the text has to be made.
const MARGIN: Duration = Duration::from_millis(500);
/// For how long a text that somebody still reads is given to others.
const SHARED: Duration = Duration::from_secs(5);

/// How long servers may take to answer for this scrape: Prometheus says when it gives up.
fn patience_of(request: &Request) -> Duration {
    let told = request.header("x-prometheus-scrape-timeout-seconds");
    // Nobody is down because a scraper names no time.
    let time = told.and_then(|text| interval(text).ok());
    time.map_or(SCRAPE_PATIENCE, |time| {
        time.saturating_sub(MARGIN).max(time / 2)
    })
}

/// The servers, and what is wanted of them.
struct Exporter {
    servers: Vec<Server>,
    timeout: Option<Duration>,
    wanted: Metrics,
    /// The text that was served last, and when it was made.
    last: Mutex<Option<(Instant, Arc<Vec<String>>)>>,
}

impl Exporter {
    /// Serves the metrics, and nothing else. They may be a large text: it is made once at a
    /// time, and whoever asked before it was made, or while another client still reads it,
    /// gets the same.
    fn answer(&self, request: &Request) -> Result<Answer, Answer> {
        if request.path != "/metrics" {
            return Err(Answer::refusal(404, "only /metrics is here"));
        }
        let asked = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let will_do = |(made, text): &&(Instant, Arc<Vec<String>>)| {
            *made > asked || Arc::strong_count(text) > 1 && made.elapsed() < SHARED
        };
        if let Some((_, text)) = last.as_ref().filter(will_do) {
            return Ok(Answer::shared(KIND, Arc::clone(text)));
        }
        let patience = patience_of(request);
        let patience = self.timeout.map_or(patience, |told| told.min(patience));
        let (text, failures) = self.text(Some(Instant::now() + patience));
        failures.iter().for_each(|failure| complain!("{failure}"));
        let text = Arc::new(text);
        *last = Some((Instant::now(), Arc::clone(&text)));
        Ok(Answer::shared(KIND, text))
    }

    /// The metrics, with a label for each server, and why servers gave none. All have to
    /// come until then, if it is given.
    fn text(&self, until: Option<Instant>) -> (Vec<String>, Vec<Failure>) {
        let all = ask_all(&self.servers, |server| self.ask(server, until));
        let (told, failures): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        (in_order(told), failures.into_iter().flatten().collect())
    }

    /// The metrics of a server, and why it gives no others.
    fn ask(&self, server: &Server, until: Option<Instant>) -> (Exposition, Option<Failure>) {
        let mut told = Exposition::new(&server.title());
        let told_all = self.tell(server, until, &mut told);
        let failure = told_all.err().map(|failure| server.of_it(failure));
        if failure.is_some() {
            told.samples.clear();
        }
        let help = "Whether the server answers.";
        told.add("up", help, "", u8::from(failure.is_none()));
        (told, failure)
    }

    fn tell(&self, server: &Server, until: Option<Instant>, told: &mut Exposition) -> Outcome<()> {
        let address = &server.address;
        let mut client = match until {
            Some(until) => Client::connect_until(address, until),
            None => Client::connect(address, self.timeout.unwrap_or(PATIENCE)),
        }?;
        let Metrics { age, most, .. } = self.wanted;
        let (mut of_server, mut worst) = (Facts::default(), Vec::new());
        let patterns = Patterns(self.wanted.tubes.clone());
        Sample::each(&mut client, &patterns, Asked::all_if(age), |sample| {
            let mut known = Known::default();
            known.take(Duration::ZERO, sample);
            of_server = known.server.facts;
            worst.extend(known.tubes);
            if most.is_none() {
                let all = worst.drain(..);
                all.for_each(|(name, tube)| told.tube(&name, &tube, age));
            }
            // Of very many tubes no more are kept than are wanted.
            worst.sort_by_key(|(_, tube)| tube.rank());
            worst.truncate(Count::most(most));
        })?;
        told.server(&of_server);
        for (name, tube) in &worst {
            told.tube(name, tube, age);
        }
        Ok(())
    }
}

/// The text of all servers: each metric, with its help, and its samples.
fn in_order(all: Vec<Exposition>) -> Vec<String> {
    let mut metrics: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (metric, samples) in all.into_iter().flat_map(|told| told.samples) {
        metrics.entry(metric).or_default().push(samples);
    }
    let mut text = Vec::new();
    for ((name, help), samples) in metrics {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        text.push(format!(
            "# HELP beanstalk_{name} {help}\n# TYPE beanstalk_{name} {kind}\n"
        ));
        text.extend(samples);
    }
    text
}

/// Keys that begin alike are one metric: its name, and the label that has the rest.
const FAMILIES: [(&str, &str, &str); 3] = [
    ("cmd-", "commands_total", "command"),
    ("current-jobs-", "current_jobs", "state"),
    ("rusage-", "cpu_seconds_total", "mode"),
];
/// The keys of other figures that only grow begin so.
const GROWING: [&str; 5] = [
    "total-",
    "job-timeouts",
    "jobs-expired",
    "puts-refused",
    "binlog-records-",
];
/// Keys whose values may look like figures, or become another metric.
const NO_FIGURES: [&str; 7] = [
    "pid",
    "version",
    "id",
    "hostname",
    "name",
    "put-refusal",
    "current-watching",
];

/// The metric that has the figure of this key: its name, in which underscores replace
/// hyphens, and a unit comes last, as Prometheus wants it; a label; and its help.
fn metric(key: &str) -> (String, String, String) {
    for (begin, name, of) in FAMILIES {
        // Urgent jobs are ready ones, and would count twice.
        if let Some(rest) = key.strip_prefix(begin).filter(|rest| *rest != "urgent") {
            return (name.into(), label(of, rest), format!("{begin}*"));
        }
    }
    let unit = match key {
        _ if GROWING.iter().any(|begin| key.starts_with(begin)) => "_total",
        _ if key.contains("memory") || key.contains("size") => "_bytes",
        _ if key.ends_with("-age") || key.ends_with("-left") => "_seconds",
        "uptime" | "pause" => "_seconds",
        _ => "",
    };
    let name = key.trim_start_matches("total-").replace('-', "_");
    (name + unit, String::new(), key.into())
}

/// The samples of each metric of a server, by its name and its help.
struct Exposition {
    samples: BTreeMap<(String, String), String>,
    /// The server, as the value of a label.
    server: String,
}

impl Exposition {
    fn new(server: &str) -> Exposition {
        let (samples, server) = (BTreeMap::new(), escaped(server));
        Exposition { samples, server }
    }

    fn server(&mut self, facts: &Facts) {
        let keys = ["version", "id", "hostname", "os", "platform"];
        let labels = keys.map(|key| label(key, facts.text(key)));
        let help = "The server, as a metric that is always 1.";
        self.add("info", help, &labels.concat(), 1);
        let is_draining = facts.text("draining") == "true";
        let help = "Whether the server takes no new jobs.";
        self.add("draining", help, "", u8::from(is_draining));
        if facts.get("put-refusal").is_some() {
            for (reason, refusal) in [
                ("memory", Refusal::MemoryFull),
                ("disk", Refusal::DiskFull),
                ("draining", Refusal::Drains),
            ] {
                let is_so = u8::from(Refusal::of(facts) == Some(refusal));
                let help = "Whether puts are refused for this reason.";
                self.add("put_refusal", help, &label("reason", reason), is_so);
            }
        }
        self.figures("", "", "stats", facts);
    }

    fn tube(&mut self, name: &TubeName, tube: &Tube, with_age: bool) {
        let of_tube = label("tube", name.as_str());
        self.figures("tube_", &of_tube, "stats-tube", tube.facts());
        let help = "Connections that watch the tube to work.";
        self.add("tube_watching", help, &of_tube, tube.watching);
        if let (None, Some(age)) = (tube.facts().get("first-ready-age"), tube.age) {
            let help = "The figure first-ready-age of stats-tube.";
            self.add("tube_first_ready_age_seconds", help, &of_tube, age);
        }
        if with_age {
            let tries = tube.suspect.as_ref().map_or(0, |job| job.reserves);
            let help = "Tries of a job of the tube that fails at each; 0 without one.";
            self.add("tube_failing_job_tries", help, &of_tube, tries);
        }
    }

    /// Adds all figures of these statistics.
    fn figures(&mut self, of: &str, labels: &str, document: &str, facts: &Facts) {
        for (key, value) in facts.iter() {
            // One server's key that is no name would spoil the text of all.
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let is_figure = key.bytes().all(is_name) && value.parse().is_ok_and(f64::is_finite);
            if NO_FIGURES.contains(&key) || !is_figure {
                continue;
            }
            let (name, label, keys) = metric(key);
            let help = format!("The figure {keys} of {document}.");
            let labels = labels.to_owned() + &label;
            self.add(&format!("{of}{name}"), &help, &labels, value);
        }
    }

    /// Adds a sample with these labels to the metric of this name.
    fn add(&mut self, name: &str, help: &str, labels: &str, value: impl Display) {
        let metric = (name.into(), help.into());
        let samples = self.samples.entry(metric).or_default();
        let server = &self.server;
        let sample = format_args!("beanstalk_{name}{{{labels}server=\"{server}\"}} {value}\n");
        samples.write_fmt(sample).expect("a String takes all");
    }
}

/// A label before that of the server.
fn label(key: &str, value: &str) -> String {
    format!("{key}=\"{}\",", escaped(value))
}

/// The value of a label, as the text format requires it.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metrics of a server that says this, and of its tubes.
    fn metrics(server: &str, tubes: &[(&str, &str)], most: usize) -> String {
        let facts = |text: &str| Facts::parse(text.as_bytes()).unwrap();
        let named =
            |(name, text): &(&str, &str)| (TubeName::parse(name.as_bytes()).unwrap(), facts(text));
        let mut known = Known::default();
        let sample = Sample {
            server: facts(server),
            tubes: tubes.iter().map(named).collect(),
            ..Sample::default()
        };
        known.take(Duration::ZERO, sample);
        let mut told = Exposition::new("");
        told.server(&known.server.facts);
        let mut worst: Vec<_> = known.tubes.iter().collect();
        worst.sort_by_key(|(_, tube)| tube.rank());
        for (name, tube) in worst.into_iter().take(most) {
            told.tube(name, tube, false);
        }
        in_order(vec![told]).concat()
    }

    #[test]
    fn refusals_and_room_are_written_if_the_server_reports_them() {
        let stats = "memory-used: 900\nmax-memory: 1000\nbinlog-size: 70\nbinlog-live-size: 20\n\
                     put-refusal: 3\nputs-refused: 7\nmax-connections: 100";
        let text = metrics(stats, &[("a", "total-timeouts: 3\ntotal-reserves: 9")], 9);
        for line in [
            "beanstalk_put_refusal{reason=\"memory\",server=\"\"} 1",
            "beanstalk_put_refusal{reason=\"disk\",server=\"\"} 0",
            "beanstalk_puts_refused_total{server=\"\"} 7",
            "beanstalk_memory_used_bytes{server=\"\"} 900",
            "beanstalk_max_memory_bytes{server=\"\"} 1000",
            "beanstalk_binlog_size_bytes{server=\"\"} 70",
            "beanstalk_binlog_live_size_bytes{server=\"\"} 20",
            "beanstalk_max_connections{server=\"\"} 100",
            "beanstalk_tube_timeouts_total{tube=\"a\",server=\"\"} 3",
            "beanstalk_tube_reserves_total{tube=\"a\",server=\"\"} 9",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
        let text = metrics("uptime: 1", &[("a", "current-jobs-ready: 1")], 9);
        assert!(
            !text.contains("refus") && !text.contains("timeouts"),
            "{text}"
        );
    }

    #[test]
    fn a_value_that_is_no_number_and_a_key_that_is_no_name_are_left_out() {
        let text = metrics(
            "uptime: soon\ncmd-put: nan\nrusage-utime:\ntotal-jobs: 3\nuptime now: 4",
            &[("a", "total-jobs: inf")],
            9,
        );
        for name in ["uptime", "commands", "cpu", "tube_jobs_total"] {
            assert!(!text.contains(&format!("beanstalk_{name}")), "{text}");
        }
        assert!(
            text.contains("\nbeanstalk_jobs_total{server=\"\"} 3\n"),
            "{text}"
        );
    }

    #[test]
    fn a_bound_selects_tubes_in_trouble_first_and_then_the_largest() {
        let watched = "current-watching: 1\ncurrent-jobs-ready";
        let (small, large) = (format!("{watched}: 1"), format!("{watched}: 9"));
        let tubes = [
            ("buried", "current-jobs-buried: 1"),
            ("large", large.as_str()),
            ("small", small.as_str()),
        ];
        let text = metrics("uptime: 1", &tubes, 2);
        assert!(text.contains("buried") && text.contains("large"), "{text}");
        assert!(!text.contains("small"), "{text}");
    }
}
