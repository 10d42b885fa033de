//! The server that the tutor starts for itself. It keeps no files.

use super::learner::stopped;
use crate::failure::{Failure, Outcome};
use crate::signals::{Calls, wait_for};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the program.
const DAEMON: &str = "beanpoled";
/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process of the server, which ends when this goes.
pub struct Server {
    child: Child,
    /// Kept open, so that the server can go on writing its log.
    log: ChildStderr,
}

impl Server {
    /// Starts the program beside ours, or else the one in `PATH`.
    pub fn start(options: &[String]) -> Outcome<Server> {
        let ours = std::env::current_exe().unwrap_or_default();
        let beside = Some(ours.with_file_name(DAEMON)).filter(|place| place.is_file());
        let mut command = Command::new(beside.unwrap_or_else(|| DAEMON.into()));
        command
            .args(["-l", "127.0.0.1", "-p", "0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Unreachable(format!(
                "it needs a server of its own, but there is no {DAEMON} beside {} or in PATH",
                ours.display()
            )),
            _ => Failure::io(format_args!("cannot start {DAEMON}"), error),
        })?;
        let log = child.stderr.take().expect("it was asked for");
        Ok(Server { child, log })
    }

    /// The port on which the server says that it listens.
    pub fn port(&mut self, signals: &Calls) -> Outcome<u16> {
        let until = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&said);
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let mut ports = complete.lines().filter_map(|line| {
                let (_, port) = line.split_once("listening on 127.0.0.1:")?;
                port.parse().ok()
            });
            if let Some(port) = ports.next() {
                return Ok(port);
            }
            let [is_said, is_stopped] =
                wait_for(&[self.log.as_fd(), signals.as_fd()], Some(until))[..]
            else {
                unreachable!("an answer for each of both");
            };
            if is_stopped {
                return Err(stopped());
            }
            let mut bytes = [0; 1024];
            let count = match is_said {
                true => self.log.read(&mut bytes),
                false if Instant::now() < until => continue,
                false => Ok(0),
            };
            match count.map_err(|error| Failure::io("cannot read from the server", error))? {
                0 => {
                    let last = text.lines().last().unwrap_or("it says nothing");
                    return Failure::refused(format!("{DAEMON} does not serve: {last}"));
                }
                count => said.extend_from_slice(&bytes[..count]),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to keep. If it has ended already, so much the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
