//! The YAML documents: the statistics of the server, of a tube and of a job,
//! and lists of tubes.
//!
//! The keys stand in the order in which beanstalkd sends them, which is not
//! that of its protocol text. Texts of the system's own (`hostname`, `os`,
//! `platform`) and names of tubes are quoted: an `os` of `#1 SMP` would be a
//! comment to a YAML reader. What the keys count is told by the fields below.

use super::{JobId, Priority, Seconds, TubeName};
use std::fmt::{Display, Write};
use std::time::Duration;

/// Jobs by what can happen to them next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Ready jobs with a priority below 1024.
    pub urgent: usize,
    /// Ready jobs, the urgent ones included.
    pub ready: usize,
    /// Jobs reserved by clients.
    pub reserved: usize,
    /// Jobs whose delay is not over.
    pub delayed: usize,
    /// Buried jobs.
    pub buried: usize,
}

/// How often each command was given, since the server started. Lines that
/// cannot be read are not counted; `reserve-job` and `kick-job` have no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named after its command")]
pub struct CommandCounts {
    pub put: u64,
    pub peek: u64,
    pub peek_ready: u64,
    pub peek_delayed: u64,
    pub peek_buried: u64,
    pub reserve: u64,
    pub reserve_with_timeout: u64,
    pub delete: u64,
    pub release: u64,
    pub use_: u64,
    pub watch: u64,
    pub ignore: u64,
    pub bury: u64,
    pub kick: u64,
    pub touch: u64,
    pub stats: u64,
    pub stats_job: u64,
    pub stats_tube: u64,
    pub list_tubes: u64,
    pub list_tube_used: u64,
    pub list_tubes_watched: u64,
    pub pause_tube: u64,
}

/// What `stats` tells: the engine's part and that of the process around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Jobs in all tubes.
    pub jobs: JobCounts,
    /// Commands since the start.
    pub commands: CommandCounts,
    /// Times a job's time to run was over.
    pub timeouts: u64,
    /// Jobs put since the start.
    pub total_jobs: u64,
    /// The largest body taken, in bytes.
    pub max_job_size: u32,
    /// Tubes that exist.
    pub tubes: usize,
    /// Open connections.
    pub connections: usize,
    /// Open connections that have sent a `put`.
    pub producers: usize,
    /// Open connections that have sent a `reserve`.
    pub workers: usize,
    /// Open connections that wait in a `reserve`.
    pub waiting: usize,
    /// Connections accepted since the start.
    pub total_connections: u64,
    /// Whether the server refuses new jobs.
    pub draining: bool,
    /// What the engine cannot know; the shell fills it in.
    pub process: ProcessStats,
}

/// The part of [`ServerStats`] that only the process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// The process's id.
    pub pid: u32,
    /// The version that clients compare, of the form `N.N`.
    pub version: &'static str,
    /// Time spent in user mode.
    pub user_time: Duration,
    /// Time spent in the kernel.
    pub system_time: Duration,
    /// Time since the start.
    pub uptime: Duration,
    /// The binlog's part.
    pub binlog: BinlogStats,
    /// A random text that tells one run of the server from the next.
    pub instance: String,
    /// As `uname` has it.
    pub hostname: String,
    /// The kernel's version, as `uname` has it.
    pub os: String,
    /// The machine's architecture, as `uname` has it.
    pub platform: String,
}

/// The binlog's keys in `stats`: all but the size are 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinlogStats {
    /// The number of the oldest file that is needed.
    pub oldest_index: u64,
    /// The number of the file that is written to.
    pub current_index: u64,
    /// Records copied by compaction since the start.
    pub records_migrated: u64,
    /// Records written since the start, the copied ones included.
    pub records_written: u64,
    /// The size at which a new file is begun, in bytes.
    pub max_size: u64,
}

/// What `stats-tube` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TubeStats {
    /// The tube.
    pub name: TubeName,
    /// Its jobs.
    pub jobs: JobCounts,
    /// Jobs put into it since it came to be.
    pub total_jobs: u64,
    /// Connections that use it.
    pub using: usize,
    /// Connections that watch it.
    pub watching: usize,
    /// Connections that watch it and wait in a `reserve`.
    pub waiting: usize,
    /// Jobs deleted from it.
    pub deletes: u64,
    /// Times it was paused.
    pub pauses: u64,
    /// How long it was last asked to pause, while it does.
    pub pause: Seconds,
    /// How much of that is left.
    pub pause_left: Duration,
}

