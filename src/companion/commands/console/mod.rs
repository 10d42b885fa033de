//! `console`: a page for the browser that shows servers, their tubes and their
//! jobs and, if it is allowed, changes them.
//!
//! Each server is [watched](crate::remote::watch), whether or not a page is
//! open. The threads of [`crate::http`] answer browsers from what is known, and
//! ask the server only for jobs: [`site`] is all that can be asked for, [`answers`]
//! answers questions about jobs and makes changes. The page itself is in the
//! folder `page`: HTML, CSS and JavaScript as a browser reads them, without a
//! framework. It begins in `main.js`.

mod answers;
mod site;

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome};
use crate::http::{self, Link, Request};
use crate::remote::Watched;
use crate::signals::end_at_signals;
use crate::text::output::note;
use clap::{Args, ValueHint};
use site::Console;
use std::fs::File;
use std::io::{Read, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
pub struct Serve {
    /// serve it at this HOST:PORT or PORT (default: 127.0.0.1:8080)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: String,
    /// let the page change jobs and tubes
    #[arg(long = "allow-changes")]
    changes: bool,
    /// demand the token in this file (default: a new one, or none on loopback)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token: Option<PathBuf>,
    /// who has the token in this file may only look (default: nobody)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    read_only: Option<PathBuf>,
    /// browsers know this machine by this name; may be repeated (default: localhost)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

/// From one sample of a server to the next. The page asks as often, so it shows what
/// happens within two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

impl Run for Serve {
    fn run(self, invocation: &Invocation) -> Outcome {
        end_at_signals()?;
        let (listener, bound) = http::bind(&self.listen)?;
        let read_only = self.read_only.as_deref().map(token_in).transpose()?;
        // Off the loopback there is always a token.
        let token = match &self.token {
            Some(file) => Some(token_in(file)?),
            None if bound.ip().is_loopback() && read_only.is_none() => None,
            None => Some(new_token()?),
        };
        let servers = Watched::all(&invocation.servers, invocation.patience());
        for server in &servers {
            server.start(INTERVAL, || {})?;
        }
        note(match (&token, self.token) {
            // The part after the # is not sent, and not logged by a proxy.
            (Some(token), None) => format!("serving http://{bound}/#token={token}"),
            _ => format!("serving http://{bound}/"),
        });
        let console = Console {
            servers,
            token,
            read_only,
            allows_changes: self.changes,
            asking: Arc::default(),
        };
        let answer = move |request: &Request, link: &mut Link| console.answer(request, link);
        http::serve(&listener, self.hosts, answers::LONGEST, answer)
    }
}

const SHORTEST: usize = 16;

/// The token in a file that only its owner can read, or that systemd has handed over.
fn token_in(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let cannot = |error| Failure::io(format_args!("cannot read {shown}"), error);
    let file = File::open(path).map_err(cannot)?;
    // Whom systemd lets read a credential may be in an access list, which shows as a right of
    // the group.
    let handed = std::env::var_os("CREDENTIALS_DIRECTORY");
    let is_handed = handed.is_some_and(|directory| path.starts_with(directory));
    if !is_handed && file.metadata().map_err(cannot)?.mode() & 0o077 != 0 {
        return Failure::refused(format!(
            "others may read {shown}: take that right away first (chmod 600)"
        ));
    }
    let text = read_to_string(file).map_err(cannot)?;
    let token = text.trim();
    if token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(token.into())
    } else {
        Failure::refused(format!(
            "{shown}: a token is {SHORTEST} or more characters of ASCII without spaces"
        ))
    }
}

/// A token that cannot be guessed: 128 bits.
fn new_token() -> Outcome<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Failure::io("cannot read /dev/urandom", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
