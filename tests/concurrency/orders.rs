//! The server's own threads under shuttle, which decides at each step of a lock,
//! a condition variable or an atomic number which thread goes on: in random
//! orders, and in orders with few switches at odd places. A lost wake-up is a
//! deadlock, which it notices.
//!
//! The files are the server's and the binlog's own: only where they get their
//! primitives from, `sync`, is another one here; and the sockets and the disk
//! are lists of bytes. Shuttle knows no weaker order of memory than the
//! strictest; for what that could hide there is ThreadSanitizer
//! (`tests/laboratory/sanitize`).
//!
//! `BEANPOLE_SEARCH=20 cargo run --release` tries twenty times as many orders of
//! each scenario, and `cargo run --release stop` the scenarios with this word in
//! their name.

#[allow(dead_code, unused_imports)]
#[path = "../../src/binlog/mod.rs"]
mod binlog;
mod channel;
mod commit;
mod disk;
mod hangup;
#[path = "../laboratory/search.rs"]
#[allow(dead_code)]
mod search;
#[allow(dead_code)]
mod server;
mod serving;
mod slot;
#[allow(dead_code)]
mod stream;
#[allow(dead_code)]
mod sync;

use beanpole::{engine, log, protocol};
use binlog::SyncMode;
use std::time::Duration;

#[path = "../../src/sys/mod.rs"]
#[allow(dead_code, unused_imports)]
mod system;

/// The system, as far as these files call it.
mod sys {
    pub use crate::system::{
        allocate, forget_pages, is_shared, time_since_boot, whole_file, write_in_place,
    };

    pub fn find_room_for_threads() -> std::io::Result<()> {
        Ok(())
    }

    pub fn give_back_memory() {}
}

const SPAN: SyncMode = SyncMode::Every(Duration::from_millis(50));

fn main() {
    let orders = search::tries(20_000) as usize;
    let word = std::env::args().nth(1).unwrap_or_default();
    // What takes many steps is tried less often.
    let scenarios: &[(&str, usize, fn())] = &[
        ("the lock is had by one", 1, slot::the_lock_is_had_by_one),
        ("who waits hears the answer once", 1, || slot::answered(100)),
        ("and what had no room is not lost", 1, || slot::answered(3)),
        ("who stops waits no more", 1, slot::stopped),
        ("an owed reply goes before the next", 1, slot::owed),
        ("who commits is told, synced", 10, || {
            commit::told(SyncMode::Always)
        }),
        ("who commits is told, with a span", 10, || {
            commit::told(SPAN)
        }),
        ("who commits is told, written", 10, || {
            commit::told(SyncMode::Never)
        }),
        ("who does not wait is kept in time", 10, || {
            commit::kept_in_time(SPAN)
        }),
        ("and written soon", 10, || {
            commit::kept_in_time(SyncMode::Never)
        }),
        ("who commits is told of a failure", 10, || {
            commit::told_of_a_failure(SyncMode::Always)
        }),
        ("and with a span", 10, || commit::told_of_a_failure(SPAN)),
        (
            "each socket gets a worker",
            5,
            serving::each_socket_gets_a_worker,
        ),
        ("the next client finds what was left", 5, || {
            sync::let_time_stand_still(true);
            serving::what_a_client_held_is_free_for_the_next(10);
            sync::let_time_stand_still(false);
        }),
        ("and takes the place", 5, || {
            sync::let_time_stand_still(true);
            serving::what_a_client_held_is_free_for_the_next(1);
            sync::let_time_stand_still(false);
        }),
        ("who waits gets the job", 20, || {
            serving::who_waits_gets_the_job(None)
        }),
        ("and a log that keeps it before", 40, || {
            serving::who_waits_gets_the_job(Some(SyncMode::Always))
        }),
        ("and a log that syncs later", 40, || {
            serving::who_waits_gets_the_job(Some(SPAN))
        }),
        ("who waits gets the job of a limit", 20, || {
            serving::who_waits_gets_the_job_of_a_limit(true)
        }),
        (
            "also when its place is free because a worker leaves",
            20,
            || serving::who_waits_gets_the_job_of_a_limit(false),
        ),
        (
            "replies come in their turn",
            40,
            serving::replies_come_in_their_turn,
        ),
        ("a stop hands nothing on", 20, || {
            serving::a_stop_hands_nothing_on(None)
        }),
        ("and loses nothing that was told", 40, || {
            serving::a_stop_hands_nothing_on(Some(SyncMode::Always))
        }),
        (
            "who has lost the lock tells nothing",
            40,
            serving::who_has_lost_the_lock_tells_nothing,
        ),
    ];
    for (name, share, scenario) in scenarios {
        if name.contains(&word) {
            let orders = orders / share;
            shuttle::check_random(scenario, orders);
            shuttle::check_pct(scenario, orders, 3);
            println!("{name}: {} orders", 2 * orders);
        }
    }
}
