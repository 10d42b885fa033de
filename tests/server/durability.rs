//! The whole server keeps the promises of the binlog.

use std::process::Command;
use support::{Folder, Resource, Server, as_root, run_command};

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
