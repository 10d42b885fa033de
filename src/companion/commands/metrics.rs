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

/// A metric that is one key: its name, the key, its help.
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
        self.begin("info", "The server, as a metric that is always 1.");
        let labels =
            ["version", "id", "hostname", "os", "platform"].map(|key| (key, facts.text(key)));
        self.sample("info", &labels, 1);
        self.begin("draining", "Whether the server takes no new jobs.");
        self.sample("draining", &[], u8::from(facts.text("draining") == "true"));
        self.begin("jobs", "Jobs by state.");
        for state in State::ALL {
            self.sample(
                "jobs",
                &[("state", state.name())],
                facts.number(state.count_key()),
            );
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
                self.sample("tube_jobs", &labels, facts.number(state.count_key()));
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
