//! `tubes`: put, reserve and delete while many tubes exist, and many are watched.
//!
//! The same load first runs without other tubes, on the same server process. So
//! the cost of tubes can be told as growth within one run.

use super::cycle;
use super::setting::connect;
use crate::bench::figures::{Figure, figure};
use crate::bench::load::{Held, Length, Load};
use crate::bench::servers::Server;
use crate::load::TUBE;
use crate::load::reply::Reply;
use crate::load::wire::{PATIENCE, Wire};
use companion::failure::Failure;

/// How many requests are sent together while the tubes are made.
const TOGETHER: usize = 500;

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    if load.watched > load.tubes {
        let (watched, tubes) = (load.watched, load.tubes);
        return Err(Failure::Usage(format!(
            "cannot watch {watched} of {tubes} tubes"
        )));
    }
    let mut wire = connect(server, load.connections)?;
    let without = cycle::cycle_on(
        &Load {
            length: part(load.length),
            ..load.clone()
        },
        server,
        &mut wire,
    )?;
    let mut holder = Wire::connect(&server.at(), 1, PATIENCE)?;
    // The tube through which the jobs go is one of the tubes.
    let names: Vec<String> = (1..load.tubes)
        .map(|number| format!("{TUBE}-{number}"))
        .collect();
    match load.held {
        Held::Watch => watch(&mut holder, &names, 1)?,
        Held::Job => {
            for name in &names {
                let requests = format!("use {name}\r\nput 4294967295 0 120 1\r\n.\r\n");
                holder.ask(0..1, requests.as_bytes(), 2, |reply| {
                    matches!(reply, Reply::Using(_) | Reply::Inserted(_))
                })?;
            }
        }
    }
    watch(&mut wire, &names[..load.watched - 1], 1)?;
    let mut figures = cycle::cycle_on(load, server, &mut wire)?;
    let cost = |figures: &[Figure]| {
        let found = figures
            .iter()
            .find(|figure| figure.name == "CPU per command");
        found.map(|figure| figure.value)
    };
    if let (Some(without), Some(with)) = (cost(&without), cost(&figures)) {
        figures.push(figure("CPU per command without the tubes", "us", without));
        figures.push(figure("growth of CPU per command", "times", with / without));
    }
    if load.held == Held::Job && !server.is_ours() {
        remove(&mut holder, &names)?;
    }
    Ok(figures)
}

/// Lets each connection watch these tubes too. It watches so many already.
fn watch(wire: &mut Wire, names: &[String], already: usize) -> Result<(), Failure> {
    for names in names.chunks(TOGETHER) {
        let requests: String = names
            .iter()
            .map(|name| format!("watch {name}\r\n"))
            .collect();
        wire.ask(
            0..wire.connections(),
            requests.as_bytes(),
            names.len(),
            |reply| matches!(reply, Reply::Watching(count) if count > already as u64),
        )?;
    }
    Ok(())
}

/// Deletes the jobs that hold the tubes.
fn remove(holder: &mut Wire, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let requests = format!("watch {name}\r\nreserve\r\n");
        let mut held = 0;
        holder.ask(0..1, requests.as_bytes(), 2, |reply| match reply {
            Reply::Reserved(id, b".") => {
                held = id;
                true
            }
            other => matches!(other, Reply::Watching(_)),
        })?;
        let requests = format!("delete {held}\r\nignore {name}\r\n");
        holder.ask(0..1, requests.as_bytes(), 2, |reply| {
            matches!(reply, Reply::Deleted | Reply::Watching(_))
        })?;
    }
    Ok(())
}

/// A quarter of the run is enough for the comparison.
fn part(length: Length) -> Length {
    match length {
        Length::Count(count) => Length::Count(count.div_ceil(4)),
        Length::Seconds(seconds) => Length::Seconds(seconds / 4.0),
    }
}
