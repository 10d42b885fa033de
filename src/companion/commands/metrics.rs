//! `metrics`: the statistics as text for Prometheus. The text is printed, put into a
//! file for a collector of text files, or served by HTTP.
//!
//! The names of counters end in `_total`; units are seconds and bytes. What a
//! server does not report is left out. `beanstalk_up` says whether a server
//! answers; if it does not, this is its only metric.

use crate::command::{Invocation, Run, last_of};
use crate::failure::{Failure, Outcome};
use crate::http::{self, Answer, Request};
use crate::remote::client::ask_all;
use crate::remote::{
    Client, Facts, Known, Pattern, Patterns, Refusal, Sample, Server, State, Tube,
};
use crate::signals::end_at_signals;
use crate::text::output::{Output, WholeFile, complain, note};
use crate::values::{Count, Parse, parse};
use beanpole::protocol::TubeName;
use clap::{Args, ValueHint};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
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
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let scrape = Scrape {
            servers: invocation.servers.clone(),
            patience: invocation.patience,
            tubes: Patterns(self.tubes),
            most: self.most.map(|most| Count::most(Some(most))),
            age: self.age,
        };
        if let Some(listen) = &self.listen {
            end_at_signals()?;
            let (listener, bound) = http::bind(listen)?;
            note(format_args!("serving http://{bound}/metrics"));
            let served = Served {
                scrape,
                last: Mutex::default(),
            };
            http::serve(&listener, self.hosts, 0, move |request, _| {
                served.answer(request)
            })
        }
        let (text, failures) = scrape.text(scrape.patience);
        match &self.output {
            Some(path) => WholeFile::write(path, &text)?,
            None => {
                let mut output = Output::new();
                for piece in &text {
                    output.bytes(piece.as_bytes())?;
                }
                output.sync()?;
            }
        }
        last_of(failures)
    }
}

/// The metrics alone are served. They may be a large text: it is made once at a time, and
/// whoever asked before it was made, or while another client still reads it, gets the same.
struct Served {
    scrape: Scrape,
    /// The text that was made last, and when.
    last: Mutex<Option<(Instant, Arc<Vec<String>>)>>,
}

impl Served {
    fn answer(&self, request: &Request) -> Result<Answer, Answer> {
        if request.method != "GET" {
            return Err(Answer::only_to_be_read());
        }
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
        let patience = self.scrape.patience.min(patience_of(request));
        let (text, failures) = self.scrape.text(patience);
        failures.iter().for_each(|failure| complain!("{failure}"));
        let text = Arc::new(text);
        *last = Some((Instant::now(), Arc::clone(&text)));
        Ok(Answer::shared(KIND, text))
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
    let time = told.and_then(|text| <Duration as Parse>::parse(text).ok());
    time.map_or(SCRAPE_PATIENCE, |time| {
        time.saturating_sub(MARGIN).max(time / 2)
    })
}

/// Which metrics are wanted, and of which servers.
struct Scrape {
    servers: Vec<Server>,
    patience: Duration,
    /// The tubes.
    tubes: Patterns,
    /// How many of them at most: those in trouble first, and then the largest.
    most: Option<usize>,
    /// Whether to ask about the next ready job of each tube.
    age: bool,
}

impl Scrape {
    /// The metrics, with a label for each server, and why servers gave none.
    fn text(&self, patience: Duration) -> (Vec<String>, Vec<Failure>) {
        let until = Instant::now() + patience;
        let (mut all, mut failures) = (Vec::new(), Vec::new());
        for told in ask_all(&self.servers, |server| self.ask(server, until)) {
            let (told, failure) = told;
            all.push(told);
            failures.extend(failure);
        }
        (in_order(all), failures)
    }

    /// The metrics of a server, and why it gives no others.
    fn ask(&self, server: &Server, until: Instant) -> (Exposition, Option<Failure>) {
        let mut told = Exposition::new(server);
        let failure = self.tell(server, until, &mut told).err();
        if failure.is_some() {
            told = Exposition::new(server);
        }
        told.add("up", "", u8::from(failure.is_none()));
        (told, failure)
    }

