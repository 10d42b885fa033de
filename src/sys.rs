//! The few calls of the system that no package wraps safely: all `unsafe` of
//! the daemon stands here.

use nix::libc;
use nix::sys::socket::{SockFlag, accept4};
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::AtomicU64;

/// Gives memory that has been freed back to the system. The allocator keeps
/// it otherwise, for ever: the C library returns only what lies at the very
/// end of its heaps.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and has no conditions; it may be
    // called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has all threads allocate from one heap, large pieces too. The C library would
/// give each CPU several heaps, and those of other threads than the first grow
/// by one page and one system call at a time, which bodies of some kilobytes
/// feel. And it would map each body of 128 KiB and more by itself: the kernel
/// allows a process 65,530 mappings, and each thread needs four of them.
///
/// To be called before there are other threads.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers; an option that it does not know or
    // want it leaves alone.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_MAX, 256);
    }
}

/// Has an empty file written in place, on a file system that would put what is
/// written again somewhere else (btrfs): there, room that a file has would be no
/// room for what it is to hold. Where that is not so, or cannot be, nothing
/// happens.
pub fn write_in_place(file: BorrowedFd<'_>) {
    // FS_NOCOW_FL of linux/fs.h.
    const NOCOW: libc::c_int = 0x0080_0000;
    let (fd, mut flags) = (file.as_raw_fd(), 0);
    // SAFETY: the kernel writes an int there, and nothing else.
    if unsafe { libc::ioctl(fd, libc::FS_IOC_GETFLAGS, &raw mut flags) } == 0 {
        let flags: libc::c_int = flags | NOCOW;
        // SAFETY: the kernel reads that int.
        unsafe { libc::ioctl(fd, libc::FS_IOC_SETFLAGS, &raw const flags) };
    }
}

/// Finds out whether some more threads can have the mappings that they need.
/// Of a thread that cannot be started an error tells; but one that has its stack
/// and finds no room for the stack of its signal handlers ends the process.
///
/// Only where bodies are mappings: with musl those of 128 KiB and more, so that
/// clients can come as near as they like to the most that the kernel allows.
///
/// # Errors
///
/// If they cannot.
#[cfg(not(target_env = "gnu"))]
pub fn find_room_for_threads() -> io::Result<()> {
    // Several may be starting, and bodies come meanwhile.
    const MAPPINGS: usize = 64;
    const PAGE: usize = 64 << 10; // no page is larger
    let len = MAPPINGS * PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, whose place the kernel chooses; nobody gets at it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Every second page becomes a mapping of its own.
    let mut pages = (0..MAPPINGS).step_by(2);
    let found = pages.try_for_each(|page| {
        // SAFETY: a page within the mapping, in which nothing is.
        match unsafe { libc::mprotect(start.byte_add(page * PAGE), PAGE, libc::PROT_READ) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    // SAFETY: the mapping from above, to which nothing refers.
    unsafe { libc::munmap(start, len) };
    found
}

/// With the C library of GNU, bodies are no mappings of their own, and the most
/// connections that there can be leave room.
#[cfg(target_env = "gnu")]
pub fn find_room_for_threads() -> io::Result<()> {
    Ok(())
}

/// Receives some bytes behind those in the buffer, into the room that it has:
/// `most` at most. Nobody fills that room with zeros before, so what is not
/// received is not touched. 0 if the peer sends nothing more.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let most = room.len().min(most);
    // SAFETY: the kernel writes at most that many bytes, and the room is ours.
    let count = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), most, 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: so many bytes behind those before have just been written, within
    // the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// How many bytes a socket has that the peer's side has not taken yet.
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes an int there, and nothing else.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    match usize::try_from(count) {
        Ok(count) if done == 0 => Ok(count),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Accepts a connection. Programs that this one might start do not inherit it.
pub fn accept(listener: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just opened it, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over a descriptor that this process was started with, counted from 0
/// after the three standard ones. Each can be taken once.
///
/// # Errors
///
/// If it is not open.
///
/// # Panics
///
/// If it was taken before.
pub fn inherited_descriptor(index: u16) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let is_first_time = TAKEN.lock().expect("no thread panics").insert(index);
    assert!(is_first_time, "descriptor {index} was taken before");
    let fd = 3 + RawFd::from(index);
    // SAFETY: setting a flag of a descriptor, open or not, touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, whoever started this process says that it is meant
    // for us, and nobody else here has been given it: that was asserted.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
