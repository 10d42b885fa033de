//! The whole server keeps the promises of the binlog.

use beanpole::binlog::import as theirs;
use beanpole::binlog::{Binlog, Options, SyncMode};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use support::{
    Client, Folder, PROGRAM, Resource, Server, as_root, beanstalkd, eventually, left_out,
    run_command,
};

/// The answer to a command. `None` if the server is gone.
fn try_ask(client: &mut Client, command: &str) -> Option<String> {
    client.try_send(format!("{command}\r\n")).ok()?;
    Some(client.reply().ok()?.0)
}

/// A job as the server shows it. `None` if there is no such job.
fn job(client: &mut Client, id: u64) -> Option<Job> {
    client.send(format!("stats-job {id}\r\n"));
    let (_, stats) = client.reply().expect("an answer");
    let stats = String::from_utf8(stats?).expect("text");
    let field = |name: &str| {
        let mut lines = stats.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).expect("a field").1
    };
    let number = |name| field(name).parse().expect("a number");
    assert!(number("file") > 0);
    client.send(format!("peek {id}\r\n"));
    Some(Job {
        body: String::from_utf8(client.job().body).expect("text"),
        state: field("state").to_owned(),
        pri: number("pri"),
        counters: ["reserves", "timeouts", "releases", "buries", "kicks"].map(number),
    })
}

#[derive(Clone, Debug, PartialEq)]
struct Job {
    body: String,
    state: String,
    pri: u32,
    /// The numbers of reserves, timeouts, releases, buries and kicks.
    counters: [u32; 5],
}

/// What a client knows of its jobs. For each job it has the states in which the
/// job may be: the one that was acknowledged, and others if the last command
/// got no answer.
#[derive(Default)]
struct Known {
    jobs: Vec<(u64, Vec<Option<Job>>)>,
}

/// Puts jobs and changes them in all ways, until the server is gone.
fn work(mut talk: Client, seed: usize, known: &mut Known) -> Option<()> {
    for round in seed.. {
        let body = format!("{round}-{}", "x".repeat(round * 37 % 900));
        let put = format!("put {round} 0 100 {}\r\n{body}", body.len());
        let answer = try_ask(&mut talk, &put)?;
        let id = answer.strip_prefix("INSERTED ").expect("it is accepted");
        let mut job = Job {
            body,
            state: "ready".into(),
            pri: u32::try_from(round).expect("few"),
            counters: [0; 5],
        };
        known
            .jobs
            .push((id.parse().expect("an id"), vec![Some(job.clone())]));
        let mut may_be = |job: Option<&Job>, acknowledged: bool| {
            let (_, states) = known.jobs.last_mut().expect("it was pushed");
            if acknowledged {
                states.clear();
            }
            states.push(job.cloned());
        };
        for step in 0..round % 5 {
            job.counters[0] += 1;
            may_be(Some(&job), false); // a reservation promises nothing
            try_ask(&mut talk, &format!("reserve-job {id}"))
                .filter(|answer| answer.starts_with("RESERVED"))?;
            job.pri += 1;
            let command = match (round + step) % 3 {
                0 => {
                    job.counters[2] += 1;
                    format!("release {id} {} 0", job.pri)
                }
                1 => {
                    (job.state, job.counters[2]) = ("delayed".into(), job.counters[2] + 1);
                    format!("release {id} {} 1000", job.pri)
                }
                _ => {
                    (job.state, job.counters[3]) = ("buried".into(), job.counters[3] + 1);
                    format!("bury {id} {}", job.pri)
                }
            };
            may_be(Some(&job), false);
            try_ask(&mut talk, &command)?;
            may_be(Some(&job), true);
            if job.state != "ready" {
                (job.state, job.counters[4]) = ("ready".into(), job.counters[4] + 1);
                may_be(Some(&job), false);
                try_ask(&mut talk, &format!("kick-job {id}"))?;
                may_be(Some(&job), true);
            }
        }
        if round % 7 > 2 {
            may_be(None, false);
            try_ask(&mut talk, &format!("delete {id}"))?;
            may_be(None, true);
        }
    }
    Some(())
}

