//! What only Linux can do, or does in its own way. For macOS and FreeBSD,
//! `bsd.rs` has the same names.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::Resource;
use nix::sys::socket::{SockFlag, accept4, getsockopt, setsockopt, sockopt};
use nix::sys::statfs::fstatfs;
use nix::sys::sysinfo::sysinfo;
use nix::time::ClockId;
use nix::{setsockopt_impl, sockopt_impl};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use nix::libc::TIOCOUTQ as UNSENT_BYTES;
pub use nix::sys::socket::sockopt::TcpKeepIdle;
pub use nix::unistd::initgroups as set_supplementary_groups;

/// The limit that threads count against. On other systems they count against
/// none.
pub const THREADS: Option<Resource> = Some(Resource::RLIMIT_NPROC);

/// The limit of the address space, where nix has a name for it.
pub const ADDRESS_SPACE: Option<Resource> = Some(Resource::RLIMIT_AS);

/// How much of the machine's memory nobody uses, in bytes, if /proc does not say what is
/// available.
pub fn free_memory() -> Option<u64> {
    sysinfo().ok().map(|system| system.ram_unused())
}

/// Makes the kernel take nothing more to send when it holds this many bytes for the peer of a
/// Unix socket, which perhaps does not read. (The buffer becomes twice as long as it is told.)
/// A TCP socket with a short buffer would wait for answers that its peer's system delays. So
/// there only what is not sent yet is bounded: these bytes, and 16 KiB at most, beside what is
/// sent at once.
pub fn hold_unsent(socket: BorrowedFd<'_>, bytes: usize) {
    if setsockopt(&socket, MostUnsent, &bytes.min(16 << 10)).is_err() {
        setsockopt(&socket, sockopt::SndBuf, &(bytes / 2)).ok();
    }
}

/// Makes the kernel take this many bytes from the peer of a TCP socket.
pub fn widen(socket: BorrowedFd<'_>, bytes: usize) {
    setsockopt(&socket, MostReceived, &bytes).ok();
    setsockopt(&socket, sockopt::RcvBuf, &bytes).ok();
}

sockopt_impl!(
    /// How much a TCP socket holds unsent before it takes no more.
    MostUnsent, SetOnly, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, usize
);

sockopt_impl!(
    /// How much a TCP socket lets its peer send at once.
    MostReceived, SetOnly, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, usize
);

/// The sockets whose peers may end their stream, each with a number. A socket
/// leaves the list when it is closed.
pub struct HangupList(Epoll);

impl HangupList {
    /// An empty list.
    pub fn new() -> nix::Result<HangupList> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(HangupList)
    }

    /// Adds a socket. That its peer has hung up is reported once (edge-triggered),
    /// also if it has hung up already.
    pub fn add(&self, socket: &OwnedFd, number: u64) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.0.add(socket, EpollEvent::new(flags, number))
    }

    /// Appends some of these numbers. Returns whether there may be more.
    pub(super) fn take_some(&self, gone: &mut Vec<u64>) -> bool {
        let mut events = [EpollEvent::empty(); 64];
        // It does not wait, so no signal interrupts it.
        let found = self.0.wait(&mut events, EpollTimeout::ZERO);
        let count = found.expect("the list is open");
        gone.extend(events[..count].iter().map(EpollEvent::data));
        count == events.len()
    }
}

/// Readable when peers have hung up.
impl AsFd for HangupList {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// Accepts a connection. It has the options of its listener, but it is blocking.
///
/// # Errors
///
/// As for `accept(2)`; also if no connection is waiting.
pub fn accept(listener: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just opened it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Who is at the other end of a Unix socket, for people to read.
pub fn peer(socket: &OwnedFd) -> nix::Result<String> {
    let peer = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(format!("pid={},uid={}", peer.pid(), peer.uid()))
}

/// Makes a file system write an empty file in place. Some file systems (btrfs)
/// write new contents of a file to new blocks, so that the room that is
/// allocated to the file would not be room for them. On all other file systems,
/// nothing happens.
pub fn disable_copy_on_write(file: BorrowedFd<'_>) {
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

/// Allocates the blocks of a file between two offsets, and lengthens it if it
/// ends before the second one.
pub fn allocate(file: &File, from: libc::off_t, to: libc::off_t) -> nix::Result<()> {
    fallocate(file, FallocateFlags::empty(), from, to - from)
}

/// Gives a file blocks of its own where it shares them with a copy, up to this
/// length, if the file system can.
pub fn unshare(file: &File, len: libc::off_t) -> nix::Result<()> {
    fallocate(file, FallocateFlags::FALLOC_FL_UNSHARE_RANGE, 0, len)
}

/// The file systems that two machines can use at the same time, by their type
/// in `statfs`. All others are on one machine's disk.
const SHARED: [u32; 23] = [
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
    0x6b41_4653, // the kernel's own AFS
    0x786f_4256, // VirtualBox's shared folders
    0xbacb_acbc, // VMware's shared folders
    0x7c7c_6673, // Parallels' shared folders
    0x0000_517b, // SMB 1
    0x7375_7245, // Coda
    0xaad7_aaea, // PanFS
    0xbeef_dead, // StorNext
    0x6163_6673, // ACFS
    0xa501_fcf5, // VxFS
];

/// Whether a file is on a file system that other machines can use.
pub fn is_shared(file: &File) -> io::Result<bool> {
    match fstatfs(file) {
        // The C library's type of this number differs from machine to machine.
        Ok(system) => Ok(SHARED.contains(&(system.filesystem_type().0 as u32))),
        // With 32 bits, it cannot tell of very large file systems. Such a small
        // machine is more likely to reach one by the network than to hold it.
        Err(Errno::EOVERFLOW) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The clock that has advanced since the start of the machine, also while it was suspended.
pub const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

/// Random bytes of the kernel, if it has a call for that.
pub fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: the kernel writes at most as many bytes as there are. (The C library's own
    // function is missing in old ones.)
    unsafe {
        let (place, len) = (bytes.as_mut_ptr(), bytes.len());
        libc::syscall(libc::SYS_getrandom, place, len, libc::GRND_NONBLOCK);
    }
    bytes
}
