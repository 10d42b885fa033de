//! beanpoled, the daemon: a table of contents of how it starts and ends.
//!
//! The main thread binds the sockets, gives up its privileges, waits until
//! another thread has recovered the jobs, and starts the server. From then on
//! it waits for signals.

use beanpole::binlog::{self, Binlog};
use beanpole::engine::{Config, Engine};
use beanpole::log;
use beanpole::options::{self, Exit, Invocation, Options};
use beanpole::server::activation::{self, Inherited};
use beanpole::server::limits::Capacity;
use beanpole::server::{Clock, Limits, Listener, Server, VERSION, notify, privileges, spawn};
use crossbeam_channel::{Receiver, Sender, bounded, never, select, tick, unbounded};
use nix::sys::stat::{Mode, umask};
use nix::unistd::User;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

/// Why the server ends: the exit status, and a message with the step that
/// failed and the reason.
type Failure = (Exit, String);

/// The recovered jobs, and the binlog that keeps them from now on, if there is
/// one.
type Recovered = (Engine, Option<Arc<Binlog>>);

fn main() -> ExitCode {
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Invocation::Help) => eprint!("{}", options::usage()),
        Ok(Invocation::Version) => println!("beanpoled {VERSION}"),
        Ok(Invocation::Serve(options)) => {
            let end = serve(*options);
            if let Err((_, message)) = &end {
                log::error(format_args!("{message}"));
            }
            log::finish();
            if let Err((exit, _)) = end {
                return ExitCode::from(exit as u8);
            }
        }
        Err(message) => {
            eprint!("beanpoled: {message}\n{}", options::usage());
            return ExitCode::from(Exit::Usage as u8);
        }
    }
    ExitCode::SUCCESS
}

/// The order matters: the steps that need privileges come first, and the
/// privileges are gone before anything is read from the binlog or from a
/// client.
fn serve(options: Options) -> Result<(), Failure> {
    beanpole::server::use_one_heap();
    log::start(options.verbosity).map_err(cannot("starting the log"))?;
    for warning in &options.warnings {
        log::warning(format_args!("{warning}"));
    }
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let inherited = activation::inherited_sockets();
    let inherited = inherited.map_err(|message| (Exit::CannotListen, message))?;
    // From here on, a signal waits until a thread reads it.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]);
    let mut signals = signals.map_err(cannot("trapping signals"))?;
    let user = options.user.as_deref().map(find_user).transpose()?;
    let listeners = match inherited.is_empty() {
        true => bind(&options, user.as_ref())?,
        false => take_over(inherited, &options),
    };
    if let Some(user) = &user {
        privileges::become_user(user).map_err(|error| cannot_become(&user.name, error))?;
    }
    let limits = Limits {
        max_job_size: options.max_job_size,
        max_connections: max_connections(&options),
        idle_timeout: options.idle_timeout,
        segment_size: options.segment_size,
    };
    let (tell, heard) = unbounded();
    let tell_signal = tell.clone();
    let hear = move || {
        // If sending fails, the main thread is ending the server.
        signals
            .forever()
            .all(|signal| tell_signal.send(signal).is_ok());
    };
    spawn("signals", hear).map_err(cannot("hearing signals"))?;

    notify::tell("STATUS=Recovering jobs");
    let clock = Clock::start();
    // Recovery may take long. It has its own thread, so that signals are
    // handled meanwhile. The server may end at any moment of it without harm.
    let (done, recovered) = bounded(1);
    let recover = move || {
        // If sending fails, the main thread is ending the server.
        let (Ok(()) | Err(_)) = done.send(open(&options, clock));
    };
    spawn("recovery", recover).map_err(cannot("recovering jobs"))?;
    let mut is_draining = false;
    let (mut engine, binlog) = loop {
        select! {
            recv(recovered) -> recovered => break recovered.expect("no thread panics")?,
            recv(heard) -> signal => match signal {
                Ok(SIGUSR1) => is_draining = true,
                Ok(SIGTERM | SIGINT) => return Ok(()),
                _ => {}
            },
        }
    };
    engine.draining = is_draining;
    if let Some(binlog) = &binlog {
        start_keeping(binlog, tell).map_err(cannot("keeping jobs"))?;
    }

    for listener in &listeners {
        listener
            .listen()
            .map_err(|error| cannot_listen(listener, error))?;
    }
    let places: Vec<_> = listeners.iter().map(ToString::to_string).collect();
    let server = Server::start(engine, binlog.clone(), clock, listeners, limits);
    let server = server.map_err(cannot("starting the server"))?;
    for place in &places {
        log::info(format_args!("listening on {place}"));
    }
    notify::tell(&format!("READY=1\nSTATUS=Serving on {}", places.join(" ")));
    wait_for_the_end(&heard, &server);
    log::info(format_args!("stopping"));
    notify::tell("STOPPING=1\nSTATUS=Stopping");
    server.stop().map_err(cannot("stopping the server"))?;
    match binlog.as_deref().and_then(Binlog::failure) {
        None => Ok(()),
        Some(error) => Err((Exit::BinlogFailed, format!("the binlog failed: {error}"))),
    }
}