#[test]
fn a_server_killed_under_load_loses_nothing_acknowledged() {
    for sync in [&["-f", "0"][..], &["-f", "50"], &["-F"]] {
        let directory = Folder::new();
        let options = ["-b", directory.text(), "-s", "20000"];
        let mut known: Vec<Known> = (0..4).map(|_| Known::default()).collect();
        for round in 0..8 {
            let daemon = Server::start([&options[..], sync].concat());
            let port = daemon.port();
            thread::scope(|scope| {
                for (seed, known) in known.iter_mut().enumerate() {
                    let talk = Client::connect(port);
                    scope.spawn(move || work(talk, seed * 100 + round * 13, known));
                }
                let mut client = Client::connect(port);
                let written = 300 + 100 * round as u64;
                eventually("much was written", || {
                    client.count("binlog-records-written") > written
                });
                daemon.signal(Signal::SIGKILL);
            });
            daemon.wait();
            let daemon = Server::start([&options[..], sync].concat());
            let talk = &mut Client::connect(daemon.port());
            for (id, states) in known.iter_mut().flat_map(|known| &mut known.jobs) {
                let job = job(talk, *id);
                assert!(
                    states.contains(&job),
                    "{sync:?}, job {id}: {job:?} is none of {states:?}"
                );
                *states = vec![job];
            }
            assert_eq!(daemon.stop().code(), Some(0));
        }
    }
}

#[test]
fn a_failed_write_is_not_acknowledged_and_ends_the_server() {
    for sync in ["0", "50"] {
        let directory = Folder::new();
        let options = ["-p", "0", "-s", "65536", "-f", sync, "-b", directory.text()];
        let daemon = Server::start(options);
        let mut client = Client::connect(daemon.port());
        for id in 1..=3 {
            client.exchange("put 0 0 1 3\r\njob", &format!("INSERTED {id}"));
        }
        daemon.limit(Resource::Fsize, 1, None);
        client.exchange("delete 1", "INTERNAL_ERROR");
        let (status, log) = daemon.wait();
        assert_eq!(status.code(), Some(11));
        let told =
            "the binlog failed: cannot write binlog.1 in the binlog directory: File too large";
        let lines = log.iter().filter(|line| line.contains(told));
        assert_eq!(lines.count(), 1, "{log:?}");
        let daemon = Server::start(["-b", directory.text()]);
        let mut client = Client::connect(daemon.port());
        assert!(client.count("current-jobs-ready") >= 2);
        client.exchange("peek 3", "FOUND 3 3\r\njob");
    }
}

#[test]
fn no_client_is_given_a_job_whose_put_is_not_durable() {
    for sync in ["0", "50"] {
        let directory = Folder::new();
        let path = directory.text();
        let options = ["-p", "0", "-s", "65536", "-f", sync, "-b", path];
        let daemon = Server::start(options);
        let port = daemon.port();
        let (mut producer, mut worker) = (Client::connect(port), Client::connect(port));
        worker.send("reserve\r\n");
        eventually("it waits", || producer.count("current-waiting") == 1);
        daemon.limit(Resource::Fsize, 1, None);
        // The job is not shown to anybody either.
        let put_and_list = "put 0 0 1 3\r\njob\r\nlist-jobs 0 1";
        producer.exchange(put_and_list, "INTERNAL_ERROR\r\nINTERNAL_ERROR");
        worker.expect("INTERNAL_ERROR\r\n");
        assert_eq!(daemon.wait().0.code(), Some(11));
    }
}

/// Does this on a disk of 2 MB, if the test runs as root.
fn on_a_small_disk(work: fn(&str)) {
    if !as_root() {
        return;
    }
    let directory = Folder::new();
    let path = directory.text();
    let mount = |arguments: &[&str]| run_command(Command::new("mount").args(arguments)).0;
    assert_eq!(mount(&["-t", "tmpfs", "-o", "size=2m", "tmpfs", path]), 0);
    let result = std::panic::catch_unwind(|| work(path));
    assert_eq!(run_command(Command::new("umount").args(["-l", path])).0, 0);
    result.expect("as it should be");
}

/// Their puts stand behind lists that they do not read.
#[test]
fn clients_that_do_not_read_take_no_room_on_the_disk() {
    on_a_small_disk(|path| {
        let daemon = Server::start(["-b", path, "-s", "65536"]);
        let port = daemon.port();
        let mut talk = Client::connect(port);
        for number in 1..=2000 {
            let watching = format!("WATCHING {}", number + 1);
            assert_eq!(talk.ask(&format!("watch {number:0>200}")), watching);
        }
        let body = "x".repeat(15_000);
        let put = format!("put 0 0 60 15000\r\n{body}\r\n");
        // The first commands let the server's buffer grow, so that the others
        // are read together.
        let first = "use default\r\n".repeat(5000);
        let asked = first + &"list-tubes\r\n".repeat(30) + &put.repeat(3);
        let silent: Vec<Client> = (0..60)
            .map(|_| {
                let mut client = Client::connect(port);
                client.send(&asked);
                client
            })
            .collect();
        let mut watcher = Client::connect(port);
        eventually("each has a list to read", || {
            watcher.count("cmd-list-tubes") >= 60
        });
        for number in 0..50 {
            let answer = talk.ask(put.trim_end());
            assert!(answer.starts_with("INSERTED "), "{number}: {answer}");
        }
        drop(silent);
    });
}

