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
fn the_manager_is_told_of_a_drain_that_begins_before_the_server_serves() {
    let directory = Folder::new();
    let path = directory.join("notify");
    let manager = patient(UnixDatagram::bind(&path).expect("a socket"));
    let binlog = directory.join("binlog");
    std::fs::create_dir(&binlog).expect("a directory");
    let options = ["-b", binlog.to_str().expect("a name of letters")];
    let first = Server::start(options);
    first.port();
    let mut command = Command::new(&*PROGRAM);
    command.args(["-p", "0", "--wait"]).args(options);
    let second = Server::spawn(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(hear(&manager), ["STATUS=Recovering jobs"]);
    assert!(hear(&manager)[0].starts_with("STATUS=Waiting: "));
    second.signal(Signal::SIGUSR1);
    second.log_line("drain mode: no new jobs are taken");
    first.stop();
    let status = "STATUS=Draining: no new jobs are taken";
    assert_eq!(hear(&manager), ["READY=1", status]);
    second.connect().exchange("put 0 0 1 1\r\nx", "DRAINING");
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

#[test]
fn no_manager_is_notified_if_its_name_is_empty() {
    let mut command = Command::new(&*PROGRAM);
    command.args(["-p", "0"]).env("NOTIFY_SOCKET", "");
    let daemon = Server::spawn(&mut command);
    daemon.connect().exchange("use a", "USING a");
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!log.iter().any(|line| line.contains("warning")), "{log:?}");
}

#[test]
fn an_unreachable_manager_causes_a_warning_only() {
    let mut command = Command::new(&*PROGRAM);
    command
        .args(["-p", "0"])
        .env("NOTIFY_SOCKET", "/nonexistent");
    let daemon = Server::spawn(&mut command);
    daemon.log_line("warning: telling the service manager through NOTIFY_SOCKET: No such file");
    daemon.connect().exchange("use a", "USING a");
}

#[test]
fn a_manager_that_reads_nothing_does_not_keep_the_server_from_ending() {
    let directory = Folder::new();
    let path = directory.join("notify");
    let _manager = UnixDatagram::bind(&path).expect("a socket");
    let mut command = Command::new(&*PROGRAM);
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "200").args(["-p", "0"]);
    let daemon = Server::spawn(&mut command);
    daemon.log_line("warning: telling the service manager through NOTIFY_SOCKET: ");
    assert_eq!(daemon.stop().code(), Some(0));
}
