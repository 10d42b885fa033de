//! The few system calls that no package wraps safely. All `unsafe` code of the
//! daemon is here.

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

/// Gives freed memory back to the system. Otherwise the allocator keeps it for
/// ever: the C library returns only what lies at the very end of its heaps.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and has no conditions; it may be
    // called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes all threads allocate from one heap, large pieces too. By default the C
/// library has several heaps for each CPU. All but the first grow by one page
/// and one system call at a time, which makes bodies of some kilobytes slower.
/// It also makes a mapping of its own for each body of 128 KiB or more. But the
/// kernel allows a process 65,530 mappings, and each thread needs four of them.
///
/// To be called before other threads are started.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers. If it does not know an option or
    // rejects a value, it changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_MAX, 256);
    }
}

/// Makes a file system write an empty file in place. Some file systems (btrfs)
/// write new contents of a file to new blocks, so that the room that is
/// allocated to the file would not be room for them. On all other file systems,
/// nothing happens.
pub fn write_in_place(file: BorrowedFd<'_>) {
    // FS_NOCOW_FL of linux/fs.h.
    const NOCOW: libc::c_int = 0x0080_0000;
    let (fd, mut flags) = (file.as_raw_fd(), 0);
    // SAFETY: the kernel writes an int there, and nothing else.
    if unsafe { libc::ioctl(fd, libc::FS_IOC_GETFLAGS, &raw mut flags) } == 0 {
        let flags: libc::c_int = flags | NOCOW;
        // SAFETY: the kernel reads this int.
        unsafe { libc::ioctl(fd, libc::FS_IOC_SETFLAGS, &raw const flags) };
    }
}

/// Finds out whether some more threads can have the mappings that they need. If
/// a thread cannot be started, we get an error. But if it has its stack and
/// there is no room for the stack of its signal handlers, the process ends.
///
/// This is only needed where bodies are mappings. With musl, those of 128 KiB
/// and more are, so clients can bring the process as near to the kernel's limit
/// as they like.
///
/// # Errors
///
/// If the threads cannot have these mappings.
pub fn find_room_for_threads() -> io::Result<()> {
    // With the C library of GNU, bodies are no mappings of their own, and the
    // highest possible number of connections leaves enough mappings free.
    if cfg!(target_env = "gnu") {
        return Ok(());
    }
    // Several threads may be starting, and bodies may arrive meanwhile.
    const MAPPINGS: usize = 64;
    const PAGE: usize = 64 << 10; // no system has larger pages
    let len = MAPPINGS * PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: this is a new mapping. The kernel chooses its place, and nobody
    // uses it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Every second page becomes a mapping of its own.
    let mut pages = (0..MAPPINGS).step_by(2);
    let found = pages.try_for_each(|page| {
        // SAFETY: this is a page within the mapping, and nothing is in it.
        match unsafe { libc::mprotect(start.byte_add(page * PAGE), PAGE, libc::PROT_READ) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    // SAFETY: this is the mapping from above, and nothing refers to it.
    unsafe { libc::munmap(start, len) };
    found
}

/// Receives at most `most` bytes, and appends them to the buffer, as far as
/// that has capacity. That capacity is not filled with zeros first, so memory
/// that no byte was received into is not touched. 0 if the peer sends nothing
/// more.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let most = room.len().min(most);
    // SAFETY: the kernel writes at most so many bytes, into memory that is
    // ours.
    let count = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), most, 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has just written so many bytes after the previous
    // ones, within the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// How many written bytes of a socket the peer's side has not received yet.
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes an int there, and nothing else.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    match usize::try_from(count) {
        Ok(count) if done == 0 => Ok(count),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Accepts a connection. Programs that this process might start do not inherit
/// it.
pub fn accept(listener: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just opened it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over a descriptor that this process was started with, counted from 0
/// after the three standard ones. Each can be taken once.
///
/// # Errors
///
/// If the descriptor is not open.
///
/// # Panics
///
/// If the descriptor was taken before.
pub fn inherited_descriptor(index: u16) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let is_first_time = TAKEN.lock().expect("no thread panics").insert(index);
    assert!(is_first_time, "descriptor {index} was taken before");
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
