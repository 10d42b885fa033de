//! Every job is delivered, and to one client only.

use std::thread;
use support::Server;
use support::{Client, Random, put};

const TUBES: [&str; 3] = ["a", "b", "c"];

/// A put whose job tells a consumer to stop. It has the lowest priority, so it
/// comes after all other jobs.
const END: &str = "use a\r\nput 4294967295 0 1000 3\r\nend\r\n";

fn watch(client: &mut Client) {
    for (index, tube) in TUBES.iter().enumerate() {
        let watching = format!("WATCHING {}", index + 2);
        assert_eq!(client.ask(&format!("watch {tube}")), watching);
    }
}

#[test]
fn every_job_is_delivered_exactly_once_though_clients_vanish() {
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
        let mut client = server.connect();
        for _ in 0..CONSUMERS {
            client.send(END);
            client.expect("USING a\r\n");
            client.inserted();
        }
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

/// Puts jobs, each into a random tube. Now and then its client vanishes in the middle
/// of another put.
fn produce_and_vanish(server: &Server, number: usize, jobs: usize) {
    let mut random = Random::new(number as u64);
    let mut client = server.connect();
    for job in 0..jobs {
        let tube = TUBES[random.below(TUBES.len())];
        assert_eq!(client.ask(&format!("use {tube}")), format!("USING {tube}"));
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
