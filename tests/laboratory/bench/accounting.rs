//! What a process has cost so far, as the kernel counts it.
//!
//! CPU time is that of the process's own CPU clock: user and system time of all
//! its threads, in nanoseconds. Threads that have ended are included.
//! (`/proc/PID/stat` has the same in ticks of 10 ms, split by sampling.
//! `task/*/schedstat` forgets threads that have ended.) The shares of user and
//! system time are taken from the ticks. The kernel counts context switches per
//! thread only, so those of threads that ended during the measurement are
//! missing. Resident memory is summed over the page tables (`smaps_rollup`),
//! because the counters behind `VmRSS` are late by some pages for each CPU.
//!
//! Over loopback the kernel delivers a packet in the sender's time. So the
//! server pays for a reply until the generator is woken, and the generator pays
//! for a request until the server is woken.

use companion::failure::Failure;
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// What a process has cost since it began.
pub struct Usage {
    cpu: Duration,
    user_ticks: u64,
    system_ticks: u64,
    switches: HashMap<String, [u64; 2]>,
}

/// What a process cost between two moments.
pub struct Spent {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// The system's share of the CPU time, 0 to 1. It is coarse, because it is
    /// taken from the ticks.
    pub system_share: f64,
    /// Context switches because a thread had to wait.
    pub voluntary: u64,
    /// Context switches because another had to run.
    pub involuntary: u64,
}

impl Usage {
    /// Reads the state now, at the beginning of a measurement.
    pub fn before(pid: Pid) -> Result<Usage, Failure> {
        let switches = switches(pid)?;
        let (user_ticks, system_ticks) = ticks(pid)?;
        // The clock is read last, so that reading the rest is not counted.
        let cpu = cpu_time(pid)?;
        Ok(Usage {
            cpu,
            user_ticks,
            system_ticks,
            switches,
        })
    }

    /// What was spent from then until now.
    pub fn spent(&self, pid: Pid) -> Result<Spent, Failure> {
        // The clock is read first, for the same reason.
        let cpu = cpu_time(pid)?;
        let (user_ticks, system_ticks) = ticks(pid)?;
        let user = user_ticks.saturating_sub(self.user_ticks);
        let system = system_ticks.saturating_sub(self.system_ticks);
        let mut spent = Spent {
            cpu: cpu.saturating_sub(self.cpu),
            system_share: system as f64 / (user + system).max(1) as f64,
            voluntary: 0,
            involuntary: 0,
        };
        for (thread, now) in switches(pid)? {
            let then = self.switches.get(&thread).copied().unwrap_or_default();
            spent.voluntary += now[0].saturating_sub(then[0]);
            spent.involuntary += now[1].saturating_sub(then[1]);
        }
        Ok(spent)
    }
}

/// CPU time of a process: user and system time of all threads, those that have
/// ended included.
pub fn cpu_time(pid: Pid) -> Result<Duration, Failure> {
    let now = ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now);
    Ok(now
        .map_err(Failure::of(format!(
            "reading the CPU clock of process {pid}"
        )))?
        .into())
}

/// Resident memory in bytes.
pub fn resident(pid: Pid) -> Result<u64, Failure> {
    let rollup = format!("/proc/{pid}/smaps_rollup");
    let status = format!("/proc/{pid}/status");
    let kilobytes = match fs::read_to_string(rollup) {
        Ok(text) => field(&text, "Rss:"),
        Err(_) => field(&read(&status)?, "VmRSS:"),
    };
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| unreadable(&status))
}

/// The most that resident memory has been, in bytes.
pub fn peak(pid: Pid) -> Result<u64, Failure> {
    let status = format!("/proc/{pid}/status");
    let kilobytes = field(&read(&status)?, "VmHWM:");
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| unreadable(&status))
}

/// How many threads a process has.
pub fn threads(pid: Pid) -> Result<u64, Failure> {
    let status = format!("/proc/{pid}/status");
    field(&read(&status)?, "Threads:").ok_or_else(|| unreadable(&status))
}

/// User and system time in ticks.
fn ticks(pid: Pid) -> Result<(u64, u64), Failure> {
    let path = format!("/proc/{pid}/stat");
    ticks_in(&read(&path)?).ok_or_else(|| unreadable(&path))
}

/// Takes fields 14 and 15 from the text of `/proc/PID/stat`. It counts from
/// behind the name, because the name may have any bytes.
fn ticks_in(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Voluntary and involuntary context switches of each living thread.
fn switches(pid: Pid) -> Result<HashMap<String, [u64; 2]>, Failure> {
    let path = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&path).map_err(Failure::of(format!("reading {path}")))?;
    let mut switches = HashMap::new();
    for task in tasks.flatten() {
        // A thread may end between the listing and the reading.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let voluntary = field(&status, "voluntary_ctxt_switches:");
        let involuntary = field(&status, "nonvoluntary_ctxt_switches:");
        if let (Some(voluntary), Some(involuntary)) = (voluntary, involuntary) {
            let thread = task.file_name().to_string_lossy().into_owned();
            switches.insert(thread, [voluntary, involuntary]);
        }
    }
    Ok(switches)
}

/// The number in the line that begins with this key.
fn field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(Failure::of(format!("reading {path}")))
}

fn unreadable(path: &str) -> Failure {
    Failure::Refused(format!("{path} is not in the form that is known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 134 0 0 0 250 61 0 0 20 0 1 0 100";
        assert_eq!(ticks_in(stat), Some((250, 61)));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_key() {
        let status = "Threads:\t3\nnonvoluntary_ctxt_switches:\t5\nvoluntary_ctxt_switches:\t9\n";
        assert_eq!(field(status, "Threads:"), Some(3));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(9));
        assert_eq!(field(status, "VmRSS:"), None);
    }

    #[test]
    fn cpu_time_of_threads_that_ended_is_counted() {
        let before = Usage::before(Pid::this()).unwrap();
        let burnt = std::thread::spawn(|| {
            let began = cpu_time(Pid::this()).unwrap();
            while cpu_time(Pid::this()).unwrap() - began < Duration::from_millis(5) {}
        });
        burnt.join().unwrap();
        let spent = before.spent(Pid::this()).unwrap();
        assert!(spent.cpu >= Duration::from_millis(5));
        assert!(resident(Pid::this()).unwrap() > 100_000);
        assert!(peak(Pid::this()).unwrap() > 100_000);
        assert!(threads(Pid::this()).unwrap() >= 1);
    }
}
