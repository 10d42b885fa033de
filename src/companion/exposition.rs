//! The statistics of a server as text for Prometheus.
//!
//! The names of counters end in `_total`; units are seconds and bytes.
//! `beanstalk_up` says whether the server answers; if it does not, this is the
//! only metric.

use crate::failure::{Failure, Outcome};
use crate::server::address::Address;
use crate::server::client::Client;
use crate::server::sample::Sample;
use crate::server::stats::{Facts, State};
use crate::server::tubes::Patterns;
use beanpole::protocol::TubeName;
use std::time::Duration;

/// The content type of the text.
pub const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How long a server may take to answer for a scrape: as a rule, a scraper
/// gives up after 10 seconds.
pub const SCRAPE_PATIENCE: Duration = Duration::from_secs(5);

/// Which metrics are wanted beside those of the server.
#[derive(Default)]
pub struct Wanted {
    /// Of these tubes.
    pub tubes: Patterns,
    /// With the age of the next ready job of each tube.
    pub age: bool,
}

/// The metrics. If the server does not answer, there is only one, and the
/// failure.
pub fn scrape(address: &Address, patience: Duration, wanted: &Wanted) -> (String, Option<Failure>) {
    let rest = ask(address, patience, wanted);
    let mut text = Text::default();
    text.begin("up", "Whether the server answers.");
    text.sample("up", &[], u8::from(rest.is_ok()));
    match rest {
        Ok(rest) => (text.0 + &rest.0, None),
        Err(failure) => (text.0, Some(failure)),
    }
}

fn ask(address: &Address, patience: Duration, wanted: &Wanted) -> Outcome<Text> {
    let mut client = Client::connect(address, patience)?;
    let ages_of = |tubes| if wanted.age { tubes } else { Vec::new() };
    let sample = Sample::take(&mut client, &wanted.tubes, ages_of)?;
    let mut text = Text::default();
    text.server(&sample.server);
    text.tubes(&sample.tubes);
    if wanted.age {
        const AGE: &str = "tube_next_ready_age_seconds";
        text.begin(AGE, "Age of the next ready job of the tube.");
        for (tube, _) in &sample.tubes {
            if let Some(Some(age)) = sample.ages.get(tube) {
                text.sample(AGE, &[("tube", tube.as_str())], age);
            }
        }
    }
    Ok(text)
}

/// A metric with the value of one key: its name, the key, its help.
type Plain = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const SERVER: &[Plain] = &[
    ("urgent_jobs", "current-jobs-urgent", "Ready jobs with a priority below 1024."),
    ("job_timeouts_total", "job-timeouts", "Reservations that timed out."),
    ("jobs_created_total", "total-jobs", "Jobs put."),
    ("max_job_size_bytes", "max-job-size", "The largest body that the server takes."),
    ("tubes", "current-tubes", "Tubes that exist."),
    ("connections", "current-connections", "Open connections."),
    ("producer_connections", "current-producers", "Open connections that have put a job."),
    ("worker_connections", "current-workers", "Open connections that have reserved a job."),
    ("waiting_connections", "current-waiting", "Connections that wait for a job."),
    ("connections_opened_total", "total-connections", "Connections accepted."),
    ("uptime_seconds", "uptime", "Time since the server was started."),
    ("binlog_oldest_index", "binlog-oldest-index", "The oldest binlog file needed."),
    ("binlog_current_index", "binlog-current-index", "The binlog file being written."),
    ("binlog_max_size_bytes", "binlog-max-size", "The size at which a new binlog file is begun."),
    ("binlog_records_written_total", "binlog-records-written", "Records written to the binlog."),
    ("binlog_records_migrated_total", "binlog-records-migrated", "Records moved by compaction."),
];

#[rustfmt::skip]
const TUBE: &[Plain] = &[
    ("tube_urgent_jobs", "current-jobs-urgent", "Ready jobs of the tube with a priority below 1024."),
    ("tube_jobs_created_total", "total-jobs", "Jobs put into the tube."),
    ("tube_using_connections", "current-using", "Connections that use the tube."),
    ("tube_watching_connections", "current-watching", "Connections that watch the tube."),
    ("tube_waiting_connections", "current-waiting", "Connections that wait for a job of the tube."),
    ("tube_deletes_total", "cmd-delete", "Jobs of the tube that were deleted."),
    ("tube_pauses_total", "cmd-pause-tube", "Pauses of the tube."),
    ("tube_pause_left_seconds", "pause-time-left", "Time until the tube's pause ends."),
];

#[derive(Default)]
struct Text(String);

impl Text {
    fn server(&mut self, facts: &Facts) {
        self.begin("info", "The server, as a metric that is always 1.");
        let labels = ["version", "id", "hostname", "os", "platform"];
        self.sample("info", &labels.map(|key| (key, facts.text(key))), 1);
        self.begin("draining", "Whether the server takes no new jobs.");
        self.sample("draining", &[], u8::from(facts.text("draining") == "true"));
        self.begin("jobs", "Jobs by state.");
        for state in State::ALL {
            self.sample("jobs", &[("state", state.name())], facts.jobs_in(&[state]));
        }
        self.begin("commands_total", "Commands received.");
        for (key, value) in facts.iter() {
            if let Some(command) = key.strip_prefix("cmd-") {
                self.sample("commands_total", &[("command", command)], value);
            }
        }
        self.begin("cpu_seconds_total", "CPU time spent.");
        for (mode, key) in [("user", "rusage-utime"), ("system", "rusage-stime")] {
            self.sample("cpu_seconds_total", &[("mode", mode)], facts.text(key));
        }
        for (name, key, help) in SERVER {
            self.begin(name, help);
            self.sample(name, &[], facts.number(key));
        }
    }

    fn tubes(&mut self, tubes: &[(TubeName, Facts)]) {
        self.begin("tube_jobs", "Jobs of the tube by state.");
        for (name, facts) in tubes {
            for state in State::ALL {
                let labels = [("tube", name.as_str()), ("state", state.name())];
                self.sample("tube_jobs", &labels, facts.jobs_in(&[state]));
            }
        }
        for (metric, key, help) in TUBE {
            self.begin(metric, help);
            for (name, facts) in tubes {
                self.sample(metric, &[("tube", name.as_str())], facts.number(key));
            }
        }
    }

    fn begin(&mut self, name: &str, help: &str) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.0 += &format!("# HELP beanstalk_{name} {help}\n# TYPE beanstalk_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let label = |(key, value): &(&str, &str)| format!("{key}=\"{}\"", escaped(value));
        let labels: Vec<_> = labels.iter().map(label).collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            some => format!("{{{}}}", some.join(",")),
        };
        self.0 += &format!("beanstalk_{name}{labels} {value}\n");
    }
}

/// The value of a label, as the text format requires it.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}
