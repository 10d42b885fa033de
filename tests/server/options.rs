//! The command line: help, version, errors and their statuses.

use nix::errno::Errno;
use std::io::Error;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;
use support::{
    Client, Folder, PROGRAM, Server, as_root, has_ipv6, is_mighty, left_out, run, run_command,
    shell,
};

/// The status with which the daemon ends, and the last line that it says.
fn failure<'a>(options: impl IntoIterator<Item = &'a str>) -> (i32, String) {
    let (status, _, stderr) = run(options);
    (status, in_the_words_of_glibc(&last_word(&stderr)))
}

/// For one error of these tests, musl has other words. The daemon and its tests need not
/// have the same C library.
fn in_the_words_of_glibc(line: &str) -> String {
    line.replace("Address in use", "Address already in use")
}

/// The last line, without the time at its beginning.
fn last_word(stderr: &str) -> String {
    let line = stderr.lines().last().unwrap_or_default();
    line.split_once(' ').expect("a time").1.into()
}

#[test]
fn help_goes_to_stderr_and_the_version_to_stdout() {
    let (status, stdout, stderr) = run(["-h"]);
    assert_eq!((status, stdout.as_str()), (0, ""));
    assert!(stderr.starts_with("Use: beanpoled [OPTIONS]\n"), "{stderr}");
    let release = env!("CARGO_PKG_VERSION");
    let version = format!("beanpoled {release}\n");
    assert_eq!(run(["-v"]), (0, version, String::new()));
}

#[test]
fn a_full_disk_below_the_output_changes_no_status() {
    for (option, status) in [("-v", 0), ("-h", 0), ("-x", 5)] {
        let full = || std::fs::File::create("/dev/full").expect("it is always there");
        let mut command = Command::new(&*PROGRAM);
        let run = command.arg(option).stdout(full()).stderr(full()).status();
        assert_eq!(run.expect("a program").code(), Some(status), "{option}");
    }
}

/// A release has its own number after that of the protocol, by which clients find out what
/// they can send.
#[test]
fn stats_show_the_version_of_the_protocol_without_the_number_of_the_release() {
    let release = env!("CARGO_PKG_VERSION");
    let (protocol, _) = release.rsplit_once('.').expect("three numbers");
    assert_eq!(Server::start([]).stat("version"), format!("\"{protocol}\""));
}

#[test]
fn a_wrong_command_line_exits_with_status_5_and_a_line_on_the_usage() {
    for (options, message) in [
        (&["-x"][..], "beanpoled: unknown flag: -x"),
        (&["-p"], "beanpoled: flag requires an argument: -p"),
        (&["serve"], "beanpoled: unknown argument: serve"),
        (&["-z", "big"], "beanpoled: -z: invalid size: big"),
        (&["-z", "-1"], "beanpoled: -z: invalid size: -1"),
        (&["-l", "unix:"], "beanpoled: -l: invalid address: unix:"),
    ] {
        let (status, _, stderr) = run(options.iter().copied());
        let mut lines = stderr.lines();
        assert_eq!((status, lines.next()), (5, Some(message)));
        let hint = "Use: beanpoled [OPTIONS]; beanpoled -h lists them";
        assert_eq!((lines.next(), lines.next()), (Some(hint), None));
    }
}

#[test]
fn a_start_as_an_unknown_user_exits_with_status_33() {
    assert_eq!(
        failure(["-p", "0", "-u", "no-such-user"]),
        (33, "error: -u no-such-user: no such user".into())
    );
}

