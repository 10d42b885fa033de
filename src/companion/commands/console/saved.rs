//! The file in which the curves outlive the console: a line of JSON that says what
//! it is, and then one for each server and each tube. It is written each minute
//! and at the end, each time as a whole. As no more tubes have curves than
//! [`MOST_CURVES`], it has a bound.
//!
//! [`MOST_CURVES`]: crate::server::watch::MOST_CURVES

use crate::failure::{Failure, Outcome};
use crate::server::watch::Watched;
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, heeded};

use crate::text::json::{self, Json, json};
use crate::text::output::{WholeFile, cannot_read, complain};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EACH: Duration = Duration::from_secs(60);
/// How large a file is read at most.
const MOST_BYTES: u64 = 1 << 28;
const HEAD: &str = "beanpole-curves";

/// Takes back the curves in this file, if it is there, and writes it from now on. The
/// signals that end a program end this one when the file is written.
pub fn keep(file: PathBuf, servers: Vec<Arc<Watched>>) -> Outcome<()> {
    read(&file, &servers)?;
    write(&file, &servers)?;
    let mut calls = Calls::by_signals(&heeded(&[SIGINT, SIGTERM, SIGHUP]))?;
    let run = move || {
        loop {
            calls.wait(Some(Instant::now() + EACH));
            let is_over = calls.take();
            let written = write(&file, &servers);
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
fn read(path: &Path, servers: &[Arc<Watched>]) -> Outcome<()> {
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

fn write(path: &Path, servers: &[Arc<Watched>]) -> Outcome<()> {
    let mut file = WholeFile::create(path, 0o600)?;
    file.bytes(format!("{}\n", json!({HEAD: 1})).as_bytes())?;
    for line in servers.iter().flat_map(|server| server.saved_curves()) {
        file.bytes(format!("{line}\n").as_bytes())?;
    }
    file.finish()
}
