//! Why a command of the companion ends, and the exit status that says so.
//!
//! `check` has statuses of its own, those of monitoring plugins.

use beanpole::protocol::{JobId, TubeName};
use std::fmt;
use std::io;
use std::process::ExitCode;

/// How a command that was carried out ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// Everything asked for was done.
    Done,
    /// The answer is no: nothing there, or not all of it.
    No,
    /// A status with a meaning of the command's own.
    Own(ExitCode),
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense.
    Usage(String),
    /// What the command is about does not exist, or not as it should.
    Missing(String),
    /// The server cannot be reached, or is there no more.
    Unreachable(String),
    /// The server refused, or a file or a process did.
    Refused(String),
    /// Somebody told us to stop, and what was under way is finished.
    Interrupted(String),
    /// Whoever read the output has gone: nothing left to say, and nobody to
    /// say it to.
    OutputClosed,
}

/// What a command comes to.
pub type Outcome<T = Status> = Result<T, Failure>;

impl Status {
    /// `Done` if this holds, else `No`.
    pub fn done_if(all: bool) -> Status {
        if all { Status::Done } else { Status::No }
    }

    /// The status that the shell sees.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Status::Done => ExitCode::SUCCESS,
            Status::No => ExitCode::from(1),
            Status::Own(code) => code,
        }
    }
}

impl Failure {
    /// What a function returns if the arguments make no sense.
    pub fn usage<T>(text: impl Into<String>) -> Outcome<T> {
        Err(Failure::Usage(text.into()))
    }

    /// What it returns if somebody refused.
    pub fn refused<T>(text: impl Into<String>) -> Outcome<T> {
        Err(Failure::Refused(text.into()))
    }

    /// An error of the operating system, with what was being done.
    pub fn io(action: impl fmt::Display, error: io::Error) -> Failure {
        Failure::Refused(format!("{action}: {error}"))
    }

    /// For `map_err`: this was being done when the error came.
    pub fn of<E: fmt::Display>(doing: impl fmt::Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure::Refused(format!("{doing}: {error}"))
    }

    /// It was stopped behind so many jobs, of so many.
    pub fn interrupted(done: u64, total: u64) -> Failure {
        Failure::Interrupted(format!(
            "interrupted: {done} of {total} jobs are done, the others are as they were"
        ))
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
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::io("cannot write the output", error),
        }
    }

    /// The same, with what it is about in front.
    pub fn about(mut self, what: impl fmt::Display) -> Failure {
        let about = format!("{what}: {self}");
        match &mut self {
            Failure::Usage(text)
            | Failure::Missing(text)
            | Failure::Unreachable(text)
            | Failure::Refused(text)
            | Failure::Interrupted(text) => *text = about,
            Failure::OutputClosed => {}
        }
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
            Failure::OutputClosed => 141,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text)
            | Failure::Missing(text)
            | Failure::Unreachable(text)
            | Failure::Refused(text)
            | Failure::Interrupted(text) => f.write_str(text),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}
