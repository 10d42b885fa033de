//! `metrics`: the statistics as text for Prometheus.
//!
//! A textfile collector takes it from a file, or a small server hands it out.
//! Counters end in `_total`, units are seconds and bytes. A server that cannot
//! be reached is a failure, not a metric: whoever scrapes knows by the status.

use crate::command::{Command, Invocation, Opt, described, options};
use crate::failure::Outcome;
use crate::server::stats::{Facts, State};
use crate::server::tubes::{names_with_ready, next_ready, stats_of};
use crate::text::output::print;
use beanpole::protocol::TubeName;

pub const METRICS: Command = Command {
    name: "metrics",
    about: "write the statistics as text for Prometheus",
    options: || described(OPTIONS),
    run: metrics,
    ..Command::BLANK
};

options! {
    age: bool = Opt::flag("", "age", "with the age of the next ready job of each tube"),
}

/// A metric that is one key: name, type, help, key.
type Plain = (&'static str, &'static str, &'static str, &'static str);

const SERVER: &[Plain] = &[
    (
        "urgent_jobs",
        "gauge",
        "Ready jobs with a priority below 1024.",
        "current-jobs-urgent",
    ),
    (
        "job_timeouts_total",
        "counter",
        "Reservations that timed out.",
        "job-timeouts",
    ),
    ("jobs_created_total", "counter", "Jobs put.", "total-jobs"),
    (
        "max_job_size_bytes",
        "gauge",
        "The largest body that the server takes.",
        "max-job-size",
    ),
    ("tubes", "gauge", "Tubes that exist.", "current-tubes"),
    (
        "connections",
        "gauge",
        "Open connections.",
        "current-connections",
    ),
    (
        "producer_connections",
        "gauge",
        "Open connections that have put a job.",
        "current-producers",
    ),
    (
        "worker_connections",
        "gauge",
        "Open connections that have reserved a job.",
        "current-workers",
    ),
    (
        "waiting_connections",
        "gauge",
        "Connections that wait for a job.",
        "current-waiting",
    ),
    (
        "connections_opened_total",
        "counter",
        "Connections accepted.",
        "total-connections",
    ),
    (
        "uptime_seconds",
        "gauge",
        "Time since the server was started.",
        "uptime",
    ),
    (
        "binlog_oldest_index",
        "gauge",
        "The oldest binlog file needed.",
        "binlog-oldest-index",
    ),
    (
        "binlog_current_index",
        "gauge",
        "The binlog file being written.",
        "binlog-current-index",
    ),
    (
        "binlog_max_size_bytes",
        "gauge",
        "The size at which a new binlog file is begun.",
        "binlog-max-size",
    ),
    (
        "binlog_records_written_total",
        "counter",
        "Records written to the binlog.",
        "binlog-records-written",
    ),
    (
        "binlog_records_migrated_total",
        "counter",
        "Records moved by compaction.",
        "binlog-records-migrated",
    ),
];

const TUBE: &[Plain] = &[
    (
        "tube_urgent_jobs",
        "gauge",
        "Ready jobs of the tube with a priority below 1024.",
        "current-jobs-urgent",
    ),
    (
        "tube_jobs_created_total",
        "counter",
        "Jobs put into the tube.",
        "total-jobs",
    ),
    (
        "tube_using_connections",
        "gauge",
        "Connections that use the tube.",
        "current-using",
    ),
    (
        "tube_watching_connections",
        "gauge",
        "Connections that watch the tube.",
        "current-watching",
    ),
    (
        "tube_waiting_connections",
        "gauge",
        "Connections that wait for a job of the tube.",
        "current-waiting",
    ),
    (
        "tube_deletes_total",
        "counter",
        "Jobs of the tube that were deleted.",
        "cmd-delete",
    ),
    (
        "tube_pauses_total",
        "counter",
        "Pauses of the tube.",
        "cmd-pause-tube",
    ),
    (
        "tube_pause_left_seconds",
        "gauge",
        "Time until the tube's pause ends.",
        "pause-time-left",
    ),
];

fn metrics(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    let mut client = invocation.connect()?;
    let server = client.server_stats()?;
    let names = client.tubes()?;
    let tubes = stats_of(&mut client, &names)?;
    let mut text = Text::default();
    text.server(&server);
    text.tubes(&tubes);
    if options.age {
        text.begin(
            "tube_next_ready_age_seconds",
            "gauge",
            "Age of the next ready job of the tube.",
        );
        let ready: Vec<_> = names_with_ready(&tubes);
        for job in next_ready(&mut client, &ready)? {
            text.sample(
                "tube_next_ready_age_seconds",
                &[("tube", job.tube.as_str())],
                job.age,
            );
        }
    }
    print(text.0)
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn server(&mut self, facts: &Facts) {
        self.begin("info", "gauge", "The server, as a metric that is always 1.");
        let labels =
            ["version", "id", "hostname", "os", "platform"].map(|key| (key, facts.text(key)));
        self.sample("info", &labels, 1);
        self.begin("draining", "gauge", "Whether the server takes no new jobs.");
        self.sample("draining", &[], u8::from(facts.text("draining") == "true"));
        self.begin("jobs", "gauge", "Jobs by state.");
        for state in State::ALL {
            self.sample(
                "jobs",
                &[("state", state.name())],
                facts.number(state.count_key()),
            );
        }
        self.begin("commands_total", "counter", "Commands received.");
        for (key, value) in facts.iter() {
            if let Some(command) = key.strip_prefix("cmd-") {
                self.sample("commands_total", &[("command", command)], value);
            }
        }
        self.begin("cpu_seconds_total", "counter", "CPU time spent.");
        for (mode, key) in [("user", "rusage-utime"), ("system", "rusage-stime")] {
            self.sample("cpu_seconds_total", &[("mode", mode)], facts.text(key));
        }
        for (name, kind, help, key) in SERVER {
            self.begin(name, kind, help);
            self.sample(name, &[], facts.number(key));
        }
    }

    fn tubes(&mut self, tubes: &[(TubeName, Facts)]) {
        self.begin("tube_jobs", "gauge", "Jobs of the tube by state.");
        for (name, facts) in tubes {
            for state in State::ALL {
                let labels = [("tube", name.as_str()), ("state", state.name())];
                self.sample("tube_jobs", &labels, facts.number(state.count_key()));
            }
        }
        for (metric, kind, help, key) in TUBE {
            self.begin(metric, kind, help);
            for (name, facts) in tubes {
                self.sample(metric, &[("tube", name.as_str())], facts.number(key));
            }
        }
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        self.0 += &format!("# HELP beanstalk_{name} {help}\n# TYPE beanstalk_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            some => format!("{{{}}}", some.join(",")),
        };
        self.0 += &format!("beanstalk_{name}{labels} {value}\n");
    }
}

/// As the text format wants the values of labels.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
