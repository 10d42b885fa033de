//! The table of the attacks. Each is a function that does to a server what no
//! client should do.
//!
//! An attack leaves nothing behind: its connections are closed when it returns,
//! and its jobs and tubes are gone. So the server has no reason to hold
//! anything of it any longer. An attack returns a few words on what came of it.
//! An error means that the server did what it must not do.

use super::target::Target;
use super::{crowds, hoards, rude};
use std::io;

/// One way of being a bad client.
pub struct Attack {
    /// Its name in the table, and for `--only`.
    pub name: &'static str,
    /// What the attack does, in words.
    pub about: &'static str,
    /// Options that the server gets for this attack.
    pub options: &'static str,
    /// Options that only our server has, and that this attack is about.
    pub our_options: &'static str,
    /// A command under which the server runs, to limit it.
    pub under: &'static str,
    /// By how many MB the server may grow at the most during the small attack.
    pub growth: u64,
    /// Attacks.
    pub run: fn(&Target) -> io::Result<String>,
}

const PLAIN: Attack = Attack {
    name: "",
    about: "",
    options: "",
    our_options: "",
    under: "",
    growth: 16,
    run: |_| Ok(String::new()),
};

/// The systemd unit starts the server in the same way: the C library then keeps
/// no freed pieces of memory for each thread.
const NO_PIECES: &str = "env GLIBC_TUNABLES=glibc.malloc.tcache_count=0";

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "trickled-lines",
        about: "300 clients send a line in 3 seconds and half of one, where one is idle",
        our_options: "--idle-timeout 1",
        run: rude::trickled_lines,
        ..PLAIN
    },
    Attack {
        name: "slow-bodies",
        about: "300 clients send bodies of 60 kB, 100 bytes at a time",
        growth: 40,
        run: rude::slow_bodies,
        ..PLAIN
    },
    Attack {
        name: "unread-jobs",
        about: "100 clients peek at 100 bodies of 60 kB each, which are then deleted, unread",
        growth: 60,
        run: hoards::unread_jobs,
        ..PLAIN
    },
    Attack {
        name: "unread-jobs-bounded",
        about: "the same, where jobs may take 20 MB",
        our_options: "--max-memory 20M",
        growth: 60,
        run: hoards::unread_jobs,
        ..PLAIN
    },
    Attack {
        name: "silent-after-all-sizes",
        about: "500 clients put and delete jobs of all sizes once, and then nothing",
        under: NO_PIECES,
        run: hoards::silent_after_all_sizes,
        ..PLAIN
    },
    Attack {
        name: "resets",
        about: "a reset after each byte of put and of reserve, again and again",
        run: rude::resets,
        ..PLAIN
    },
    Attack {
        name: "connections",
        about: "20,000 connections opened and dropped, by 8 clients",
        run: crowds::connections,
        ..PLAIN
    },
    Attack {
        name: "tubes",
        about: "9,900 tubes, listed, and gone again",
        growth: 40,
        run: hoards::tubes,
        ..PLAIN
    },
    Attack {
        name: "watched",
        about: "one client watches 9,000 tubes, and tries to reserve 100 times",
        growth: 40,
        run: hoards::watched,
        ..PLAIN
    },
    Attack {
        name: "kick-and-delete",
        about: "a million jobs kicked at once, then deleted in long pipelines",
        growth: 40,
        run: hoards::kick_and_delete,
        ..PLAIN
    },
    Attack {
        name: "list-jobs",
        about: "a million jobs are listed, a thousand at a time",
        growth: 40,
        run: hoards::list_jobs,
        ..PLAIN
    },
    Attack {
        name: "close-with-reserved",
        about: "a client that has reserved a million jobs goes",
        growth: 40,
        run: hoards::close_with_reserved,
        ..PLAIN
    },
    Attack {
        name: "time-outs",
        about: "half a million reservations expire within the second or two it took to make them",
        growth: 40,
        run: hoards::time_outs,
        ..PLAIN
    },
    Attack {
        name: "pipelined-cycles",
        about: "50 clients pipeline put and reserve, 200 at a time, and delete",
        run: crowds::pipelined_cycles,
        ..PLAIN
    },
];