/// Makes jobs in all states, and returns the jobs that must be found
/// afterwards.
fn live(talk: &mut Client, most: usize) -> BTreeMap<u64, Job> {
    let mut jobs = BTreeMap::new();
    for id in 1..=300 {
        let len = match id {
            // When beanstalkd reads bodies of these lengths, it loses the rest
            // of the file.
            7 => 65534,
            8 => 65535,
            _ => id as usize * 13 % 700,
        };
        let body = "y".repeat(len.min(most));
        let put = format!("put {id} 0 77 {}\r\n{body}", body.len());
        assert_eq!(talk.ask(&put), format!("INSERTED {id}"));
        let (mut state, mut pri, mut counters) = ("ready", id, [0; 5]);
        let reserve = |talk: &mut Client| {
            talk.send(format!("reserve-job {id}\r\n"));
            talk.job();
        };
        match id % 6 {
            1 => {
                reserve(talk);
                (state, pri, counters) = ("delayed", id + 1, [1, 0, 1, 0, 0]);
                talk.ask(&format!("release {id} {pri} 5000"));
            }
            2 => {
                reserve(talk);
                (state, pri, counters) = ("buried", id + 2, [1, 0, 0, 1, 0]);
                talk.ask(&format!("bury {id} {pri}"));
            }
            3 => {
                reserve(talk);
                talk.ask(&format!("bury {id} {id}"));
                counters = [1, 0, 0, 1, 1];
                talk.ask(&format!("kick-job {id}"));
            }
            4 => {
                talk.ask(&format!("delete {id}"));
                continue;
            }
            _ => {}
        }
        let (pri, state) = (u32::try_from(pri).expect("few"), state.to_owned());
        let job = Job {
            body,
            state,
            pri,
            counters,
        };
        jobs.insert(id, job);
    }
    jobs
}

fn assert_has(talk: &mut Client, jobs: &BTreeMap<u64, Job>, buried_more: u32) {
    for id in 1..=300 {
        let mut expected = jobs.get(&id).cloned();
        // At its start, beanstalkd counts each buried job as buried once more.
        if let Some(job) = expected.as_mut().filter(|job| job.state == "buried") {
            job.counters[3] += buried_more;
        }
        assert_eq!(job(talk, id), expected, "job {id}");
    }
}

#[test]
fn jobs_move_from_beanstalkd_and_back() {
    let Some(program) = beanstalkd() else {
        return left_out("a beanstalkd");
    };
    let directory = Folder::new();
    let path = directory.text();
    let theirs = Server::launch(&program, ["-b", path, "-s", "50000"]);
    let jobs = live(&mut Client::connect(theirs.port()), 65535);
    // Only one server can have the directory.
    let (status, _, told) = run_command(Command::new(&*PROGRAM).args(["-p", "0", "-b", path]));
    assert_eq!(status, 10);
    assert!(told.contains("is locked by another server"), "{told}");
    drop(theirs);

    let ours = Server::start(["-b", path]);
    ours.log_line("took over 250 jobs from ");
    let mut talk = Client::connect(ours.port());
    assert_has(&mut talk, &jobs, 0);
    assert_eq!(talk.ask("put 0 0 1 1\r\nx"), "INSERTED 301");
    talk.ask("delete 301");
    let refused = Command::new(&program)
        .args(["-p", "0", "-b", path])
        .output();
    assert_eq!(refused.expect("it can be started").status.code(), Some(10));
    assert_eq!(ours.stop().code(), Some(0));

    let options = Options {
        dir: directory.path().to_owned(),
        sync: SyncMode::Never,
        segment_size: Options::SEGMENT_SIZE,
        wait: false,
    };
    let opened = Binlog::open(&options, BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"));
    let mut file = theirs::FILE_START.to_vec();
    // beanstalkd would lose the jobs behind the two long ones.
    let short = opened
        .jobs
        .values()
        .filter(|job| job.body.content().len() < 65534);
    short.for_each(|job| theirs::encode(job, &mut file));
    let back = Folder::new();
    fs::write(back.path().join("binlog.1"), file).expect("there is room");
    let theirs = Server::launch(&program, ["-b", back.text()]);
    let mut jobs = jobs;
    jobs.retain(|_, job| job.body.len() < 65534);
    let mut talk = Client::connect(theirs.port());
    for id in jobs.keys() {
        assert!(
            talk.ask(&format!("peek {id}")).starts_with("FOUND"),
            "job {id}"
        );
        talk = Client::connect(theirs.port());
    }
}
