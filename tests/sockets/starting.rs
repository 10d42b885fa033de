//! How the server starts, and how it says that it cannot.

use crate::server::{Folder, Server, run, unix};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Beanstalkd's exit statuses.
const USAGE: Option<i32> = Some(5);
const CANNOT_LISTEN: Option<i32> = Some(111);

fn answers(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"list-tube-used\r\nquit\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "USING default\r\n");
}

#[test]
fn it_listens_at_several_places() {
    let folder = Folder::new();
    let (one, two) = (folder.path("one"), folder.path("two"));
    let server = Server::start(&["-l", &unix(&one), "-l", &unix(&two)]);
    let id = server.connect().put("x");
    answers(&one);
    answers(&two);
    assert_eq!(server.connect().reserve().id, id);
}

#[test]
fn a_socket_file_that_nobody_listens_on_is_replaced() {
    let folder = Folder::new();
    let path = folder.path("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _server = Server::start(&["-l", &unix(&path)]);
    answers(&path);
}

#[test]
fn a_socket_file_that_somebody_listens_on_is_left_alone() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let _server = Server::start(&["-l", &unix(&path)]);
    let second = run(&["-l", &unix(&path)]);
    assert_eq!(second.status, CANNOT_LISTEN);
    assert!(second.stderr.contains(&unix(&path)), "{}", second.stderr);
    assert!(second.stderr.contains("in use"), "{}", second.stderr);
    answers(&path);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let folder = Folder::new();
    let path = folder.path("text");
    fs::write(&path, "precious").unwrap();
    let server = run(&["-l", &unix(&path)]);
    assert_eq!(server.status, CANNOT_LISTEN);
    assert!(server.stderr.contains(&unix(&path)), "{}", server.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_port_in_use_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = run(&["-p", &port]);
    assert_eq!(server.status, CANNOT_LISTEN);
    let address = format!("127.0.0.1:{port}");
    assert!(server.stderr.contains(&address), "{}", server.stderr);
    assert!(server.stderr.contains("in use"), "{}", server.stderr);
}

#[test]
fn what_it_opened_before_it_failed_is_gone() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = run(&["-l", &unix(&path), "-l", "127.0.0.1", "-p", &port]);
    assert_eq!(server.status, CANNOT_LISTEN);
    assert!(!path.exists());
}

#[test]
fn usage_errors_name_the_option_and_the_value() {
    for (options, message) in [
        (&["-x"][..], "unknown flag: -x"),
        (&["nonsense"], "unknown argument: nonsense"),
        (&["-p"], "flag requires an argument: -p"),
        (&["-p", "0", "-z", "big"], "invalid size: big"),
        (&["-p", "0", "-z", "-1"], "invalid size: -1"),
        (&["-l", "unix:"], "invalid address: unix:"),
    ] {
        let server = run(options);
        assert_eq!(server.status, USAGE, "{options:?}");
        assert!(server.stderr.contains(message), "{}", server.stderr);
        assert_eq!(server.stdout, "");
    }
}

#[test]
fn it_tells_its_usage_and_its_version() {
    let help = run(&["-h"]);
    assert_eq!((help.status, help.stdout.as_str()), (Some(0), ""));
    assert!(help.stderr.contains("-p"), "{}", help.stderr);
    let version = run(&["-v"]);
    let expected = format!("beanpoled {}\n", &env!("CARGO_PKG_VERSION")[..4]);
    assert_eq!((version.status, version.stdout), (Some(0), expected));
}

#[test]
fn the_largest_size_of_a_body_has_a_limit() {
    let server = Server::start(&["-z", "9999999999"]);
    assert_eq!(server.stat("max-job-size"), (1 << 30).to_string());
}
