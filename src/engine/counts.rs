//! What the engine counts. The numbers are changed where the counted things
//! happen, not here.

use crate::protocol::{Command, JobState, Priority};

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// The jobs in each state, in the order of [`JobState`].
    pub by_state: [usize; 4],
    /// Ready jobs with a priority below 1024. They count as ready, too.
    pub urgent: usize,
}

impl JobCounts {
    /// Changes the counts that a job in this state appears in.
    pub fn count(&mut self, state: JobState, priority: Priority, change: fn(&mut usize)) {
        change(&mut self.by_state[state as usize]);
        if state == JobState::Ready && priority.is_urgent() {
            change(&mut self.urgent);
        }
    }

    /// The number of all jobs.
    pub fn sum(&self) -> usize {
        self.by_state.iter().sum()
    }
}

/// The keys that tell how often each command was given, in the order of
/// `stats`. `reserve-job`, `kick-job` and `quit` have no key, nor has our own
/// `list-jobs`.
pub const COMMAND_KEYS: [&str; 22] = [
    "cmd-put",
    "cmd-peek",
    "cmd-peek-ready",
    "cmd-peek-delayed",
    "cmd-peek-buried",
    "cmd-reserve",
    "cmd-reserve-with-timeout",
    "cmd-delete",
    "cmd-release",
    "cmd-use",
    "cmd-watch",
    "cmd-ignore",
    "cmd-bury",
    "cmd-kick",
    "cmd-touch",
    "cmd-stats",
    "cmd-stats-job",
    "cmd-stats-tube",
    "cmd-list-tubes",
    "cmd-list-tube-used",
    "cmd-list-tubes-watched",
    "cmd-pause-tube",
];

/// The position of the key that counts a command.
pub fn command_key(command: &Command) -> Option<usize> {
    Some(match command {
        Command::Put(_) => 0,
        Command::Peek(_) => 1,
        Command::PeekReady => 2,
        Command::PeekDelayed => 3,
        Command::PeekBuried => 4,
        Command::Reserve => 5,
        Command::ReserveWithTimeout(_) => 6,
        Command::Delete(_) => 7,
        Command::Release(..) => 8,
        Command::Use(_) => 9,
        Command::Watch(_) => 10,
        Command::Ignore(_) => 11,
        Command::Bury(..) => 12,
        Command::Kick(_) => 13,
        Command::Touch(_) => 14,
        Command::Stats => 15,
        Command::StatsJob(_) => 16,
        Command::StatsTube(_) => 17,
        Command::ListTubes => 18,
        Command::ListTubeUsed => 19,
        Command::ListTubesWatched => 20,
        Command::PauseTube(..) | Command::PauseNoTube => 21,
        Command::ReserveJob(_) | Command::KickJob(_) | Command::ListJobs(_) | Command::Quit => {
            return None;
        }
    })
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
}

/// How many connections are producers, how many are workers, and how many wait,
/// now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Those that have sent a `put`.
    pub producers: usize,
    /// Those that have sent a `reserve`.
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
        for key in COMMAND_KEYS {
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
