//! `crowd`: each client is a thread that waits for one socket.

use crate::report::{Figure, figure};
use crate::server::{Server, TUBE};
use crate::{Load, Work};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use support::{Client, Random};

/// Lets the clients work, and counts the jobs that they leave behind.
pub fn run(load: &Load, server: &Server) -> Vec<Figure> {
    assert!(
        load.work != Work::Handoff || load.clients.is_multiple_of(2),
        "handoff takes an even number of clients"
    );
    let mut control = server.process.connect();
    let mut clients: Vec<Client> = (0..load.clients).map(|_| server.enter()).collect();
    let mut holder = server.process.connect();
    let mut alone = None;
    if load.tubes > 0 {
        let few = Load {
            count: load.count.div_ceil(4),
            ..load.clone()
        };
        // The first run is no measure: the server's caches are cold.
        work(&few, server, &mut clients);
        alone = Some(work(&few, server, &mut clients).cpu_per_command());
        hold_tubes(&mut holder, load.tubes);
    }
    let ready = control.count("current-jobs-ready");
    let calls = server.calls();
    let done = work(load, server, &mut clients);
    let calls = server.calls() - calls;
    let left = control.count("current-jobs-ready") + done.taken;
    assert_eq!(left, ready + done.put, "jobs left and taken, jobs put");
    let mut figures = done.figures();
    figures.extend(size(server));
    if let Some(alone) = alone {
        let growth = done.cpu_per_command() / alone;
        figures.push(figure("growth of CPU with the tubes, times", growth));
    }
    if load.calls.is_some() {
        let each = calls as f64 / done.batches as f64;
        figures.push(figure("system calls per batch", each));
    }
    figures
}

/// Creates this number of tubes.
fn hold_tubes(holder: &mut Client, tubes: usize) {
    for tube in 0..tubes {
        holder.exchange(
            &format!("watch {TUBE}-{tube}"),
            &format!("WATCHING {}", tube + 2),
        );
    }
}

/// Memory and threads of the server now.
pub fn size(server: &Server) -> [Figure; 2] {
    let threads = server.process.status("Threads").parse();
    [
        figure("RSS, MB", server.process.memory() as f64 / 1e6),
        figure("threads", threads.expect("a number")),
    ]
}

/// What was done in a time, by one client or by all.
#[derive(Default)]
pub struct Done {
    pub put: u64,
    pub taken: u64,
    /// How many writes had commands in them.
    pub batches: u64,
    latencies: Vec<Duration>,
    wall: Duration,
    cpu: Duration,
}

impl Done {
    pub fn cpu_per_command(&self) -> f64 {
        micros(self.cpu) / self.latencies.len() as f64
    }

    pub fn figures(&self) -> Vec<Figure> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let quantile = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            micros(sorted[rank.clamp(1, sorted.len()) - 1])
        };
        let throughput = sorted.len() as f64 / self.wall.as_secs_f64();
        vec![
            figure("throughput, commands/s", throughput),
            figure("CPU per command, us", self.cpu_per_command()),
            figure("p50, us", quantile(0.5)),
            figure("p99, us", quantile(0.99)),
            figure("p99.9, us", quantile(0.999)),
            figure("longest, us", quantile(1.0)),
        ]
    }

    /// Sends a batch of commands, and notes how long each reply took since then.
    /// Returns the lines of the replies, which `is_right` judges with their bodies.
    pub fn ask(
        &mut self,
        client: &mut Client,
        batch: &[u8],
        count: usize,
        since: Instant,
        is_right: impl Fn(&str, Option<&[u8]>) -> bool,
    ) -> Vec<String> {
        client.send(batch);
        self.batches += 1;
        let mut reply = || {
            let (line, body) = client.reply().expect("a reply");
            assert!(is_right(&line, body.as_deref()), "wrong: {line}");
            self.latencies.push(since.elapsed());
            line
        };
        (0..count).map(|_| reply()).collect()
    }
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Lets all clients do their part of the load at the same time.
pub fn work(load: &Load, server: &Server, clients: &mut [Client]) -> Done {
    let (cpu, begun) = (server.process.cpu_time(), Instant::now());
    let parts: Vec<Done> = thread::scope(|scope| {
        let start = |(number, client)| scope.spawn(move || part(load, server, number, client));
        let threads: Vec<_> = clients.iter_mut().enumerate().map(start).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|done| done.expect("a client with right replies"))
            .collect()
    });
    let mut all = Done {
        wall: begun.elapsed(),
        cpu: server.process.cpu_time() - cpu,
        ..Done::default()
    };
    for part in parts {
        all.put += part.put;
        all.taken += part.taken;
        all.batches += part.batches;
        all.latencies.extend(part.latencies);
    }
    all
}

