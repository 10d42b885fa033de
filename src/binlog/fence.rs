//! The lock of a directory, and the fence around one that several machines can
//! use: who has lost it keeps nothing any more, and spoils nothing.
//!
//! On a local file system the lock is all that is needed: it is ours until this
//! process ends. On a shared one it may go to another machine meanwhile, when the
//! network was away for too long, and nobody tells us: the file systems that were
//! tried open our files again as if nothing had happened, without the lock. It
//! cannot be known beforehand whether a write comes too late. So:
//!
//! - *Write, sync, look, answer.* Who takes the lock writes a line of his own
//!   into its file before he reads anything. Who then finds his own line there,
//!   has written what the next one will read. (A look before the write would
//!   say nothing: the lock may be lost in between.)
//! - *Nobody writes where somebody else may write.* A server begins a segment of
//!   its own, in a file that it has made itself, and never writes behind
//!   another one's records: what comes late from that one lands behind the end
//!   that the new segment's header tells, or in a file that has no name any
//!   more. The names of the files that are prepared ahead are the server's own,
//!   too, and those of others are removed before anything is read: then a
//!   rename that comes late finds nothing to rename.
//! - *Nothing old is read.* This follows, if no empty segment becomes a spare:
//!   then nobody needs what somebody else has written into a file that he had
//!   read before. The kernel is asked to forget the pages nevertheless.
//!
//! Left out: a server does not learn what has become of changes that it wrote
//! and could not look after. They were not acknowledged, and are kept or not.

use super::error::Error;
use super::record::segment_number;
use super::spare::{RESERVE, SPARE};
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
/// in `statfs`. The others lie on one machine's disk: there a lock cannot be
/// lost, and looking after it would be a system call with each sync for nothing.
const SHARED: [u32; 13] = [
    0x6573_5546, // FUSE, as which GlusterFS comes; virtiofs too
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

/// A directory's lock, held as long as this lives.
pub(super) struct Fence {
    /// No other descriptor of this file may be closed meanwhile: that would end
    /// a lock of this kind.
    file: fs::File,
    /// On a shared file system, what nobody else writes into the file.
    line: Option<[u8; LINE]>,
    /// The end of the names that are this server's own; empty if all are.
    suffix: String,
}

impl Fence {
    /// Locks a directory, with or without waiting for the one who has it.
    ///
    /// The lock is that of beanstalkd (a write lock by `fcntl` on the file
    /// `lock`), so that its servers and ours exclude each other, on whichever
    /// machine, if the file system passes such locks on.
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
        Fence::raise(file, path).map_err(refused)
    }

    /// Puts the fence up, if the directory is shared.
    fn raise(file: fs::File, path: &Path) -> io::Result<Fence> {
        let mut fence = Fence {
            file,
            line: None,
            suffix: String::new(),
        };
        // The C library's type of this number differs from machine to machine.
        let kind = fstatfs(&fence.file)?.filesystem_type().0 as u32;
        if SHARED.contains(&kind) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_err(io::Error::other)?.as_nanos();
            fence.write_line(now)?;
            fence.suffix = format!(".{now}");
            remove_prepared(path)?;
        }
        Ok(fence)
    }

    /// Writes a line that is this server's alone.
    fn write_line(&mut self, now: u128) -> io::Result<()> {
        let system = uname()?;
        let host = system.nodename().to_string_lossy();
        let text = format!("{now} process {} on {host}", std::process::id());
        let text = &text.as_bytes()[..text.len().min(LINE - 1)];
        let mut line = [b' '; LINE];
        line[..text.len()].copy_from_slice(text);
        line[LINE - 1] = b'\n';
        self.file.write_all_at(&line, 0)?;
        self.file.sync_all()?;
        self.line = Some(line);
        Ok(())
    }

    /// Whether other machines can use the directory.
    pub fn is_shared(&self) -> bool {
        self.line.is_some()
    }

    /// An error if the directory is not ours any more: what was written before
    /// may not be acknowledged then.
    pub fn look(&self) -> io::Result<()> {
        let Some(line) = &self.line else {
            return Ok(());
        };
        // Asked of the storage whatever is cached: it fails if another server
        // has the lock, or if the descriptor has lost it.
        lock_whole(&self.file, false).map_err(|errno| match errno {
            Errno::EAGAIN | Errno::EACCES => io::Error::other("another server has it"),
            errno => errno.into(),
        })?;
        // If it was to be had, somebody else may have come and gone.
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

    /// What a file is called here that the log calls so: what is no segment is
    /// this server's own.
    pub fn own_name(&self, name: &str) -> String {
        match segment_number(name) {
            Some(_) => name.to_owned(),
            None => format!("{name}{}", self.suffix),
        }
    }
}

/// Locks a file, or asks whether we still have that lock.
fn lock_whole(file: &fs::File, wait: bool) -> nix::Result<()> {
    let region = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
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

/// Has the next read of a file go to the storage.
pub(super) fn forget_pages(file: &fs::File) -> io::Result<()> {
    let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    posix_fadvise(file, 0, 0, advice).map_err(io::Error::from)
}

/// Removes what other servers have prepared for themselves. Nothing in it was
/// part of the log.
fn remove_prepared(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let is_prepared = |name: &str| name.starts_with(SPARE) || name.starts_with(RESERVE);
        if name.to_str().is_some_and(is_prepared) {
            match fs::remove_file(path.join(name)) {
                // Its owner has just made a segment of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}
