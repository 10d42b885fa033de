//! beanpoled, the daemon: a table of contents of how it starts and ends.
//!
//! The main thread binds the sockets, gives up its privileges, waits until
//! another thread has recovered the jobs, and starts the server. From then on
//! it waits for signals.

use beanpole::binlog::{self, Binlog};
use beanpole::engine::{Config, Engine};
use beanpole::log::{self, Level};
use beanpole::options::{self, Exit, Invocation, Options};
use beanpole::server::activation::{self, Inherited};
use beanpole::server::system::{self, Bound, Memory};
use beanpole::server::{Clock, Limits, Listener, Server, notify, privileges, spawn};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use nix::unistd::User;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[cfg(target_os = "linux")]
#[path = "sys/before_main.rs"]
mod before_main;

/// A user would not expect a limit below these numbers: then the log names it. Below
/// the second one, it warns.
const EXPECTED_CONNECTIONS: usize = 1000;
const FEW_CONNECTIONS: usize = 100;
const EXPECTED_MEMORY: u64 = 1 << 30;

/// What the log and the service manager are told of SIGUSR1.
const DRAINS: &str = "no new jobs are taken";

/// Why the server ends: the exit status, and a message with the step that
/// failed and the reason.
type Failure = (Exit, String);

/// The recovered jobs, the binlog that keeps them from now on, if there is one,
/// the clock by which they were recovered, and the limits.
type Recovered = (Engine, Option<Arc<Binlog>>, Clock, Limits);

/// What the main thread waits for.
enum Event {
    Signal(i32),
    Recovered(Box<Result<Recovered, Failure>>),
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    before_main::expect_faults();
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Invocation::Help) => say(io::stderr(), options::usage()),
        Ok(Invocation::Version) => {
            say(
                io::stdout(),
                concat!("beanpoled ", env!("CARGO_PKG_VERSION"), "\n"),
            );
        }
        Ok(Invocation::Serve(options)) => {
            let end = serve(*options);
            if let Err((_, message)) = &end {
                log::error(message);
            }
            log::finish();
            if let Err((exit, _)) = end {
                return ExitCode::from(exit as u8);
            }
        }
        Err(message) => {
            say(
                io::stderr(),
                format_args!("beanpoled: {message}\n{}", options::HINT),
            );
            return ExitCode::from(Exit::Usage as u8);
        }
    }
    ExitCode::SUCCESS
}

/// Writes a text, if it can be written.
fn say(mut to: impl Write, text: impl Display) {
    let (Ok(()) | Err(_)) = write!(to, "{text}");
}

