//! The loads with few commands at a time, which keep much on the server: jobs,
//! connections, a log.

use crate::Load;
use crate::crowd::{Done, micros, put_batch, size};
use crate::report::{Figure, figure};
use crate::server::Server;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::Client;

/// The cost of a command is reported from this number of jobs on.
const FEW: usize = 1000;
/// How many jobs are put or taken together.
const TOGETHER: usize = 100;
/// After this time a server has trimmed the memory of a burst.
const GIVES_BACK: Duration = Duration::from_secs(3);

/// `stock`: fills the server with jobs and, if they are not delayed, drains it. Tells how
/// much memory a job takes beside its body, and how the CPU time of a command grows from
/// a thousand jobs to all of them.
pub fn stock(load: &Load, server: &Server) -> Vec<Figure> {
    assert!(load.count > FEW, "a stock has more than {FEW} jobs");
    let mut stages = vec![FEW];
    let mut count = FEW;
    while count < load.count {
        let next = load.count.min(10 * count);
        stages.push(next - count);
        count = next;
    }
    let mut client = server.enter();
    let empty = server.process.memory();
    let grown = || server.process.memory() as f64 - empty as f64;
    let growth = |costs: &[f64]| costs[costs.len() - 1] / costs[1];

    let costs = costs(server, &stages, |jobs| fill(&mut client, load, jobs));
    let each = grown() / load.count as f64 - load.body as f64;
    let mut figures = vec![
        figure("memory per job beside its body, bytes", each),
        figure("put: growth of CPU per command, times", growth(&costs)),
    ];
    figures.extend(at_rest(load, server));
    if load.delay == 0 {
        stages.reverse();
        let mut last = 0;
        let mut costs = self::costs(server, &stages, |jobs| drain(&mut client, jobs, &mut last));
        costs.reverse();
        figures.push(figure(
            "drain: growth of CPU per command, times",
            growth(&costs),
        ));
        sleep(load.look());
        figures.push(figure("RSS left over, MB", grown() / 1e6));
    }
    figures
}

/// Does this for the jobs of each stage. Returns the CPU time for a job in each.
fn costs(server: &Server, stages: &[usize], mut work: impl FnMut(usize)) -> Vec<f64> {
    let cost = |&jobs: &usize| {
        let before = server.process.cpu_time();
        work(jobs);
        micros(server.process.cpu_time() - before) / jobs as f64
    };
    stages.iter().map(cost).collect()
}

fn fill(client: &mut Client, load: &Load, jobs: usize) {
    for (number, first) in (0..jobs).step_by(TOGETHER).enumerate() {
        let depth = TOGETHER.min(jobs - first);
        let delay = if load.delay > 0 {
            load.delay + number % 1000
        } else {
            0
        };
        let batch = put_batch(
            &Load {
                depth,
                ..load.clone()
            },
            delay,
        );
        let is_right = |line: &str, _: Option<&[u8]>| line.starts_with("INSERTED ");
        Done::default().ask(client, &batch, depth, Instant::now(), is_right);
    }
}

/// Reserves and deletes jobs, which come in the order in which they were put.
fn drain(client: &mut Client, jobs: usize, last: &mut u64) {
    for first in (0..jobs).step_by(TOGETHER) {
        let count = TOGETHER.min(jobs - first);
        client.send("reserve\r\n".repeat(count));
        let mut deletes = String::new();
        for _ in 0..count {
            let job = client.job();
            assert!(job.id > *last, "job {} came after job {last}", job.id);
            *last = job.id;
            deletes += &format!("delete {}\r\n", job.id);
        }
        client.send(deletes);
        client.expect(&"DELETED\r\n".repeat(count));
    }
}

/// What the server does while no client asks for anything.
fn at_rest(load: &Load, server: &Server) -> [Figure; 2] {
    sleep(GIVES_BACK);
    let sleeps = || {
        support::until("the server rests", || {
            server.process.sleeps().expect("it runs")
        })
    };
    let (cpu, switches) = (server.process.cpu_time(), sleeps());
    sleep(load.look());
    let cpu = micros(server.process.cpu_time() - cpu) / 1000.0;
    let switches = (sleeps() - switches) as f64;
    [
        figure("idle CPU, ms/s", cpu / load.look),
        figure("idle switches, 1/s", switches / load.look),
    ]
}

/// `idle`: many clients wait in `reserve`; then there is a job for each.
pub fn idle(load: &Load, server: &Server) -> Vec<Figure> {
    let mut producer = server.enter();
    let (empty, begun) = (server.process.memory() as f64, Instant::now());
    let mut clients: Vec<Client> = (0..load.clients).map(|_| server.enter()).collect();
    let accepted = micros(begun.elapsed()) / 1000.0;
    clients
        .iter_mut()
        .for_each(|client| client.send("reserve\r\n"));
    server.process.await_stat("current-waiting", load.clients);
    let each = (server.process.memory() as f64 - empty) / load.clients as f64;
    let mut figures = vec![
        figure("all accepted after, ms", accepted),
        figure("RSS per connection, kB", each / 1000.0),
    ];
    figures.extend(size(server));
    figures.extend(at_rest(load, server));
    let begun = Instant::now();
    fill(
        &mut producer,
        &Load {
            delay: 0,
            ..load.clone()
        },
        load.clients,
    );
    for client in &mut clients {
        client.job();
    }
    let served = micros(begun.elapsed()) / 1000.0;
    figures.push(figure("each has its job after, ms", served));
    figures
}

/// `recovery`: how soon a server with jobs in its log answers after a start, and how
/// much memory and disk that takes. The files are still in the kernel's cache, so the
/// work of the server alone is measured.
pub fn recovery(load: &Load, server: Server) -> Vec<Figure> {
    fill(&mut server.enter(), load, load.count);
    let (server, ([size, written], begun)) =
        server.restart(|folder| (log_size(&folder.join("log")), Instant::now()));
    let took = begun.elapsed();
    let ready = server.process.connect().count("current-jobs-ready");
    assert_eq!(ready, load.count as u64, "jobs after the restart");
    let [now, peak] = ["VmRSS", "VmHWM"].map(|key| server.process.size(key) as f64);
    let each = |bytes: u64| bytes as f64 / load.count as f64;
    vec![
        figure("answers after, s", took.as_secs_f64()),
        figure("RSS, MB", now / 1e6),
        figure("peak RSS by RSS, times", peak / now),
        figure("log per job, bytes", each(size)),
        figure("of it written, bytes", each(written)),
    ]
}

/// The size of all files of a log, and that without the zeros at their ends, which are
/// prepared for what will be written there.
fn log_size(folder: &Path) -> [u64; 2] {
    let mut sizes = [0, 0];
    for entry in fs::read_dir(folder).expect("the log's folder") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
        let last = bytes.iter().rposition(|byte| *byte != 0);
        sizes[0] += bytes.len() as u64;
        sizes[1] += last.map_or(0, |last| last as u64 + 1);
    }
    sizes
}
