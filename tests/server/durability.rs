//! The whole server keeps the promises of the binlog.

use std::process::Command;
use support::{Client, Folder, Resource, Server, as_root, eventually, run_command};

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
