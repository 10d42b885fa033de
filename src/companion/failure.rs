//! Why a command of the companion ends, and its exit status.
//!
//! `check` has statuses of its own, those of monitoring plugins.

use beanpole::protocol::{JobId, TubeName};
use std::fmt;
use std::io;
use std::process::ExitCode;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// All that was asked for is done.
    Done,
    /// The answer is no: there was nothing, or not all could be done.
    No,
    /// A status whose meaning the command itself defines.
    Own(u8),
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense.
    Usage(String),
    /// The thing that was asked for does not exist, or is not as it should be.
    Missing(String),
    /// The server cannot be reached, or the connection to it has ended.
    Unreachable(String),
    /// The server, a file or a process refused.
    Refused(String),
    /// A signal asked us to stop, and the work that was under way is finished.
    Interrupted(String),
    /// The reader of the output has ended, so no message can reach it.
    OutputClosed(String),
}

/// The result of a command, or of a part of it.
pub type Outcome<T = Status> = Result<T, Failure>;

impl Status {
    /// `Done` if `all` is true, else `No`.
    pub fn done_if(all: bool) -> Status {
        if all { Status::Done } else { Status::No }
    }

    /// The status that the shell sees.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Status::Done => ExitCode::SUCCESS,
            Status::No => ExitCode::from(1),
            Status::Own(status) => ExitCode::from(status),
        }
    }
}

impl Failure {
    /// An error: the arguments make no sense.
    pub fn usage<T>(text: impl Into<String>) -> Outcome<T> {
        Err(Failure::Usage(text.into()))
    }

    /// An error: the server, a file or a process refused.
    pub fn refused<T>(text: impl Into<String>) -> Outcome<T> {
        Err(Failure::Refused(text.into()))
    }

    /// An error of the operating system, and what was being done.
    pub fn io(action: impl fmt::Display, error: io::Error) -> Failure {
        Failure::of(action)(error)
    }

    /// For `map_err`: `doing` says what was being done when the error came.
    pub fn of<E: fmt::Display>(doing: impl fmt::Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure::Refused(format!("{doing}: {}", plain(error)))
    }

    /// There is no such tube.
    pub fn no_tube(tube: &TubeName) -> Failure {
        Failure::Missing(format!("there is no tube '{tube}'"))
    }

    /// There is no such job.
    pub fn no_job(id: JobId) -> Failure {
        Failure::Missing(format!("there is no job {id}"))
    }

    /// An error while writing the output.
    pub fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed("the output was closed".into()),
            _ => Failure::io("cannot write the output", error),
        }
    }

    /// The same failure, with what it is about in front of its text.
    pub fn about(self, what: impl fmt::Display) -> Failure {
        self.map(|text| format!("{what}: {text}"))
    }

    /// The same failure, with another line after its text.
    pub fn with(self, line: impl fmt::Display) -> Failure {
        self.map(|text| format!("{text}\n{line}"))
    }

    /// The same failure with its text as it is changed.
    pub fn map(mut self, change: impl FnOnce(&str) -> String) -> Failure {
        use Failure::*;
        let (Usage(text) | Missing(text) | Unreachable(text) | Refused(text) | Interrupted(text)
        | OutputClosed(text)) = &mut self;
        *text = change(text);
        self
    }

    /// The status that the shell sees.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Missing(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
            Failure::Refused(_) => 4,
            // As if SIGINT had ended the program.
            Failure::Interrupted(_) => 130,
            // As if SIGPIPE had ended the program.
            Failure::OutputClosed(_) => 141,
        })
    }
}

/// An error without the number that the operating system has for it, and without
/// the words of the library that looks names up.
pub fn plain(error: impl fmt::Display) -> String {
    let whole = error.to_string();
    let text = whole.trim_start_matches("failed to lookup address information: ");
    text.split(" (os error ").next().unwrap_or_default().into()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Failure::*;
        let (Usage(text) | Missing(text) | Unreachable(text) | Refused(text) | Interrupted(text)
        | OutputClosed(text)) = self;
        f.write_str(text)
    }
}
