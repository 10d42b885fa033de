//! `console`: a page for the browser that shows servers, their tubes and their
//! jobs and, if it is allowed, changes them.
//!
//! ```text
//!  site ──> table, jobs, deeds ──> watch ──> tube ──> ring
//!  (what is    (what is asked       (samples    (figures   (the last
//!   asked)      and changed)         a server)   of one)    day)
//! ```
//!
//! A thread for each server samples it and keeps [`ring`]s of curves. The
//! threads of [`crate::http`] answer browsers from what is known, and ask the
//! server only for jobs. [`guard`] decides who may ask. The page itself is in
//! the folder `page`: HTML, CSS and JavaScript as a browser reads them, without
//! a framework. It begins in `main.js`.

mod badge;
mod deeds;
mod guard;
mod jobs;
mod ring;
mod site;
mod table;
mod tube;
mod watch;

use crate::command::{Command, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome};
use crate::http;
use crate::signals::end_at_signals;
use crate::text::output::note;
use guard::Guard;
use site::Console;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::thread;
use watch::Watched;

pub const CONSOLE: Command = Command {
    name: "console",
    about: "serve a page for the browser that shows servers, tubes and jobs",
    options: || described(OPTIONS),
    many_servers: true,
    run: console,
    ..Command::BLANK
};

options! {
    listen: String =
        Opt::value("", "listen", "ADDR", "serve it at this HOST:PORT or PORT (default: 127.0.0.1:8080)")
        => "127.0.0.1:8080".into(),
    changes: bool = Opt::flag("", "allow-changes", "let the page change jobs and tubes"),
    token: Option<OsString> =
        Opt::value("", "token", "FILE", "demand the token in this file (default: a new one, or none on loopback)")
            .of(Kind::File),
    hosts: Vec<String> =
        Opt::value("", "host", "NAME", "browsers know this machine by this name; may be repeated (default: localhost)")
            .many(),
}

fn console(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    end_at_signals()?;
    let listener = http::bind(&options.listen)?;
    let file = options.token.as_deref().map(Path::new);
    let guard = Guard::new(&listener, file, options.hosts)?;
    let url = http::url(&listener)?;
    note(match (&guard.token, file) {
        // What stands after the # is not sent, and not kept by a proxy.
        (Some(token), None) => format!("serving {url}/#token={token}"),
        _ => format!("serving {url}/"),
    });
    let patience = invocation.patience;
    let watched = |server: &_| Watched::new(Clone::clone(server), patience);
    // It is there until the program ends.
    let console: &Console = Box::leak(Box::new(Console {
        servers: invocation.servers.iter().map(watched).collect(),
        guard,
        allows_changes: options.changes,
        asking: AtomicUsize::new(0),
    }));
    for server in &console.servers {
        let thread = thread::Builder::new().name("watch".into());
        let spawned = thread.spawn(|| server.watch());
        spawned.map_err(|error| Failure::io("cannot start a thread", error))?;
    }
    http::serve(&listener, console)
}
