//! What the engine counts. Nothing here changes a number: whoever changes what
//! is counted does.

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

impl JobCounts {
    /// All of them.
    pub fn sum(&self) -> usize {
        self.ready + self.reserved + self.delayed + self.buried
    }
}

/// What has happened to a job since it was put.
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

/// How often each command was given, since the server started. Lines that
/// cannot be read are not counted; `reserve-job` and `kick-job` have no key.
#[derive(Clone, Copy, Default)]
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

/// What has happened since the server started.
#[derive(Default)]
pub struct Totals {
    pub commands: CommandCounts,
    /// Times a job's time to run was over.
    pub timeouts: u64,
    /// Jobs put.
    pub jobs: u64,
    /// Connections accepted.
    pub connections: u64,
}

/// How many connections are what, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Those that have sent a `put`.
    pub producers: usize,
    /// Those that have sent a `reserve`.
    pub workers: usize,
    /// Those that wait in a `reserve`.
    pub waiting: usize,
}
