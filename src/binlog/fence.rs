//! The lock of a directory, and the fence around a directory that several
//! machines can use: a server that has lost the lock acknowledges nothing any
//! more, and damages nothing.
//!
//! On a local file system the lock is enough: it is ours until this process
//! ends. On a shared file system, another machine may get the lock meanwhile,
//! when the network was away for too long, and nobody tells us. The file
//! systems that we tried then opened our files again as if nothing had
//! happened, without the lock. A server cannot know in advance whether a write
//! comes too late. So:
//!
//! - *Write, sync, look, answer.* A server that takes the lock writes a line of
//!   its own into the lock's file before it reads anything else. After each
//!   write and sync, and before it answers, a server looks at that file. If its
//!   own line is still there, the next server will read all that it has
//!   written. (A look before the write would say nothing: the lock may be lost
//!   between the two.)
//! - *No server writes where another one may write.* A server begins a segment
//!   of its own, in a file that it has made itself, and never writes after the
//!   records of another server. Suppose the other server writes late. Then its
//!   bytes lie after the end that the header of our segment tells, or in a file
//!   that has no name any more. Also, each server has its own names for the
//!   files that it prepares ahead, and removes those of others before it reads
//!   anything. So if another server renames such a file late, there is nothing
//!   to rename.
//! - *No old contents are read.* A machine may still have old pages of a file
//!   that it has read. So a file never changes its meaning: on shared storage
//!   an empty segment is removed, and never becomes a spare. Besides, the
//!   kernel is asked to forget the pages.
//!
//! Left out: a server that loses the lock between a write and its look does not
//! learn what becomes of these changes. They were not acknowledged, and are
//! kept or not.

use super::error::Error;
use super::frame::segment_number;
use super::room::{RESERVE, SPARE};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, PosixFadviseAdvice, fcntl, posix_fadvise};
use nix::libc;
use nix::sys::statfs::fstatfs;
use nix::sys::utsname::uname;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The file systems that two machines can use at the same time, by their type
/// in `statfs`. All others are on one machine's disk. There a lock cannot be
/// lost, and a look would be a needless system call with each sync.
const SHARED: [u32; 13] = [
    0x6573_5546, // FUSE, and so GlusterFS; virtiofs too
    0x0000_6969, // NFS
    0x00c3_6400, // CephFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x2003_0528, // OrangeFS
    0x0102_1997, // 9P
    0x5346_414f, // AFS
];

/// The length of the line in the lock's file.
const LINE: usize = 256;

/// A directory's lock, held as long as this value exists.
pub(super) struct Fence {
    /// The lock's file. While the lock is held, no other descriptor of this
    /// file may be closed: that would end a lock of this kind.
    file: fs::File,
    /// On a shared file system: our line in the file, which no other server
    /// writes.
    line: Option<[u8; LINE]>,
    /// What is appended to the names that are this server's own; empty on a
    /// local file system.
    suffix: String,
}

impl Fence {
    /// Locks a directory. With `wait`, waits until no other server has it.
    ///
    /// The lock is the one that beanstalkd takes (a write lock by `fcntl` on
    /// the file `lock`). So its servers and ours exclude each other, and also
    /// servers on several machines, if the file system passes such locks on.
    pub fn lock(path: &Path, wait: bool) -> Result<Fence, Error> {
        let refused = |source| Error::Directory {
            path: path.to_owned(),
            source,
        };
        if !fs::metadata(path).map_err(refused)?.is_dir() {
            return Err(refused(io::ErrorKind::NotADirectory.into()));
        }
        let lock_path = path.join("lock");
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|source| Error::Directory {
                path: lock_path,
                source,
            })?;
        match lock_whole(&file, wait) {
            Ok(()) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Err(Error::Locked(path.to_owned())),
            Err(errno) => return Err(refused(errno.into())),
        }
        match is_shared(&file).map_err(refused)? {
            true => Fence::raise(file, path).map_err(refused),
            false => {
                remove_prepared(path, false).map_err(refused)?;
                Ok(Fence {
                    file,
                    line: None,
                    suffix: String::new(),
                })
            }
        }
    }

    /// Puts a fence around a shared directory.
    fn raise(file: fs::File, path: &Path) -> io::Result<Fence> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_err(io::Error::other)?.as_nanos();
        let line = write_line(&file, now)?;
        remove_prepared(path, true)?;
        Ok(Fence {
            file,
            line: Some(line),
            suffix: format!(".{now}"),
        })
    }

    /// Whether other machines can use the directory.
    pub fn is_shared(&self) -> bool {
        self.line.is_some()
    }

    /// An error if the directory is not ours any more. Then what was written
    /// before may not be acknowledged.
    pub fn look(&self) -> io::Result<()> {
        let Some(line) = &self.line else {
            return Ok(());
        };
        // This asks the storage, not a cache, and fails if this descriptor has
        // lost the lock. (Taking the lock again would tell as much. But a
        // thread that a signal interrupts in that call may wait for GlusterFS's
        // answer for ever.)
        if is_locked_by_other(&self.file)? {
            return Err(io::Error::other("another server has it"));
        }
        // Another server may have had the lock, and be gone again.
        forget_pages(&self.file)?;
        let mut found = [0; LINE];
        self.file.read_exact_at(&mut found, 0)?;
        match found == *line {
            true => Ok(()),
            false => {
                let who = String::from_utf8_lossy(&found);
                let who = who.trim_end().split_once(' ').map_or("", |(_, who)| who);
                Err(io::Error::other(format!("{who} has taken over")))
            }
        }
    }

    /// The name on disk of the file that the binlog calls `name`: segments keep
    /// their name, all other files are this server's own.
    pub fn own_name(&self, name: &str) -> String {
        match segment_number(name) {
            Some(_) => name.to_owned(),
            None => format!("{name}{}", self.suffix),
        }
    }
}

