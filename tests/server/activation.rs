//! Sockets that a launcher has bound. Here the launcher is a line of shell.

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, Shutdown, SockFlag, SockType, shutdown, socket};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use support::{Client, Folder, Server, run_command, shell};

/// Hands over standard input and output as two sockets, as systemd does it.
const TWO: &str = r#"
    LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=jobs:local exec "$0" "$@" 3<&0 4>&1 </dev/null >&2
"#;
const ONE: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

/// A TCP and a Unix socket that a launcher has bound, and where they are.
struct Bound {
    tcp: TcpListener,
    port: u16,
    _folder: Folder,
    path: PathBuf,
    unix: UnixListener,
}

impl Bound {
    fn new() -> Bound {
        let (tcp, port) = listener();
        let folder = Folder::new();
        let path = folder.join("socket");
        Bound {
            tcp,
            port,
            unix: UnixListener::bind(&path).expect("a socket"),
            path,
            _folder: folder,
        }
    }

    /// Hands both over to a daemon.
    fn launch(&self, options: &[&str]) -> Server {
        let tcp = self.tcp.try_clone().expect("a descriptor");
        let unix = self.unix.try_clone().expect("a descriptor");
        let mut shell = shell(TWO, options.iter().copied());
        let command = shell.stdin(OwnedFd::from(tcp));
        Server::spawn_as_it_is(command.stdout(OwnedFd::from(unix)))
    }
}

fn listener() -> (TcpListener, u16) {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("a port").port();
    (tcp, port)
}

#[test]
fn inherited_sockets_are_served_and_options_that_name_others_are_ignored() {
    let bound = Bound::new();
    let (port, path) = (bound.port, &bound.path);
    // A client that connects before the server runs is answered later.
    let mut early = Client::connect(port);
    early.send("use early\r\n");
    let daemon = bound.launch(&["-l", "127.0.0.3", "-p", "1"]);
    daemon.log_line(&format!("inherited 127.0.0.1:{port} jobs"));
    daemon.log_line(&format!("inherited unix:{} local", path.display()));
    daemon.log_line(
        "warning: not listening on 127.0.0.3:1: with inherited sockets -l and -p have no effect",
    );
    early.expect("USING early\r\n");
    Client::connect_unix(path).exchange("use local", "USING local");
    assert_eq!(daemon.stop().code(), Some(0));
    // The daemon leaves the socket's file, because the launcher has made it.
    assert!(path.exists());
}

#[test]
fn a_socket_that_the_launcher_shuts_down_is_left_and_the_other_one_is_served() {
    let shut_down = |tcp: &TcpListener| shutdown(tcp.as_raw_fd(), Shutdown::Both);
    let bound = Bound::new();
    let daemon = bound.launch(&[]);
    daemon.log_line("listening on unix:");
    shut_down(&bound.tcp).expect("a socket that listens");
    daemon.log_line("no longer listening on 127.0.0.1:");
    Client::connect_unix(&bound.path).exchange("use local", "USING local");
    daemon.signal(Signal::SIGTERM);
    let (_, log) = daemon.wait();
    let more = log.iter().filter(|line| line.contains("warning"));
    assert_eq!(more.count(), 0, "{log:?}");

    let (tcp, _) = listener();
    let ours = tcp.try_clone().expect("a descriptor");
    let mut command = shell(ONE, []);
    let daemon = Server::spawn_as_it_is(command.stdin(OwnedFd::from(tcp)));
    daemon.log_line("listening on 127.0.0.1:");
    shut_down(&ours).expect("a socket that listens");
    daemon.log_line("no client can connect any more");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn a_socket_that_is_meant_for_another_process_is_not_taken_over() {
    let (tcp, other) = listener();
    let line = r#"LISTEN_PID=1 LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;
    let mut command = shell(line, ["-p", "0"]);
    let daemon = Server::spawn_as_it_is(command.stdin(OwnedFd::from(tcp)));
    assert_ne!(daemon.port(), other);
}

#[test]
fn a_socket_name_from_the_launcher_cannot_forge_a_line_of_the_log() {
    let mut command = shell(ONE, []);
    command.env("LISTEN_FDNAMES", "a\nerror: b");
    let daemon = Server::spawn_as_it_is(command.stdin(OwnedFd::from(listener().0)));
    let line = daemon.log_line("inherited ");
    assert!(line.ends_with(" a?error"), "{line}");
}

#[test]
fn an_inherited_socket_that_cannot_listen_is_refused_by_its_number() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // The kernel would listen at any port of all addresses.
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let unbound = socket(family, SockType::Stream, flags, None).expect("a socket");
    let bound = || OwnedFd::from(listener().0);
    for (line, descriptor, message) in [
        (
            ONE,
            OwnedFd::from(udp),
            "taking over inherited socket 0: neither a TCP nor a Unix stream socket",
        ),
        (
            ONE,
            unbound,
            "taking over inherited socket 0: it is not bound to an address",
        ),
        (
            r#"LISTEN_PID=$$ LISTEN_FDS=2 exec "$0" "$@" 3<&0 4<&- </dev/null"#,
            bound(),
            "taking over inherited socket 1: Bad file descriptor (os error 9)",
        ),
        (
            r#"LISTEN_PID=$$ LISTEN_FDS=many exec "$0" "$@""#,
            bound(),
            "invalid number of inherited sockets in LISTEN_FDS: many",
        ),
    ] {
        let (status, _, stderr) = run_command(shell(line, []).stdin(descriptor));
        assert_eq!(status, 111);
        assert!(stderr.ends_with(&format!("error: {message}\n")), "{stderr}");
    }
}
