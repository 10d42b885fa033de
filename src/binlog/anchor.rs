//! A directory that is held by a descriptor. It stays the same directory when
//! another one is moved or mounted to its path. So a server never touches the
//! files of another one.

use super::error::is_full;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory.
pub(super) struct Anchor {
    directory: File,
    /// Where it was when it was opened.
    path: PathBuf,
}

impl Anchor {
    /// Opens a directory.
    pub fn open(path: &Path) -> io::Result<Anchor> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
        Ok(Anchor {
            directory: options.open(path)?,
            path: path.to_owned(),
        })
    }

    /// Locks the directory itself. Unlike the file `lock`, nobody can remove
    /// it. With `wait`, waits until no other server has it. Returns false if
    /// another one has it.
    pub fn lock(&self, wait: bool) -> bool {
        loop {
            let locked = match wait {
                true => self.directory.lock().map_err(TryLockError::Error),
                false => self.directory.try_lock(),
            };
            match locked {
                Err(TryLockError::WouldBlock) => return false,
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                // Not every file system can lock a directory. The file `lock`
                // is locked in any case.
                Ok(()) | Err(TryLockError::Error(_)) => return true,
            }
        }
    }

    /// The names in it. A name that is no text is not ours.
    ///
    /// They are read by its path, since the standard library can tell of files
    /// with large inode numbers on every processor. With the C library's
    /// `readdir`, a program of 32 bits cannot.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or another directory is at the path.
    pub fn list(&self) -> io::Result<Vec<String>> {
        self.must_be_at_its_path()?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        self.must_be_at_its_path()?;
        Ok(names)
    }

    /// Opens a file in it. A file that is created is for its owner alone.
    pub fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        // Opening a pipe would wait for its other end, and reading for ever.
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file: File = again(|| openat(&self.directory, name, flags, mode))?.into();
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file")),
        }
    }

    /// Renames a file. An error if the new name is taken. This check is enough:
    /// the directory is locked, so no other server writes here. On shared
    /// storage, a server that has lost the lock has no file left to rename (see
    /// [`lease`](super::lease)).
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let find = || faccessat(&self.directory, to, AccessFlags::F_OK, AtFlags::empty());
        match again(find) {
            Ok(()) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(Errno::ENOENT) => {
                let rename = || renameat(&self.directory, from, &self.directory, to);
                Ok(again(rename)?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let unlink = || unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        Ok(again(unlink)?)
    }

    /// An error if this file cannot be made in it, or removed. (On a full disk it
    /// need not be made.)
    pub fn must_take(&self, name: &str) -> io::Result<()> {
        match self.file(name, OFlag::O_RDWR | OFlag::O_CREAT) {
            Err(error) if is_full(&error) => {
                // One copy of several may have had room for it.
                let _ = self.remove(name);
                Ok(())
            }
            made => {
                made?;
                self.remove(name)
            }
        }
    }

    /// How many bytes its file system has for new files.
    pub fn free(&self) -> io::Result<u64> {
        let found = again(|| fstatvfs(&self.directory))?;
        // The C library's types of these numbers differ from machine to machine.
        let (blocks, len) = (
            found.blocks_available() as u64,
            found.fragment_size() as u64,
        );
        Ok(blocks.saturating_mul(len))
    }

    /// Makes the names durable.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    /// An error if another directory is at the path now, or if `name` is not
    /// the name of this file any more.
    pub fn must_be_in_place(&self, name: &str, file: &File) -> io::Result<()> {
        self.must_be_at_its_path()?;
        match is_same(file, fs::symlink_metadata(self.path.join(name)))? {
            true => Ok(()),
            false => Err(io::Error::other(format!("its file {name} was removed"))),
        }
    }

    /// An error if another directory is at the path now.
    fn must_be_at_its_path(&self) -> io::Result<()> {
        match is_same(&self.directory, fs::metadata(&self.path))? {
            true => Ok(()),
            false => Err(io::Error::other(
                "the directory was moved away, or another one was mounted over it",
            )),
        }
    }
}

/// Whether a file is the one that was found, if any.
fn is_same(file: &File, found: io::Result<Metadata>) -> io::Result<bool> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let file = file.metadata()?;
    match found {
        Ok(found) => Ok((file.dev(), file.ino()) == (found.dev(), found.ino())),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a system call again as long as signals interrupt it.
pub(super) fn again<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_signal_interrupts_is_made_again() {
        let mut results = [Err(Errno::EINTR), Err(Errno::EINTR), Ok(7)].into_iter();
        assert_eq!(again(|| results.next().unwrap()), Ok(7));
        assert_eq!(again(|| Err::<(), _>(Errno::ENOSPC)), Err(Errno::ENOSPC));
    }

    #[test]
    fn it_stays_the_same_directory_wherever_its_path_leads() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("queue"), place.path().join("old"));
        std::fs::create_dir(&path).unwrap();
        let anchor = Anchor::open(&path).unwrap();
        let lock = anchor.file("lock", OFlag::O_RDWR | OFlag::O_CREAT).unwrap();
        assert!(anchor.must_be_in_place("lock", &lock).is_ok());
        std::fs::rename(&path, &other).unwrap();
        let moved = anchor.must_be_in_place("lock", &lock).unwrap_err();
        assert!(moved.to_string().starts_with("the directory was moved"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("lock"), "").unwrap();
        std::fs::write(path.join("binlog.1"), "theirs").unwrap();
        assert!(anchor.must_be_in_place("lock", &lock).is_err());
        assert!(anchor.list().is_err());
        assert!(anchor.remove("binlog.1").is_err());

        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(anchor.must_be_in_place("lock", &lock).is_ok());
        assert_eq!(anchor.list().unwrap(), ["lock"]);
        std::fs::remove_file(path.join("lock")).unwrap();
        std::fs::write(path.join("lock"), "").unwrap();
        let removed = anchor.must_be_in_place("lock", &lock).unwrap_err();
        assert_eq!(removed.to_string(), "its file lock was removed");
        // Whoever cannot look must not say that it is gone.
        let denied = is_same(&lock, Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