/// A line of shell that runs the daemon with no more rights than its user has.
fn without_rights() -> Option<&'static str> {
    match is_mighty() {
        true => Some(r#"exec setpriv --bounding-set=-all --inh-caps=-all -- "$0" "$@""#),
        false if nix::unistd::geteuid().is_root() => {
            left_out("root, who may mount");
            None
        }
        false => Some(r#"exec "$0" "$@""#),
    }
}

#[test]
fn a_start_that_may_not_give_the_socket_its_group_says_so_and_leaves_no_file() {
    let Some(line) = without_rights() else { return };
    let group = if is_mighty() { "daemon" } else { "root" };
    let folder = Folder::new();
    let place = folder.socket("socket");
    let options = ["-l", &*place, "--socket-group", group];
    let (status, _, stderr) = run_command(&mut shell(line, options));
    let error = Error::from(Errno::EPERM);
    let message = format!("error: listening on {place}: setting its group: {error}");
    assert_eq!((status, last_word(&stderr)), (111, message));
    assert!(!folder.join("socket").exists());
}

#[test]
fn a_start_as_a_forbidden_user_exits_with_status_34() {
    let Some(line) = without_rights() else { return };
    let user = if is_mighty() { "nobody" } else { "root" };
    let (status, _, stderr) = run_command(&mut shell(line, ["-p", "0", "-u", user]));
    let message = format!(
        "error: -u {user}: becoming the user: {}",
        Error::from(Errno::EPERM)
    );
    assert_eq!((status, last_word(&stderr)), (34, message));
}

/// The daemon with this error instead of a system call, if strace is there.
fn with_error(call: &str, error: &str) -> Option<Command> {
    let tried = Command::new("strace").args(["-qq", "true"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        left_out("strace");
        return None;
    }
    let trace = format!("exec strace -D -f -qq -o /dev/null -e trace={call}");
    let line = format!(r#"{trace} -e inject={call}:error={error}:when=1..3 "$0" "$@""#);
    Some(shell(&line, ["-p", "0"]))
}

#[test]
fn a_start_where_a_container_engine_refuses_clone3_names_the_static_build() {
    if cfg!(target_env = "gnu")
        && let Some(mut command) = with_error("clone3", "EPERM")
    {
        let (status, _, stderr) = run_command(&mut command);
        let message = "error: starting the log: Operation not permitted (os error 1); if an \
            old container engine refuses clone3, take a newer one, or the static build";
        assert_eq!((status, last_word(&stderr)), (1, message.into()));
    }
}

/// accept(2) reports errors of the network that the new connection had.
#[test]
fn listening_goes_on_after_an_error_of_the_network() {
    for error in ["EOPNOTSUPP", "EPROTO", "ENETUNREACH"] {
        let Some(mut command) = with_error("accept4", error) else {
            return;
        };
        let server = Server::spawn(&mut command);
        server.connect().exchange("use a", "USING a");
        assert_eq!(server.stop().code(), Some(0));
    }
}

/// The socket of the one family would take the connections of the other, too.
#[test]
fn all_addresses_of_both_families_can_have_the_same_port() {
    if !as_root() || !has_ipv6() {
        return;
    }
    let line = r#"exec unshare -n "$0" "$@""#;
    let orders = [["0.0.0.0", "::"], ["::", "0.0.0.0"], ["127.0.0.1", "::"]];
    for [first, second] in orders {
        let server = Server::spawn(&mut shell(line, ["-l", first, "-l", second]));
        server.log_line("listening on [::]:11300");
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[test]
fn a_start_at_an_unavailable_address_exits_with_status_111() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = other.local_addr().expect("a port").to_string();
    let port = place.rsplit(':').next().expect("a port");
    let message = in_the_words_of_glibc(&Error::from(Errno::EADDRINUSE).to_string());
    // On the usual port that may be beanstalkd.
    let hint = "stop the other server, perhaps beanstalkd, or choose another port with -p (or does another -l have this one?)";
    assert_eq!(
        failure(["-p", port]),
        (
            111,
            format!("error: listening on {place}: {message}; {hint}")
        )
    );

    let directory = Folder::new();
    let path = directory.join("live");
    let _other = UnixListener::bind(&path).expect("a socket");
    let place = format!("unix:{}", path.display());
    assert_eq!(
        failure(["-l", &place]),
        (111, format!("error: listening on {place}: {message}"))
    );

    let place = directory.socket("socket");
    assert_eq!(
        failure(["-l", &place, "--socket-group", "no-such-group"]),
        (
            111,
            format!("error: listening on {place}: no such group: no-such-group")
        )
    );
}

#[test]
fn a_start_without_threads_exits_with_status_1() {
    // Root may have any number of threads, so as root the daemon becomes
    // another user.
    let user = if nix::unistd::geteuid().is_root() {
        &["-p", "0", "-u", "nobody"][..]
    } else {
        &["-p", "0"]
    };
    let line = r#"ulimit -u 1 2>/dev/null || ulimit -p 1; exec "$0" "$@""#;
    let (status, _, stderr) = run_command(&mut shell(line, user.iter().copied()));
    // Root starts the log's thread before it becomes the user; for others, that
    // is the first thread that is refused.
    let step = if nix::unistd::geteuid().is_root() {
        "hearing signals"
    } else {
        "starting the log"
    };
    let message = format!("error: {step}: {}", Error::from(Errno::EAGAIN));
    assert_eq!((status, last_word(&stderr)), (1, message));
}

#[test]
fn the_server_listens_at_several_addresses_and_logs_them() {
    let directory = Folder::new();
    let (path, place) = (directory.join("socket"), directory.socket("socket"));
    let daemon = Server::start(["-l", "127.0.0.1", "-l", &place, "-l", "localhost"]);
    let port = daemon.port();
    daemon.log_line(&format!("listening on {place}"));
    daemon.log_line("listening on ");
    Client::connect(port).exchange("use a", "USING a");
    Client::connect_unix(&path).exchange("use b", "USING b");
    assert_eq!(daemon.stop().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn the_statistics_show_the_segment_size_that_the_option_gives() {
    let directory = Folder::new();
    for options in [&["-s", "5000"][..], &["-s", "5000", "-b", directory.text()]] {
        let daemon = Server::start(options.iter().copied());
        assert_eq!(daemon.stat("binlog-max-size"), "5000");
    }
}

#[test]
fn a_failed_start_removes_the_socket_that_it_created_and_no_other_file() {
    let folder = Folder::new();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = other.local_addr().expect("a port").to_string();
    let socket = folder.socket("socket");
    assert_eq!(failure(["-l", &*socket, "-l", &place]).0, 111);
    assert!(!folder.join("socket").exists());

    let file = folder.join("file");
    std::fs::write(&file, "precious").expect("a file");
    let place = folder.socket("file");
    let line = format!("error: listening on {place}: the file there is no socket");
    assert_eq!(failure(["-l", &place]), (111, line));
    assert_eq!(std::fs::read(&file).expect("a file"), b"precious");
}

#[test]
fn the_log_names_clients_and_commands_but_no_bodies() {
    let daemon = Server::start(["-VV"]);
    let mut client = daemon.connect();
    client.exchange("use a", "USING a");
    client.exchange("put 0 0 1 6\r\nsecret", "INSERTED 1");
    let name = client.name();
    client.close();
    let line = |daemon: &Server, end: &str| {
        let line = daemon.log_line(&format!("{name}: {end}"));
        assert!(!line.contains("secret"), "{line}");
    };
    line(&daemon, "connected");
    line(&daemon, "use a");
    line(&daemon, "USING");
    line(&daemon, "put 0 0 1 6");
    line(&daemon, "a body of 6 bytes");
    line(&daemon, "INSERTED");
    line(&daemon, "closed");
}

#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    // systemd says which file is the standard error. Here the shell finds that
    // out.
    let line = r#"
        JOURNAL_STREAM=$(stat -L -c %d:%i /dev/fd/2) exec "$0" "$@"
    "#;
    let daemon = Server::spawn(&mut shell(line, ["-p", "0"]));
    assert!(
        daemon
            .log_line("listening on")
            .starts_with("<6>listening on")
    );

    let mut elsewhere = Command::new(&*PROGRAM);
    elsewhere.args(["-p", "0"]).env("JOURNAL_STREAM", "1:1");
    let daemon = Server::spawn(&mut elsewhere);
    assert!(daemon.log_line("listening on").contains("Z info: "));
}
