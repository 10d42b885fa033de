//! The log: one line for each event, on standard error.
//!
//! Each line carries its level and, unless the system's journal adds one, the
//! time. Nothing is logged for each request unless `-VV` asks for it.
//!
//! A thread that logs never waits: another thread writes the lines. If standard
//! error is not read, the writing thread is blocked and its buffer fills.
//! Further lines are dropped, and when there is room again, their number is
//! logged. If equal warnings come very often, they are counted and not
//! repeated.

mod calendar;
mod repeats;

use crate::sync::spawn;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::stat::fstat;
use repeats::Repeats;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How many lines may wait to be written.
const BUFFER: usize = 2000;

/// How long the end of the process waits until everything is written.
const PATIENCE: Duration = Duration::from_millis(500);

/// How important a line is, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The server cannot go on.
    Error,
    /// Something that its owner should know.
    Warning,
    /// What happens to the server as a whole.
    Info,
    /// Clients that connect and disconnect; with `-V`.
    Connections,
    /// Commands and replies; with `-VV`.
    Commands,
}

impl Level {
    /// The level's name, and its number at the start of a line for the journal.
    fn shown(self) -> (&'static str, u8) {
        match self {
            Level::Error => ("error", 3),
            Level::Warning => ("warning", 4),
            Level::Info => ("info", 6),
            Level::Connections | Level::Commands => ("debug", 7),
        }
    }
}

static VERBOSITY: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// The way to the thread that writes. Before that thread runs, each thread
/// writes its own lines.
static EVENTS: OnceLock<Sender<Event>> = OnceLock::new();

/// How many lines were dropped since this number was last logged.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Starts the thread that writes; from then on no thread waits for the log. A
/// panic becomes the last line of the log. To be called once.
///
/// `verbosity` is how often `-V` was given.
///
/// # Errors
///
/// If the system has no thread left.
pub fn start(verbosity: usize) -> io::Result<()> {
    let level = match verbosity {
        0 => Level::Info,
        1 => Level::Connections,
        _ => Level::Commands,
    };
    VERBOSITY.store(level as u8, Relaxed);
    panic::set_hook(Box::new(log_panic));
    let (events, to_write) = unbounded();
    spawn("log", move || run(&to_write))?;
    EVENTS.get_or_init(|| events);
    Ok(())
}

/// Returns when everything that was logged before is written, including the
/// counts of repeated warnings. If the log is not read, returns soon. To be
/// called at the end.
pub fn finish() {
    if let Some(events) = EVENTS.get() {
        let (done, is_done) = bounded(0);
        // This fails if the log is not read, and then there is nothing else to do.
        let (Ok(()) | Err(_)) = events.send(Event::Finish(done));
        let (Ok(_) | Err(_)) = is_done.recv_timeout(PATIENCE);
    }
}

/// Whether lines of this level are written.
pub fn is_on(level: Level) -> bool {
    !cfg!(simulated) && level as u8 <= VERBOSITY.load(Relaxed)
}

/// Logs a line, if its level is on.
pub fn write(level: Level, text: impl Display) {
    log(level, String::new(), text);
}

/// Logs that the server cannot go on.
pub fn error(text: impl Display) {
    write(Level::Error, text);
}

/// Logs what the owner should know, unless the same was logged just before.
pub fn warning(text: impl Display) {
    write(Level::Warning, text);
}

/// Logs a warning that a client has caused. The line begins with the client's
/// address. The same warning about another client is not repeated.
pub fn client_warning(client: impl Display, text: impl Display) {
    log(Level::Warning, format!("{client}: "), text);
}

/// Logs what happens to the server as a whole.
pub fn info(text: impl Display) {
    write(Level::Info, text);
}

/// '1 job' or '7 jobs', for this count and noun.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn log(level: Level, client: String, text: impl Display) {
    if !is_on(level) {
        return;
    }
    let line = Line::new(level, client, text.to_string());
    match EVENTS.get() {
        Some(events) if events.len() >= BUFFER => {
            DROPPED.fetch_add(1, Relaxed);
        }
        Some(events) => {
            // This cannot fail: the receiving thread lives as long as the
            // process.
            let (Ok(()) | Err(_)) = events.send(Event::Line(line));
        }
        None => line.write(),
    }
}

/// Logs a panic, and ends the process: a thread has found a fault in the
/// program.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let location = panic.location().map(ToString::to_string);
    let place = location.as_deref().unwrap_or("an unknown place");
    let words = panic.payload_as_str().unwrap_or("without a message");
    let text = format!("panic in thread {name} at {place}: {words}").replace('\n', " ");
    match name {
        "log" => Line::new(Level::Error, String::new(), text).write(),
        _ => {
            error(text);
            finish();
        }
    }
    // What the thread was changing is half changed: no other thread may use it,
    // whatever the build does with panics.
    process::abort();
}

struct Line {
    time: SystemTime,
    level: Level,
    /// The client that has caused it, and a colon; empty if no client has.
    client: String,
    text: String,
}

impl Line {
    fn new(level: Level, client: String, text: String) -> Line {
        let time = SystemTime::now();
        Line {
            time,
            level,
            client,
            text,
        }
    }

    fn write(&self) {
        let Line { client, text, .. } = self;
        let (level, number) = self.level.shown();
        let line = if *IS_JOURNAL {
            format!("<{number}>{client}{text}\n")
        } else {
            let time = calendar::timestamp(self.time);
            format!("{time} {level}: {client}{text}\n")
        };
        // If standard error is closed, there is no one to report it to.
        let (Ok(()) | Err(_)) = io::stderr().write_all(line.as_bytes());
    }
}

enum Event {
    Line(Line),
    /// Asks to write everything that came before, and then to drop this sender.
    Finish(Sender<Event>),
}

/// What the thread does all its life.
fn run(events: &Receiver<Event>) {
    let mut repeats = Repeats::default();
    loop {
        let event = match repeats.due_at() {
            Some(due) => events.recv_deadline(due).ok(),
            None => events.recv().ok(),
        };
        let now = Instant::now();
        tell(repeats.take_due(now));
        match &event {
            Some(Event::Line(line))
                if line.level != Level::Warning || repeats.note(&line.text, now) =>
            {
                line.write();
            }
            Some(Event::Finish(_)) => tell(repeats.take_due(now + Repeats::PERIOD)),
            _ => {}
        }
        if events.is_empty() {
            let dropped = DROPPED.swap(0, Relaxed);
            tell((dropped > 0).then(|| {
                format!("{dropped} lines of the log were dropped: they came too fast to be written")
            }));
        }
        // `finish` waits for this.
        if let Some(Event::Finish(done)) = event {
            drop(done);
        }
    }
}

/// Writes warnings about other lines of the log.
fn tell(warnings: impl IntoIterator<Item = String>) {
    for text in warnings {
        Line::new(Level::Warning, String::new(), text).write();
    }
}

/// Whether standard error is a stream to the system's journal, see
/// systemd.exec(5). The environment variable alone does not decide it:
/// standard error may have been redirected.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(io::stderr()).is_ok_and(|stream| format!("{}:{}", stream.st_dev, stream.st_ino) == named)
});
