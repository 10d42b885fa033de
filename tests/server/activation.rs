//! Sockets that a launcher has bound. Here the launcher is a line of shell.

use nix::sys::socket::{AddressFamily, Shutdown, SockFlag, SockType, shutdown, socket};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use support::{Client, Folder, Server, run_command, shell};

/// Hands over standard input and output as two sockets, as systemd does it.
const TWO: &str = r#"
    LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=jobs:local exec "$0" "$@" 3<&0 4>&1 </dev/null >&2
"#;
const ONE: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

#[test]
fn inherited_sockets_are_served_and_options_that_name_others_are_ignored() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("a port").port();
    let directory = Folder::new();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a socket");
    // A client that connects before the server runs is answered later.
    let mut early = Client::connect(port);
    early.send("use early\r\n");

    let mut command = shell(TWO, ["-l", "127.0.0.3", "-p", "1"]);
    command
        .stdin(OwnedFd::from(tcp))
        .stdout(OwnedFd::from(unix));
    let daemon = Server::spawn_as_it_is(&mut command);
    drop(command);
    daemon.log_line(&format!("inherited 127.0.0.1:{port} jobs"));
    daemon.log_line(&format!("inherited unix:{} local", path.display()));
    daemon.log_line(
        "warning: not listening on 127.0.0.3:1: with inherited sockets -l and -p have no effect",
    );
    early.expect("USING early\r\n");
    let unix = UnixStream::connect(&path).expect("it listens");
    Client::over(unix).exchange("use local", "USING local");
    assert_eq!(daemon.stop().code(), Some(0));
    // The daemon leaves the socket's file, because the launcher has made it.
    assert!(path.exists());
}

#[test]
fn the_other_inherited_sockets_are_served_when_one_is_shut_down() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("a port").port();
    let directory = Folder::new();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a socket");
    let ours = tcp.try_clone().expect("a descriptor");
    let mut command = shell(TWO, []);
    command
        .stdin(OwnedFd::from(tcp))
        .stdout(OwnedFd::from(unix));
    let daemon = Server::spawn_as_it_is(&mut command);
    daemon.log_line("listening on unix:");
    shutdown(ours.as_raw_fd(), Shutdown::Both).expect("a listener");
    daemon.log_line(&format!(
        "error: listening on 127.0.0.1:{port} ends: accepting a connection: Invalid argument"
    ));
    let unix = UnixStream::connect(&path).expect("it listens");
    Client::over(unix).exchange("use local", "USING local");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn a_socket_that_is_meant_for_another_process_is_not_taken_over() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let line = r#"LISTEN_PID=1 LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;
    let mut command = shell(line, ["-p", "0"]);
    let other = tcp.local_addr().expect("a port").port();
    command.stdin(OwnedFd::from(tcp));
    let daemon = Server::spawn_as_it_is(&mut command);
    assert_ne!(daemon.port(), other);
}

#[test]
fn a_socket_name_from_the_launcher_cannot_forge_a_line_of_the_log() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut command = shell(ONE, []);
    command.env("LISTEN_FDNAMES", "a\nerror: b");
    let daemon = Server::spawn_as_it_is(command.stdin(OwnedFd::from(tcp)));
    let line = daemon.log_line("inherited ");
    assert!(line.ends_with(" a?error"), "{line}");
}

#[test]
fn an_inherited_socket_that_cannot_listen_is_refused_by_its_number() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut command = shell(ONE, []);
    let (status, _, stderr) = run_command(command.stdin(OwnedFd::from(udp)));
    assert_eq!(status, 111);
    let message = "error: taking over inherited socket 0: neither a TCP nor a Unix stream socket\n";
    assert!(stderr.ends_with(message), "{stderr}");

    // The kernel would listen at any port of all addresses.
    let unbound = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    );
    let mut command = shell(ONE, []);
    let (status, _, stderr) = run_command(command.stdin(unbound.expect("a socket")));
    assert_eq!(status, 111);
    let message = "error: taking over inherited socket 0: it is not bound to an address\n";
    assert!(stderr.ends_with(message), "{stderr}");

    let line = r#"LISTEN_PID=$$ LISTEN_FDS=2 exec "$0" "$@" 3<&0 4<&- </dev/null"#;
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut command: Command = shell(line, []);
    let (status, _, stderr) = run_command(command.stdin(OwnedFd::from(tcp)));
    assert_eq!(status, 111);
    let message = "error: taking over inherited socket 1: Bad file descriptor (os error 9)\n";
    assert!(stderr.ends_with(message), "{stderr}");

    let line = r#"LISTEN_PID=$$ LISTEN_FDS=many exec "$0" "$@""#;
    let (status, _, stderr) = run_command(&mut shell(line, []));
    assert_eq!(status, 111);
    let message = "error: invalid number of inherited sockets in LISTEN_FDS: many\n";
    assert!(stderr.ends_with(message), "{stderr}");
}
