//! What can be wrong with a binlog, in words for the operator.

use super::frame::segment_name;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a binlog cannot be opened, or cannot continue.
///
/// Its text is a line for the operator: what was being done, to which file, why
/// it failed, and what to do if that is not obvious.
#[derive(Debug)]
pub enum Error {
    /// The directory cannot be used: missing, forbidden, not a directory.
    Directory {
        /// The directory, or the lock file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another server has the directory.
    Locked(PathBuf),
    /// An operation on a file failed.
    File {
        /// What was being done: `write`, `sync`, `read`, …
        action: &'static str,
        /// The file's name in the directory.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// A segment holds bytes that no server wrote there.
    Damaged {
        /// The segment.
        number: u32,
        /// The offset of these bytes.
        offset: u64,
        /// What is wrong with them.
        flaw: String,
    },
    /// A segment that is needed is not there.
    Missing {
        /// The segment.
        number: u32,
    },
    /// beanstalkd was started on the directory, and wrote this file.
    Foreign {
        /// The number of the file.
        number: u32,
    },
    /// No segment is there, though something shows that there were some.
    Gone,
    /// What lives leaves too little of the disk free.
    Full {
        /// How many bytes live.
        live: u64,
        /// How many may live.
        most: u64,
    },
    /// The disk has no room for copies of beanstalkd's jobs.
    NoRoomToTakeOver {
        /// How many bytes the copies need.
        needed: u64,
        /// How many there are, if that is known.
        free: Option<u64>,
    },
    /// Another server has taken over the directory.
    Lost(io::Error),
}

impl Error {
    /// For `map_err`: adds what was being done, to which file.
    pub(super) fn on(
        action: &'static str,
        name: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Error {
        let name = name.into();
        move |source| Error::File {
            action,
            name,
            source,
        }
    }

    /// What the system says, where it said something.
    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::File { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether an operation failed because the disk or the quota is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Error::File { source, .. } => is_full(source),
            Error::Full { .. } => true,
            _ => false,
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

/// What to do about damage.
const REPAIR: &str =
    "save what can be read to a new directory with `beanpole binlog repair DIR NEW`";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Directory { path, source } => {
                write!(
                    f,
                    "cannot use the binlog directory: {}: {source}",
                    path.display()
                )?;
                match source.kind() {
                    io::ErrorKind::NotFound => f.write_str("; create it first"),
                    _ => Ok(()),
                }
            }
            Error::Locked(path) => write!(
                f,
                "the binlog directory {} is locked by another server; stop that one, or use --wait to wait for it",
                path.display()
            ),
            Error::File {
                action,
                name,
                source,
            } => write!(
                f,
                "cannot {action} {name} in the binlog directory: {source}"
            ),
            Error::Damaged {
                number,
                offset,
                flaw,
            } => write!(
                f,
                "{} is damaged at offset {offset}: {flaw}; nothing was changed; {REPAIR}, or restore the file from a copy",
                segment_name(*number)
            ),
            Error::Missing { number } => write!(
                f,
                "{} is missing though jobs in it are needed; nothing was changed; put it back, or {REPAIR}",
                segment_name(*number)
            ),
            Error::Foreign { number } => {
                let name = segment_name(*number);
                write!(
                    f,
                    "{name} was written by beanstalkd, after the segments of beanpoled; nothing was changed; move {name} to another directory to start with the jobs of beanpoled (its own jobs are taken over by a start with -b on that directory)",
                )
            }
            Error::Gone => write!(
                f,
                "the segments are missing, though the spares show that there were some; nothing was changed; put them back, or move the spares away too to start without their jobs"
            ),
            Error::Full { live, most } => write!(
                f,
                "the jobs take {live} bytes of the {most} that the disk has for them"
            ),
            Error::NoRoomToTakeOver { needed, free } => {
                write!(
                    f,
                    "cannot take over the jobs of beanstalkd: copies of them need {needed} bytes on the disk"
                )?;
                if let Some(free) = free {
                    write!(f, ", and {free} are free")?;
                }
                f.write_str("; nothing was changed; make room, or start beanstalkd again")
            }
            Error::Lost(source) => write!(
                f,
                "the lock on the binlog directory is lost: {source}; nothing is acknowledged or changed there any more"
            ),
        }
    }
}

impl std::error::Error for Error {}
