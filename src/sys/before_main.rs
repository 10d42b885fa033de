//! What the program does before `main`, and before the standard library prepares it. (A
//! part of the program, not of the library, whose users would get it too.)
//!
//! The standard library gives each thread a second stack, on which a handler of `SIGSEGV`
//! and `SIGBUS` says that the first one has overflowed. That doubles the mappings that a
//! thread takes, of which the kernel allows 65,530; and if the second stack cannot be made,
//! the process ends, although the thread that wanted to start it could have waited. Without
//! such a handler an overflow still ends the process: each stack has a guard page.
//!
//! The library installs no handler for a signal that is ignored when it begins.

use nix::libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, sighandler_t, signal};

#[used]
// SAFETY: the C library calls what is in this section, once and before any thread is
// started. It may pass arguments, which a C function need not take.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = ignore_faults;

extern "C" fn ignore_faults() {
    set(SIG_IGN);
}

/// Has faults end the process again, as they should. To be called first of all.
pub fn expect_faults() {
    set(SIG_DFL);
}

fn set(effect: sighandler_t) {
    for number in [SIGSEGV, SIGBUS] {
        // SAFETY: neither effect is a function that would be called.
        unsafe { signal(number, effect) };
    }
}
