//! Where segments lie: the seam between the binlog and the operating system.
//!
//! [`Directory`] is the real one. The tests have others, which know what a power
//! cut leaves behind and can make any operation fail. So each operation says
//! here what must be synced to make it durable. All that the real one does itself
//! is to lock the directory, with the `anchor` and the `lease`.

use super::anchor::{Anchor, again};
use super::error::{Error, is_full};
use super::format::segment_number;
use super::lease::Fence;
use super::segment::chunk_len;
use crate::sys::{allocate, forget_pages, time_since_boot, unshare, write_in_place};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::{Whence, lseek};
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    /// are: a file system writes what it notes of names itself, and either tries
    /// again or is broken for good.
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
    /// Whether another machine could take the directory over while we use it.
    /// Then we append nothing to another server's segment, see `lease`.
    fn is_shared(&self) -> bool {
        false
    }
    /// An error if the directory is not ours any more. Then what was written
    /// before, synced or not, may not be acknowledged.
    fn look(&self) -> io::Result<()> {
        Ok(())
    }
    /// The time since some moment in the past. Unlike other clocks, this one
    /// does not stand still while the machine is suspended.
    fn now(&self) -> Duration {
        time_since_boot()
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
    /// later sync makes it durable: the system reports an error once, and takes
    /// the changes for written.
    fn sync(&self) -> io::Result<()>;
    /// Makes the next read come from the disk, not from what the system
    /// remembers, as far as it can. Only for what is synced.
    fn forget(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is made as a trial. If it stays, the next start removes it as it
/// removes other servers' spares.
const PROBE: &str = "binlog.spare.0";

/// A directory of the operating system, locked for this process.
pub struct Directory {
    anchor: Anchor,
    fence: Fence,
}

impl Directory {
    /// Locks a directory. With `wait`, waits until no other server has it.
    pub fn lock(path: &Path, wait: bool) -> Result<Directory, Error> {
        let anchor = Anchor::open(path).map_err(|source| Error::Directory {
            path: path.to_owned(),
            source,
        })?;
        let fence = Fence::lock(&anchor, path, wait)?;
        let tried = anchor.must_take(&fence.new_name(PROBE));
        tried.map_err(Error::on("make or remove", "files"))?;
        Ok(Directory { anchor, fence })
    }

    /// Why files that other servers have prepared are still there. Nobody needs
    /// them.
    pub fn left(&self) -> &[Error] {
        &self.fence.left
    }

    fn opened(&self, flags: OFlag, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.anchor.file(&self.fence.own_name(name), flags)?;
        if self.is_shared() {
            forget_pages(&file)?;
        }
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
        self.look()?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let new_name = self.fence.new_name(name);
        let made = self.anchor.file(&new_name, flags);
        // GlusterFS leaves such a file on the copies that had room. While one
        // that had none is away, nobody can open or remove it, and no server
        // could start. Only we know this name.
        if new_name != name && made.as_ref().is_err_and(is_full) {
            let _ = self.anchor.remove(&new_name);
        }
        let file = made?;
        write_in_place(file.as_fd());
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.look()?;
        // A segment begins. Who looks for the jobs later must find it.
        if segment_number(to).is_some() {
            self.fence.must_be_in_place(&self.anchor)?;
        }
        let (from, to) = (self.fence.own_name(from), self.fence.new_name(to));
        self.anchor.rename(&from, &to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.look()?;
        self.anchor.remove(&self.fence.own_name(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.anchor.sync()
    }

    fn free(&self) -> Option<u64> {
        self.anchor.free().ok()
    }

    fn is_shared(&self) -> bool {
        self.fence.is_shared()
    }

    fn look(&self) -> io::Result<()> {
        self.fence.look()
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
        // What is written has its room: where no other room is left, XFS refuses
        // it a second time. So begin at the first hole, or where the file ends.
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
            // A full XFS refuses this also where nothing is shared. Only what is
            // written again shows which of the two it is.
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
    fn files_of_a_directory_are_as_long_as_they_are_made() {
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
        assert_eq!(directory.is_shared(), is_shared.unwrap());
    }

    #[test]
    fn on_shared_storage_a_server_that_has_lost_the_lock_makes_and_removes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let open = || {
            let anchor = Anchor::open(place.path()).unwrap();
            let lock = anchor.file("lock", OFlag::O_RDWR | OFlag::O_CREAT).unwrap();
            let fence = Fence::raise(lock, &anchor).unwrap();
            Directory { anchor, fence }
        };
        let first = open();
        assert!(first.is_shared());
        first.create("binlog.spare").unwrap();
        first.rename("binlog.spare", "binlog.1").unwrap();
        assert_eq!(first.list().unwrap().len(), 2);
        let second = open();
        assert!(first.look().is_err() && second.look().is_ok());
        assert!(first.create("binlog.spare").is_err());
        assert!(first.remove("binlog.1").is_err());
        second.remove("binlog.1").unwrap();
    }

    #[test]
    fn salts_cannot_be_guessed_and_time_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::lock(place.path(), false).unwrap();
        assert_ne!(directory.random(), directory.random());
        let before = directory.now();
        while directory.now() == before {}
    }
}
