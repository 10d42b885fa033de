//! `recovery`: how soon a server with jobs in its binlog answers again after a
//! start, and how much memory and disk that takes.
//!
//! The server is filled, ended in order and started again at once. So its files
//! are still in the kernel's cache, and only the server's own work is measured.

use super::cycle::LOOKED_AT;
use super::setting::connect;
use crate::bench::accounting::{peak, resident};
use crate::bench::figures::{Figure, figure};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::jobs::Shape;
use crate::load::wire::{PATIENCE, Wire};
use crate::load::work::{DRAIN, PUT, Work};
use crate::load::{TUBE, stat};
use companion::failure::Failure;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Runs the scenario once.
pub fn run(load: &Load, server: &mut Server) -> Result<Vec<Figure>, Failure> {
    let count = load.count()?;
    let shape = Shape::plain(load.body);
    let mut work = Work::new(&shape, load.connections, load.depth, count);
    let mut wire = connect(server, load.connections)?;
    work.run(&mut wire, PUT, Left::Jobs(count), None)?;
    work.ledger.close()?;
    drop(wire);
    server.stop()?;
    let directory = server.data()?;
    let log = bytes_in(&directory, &|_, len| Ok(len))?;
    let written = bytes_in(&directory, &written)?;
    let begun = Instant::now();
    server.start_again()?;
    // The server may accept connections long before it answers.
    let stats =
        Wire::connect(&server.at(), 1, PATIENCE)?.ask_data(&format!("stats-tube {TUBE}"))?;
    let took = begun.elapsed();
    let ready = stat(&stats, "current-jobs-ready")?;
    if ready != count as u64 {
        let what = format!("{count} jobs were put, and {ready} are ready after the restart");
        return Err(Failure::Refused(what));
    }
    let mut figures = vec![figure("answers after", "s", took.as_secs_f64())];
    if let Some(pid) = server.pid {
        let (now, most) = (resident(pid)? as f64, peak(pid)? as f64);
        figures.extend([
            figure("RSS", "MB", now / 1e6),
            figure("peak RSS", "MB", most / 1e6),
            figure("peak RSS by RSS", "times", most / now),
        ]);
    }
    figures.push(figure("log per job", "bytes", log as f64 / count as f64));
    let written = written as f64 / count as f64;
    figures.push(figure("of it written", "bytes", written));
    let mut work = work.by_one_connection();
    let left = Left::Jobs(LOOKED_AT.min(count));
    work.run(&mut connect(server, 1)?, DRAIN, left, None)?;
    Ok(figures)
}

/// A sum over the files in a directory. `of` gets each path and length.
fn bytes_in(directory: &Path, of: &dyn Fn(&Path, u64) -> io::Result<u64>) -> Result<u64, Failure> {
    let doing = || format!("reading {}", directory.display());
    let entries = fs::read_dir(directory).map_err(Failure::of(doing()))?;
    let each = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        of(&entry.path(), entry.metadata()?.len())
    };
    let total: io::Result<u64> = entries.map(each).sum();
    total.map_err(Failure::of(doing()))
}

/// How long a file is without the zeros at its end, which are prepared for what
/// will be written there.
fn written(path: &Path, _: u64) -> io::Result<u64> {
    let last = fs::read(path)?.iter().rposition(|byte| *byte != 0);
    Ok(last.map_or(0, |last| last as u64 + 1))
}
