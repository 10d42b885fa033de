//! The few system calls that no package wraps safely, and those that differ from
//! system to system: `linux` and `bsd` have the same names for these. All
//! `unsafe` code of the daemon is in this directory.

#[cfg(not(target_os = "linux"))]
mod bsd;
mod heap;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use bsd::*;
pub use heap::*;
#[cfg(target_os = "linux")]
pub use linux::*;

use nix::libc;
use nix::time::clock_gettime;
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A number that hardly comes twice.
pub fn random() -> u64 {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    // An old kernel has no such call, and a small root no device for it: there the standard
    // library would panic.
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let place = &raw const call as usize;
    let mut hasher = DefaultHasher::new();
    (random_bytes(), call, place, std::process::id()).hash(&mut hasher);
    (UNIX_EPOCH.elapsed().ok(), time_since_boot()).hash(&mut hasher);
    hasher.finish()
}

/// The time since the start of the machine.
pub fn time_since_boot() -> Duration {
    let time = clock_gettime(CLOCK);
    time.expect("every system has this clock").into()
}

/// Makes the next read of a file go to the storage, if the kernel was built with a call for
/// that.
#[cfg(not(target_vendor = "apple"))]
pub fn forget_pages(file: &std::fs::File) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    match posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED) {
        Err(Errno::ENOSYS | Errno::EINVAL) => Ok(()),
        done => Ok(done?),
    }
}

impl HangupList {
    /// The numbers of the sockets whose peers have hung up since this was last called.
    /// One that has half-closed first, and closed later, may be reported twice.
    pub fn take(&self) -> Vec<u64> {
        let mut gone = Vec::new();
        while self.take_some(&mut gone) {}
        gone
    }
}

/// Whether the peer's side has received all that was written to a socket.
#[cfg(not(target_vendor = "apple"))]
pub fn has_sent_all(socket: BorrowedFd<'_>) -> bool {
    let mut unsent: libc::c_int = 0;
    // SAFETY: the kernel writes an int there, and nothing else.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), UNSENT_BYTES, &raw mut unsent) };
    (done, unsent) == (0, 0)
}

/// A write lock on all of a file.
pub fn whole_file() -> libc::flock {
    // SAFETY: it has only numbers, and all of them may be zero. (Systems have
    // different ones beside those that are set here.)
    let mut region: libc::flock = unsafe { std::mem::zeroed() };
    region.l_type = libc::F_WRLCK as libc::c_short;
    region.l_whence = libc::SEEK_SET as libc::c_short;
    region
}

/// Receives at most `most` bytes, and appends them to the buffer, as far as
/// that has capacity. That capacity is not filled with zeros first, so memory
/// that no byte was received into is not touched. 0 if the peer sends nothing
/// more.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let most = room.len().min(most);
    // SAFETY: the kernel writes at most `most` bytes, into memory that is ours.
    let received = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), most, 0) };
    let count = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has just written `count` bytes after the previous ones,
    // within the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// Takes over a descriptor that this process was started with, counted from 0
/// after the three standard ones. Each is taken once, in their order.
///
/// # Errors
///
/// If the descriptor is not open.
///
/// # Panics
///
/// If the descriptor was taken before, or one before it was not.
pub fn inherited_descriptor(index: u16) -> io::Result<OwnedFd> {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    assert_eq!(TAKEN.fetch_add(1, Ordering::Relaxed), index.into());
    let fd = 3 + RawFd::from(index);
    // SAFETY: setting a flag of a descriptor, open or not, touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open. The program that started this process says that it is
    // meant for us. Nobody else here owns it, since it is taken once: this was
    // asserted.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn random_numbers_differ_and_the_clock_advances() {
        assert_ne!(random(), random());
        let before = time_since_boot();
        while time_since_boot() == before {}
    }

    #[test]
    fn a_hangup_list_reports_every_closed_peer() {
        let list = HangupList::new().unwrap();
        let pairs = (0..150).map(|_| UnixStream::pair().unwrap());
        let (ours, theirs): (Vec<OwnedFd>, Vec<_>) =
            pairs.map(|(ours, theirs)| (ours.into(), theirs)).unzip();
        for (number, socket) in ours.iter().enumerate() {
            list.add(socket, number as u64).unwrap();
        }
        assert_eq!(list.take(), []);
        drop(theirs);
        let mut gone = list.take();
        gone.sort_unstable();
        assert!(gone.into_iter().eq(0..150));
        assert_eq!(list.take(), []);
    }
}
