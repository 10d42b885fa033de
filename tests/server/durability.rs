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

/// The answer to a command. `None` if the server has ended.
fn try_ask(client: &mut Client, command: &str) -> Option<String> {
    client.try_send(format!("{command}\r\n")).ok()?;
    Some(client.reply().ok()?.0)
}

/// A job as the server shows it, without times. `None` if there is no such job.
fn job(client: &mut Client, id: u64) -> Option<String> {
    client.send(format!("stats-job {id}\r\n"));
    let (_, stats) = client.reply().expect("an answer");
    let stats = String::from_utf8(stats?).expect("text");
    let of_the_moment = ["age", "time-left", "file"];
    let (moment, facts): (Vec<_>, Vec<_>) = stats.lines().partition(|line| {
        let (key, _) = line.split_once(':').unwrap_or_default();
        of_the_moment.contains(&key)
    });
    assert!(!moment.contains(&"file: 0"), "{stats}");
    client.send(format!("peek {id}\r\n"));
    let body = String::from_utf8(client.job().body).expect("text");
    Some(facts.join("\n").replace('"', "") + "\n" + &body)
}

/// What a client knows of a job: its body, and the states in which it may be,
/// which are that of the last command that was answered, and that of one that was not.
struct Known {
    id: u64,
    body: String,
    states: Vec<Option<&'static str>>,
}

/// Puts jobs and changes each once, until the server has ended.
fn work(mut client: Client, seed: usize, known: &mut Vec<Known>) -> Option<()> {
    for round in seed.. {
        let body = format!("{round}-{}", "x".repeat(round * 37 % 900));
        let put = format!("put 0 0 100 {}\r\n{body}", body.len());
        let inserted = try_ask(&mut client, &put)?;
        let number = inserted.strip_prefix("INSERTED ").map(str::parse);
        let id = number.expect("it is accepted").expect("an id");
        let states = vec![Some("ready")];
        known.push(Known { id, body, states });
        let reserved = try_ask(&mut client, &format!("reserve-job {id}"));
        // A server that is being killed may have cut the connection in the reply.
        reserved.filter(|reply| reply.starts_with("RESERVED"))?;
        let (command, state) = match round % 5 {
            0 => (format!("release {id} 1 0"), Some("ready")),
            1 => (format!("release {id} 1 1000"), Some("delayed")),
            2 => (format!("bury {id} 1"), Some("buried")),
            _ => (format!("delete {id}"), None),
        };
        let states = &mut known.last_mut().expect("it was pushed").states;
        states.push(state);
        try_ask(&mut client, &command)?;
        *states = vec![state];
    }
    Some(())
}