/// The order matters: the steps that need privileges come first, and the
/// privileges are dropped before anything is read from the binlog or from a
/// client.
fn serve(options: Options) -> Result<(), Failure> {
    beanpole::server::use_one_malloc_arena();
    // Nothing may open a descriptor before we own the inherited ones.
    let inherited = activation::inherited_sockets();
    // From here on, a signal waits until a thread reads it.
    // (SIGXFSZ, with no effect: the write that is too long gets an error.)
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXFSZ]);
    log::start(options.verbosity).map_err(cannot("starting the log"))?;
    warn_of(&options.warnings);
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let mut signals = signals.map_err(cannot("trapping signals"))?;
    let inherited = inherited.map_err(|message| (Exit::CannotListen, message))?;
    let user = options.user.as_deref().map(find_user).transpose()?;
    let listeners = if inherited.is_empty() {
        bind(&options, user.as_ref())?
    } else {
        take_over(inherited, &options)
    };
    if let Some(user) = &user {
        privileges::become_user(user).map_err(|error| cannot_become(&user.name, error))?;
    }
    notify::send("STATUS=Recovering jobs");
    let (sender, events) = unbounded();
    let (signal_sender, recovery_sender) = (sender.clone(), sender.clone());
    // If sending fails, the main thread is ending the server.
    let hear = move || {
        let mut signals = signals.forever().map(Event::Signal);
        signals.all(|signal| signal_sender.send(signal).is_ok());
    };
    spawn("signals", hear).map_err(cannot("hearing signals"))?;

    let clock = Clock::start();
    // Recovery may take long. It has its own thread, so that signals are
    // handled meanwhile. The server may end at any moment of it without harm.
    let recover = move || {
        let recovered = Box::new(open(&options, clock));
        let (Ok(()) | Err(_)) = recovery_sender.send(Event::Recovered(recovered));
    };
    spawn("recovery", recover).map_err(cannot("recovering jobs"))?;
    let mut is_draining = false;
    let (mut engine, binlog, clock, limits) = loop {
        match events.recv().expect("the signal thread never ends") {
            Event::Recovered(recovered) => break (*recovered)?,
            Event::Signal(SIGUSR1) => {
                is_draining = true;
                log::info(format_args!("drain mode: {DRAINS}"));
            }
            Event::Signal(SIGTERM | SIGINT) => return Ok(()),
            Event::Signal(_) => {}
        }
    };
    engine.outside.draining = is_draining;
    if let Some(binlog) = &binlog {
        start_binlog_threads(binlog, sender).map_err(cannot("keeping jobs"))?;
    }

    for listener in &listeners {
        listener
            .listen(limits.narrow_sockets)
            .map_err(|error| cannot_listen(listener, error))?;
    }
    let addresses: Vec<_> = listeners.iter().map(ToString::to_string).collect();
    let started = Server::start(engine, binlog.clone(), clock, listeners, limits);
    let server = started.map_err(cannot("starting the server"))?;
    for address in &addresses {
        log::info(format_args!("listening on {address}"));
    }
    let status = if is_draining {
        format!("Draining: {DRAINS}")
    } else {
        format!("Serving on {}", addresses.join(" "))
    };
    notify::send(&format!("READY=1\nSTATUS={status}"));
    wait_for_the_end(&events, &server);
    log::info("stopping");
    notify::send("STOPPING=1\nSTATUS=Stopping");
    server.stop();
    match binlog.as_deref().and_then(Binlog::failure) {
        None => Ok(()),
        Some(error) => Err((Exit::BinlogFailed, format!("the binlog failed: {error}"))),
    }
}

fn warn_of(notices: &[String]) {
    notices.iter().for_each(log::warning);
}

/// Binds the sockets that the options name.
fn bind(options: &Options, user: Option<&User>) -> Result<Vec<Listener>, Failure> {
    let bind = |address| {
        Listener::bind(address, &options.listen, &options.socket_access, user)
            .map_err(|error| cannot_listen(address, error))
    };
    options.listen.iter().map(bind).collect()
}

/// Uses the inherited sockets, and not the addresses of the options.
fn take_over(inherited: Vec<Inherited>, options: &Options) -> Vec<Listener> {
    let mut listeners = Vec::new();
    for (listener, name) in inherited {
        log::info(format_args!("inherited {listener} {name}"));
        listeners.push(listener);
    }
    let is_inherited = |address: &String| listeners.iter().any(|one| one.to_string() == *address);
    for address in options.listen.iter().map(ToString::to_string) {
        if options.listen_was_given && !is_inherited(&address) {
            log::warning(format_args!(
                "not listening on {address}: with inherited sockets -l and -p have no effect"
            ));
        }
    }
    listeners
}

fn find_user(name: &str) -> Result<User, Failure> {
    match User::from_name(name) {
        // Without a list of users there are none in it.
        Err(Errno::ENOENT) | Ok(None) => {
            Err((Exit::NoSuchUser, format!("-u {name}: no such user")))
        }
        Err(error) => Err(cannot_become(name, error.into())),
        Ok(Some(user)) => Ok(user),
    }
}

