//! Storage: the interface between the binlog and the operating system.
//!
//! [`Directory`] is the real one. The tests have others, which know what a power
//! cut leaves and can make any operation fail. So each operation says
//! here what must be synced to make it durable. What is special about storage that
//! machines share is in `lease`.

use super::error::{Error, is_full};
use super::format::segment_number;
use super::lease::{Fence, SharedLock};
use super::segment::chunk_len;
use crate::sys::{allocate, forget_pages, unshare, write_in_place};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, UnlinkatFlags, Whence, faccessat, lseek, unlinkat};
use std::collections::hash_map::RandomState;
use std::fs::{self, Metadata, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open(name)
    }
    /// Creates an empty file. It will be written in place: blocks allocated to
    /// it are the blocks that it will use. An error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file, atomically. An error if the new name is taken.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable. After an error, a later success means that they
    /// are: a file system writes its metadata itself, and either tries again or is
    /// broken for good.
    fn sync(&self) -> io::Result<()>;
    /// How many bytes new files can take, if the file system tells.
    fn free(&self) -> Option<u64> {
        None
    }
    /// A number that nobody can guess.
    fn random(&self) -> u32 {
        // The standard library seeds this from the system's random source.
        RandomState::new().build_hasher().finish() as u32
    }
    /// The lock of the directory, if another machine could take the directory over
    /// while we use it: see `lease`.
    fn shared_lock(&self) -> Option<&dyn SharedLock> {
        None
    }
    /// Whether that is so. Then we append nothing to another server's segment.
    fn is_shared(&self) -> bool {
        self.shared_lock().is_some()
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
    /// Reads from `offset` on, as much as exists and fits; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
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
    fn unshare(&self) -> io::Result<()> {
        Ok(())
    }
    /// Makes contents and length durable.
    ///
    /// After an error, what was to become durable may still be read, but no
    /// later sync makes it durable: the system reports an error once, and marks
    /// the pages as clean.
    fn sync(&self) -> io::Result<()>;
    /// Drops the file's pages from the system's cache, as far as it can, so that the
    /// next read comes from the disk. Only for what is synced.
    fn forget(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is made to find out whether files can be made. If it stays, the next
/// start removes it like the prepared segments of other servers.
const PROBE: &str = "binlog.spare.0";

/// A directory of the operating system, locked for this process.
pub struct Directory {
    anchor: Anchor,
    fence: Fence,
}

impl Directory {
    /// Locks a directory. With `wait`, waits until no other server has it. An error if
    /// no file can be made in it, or removed. (On a full disk none need be made.)
    pub fn lock(path: &Path, wait: bool) -> Result<Directory, Error> {
        let anchor = Anchor::open(path).map_err(|source| Error::Directory {
            path: path.to_owned(),
            source,
        })?;
        let fence = Fence::lock(&anchor, path, wait)?;
        let directory = Directory { anchor, fence };
        let tried = match directory.create(PROBE) {
            Err(error) if is_full(&error) => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => directory.remove(PROBE),
        };
        tried.map_err(Error::on("make or remove", "files"))?;
        Ok(directory)
    }

    /// Why files that other servers have prepared are still there. Nobody needs them.
    pub fn left(&self) -> &[Error] {
        &self.fence.left
    }

    fn opened(&self, flags: OFlag, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.anchor.file(&self.fence.name(name), flags)?;
        self.fence.forget_stale(&file)?;
        Ok(Arc::new(file))
    }
}

impl Storage for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        self.anchor.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.opened(OFlag::O_RDWR, name)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.opened(OFlag::O_RDONLY, name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let name = self.fence.name_to_change(name)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let made = self.anchor.file(&name, flags);
        let file = made.inspect_err(|error| self.fence.undo_create(&self.anchor, &name, error))?;
        write_in_place(file.as_fd());
        Ok(Arc::new(file))
    }

    /// It is enough to check first that the new name is free: the directory is locked,
    /// so no other server writes here. On shared storage, a server that has lost the
    /// lock has no file left to rename.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A segment begins: the next start must find it at the directory's path.
        if segment_number(to).is_some() {
            self.fence.must_be_in_place(&self.anchor)?;
        }
        let (directory, from, to) = (
            &self.anchor.directory,
            self.fence.name(from),
            self.fence.name_to_change(to)?,
        );
        let find = || faccessat(directory, &*to, AccessFlags::F_OK, AtFlags::empty());
        match again(find) {
            Ok(()) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(Errno::ENOENT) => Ok(again(|| renameat(directory, &*from, directory, &*to))?),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.anchor.remove(&self.fence.name_to_change(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.anchor.directory.sync_all()
    }

    fn free(&self) -> Option<u64> {
        let found = again(|| fstatvfs(&self.anchor.directory)).ok()?;
        // The C library's types of these numbers differ from machine to machine.
        let (blocks, len) = (
            found.blocks_available() as u64,
            found.fragment_size() as u64,
        );
        Some(blocks.saturating_mul(len))
    }

    fn shared_lock(&self) -> Option<&dyn SharedLock> {
        self.fence.shared_lock()
    }
}

/// A directory that is held by a descriptor. It stays the same directory when another
/// one is moved or mounted to its path. So a server never touches the files of another
/// one.
pub(super) struct Anchor {
    directory: fs::File,
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

    /// The names in it. A name that is no text is not ours. An error if another
    /// directory is at its path.
    ///
    /// They are read by the directory's path, since the standard library can tell of
    /// files with large inode numbers on every processor. With the C library's
    /// `readdir`, a program of 32 bits cannot.
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
    pub fn file(&self, name: &str, flags: OFlag) -> io::Result<fs::File> {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        // Opening a pipe would wait for its other end, and reading for ever.
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file: fs::File = again(|| openat(&self.directory, name, flags, mode))?.into();
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file")),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let unlink = || unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        Ok(again(unlink)?)
    }

    /// An error if another directory is at the path now, or if `name` is not
    /// the name of this file any more.
    pub fn must_be_in_place(&self, name: &str, file: &fs::File) -> io::Result<()> {
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
fn is_same(file: &fs::File, found: io::Result<Metadata>) -> io::Result<bool> {
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

impl File for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
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
            Ok(()) => Ok(()),
            // Not every file system or kernel can allocate, but zeros can be
            // written everywhere.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                let from = File::len(self)?;
                write_zeros(self, from, len)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn unshare(&self) -> io::Result<()> {
        let len = File::len(self)?;
        let end = libc::off_t::try_from(len).map_err(io::Error::other)?;
        match again(|| unshare(self, end)) {
            Ok(()) => Ok(()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
            // A full XFS refuses this also where nothing is shared. Only writing it
            // again shows which of the two it is.
            Err(Errno::ENOSPC | Errno::EDQUOT) => write_again(self, 0, len),
            Err(errno) => Err(errno.into()),
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
pub(super) fn write_zeros(file: &dyn File, mut from: u64, to: u64) -> io::Result<()> {
    // As a static they would be in the file of each program.
    let zeros = vec![0; to.saturating_sub(from).min(1 << 16) as usize];
    while from < to {
        let some = (to - from).min(zeros.len() as u64);
        file.write_at(&zeros[..some as usize], from)?;
        from += some;
    }
    Ok(())
}

/// Reads a part of a file, piece by piece.
pub(super) fn read_part(
    file: &dyn File,
    mut from: u64,
    to: u64,
    mut each: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; chunk_len(to.saturating_sub(from))];
    while from < to {
        let most = chunk_len(to - from);
        match file.read_at(&mut piece[..most], from)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                each(&piece[..read], from)?;
                from += read as u64;
            }
        }
    }
    Ok(())
}

/// Writes a part of a file once more, as it is read.
pub(super) fn write_again(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    read_part(file, from, to, |piece, at| file.write_at(piece, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_length_that_was_last_set() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path(), false).unwrap();
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
        let is_shared = crate::sys::is_shared(&fs::File::open(place.path()).unwrap());
        assert_eq!(directory.shared_lock().is_some(), is_shared.unwrap());
    }

    #[test]
    fn a_server_that_has_lost_the_lock_on_shared_storage_creates_and_removes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let open = || {
            let anchor = Anchor::open(place.path()).unwrap();
            let lock = anchor.file("lock", OFlag::O_RDWR | OFlag::O_CREAT).unwrap();
            let fence = Fence::raise(lock, &anchor).unwrap();
            Directory { anchor, fence }
        };
        let first = open();
        assert!(first.shared_lock().is_some());
        first.create("binlog.spare").unwrap();
        first.rename("binlog.spare", "binlog.1").unwrap();
        assert_eq!(first.list().unwrap().len(), 2);
        let second = open();
        assert!(first.fence.check().is_err() && second.fence.check().is_ok());
        assert!(first.create("binlog.spare").is_err());
        assert!(first.remove("binlog.1").is_err());
        second.remove("binlog.1").unwrap();
    }

    #[test]
    fn salts_differ_and_the_clock_advances() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path(), false).unwrap();
        assert_ne!(directory.random(), directory.random());
        let before = directory.fence.now();
        while directory.fence.now() == before {}
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
        // An error of the check does not say that the file is gone.
        let denied = is_same(&lock, Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
