//! What the engine counts. The numbers are changed where the counted things
//! happen, not here.

use crate::protocol::{Command, JobState, Priority};

/// Ready jobs with a smaller priority count as urgent.
const NOT_URGENT: Priority = Priority(1024);

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// The jobs in each state, in the order of [`JobState`].
    pub by_state: [usize; 4],
    /// The urgent ones among the ready jobs.
    pub urgent: usize,
}

impl JobCounts {
    /// Changes the counts that a job in this state appears in.
    pub fn count(&mut self, state: JobState, priority: Priority, change: fn(&mut usize)) {
        change(&mut self.by_state[state as usize]);
        if state == JobState::Ready && priority < NOT_URGENT {
            change(&mut self.urgent);
        }
    }

    /// The number of all jobs.
    pub fn sum(&self) -> usize {
        self.by_state.iter().sum()
    }
}

/// What is counted for each job, and for each tube.
#[derive(Clone, Copy)]
pub enum Event {
    Reserve,
    Release,
    Bury,
    Timeout,
    Kick,
}

/// Makes a list of keys, and finds the key that counts a command.
macro_rules! counted_commands {
    ($($command:ident: $key:literal,)*) => {
        /// The keys of the counts of each command, in the order of `stats`.
        pub const COMMAND_KEYS: &[&str] = &[$($key),*];

        /// The positions of these keys.
        enum Key { $($command),* }

        /// The position of the key that counts a command. `reserve-job`,
        /// `kick-job` and `quit` have no key, nor have our own commands.
        pub fn command_key(command: &Command) -> Option<usize> {
            use Command::{
                BuryLater, KickJob, ListConnections, ListJobs, ListTubeStats, PauseInvalidTube,
                Quit, ReserveJob, ReserveWithStats,
            };
            match command {
                $(Command::$command { .. } => Some(Key::$command as usize),)*
                PauseInvalidTube => Some(Key::PauseTube as usize),
                ReserveJob(_) | ReserveWithStats(_) | KickJob(_) | BuryLater(_) => None,
                ListJobs(_) | ListConnections(..) | ListTubeStats(..) | Quit => None,
            }
        }
    };
}

counted_commands! {
    Put: "cmd-put",
    Peek: "cmd-peek",
    PeekReady: "cmd-peek-ready",
    PeekDelayed: "cmd-peek-delayed",
    PeekBuried: "cmd-peek-buried",
    Reserve: "cmd-reserve",
    ReserveWithTimeout: "cmd-reserve-with-timeout",
    Delete: "cmd-delete",
    Release: "cmd-release",
    Use: "cmd-use",
    Watch: "cmd-watch",
    Ignore: "cmd-ignore",
    Bury: "cmd-bury",
    Kick: "cmd-kick",
    Touch: "cmd-touch",
    Stats: "cmd-stats",
    StatsJob: "cmd-stats-job",
    StatsTube: "cmd-stats-tube",
    ListTubes: "cmd-list-tubes",
    ListTubeUsed: "cmd-list-tube-used",
    ListTubesWatched: "cmd-list-tubes-watched",
    PauseTube: "cmd-pause-tube",
}

/// What has happened since the server started.
#[derive(Default)]
pub struct Totals {
    /// Commands given, by their keys. Lines that cannot be read are not counted.
    pub commands: [u64; COMMAND_KEYS.len()],
    /// How often a job's time to run ended.
    pub timeouts: u64,
    /// Jobs put.
    pub jobs: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Jobs deleted because their time was over.
    pub expired: u64,
    /// Puts refused because the server takes no job now, or not this one.
    pub refused: u64,
    /// Puts refused because their tube had as many jobs as it may have.
    pub refused_by_tubes: u64,
}

/// How many connections are producers, how many are workers, and how many wait,
/// now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Those that have sent a well-formed put within the size limit.
    pub producers: usize,
    /// Those that have sent a reserve, or got a job by `reserve-job`.
    pub workers: usize,
    /// Those that wait in a `reserve`.
    pub waiting: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::command;

    #[test]
    fn each_command_is_counted_under_its_own_name() {
        for &key in COMMAND_KEYS {
            let name = key.strip_prefix("cmd-").expect("a command's key");
            let with = |rest: &str| command::parse(format!("{name}{rest}").as_bytes()).ok();
            let examples = ["", " 1", " 1 0", " 1 0 0", " 1 0 0 0"].map(with);
            let keys: Vec<_> = examples.iter().flatten().map(command_key).collect();
            let found = keys.iter().flatten().map(|&index| COMMAND_KEYS[index]);
            assert!(
                found.clone().count() > 0 && found.clone().all(|found| found == key),
                "{key}"
            );
        }
    }
}
