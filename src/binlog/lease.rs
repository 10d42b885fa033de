//! The directory on the disk, and its lock; and for one that several machines can use,
//! fencing and the lease. A server that has lost the lock acknowledges nothing any more, sends
//! nothing about jobs, and damages nothing. What the daemon knows of shared storage is
//! here. The outbox calls one method, [`ensure_lease`](Binlog::ensure_lease), before
//! replies are sent, and the committer calls it when it wakes. Recovery asks a storage
//! whether it is shared: then it begins a segment, and trusts no file of zeros.
//!
//! # Fencing
//!
//! On a local file system the lock is enough: it is ours until this process
//! ends. On a shared file system, another machine may get the lock meanwhile,
//! when the network was down for too long, and we are not notified. The file
//! systems that we tried then opened our files again as if nothing had
//! happened, without the lock. A server cannot know in advance whether a write
//! comes too late. So:
//!
//! - *Write, sync, check the lock, answer.* A server that takes the lock writes a line
//!   of its own, its fencing token, into the lock's file before it reads anything
//!   else. When a change is written and synced, and before it is acknowledged, a server
//!   reads that file: this is the *lock check*. If its own line is still there, the next
//!   server will read all that it has written. (A check before the write would prove
//!   nothing: the lock may be lost between the two.)
//! - *No server writes where another one may write.* A server begins a segment
//!   of its own, in a file that it has made itself, and never appends to the
//!   records of another server. (Recovery writes these once more as it has read
//!   them, then zeros, and a frame that says that the next segment has begun.) If the
//!   other server then writes late, its bytes lie after the end that the header of our
//!   segment names, or in a file that has no name any more. Also, each server has its
//!   own names for the files that it prepares ahead, and removes those of others before
//!   it reads anything. So if another server renames such a file late, there is nothing
//!   to rename. (A file that can be neither removed nor opened stays: GlusterFS has one
//!   replica of it instead of three, and refuses to rename it.)
//! - *No stale cache is read.* A machine may still have old pages of a file that it
//!   has read. So no file is recycled: on shared storage an obsolete segment is
//!   removed. Besides, the kernel is asked to drop the pages.
//!
//! Not prevented: a server that loses the lock between a write and its check does not
//! learn what becomes of these changes. They were not acknowledged; the next server
//! may have them or not.
//!
//! # The lease
//!
//! A reply that depends on no change, such as FOUND, TIMED_OUT or statistics, waits for
//! no sync; nor does RESERVED, once the job's put is durable. But another server may have
//! deleted these jobs meanwhile. So there is one rule for all replies. Right before they
//! are sent, the outbox calls [`ensure_lease`](Binlog::ensure_lease), which relies on the
//! last lock check that succeeded, or makes another one:
//!
//! - *That check began after everything had become durable that is durable now.* So no
//!   change is acknowledged
//!   without a check after its write and sync. Threads that are notified of the same commit
//!   use the same check.
//! - *It began at most [`LEASE`] ago.* The storage gives the lock of a
//!   silent machine to another one only after a longer time. The clock is read before a check
//!   begins and right before the reply is sent, so a process that was stopped at any
//!   moment between these two makes another check. The clock also runs while the machine
//!   is suspended.
//! - *It began at most [`RECHECK_AFTER`] before the replies were ready.* This limits the
//!   harm where the lock is lost sooner, and where the clock stops: the storage
//!   releases the lock at once when the process that serves the mount (FUSE) dies, and the clocks
//!   of a virtual machine that is paused may not run. With `LEASE` alone, a server
//!   would serve on for seconds; with `RECHECK_AFTER` alone, one whose checks take longer
//!   could never reply.
//!
//! Not prevented: bytes that the kernel has accepted for sending cannot be taken
//! back. And if the process is stopped between the last reading of the clock
//! and the call that sends, that one reply comes late.

