//! What a process holds of the machine: memory, threads and descriptors, now
//! and at the worst moment. It is read from `/proc` while the attack goes on.

use nix::unistd::Pid;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Held {
    /// What the process holds now; `None` if it is gone.
    pub fn by(pid: Pid) -> Option<Held> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // A process that has ended and that nobody has waited for has no
        // memory.
        Some(Held {
            memory: field("VmRSS:")? * 1024,
            threads: field("Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        })
    }

    fn at_most(self, other: Held) -> Held {
        Held {
            memory: self.memory.max(other.memory),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }

    /// Waits until the process holds no more than `calm`, or until this moment.
    /// Returns what it holds then.
    pub fn once_calm(pid: Pid, calm: Held, until: Instant) -> Option<Held> {
        loop {
            let held = Held::by(pid)?;
            if held.at_most(calm) == calm || Instant::now() > until {
                return Some(held);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Does this, and also returns the most that the process held meanwhile.
pub fn peak_while<T>(pid: Pid, doing: impl FnOnce() -> T) -> (T, Held) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = Held::by(pid).unwrap_or_default();
            while !done.load(Ordering::Relaxed) {
                // Counting the descriptors takes long if there are many.
                let began = Instant::now();
                peak = peak.at_most(Held::by(pid).unwrap_or_default());
                thread::sleep(began.elapsed().max(Duration::from_millis(5)));
            }
            peak
        });
        let result = doing();
        done.store(true, Ordering::Relaxed);
        let mut peak = watcher.join().expect("the watcher does not panic");
        // The kernel has noted the peak of memory, even between two looks.
        peak.memory = peak.memory.max(peak_memory(pid).unwrap_or(0));
        (result, peak)
    })
}

fn peak_memory(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
