//! The output of the companion: standard output and its terminal, messages, a
//! progress line, a question, and files that are written as a whole.

use crate::failure::{Failure, Outcome, Status};
use crate::text::json;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{O_ACCMODE, O_RDONLY, O_RDWR};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::{FileStat, SFlag, fstat};
use rustix::io::ioctl_fionread;
use rustix::termios;
use serde::Serialize;
use std::fmt;
use std::fs::{OpenOptions, Permissions, symlink_metadata};
use std::io::{self, BufRead, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Standard output or a file, buffered.
pub struct Output {
    stream: BufWriter<Box<dyn Write>>,
    /// The path of the file, if it is one.
    path: Option<PathBuf>,
    /// Where the text of the file is until it is complete; if it never is, this file goes.
    /// `None` if the text goes directly to its place.
    beside: Option<NamedTempFile>,
}

impl Output {
    /// Locks standard output; no other part of the program may hold it.
    pub fn new() -> Output {
        Output {
            stream: BufWriter::with_capacity(1 << 16, Box::new(io::stdout().lock())),
            path: None,
            beside: None,
        }
    }

    /// Begins a file for this path, with these permissions, that is written as a whole: a
    /// reader finds the old text or the new one. Something other than a regular file, such
    /// as a device or a pipe, is written directly and stays. Without a path, and with `-`,
    /// it is standard output.
    ///
    /// A symbolic link to a file is refused: in a directory like `/tmp` it may be another
    /// user's, and lead root to any file.
    pub fn to(path: Option<&Path>, mode: u32) -> Outcome<Output> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Output::new());
        };
        let create = || {
            let there = match symlink_metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                there => Some(there?),
            };
            if there.is_some_and(|there| !there.is_file()) {
                // The kernel does not follow a link here that it holds to be dangerous.
                let file = OpenOptions::new().write(true).open(path)?;
                if file.metadata()?.is_file() {
                    return Err(io::Error::other("a symbolic link: name its file itself"));
                }
                return Ok((file, None));
            }
            // After a kill, its name says what it is.
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(".");
            let mut builder = tempfile::Builder::new();
            builder.prefix(&name);
            builder.permissions(Permissions::from_mode(mode));
            let beside = builder.tempfile_in(path.parent().unwrap_or(path))?;
            Ok((beside.as_file().try_clone()?, Some(beside)))
        };
        let (file, beside) = create().map_err(|error| cannot_write(path, error))?;
        Ok(Output {
            stream: BufWriter::new(Box::new(file)),
            path: Some(path.into()),
            beside,
        })
    }

    /// Writes this text and a line feed.
    pub fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        writeln!(self.stream, "{text}").map_err(|error| self.failed(error))
    }

    /// Writes a value on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Outcome<()> {
        json::line(&mut self.stream, value).map_err(|error| self.failed(error))
    }

    /// Writes these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome<()> {
        let written = self.stream.write_all(bytes);
        written.map_err(|error| self.failed(error))
    }

    /// Gives everything to the system.
    pub fn sync(&mut self) -> Outcome<()> {
        self.stream.flush().map_err(|error| self.failed(error))
    }

    /// The same; a file comes to its place, complete and on disk.
    pub fn finish(mut self) -> Outcome<()> {
        self.sync()?;
        let (Some(beside), Some(path)) = (self.beside.take(), &self.path) else {
            return Ok(());
        };
        let synced = beside.as_file().sync_all();
        let placed = synced.and_then(|()| Ok(beside.persist(path)?));
        placed.map(drop).map_err(|error| cannot_write(path, error))
    }

    fn failed(&self, error: io::Error) -> Failure {
        match &self.path {
            Some(path) => cannot_write(path, error),
            None => Failure::output(error),
        }
    }

    /// Waits until all that was given to the system has been read. This can be
    /// known only of a pipe. If the reader has ended, this is a failure.
    pub fn await_reader(&self) -> Outcome<()> {
        let stdout = io::stdout();
        let stat = fstat(&stdout).map_err(|errno| Failure::output(errno.into()))?;
        if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFIFO.bits() {
            return Ok(());
        }
        let unread = || ioctl_fionread(&stdout).map_err(|errno| Failure::output(errno.into()));
        while unread()? > 0 {
            // There is no event for an empty pipe, but there is one for a
            // reader that has ended.
            let mut pipe = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
            if poll(&mut pipe, POLL).is_ok_and(|count| count > 0) && unread()? > 0 {
                return Err(Failure::output(ErrorKind::BrokenPipe.into()));
            }
        }
        Ok(())
    }
}

/// The command that runs.
static COMMAND: OnceLock<&str> = OnceLock::new();

/// Has messages come in the name of this command from now on.
pub fn speak_for(command: &'static str) {
    // It is set once, at the beginning.
    let _ = COMMAND.set(command);
}