/// Binds the sockets that the options name.
fn bind(options: &Options, user: Option<&User>) -> Result<Vec<Listener>, Failure> {
    let bind = |address| {
        Listener::bind(address, &options.socket_access, user)
            .map_err(|error| cannot_listen(address, error))
    };
    options.listen.iter().map(bind).collect()
}

/// Uses the sockets that were handed to us, and not those that the options
/// name.
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
    match privileges::find_user(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err((Exit::NoSuchUser, format!("-u {name}: no such user"))),
        Err(error) => Err(cannot_become(name, error)),
    }
}

/// How many connections to allow: as many as the options ask for, if the system
/// can have so many.
fn max_connections(options: &Options) -> usize {
    let capacity = Capacity::find(options.binlog.is_some());
    let (most, because) = (capacity.connections, capacity.because);
    let usual = format!("at most {most} connections, because {because}");
    match options.max_connections {
        Some(asked) if asked <= most => log::info(format_args!("at most {asked} connections")),
        Some(asked) => log::warning(format_args!(
            "--max-connections {asked}: lowered to {most}, because {because}"
        )),
        None if most < Capacity::FEW => log::warning(format_args!("{usual}")),
        None => log::info(format_args!("{usual}")),
    }
    options.max_connections.unwrap_or(most).min(most)
}

/// Locks the binlog, if the options ask for one, and reads the jobs in it.
fn open(options: &Options, clock: Clock) -> Result<Recovered, Failure> {
    let config = Config {
        max_job_size: options.max_job_size,
        max_memory: options.max_memory,
        keeps_changes: options.binlog.is_some(),
    };
    let engine = Engine::new(config, clock.now());
    let Some(binlog) = &options.binlog else {
        return Ok((engine, None));
    };
    let mut at_once = binlog.clone();
    at_once.wait = false;
    let opened = match Binlog::open(&at_once, engine) {
        Err(binlog::Error::Locked(_)) if binlog.wait => {
            let waiting = format!("another server has {} locked", binlog.dir.display());
            log::info(format_args!("waiting: {waiting}"));
            notify::tell(&format!("STATUS=Waiting: {waiting}"));
            Binlog::open(binlog, Engine::new(config, clock.now()))
        }
        opened => opened,
    };
    let opened = opened.map_err(|error| (Exit::BinlogUnusable, error.to_string()))?;
    for notice in &opened.notices {
        log::warning(format_args!("{notice}"));
    }
    let mut engine = opened.jobs;
    engine.set_next_id(opened.next_id);
    // Some delays ended while the server was down.
    while engine.wake_at().is_some_and(|at| at <= clock.now()) {
        engine.tick(clock.now());
    }
    log::info(format_args!("recovered {} jobs", engine.job_count()));
    Ok((engine, Some(opened.binlog)))
}

/// Starts the binlog's threads, which write and sync what nobody waits for, and
/// make room.
fn start_keeping(binlog: &Arc<Binlog>, tell: Sender<i32>) -> io::Result<()> {
    let told = move |event: binlog::Event<'_>| match event {
        binlog::Event::Full(error) => {
            log::warning(format_args!("the binlog takes no new jobs: {error}"));
        }
        binlog::Event::Room => log::info(format_args!("the binlog takes new jobs again")),
        binlog::Event::Failed(_) => {
            // The server has to stop in order. If sending fails, it is already
            // stopping.
            let (Ok(()) | Err(_)) = tell.send(SIGTERM);
        }
    };
    binlog.spawn_threads(told)?;
    Ok(())
}

/// Does what signals ask for, until a signal asks to end.
fn wait_for_the_end(heard: &Receiver<i32>, server: &Server) {
    let pulse = notify::pulse_interval().map_or_else(never, tick);
    loop {
        select! {
            recv(heard) -> signal => match signal {
                Ok(SIGUSR1) => {
                    server.drain();
                    log::info(format_args!("drain mode: no new jobs are taken"));
                    notify::tell("STATUS=Draining: no new jobs are taken");
                }
                Ok(SIGTERM | SIGINT) | Err(_) => return,
                Ok(_) => {}
            },
            recv(pulse) -> _ => {
                // The server is well only if it can get at the engine.
                server.probe();
                notify::tell("WATCHDOG=1");
            }
        }
    }
}

/// Makes a failure that names the step that the system refused.
fn cannot(step: &str) -> impl FnOnce(io::Error) -> Failure {
    move |error| (Exit::CannotStart, format!("{step}: {error}"))
}

fn cannot_become(user: &str, error: io::Error) -> Failure {
    (
        Exit::CannotBecomeUser,
        format!("-u {user}: becoming the user: {error}"),
    )
}

fn cannot_listen(place: impl std::fmt::Display, error: io::Error) -> Failure {
    (Exit::CannotListen, format!("listening on {place}: {error}"))
}
