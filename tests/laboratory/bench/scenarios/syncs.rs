//! How often a server syncs for each command: the same load runs once more, on
//! a server that `strace` traces.
//!
//! A filter in the kernel lets all other system calls pass at full speed. So
//! connections share a sync as often as without tracing. Only the sync itself
//! takes some microseconds longer.

use super::setting::{connect, left, room};
use crate::bench::figures::{Figure, figure};
use crate::bench::load::Load;
use crate::bench::servers::{Server, Source};
use crate::load::arrivals::Left;
use crate::load::jobs::Shape;
use crate::load::work::{CYCLE, PUT, Work};
use companion::failure::Failure;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The beginning of the server's command line. With `-D` the server stays a
/// child of this process. `strace` writes a line for each call, at once.
const TRACED: &str = "strace -D -f -qq --seccomp-bpf -e signal=none \
    -e trace=fsync,fdatasync,sync_file_range,msync,syncfs,sync -o {dir}.syncs";

/// The figure, if `put` or `cycle` run with a binlog and `strace` can be used.
pub fn syncs(load: &Load, source: &Source) -> Result<Option<Figure>, Failure> {
    let steps = match load.scenario.as_str() {
        "put" => PUT,
        "cycle" => CYCLE,
        _ => return Ok(None),
    };
    let Source::Command(command) = source else {
        return Ok(None);
    };
    if load.sync.is_none() || !can_trace() {
        return Ok(None);
    }
    let traced = Source::Command(format!("{TRACED} {command}"));
    let mut server = Server::open(&traced, load.placement)?;
    let log = server.data()?.with_extension("syncs");
    let shape = Shape::plain(load.body);
    let mut wire = connect(&server, load.connections)?;
    let mut work = Work::new(&shape, load.connections, load.depth, room(load.length));
    work.run(
        &mut wire,
        steps,
        Left::Jobs(load.connections * load.depth),
        None,
    )?;
    let before = calls_in(&log)?;
    let commands = work.run(&mut wire, steps, left(load.length), None)?;
    let syncs = calls_in(&log)? - before;
    let each = syncs as f64 / commands as f64;
    Ok(Some(figure("syncs per command", "", each)))
}

/// Whether `strace` can be used: it may be missing or forbidden.
fn can_trace() -> bool {
    let tried = Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Counts the calls. If others come between, a call has a second line when it
/// is resumed, which does not count.
fn calls_in(log: &Path) -> Result<usize, Failure> {
    let doing = || format!("reading {}", log.display());
    let text = fs::read_to_string(log).map_err(Failure::of(doing()))?;
    Ok(text
        .lines()
        .filter(|line| !line.contains(" resumed>"))
        .count())
}