#[test]
fn a_server_killed_under_load_loses_nothing_acknowledged() {
    for sync in [&["-f", "0"][..], &["-f", "50"], &["-F"]] {
        let directory = Folder::new();
        // Few bodies fit into a file, so many begin.
        let short = ["-s", "20000", "-z", "1000"];
        let options = [&["-b", directory.text()], &short[..], sync].concat();
        let mut known: [Vec<Known>; 4] = Default::default();
        for round in 0..4 {
            let daemon = Server::start(options.iter().copied());
            thread::scope(|scope| {
                // If this fails, the server ends here, and then its clients do.
                let daemon = daemon;
                for (number, known) in known.iter_mut().enumerate() {
                    let client = daemon.connect();
                    scope.spawn(move || work(client, number * 100 + round * 13, known));
                }
                let mut client = daemon.connect();
                let written = 300 + 100 * round as u64;
                eventually("much was written", || {
                    client.count("binlog-records-written") > written
                });
                daemon.signal(Signal::SIGKILL);
                daemon.wait();
            });
            let daemon = Server::start(options.iter().copied());
            let mut client = daemon.connect();
            for Known { id, body, states } in known.iter_mut().flatten() {
                let job = job(&mut client, *id);
                states.retain(|state| match (state, &job) {
                    (Some(state), Some(job)) => {
                        job.contains(&format!("state: {state}\n"))
                            && job.ends_with(&format!("\n{body}"))
                    }
                    (state, job) => state.is_none() && job.is_none(),
                });
                assert!(!states.is_empty(), "{sync:?}: job {id} is {job:?}");
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
        let mut client = daemon.connect();
        for id in 1..=3 {
            client.exchange("put 0 0 1 3\r\njob", &format!("INSERTED {id}"));
        }
        daemon.limit(Resource::Fsize, 1, None);
        client.exchange("delete 1", "INTERNAL_ERROR");
        let (status, log) = daemon.wait();
        assert_eq!(status.code(), Some(11));
        let told =
            "the binlog failed: cannot write segment.1 in the binlog directory: File too large";
        let lines = log.iter().filter(|line| line.contains(told));
        assert_eq!(lines.count(), 1, "{log:?}");
        let daemon = Server::start(["-b", directory.text()]);
        let mut client = daemon.connect();
        assert!(client.count("current-jobs-ready") >= 2);
        client.exchange("peek 3", "FOUND 3 3\r\njob");
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

#[test]
fn the_log_says_that_a_refused_job_is_longer_than_the_files_on_a_small_disk() {
    on_a_small_disk(|path| {
        let daemon = Server::start(["-b", path, "-z", "1M"]);
        let mut client = daemon.connect();
        let long = format!("put 0 0 60 500000\r\n{}", "x".repeat(500_000));
        assert_eq!(client.ask(&long), "OUT_OF_MEMORY");
        daemon.log_line("refused: a job longer than a file of the binlog");
        assert!(client.ask("put 0 0 60 1\r\nx").starts_with("INSERTED "));
    });
}

/// Their puts follow lists that they do not read.
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

/// A line of what the server says of a tube.
fn of_tube(client: &mut Client, tube: &str, key: &str) -> Option<String> {
    client.send(format!("stats-tube {tube}\r\n"));
    let (_, stats) = client.reply().expect("an answer");
    let stats = String::from_utf8(stats?).expect("text");
    let line = stats.lines().find_map(|line| line.strip_prefix(key));
    Some(line.expect("the key").to_owned())
}

#[test]
fn a_full_disk_refuses_a_new_pause_and_no_other_one() {
    on_a_small_disk(|path| {
        let start = || Server::start(["-b", path, "-s", "65536"]);
        let server = start();
        let mut client = server.connect();
        let mut count = 0;
        let put = format!("put 0 0 60 1500\r\n{}", "x".repeat(1500));
        while client
            .ask(&format!("use tube-{count}"))
            .starts_with("USING")
            && client.ask(&put).starts_with("INSERTED")
        {
            count += 1;
        }
        assert!(count > 300, "{count}");
        let mut ask = |tube: u32, length| client.ask(&format!("pause-tube tube-{tube} {length}"));
        let refused = (0..count).find(|tube| ask(*tube, 1000) != "PAUSED");
        let refused = refused.expect("there is no room for so many");
        assert!(refused > 0);
        assert_eq!(ask(refused, 1000), "OUT_OF_MEMORY");
        assert_eq!(ask(refused, 0), "PAUSED");
        for tube in 0..refused {
            assert_eq!(ask(tube, 2000), "PAUSED");
        }
        assert_eq!(ask(0, 0), "PAUSED");
        let key = "cmd-pause-tube: ";
        let said = of_tube(&mut client, &format!("tube-{refused}"), key);
        assert_eq!(said.as_deref(), Some("1"), "only the pause of 0 seconds");
        assert_eq!(server.stop().code(), Some(0));
        let server = start();
        let mut client = server.connect();
        for (tube, pause) in [(0, "0"), (1, "2000"), (refused - 1, "2000"), (refused, "0")] {
            let found = of_tube(&mut client, &format!("tube-{tube}"), "pause: ");
            assert_eq!(found.as_deref(), Some(pause), "{tube} of {refused}");
        }
    });
}

/// Makes jobs in all states; returns which there are.
fn live(client: &mut Client) -> Vec<u64> {
    for id in 1..=300 {
        let len = match id {
            // When beanstalkd reads bodies of these lengths, it loses the rest
            // of the file.
            7 => 65534,
            8 => 65535,
            _ => id * 13 % 700,
        };
        let put = format!("put {id} 0 77 {len}\r\n{}", "y".repeat(len));
        client.exchange(&put, &format!("INSERTED {id}"));
        let changes = match id % 6 {
            1 => &["reserve-job ID", "release ID 9 5000"][..],
            2 => &["reserve-job ID", "bury ID 8"],
            3 => &["reserve-job ID", "bury ID 7", "kick-job ID"],
            4 => &["delete ID"],
            _ => &[],
        };
        for change in changes {
            client.send(change.replace("ID", &id.to_string()) + "\r\n");
            client.reply().expect("an answer");
        }
    }
    (1..=300).filter(|id| id % 6 != 4).collect()
}

#[test]
fn jobs_move_from_beanstalkd_and_back() {
    let Some(program) = beanstalkd() else {
        return left_out("a beanstalkd");
    };
    let directory = Folder::new();
    let path = directory.text();
    let theirs = Server::launch(&program, ["-b", path, "-s", "50000"]);
    let mut client = theirs.connect();
    let ids = live(&mut client);
    let jobs: Vec<_> = (1..=300).map(|id| job(&mut client, id)).collect();
    // Only one server can have the directory.
    let (status, _, told) = run_command(Command::new(&*PROGRAM).args(["-p", "0", "-b", path]));
    assert_eq!(status, 10);
    assert!(told.contains("is locked by another server"), "{told}");
    drop(theirs);

    let ours = Server::start(["-b", path]);
    ours.log_line("took over 250 jobs from ");
    let mut client = ours.connect();
    for (id, there) in (1..=300).zip(&jobs) {
        assert_eq!(job(&mut client, id), *there, "job {id}");
    }
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
    let mut jobs = BTreeMap::new();
    let opened = Binlog::open(&options, &mut jobs);
    drop(opened.unwrap_or_else(|error| panic!("{error}")));
    let mut file = theirs::FILE_START.to_vec();
    // beanstalkd would lose the jobs behind the two long ones.
    let is_short = |id: &u64| !(7..=8).contains(id);
    for job in jobs.values().filter(|job| is_short(&job.fields.id.0)) {
        theirs::encode(job, &mut file);
    }
    let back = Folder::new();
    fs::write(back.path().join("binlog.1"), file).expect("there is room");
    let theirs = Server::launch(&program, ["-b", back.text()]);
    for id in ids.into_iter().filter(is_short) {
        let mut client = theirs.connect();
        client.send(format!("peek {id}\r\n"));
        assert_eq!(client.job().id, id);
    }
}
