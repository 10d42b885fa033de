//! The heap of the C library: all threads share one, and its free memory goes back to the
//! system.
//!
//! Only glibc's needs this. Others give memory back by themselves.

/// Makes all threads allocate from one heap, large pieces too. By default the C
/// library has several heaps for each CPU. All but the first grow by one page
/// and one system call at a time, which makes bodies of some kilobytes slower.
/// It also makes a mapping of its own for each body of 128 KiB or more. But the
/// kernel allows a process 65,530 mappings, and each thread needs two of them.
///
/// To be called before other threads are started.
pub fn use_one_malloc_arena() {
    #[cfg(target_env = "gnu")]
    glibc::use_one_arena();
}

/// Has the heap hold pieces of up to a 128th of this memory, which is all that clients may
/// take. (Larger ones get mappings of their own.) Each page of a new mapping costs a fault: to
/// put, reserve and delete a job of 300 kB took 341 microseconds of the processor, and in the
/// heap 125. But in a heap that has larger pieces than this, the gaps between them may take
/// half as much memory again.
pub fn hold_in_heap(max_memory: Option<u64>) {
    #[cfg(target_env = "gnu")]
    glibc::hold(max_memory.unwrap_or(u64::MAX) / 128);
    #[cfg(not(target_env = "gnu"))]
    let _ = max_memory;
}

/// Gives free memory back to the system. Otherwise the allocator keeps it for
/// ever: the C library returns only what lies at the very end of its heap.
///
/// It takes large pieces of free memory from the heap, has the system empty their pages,
/// and frees them again. `malloc_trim` empties every free page in one go, and no thread
/// can allocate meanwhile: when every second one of 60,000 jobs of 6 kB was deleted, it took
/// 132 milliseconds, and this takes 0.4. All that it gave back was a sixth of the memory, in
/// gaps into which new jobs fit.
pub fn trim_heap() {
    #[cfg(all(target_env = "gnu", not(simulated)))]
    glibc::trim();
}

#[cfg(target_env = "gnu")]
mod glibc {
    use nix::libc;
    use nix::unistd::{SysconfVar, sysconf};

    /// The sizes of the pieces, in bytes: the first is tried first. Emptying the largest
    /// takes about a millisecond.
    const LARGEST: usize = 8 << 20;
    const SMALLEST: usize = 8 << 10;

    /// How many pieces are taken at most. The thread that does it has other work, too.
    const MOST_PIECES: usize = 20_000;

    pub fn use_one_arena() {
        // SAFETY: mallopt takes two numbers. If it does not know an option or
        // rejects a value, it changes nothing.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_MAX, 256);
        }
    }

    /// The C library's own bound, and on 32 bits the largest number that it takes.
    const LEAST: u64 = 128 << 10;
    const MOST: u64 = if cfg!(target_pointer_width = "32") {
        512 << 10
    } else {
        8 << 20
    };

    pub fn hold(most: u64) {
        let most = most.clamp(LEAST, MOST) as i32;
        // SAFETY: as above. Threads that allocate meanwhile find the old or the new number.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, most);
            // What is free at the end of the heap stays for the next piece, until a trim.
            libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * most);
        }
    }

    #[cfg_attr(simulated, expect(dead_code, reason = "memory is not simulated"))]
    pub fn trim() {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.expect("pages have a size") as usize;
        let (mut pieces, mut size) = (Vec::new(), LARGEST);
        while size >= SMALLEST && pieces.len() < MOST_PIECES {
            // SAFETY: sbrk(0) only says where the heap ends, and malloc may be called at any
            // time.
            let (end, piece, end_then) =
                unsafe { (libc::sbrk(0), libc::malloc(size), libc::sbrk(0)) };
            // The heap has no such piece: it has grown, or this is a mapping of its own.
            if end != end_then || piece.is_null() || piece >= end {
                // SAFETY: malloc has just returned it. (Freeing nothing does nothing.)
                unsafe { libc::free(piece) };
                size -= size / 4;
                continue;
            }
            // It is kept until the end: otherwise the heap would give it again.
            pieces.push(piece);
            let before = piece.addr().next_multiple_of(page) - piece.addr();
            let pages = size.saturating_sub(before) / page * page;
            // SAFETY: these pages lie wholly inside a piece of memory that is ours, and in
            // which nothing is.
            unsafe { libc::madvise(piece.byte_add(before), pages, libc::MADV_DONTNEED) };
        }
        for piece in pieces {
            // SAFETY: malloc has returned it, and it was not freed above.
            unsafe { libc::free(piece) };
        }
    }
}
