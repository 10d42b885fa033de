//! Where segments lie: the seam between the binlog and the operating system.
//!
//! It has two implementations: [`Directory`], the real one, and the simulator
//! of the crash tests, which knows what a power cut leaves behind and can make
//! any operation fail. So each operation says here what must be synced to make
//! it durable, and the real implementation adds no logic of its own.

use super::error::Error;
use super::fence::{Fence, forget_pages};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;
use nix::unistd::{Whence, lseek};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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
    /// Creates an empty file. It will be written in place: blocks allocated to
    /// it are the blocks that it will use. An error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file, atomically. An error if the new name is taken.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
    /// Whether another machine could take the directory over while we use it.
    /// Then we write nothing where another server has written, see `fence`.
    fn is_shared(&self) -> bool {
        false
    }
    /// An error if the directory is not ours any more. Then what was written
    /// before, synced or not, may not be acknowledged.
    fn look(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of a [`Storage`].
///
/// After a power cut, what was written may be missing, completely or by sectors
/// and in any order, until [`sync`](File::sync) has returned.
pub trait File: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
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
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the operating system, locked for this process.
pub struct Directory {
    path: PathBuf,
    fence: Fence,
}

impl Directory {
    /// Locks a directory. With `wait`, waits until no other server has it.
    pub fn lock(path: &Path, wait: bool) -> Result<Directory, Error> {
        Ok(Directory {
            path: path.to_owned(),
            fence: Fence::lock(path, wait)?,
        })
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(self.fence.own_name(name))
    }
}

impl Storage for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        // A name that is no text is not ours.
        Ok(names
            .into_iter()
            .flat_map(|name| name.into_string())
            .collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        // beanstalkd's files may be read-only. We do not write to them.
        let file = match options.read(true).write(true).open(self.path_of(name)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::File::open(self.path_of(name))?
            }
            other => other?,
        };
        if self.is_shared() {
            forget_pages(&file)?;
        }
        Ok(Arc::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.look()?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(self.path_of(name))?;
        crate::sys::write_in_place(file.as_fd());
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.look()?;
        let to = self.path_of(to);
        // This check is enough: the directory is locked, so no other server
        // writes here.
        if fs::symlink_metadata(&to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(self.path_of(from), to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.look()?;
        fs::remove_file(self.path_of(name))
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
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
        FileExt::read_at(self, buffer, offset)
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
        let hole = lseek(self, 0, Whence::SeekHole).unwrap_or(0);
        if hole >= end {
            return Ok(());
        }
        match fallocate(self, FallocateFlags::empty(), hole, end - hole) {
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

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writes zeros to a file from one offset up to another.
pub(super) fn write_zeros(file: &dyn File, mut from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    while from < to {
        let some = usize::try_from(to - from)
            .unwrap_or(ZEROS.len())
            .min(ZEROS.len());
        file.write_at(&ZEROS[..some], from)?;
        from += some as u64;
    }
    Ok(())
}
