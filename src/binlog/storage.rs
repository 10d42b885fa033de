//! Storage: the interface between the binlog and the operating system.
//!
//! [`Directory`] is the real one, and `lease` has that of a directory which machines
//! share. The tests have others, which know what a power cut leaves and can make any
//! operation fail. So each operation says here what must be synced to make it durable.

use super::error::Error;
use crate::sys::{allocate, disable_copy_on_write, forget_pages, unshare};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, UnlinkatFlags, Whence, faccessat, lseek, unlinkat};
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many bytes are read at once, at most, and how many zeros are written.
pub(super) const CHUNK: usize = 256 << 10;

/// A flat directory of files.
///
/// A power cut may undo any `create`, `rename` and `remove`, each
/// independently, until [`sync`](Storage::sync) has returned.
pub trait Storage: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file, to read and write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file, to read it. Others may own it.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Creates an empty file. It will be written in place: blocks allocated to
    /// it are the blocks that it will use. An error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file, atomically. An error if the new name is taken, or if the contents
    /// of this file may not be replaced under that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable. After an error, a later success means that they
    /// are: a file system writes its metadata itself, and either tries again or is
    /// broken for good.
    fn sync(&self) -> io::Result<()>;
    /// How many bytes new files can take, if the file system says so.
    fn free(&self) -> Option<u64>;
    /// Whether another machine could take the directory over while we use it: see
    /// `lease`. Then we append nothing to another server's segment.
    fn is_shared(&self) -> bool {
        false
    }
    /// An error if the directory is not ours any more. Then what was written before,
    /// synced or not, may not be acknowledged.
    fn check_lock(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of a [`Storage`].
///
/// After a power cut, what was written may be missing, completely or by sectors
/// and in any order, until [`sync`](File::sync) has returned.
#[allow(clippy::len_without_is_empty)] // it is no collection
pub trait File: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills the buffer from `offset` on. An error if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` from `offset` on.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file (the system gets the rest back), or lengthens it with a
    /// hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file at least `len` long, and allocates all of its blocks, as
    /// far as the file system can promise that. New bytes are zero.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Gives the file blocks of its own where it shares them with a copy, as far
    /// as the file system can. Otherwise a write in place would need room for
    /// another block.
    fn unshare(&self) -> io::Result<()>;
    /// Makes contents and length durable.
    ///
    /// After an error, what was to become durable may still be read, but no
    /// later sync makes it durable: the system reports an error once, and marks
    /// the pages as clean.
    fn sync(&self) -> io::Result<()>;
    /// Drops the file's pages from the system's cache, as far as it can, so that the
    /// next read comes from the disk. Only for what is synced.
    fn forget(&self) -> io::Result<()>;
}

/// The name of the lock's file.
const LOCK: &str = "lock";

/// A directory of the operating system. It is held by a descriptor, so it stays the same
/// directory when another one is moved or mounted to its path: a server never touches
/// the files of another one.
pub(super) struct Directory {
    directory: fs::File,
    /// Where it was when it was opened.
    path: PathBuf,
    /// Its file `lock`. While the lock is held, no other descriptor of this file may be
    /// closed: that would end a POSIX lock (`fcntl`).
    pub lock: fs::File,
}

impl Directory {
    /// Opens a directory, and the file `lock` in it.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        let on = |path: PathBuf| move |source| Error::unusable(&path, source);
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
        let directory = options.open(path).map_err(on(path.to_owned()))?;
        let lock = open_at(&directory, LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
        Ok(Directory {
            lock: lock.map_err(on(path.join(LOCK)))?,
            directory,
            path: path.to_owned(),
        })
    }

    /// Locks the directory itself. Unlike the file `lock`, no user can remove
    /// it. With `wait`, waits until no other server has it. Returns false if
    /// another one has it.
    pub fn lock_itself(&self, wait: bool) -> bool {
        let locked = match wait {
            true => self.directory.lock().map_err(TryLockError::Error),
            false => self.directory.try_lock(),
        };
        // Not every file system can lock a directory. The file `lock` is locked in any
        // case. (No signal interrupts this: after each handler the system continues it.)
        !matches!(locked, Err(TryLockError::WouldBlock))
    }

    /// An error if the directory or the lock is not where other servers expect it.
    fn must_be_in_place(&self) -> io::Result<()> {
        let told = if !is_at(&self.path, &self.directory)? {
            "the directory was moved away, or another one was mounted over it"
        } else if !is_at(&self.path.join(LOCK), &self.lock)? {
            "its file lock was removed"
        } else {
            return Ok(());
        };
        Err(io::Error::other(told))
    }
}

impl Storage for Directory {
    /// Names that are not UTF-8 are left out: they are not ours. An error if another
    /// directory is at the path.
    ///
    /// They are read by the directory's path, since the standard library can report
    /// files with large inode numbers on every processor. With the C library's
    /// `readdir`, a program of 32 bits cannot.
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        self.must_be_in_place()?;
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(open_at(&self.directory, name, OFlag::O_RDWR)?))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(open_at(&self.directory, name, OFlag::O_RDONLY)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = open_at(&self.directory, name, flags)?;
        disable_copy_on_write(file.as_fd());
        Ok(Arc::new(file))
    }

    /// It is enough to check first that the new name is free: the directory is locked,
    /// so no other server writes here. On shared storage, a server that has lost the
    /// lock has no file left to rename.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // If a segment begins, the next start must find it at the directory's path.
        self.must_be_in_place()?;
        let directory = &self.directory;
        let find = || faccessat(directory, to, AccessFlags::F_OK, AtFlags::empty());
        match again(find) {
            Ok(()) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(Errno::ENOENT) => Ok(again(|| renameat(directory, from, directory, to))?),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let unlink = || unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        Ok(again(unlink)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free(&self) -> Option<u64> {
        let found = again(|| fstatvfs(&self.directory)).ok()?;
        // The C library's types of these numbers differ from machine to machine.
        let blocks = found.blocks_available() as u64;
        Some(blocks.saturating_mul(found.fragment_size() as u64))
    }
}

/// Opens a file in a directory. A file that is created is for its owner alone.
fn open_at(directory: &fs::File, name: &str, flags: OFlag) -> io::Result<fs::File> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    // Opening a pipe would wait for its other end, and reading for ever.
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file: fs::File = again(|| openat(directory, name, flags, mode))?.into();
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Whether a path leads to this file.
fn is_at(path: &Path, file: &fs::File) -> io::Result<bool> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let file = file.metadata()?;
    match fs::metadata(path) {
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

impl File for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let end = libc::off_t::try_from(len).map_err(io::Error::other)?;
        // Blocks that are written are allocated, and on a full disk XFS refuses to
        // allocate them again. So begin at the first hole, or where the file ends.
        let hole = again(|| lseek(self, 0, Whence::SeekHole)).unwrap_or(0);
        if hole >= end {
            return Ok(());
        }
        match again(|| allocate(self, hole, end)) {
            // Not every file system or kernel can allocate, but zeros can be
            // written everywhere.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                write_zeros(self, File::len(self)?, len)
            }
            done => Ok(done?),
        }
    }

    fn unshare(&self) -> io::Result<()> {
        let len = File::len(self)?;
        let end = libc::off_t::try_from(len).map_err(io::Error::other)?;
        match again(|| unshare(self, end)) {
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
            // A full XFS refuses this also where nothing is shared. Only writing it
            // again shows which of the two it is.
            Err(Errno::ENOSPC | Errno::EDQUOT) => write_again(self, 0, len),
            done => Ok(done?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn forget(&self) -> io::Result<()> {
        forget_pages(self)
    }
}

/// Writes zeros to a file from one offset up to another.
pub(super) fn write_zeros(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    // A static array would make each program longer.
    let zeros = vec![0; to.saturating_sub(from).min(CHUNK as u64) as usize];
    for at in (from..to).step_by(CHUNK) {
        let len = (to - at).min(CHUNK as u64) as usize;
        file.write_at(&zeros[..len], at)?;
    }
    Ok(())
}

/// Writes a part of a file once more, as it is read.
pub(super) fn write_again(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    let mut piece = vec![0; to.saturating_sub(from).min(CHUNK as u64) as usize];
    for at in (from..to).step_by(CHUNK) {
        piece.truncate((to - at).min(CHUNK as u64) as usize);
        file.read_at(&mut piece, at)?;
        file.write_at(&piece, at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_length_that_was_last_set() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let file = directory.create("binlog.1").unwrap();
        let lens = || {
            file.sync().unwrap();
            let found = fs::metadata(place.path().join("binlog.1")).unwrap();
            (file.len().unwrap(), found.len())
        };
        file.allocate(8192).unwrap();
        assert_eq!(lens(), (8192, 8192));
        file.set_len(4096).unwrap();
        assert_eq!(lens(), (4096, 4096));
        write_zeros(&*file, 4096, 80_000).unwrap();
        assert_eq!(lens(), (80_000, 80_000));
        directory.remove("binlog.1").unwrap();
        assert_eq!(directory.list().unwrap(), ["lock"]);
    }

    #[test]
    fn a_part_of_a_long_file_is_written_again_piece_by_piece() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("binlog.1");
        let bytes: Vec<u8> = (0..600_000u32).map(|index| (index % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.unwrap();
        write_again(&file, 44, 599_000).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let error = write_again(&file, 44, 600_001).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_call_interrupted_by_a_signal_is_retried() {
        let mut results = [Err(Errno::EINTR), Err(Errno::EINTR), Ok(7)].into_iter();
        assert_eq!(again(|| results.next().unwrap()), Ok(7));
        assert_eq!(again(|| Err::<(), _>(Errno::ENOSPC)), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_directory_that_was_moved_away_is_not_confused_with_one_at_its_old_path() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("queue"), place.path().join("old"));
        std::fs::create_dir(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        assert!(directory.must_be_in_place().is_ok());
        std::fs::rename(&path, &other).unwrap();
        let moved = directory.must_be_in_place().unwrap_err();
        assert!(moved.to_string().starts_with("the directory was moved"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("lock"), "").unwrap();
        std::fs::write(path.join("binlog.1"), "theirs").unwrap();
        assert!(directory.must_be_in_place().is_err());
        assert!(directory.list().is_err());
        assert!(directory.remove("binlog.1").is_err());
        // A copy may have the same files.
        std::fs::remove_file(path.join("lock")).unwrap();
        std::fs::hard_link(other.join("lock"), path.join("lock")).unwrap();
        assert!(directory.list().is_err());

        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(directory.must_be_in_place().is_ok());
        assert_eq!(directory.list().unwrap(), ["lock"]);
        std::fs::remove_file(path.join("lock")).unwrap();
        std::fs::write(path.join("lock"), "").unwrap();
        let removed = directory.must_be_in_place().unwrap_err();
        assert_eq!(removed.to_string(), "its file lock was removed");
        // An error of the check does not mean that the file is missing.
        std::fs::remove_file(path.join("lock")).unwrap();
        std::os::unix::fs::symlink("lock", path.join("lock")).unwrap();
        let unknown = directory.must_be_in_place().unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ELOOP));
    }
}
