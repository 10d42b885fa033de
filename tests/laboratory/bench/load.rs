//! A load: what the server is asked for, how often, and from which CPU.

use crate::load::arrivals::Rate;
use companion::failure::Failure;

/// On which CPUs the generator and the servers that it starts may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// Both on the first CPU.
    One,
    /// The generator on the first CPU, the server on the others.
    Apart,
    /// Wherever the kernel puts them.
    Free,
}

/// The CPUs of the generator and of the server.
#[derive(Debug, PartialEq)]
pub struct Cpus {
    /// The generator's.
    pub generator: Vec<usize>,
    /// The server's.
    pub server: Vec<usize>,
}

impl Placement {
    /// The word that names it.
    pub fn name(self) -> &'static str {
        match self {
            Placement::One => "one",
            Placement::Apart => "apart",
            Placement::Free => "free",
        }
    }

    /// Divides the allowed CPUs between the generator and the server.
    pub fn cpus(self, allowed: &[usize]) -> Cpus {
        let (first, others) = allowed.split_at(allowed.len().min(1));
        let (generator, server) = match self {
            Placement::One => (first, first),
            Placement::Apart if others.is_empty() => (first, first),
            Placement::Apart => (first, others),
            Placement::Free => (allowed, allowed),
        };
        Cpus {
            generator: generator.to_vec(),
            server: server.to_vec(),
        }
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many jobs (connections with `connect`).
    Count(usize),
    /// So many seconds.
    Seconds(f64),
}

/// How a server syncs the binlog that it keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Syncing {
    /// At most so many milliseconds after a change; with 0, before the reply.
    WithinMs(u32),
    /// When the kernel likes.
    Never,
}

impl Syncing {
    /// The server's options for this. They are the same for beanstalkd.
    pub fn options(self) -> String {
        match self {
            Syncing::WithinMs(ms) => format!("-b {{dir}} -f {ms}"),
            Syncing::Never => "-b {dir} -F".into(),
        }
    }
}

/// What keeps the tubes alive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Held {
    /// A connection that watches them.
    Watch,
    /// A ready job in each.
    Job,
}

/// What the clients of a crowd do, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// They put a job.
    Put,
    /// They put a job, reserve one and delete it.
    Cycle,
    /// Half of them put jobs, and the others reserve and delete them.
    Handoff,
}

impl Work {
    /// The word that names it.
    pub fn name(self) -> &'static str {
        match self {
            Work::Put => "put",
            Work::Cycle => "cycle",
            Work::Handoff => "handoff",
        }
    }
}

/// A complete load: all that a scenario needs to know.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is an option, and described in the usage
pub struct Load {
    pub scenario: String,
    pub connections: usize,
    pub depth: usize,
    pub body: usize,
    pub length: Length,
    pub placement: Placement,
    pub sync: Option<Syncing>,
    pub priorities: u32,
    pub producers: usize,
    pub consumers: usize,
    pub tubes: usize,
    pub watched: usize,
    pub held: Held,
    pub due_per_second: u32,
    pub delay: u32,
    pub idle_seconds: f64,
    pub settle_seconds: f64,
    pub rate: Option<Rate>,
    pub busy: usize,
    pub together: bool,
    pub work: Work,
}

impl Load {
    /// A scenario with the values that it has without options.
    pub fn new(scenario: &str) -> Load {
        let (count, connections, depth) = match scenario {
            "put" => (100_000, 1, 1),
            "handoff" | "cycle" | "crowd" | "tubes" => (20_000, 1, 1),
            "connect" => (10_000, 8, 1),
            "ready" | "delayed" => (1_000_000, 1, 1),
            "mature" => (100_000, 1, 64),
            "recovery" => (1_000_000, 1, 100),
            "calls" => (500, 1, 1),
            "timers" => (5, 1, 1),
            _ => (10_000, 10_000, 100),
        };
        Load {
            scenario: scenario.to_string(),
            connections,
            depth,
            body: 100,
            length: Length::Count(count),
            placement: Placement::Free,
            sync: (scenario == "recovery").then_some(Syncing::Never),
            priorities: 1,
            producers: 1,
            consumers: if scenario == "mature" { 64 } else { 2 },
            tubes: 10_000,
            watched: 1,
            held: Held::Watch,
            due_per_second: 300,
            delay: 3,
            idle_seconds: 5.0,
            settle_seconds: 60.0,
            rate: None,
            busy: 0,
            together: false,
            work: Work::Cycle,
        }
    }

    /// The number of jobs, for scenarios that must know it before they begin.
    pub fn count(&self) -> Result<usize, Failure> {
        match self.length {
            Length::Count(count) => Ok(count),
            Length::Seconds(_) => Err(Failure::Usage(format!(
                "{} takes --count, not --seconds",
                self.scenario
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_share_out_the_allowed_cpus() {
        let cpus = |placement: Placement, allowed: &[usize]| {
            let cpus = placement.cpus(allowed);
            (cpus.generator, cpus.server)
        };
        assert_eq!(cpus(Placement::One, &[2, 3, 5]), (vec![2], vec![2]));
        assert_eq!(cpus(Placement::Apart, &[2, 3, 5]), (vec![2], vec![3, 5]));
        assert_eq!(cpus(Placement::Apart, &[2]), (vec![2], vec![2]));
        assert_eq!(cpus(Placement::Free, &[2, 3]), (vec![2, 3], vec![2, 3]));
    }
}
