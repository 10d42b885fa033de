//! Every job is delivered, and to one client only.

use std::collections::BTreeSet;
use std::thread;
use support::Server;
use support::{Client, Random, put};

const TUBES: [&str; 3] = ["a", "b", "c"];

/// A put whose job tells a consumer to stop. It has the lowest priority, so it
/// comes after all other jobs.
const END: &str = "use a\r\nput 4294967295 0 1000 3\r\nend\r\n";

#[test]
fn every_job_is_delivered_exactly_once() {
    const PRODUCERS: usize = 4;
    const CONSUMERS: usize = 8;
    const JOBS: usize = 1000;
    let server = &Server::start([]);
    let delivered = thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|_| scope.spawn(|| consume(server.connect())))
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| scope.spawn(move || produce(server.connect(), number, JOBS)))
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        send_home(server, CONSUMERS);
        let delivered = consumers.into_iter().map(|one| one.join().unwrap());
        delivered.collect::<Vec<_>>().concat()
    });
    let unique: BTreeSet<_> = delivered.iter().cloned().collect();
    assert_eq!(delivered.len(), PRODUCERS * JOBS);
    assert_eq!(unique.len(), PRODUCERS * JOBS);
    assert_eq!(
        server.stat("total-jobs"),
        (PRODUCERS * JOBS + CONSUMERS).to_string()
    );
    for state in ["ready", "reserved", "delayed", "buried"] {
        assert_eq!(server.stat(&format!("current-jobs-{state}")), "0");
    }
}

/// Puts jobs in bursts, each job into a random tube.
fn produce(mut client: Client, number: usize, jobs: usize) {
    let mut random = Random::new(number as u64);
    let mut next = 0;
    while next < jobs {
        let burst = (next + 1 + random.below(20)).min(jobs);
        let tube = TUBES[random.below(TUBES.len())];
        assert_eq!(client.ask(&format!("use {tube}")), format!("USING {tube}"));
        let body = |job| format!("{number} {job}").into_bytes();
        let puts: Vec<_> = (next..burst).map(|job| put(&body(job))).collect();
        client.send(puts.concat());
        for _ in next..burst {
            client.inserted();
        }
        next = burst;
    }
}

/// Reserves and deletes jobs of all tubes, until a job tells it to stop.
fn consume(mut client: Client) -> Vec<Vec<u8>> {
    watch(&mut client);
    let mut bodies = Vec::new();
    loop {
        let job = client.reserve();
        client.delete(job.id);
        if job.body == b"end" {
            return bodies;
        }
        bodies.push(job.body);
    }
}

fn watch(client: &mut Client) {
    for (index, tube) in TUBES.iter().enumerate() {
        let watching = format!("WATCHING {}", index + 2);
        assert_eq!(client.ask(&format!("watch {tube}")), watching);
    }
}

fn send_home(server: &Server, consumers: usize) {
    let mut client = server.connect();
    for _ in 0..consumers {
        client.send(END);
        client.expect("USING a\r\n");
        client.inserted();
    }
}

#[test]
fn nothing_is_lost_when_clients_vanish() {
    const PRODUCERS: usize = 3;
    const CONSUMERS: usize = 8;
    const JOBS: usize = 300;
    let server = &Server::start([]);
    let mut delivered = thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| scope.spawn(move || consume_and_vanish(server, number)))
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| scope.spawn(move || produce_and_vanish(server, number, JOBS)))
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        send_home(server, CONSUMERS);
        let delivered = consumers.into_iter().map(|one| one.join().unwrap());
        delivered.collect::<Vec<_>>().concat()
    });
    // The last clients that have vanished may have left jobs behind.
    let mut client = server.connect();
    server.await_stat("current-connections", 2);
    assert_eq!(client.stat("current-jobs-reserved"), "0");
    watch(&mut client);
    for _ in 0..client.stat("current-jobs-ready").parse().unwrap() {
        let job = client.reserve();
        client.delete(job.id);
        delivered.push(job.body);
    }
    let all = (0..PRODUCERS).flat_map(|one| (0..JOBS).map(move |job| format!("{one} {job}")));
    let mut all: Vec<_> = all.map(String::into_bytes).collect();
    all.sort();
    delivered.sort();
    assert_eq!(delivered, all);
}

/// Puts jobs. Now and then its client vanishes in the middle of another put.
fn produce_and_vanish(server: &Server, number: usize, jobs: usize) {
    let mut random = Random::new(number as u64);
    let mut client = server.connect();
    for job in 0..jobs {
        client.put(format!("{number} {job}"));
        let size = match random.below(20) {
            0 => 10,
            1 => 30_000,
            _ => continue,
        };
        let half = put(&random.bytes(size));
        client.send(&half[..half.len() / 2]);
        leave(client, &mut random);
        client = server.connect();
    }
}

/// Deletes some of the jobs that it reserves. Then its client vanishes: while
/// it holds a job, while it waits, or while commands of it are not yet
/// executed.
fn consume_and_vanish(server: &Server, number: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(1000 + number as u64);
    let mut bodies = Vec::new();
    loop {
        let mut client = server.connect();
        watch(&mut client);
        for _ in 0..random.below(10) {
            let job = client.reserve();
            client.delete(job.id);
            if job.body == b"end" {
                return bodies;
            }
            bodies.push(job.body);
        }
        match random.below(4) {
            0 => {
                let job = client.reserve();
                if job.body == b"end" {
                    client.delete(job.id);
                    return bodies;
                }
            }
            1 => client.send("reserve\r\nreserve\r\n"),
            2 => client.send("reserve\r\n".repeat(30) + &"stats\r\n".repeat(3000)),
            _ => client.send_no_more(),
        }
        leave(client, &mut random);
    }
}

fn leave(client: Client, random: &mut Random) {
    match random.below(2) {
        0 => client.vanish(),
        _ => drop(client),
    }
}