/// Whether a file is on a file system that other machines can use.
fn is_shared(file: &fs::File) -> io::Result<bool> {
    // The C library's type of this number differs from machine to machine.
    let kind = fstatfs(file)?.filesystem_type().0 as u32;
    Ok(SHARED.contains(&kind))
}

/// Writes a line that no other server writes.
fn write_line(file: &fs::File, now: u128) -> io::Result<[u8; LINE]> {
    let system = uname()?;
    let host = system.nodename().to_string_lossy();
    let text = format!("{now} process {} on {host}", std::process::id());
    let text = &text.as_bytes()[..text.len().min(LINE - 1)];
    let mut line = [b' '; LINE];
    line[..text.len()].copy_from_slice(text);
    line[LINE - 1] = b'\n';
    file.write_all_at(&line, 0)?;
    file.sync_all()?;
    Ok(line)
}

/// A write lock on all of a file.
fn whole() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn lock_whole(file: &fs::File, wait: bool) -> nix::Result<()> {
    let region = whole();
    loop {
        let how = match wait {
            true => FcntlArg::F_SETLKW(&region),
            false => FcntlArg::F_SETLK(&region),
        };
        match fcntl(file, how) {
            Err(Errno::EINTR) => {}
            locked => return locked.map(drop),
        }
    }
}

fn is_locked_by_other(file: &fs::File) -> nix::Result<bool> {
    let mut region = whole();
    let asked = fcntl(file, FcntlArg::F_GETLK(&mut region));
    asked.map(|_| region.l_type != libc::F_UNLCK as libc::c_short)
}

/// Makes the next read of a file go to the storage.
pub(super) fn forget_pages(file: &fs::File) -> io::Result<()> {
    let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    posix_fadvise(file, 0, 0, advice).map_err(io::Error::from)
}

/// Removes files that other servers have prepared for themselves, on this
/// storage or before the directory was copied here. They were never part of the
/// binlog.
fn remove_prepared(path: &Path, is_shared: bool) -> io::Result<()> {
    let is_prepared = |name: &str| {
        let name = name.strip_prefix(SPARE).or(name.strip_prefix(RESERVE));
        match name.map(|rest| rest.strip_prefix('.').unwrap_or(rest)) {
            Some("") => is_shared,
            Some(suffix) => suffix.bytes().all(|byte| byte.is_ascii_digit()),
            None => false,
        }
    };
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(is_prepared) {
            match fs::remove_file(path.join(name)) {
                // The server that prepared it has just made a segment of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fence around a directory, whatever its file system.
    fn raise(path: &Path) -> Fence {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        Fence::raise(file.open(path.join("lock")).unwrap(), path).unwrap()
    }

    #[test]
    fn who_finds_another_line_than_his_own_has_lost_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let first = raise(directory.path());
        assert!(first.look().is_ok());
        let second = raise(directory.path());
        assert!(second.look().is_ok());
        let lost = first.look().unwrap_err().to_string();
        let who = format!("process {} on ", std::process::id());
        assert!(
            lost.starts_with(&who) && lost.ends_with(" has taken over"),
            "{lost}"
        );
    }

    #[test]
    fn what_others_have_prepared_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let names = [
            "binlog.1",
            "binlog.1.bak",
            "binlog.reserve.7",
            "binlog.spare",
            "binlog.spare-notes",
            "notes",
        ];
        for name in names {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let fence = raise(directory.path());
        let left = fs::read_dir(directory.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "binlog.1",
                "binlog.1.bak",
                "binlog.spare-notes",
                "lock",
                "notes"
            ]
        );
        assert_eq!(fence.own_name("binlog.2"), "binlog.2");
        assert_eq!(
            fence.own_name("binlog.spare"),
            format!("binlog.spare{}", fence.suffix)
        );
    }

    #[test]
    fn on_a_local_disk_there_is_no_fence() {
        let directory = tempfile::tempdir().unwrap();
        let fence = Fence::lock(directory.path(), false).unwrap();
        assert!(!fence.is_shared());
        assert_eq!(fs::read(directory.path().join("lock")).unwrap(), b"");
        // Files that were copied here from a shared directory belong to no
        // server.
        drop(fence);
        for name in ["binlog.spare", "binlog.spare.17"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        Fence::lock(directory.path(), false).unwrap();
        assert!(directory.path().join("binlog.spare").exists());
        assert!(!directory.path().join("binlog.spare.17").exists());
    }
}