/// The limits, and how much memory to allow in bytes, with `None` for no limit: what the
/// options ask for, or else what the system can have now without ending the server. The
/// heap is told of it.
fn allow(options: &Options) -> (Limits, Option<u64>) {
    let memory = system::memory();
    let limits = Limits {
        max_job_size: options.max_job_size,
        max_connections: max_connections(options, &memory),
        idle_timeout: options.idle_timeout,
        segment_size: options.segment_size,
        narrow_sockets: system::has_group_limit(),
    };
    let beside = |one: &Memory| one.beside(limits.max_connections);
    let max_memory = max_memory(options.max_memory, memory.iter().map(beside).min());
    beanpole::server::hold_in_heap(max_memory);
    (limits, max_memory)
}

fn max_connections(options: &Options, memory: &[Memory]) -> usize {
    let (possible, limit) = system::connections(options.binlog.is_some());
    let possible = usize::try_from(possible).unwrap_or(usize::MAX);
    let by_memory = memory.iter().map(Memory::connections).min();
    let (usual, because) = match by_memory {
        Some((most, because)) if most < possible as u64 => (most as usize, because),
        _ => (possible, limit.clone()),
    };
    let usually = format!("at most {usual} connections, because {because}");
    match options.max_connections {
        Some(asked) if asked > possible => log::warning(format_args!(
            "--max-connections {asked}: lowered to {possible}, because {limit}"
        )),
        Some(asked) if asked > usual => log::warning(format_args!(
            "--max-connections {asked} is more than the usual {usual}, because {because}"
        )),
        Some(asked) => detail(format_args!("at most {asked} connections")),
        None if usual < FEW_CONNECTIONS => log::warning(usually),
        None if usual < EXPECTED_CONNECTIONS => log::info(usually),
        None => detail(usually),
    }
    options.max_connections.unwrap_or(usual).min(possible)
}

fn max_memory(asked: Option<u64>, usual: Option<Bound>) -> Option<u64> {
    match (asked, &usual) {
        (Some(0), _) => detail("no limit of memory"),
        (Some(asked), Some((most, because))) if asked > *most => log::warning(format_args!(
            "--max-memory: {asked} is more than the usual {most}, because {because}"
        )),
        (Some(asked), _) => detail(format_args!("at most {asked} bytes of memory for clients")),
        (None, Some((most, because))) => {
            let line = format!("at most {most} bytes of memory for clients, because {because}");
            if *most < EXPECTED_MEMORY {
                log::info(line)
            } else {
                detail(line)
            }
        }
        (None, None) => {
            log::warning("no limit of memory: the system does not say how much there is");
        }
    }
    let most = asked.or(usual.map(|(most, _)| most));
    most.filter(|bytes| *bytes > 0)
}

/// Logs a detail, if `-V` asks for such lines.
fn detail(text: impl std::fmt::Display) {
    if log::is_on(Level::Connections) {
        log::info(text);
    }
}

/// Locks the binlog, if the options ask for one, finds out what the system allows, and
/// reads the jobs in it.
fn open(options: &Options, mut clock: Clock) -> Result<Recovered, Failure> {
    let config = |max_memory| Config {
        max_job_size: options.max_job_size,
        max_memory,
        max_jobs_per_tube: options.max_jobs_per_tube,
        keeps_changes: options.binlog.is_some(),
    };
    let Some(binlog) = &options.binlog else {
        let (limits, max_memory) = allow(options);
        let engine = Engine::new(config(max_memory), clock.now());
        return Ok((engine, None, clock, limits));
    };
    // A message that says how to repair the directory has a command to copy.
    let repair = format!("repair {} NEW", binlog.dir.display());
    let within = format!("in {}", binlog.dir.display());
    let unusable = |error: binlog::Error| {
        let text = error.to_string().replace("repair DIR NEW", &repair);
        let message = text.replace("in the binlog directory", &within);
        (Exit::BinlogUnusable, message)
    };
    let locked = match binlog::lock(&binlog.dir, false) {
        Err(binlog::Error::Locked(_)) if binlog.wait => {
            let waiting = format!("another server has {} locked", binlog.dir.display());
            log::info(format_args!("waiting: {waiting}"));
            notify::send(&format!("STATUS=Waiting: {waiting}"));
            binlog::lock(&binlog.dir, true)
        }
        locked => locked,
    };
    let (storage, notices) = locked.map_err(unusable)?;
    warn_of(&notices);
    // The rest of a delay is measured by the system's clock, which may have been set
    // while we waited for the lock.
    clock.set();
    // What was available before may have been the other server's.
    let (limits, max_memory) = allow(options);
    let mut engine = Engine::new(config(max_memory), clock.now());
    let opened = binlog::recovery::recover(storage, binlog.sync, binlog.segment_size, &mut engine)
        .map_err(unusable)?;
    warn_of(&opened.notices);
    engine.set_next_id(opened.next_id);
    engine.outside.most_changes = Some(opened.binlog.most_changes());
    let behind = engine.latest_restored.since(clock.now()).as_secs();
    if behind > 0 {
        log::warning(format_args!(
            "the system's clock is {behind} s behind the newest change in the binlog: a delay that ended may begin again"
        ));
    }
    let jobs = log::counted(engine.job_count() as u64, "job");
    log::info(format_args!("recovered {jobs}"));
    Ok((engine, Some(opened.binlog), clock, limits))
}

