//! The errors of a binlog, with their messages for the operator.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a binlog cannot be opened, or cannot continue.
///
/// Its text is a line for the operator: what was being done, to which file, why
/// it failed, and what to do if that is not obvious.
#[derive(Clone, Debug)]
pub enum Error {
    /// Another server has the directory.
    Locked(PathBuf),
    /// An operation failed: what the system says, and the whole text.
    Io(io::ErrorKind, String),
    /// A segment holds bytes that no server wrote there: what is wrong with them, and the whole
    /// text, which says where they are.
    Damaged(String, String),
    /// Any other reason. The text is complete.
    Refused(String),
}

/// What to do about damage.
pub(super) const REPAIR: &str =
    "save what can be read to a new directory with `beanpole binlog repair DIR NEW`";

/// What to do about jobs of beanstalkd beside our own.
pub(super) const APART: &str = ", and cannot be one log; nothing was changed; move the files binlog.* to a directory of their own, start each server on its own, and move the jobs of beanstalkd with `beanpole dump` and `beanpole load`";

/// What to do about jobs of beanstalkd that came before a takeover was over.
pub(super) const AGAIN: &str = ", by a server that no client has reached yet; nothing was changed; remove segment.* and takeover*, take .taken off the names that end in it, and start again";

impl Error {
    /// For `map_err`: adds what was being done, to which file.
    pub(super) fn on(
        action: &'static str,
        name: impl fmt::Display,
    ) -> impl FnOnce(io::Error) -> Error {
        move |source| {
            let text = format!("cannot {action} {name} in the binlog directory: {source}");
            Error::Io(source.kind(), text)
        }
    }

    /// The directory, or the lock file in it, cannot be used: missing, forbidden, not a
    /// directory.
    pub(super) fn unusable(path: &Path, source: io::Error) -> Error {
        let path = path.display();
        let is_missing = source.kind() == io::ErrorKind::NotFound;
        let hint = if is_missing { "; create it first" } else { "" };
        let text = format!("cannot use the binlog directory: {path}: {source}{hint}");
        Error::Io(source.kind(), text)
    }

    /// Another server has taken over the directory.
    pub(super) fn lost(source: io::Error) -> Error {
        let text = format!(
            "the lock on the binlog directory is lost: {source}; nothing is acknowledged or changed there any more"
        );
        Error::Io(source.kind(), text)
    }

    /// A file holds bytes at this offset that no server wrote there.
    pub(super) fn damaged(name: &str, offset: u64, flaw: String) -> Error {
        let text = format!(
            "{name} is damaged at offset {offset}: {flaw}; nothing was changed; {REPAIR}, or restore the file from a copy"
        );
        Error::Damaged(flaw, text)
    }

    /// The files from one number to another are not there, though they are needed.
    pub(super) fn missing(first: u32, last: u32, name: fn(u32) -> String) -> Error {
        let mut missing = name(first);
        if first < last {
            missing += &format!(" to {}", name(last));
        }
        Error::Refused(format!(
            "{missing} is missing though jobs in it are needed; nothing was changed; put it back, or {REPAIR}"
        ))
    }

    /// A file has a format that this program does not read.
    pub(super) fn other_format(name: &str, what: impl fmt::Display, program: &str) -> Error {
        Error::Refused(format!(
            "{name} is {what}; nothing was changed; start the {program} that wrote it, and move its jobs with `beanpole dump` and `beanpole load`"
        ))
    }

    /// What a start says of a file that it cannot use, and does not need.
    pub(super) fn left_alone(&self) -> String {
        format!("left alone, since it is not needed: {self}")
    }

    /// What the system says, where it said something.
    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io(kind, _) => Some(*kind),
            _ => None,
        }
    }
}

/// Whether this error says that the disk or the quota is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Locked(path) => write!(
                f,
                "the binlog directory {} is locked by another server or `beanpole binlog`; stop that one, or use --wait to wait for it",
                path.display()
            ),
            Error::Io(_, text) | Error::Damaged(_, text) | Error::Refused(text) => {
                f.write_str(text)
            }
        }
    }
}
