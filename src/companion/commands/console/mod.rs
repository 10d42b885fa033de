//! `console`: a page for the browser that shows servers, their tubes and their
//! jobs and, if it is allowed, changes them.
//!
//! Each server is [watched](crate::server::watch), whether or not a page is
//! open. The threads of [`crate::http`] answer browsers from what is known, and
//! ask the server only for jobs: [`site`] is all that can be asked for, [`jobs`]
//! answers questions about jobs and makes changes. The page itself is in the
//! folder `page`: HTML, CSS and JavaScript as a browser reads them, without a
//! framework. It begins in `main.js`.

mod jobs;
mod site;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome};
use crate::http;
use crate::server::watch::Watched;
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, end_at_signals, heeded};
use crate::text::json::{self, Json, json};
use crate::text::output::{WholeFile, cannot_read, complain, note};
use clap::{Args, ValueHint};
use site::Console;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Serve {
    /// serve it at this HOST:PORT or PORT (default: 127.0.0.1:8080)
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        hide_default_value = true
    )]
    listen: String,
    /// let the page change jobs and tubes
    #[arg(long = "allow-changes")]
    changes: bool,
    /// demand the token in this file (default: a new one, or none on loopback)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token: Option<PathBuf>,
    /// browsers know this machine by this name; may be repeated (default: localhost)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// keep the curves in this file, from run to run (default: in memory alone)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    curves: Option<PathBuf>,
}

/// From one sample of a server to the next. The page asks as often, so it shows what
/// happens within two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

impl Run for Serve {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        if self.curves.is_none() {
            end_at_signals()?;
        }
        let listener = http::bind(&self.listen)?;
        let url = http::url(&listener)?;
        let is_local = |bound: std::net::SocketAddr| bound.ip().is_loopback();
        // Off the loopback there is always a token.
        let token = match &self.token {
            Some(file) => Some(token_in(file)?),
            None if listener.local_addr().is_ok_and(is_local) => None,
            None => Some(new_token()?),
        };
        let servers = Watched::all(&invocation.servers, INTERVAL, invocation.patience);
        if let Some(file) = self.curves {
            keep_curves(file, servers.clone())?;
        }
        for server in &servers {
            server.start(|| {})?;
        }
        note(match (&token, self.token) {
            // What stands after the # is not sent, and not kept by a proxy.
            (Some(token), None) => format!("serving {url}/#token={token}"),
            _ => format!("serving {url}/"),
        });
        let console = Console {
            servers,
            token,
            allows_changes: self.changes,
            asking: Arc::default(),
        };
        http::serve(&listener, self.hosts, console)
    }
}

const SHORTEST: usize = 16;

/// The token in a file that only its owner can read.
fn token_in(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let cannot = |error| Failure::io(format_args!("cannot read {shown}"), error);
    let mut file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.mode() & 0o077 != 0 {
        return Failure::refused(format!(
            "others may read {shown}: take that right away first (chmod 600)"
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    let token = text.trim();
    match token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.into()),
        false => Failure::refused(format!(
            "{shown}: a token is {SHORTEST} or more characters of ASCII without spaces"
        )),
    }
}

/// A token that nobody can guess: 128 bits.
fn new_token() -> Outcome<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Failure::io("cannot read /dev/urandom", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How often the file of the curves is written.
const EACH: Duration = Duration::from_secs(60);
/// How large a file of curves is read at most.
const MOST_BYTES: u64 = 1 << 28;
/// The key of its first line, which says what it is. After it comes a line of JSON for
/// each server and each tube.
const HEAD: &str = "beanpole-curves";

/// Takes back the curves in this file, if it is there, and writes it from now on, each
/// time as a whole. The signals that end a program end this one when the file is written.
fn keep_curves(file: PathBuf, servers: Vec<Arc<Watched>>) -> Outcome<()> {
    read_curves(&file, &servers)?;
    write_curves(&file, &servers)?;
    let mut calls = Calls::by_signals(&heeded(&[SIGINT, SIGTERM, SIGHUP]))?;
    let run = move || {
        loop {
            calls.wait(Some(Instant::now() + EACH));
            let is_over = calls.take();
            let written = write_curves(&file, &servers);
            let _ = written.inspect_err(|failure| complain!("{failure}"));
            if is_over {
                std::process::exit(0);
            }
        }
    };
    let thread = std::thread::Builder::new().name("curves".into()).spawn(run);
    thread
        .map(drop)
        .map_err(|error| Failure::io("cannot start a thread", error))
}

/// A file that is something else is not to be overwritten.
fn read_curves(path: &Path, servers: &[Arc<Watched>]) -> Outcome<()> {
    let shown = path.display().to_string();
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.map_err(|error| cannot_read(&shown, error))?,
    };
    let mut lines = BufReader::new(file.take(MOST_BYTES)).lines();
    let mut next = || -> Outcome<Option<Json>> {
        let line = lines.next().transpose();
        let line = line.map_err(|error| cannot_read(&shown, error))?;
        let wrong = |reason| Failure::Refused(format!("{shown} has no curves: {reason}"));
        line.map(|line| json::parse(line.as_bytes()).map_err(wrong))
            .transpose()
    };
    if next()?.is_none_or(|head| head[HEAD] != 1) {
        return Failure::refused(format!("{shown} has no curves: it is another file"));
    }
    let mut unread = 0;
    while let Some(line) = next()? {
        unread += usize::from(!servers.iter().all(|server| server.restore_curves(&line)));
    }
    if unread > 0 {
        complain!("{shown}: {unread} curves make no sense, and are forgotten");
    }
    Ok(())
}

fn write_curves(path: &Path, servers: &[Arc<Watched>]) -> Outcome<()> {
    let mut file = WholeFile::create(path, 0o600)?;
    file.bytes(format!("{}\n", json!({HEAD: 1})).as_bytes())?;
    for line in servers.iter().flat_map(|server| server.saved_curves()) {
        file.bytes(format!("{line}\n").as_bytes())?;
    }
    file.finish()
}
