//! Storage: the interface between the binlog and the operating system.
//!
//! `lease` has the real directory, and here are its files. The tests have others, which
//! know what a power cut leaves and can make any operation fail. So each operation says
//! here what must be synced to make it durable.

use crate::sys::{allocate, forget_pages, unshare};
use nix::errno::Errno;
use nix::libc;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Whence, lseek};
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// How many bytes are read at once, at most, and how many zeros are written.
pub(super) const CHUNK: usize = 256 << 10;

/// How much room new files leave on a file system that cannot allocate.
pub const LEFT_TO_COPY: u64 = 64 << 10;

/// A flat directory of files that are only read: by the tools, and by a start until it has
/// checked everything.
pub trait Source: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file, to read it. Others may own it.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Whether another machine could take the directory over while we use it: see
    /// `lease`. Then we append nothing to another server's segment.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The same, to change them.
///
/// A power cut may undo any `create`, `rename` and `remove`, each
/// independently, until [`sync`](Storage::sync) has returned.
pub trait Storage: Source {
    /// Opens an existing file, to read and write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Creates an empty file. It will be written in place: blocks allocated to
    /// it are the blocks that it will use. An error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Whether there is a file of this name.
    fn has(&self, name: &str) -> io::Result<bool>;
    /// Renames a file, atomically. An error if the new name is taken, or if the contents
    /// of this file may not be replaced under that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, if it is there: an administrator may have removed it before.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable. After an error, a later success means that they
    /// are: a file system writes its metadata itself, and either tries again or is
    /// broken for good.
    fn sync(&self) -> io::Result<()>;
    /// How many bytes new files can take, if the file system says so.
    fn free(&self) -> Option<u64>;
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
    /// Makes the file at least `len` long, and allocates all of its blocks, as far as the
    /// file system can promise that. Up to `written`, the new ones are also written. Their
    /// bytes mean nothing.
    fn allocate(&self, len: u64, written: u64) -> io::Result<()>;
    /// How many names it has.
    fn links(&self) -> io::Result<u64>;
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

/// How many bytes new files can take on the file system of this one, if that says so.
pub(super) fn free(file: &fs::File) -> Option<u64> {
    let found = again(|| fstatvfs(file)).ok();
    // One that only has memory (ramfs) says that it has no blocks at all.
    let found = found.filter(|found| found.blocks() > 0)?;
    // The C library's types of these numbers differ from machine to machine.
    let blocks = found.blocks_available() as u64;
    Some(blocks.saturating_mul(found.fragment_size() as u64))
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

    fn allocate(&self, len: u64, written: u64) -> io::Result<()> {
        let from = File::len(self)?;
        let end = libc::off_t::try_from(len).map_err(io::Error::other)?;
        // Blocks that are written are allocated, and on a full disk XFS refuses to
        // allocate them again. So begin at the first hole, or where the file ends.
        let hole = again(|| lseek(self, 0, Whence::SeekHole)).unwrap_or(0);
        if hole >= end {
            return Ok(());
        }
        match again(|| allocate(self, hole, end)) {
            // Not every file system or kernel can allocate, but all can write. Such a one may
            // write each block to another place, so it is not filled up to the last one.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                let needed = len.saturating_sub(from) + LEFT_TO_COPY;
                match free(self) {
                    Some(free) if free < needed => Err(io::ErrorKind::StorageFull.into()),
                    _ => write_noise(self, from, len),
                }
            }
            done => {
                done?;
                write_zeros(self, from, written)
            }
        }
    }

    fn links(&self) -> io::Result<u64> {
        Ok(self.metadata()?.nlink())
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
    let len = CHUNK.min(to.saturating_sub(from) as usize);
    fill(file, from, to, vec![0; len])
}

/// Writes bytes that cannot be compressed. A file system that compresses (JFFS2, UBIFS)
/// would keep no room for zeros.
pub fn write_noise(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    let mut state = 1u64;
    let mut next = || {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let len = CHUNK.min(to.saturating_sub(from) as usize);
    fill(file, from, to, (0..len).map(|_| next()).collect())
}

/// Writes a piece to a file from one offset up to another, again and again.
fn fill(file: &dyn File, from: u64, to: u64, piece: Vec<u8>) -> io::Result<()> {
    for at in (from..to).step_by(CHUNK) {
        let len = (to - at).min(CHUNK as u64) as usize;
        file.write_at(&piece[..len], at)?;
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
    fn a_part_of_a_long_file_is_written_again_piece_by_piece() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment.1");
        let bytes: Vec<u8> = (0..600_000u32).map(|index| (index % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(&path);
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
}