/// The server at which several are changed now, as messages begin with it; else nothing.
static SERVER: Mutex<String> = Mutex::new(String::new());

/// Has messages and progress name this server, one of several, while this is done.
pub fn naming<T>(server: &str, act: impl FnOnce() -> T) -> T {
    *named_server() = format!("{server}: ");
    let done = act();
    named_server().clear();
    done
}

fn named_server() -> MutexGuard<'static, String> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a message to standard error, in the name of the command.
macro_rules! complain {
    ($($message:tt)*) => { $crate::text::output::say(format_args!($($message)*)) };
}
pub(crate) use complain;

pub fn say(message: fmt::Arguments<'_>) {
    let server = named_server();
    match COMMAND.get() {
        Some(command) => note(format_args!("beanpole {command}: {server}{message}")),
        None => note(format_args!("beanpole: {message}")),
    }
}

/// Writes a line to standard error. If this fails, nobody reads it.
pub fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a text that is the whole output.
pub fn print(text: String) -> Outcome {
    let mut output = Output::new();
    output.bytes(text.as_bytes())?;
    output.sync()?;
    Ok(Status::Done)
}

/// Whether nothing can be written to standard output. If it was closed when the program
/// began, it is /dev/null, opened for reading as well, while a shell opens that for writing
/// only. The standard library hides that one for reading only takes nothing.
pub fn is_closed() -> bool {
    let stdout = io::stdout();
    let mode = fcntl(&stdout, FcntlArg::F_GETFL).map_or(O_RDONLY, |flags| flags & O_ACCMODE);
    let device = |stat: FileStat| (stat.st_rdev > 0).then_some(stat.st_rdev);
    let null = nix::sys::stat::stat("/dev/null").ok().and_then(device);
    let is_null = null.is_some() && fstat(&stdout).ok().and_then(device) == null;
    mode == O_RDONLY || mode == O_RDWR && is_null
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether there is a terminal on which the program can talk to a person.
pub fn has_person() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// How many columns and rows the terminal of standard output has, if there is
/// one.
pub fn size() -> Option<(usize, usize)> {
    let size = termios::tcgetwinsize(io::stdout()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
        .filter(|&(width, height)| width > 0 && height > 0)
}

/// How many columns a line of standard output may have: what the user says in
/// `COLUMNS`, or else what the terminal has, if there is one.
pub fn width() -> Option<usize> {
    let variable = std::env::var("COLUMNS").ok();
    let said = variable.and_then(|text| text.parse().ok());
    said.filter(|width| *width > 0)
        .or_else(|| size().map(|(width, _)| width))
}

/// Asks a question. Only `y` or `yes` means yes.
///
/// Without a terminal to ask at, this is a failure, and its text names the
/// option that answers in advance.
pub fn confirm(question: impl fmt::Display) -> Outcome<bool> {
    if !io::stdin().is_terminal() {
        let advice = "no terminal to ask at: give --yes if you mean it";
        return Failure::usage(format!("{question} {advice}"));
    }
    let mut terminal = io::stderr();
    let mut answer = String::new();
    write!(terminal, "{question} [y/N] ")
        .and_then(|()| terminal.flush())
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|error| Failure::io("cannot ask", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A line of progress on standard error, if that is a terminal. By default there is none.
#[derive(Default)]
pub struct Progress {
    what: &'static str,
    total: Option<u64>,
    pub done: u64,
    /// When to draw it next; `None` if there is no terminal to draw it on.
    next: Option<Instant>,
}

/// The time between two polls of a pipe, in milliseconds.
const POLL: u8 = 1;
const REDRAW: Duration = Duration::from_millis(100);

impl Progress {
    /// The progress of `total` jobs; `None` if their number is not known.
    pub fn new(what: &'static str, total: Option<u64>) -> Progress {
        let is_seen = io::stderr().is_terminal();
        Progress {
            what,
            total,
            done: 0,
            next: is_seen.then(|| Instant::now() + REDRAW),
        }
    }

    /// Counts this many more jobs as done.
    pub fn add(&mut self, count: u64) {
        self.done += count;
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + REDRAW);
        let total = self.total.filter(|total| *total >= self.done);
        let of = total.map_or(String::new(), |total| format!(" of {total}"));
        // If it cannot be drawn, nothing is lost.
        let (server, what, done) = (named_server(), self.what, self.done);
        let _ = write!(io::stderr(), "\r{server}{what} {done}{of}\x1b[K");
    }
}

/// Clears the line when the work is over, for the next output.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.next.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::io(format_args!("cannot write {}", path.display()), error)
}

/// The failure to read the input of this name.
pub fn cannot_read(name: &str, error: io::Error) -> Failure {
    Failure::io(format_args!("cannot read {name}"), error)
}
