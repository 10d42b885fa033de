//! A directory with a log, which is only read: also one that nobody can write to.

use crate::failure::plain;
use crate::text::output::complain;
use beanpole::binlog::storage::{File, Source};
use beanpole::binlog::{Error, lock};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Locks a directory: no server uses it as long as the result lives. Where not even a file
/// can be made for that, no server can use it; and where there is no file `lock`, none uses
/// it. We make none there: it would be in the way of a server that runs as another user.
pub fn open(path: &Path) -> Result<Arc<dyn Source>, Error> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let unlocked = || Ok(Arc::new(Unlocked(path.to_owned())) as Arc<dyn Source>);
    if path.is_dir() && !path.join("lock").exists() {
        return unlocked();
    }
    match lock(path, false) {
        Ok((storage, _)) => Ok(storage),
        Err(Error::Io(kind, why)) if !matches!(kind, NotFound | NotADirectory) => {
            if kind != io::ErrorKind::ReadOnlyFilesystem {
                complain!("it is read without a lock: {}", plain(why));
            }
            unlocked()
        }
        Err(error) => Err(error),
    }
}

/// A directory that no server can use or uses.
struct Unlocked(PathBuf);

impl Source for Unlocked {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        // Opening a pipe would wait for its other end.
        let mut opening = OpenOptions::new();
        let options = opening.read(true).custom_flags(nix::libc::O_NONBLOCK);
        let file = options.open(self.0.join(name))?;
        if file.metadata()?.is_file() {
            Ok(Arc::new(file))
        } else {
            Err(io::Error::other("it is no regular file"))
        }
    }
}
