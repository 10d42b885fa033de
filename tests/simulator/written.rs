//! Written histories: situations that random ones hardly ever reach. Each is tried in
//! many orders of its threads, and the judge checks them as it does any other.

use crate::binlog::SyncMode;
use crate::simulator::disk::Survival;
use crate::simulator::plan::{Action, Client, End, Incident, Life, Plan};
use crate::simulator::world::{Fault, Kind};
use std::time::Duration;

/// An error of the device.
const FAILS: Fault = Fault::Fails {
    is_full: false,
    for_good: false,
};

/// The names of the histories, and what happens in them.
pub fn all() -> Vec<(&'static str, Plan)> {
    let first = "put 0 0 60 5\r\nfirst";
    let large = &format!("put 0 0 60 900\r\n{}", "x".repeat(900));
    vec![
        (
            "a server that stops gives no job to a waiting client",
            stopping_while_clients_wait(),
        ),
        // The committer syncs three milliseconds after the first put.
        (
            "a record written during a sync is synced in time",
            beside_a_sync(),
        ),
        (
            "a sync that runs while another one fails acknowledges nothing",
            Plan {
                sync: SyncMode::Every(Duration::from_millis(4)),
                max_job_size: 1000,
                lives: vec![
                    Life {
                        cut: Some(Survival::Nothing),
                        ..life(vec![vec![
                            asks(&[large, large, large]),
                            Action::Waits(3),
                            Action::Causes(Incident::Disk(Kind::Sync, FAILS)),
                            asks(&[large, large]),
                        ]])
                    };
                    4
                ],
                ..plan(Vec::new())
            },
        ),
        ("a full disk refuses nothing but puts", on_a_full_disk()),
        (
            "a pause for which the disk has no room finds no tube that has gone meanwhile",
            pausing_tubes_that_go(),
        ),
        (
            "records that recovery dropped neither return nor follow new ones",
            what_was_dropped(first),
        ),
    ]
}

/// Each life stops at another step. Two clients wait for the job that a third one puts: they
/// could not delete it any more.
fn stopping_while_clients_wait() -> Plan {
    let one = |step: u64| {
        let [uses, watches] = ["use", "watch"].map(|word| format!("{word} t{step}"));
        let waits = vec![asks(&[&watches, "ignore default", "reserve"])];
        let puts = vec![asks(&[&uses, "put 0 0 60 5\r\nfirst"])];
        Life {
            end: End::Stopped(step),
            ..life(vec![waits.clone(), waits, puts])
        }
    };
    Plan {
        lives: (150..450).step_by(15).map(one).collect(),
        ..plan(Vec::new())
    }
}

/// A record that is written while a sync runs is not covered by it. Each life ends a
/// while after the clients have disconnected.
fn beside_a_sync() -> Plan {
    let put = "put 0 0 60 5\r\nagain";
    let one = Life {
        end: End::Later { is_killed: true },
        cut: Some(Survival::Nothing),
        ..life(vec![vec![asks(&[put]), Action::Waits(3), asks(&[put])]; 3])
    };
    Plan {
        sync: SyncMode::Every(Duration::from_millis(4)),
        lives: vec![one; 9],
        ..plan(Vec::new())
    }
}

/// After a power cut there are later puts without the first, and a start overwrites
/// these with zeros.
/// If its sync fails, the next start sees the zeros only in the cache. If the zeros are
/// not on the disk, the later ones follow a job that is as long as the first.
fn what_was_dropped(put: &str) -> Plan {
    let unsynced = |puts| Life {
        cut: Some(Survival::Something),
        ..life(vec![
            [
                vec![asks(&[put]); puts],
                vec![Action::Causes(Incident::Kills)],
            ]
            .concat(),
        ])
    };
    let fails_at = |operation| Life {
        faults: vec![(operation, Kind::Sync, FAILS)],
        ..life(Vec::new())
    };
    let again = Life {
        end: End::Later { is_killed: true },
        cut: Some(Survival::Nothing),
        ..life(vec![vec![asks(&[put])]])
    };
    // One of these starts fails when it has written the zeros.
    let starts = (10..26).flat_map(|at| [unsynced(3), fails_at(at), again.clone(), unsynced(1)]);
    Plan {
        sync: SyncMode::Every(Duration::from_millis(50)),
        lives: starts.collect(),
        ..plan(Vec::new())
    }
}

/// Each job is longer than half of a segment.
fn on_a_full_disk() -> Plan {
    let long: &str = &format!("put 0 0 60 2500\r\n{}", "x".repeat(2500));
    let change = ["reserve-job 1", "release 1 4000000000 4000000000"];
    let mut does = vec![
        asks(&[long]),
        Action::Waits(1000),
        Action::Causes(Incident::Disk(Kind::Any, Fault::Fills(0))),
        asks(&[long; 4]),
    ];
    does.extend((0..3).map(|_| asks(&change.repeat(60))));
    Plan {
        max_job_size: 2500,
        ..plan(vec![does])
    }
}

/// One client keeps tubes alive and leaves, while another one pauses them on a full disk.
/// Their names are long, so there is room for a few pauses only.
fn pausing_tubes_that_go() -> Plan {
    let long: &str = &format!("put 0 0 60 2500\r\n{}", "x".repeat(2500));
    let tubes = || (0..9).map(|number| "x".repeat(199) + &number.to_string());
    let watches = tubes().map(|tube| format!("watch {tube}\r\n"));
    let pauses = tubes().map(|tube| format!("pause-tube {tube} 9\r\n"));
    Plan {
        max_job_size: 2500,
        ..plan(vec![
            vec![
                Action::Exchanges(watches.collect()),
                asks(&[long]),
                Action::Waits(1000),
                Action::Causes(Incident::Disk(Kind::Any, Fault::Fills(0))),
                asks(&[long; 4]),
            ],
            vec![
                Action::Waits(1000),
                Action::Exchanges(pauses.clone().take(4).collect()),
                Action::Exchanges(pauses.skip(4).collect()),
            ],
        ])
    }
}

/// One life with these clients, without faults.
fn plan(clients: Vec<Vec<Action>>) -> Plan {
    Plan {
        sync: SyncMode::Always,
        is_shared: false,
        segment_size: 4096,
        max_job_size: 100,
        max_memory: None,
        max_jobs_per_tube: None,
        max_connections: 10,
        sync_takes: 0,
        idle_timeout: None,
        room: 10_000,
        lives: vec![life(clients)],
        lacks_calls: false,
    }
}

fn life(clients: Vec<Vec<Action>>) -> Life {
    Life {
        clients: clients.into_iter().map(|does| Client { does }).collect(),
        ..Life::default()
    }
}

fn asks(commands: &[&str]) -> Action {
    let whole = |command: &&str| format!("{command}\r\n");
    Action::Exchanges(commands.iter().map(whole).collect())
}