/// What one client does.
fn part(load: &Load, server: &Server, number: usize, client: &mut Client) -> Done {
    let is_even = number.is_multiple_of(2);
    let (puts, takes, workers) = match load.work {
        Work::Put | Work::Connect => (true, false, load.clients),
        Work::Cycle => (true, true, load.clients),
        Work::Handoff => (is_even, !is_even, load.clients / 2),
    };
    let put = put_batch(load, 0);
    let body = vec![b'x'; load.body];
    // When the time is over, no client may be left waiting for a job.
    let reserve = b"reserve-with-timeout 1\r\n".repeat(load.depth);
    let mut left = match load.seconds {
        Some(_) => usize::MAX,
        None => load.count.div_ceil(workers).next_multiple_of(load.depth),
    };
    let end = load
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let mut pace = Pace::new(load, workers, number);
    let mut done = Done::default();
    while left > 0 {
        let due = pace.next();
        if end.is_some_and(|end| due >= end) {
            break;
        }
        let mut jobs = load.depth;
        if load.work == Work::Connect {
            *client = server.process.connect();
        }
        if puts {
            done.ask(client, &put, load.depth, due, |line, _| {
                line.starts_with("INSERTED ")
            });
            done.put += load.depth as u64;
        }
        if takes {
            let since = if puts { Instant::now() } else { due };
            let replies = done.ask(client, &reserve, load.depth, since, |line, job| {
                line == "TIMED_OUT" || job == Some(&body)
            });
            let ids = replies.iter().filter_map(|line| line.split(' ').nth(1));
            let deletes: Vec<String> = ids.map(|id| format!("delete {id}\r\n")).collect();
            jobs = deletes.len();
            let (batch, now) = (deletes.concat(), Instant::now());
            done.ask(client, batch.as_bytes(), jobs, now, |line, _| {
                line == "DELETED"
            });
            done.taken += jobs as u64;
        }
        left -= jobs;
    }
    done
}

/// The puts of a batch.
pub fn put_batch(load: &Load, delay: usize) -> Vec<u8> {
    let line = format!("put 0 {delay} 60 {}\r\n", load.body);
    [line.as_bytes(), &vec![b'x'; load.body], b"\r\n"]
        .concat()
        .repeat(load.depth)
}

/// When the work of a client is due: with a rate at random moments, as if many
/// independent users asked for it; else as soon as the work before it is done.
struct Pace {
    mean: Option<Duration>,
    due: Instant,
    random: Random,
}

impl Pace {
    fn new(load: &Load, workers: usize, number: usize) -> Pace {
        let mean = |rate| Duration::from_secs_f64((load.depth * workers) as f64 / rate);
        Pace {
            mean: load.rate.map(mean),
            due: Instant::now(),
            random: Random::new(number as u64),
        }
    }

    /// Waits until the next work is due.
    fn next(&mut self) -> Instant {
        let Some(mean) = self.mean else {
            return Instant::now();
        };
        // Above 0, so that the logarithm is finite.
        let share = (1 + self.random.below(1_u64 << 53)) as f64 / (1_u64 << 53) as f64;
        self.due += mean.mul_f64(-share.ln());
        sleep(self.due.saturating_duration_since(Instant::now()));
        self.due
    }
}