/// Starts the binlog's threads.
fn start_binlog_threads(binlog: &Arc<Binlog>, events: Sender<Event>) -> io::Result<()> {
    let report = move |event: binlog::Event<'_>| match event {
        binlog::Event::NoRoom(len, error, taken) => {
            let hint = match taken {
                0 => String::new(),
                bytes => {
                    format!("; files binlog.*.taken have {bytes} bytes, and no server needs them")
                }
            };
            log::warning(format_args!(
                "the binlog has no room for a new job of {len} bytes: {error}{hint}"
            ));
        }
        binlog::Event::NotRemoved(error) => {
            log::warning(format_args!("{error}; the file is not needed"));
        }
        binlog::Event::Room => log::info("the binlog has room for such a job again"),
        binlog::Event::Failed(_) => {
            // The server has to stop in order. If sending fails, it is already
            // stopping.
            let (Ok(()) | Err(_)) = events.send(Event::Signal(SIGTERM));
        }
    };
    binlog.spawn_threads(report)?;
    Ok(())
}

/// Does what signals ask for, until a signal asks to end.
fn wait_for_the_end(events: &Receiver<Event>, server: &Server) {
    let pulse = notify::pulse_interval();
    loop {
        match events.recv_timeout(pulse.unwrap_or(Duration::MAX)) {
            Ok(Event::Signal(SIGUSR1)) => {
                server.drain();
                log::info(format_args!("drain mode: {DRAINS}"));
                notify::send(&format!("STATUS=Draining: {DRAINS}"));
            }
            Ok(Event::Signal(SIGTERM | SIGINT)) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        if pulse.is_some() {
            // The server is well only if it can get at the engine.
            server.probe();
            notify::send("WATCHDOG=1");
        }
    }
}

/// Makes a failure that names the step that the system refused.
fn cannot(step: &str) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let hint = match error.kind() {
            // glibc does without clone3 only if the system does not know it.
            io::ErrorKind::PermissionDenied if cfg!(target_env = "gnu") => {
                "; if an old container engine refuses clone3, take a newer one, or the static build"
            }
            _ => "",
        };
        (Exit::CannotStart, format!("{step}: {error}{hint}"))
    }
}

fn cannot_become(user: &str, error: io::Error) -> Failure {
    (
        Exit::CannotBecomeUser,
        format!("-u {user}: becoming the user: {error}"),
    )
}

fn cannot_listen(address: impl Display, error: io::Error) -> Failure {
    let address = address.to_string();
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse if !address.starts_with("unix:") => {
            "; stop the other server, perhaps beanstalkd, or choose another port with -p (or does another -l have this one?)"
        }
        _ => "",
    };
    let failure = format!("listening on {address}: {error}{hint}");
    (Exit::CannotListen, failure)
}
