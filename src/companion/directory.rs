//! A directory with a log, which is only read: also one that nobody can write to.

use crate::failure::plain;
use crate::text::output::complain;
use beanpole::binlog::storage::{File, Source, Storage};
use beanpole::binlog::{Error, lock};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that no server uses as long as this value lives.
pub struct Directory {
    path: PathBuf,
    /// Has the lock. `None` where nobody can write, or no server was yet.
    _lock: Option<Arc<dyn Storage>>,
}

impl Directory {
    /// Locks a directory. Where not even a file can be made for that, no server can use it;
    /// and where there is no file `lock`, none uses it. We make none there: it would be in
    /// the way of a server that runs as another user.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let is_unused = path.is_dir() && !path.join("lock").exists();
        let lock = match (!is_unused).then(|| lock(path, false)).transpose() {
            Ok(lock) => lock.map(|(storage, _)| storage),
            Err(Error::Io(kind, why)) if !matches!(kind, NotFound | NotADirectory) => {
                if kind != io::ErrorKind::ReadOnlyFilesystem {
                    complain!("it is read without a lock: {}", plain(why));
                }
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Directory {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

impl Source for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        // Opening a pipe would wait for its other end.
        let mut opening = OpenOptions::new();
        let options = opening.read(true).custom_flags(nix::libc::O_NONBLOCK);
        let file = options.open(self.path.join(name))?;
        if file.metadata()?.is_file() {
            Ok(Arc::new(file))
        } else {
            Err(io::Error::other("it is no regular file"))
        }
    }
}