/// What `stats-job` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStats {
    /// The job.
    pub id: JobId,
    /// The tube it lives in.
    pub tube: TubeName,
    /// `ready`, `delayed`, `reserved` or `buried`.
    pub state: &'static str,
    /// As set by put, release or bury.
    pub priority: Priority,
    /// Time since the put.
    pub age: Duration,
    /// As set by put or release.
    pub delay: Seconds,
    /// The time to run.
    pub ttr: Seconds,
    /// Time until it becomes ready, if it is delayed or reserved, else zero.
    pub time_left: Duration,
    /// The number of the oldest binlog file that holds it, else 0.
    pub file: u64,
    /// What has happened to it.
    pub counters: Counters,
}

/// What has happened to a job, as `stats-job` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times reserved.
    pub reserves: u32,
    /// Times its time to run was over.
    pub timeouts: u32,
    /// Times released by a client.
    pub releases: u32,
    /// Times buried.
    pub buries: u32,
    /// Times kicked.
    pub kicks: u32,
}

/// The document of `stats`.
pub(super) fn server(stats: &ServerStats) -> String {
    let ServerStats {
        commands, process, ..
    } = stats;
    let ProcessStats { binlog, .. } = process;
    let mut yaml = Yaml::with_capacity(1200);
    yaml.jobs(&stats.jobs);
    yaml.pair("cmd-put", commands.put);
    yaml.pair("cmd-peek", commands.peek);
    yaml.pair("cmd-peek-ready", commands.peek_ready);
    yaml.pair("cmd-peek-delayed", commands.peek_delayed);
    yaml.pair("cmd-peek-buried", commands.peek_buried);
    yaml.pair("cmd-reserve", commands.reserve);
    yaml.pair("cmd-reserve-with-timeout", commands.reserve_with_timeout);
    yaml.pair("cmd-delete", commands.delete);
    yaml.pair("cmd-release", commands.release);
    yaml.pair("cmd-use", commands.use_);
    yaml.pair("cmd-watch", commands.watch);
    yaml.pair("cmd-ignore", commands.ignore);
    yaml.pair("cmd-bury", commands.bury);
    yaml.pair("cmd-kick", commands.kick);
    yaml.pair("cmd-touch", commands.touch);
    yaml.pair("cmd-stats", commands.stats);
    yaml.pair("cmd-stats-job", commands.stats_job);
    yaml.pair("cmd-stats-tube", commands.stats_tube);
    yaml.pair("cmd-list-tubes", commands.list_tubes);
    yaml.pair("cmd-list-tube-used", commands.list_tube_used);
    yaml.pair("cmd-list-tubes-watched", commands.list_tubes_watched);
    yaml.pair("cmd-pause-tube", commands.pause_tube);
    yaml.pair("job-timeouts", stats.timeouts);
    yaml.pair("total-jobs", stats.total_jobs);
    yaml.pair("max-job-size", stats.max_job_size);
    yaml.pair("current-tubes", stats.tubes);
    yaml.pair("current-connections", stats.connections);
    yaml.pair("current-producers", stats.producers);
    yaml.pair("current-workers", stats.workers);
    yaml.pair("current-waiting", stats.waiting);
    yaml.pair("total-connections", stats.total_connections);
    yaml.pair("pid", process.pid);
    yaml.quoted("version", process.version);
    yaml.pair("rusage-utime", seconds_and_micros(process.user_time));
    yaml.pair("rusage-stime", seconds_and_micros(process.system_time));
    yaml.pair("uptime", process.uptime.as_secs());
    yaml.pair("binlog-oldest-index", binlog.oldest_index);
    yaml.pair("binlog-current-index", binlog.current_index);
    yaml.pair("binlog-records-migrated", binlog.records_migrated);
    yaml.pair("binlog-records-written", binlog.records_written);
    yaml.pair("binlog-max-size", binlog.max_size);
    yaml.pair("draining", stats.draining);
    yaml.pair("id", &process.instance);
    yaml.quoted("hostname", &process.hostname);
    yaml.quoted("os", &process.os);
    yaml.quoted("platform", &process.platform);
    yaml.0
}

