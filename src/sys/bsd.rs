//! macOS and FreeBSD, as far as they are not as Linux: the same names as in
//! `linux.rs`. This is built, and not run by our tests.
//!
//! Left out is what they do not have: sockets without a file, and file systems that must
//! be told to write in place.
//! What the standard library does already is not here either: on macOS it
//! syncs a file with `F_FULLFSYNC`, which makes the disk write its own cache
//! too.

use nix::libc;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::resource::Resource;
use nix::sys::statfs::fstatfs;
use nix::time::ClockId;
use nix::unistd::getpeereid;
#[cfg(target_vendor = "apple")]
use nix::{getsockopt_impl, sockopt_impl};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

#[cfg(not(target_vendor = "apple"))]
pub use nix::libc::FIONWRITE as UNSENT_BYTES;
#[cfg(target_vendor = "apple")]
pub use nix::sys::socket::sockopt::TcpKeepAlive as TcpKeepIdle;
#[cfg(not(target_vendor = "apple"))]
pub use nix::sys::socket::sockopt::TcpKeepIdle;
#[cfg(not(target_vendor = "apple"))]
pub use nix::unistd::initgroups as set_supplementary_groups;

/// Threads count against no limit of the user.
pub const THREADS: Option<Resource> = None;

pub const ADDRESS_SPACE: Option<Resource> = None;

pub fn free_memory() -> Option<u64> {
    None
}

/// No control group pays for sockets here.
pub fn hold_unsent(_: BorrowedFd<'_>, _: usize) {}

pub fn widen(_: BorrowedFd<'_>, _: usize) {}

pub struct HangupList(Kqueue);

impl HangupList {
    pub fn new() -> nix::Result<HangupList> {
        Kqueue::new().map(HangupList)
    }

    pub fn add(&self, socket: &OwnedFd, number: u64) -> nix::Result<()> {
        // The end is always reported, but bytes only if more are there than a
        // socket can hold.
        let (flags, lowest) = (EvFlags::EV_ADD | EvFlags::EV_CLEAR, i32::MAX as isize);
        let (socket, fflags) = (socket.as_raw_fd() as usize, FilterFlag::NOTE_LOWAT);
        let reads = EventFilter::EVFILT_READ;
        let event = KEvent::new(socket, reads, flags, fflags, lowest, number as isize);
        self.0.kevent(&[event], &mut [], None).map(drop)
    }

    pub(super) fn take_some(&self, gone: &mut Vec<u64>) -> bool {
        let (reads, no_flags) = (EventFilter::EVFILT_READ, EvFlags::empty());
        let none = KEvent::new(0, reads, no_flags, FilterFlag::empty(), 0, 0);
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = [none; 64];
        let found = self.0.kevent(&[], &mut events, Some(at_once));
        let count = found.expect("the list is open");
        let has_ended = |event: &&KEvent| event.flags().contains(EvFlags::EV_EOF);
        let ended = events[..count].iter().filter(has_ended);
        gone.extend(ended.map(|event| event.udata() as u64));
        count == events.len()
    }
}

impl AsFd for HangupList {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// As on Linux. But here, a connection does not block if its listener does not,
/// and macOS sets no flag while it accepts. (We start no programs, so no other
/// thread can come between.)
pub fn accept(listener: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
    let fd = nix::sys::socket::accept(listener.as_raw_fd())?;
    // SAFETY: the kernel has just opened it, so nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(socket)
}

/// There is one call for both systems, and it does not tell the process.
pub fn peer(socket: &OwnedFd) -> nix::Result<String> {
    getpeereid(socket).map(|(user, _)| format!("uid={user}"))
}

#[cfg(target_vendor = "apple")]
pub fn has_sent_all(socket: BorrowedFd<'_>) -> bool {
    nix::sys::socket::getsockopt(&socket, Unsent) == Ok(0)
}

#[cfg(target_vendor = "apple")]
sockopt_impl!(Unsent, GetOnly, libc::SOL_SOCKET, libc::SO_NWRITE, usize);

pub fn disable_copy_on_write(_: BorrowedFd<'_>) {}

/// FreeBSD has the call of POSIX, which ZFS refuses.
#[cfg(not(target_vendor = "apple"))]
pub fn allocate(file: &File, from: libc::off_t, to: libc::off_t) -> nix::Result<()> {
    nix::fcntl::posix_fallocate(file, from, to - from)
}

/// macOS allocates behind the end of a file, and leaves its length as it is.
#[cfg(target_vendor = "apple")]
pub fn allocate(file: &File, from: libc::off_t, to: libc::off_t) -> nix::Result<()> {
    let mut room = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: to - from,
        fst_bytesalloc: 0,
    };
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_PREALLOCATE(&mut room))?;
    let len = nix::sys::stat::fstat(file)?.st_size;
    nix::unistd::ftruncate(file, len.max(to))
}

/// Here no file system can be asked for this.
pub fn unshare(_file: &File, _len: libc::off_t) -> nix::Result<()> {
    Err(nix::errno::Errno::EOPNOTSUPP)
}

/// What is not known to be a local file system counts as shared. macOS cannot be told to
/// forget the pages of a file, so it keeps no jobs on such a one.
pub fn is_shared(file: &File) -> io::Result<bool> {
    let local = [
        "apfs", "hfs", "ufs", "zfs", "tmpfs", "msdos", "msdosfs", "exfat",
    ];
    let system = fstatfs(file)?;
    let is_local = local.contains(&system.filesystem_type_name());
    if !is_local && cfg!(target_vendor = "apple") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(!is_local)
}

pub const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// macOS cannot be told that. On a local disk this only matters after a sync has failed.
#[cfg(target_vendor = "apple")]
pub fn forget_pages(_: &File) -> io::Result<()> {
    Ok(())
}

pub fn random_bytes() -> [u8; 8] {
    RandomState::new().hash_one(()).to_ne_bytes()
}

/// On macOS this call has another type for groups, and `nix` leaves it out.
#[cfg(target_vendor = "apple")]
pub fn set_supplementary_groups(user: &std::ffi::CStr, group: nix::unistd::Gid) -> nix::Result<()> {
    // SAFETY: the name ends with a zero byte and is only read.
    let done = unsafe { libc::initgroups(user.as_ptr(), group.as_raw() as libc::c_int) };
    nix::errno::Errno::result(done).map(drop)
}
