//! What several files of this suite use.

use crate::binlog::storage::Storage;
use crate::model::{Opened, SIZE, recover};
use ::support::session::{Scene, servers};
use ::support::{Client, Server, patience, program};
use beanpole::binlog::{Error, SyncMode, lock};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs a test on each server, started with these options.
pub fn on_each_server(options: &[&str], test: impl Fn(Scene)) {
    let scenes = servers().into_iter();
    scenes.for_each(|program| test(Scene::start(&program, options)));
}

/// A worker of `mail` that has reserved a job.
pub fn worker(scene: &Scene) -> Client {
    let mut client = scene.connect();
    client.ask("watch mail");
    client.reserve();
    client
}

/// A command that writes its process id, waits until it is told to go on, and ends well.
pub const PATIENT: &str =
    "sh -c 'echo $$ > pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.01; done'";

/// Waits for the end of a process: its status, and what was left of its error output.
pub fn ended(process: Server) -> (Option<i32>, String) {
    let (status, said) = process.wait();
    (status.code(), said.join("\n"))
}

pub fn group_exists(group: &str) -> bool {
    let group = nix::unistd::Pid::from_raw(group.trim().parse().expect("a number"));
    nix::sys::signal::killpg(group, None).is_ok()
}

/// Listens on a free port of the loopback.
pub fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// A line to a server. It is cut when these bytes have passed so often, in one of the
/// directions; they do not arrive, and all else does. Another connection is served if
/// `again` is true. Returns the port of the line.
pub fn line_cut_at(server: &Scene, at: &'static str, times: usize, again: bool) -> u16 {
    let (listener, port) = listen();
    let server = server.port;
    thread::spawn(move || {
        let passed = Arc::new(AtomicUsize::new(0));
        for client in listener.incoming().flatten() {
            if passed.load(Ordering::SeqCst) >= times && !again {
                return;
            }
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).expect("a server");
            for (mut from, mut to) in [(&client, &server), (&server, &client)].map(|(from, to)| {
                (
                    from.try_clone().expect("a copy"),
                    to.try_clone().expect("a copy"),
                )
            }) {
                let passed = Arc::clone(&passed);
                thread::spawn(move || {
                    let mut bytes = [0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        let found = String::from_utf8_lossy(&bytes[..count]).matches(at).count();
                        let before = passed.fetch_add(found, Ordering::SeqCst);
                        match found > 0 && before < times {
                            true if before + found >= times => break,
                            true => {}
                            false if to.write_all(&bytes[..count]).is_err() => break,
                            false => {}
                        }
                    }
                    // One of the two may have gone already.
                    let (Ok(()) | Err(_)) = from.shutdown(Shutdown::Both);
                    let (Ok(()) | Err(_)) = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}

/// What an HTTP server answers to these bytes.
pub fn http(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
    stream
        .set_read_timeout(Some(patience()))
        .expect("a timeout");
    let mut answer = String::new();
    // Who says too much may be cut off anywhere.
    let (Ok(_) | Err(_)) = stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .and_then(|()| stream.read_to_string(&mut answer));
    answer
}

/// The port in the line with which a process says where it serves HTTP.
pub fn http_port(process: &Server) -> u16 {
    let logged = process.log_line("serving http://");
    let line = logged.trim_end_matches("/metrics").trim_end_matches('/');
    let (_, port) = line.rsplit_once(':').expect("an address");
    port.parse().expect("a port")
}

/// The three digits of the status in an answer.
pub fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Has a command look at what is in this directory. It may say that something is wrong.
pub fn beanpole(words: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(program("beanpole"));
    let output = command.arg("binlog").args(words).current_dir(directory);
    let output = output.output().expect("it runs");
    let code = output.status.code();
    assert!(code.is_some_and(|code| code <= 4), "{words:?}: {output:?}");
    output
}

pub fn storage(directory: &Path) -> Arc<dyn Storage> {
    // A child that another test has just forked has the lock, too, until it begins its program.
    lock(directory, true).expect("a directory").0
}

/// As a server starts.
pub fn start_in(directory: &Path) -> Result<Opened, Error> {
    recover(storage(directory), SyncMode::Never, SIZE)
}

/// What a command has saved, if it has: as many jobs as it says, and what a server finds.
pub fn saved(command: &str, directory: &Path) -> Option<Opened> {
    let output = beanpole(&[command, "old", command], directory);
    let count = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse::<usize>();
    let count = count.ok()?;
    let opened = start_in(&directory.join(command));
    let opened = opened.unwrap_or_else(|error| panic!("{command}: {error}"));
    let live = opened.jobs.values().filter(|job| !job.is_deleted());
    assert_eq!(live.count(), count, "{command}");
    Some(opened)
}
