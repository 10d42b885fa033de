//! `calls`: how many system calls the server makes for each batch of commands,
//! and how many while no client asks for anything.
//!
//! Counting stops the server at each call, so nothing else is measured.

use super::setting::connect;
use crate::bench::calls::Counter;
use crate::bench::figures::{Figure, figure};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::arrivals::Left;
use crate::load::jobs::Shape;
use crate::load::work::{DRAIN, PUT, Step, Work};
use companion::failure::Failure;
use std::thread::sleep;
use std::time::Duration;

/// After this time a server has given back the memory of a rush.
const GIVES_BACK: Duration = Duration::from_secs(3);

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Result<Vec<Figure>, Failure> {
    let pid = server.pid.filter(|_| server.is_ours());
    let pid = pid.ok_or_else(|| Failure::Usage("calls needs a server that it starts".into()))?;
    let count = load.count()?.next_multiple_of(load.depth);
    let mut wire = connect(server, load.connections)?;
    let shape = Shape::plain(load.body);
    let mut work = Work::new(&shape, load.connections, load.depth, 2 * count);
    // One client waits, because a server might then check something regularly.
    let mut waiter = connect(server, 1)?;
    waiter.ask(
        0..1,
        b"watch nothing\r\nignore beanpole-bench\r\n",
        2,
        |_| true,
    )?;
    waiter.send(0, b"reserve\r\n")?;
    let counter = Counter::attach(pid)?;
    work.run(&mut wire, PUT, Left::Jobs(count), None)?;
    work.run(&mut wire, DRAIN, Left::Jobs(count), None)?;
    let mut figures = Vec::new();
    let batches = count.div_ceil(load.depth) as f64;
    let steps: [(&str, &'static [Step], f64); 2] = [("put", PUT, 1.0), ("drain", DRAIN, 2.0)];
    for (what, steps, of) in steps {
        let before = counter.settled();
        work.run(&mut wire, steps, Left::Jobs(count), None)?;
        let calls = counter.settled() - before;
        let name = format!("{what}: system calls per batch");
        figures.push(figure(name, "", calls as f64 / batches / of));
    }
    sleep(GIVES_BACK);
    let before = counter.settled();
    sleep(Duration::from_secs_f64(load.idle_seconds));
    let calls = counter.settled() - before;
    figures.push(figure("system calls when idle", "", calls as f64));
    Ok(figures)
}
