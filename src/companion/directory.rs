//! A directory with a log, which is only read: also one that nobody can write to.

use crate::failure::plain;
use crate::text::output::complain;
use beanpole::binlog::storage::{File, Source};
use beanpole::binlog::{Error, lock_to_read};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Locks a directory: no server uses it as long as the result lives. Its file `lock` is not
/// made, where there is none: it would be in the way of a server that runs as another user.
pub fn open(path: &Path) -> Result<Arc<dyn Source>, Error> {
    use io::ErrorKind::{NotADirectory, NotFound};
    if path.is_dir() && !path.join("lock").exists() {
        return lock_itself(path);
    }
    match lock_to_read(path, false) {
        Ok(directory) => Ok(Arc::new(directory)),
        Err(Error::Io(kind, why)) if !matches!(kind, NotFound | NotADirectory) => {
            if kind != io::ErrorKind::ReadOnlyFilesystem {
                complain!("it is read without a lock: {}", plain(why));
            }
            lock_itself(path)
        }
        Err(error) => Err(error),
    }
}

/// Locks only the directory itself, as a server does beside its file `lock`.
fn lock_itself(path: &Path) -> Result<Arc<dyn Source>, Error> {
    let directory = fs::File::open(path).ok();
    let locked = directory.as_ref().map(fs::File::try_lock_shared);
    match locked {
        Some(Err(TryLockError::WouldBlock)) => Err(Error::Locked(path.to_owned())),
        // Not every file system can lock a directory, and what cannot be opened cannot be read.
        _ => Ok(Arc::new(ReadOnly(path.to_owned(), directory))),
    }
}

/// A directory in which no file is made or changed.
struct ReadOnly(
    PathBuf,
    #[expect(dead_code, reason = "it has the lock")] Option<fs::File>,
);

impl Source for ReadOnly {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        // Opening a pipe would wait for its other end. A server follows no symbolic link here.
        let mut opening = OpenOptions::new();
        let options = opening.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
        let file = options.open(self.0.join(name))?;
        if file.metadata()?.is_file() {
            Ok(Arc::new(file))
        } else {
            Err(io::Error::other("it is no regular file"))
        }
    }
}