use super::error::{Error, is_full};
use super::format::{any_slot, prepared_slot, segment_number};
use super::storage::{File, Source, Storage, again, free};
use super::{Binlog, Failed, locked};
use crate::sync::{Ordering, time_since_boot};
use crate::sys::{disable_copy_on_write, is_shared, whole_file};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::utsname::uname;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, fsync, unlinkat};
use std::fs::{self, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// What a file is called until it is whole. It is this server's own name. If it stays, the next
/// start removes it like the prepared segments of other servers.
pub(super) const DRAFT: &str = "segment.spare.0";

/// The name of the lock's file.
const LOCK: &str = "lock";

/// Locks a directory. With `wait`, waits until no other server has it. Returns its
/// storage, which has it until it is dropped; and what the operator should know, a line
/// each.
///
/// The lock is the one that beanstalkd takes (a write lock by `fcntl` on
/// the file `lock`). So its servers and ours exclude each other, and also
/// servers on several machines, if the file system passes such locks on.
///
/// # Errors
///
/// If another server has it, or if it cannot be used: for example, if no file can be made
/// in it, or removed. (On a full disk none need be made.)
pub fn lock(path: &Path, wait: bool) -> Result<(Arc<dyn Storage>, Vec<String>), Error> {
    let mut directory = lock_to_read(path, wait)?;
    if directory.is_shared() {
        directory.raise_fence().map_err(Error::on("write", LOCK))?;
    }
    let left = directory.remove_prepared()?;
    let tried = match directory.create(DRAFT) {
        Err(error) if is_full(&error) => Ok(()),
        made => made.and_then(|_| directory.remove(DRAFT)),
    };
    tried.map_err(Error::on("make or remove", "files"))?;
    let mut notices: Vec<String> = left.iter().map(Error::left_alone).collect();
    // Each local file system can do that, and a start need not wait for it twice.
    if directory.is_shared()
        && let Err(errno) = again(|| fsync(&directory.directory))
    {
        notices.push(format!(
            "names in {} cannot be synced ({errno}), so a power cut may lose jobs, or keep the server from starting",
            path.display()
        ));
    }
    Ok((Arc::new(directory), notices))
}

/// The same, and changes nothing in it.
pub fn lock_to_read(path: &Path, wait: bool) -> Result<Directory, Error> {
    let refused = |source| Error::unusable(path, source);
    let mut directory = Directory::open(path)?;
    let is_ours = directory.lock_file(wait).map_err(refused)?;
    let is_shared = is_shared(&directory.lock).map_err(refused)?;
    // On a local file system no second server gets in even if the file `lock` is removed: no
    // user can remove the lock on the directory itself. (Not every file system has such a lock.
    // No signal interrupts this: after each handler the system continues it.)
    let itself = &directory.directory;
    if wait && !is_shared {
        itself.lock().ok();
    }
    let is_taken = || matches!(itself.try_lock(), Err(TryLockError::WouldBlock));
    if !is_ours || !is_shared && is_taken() {
        return Err(Error::Locked(path.to_owned()));
    }
    directory.token = is_shared.then(Vec::new);
    Ok(directory)
}

/// A directory of the operating system. It is held by a descriptor, so it stays the same
/// directory when another one is moved or mounted to its path: a server never touches
/// the files of another one.
pub struct Directory {
    directory: fs::File,
    /// Where it was when it was opened.
    path: PathBuf,
    /// Its file `lock`. While the lock is held, no other descriptor of this file may be
    /// closed: that would end a POSIX lock (`fcntl`).
    lock: fs::File,
    /// If other machines can use the directory: our fencing token, the line in the lock's
    /// file that no other server writes. It is empty while we only read.
    token: Option<Vec<u8>>,
    /// What is appended to the names that are this server's own.
    suffix: String,
}

impl Directory {
    /// Opens a directory, and the file `lock` in it.
    fn open(path: &Path) -> Result<Directory, Error> {
        let on = |path: PathBuf| move |source| Error::unusable(&path, source);
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
        let directory = options.open(path).map_err(on(path.to_owned()))?;
        let lock = open_at(&directory, LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
        Ok(Directory {
            lock: lock.map_err(on(path.join(LOCK)))?,
            directory,
            path: path.to_owned(),
            token: None,
            suffix: String::new(),
        })
    }

    /// Locks the file `lock`, all of it. Returns false if another process has it.
    fn lock_file(&self, wait: bool) -> io::Result<bool> {
        let region = whole_file();
        let how = match wait {
            true => FcntlArg::F_SETLKW,
            false => FcntlArg::F_SETLK,
        };
        match again(|| fcntl(&self.lock, how(&region))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes our token into the lock's file.
    fn raise_fence(&mut self) -> io::Result<()> {
        let now = UNIX_EPOCH.elapsed().map_err(io::Error::other)?.as_nanos();
        let system = uname()?;
        let host = system.nodename().to_string_lossy();
        let mut token = format!("{now} process {} on {host}", std::process::id()).into_bytes();
        // As long as any other server's.
        token.resize(255, b' ');
        token.push(b'\n');
        self.lock.write_all_at(&token, 0)?;
        self.lock.sync_all()?;
        (self.token, self.suffix) = (Some(token), format!(".{now}"));
        Ok(())
    }

    /// Removes files that other servers have prepared for themselves, on this storage or
    /// before the directory was copied here. They were never part of the log. But where
    /// there is no segment, those that show that there was one stay, and recovery refuses to
    /// start.
    ///
    /// Returns why some of them are still there: they cannot be opened either, so nobody
    /// can make a segment of them.
    ///
    /// # Errors
    ///
    /// If one cannot be removed, though it can be opened.
    fn remove_prepared(&self) -> Result<Vec<Error>, Error> {
        let names = self.list().map_err(Error::on("list", "the files"))?;
        let has_segment = names.iter().any(|name| segment_number(name).is_some());
        let is_unneeded = |name: &&String| {
            let is_own = !self.is_shared() && prepared_slot(name).is_some();
            !is_own && any_slot(name).is_some_and(|slot| slot == 0 || has_segment)
        };
        let mut left = Vec::new();
        for name in names.iter().filter(is_unneeded) {
            if let Err(error) = self.unlink(name) {
                let error = Error::on("remove", name)(error);
                if open_at(&self.directory, name, OFlag::O_RDWR).is_ok() {
                    return Err(error);
                }
                left.push(error);
            }
        }
        Ok(left)
    }

    /// An error if the directory or the lock is not where other servers expect it.
    fn must_be_in_place(&self) -> io::Result<()> {
        let told = if !is_at(&self.path, &self.directory)? {
            "the directory was moved away or removed, or another one was mounted over it"
        } else if !is_at(&self.path.join(LOCK), &self.lock)? {
            "its file lock was removed"
        } else {
            return Ok(());
        };
        Err(io::Error::other(told))
    }

    /// The name on disk of the file that the log calls `name`. Segments keep their
    /// name, and all other files are this server's own.
    ///
    /// No name is used twice. A replica that
    /// was offline for a moment may still have an older file of a name. If that name were
    /// used again and then changed, this replica would change the name of the older file,
    /// and no server could open the file any more, because the replicas differ.
    fn name(&self, name: &str) -> String {
        match any_slot(name) {
            Some(_) => format!("{name}{}", self.suffix),
            None => name.to_owned(),
        }
    }

    /// Opens an existing file.
    fn open_as(&self, name: &str, flags: OFlag) -> io::Result<Arc<dyn File>> {
        let file = open_at(&self.directory, &self.name(name), flags)?;
        if self.is_shared() {
            // Another machine may have changed it.
            file.forget()?;
        }
        Ok(Arc::new(file))
    }

    /// Removes the file of this name on disk, if it is there: the server that prepared it may
    /// just have made a segment of it.
    fn unlink(&self, name: &str) -> io::Result<()> {
        match again(|| unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir)) {
            Err(Errno::ENOENT) => Ok(()),
            done => Ok(done?),
        }
    }
}

impl Source for Directory {
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
        let own = |name: String| name.strip_suffix(&self.suffix).unwrap_or(&name).to_owned();
        Ok(names.into_iter().map(own).collect())
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open_as(name, OFlag::O_RDONLY)
    }

    fn is_shared(&self) -> bool {
        self.token.is_some()
    }
}

/// No name is changed any more after another server has taken the directory over.
impl Storage for Directory {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open_as(name, OFlag::O_RDWR)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check_lock()?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = open_at(&self.directory, &self.name(name), flags);
        let file = file.inspect_err(|error| {
            // GlusterFS leaves it on the replicas that had room. While one that had none
            // is offline, it cannot be opened or removed, and no server could start. Only
            // we know this name.
            if is_full(error) {
                self.unlink(&self.name(name)).ok();
            }
        })?;
        disable_copy_on_write(file.as_fd());
        Ok(Arc::new(file))
    }

    /// This is asked with each sync. Were the file itself asked, for its number of names,
    /// Linux 6.13 and later would also tell its times, and write them with the next sync.
    fn has(&self, name: &str) -> io::Result<bool> {
        let name = self.name(name);
        let look = || faccessat(&self.directory, &*name, AccessFlags::F_OK, AtFlags::empty());
        match again(look) {
            Err(Errno::ENOENT) => Ok(false),
            found => Ok(found.map(|()| true)?),
        }
    }

    /// It is enough to check first that the new name is free: the directory is locked,
    /// so no other server writes here. On shared storage, a server that has lost the
    /// lock has no file left to rename.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_lock()?;
        if self.is_shared() {
            // If a segment begins, the next start must find it at the directory's path.
            self.must_be_in_place()?;
        }
        if self.has(to)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (here, from, to) = (&self.directory, &*self.name(from), &*self.name(to));
        Ok(again(|| renameat(here, from, here, to))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_lock()?;
        self.unlink(&self.name(name))
    }

    /// Some file systems cannot do that for a directory: so do VirtualBox's shared folders,
    /// and older kernels' CIFS and 9P.
    fn sync(&self) -> io::Result<()> {
        match again(|| fsync(&self.directory)) {
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn free(&self) -> Option<u64> {
        free(&self.directory)
    }

    fn check_lock(&self) -> io::Result<()> {
        let Some(token) = &self.token else {
            return self.must_be_in_place();
        };
        // This asks the storage, not a cache, and fails if this descriptor has
        // lost the lock. (Taking the lock again would show as much. But a
        // thread that a signal interrupts in that call may wait for GlusterFS's
        // answer for ever.)
        let mut region = whole_file();
        again(|| fcntl(&self.lock, FcntlArg::F_GETLK(&mut region)))?;
        if region.l_type != libc::F_UNLCK as libc::c_short {
            return Err(io::Error::other("another server has it"));
        }
        // Another server may have had the lock, and have ended again.
        self.lock.forget()?;
        let mut found = vec![0; token.len()];
        self.lock.read_exact_at(&mut found, 0)?;
        if found == *token {
            return Ok(());
        }
        let who = String::from_utf8_lossy(&found);
        let who = who.trim_end().split_once(' ').map_or("", |(_, who)| who);
        Err(io::Error::other(format!("{who} has taken over")))
    }
}

/// Opens a file in a directory. A file that is created is for its owner alone.
fn open_at(directory: &fs::File, name: &str, flags: OFlag) -> io::Result<fs::File> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    // Whoever can write to the directory could otherwise have root make or change a file
    // anywhere. Opening a pipe would wait for its other end, and reading for ever.
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file: fs::File = again(|| openat(directory, name, flags, mode))?.into();
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
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

/// A reply is sent at most this long after the beginning of the lock check that it
/// relies on.
/// beanpole-machines(7) says how to configure the storage, so that it waits at least 10
/// seconds for a silent machine before it gives the machine's lock away.
pub const LEASE: Duration = Duration::from_secs(5);

/// When a reply is ready to be sent and the last lock check began longer ago than this,
/// the lock is checked again. With 20 checks a second at most, a server that only answers
/// reads pays little.
pub const RECHECK_AFTER: Duration = Duration::from_millis(50);

/// How often a server that sends nothing checks that the directory is still its own.
/// Without this, clients could wait in `reserve` for ever, at a server that gets no jobs
/// any more.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// The lease of a server on shared storage: its last lock check that succeeded.
#[derive(Default)]
pub(super) struct Lease {
    /// Up to which LSN the log was durable when that check began; 0 before the first one,
    /// which covers nothing: a log has its header from the beginning.
    covered: u64,
    /// When it began, by a clock that also runs while the machine is suspended.
    began: Duration,
}

impl Binlog {
    /// Makes sure that replies may be sent now: that a lock check has succeeded which is
    /// recent, and which began after everything was written that is durable now. Makes one
    /// if there is none. On shared storage, nothing may be sent after an error. To be called
    /// right before, and not under the server's lock.
    ///
    /// Returns how long the thread that calls this while nothing is sent may sleep.
    pub fn ensure_lease(&self) -> Result<Duration, Failed> {
        if !self.storage.is_shared() {
            return Ok(Duration::MAX);
        }
        let durable = || self.durable.load(Ordering::Acquire);
        let (needed, ready_at) = (durable(), time_since_boot());
        while self.failure.get().is_none() {
            // Meanwhile other threads with replies wait, and then use the same check.
            let mut lease = locked(self.lease.lock());
            if lease.is_valid_for(needed, ready_at, time_since_boot()) {
                break;
            }
            let (covered, began) = (durable(), time_since_boot());
            let checked = self.storage.check_lock();
            let checked = checked.map(|()| *lease = Lease { covered, began });
            drop(lease);
            checked.map_err(|error| self.fail(Error::lost(error)))?;
        }
        self.check_failure().map(|()| CHECK_EVERY)
    }
}

impl Lease {
    /// Whether replies may be sent now that were ready at `ready_at`, when the log was
    /// durable up to `needed`.
    fn is_valid_for(&self, needed: u64, ready_at: Duration, now: Duration) -> bool {
        let is_recent = self.began + RECHECK_AFTER >= ready_at && self.began + LEASE > now;
        self.covered >= needed && is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::super::storage::write_zeros;
    use super::super::tail::BLOCK;
    use super::super::{SyncMode, ready_job, recovery};
    use super::*;
    use crate::engine::Change;
    use crate::protocol::JobId;
    use std::collections::BTreeMap;

    /// A directory with a fence, whatever its file system.
    fn raise(path: &Path) -> (Directory, Vec<Error>) {
        let mut directory = Directory::open(path).unwrap();
        directory.raise_fence().unwrap();
        let left = directory.remove_prepared().unwrap();
        (directory, left)
    }

    #[test]
    fn a_file_has_the_length_that_was_last_set() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let file = directory.create("segment.1").unwrap();
        let lens = || {
            file.sync().unwrap();
            let found = fs::metadata(place.path().join("segment.1")).unwrap();
            (file.len().unwrap(), found.len())
        };
        file.allocate(8192, 0).unwrap();
        assert_eq!(lens(), (8192, 8192));
        file.set_len(4096).unwrap();
        assert_eq!(lens(), (4096, 4096));
        write_zeros(&*file, 4096, 80_000).unwrap();
        assert_eq!(lens(), (80_000, 80_000));
        directory.remove("segment.1").unwrap();
        assert_eq!(directory.list().unwrap(), ["lock"]);
    }

    #[test]
    fn a_directory_that_was_moved_away_is_not_confused_with_one_at_its_old_path() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("queue"), place.path().join("old"));
        fs::create_dir(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        assert!(directory.must_be_in_place().is_ok());
        fs::rename(&path, &other).unwrap();
        let moved = directory.must_be_in_place().unwrap_err();
        assert!(moved.to_string().starts_with("the directory was moved"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        fs::write(path.join("segment.1"), "theirs").unwrap();
        assert!(directory.must_be_in_place().is_err());
        assert!(directory.list().is_err());
        assert!(directory.remove("segment.1").is_err());
        // A copy may have the same files.
        fs::remove_file(path.join("lock")).unwrap();
        fs::hard_link(other.join("lock"), path.join("lock")).unwrap();
        assert!(directory.list().is_err());

        fs::remove_dir_all(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(directory.must_be_in_place().is_ok());
        assert_eq!(directory.list().unwrap(), ["lock"]);
        fs::remove_file(path.join("lock")).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        let removed = directory.must_be_in_place().unwrap_err();
        assert_eq!(removed.to_string(), "its file lock was removed");
        // An error of the check does not mean that the file is missing.
        fs::remove_file(path.join("lock")).unwrap();
        std::os::unix::fs::symlink("lock", path.join("lock")).unwrap();
        let unknown = directory.must_be_in_place().unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn a_server_that_finds_another_owner_in_the_lock_file_has_lost_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let (first, _) = raise(directory.path());
        first.create("segment.spare").unwrap();
        first.rename("segment.spare", "segment.1").unwrap();
        assert!(first.check_lock().is_ok());
        let (second, _) = raise(directory.path());
        assert!(second.check_lock().is_ok());
        let lost = first.check_lock().unwrap_err().to_string();
        let who = format!("process {} on ", std::process::id());
        assert!(
            lost.starts_with(&who) && lost.ends_with(" has taken over"),
            "{lost}"
        );
        assert!(first.create("segment.spare").is_err());
        assert!(first.remove("segment.1").is_err());
        second.remove("segment.1").unwrap();
    }

    #[test]
    fn the_next_server_continues_the_log_in_a_segment_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let storage = Arc::new(raise(directory.path()).0);
            let mut jobs = BTreeMap::new();
            let opened = recovery::recover(storage, SyncMode::Always, BLOCK, &mut jobs);
            (opened.unwrap().binlog, jobs)
        };
        let (first, mut jobs) = open();
        for id in (1..=50).map(JobId) {
            let job = ready_job(id, &[b'x'; 900]);
            let deleted = Change::Delete(id, job.lengths());
            jobs.insert(id, job);
            first.append(&[Change::Put(id)], &jobs);
            if id < JobId(50) {
                jobs.remove(&id);
                first.append(&[deleted], &jobs);
            }
            first.flush_and_recycle().unwrap();
            first.ensure_lease().unwrap();
        }
        let last = first.stats().current_index;
        assert!(last > 5 && first.stats().oldest_index > last - 2);
        let (second, found) = open();
        assert_eq!(found, jobs);
        assert_eq!(second.stats().current_index, last + 1);
        let lsn = first.append(&[Change::Put(JobId(50))], &jobs);
        first.commit(lsn).unwrap();
        assert!(
            first.ensure_lease().is_err(),
            "it acknowledges what is lost"
        );
        second.ensure_lease().unwrap();
        assert_eq!(open().1, jobs);
    }

    /// Linux has a lock that counts as another process's, if it is taken through
    /// another descriptor.
    #[cfg(target_os = "linux")]
    #[test]
    fn only_one_server_holds_the_lock_and_its_loss_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let (fenced, _) = raise(directory.path());
        let lock = &fenced.lock;
        assert!(fenced.lock_file(false).unwrap());
        let mut other = fs::OpenOptions::new();
        let other = other
            .write(true)
            .open(directory.path().join("lock"))
            .unwrap();
        let region = whole_file();
        let take = || fcntl(&other, FcntlArg::F_OFD_SETLK(&region));
        assert_eq!(take(), Err(Errno::EAGAIN));
        // As if the storage had given the lock away.
        let release = libc::flock {
            l_type: libc::F_UNLCK as libc::c_short,
            ..region
        };
        fcntl(lock, FcntlArg::F_SETLK(&release)).unwrap();
        take().unwrap();
        assert!(!fenced.lock_file(false).unwrap());
        let lost = fenced.check_lock().unwrap_err().to_string();
        assert_eq!(lost, "another server has it");
    }

    #[test]
    fn prepared_segments_of_other_servers_are_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let names = [
            "segment.1",
            "segment.1.bak",
            "segment.spare",
            "segment.spare2.0.7",
            "segment.spare3.7",
            "segment.spare-notes",
            "notes",
        ];
        for name in names {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        let (fenced, _) = raise(directory.path());
        let left = fs::read_dir(directory.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "lock",
                "notes",
                "segment.1",
                "segment.1.bak",
                "segment.spare-notes"
            ]
        );
        assert_eq!(fenced.name("segment.2"), "segment.2");
        let own = format!("segment.spare2{}", fenced.suffix);
        assert_eq!(fenced.name("segment.spare2"), own);
        fenced.create("segment.spare2").unwrap();
        let listed = |name: &str| fenced.list().unwrap().contains(&name.to_owned());
        assert!(directory.path().join(&own).exists() && listed("segment.spare2") && !listed(&own));
    }

    #[test]
    fn a_second_prepared_segment_stays_while_there_is_no_segment() {
        for (is_shared, left_over) in [(true, "segment.spare2"), (false, "segment.spare2.17")] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name| directory.path().join(name);
            for name in [left_over, "segment.spare.0"] {
                fs::write(path(name), "").unwrap();
            }
            let mut directory = Directory::open(directory.path()).unwrap();
            if is_shared {
                directory.raise_fence().unwrap();
            }
            directory.remove_prepared().unwrap();
            assert!(path(left_over).exists() && !path("segment.spare.0").exists());
            fs::write(path("segment.1"), "x").unwrap();
            directory.remove_prepared().unwrap();
            assert!(!path(left_over).exists());
        }
    }

    /// A file server that had no room may have one replica of a file where three
    /// belong; then it cannot be opened or removed while another one is away.
    /// Here a directory is such a file.
    #[test]
    fn a_prepared_segment_that_can_be_neither_removed_nor_opened_prevents_no_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("segment.1"), "x").unwrap();
        fs::create_dir(path("segment.spare3.17.2")).unwrap();
        fs::write(path("segment.spare4.17.1"), "x").unwrap();
        let (_, left) = raise(directory.path());
        let left: Vec<_> = left.iter().map(Error::to_string).collect();
        let why = "in the binlog directory: Is a directory (os error 21)";
        assert_eq!(left, [format!("cannot remove segment.spare3.17.2 {why}")]);
        assert!(!path("segment.spare4.17.1").exists());
    }

    #[test]
    fn no_file_is_used_through_a_symbolic_link() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("queue");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink("../elsewhere", path.join("segment.spare2")).unwrap();
        fs::write(place.path().join("elsewhere"), "x").unwrap();
        let directory = Directory::open(&path).unwrap();
        assert!(directory.open("segment.spare2").is_err());
        assert!(directory.open_to_read("segment.spare2").is_err());
    }

    /// To close any descriptor of the lock's file releases the lock.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_start_that_has_looked_through_the_directory_still_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("segment.spare2"), "").unwrap();
        fs::write(path("segment.1"), "").unwrap();
        let _locked = lock(directory.path(), false).unwrap();
        let mut other = fs::OpenOptions::new();
        let other = other.write(true).open(path("lock")).unwrap();
        let region = whole_file();
        let taken = fcntl(&other, FcntlArg::F_OFD_SETLK(&region));
        assert_eq!(taken, Err(Errno::EAGAIN));
    }

    #[test]
    fn a_directory_on_a_local_disk_is_not_fenced() {
        let directory = tempfile::tempdir().unwrap();
        let lock = || lock(directory.path(), false).unwrap().0;
        let storage = lock();
        assert!(!storage.is_shared());
        assert_eq!(fs::read(directory.path().join("lock")).unwrap(), b"");
        // Files that were copied here from a shared directory belong to no
        // server.
        drop(storage);
        fs::write(directory.path().join("segment.1"), "x").unwrap();
        for name in ["segment.spare", "segment.spare.17"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        lock();
        assert!(directory.path().join("segment.spare").exists());
        assert!(!directory.path().join("segment.spare.17").exists());
    }

    #[test]
    fn a_reply_needs_a_lock_check_that_is_recent_when_it_is_ready_and_not_old_when_it_is_sent() {
        let at = Duration::from_millis;
        let is_valid = |lease: &Lease, ready_at, now| lease.is_valid_for(44, at(ready_at), at(now));
        assert!(
            !is_valid(&Lease::default(), 0, 0),
            "nothing was checked yet"
        );
        let lease = Lease {
            covered: 44,
            began: at(10_000),
        };
        assert!(is_valid(&lease, 9_000, 10_000));
        assert!(is_valid(&lease, 10_050, 10_050));
        assert!(!is_valid(&lease, 10_051, 10_051));
        assert!(is_valid(&lease, 10_050, 14_999));
        assert!(!is_valid(&lease, 10_050, 15_000));
    }

    #[test]
    fn a_lock_check_before_a_write_does_not_cover_it() {
        let began = Duration::from_millis(10_000);
        let is_valid = |covered| Lease { covered, began }.is_valid_for(45, began, began);
        assert!(!is_valid(44));
        assert!(is_valid(45));
    }
}