/// The document of `stats-tube`.
pub(super) fn tube(stats: &TubeStats) -> String {
    let mut yaml = Yaml::with_capacity(400);
    yaml.quoted("name", stats.name.as_str());
    yaml.jobs(&stats.jobs);
    yaml.pair("total-jobs", stats.total_jobs);
    yaml.pair("current-using", stats.using);
    yaml.pair("current-watching", stats.watching);
    yaml.pair("current-waiting", stats.waiting);
    yaml.pair("cmd-delete", stats.deletes);
    yaml.pair("cmd-pause-tube", stats.pauses);
    yaml.pair("pause", stats.pause.0);
    yaml.pair("pause-time-left", stats.pause_left.as_secs());
    yaml.0
}

/// The document of `stats-job`.
pub(super) fn job(stats: &JobStats) -> String {
    let mut yaml = Yaml::with_capacity(300);
    yaml.pair("id", stats.id);
    yaml.quoted("tube", stats.tube.as_str());
    yaml.pair("state", stats.state);
    yaml.pair("pri", stats.priority.0);
    yaml.pair("age", stats.age.as_secs());
    yaml.pair("delay", stats.delay.0);
    yaml.pair("ttr", stats.ttr.0);
    yaml.pair("time-left", stats.time_left.as_secs());
    yaml.pair("file", stats.file);
    yaml.pair("reserves", stats.counters.reserves);
    yaml.pair("timeouts", stats.counters.timeouts);
    yaml.pair("releases", stats.counters.releases);
    yaml.pair("buries", stats.counters.buries);
    yaml.pair("kicks", stats.counters.kicks);
    yaml.0
}

/// The document of `list-tubes` and `list-tubes-watched`.
pub(super) fn list(names: &[TubeName]) -> String {
    let mut yaml = Yaml::with_capacity(names.iter().map(|name| name.as_str().len() + 3).sum());
    for name in names {
        yaml.0.push_str("- ");
        yaml.0.push_str(name.as_str());
        yaml.0.push('\n');
    }
    yaml.0
}

struct Yaml(String);

impl Yaml {
    fn with_capacity(capacity: usize) -> Yaml {
        let mut text = String::with_capacity(capacity + 4);
        text.push_str("---\n");
        Yaml(text)
    }

    fn pair(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a String takes all text");
    }

    /// Texts here come from `uname` and from tubes' names: whatever a host is
    /// called, the document stays one that can be read.
    fn quoted(&mut self, key: &str, value: &str) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.pair(key, format_args!("\"{escaped}\""));
    }

    fn jobs(&mut self, jobs: &JobCounts) {
        self.pair("current-jobs-urgent", jobs.urgent);
        self.pair("current-jobs-ready", jobs.ready);
        self.pair("current-jobs-reserved", jobs.reserved);
        self.pair("current-jobs-delayed", jobs.delayed);
        self.pair("current-jobs-buried", jobs.buried);
    }
}

fn seconds_and_micros(time: Duration) -> impl Display {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_rounded_down() {
        let stats = TubeStats {
            name: TubeName::default_tube(),
            jobs: JobCounts::default(),
            total_jobs: 0,
            using: 1,
            watching: 2,
            waiting: 0,
            deletes: 0,
            pauses: 1,
            pause: Seconds(10),
            pause_left: Duration::from_millis(9999),
        };
        let document = tube(&stats);
        assert!(document.starts_with("---\nname: \"default\"\ncurrent-jobs-urgent: 0\n"));
        assert!(document.ends_with("cmd-pause-tube: 1\npause: 10\npause-time-left: 9\n"));
    }

    #[test]
    fn texts_of_the_system_cannot_break_the_document() {
        let stats = ServerStats {
            process: ProcessStats {
                hostname: r#"a"b\c"#.into(),
                os: "#1 SMP".into(),
                user_time: Duration::from_micros(1_000_042),
                ..Default::default()
            },
            ..Default::default()
        };
        let document = server(&stats);
        assert!(document.contains("hostname: \"a\\\"b\\\\c\"\nos: \"#1 SMP\"\n"));
        assert!(document.contains("rusage-utime: 1.000042\n"));
    }
}