    fn tell(&self, server: &Server, until: Instant, told: &mut Exposition) -> Outcome<()> {
        let mut client = Client::connect_until(&server.address, until)?;
        let (mut of_server, mut tubes) = (Facts::default(), BTreeMap::new());
        Sample::each(&mut client, &self.tubes, self.age, |sample| {
            let mut known = Known::default();
            known.take(Duration::ZERO, sample);
            of_server = known.server.facts;
            match self.most {
                Some(_) => tubes.extend(known.tubes),
                None => known
                    .tubes
                    .iter()
                    .for_each(|(name, tube)| told.tube(name, tube, self.age)),
            }
        })?;
        told.server(&of_server);
        for (name, tube) in worst(&tubes, self.most.unwrap_or(0)) {
            told.tube(name, tube, self.age);
        }
        Ok(())
    }
}

/// Up to `most` tubes: those in trouble first, and then the largest.
fn worst(tubes: &BTreeMap<TubeName, Tube>, most: usize) -> Vec<(&TubeName, &Tube)> {
    let jobs = |facts: &Facts| facts.jobs().iter().sum::<u64>();
    let mut tubes: Vec<_> = tubes.iter().collect();
    tubes.sort_by_key(|(_, tube)| Reverse((tube.severity(), jobs(tube.facts()))));
    tubes.truncate(most);
    tubes
}

/// The text of all servers: each metric, with its help, and its samples.
fn in_order(mut all: Vec<Exposition>) -> Vec<String> {
    let mut text = Vec::new();
    for (name, _, help) in METRICS {
        let samples = all.iter_mut().filter_map(|told| told.samples.remove(name));
        let samples: Vec<_> = samples.collect();
        if samples.is_empty() {
            continue;
        }
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

/// The metrics in their order: the name of each, the key of the statistics that is
/// its only value, if there is one, and its help. Those of tubes say so.
#[rustfmt::skip]
const METRICS: &[(&str, &str, &str)] = &[
    ("up", "", "Whether the server answers."),
    ("info", "", "The server, as a metric that is always 1."),
    ("draining", "", "Whether the server takes no new jobs."),
    ("put_refusal", "", "Whether puts are refused for this reason."),
    ("jobs", "", "Jobs by state."),
    ("commands_total", "", "Commands received."),
    ("cpu_seconds_total", "", "CPU time spent."),
    ("urgent_jobs", "current-jobs-urgent", "Ready jobs with a priority below 1024."),
    ("job_timeouts_total", "job-timeouts", "Reservations that timed out."),
    ("jobs_created_total", "total-jobs", "Jobs put."),
    ("puts_refused_total", "puts-refused", "Puts refused for want of room or in drain mode."),
    ("puts_refused_by_tubes_total", "puts-refused-by-tubes", "Puts refused because their tube was full."),
    ("jobs_expired_total", "jobs-expired", "Jobs deleted because nobody took them in time."),
    ("max_job_size_bytes", "max-job-size", "The largest body that the server takes."),
    ("memory_used_bytes", "memory-used", "Memory that jobs take."),
    ("memory_limit_bytes", "max-memory", "The limit of that memory; 0 if there is none."),
    ("tubes", "current-tubes", "Tubes that exist."),
    ("connections", "current-connections", "Open connections."),
    ("connections_limit", "max-connections", "The highest number of open connections."),
    ("producer_connections", "current-producers", "Open connections that have put a job."),
    ("worker_connections", "current-workers", "Open connections that have reserved a job."),
    ("waiting_connections", "current-waiting", "Connections that wait for a job."),
    ("connections_opened_total", "total-connections", "Connections accepted."),
    ("uptime_seconds", "uptime", "Time since the server was started."),
    ("binlog_oldest_index", "binlog-oldest-index", "The oldest binlog file needed."),
    ("binlog_current_index", "binlog-current-index", "The binlog file being written."),
    ("binlog_max_size_bytes", "binlog-max-size", "The size at which a new binlog file is begun."),
    ("binlog_size_bytes", "binlog-size", "The size of all binlog files."),
    ("binlog_live_bytes", "binlog-live-size", "What the binlog's jobs take of that size."),
    ("binlog_records_written_total", "binlog-records-written", "Records written to the binlog."),
    ("binlog_records_migrated_total", "binlog-records-migrated", "Records moved by compaction."),
    ("tube_jobs", "", "Jobs of the tube by state."),
    ("tube_urgent_jobs", "current-jobs-urgent", "Ready jobs of the tube with a priority below 1024."),
    ("tube_jobs_created_total", "total-jobs", "Jobs put into the tube."),
    ("tube_using_connections", "current-using", "Connections that use the tube."),
    ("tube_watching_connections", "", "Connections that watch the tube to work."),
    ("tube_waiting_connections", "current-waiting", "Connections that wait for a job of the tube."),
    ("tube_deletes_total", "cmd-delete", "Jobs of the tube that were deleted."),
    ("tube_reserves_total", "total-reserves", "Reservations of jobs of the tube."),
    ("tube_releases_total", "total-releases", "Releases of jobs of the tube."),
    ("tube_buries_total", "total-buries", "Burials of jobs of the tube."),
    ("tube_timeouts_total", "total-timeouts", "Reservations of jobs of the tube that timed out."),
    ("tube_kicks_total", "total-kicks", "Kicks of jobs of the tube."),
    ("tube_jobs_expired_total", "total-expired", "Jobs of the tube that nobody took in time."),
    ("tube_jobs_limit", "max-jobs", "The most jobs of the tube; 0 if there is no limit."),
    ("tube_puts_refused_total", "puts-refused", "Puts refused because the tube was full."),
    ("tube_pauses_total", "cmd-pause-tube", "Pauses of the tube."),
    ("tube_pause_left_seconds", "pause-time-left", "Time until the tube's pause ends."),
    ("tube_next_ready_age_seconds", "", "Age of the next ready job of the tube."),
    ("tube_last_ready_age_seconds", "", "Age of the last ready job of the tube."),
    ("tube_failing_job_tries", "", "Tries of a job of the tube that fails at each; 0 without one."),
];

/// The samples of each metric of a server.
struct Exposition {
    samples: HashMap<&'static str, String>,
    /// The server, as the value of a label.
    server: String,
}

impl Exposition {
    fn new(server: &Server) -> Exposition {
        let (samples, server) = (HashMap::new(), escaped(&server.title()));
        Exposition { samples, server }
    }

    fn server(&mut self, facts: &Facts) {
        let keys = ["version", "id", "hostname", "os", "platform"];
        let labels = keys.map(|key| label(key, facts.text(key)));
        self.add("info", &labels.concat(), 1);
        let is_draining = facts.text("draining") == "true";
        self.add("draining", "", u8::from(is_draining));
        if facts.get("put-refusal").is_some() {
            for (reason, refusal) in [
                ("memory", Refusal::MemoryFull),
                ("disk", Refusal::DiskFull),
                ("draining", Refusal::Drains),
            ] {
                let is_so = u8::from(Refusal::of(facts) == Some(refusal));
                self.add("put_refusal", &label("reason", reason), is_so);
            }
        }
        for (state, jobs) in State::ALL.into_iter().zip(facts.jobs()) {
            self.add("jobs", &label("state", state.name()), jobs);
        }
        for (key, value) in facts.iter() {
            if let Some(command) = key.strip_prefix("cmd-") {
                self.told("commands_total", &label("command", command), value);
            }
        }
        for (mode, key) in [("user", "rusage-utime"), ("system", "rusage-stime")] {
            self.told("cpu_seconds_total", &label("mode", mode), facts.text(key));
        }
        self.plain(false, facts, "");
    }

    fn tube(&mut self, name: &TubeName, tube: &Tube, with_age: bool) {
        let of_tube = label("tube", name.as_str());
        for (state, jobs) in State::ALL.into_iter().zip(tube.facts().jobs()) {
            let labels = of_tube.clone() + &label("state", state.name());
            self.add("tube_jobs", &labels, jobs);
        }
        self.plain(true, tube.facts(), &of_tube);
        self.add("tube_watching_connections", &of_tube, tube.watching);
        for (name, age) in [
            ("tube_next_ready_age_seconds", tube.age),
            ("tube_last_ready_age_seconds", tube.last_age),
        ] {
            age.inspect(|age| self.add(name, &of_tube, age));
        }
        if with_age {
            let tries = tube.suspect.as_ref().map_or(0, |job| job.reserves);
            self.add("tube_failing_job_tries", &of_tube, tries);
        }
    }

    /// Adds the values of keys, as far as the server reports them.
    fn plain(&mut self, of_tube: bool, facts: &Facts, labels: &str) {
        for (name, key, _) in METRICS {
            if name.starts_with("tube_") == of_tube
                && let Some(value) = facts.get(key)
            {
                self.told(name, labels, value);
            }
        }
    }

    /// Adds what a server tells, if it is a number.
    fn told(&mut self, name: &'static str, labels: &str, value: &str) {
        if value.parse().is_ok_and(f64::is_finite) {
            self.add(name, labels, value);
        }
    }

    /// Adds a sample with these labels to the metric of this name.
    fn add(&mut self, name: &'static str, labels: &str, value: impl Display) {
        let samples = self.samples.entry(name).or_default();
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
        let (samples, server) = (HashMap::new(), String::new());
        let mut told = Exposition { samples, server };
        told.server(&known.server.facts);
        for (name, tube) in worst(&known.tubes, most) {
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
            "beanstalk_memory_limit_bytes{server=\"\"} 1000",
            "beanstalk_binlog_size_bytes{server=\"\"} 70",
            "beanstalk_binlog_live_bytes{server=\"\"} 20",
            "beanstalk_connections_limit{server=\"\"} 100",
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
    fn a_value_that_is_no_number_is_left_out() {
        let text = metrics(
            "uptime: soon\ncmd-put: nan\nrusage-utime:\ntotal-jobs: 3",
            &[("a", "total-jobs: inf")],
            9,
        );
        for name in ["uptime", "commands", "cpu", "tube_jobs_created"] {
            assert!(!text.contains(&format!("beanstalk_{name}")), "{text}");
        }
        assert!(
            text.contains("\nbeanstalk_jobs_created_total{server=\"\"} 3\n"),
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
