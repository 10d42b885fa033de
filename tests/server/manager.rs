//! The daemon's notifications to the service manager.

use nix::sys::signal::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use support::{Client, Folder, PROGRAM, Server, patience};

/// The next message, line by line.
fn hear(socket: &UnixDatagram) -> Vec<String> {
    let mut message = [0; 1024];
    let count = socket.recv(&mut message).expect("a message");
    let text = String::from_utf8_lossy(&message[..count]);
    text.lines().map(String::from).collect()
}

fn patient(socket: UnixDatagram) -> UnixDatagram {
    socket.set_read_timeout(Some(patience())).expect("a socket");
    socket
}

#[test]
fn the_manager_is_notified_when_clients_are_answered_and_when_the_server_stops() {
    let directory = Folder::new();
    let path = directory.join("notify");
    let manager = patient(UnixDatagram::bind(&path).expect("a socket"));
    let mut command = Command::new(&*PROGRAM);
    let daemon = Server::spawn(command.args(["-p", "0"]).env("NOTIFY_SOCKET", &path));
    assert_eq!(hear(&manager), ["STATUS=Recovering jobs"]);
    let ready = hear(&manager);
    let port = daemon.port();
    let status = format!("STATUS=Serving on 127.0.0.1:{port}");
    assert_eq!(ready, ["READY=1".into(), status]);
    Client::connect(port).exchange("use a", "USING a");
    daemon.signal(Signal::SIGUSR1);
    assert_eq!(hear(&manager), ["STATUS=Draining: no new jobs are taken"]);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(hear(&manager), ["STOPPING=1", "STATUS=Stopping"]);
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn a_manager_that_is_not_there_or_reads_nothing_causes_a_warning_only() {
    let directory = Folder::new();
    let path = directory.join("notify");
    let _manager = UnixDatagram::bind(&path).expect("a socket");
    for place in [path, directory.join("missing")] {
        let mut command = Command::new(&*PROGRAM);
        command.env("NOTIFY_SOCKET", place);
        command.env("WATCHDOG_USEC", "200").args(["-p", "0"]);
        let daemon = Server::spawn(&mut command);
        daemon.log_line("warning: telling the service manager through NOTIFY_SOCKET: ");
        assert_eq!(daemon.stop().code(), Some(0));
    }
}

#[test]
fn a_manager_at_an_abstract_socket_gets_watchdog_messages_if_it_asks() {
    let name = format!("beanpoled-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let manager = patient(UnixDatagram::bind_addr(&address).expect("a socket"));
    let mut command = Command::new(&*PROGRAM);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    command.env("WATCHDOG_USEC", "20000").args(["-p", "0"]);
    let _daemon = Server::spawn(&mut command);
    while hear(&manager)[0] != "READY=1" {}
    assert_eq!(hear(&manager), ["WATCHDOG=1"]);
    assert_eq!(hear(&manager), ["WATCHDOG=1"]);
}
