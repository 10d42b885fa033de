//! A directory with a log, which is only read: also one that nobody can write to, and one
//! on a disk that cannot read all of it any more.

use crate::failure::plain;
use crate::text::output::complain;
use beanpole::binlog::storage::{File, Storage};
use beanpole::binlog::{Error, lock};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk reads a page, or it does not.
const PAGE: usize = 4096;

/// A directory that no server uses as long as this value lives.
pub struct Directory {
    path: PathBuf,
    /// Has the lock. `None` where nobody can write.
    _lock: Option<Arc<dyn Storage>>,
}

impl Directory {
    /// Locks a directory. Where not even a file can be made for that, no server can use it.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let lock = match lock(path, false) {
            Ok((storage, _)) => Some(storage),
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

/// Nothing is changed here.
fn never<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Storage for Directory {
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
            Ok(Arc::new(Pages {
                file,
                name: name.to_owned(),
            }))
        } else {
            Err(io::Error::other("it is no regular file"))
        }
    }

    fn open(&self, _: &str) -> io::Result<Arc<dyn File>> {
        never()
    }
    fn create(&self, _: &str) -> io::Result<Arc<dyn File>> {
        never()
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        never()
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        never()
    }
    fn sync(&self) -> io::Result<()> {
        never()
    }
    fn free(&self) -> Option<u64> {
        None
    }
}

/// A file of which some pages may be lost.
struct Pages {
    file: fs::File,
    name: String,
}

impl File for Pages {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// A page that cannot be read is a flaw like any other: its bytes are such as no record
    /// has. Why it cannot be read is said at once.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let lost = read_pages(buffer, offset, &|part, at| {
            self.file.read_exact_at(part, at)
        })?;
        for (page, why) in lost {
            complain!(
                "{} at offset {page}: a page cannot be read: {why}",
                self.name
            );
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        never()
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        never()
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        never()
    }
    fn links(&self) -> io::Result<u64> {
        never()
    }
    fn unshare(&self) -> io::Result<()> {
        never()
    }
    fn sync(&self) -> io::Result<()> {
        never()
    }
    fn forget(&self) -> io::Result<()> {
        never()
    }
}

type ReadAt<'a> = dyn Fn(&mut [u8], u64) -> io::Result<()> + 'a;

/// Reads all at once, or, if that fails, page by page. Returns the pages that cannot be read,
/// and why.
fn read_pages(buffer: &mut [u8], offset: u64, read: &ReadAt) -> io::Result<Vec<(u64, String)>> {
    match read(buffer, offset) {
        Ok(()) => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
        Err(_) => {}
    }
    let (mut lost, mut at, mut rest) = (Vec::new(), offset, buffer);
    while !rest.is_empty() {
        let left = PAGE - (at % PAGE as u64) as usize;
        let (part, others) = rest.split_at_mut(left.min(rest.len()));
        if let Err(error) = read(part, at) {
            part.fill(0xff);
            lost.push((at - at % PAGE as u64, plain(error)));
        }
        (at, rest) = (at + part.len() as u64, others);
    }
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pages_that_cannot_be_read_are_lost() {
        let read = |part: &mut [u8], at: u64| {
            let (first, last) = (at / PAGE as u64, (at + part.len() as u64 - 1) / PAGE as u64);
            if (first..=last).contains(&2) {
                return Err(io::Error::other("a bad sector"));
            }
            part.fill(7);
            Ok(())
        };
        let mut bytes = vec![0; 4 * PAGE];
        let lost = read_pages(&mut bytes, 100, &read).unwrap();
        assert_eq!(lost, [(2 * PAGE as u64, "a bad sector".to_owned())]);
        let is_lost = |at: usize| (2 * PAGE..3 * PAGE).contains(&(at + 100));
        let expected = (0..bytes.len()).map(|at| if is_lost(at) { 0xff } else { 7 });
        assert!(bytes.iter().copied().eq(expected));
        assert!(read_pages(&mut bytes[..PAGE], 0, &read).unwrap().is_empty());
    }
}
