//! The directory of the binlog: which server may have it, and what waits for
//! it.

use beanpole::binlog::recovery::recover;
use beanpole::binlog::{SyncMode, lock};
use beanpole::engine::{Change, JobFields, StoredJob, StoredState, Time};
use beanpole::protocol::{Body, JobId, Seconds, TubeName};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{User, geteuid, mkfifo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::Port;
use support::{Client, Folder, PROGRAM, Server, as_root, beanstalkd, left_out, patience, run};

/// The status with which the daemon refuses to start, and the last line that it
/// says.
fn failure(directory: &str) -> (i32, String) {
    let (status, _, stderr) = run(["-p", "0", "-b", directory]);
    (status, stderr.lines().last().unwrap_or_default().into())
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_status_10_and_the_reason() {
    let folder = Folder::new();
    let place = |name: &str| {
        let path = folder.join(name);
        fs::create_dir(&path).expect("a new directory");
        path.into_os_string().into_string().expect("letters")
    };
    let missing = format!("{}/missing", folder.text());
    let (used, linked, piped) = (place("used"), place("linked"), place("piped"));
    let server = Server::start(["-b", &used]);
    server.port();
    // Root starts the server, and another user may be able to write to the directory.
    symlink(folder.join("made"), format!("{linked}/lock")).expect("a link");
    let other = Server::start(["-b", &piped]);
    other.port();
    other.stop();
    // Opening a pipe would wait for its other end, and reading it for ever.
    let segment = format!("{piped}/segment.1");
    fs::remove_file(&segment).expect("the first segment");
    mkfifo(&*segment, Mode::S_IRWXU).expect("a pipe");
    let loops = format!("(os error {})", Errno::ELOOP as i32);
    for (directory, reason) in [
        (
            &missing,
            "No such file or directory (os error 2); create it first",
        ),
        (&used, &format!("{used} is locked by another server")),
        (&linked, &loops),
        (&piped, "no regular file"),
    ] {
        let (status, line) = failure(directory);
        assert_eq!(status, 10);
        assert!(
            line.contains(directory.as_str()) && line.contains(reason),
            "{line}"
        );
    }
    assert!(!folder.join("made").exists());
}

#[test]
fn a_directory_in_which_no_file_can_be_created_is_refused() {
    let (is_root, directory) = (geteuid().is_root(), Folder::for_all());
    if is_root && !as_root() {
        return; // root may make files everywhere
    }
    let user = User::from_name("nobody").expect("readable");
    let nobody = user.filter(|_| is_root).map(|user| user.uid.as_raw());
    chown(directory.path(), nobody, None).expect("it is ours");
    let user = nobody.map_or(&[][..], |_| &["-u", "nobody"]);
    let options = [&["-p", "0", "-b", directory.text()], user].concat();
    let daemon = Server::spawn(Command::new(&*PROGRAM).args(&options));
    daemon
        .connect()
        .exchange("put 0 0 1 3\r\njob", "INSERTED 1");
    assert_eq!(daemon.stop().code(), Some(0));
    // Its files can be written to, but there will be no new one.
    chown(directory.path(), nobody.map(|_| 0), None).expect("it is ours");
    let set_mode = |mode| fs::set_permissions(directory.path(), Permissions::from_mode(mode));
    set_mode(0o555).expect("it is ours");
    let (status, _, stderr) = run(options);
    assert_eq!(status, 10, "{stderr}");
    let told = format!(
        "cannot make or remove files in {}: Permission denied",
        directory.text()
    );
    assert!(stderr.contains(&told), "{stderr}");
    set_mode(0o755).expect("it is ours");
}

#[test]
fn jobs_survive_a_restart_in_files_that_only_their_owner_can_read() {
    let directory = Folder::new();
    let daemon = Server::start(["-b", directory.text()]);
    let mut client = daemon.connect();
    client.exchange("put 0 0 1 3\r\njob", "INSERTED 1");
    for file in fs::read_dir(directory.path()).expect("a directory") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{:?}", file.file_name());
    }
    assert_eq!(daemon.stop().code(), Some(0));
    let daemon = Server::start(["-b", directory.text()]);
    let mut client = daemon.connect();
    client.exchange("reserve", "RESERVED 1 3\r\njob");
}

/// As after a rollback in place, or a start by habit.
#[test]
fn beanstalkd_on_our_directory_harms_nothing() {
    let Some(beanstalkd) = beanstalkd() else {
        return left_out("a beanstalkd");
    };
    let directory = Folder::new();
    let files = || {
        let entries = fs::read_dir(directory.path()).expect("a directory");
        let files = entries.map(|entry| entry.expect("a file").file_name());
        let names = files.map(|name| name.into_string().expect("letters"));
        let ours = names.filter(|name| name.starts_with("segment."));
        let read = |name: String| (fs::read(directory.join(&name)).expect("a file"), name);
        ours.map(read).collect::<BTreeSet<_>>()
    };
    let ours = || Server::start(["-b", directory.text(), "-s", "8192", "-z", "5000"]);
    let theirs = || Server::launch(&beanstalkd, ["-b", directory.text(), "-s", "8192"]);
    let server = ours();
    (0..100).for_each(|number| assert!(server.connect().put(format!("{number:0200}")) > 0));
    assert_eq!(server.stop().code(), Some(0));
    let before = files();
    assert!(before.len() > 4);

    let server = theirs();
    let (status, line) = failure(directory.text());
    assert_eq!(status, 10);
    assert!(line.contains("is locked by another server"), "{line}");
    let mut client = server.connect();
    assert_eq!(client.count("current-jobs-ready"), 0);
    for _ in 0..2000 {
        let id = client.put("theirs");
        client.delete(id);
    }
    assert!(client.count("binlog-oldest-index") > 1);
    client.put("left");
    drop(client);
    server.end();
    assert!(files() == before);

    let (status, line) = failure(directory.text());
    assert_eq!(status, 10);
    let told =
        "1 job of beanstalkd (in binlog.*) and a log of ours (segment.*) are in one directory";
    assert!(line.contains(told), "{line}");
    assert!(files() == before);
    // The way out that it names.
    let other = Folder::new();
    let entries = fs::read_dir(directory.path()).expect("a directory");
    let names = entries.map(|entry| entry.expect("a file").file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        if name.starts_with("binlog.") {
            fs::rename(directory.join(&name), other.join(&name)).expect("a file");
        }
    }
    let server = ours();
    assert_eq!(server.connect().count("current-jobs-ready"), 100);
    let server = Server::launch(&beanstalkd, ["-b", other.text()]);
    let found = "FOUND 2001 4\r\nleft";
    server.connect().exchange("peek 2001", found);
}

#[test]
fn a_second_server_waits_without_listening_and_takes_over() {
    let directory = Folder::new();
    let options = ["-b", directory.text()];
    let first = Server::start(options);
    Client::connect(first.port()).exchange("put 0 0 1 3\r\njob", "INSERTED 1");

    let reserved = Port::reserve(0).expect("a port");
    let port = reserved.number;
    let notify = directory.join("notify");
    let manager = UnixDatagram::bind(&notify).expect("a socket");
    let bounded = manager.set_read_timeout(Some(patience()));
    bounded.expect("a socket");
    let mut command = Command::new(&*PROGRAM);
    command
        .args(options)
        .args(["--wait", "-p", &port.to_string()]);
    let second = Server::spawn(command.env("NOTIFY_SOCKET", &notify));
    let waiting = format!("aiting: another server has {} locked", directory.text());
    second.log_line(&waiting);
    let mut status = [0; 1000];
    let count = manager.recv(&mut status).expect("a message");
    assert_eq!(&status[..count], b"STATUS=Recovering jobs");
    let count = manager.recv(&mut status).expect("a message");
    assert_eq!(status[..count], *format!("STATUS=W{waiting}").as_bytes());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    // The second server does not forget that it was told to drain.
    second.signal(Signal::SIGUSR1);
    second.log_line("drain mode: ");

    first.signal(Signal::SIGKILL);
    drop(first);
    assert_eq!(second.port(), port);
    let mut client = Client::connect(port);
    client.exchange("put 0 0 1 3\r\nnew", "DRAINING");
    client.exchange("reserve", "RESERVED 1 3\r\njob");
    let count = manager.recv(&mut status).expect("a message");
    let told = b"READY=1\nSTATUS=Draining: no new jobs are taken";
    assert_eq!(&status[..count], told);
    assert_eq!(second.stop().code(), Some(0));
}

#[test]
fn a_server_that_waits_for_the_directory_can_be_stopped_and_leaves_no_socket() {
    let directory = Folder::new();
    let options = ["-b", directory.text()];
    let first = Server::start(options);
    first.port();
    let (socket, place) = (directory.join("socket"), directory.socket("socket"));
    let second = Server::start(options.into_iter().chain(["--wait", "-l", &place]));
    second.log_line("waiting: another server has");
    assert!(socket.exists());
    assert_eq!(second.stop().code(), Some(0));
    assert!(!socket.exists());
}

/// Puts and deletes jobs until the daemon ends, and returns how.
fn use_up(daemon: Server, port: u16) -> (i32, Vec<String>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    let put = [b"put 0 0 60 3000\r\n".as_slice(), &[b'x'; 3000], b"\r\n"].concat();
    thread::spawn(move || {
        while stream.write_all(&put).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (status, log) = daemon.wait();
    (status.code().expect("no signal ended it"), log)
}

/// A copy of the directory is restored while the server runs.
#[test]
fn a_server_whose_directory_is_replaced_ends_without_touching_the_new_one() {
    let place = Folder::new();
    let (path, old) = (place.path().join("queue"), place.path().join("old"));
    fs::create_dir(&path).expect("room");
    let options = ["-s", "8192", "-b", path.to_str().expect("text")];
    let daemon = Server::start(options);
    let port = daemon.port();
    let mut client = Client::connect(port);
    client.exchange("put 0 0 60 3\r\njob", "INSERTED 1");
    fs::rename(&path, &old).expect("it can be moved");
    let copied = Command::new("cp").arg("-a").args([&old, &path]).status();
    assert!(copied.expect("there is cp").success());
    client.exchange("delete 1", "DELETED");
    let (status, log) = use_up(daemon, port);
    assert_eq!(status, 11, "{log:?}");
    let told = "the directory was moved away or removed, or another one was mounted over it";
    assert!(log.iter().any(|line| line.contains(told)), "{log:?}");
    let daemon = Server::start(options);
    daemon.connect().exchange("reserve", "RESERVED 1 3\r\njob");
}

/// Nothing is acknowledged that no start would find.
#[test]
fn a_server_whose_directory_or_segment_is_removed_or_renamed_ends() {
    let syncs = [&["-f", "0"][..], &["-f", "50"], &["-F"]];
    for (sync, is_all) in syncs
        .iter()
        .flat_map(|sync| [(*sync, true), (*sync, false)])
    {
        let place = Folder::new();
        let path = place.path().join("queue");
        fs::create_dir(&path).expect("room");
        let options = ["-s", "65536", "-b", path.to_str().expect("text")];
        let daemon = Server::start(options.iter().chain(sync).copied());
        let port = daemon.port();
        let mut client = Client::connect(port);
        client.exchange("put 0 0 60 3\r\njob", "INSERTED 1");
        let is_gone = match is_all {
            true => fs::remove_dir_all(&path),
            false => fs::rename(path.join("segment.1"), place.path().join("copy")),
        };
        is_gone.expect("its owner may");
        let (status, log) = if sync == ["-f", "0"] {
            client.exchange("put 0 0 60 3\r\njob", "INTERNAL_ERROR");
            let (status, log) = daemon.wait();
            (status.code().expect("no signal ended it"), log)
        } else {
            use_up(daemon, port)
        };
        assert_eq!(status, 11, "{log:?}");
        assert!(log.iter().any(|line| line.contains("removed")), "{log:?}");
    }
}

/// As an administrator may do who needs room on the disk.
#[test]
fn any_prepared_segment_may_be_removed_below_a_server_or_be_impossible_to_open() {
    let directory = Folder::new();
    let options = ["-s", "8192", "-z", "5000", "-b", directory.text()];
    let (mut client, mut jobs) = (None, 0);
    for _ in 0..2 {
        let server = Server::start(options);
        for _ in 0..2 {
            let client = client.insert(Client::connect(server.port()));
            for _ in 0..10 {
                jobs += 1;
                let body = "x".repeat(3000);
                client.exchange(
                    &format!("put 0 0 60 3000\r\n{body}"),
                    &format!("INSERTED {jobs}"),
                );
            }
            let names = fs::read_dir(directory.path()).expect("it is ours");
            let paths = names.map(|entry| entry.expect("its name").path());
            let is_prepared = |path: &PathBuf| path.to_string_lossy().contains("spare");
            let prepared = paths.filter(|path| is_prepared(path) && path.is_file());
            let removed = prepared.map(|path| fs::remove_file(path).expect("it can be removed"));
            assert!(removed.count() >= 1);
        }
        drop(server);
        // The next ones prepared get other names.
        for slot in 20..40 {
            fs::create_dir(directory.path().join(format!("segment.spare{slot}"))).ok();
        }
    }
    let server = Server::start(options);
    server.log_line("left alone, since it is not needed: cannot remove segment.spare20");
    let mut client = server.connect();
    client.exchange(&format!("peek {jobs}"), &format!("FOUND {jobs} 3000"));
}

#[test]
fn removing_the_lock_file_admits_no_second_server() {
    let directory = Folder::new();
    let first = Server::start(["-s", "8192", "-b", directory.text()]);
    let port = first.port();
    fs::remove_file(directory.join("lock")).expect("it is there");
    let (status, line) = failure(directory.text());
    assert_eq!(status, 10);
    assert!(line.contains("is locked by another server"), "{line}");
    // beanstalkd looks at this file alone. So the first server may not go on.
    let (status, log) = use_up(first, port);
    assert_eq!(status, 11, "{log:?}");
    let told = "its file lock was removed";
    assert!(log.iter().any(|line| line.contains(told)), "{log:?}");
}

/// As on a machine without a clock of its own, before the network has set it.
#[test]
fn a_clock_that_is_behind_is_reported_and_makes_no_delay_longer() {
    let directory = Folder::new();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let tomorrow = Time::default() + now + Seconds(86_400);
    let job = StoredJob {
        fields: JobFields {
            id: JobId(1),
            delay: Seconds(1),
            ttr: Seconds(60),
            created_at: tomorrow,
            state: StoredState::Delayed {
                until: tomorrow + Seconds(1),
            },
            ..JobFields::default()
        },
        tube: TubeName::default(),
        options: None,
        body: Body::new(b"job"),
    };
    let jobs = BTreeMap::from([(JobId(1), job)]);
    let (storage, _) = lock(directory.path(), false).unwrap_or_else(|error| panic!("{error}"));
    let opened = recover(storage, SyncMode::Never, 4096, &mut BTreeMap::new());
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    opened.binlog.append(&[Change::Put(JobId(1))], &jobs);
    opened.binlog.close().expect("it is kept");
    drop(opened);
    // Another test may have started a process at this moment, which has a copy of our lock
    // until it begins its program.
    let daemon = Server::start(["-b", directory.text(), "--wait"]);
    daemon.log_line("s behind the newest change in the binlog");
    let mut client = daemon.connect();
    client.exchange("reserve-with-timeout 50", "RESERVED 1 3\r\njob");
}
