//! `timers`: single timers on a server that does nothing else. How late is each?
//!
//! Lateness is the time from just before the request that starts the timer to
//! just after the read of the reply that ends it, minus the timer's one second.
//! So it is never told too small. A timer that is early is noticed, and ends
//! the run.

use super::setting::connect;
use crate::bench::figures::{Figure, figure, micros};
use crate::bench::load::Load;
use crate::bench::servers::Server;
use crate::load::TUBE;
use crate::load::histogram::Histogram;
use crate::load::reply::Reply;
use crate::load::wire::Wire;
use companion::failure::{Failure, Outcome};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// The timer that comes last, because a server may fail to answer it.
const TIME_TO_RUN: &str = "time to run";

/// Runs the scenario once.
pub fn run(load: &Load, server: &Server) -> Outcome<Vec<Figure>> {
    let mut clients = Clients {
        wire: connect(server, 2)?,
        held: None,
    };
    type Timer = fn(&mut Clients) -> Outcome<Instant>;
    let kinds: [(&str, Timer); 4] = [
        ("delay", Clients::delay),
        ("pause", Clients::pause),
        ("timeout", Clients::timeout),
        (TIME_TO_RUN, Clients::time_to_run),
    ];
    let mut figures = Vec::new();
    for (name, wait) in kinds {
        let mut late = Histogram::default();
        for _ in 0..load.count()? {
            let due = match wait(&mut clients) {
                Ok(begun) => begun + SECOND,
                // beanstalkd often forgets the job until its holder sends
                // something.
                Err(_) if name == TIME_TO_RUN => return Ok(figures),
                Err(error) => return Err(error),
            };
            let Some(by) = Instant::now().checked_duration_since(due) else {
                return Err(Failure::Refused(format!("{name}: its second was not over")));
            };
            late.record(by);
            clients.delete_held()?;
        }
        figures.push(figure(
            format!("{name}: late"),
            "us",
            micros(late.quantile(0.5)),
        ));
        figures.push(figure(
            format!("{name}: latest"),
            "us",
            micros(late.longest()),
        ));
    }
    Ok(figures)
}

/// Two connections: the first sets things up, the second waits.
struct Clients {
    wire: Wire,
    /// The job that was reserved last.
    held: Option<u64>,
}

impl Clients {
    /// Sends a request and checks its reply. Returns when it was sent.
    fn ask(
        &mut self,
        conn: usize,
        request: &str,
        wanted: impl FnMut(Reply<'_>) -> bool,
    ) -> Outcome<Instant> {
        let sent = Instant::now();
        let request = format!("{request}\r\n");
        self.wire
            .ask(conn..conn + 1, request.as_bytes(), 1, wanted)?;
        Ok(sent)
    }

    fn put(&mut self, delay: u32, ttr: u32) -> Outcome<Instant> {
        let request = format!("put 0 {delay} {ttr} 1\r\nx");
        self.ask(0, &request, |reply| matches!(reply, Reply::Inserted(_)))
    }

    fn reserve(&mut self, conn: usize) -> Outcome<Instant> {
        let mut held = None;
        let sent = self.ask(conn, "reserve", |reply| {
            if let Reply::Reserved(id, _) = reply {
                held = Some(id);
            }
            held.is_some()
        })?;
        self.held = held;
        Ok(sent)
    }

    fn delay(&mut self) -> Outcome<Instant> {
        let begun = self.put(1, 60)?;
        self.reserve(1)?;
        Ok(begun)
    }

    fn time_to_run(&mut self) -> Outcome<Instant> {
        self.put(0, 1)?;
        let begun = self.reserve(0)?;
        self.reserve(1)?;
        Ok(begun)
    }

    fn pause(&mut self) -> Outcome<Instant> {
        let pause = format!("pause-tube {TUBE} 1");
        let begun = self.ask(0, &pause, |reply| reply == Reply::Other(b"PAUSED"))?;
        self.put(0, 60)?;
        self.reserve(1)?;
        Ok(begun)
    }

    fn timeout(&mut self) -> Outcome<Instant> {
        self.ask(1, "reserve-with-timeout 1", |reply| {
            reply == Reply::Other(b"TIMED_OUT")
        })
    }

    /// Deletes the job that the second connection holds, if it holds one.
    fn delete_held(&mut self) -> Outcome<()> {
        if let Some(id) = self.held.take() {
            self.ask(1, &format!("delete {id}"), |reply| reply == Reply::Deleted)?;
        }
        Ok(())
    }
}
