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

/// No client does so much before it disconnects.
const HAS_LEFT: usize = 100;

/// The names of the histories, and what happens in them.
pub fn all() -> Vec<(&'static str, Plan)> {
    let first = "put 0 0 60 5\r\nfirst";
    let second = "put 0 0 60 6\r\nsecond";
    let large = &format!("put 0 0 60 900\r\n{}", "x".repeat(900));
    let given_first = "RESERVED 1 5\r\nfirst\r\n";
    vec![
        // One works on a job and asks for another, one waits, and one puts a job while
        // the server ends: no client gets a job that it could not delete any more.
        (
            "a server that stops gives no job to a waiting client",
            plan(vec![
                vec![asks(&[first, "reserve"]), asks(&["reserve"])],
                vec![Action::Awaits(0, 1), asks(&["reserve"])],
                vec![Action::Awaits(0, 1), asks(&[second])],
                vec![Action::Awaits(0, 1), Action::Causes(Incident::Stops)],
            ]),
        ),
        // One connection is allowed, so there is one worker.
        (
            "a closed connection makes room for the next client, which finds its jobs ready",
            Plan {
                max_connections: 1,
                ..plan(vec![vec![
                    says(&[first, "reserve"]),
                    told(&["INSERTED 1", given_first]),
                    Action::Reconnects,
                    Action::Reconnects,
                    says(&["peek-ready"]),
                    told(&["FOUND 1 5\r\nfirst\r\n"]),
                    Action::Reconnects,
                    says(&["list-tube-used", "quit"]),
                    told(&["USING default"]),
                ]])
            },
        ),
        // Of two jobs with a limit of one at a time, one is reserved. The limit has room
        // again after a delete, and then because a worker disconnects.
        (
            "a waiting client gets a job when the concurrency limit has room again",
            plan(vec![
                vec![
                    says(&["put 0 0 60 5 con:a\r\nfirst"]),
                    asks(&["use other", "put 0 0 60 6 con:a\r\nsecond"]),
                ],
                vec![
                    Action::Awaits(0, 2),
                    says(&["reserve"]),
                    told(&[given_first]),
                    says(&["delete 1"]),
                    told(&["DELETED"]),
                ],
                waits_for_the_other(),
                waits_for_the_other(),
            ]),
        ),
        // The first one asks and closes at once: it waits for none that came after it. The
        // process stalls before the last one asks: that counts as time that it waited.
        (
            "who is there is told when those have left that had closed before",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![
                        asks(&["list-tube-used"]),
                        Action::Awaits(1, HAS_LEFT),
                        says(&["list-tubes"]),
                    ],
                    vec![Action::Awaits(0, 1), asks(&[first, "reserve"])],
                    vec![Action::Awaits(1, HAS_LEFT), asks(&["stats-tube default"])],
                    vec![
                        Action::Awaits(1, HAS_LEFT),
                        Action::Causes(Incident::Stalls { is_replaced: false }),
                        asks(&["peek-ready"]),
                    ],
                ])
            },
        ),
        // While another thread sends a worker's reply, that worker has the next one
        // ready.
        (
            "replies are sent in the order of the commands",
            plan(vec![
                vec![asks(&[first])],
                vec![
                    says(&[first]),
                    says(&[second]),
                    says(&[first]),
                    asks(&["list-tube-used"]),
                ],
            ]),
        ),
        // The thread that answers leaves the rest to the worker.
        (
            "an answer that was sent in part is completed",
            Plan {
                room: 3,
                ..plan(vec![vec![
                    says(&["reserve-with-timeout 1", "list-tube-used"]),
                    told(&["TIMED_OUT", "USING default"]),
                ]])
            },
        ),
        // The committer syncs three milliseconds after the first put.
        (
            "a record written during a sync is synced in time",
            beside_a_sync(),
        ),
        // A server is killed when a segment has its name and that name is not synced
        // yet. The next server has no room for a prepared segment, so it need not
        // sync a name of its own before it sends what is in that segment.
        (
            "a job is acknowledged only when the name of its segment is durable",
            Plan {
                max_job_size: 1000,
                lives: vec![
                    life(vec![vec![
                        says(&[large, large, large]),
                        Action::Waits(1000),
                        Action::Causes(Incident::Disk(Kind::SyncNames, Fault::Kills)),
                        asks(&[large, large]),
                    ]]),
                    Life {
                        faults: vec![(1, Kind::Any, Fault::Fills(0))],
                        end: End::Later { is_killed: true },
                        cut: Some(Survival::Nothing),
                        ..life(vec![vec![says(&[first]), told(&["INSERTED 5"])]])
                    },
                ],
                ..plan(Vec::new())
            },
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
        // A reply that rests on no change needs a check of its own.
        (
            "a server that stalls during a check of the lock checks again",
            Plan {
                is_shared: true,
                ..plan(vec![vec![
                    asks(&[first]),
                    Action::Waits(60),
                    Action::Causes(Incident::StallsAtCheck),
                    asks(&["peek-ready"]),
                ]])
            },
        ),
        (
            "a server that stalls during a slow sync answers after that",
            stalling_during_a_sync(),
        ),
        // One reserves, one waits for a moment, one puts, when another machine
        // takes the lock.
        (
            "a server that has lost its lease sends nothing",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![asks(&[first]), asks(&["use other", second, "stats-job 1"])],
                    vec![Action::Awaits(0, 1), asks(&["reserve"])],
                    vec![asks(&[
                        "watch other",
                        "ignore default",
                        "reserve-with-timeout 1",
                    ])],
                    vec![
                        Action::Awaits(0, 1),
                        Action::Causes(Incident::Stalls { is_replaced: true }),
                    ],
                ])
            },
        ),
        // A thread that writes checks the lock before it acknowledges anything, whatever
        // the lease says.
        (
            "the next server finds all that was acknowledged before it took over",
            Plan {
                is_shared: true,
                ..putting_at_once(Incident::LosesLock)
            },
        ),
        // One client puts a job, another one's commit makes it durable, and only then is
        // it sent to the client that waits.
        (
            "the lease is checked after the commit and before the reply",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![says(&["reserve"]), Action::Reads],
                    putting_and_stalling(),
                    putting_and_stalling(),
                ])
            },
        ),
        // The thread that has the answer sends a part of it, and then the lock is lost.
        (
            "the rest of an answer is not sent after the lease is lost",
            Plan {
                is_shared: true,
                room: 3,
                ..plan(vec![
                    vec![
                        says(&["reserve"]),
                        Action::Awaits(1, 2),
                        Action::Causes(Incident::Stalls { is_replaced: true }),
                        Action::Reads,
                    ],
                    vec![Action::Awaits(0, 1), asks(&[first])],
                ])
            },
        ),
        (
            "a server that stalled and kept its lease continues",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![
                        says(&[first]),
                        told(&["INSERTED 1"]),
                        says(&["reserve"]),
                        told(&[given_first]),
                        says(&["delete 1"]),
                        told(&["DELETED"]),
                    ],
                    vec![
                        Action::Awaits(0, 1),
                        Action::Causes(Incident::Stalls { is_replaced: false }),
                        Action::Awaits(0, 3),
                        Action::Causes(Incident::Stalls { is_replaced: false }),
                    ],
                ])
            },
        ),
    ]
}

/// Waits in the other tube, and disconnects when it has got the job.
fn waits_for_the_other() -> Vec<Action> {
    vec![
        Action::Awaits(1, 3),
        says(&["watch other", "ignore default", "reserve"]),
        told(&["WATCHING 2", "WATCHING 1", "RESERVED 2 6\r\nsecond\r\n"]),
    ]
}

/// A record that is written while a sync runs is not covered by it. Each life ends a
/// while after the clients have disconnected.
fn beside_a_sync() -> Plan {
    let put = "put 0 0 60 5\r\nagain";
    let one = Life {
        end: End::Later { is_killed: true },
        cut: Some(Survival::Nothing),
        ..life(vec![
            vec![asks(&[put])],
            vec![Action::Awaits(0, 1), Action::Waits(3), asks(&[put])],
        ])
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
                Action::Awaits(1, 2),
            ],
            vec![
                Action::Awaits(0, 5),
                Action::Exchanges(pauses.clone().take(4).collect()),
                Action::Exchanges(pauses.skip(4).collect()),
            ],
        ])
    }
}

/// Each life stalls at another step of its first puts.
fn stalling_during_a_sync() -> Plan {
    let one = |step| Life {
        incident: Some((step, Incident::Stalls { is_replaced: false })),
        ..life(vec![vec![asks(&["put 0 0 60 5\r\nagain"])]; 3])
    };
    Plan {
        sync_takes: 2_000_000,
        lives: (200..400).step_by(10).map(one).collect(),
        ..plan(Vec::new())
    }
}

/// Puts a job, and when that is acknowledged, another machine has the lock.
fn putting_and_stalling() -> Vec<Action> {
    vec![
        Action::Awaits(0, 1),
        asks(&["put 0 0 60 5\r\nagain"]),
        Action::Causes(Incident::Stalls { is_replaced: true }),
    ]
}

/// Three clients put two jobs each when it happens.
fn putting_at_once(incident: Incident) -> Plan {
    let put = ["put 0 0 60 5\r\nagain"];
    let putting = || vec![says(&put), Action::Reads, asks(&put)];
    let disturbing = vec![Action::Awaits(0, 1), Action::Causes(incident)];
    plan(vec![putting(), putting(), putting(), disturbing])
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
    }
}

fn life(clients: Vec<Vec<Action>>) -> Life {
    Life {
        clients: clients.into_iter().map(|does| Client { does }).collect(),
        ..Life::default()
    }
}

fn says(commands: &[&str]) -> Action {
    Action::Sends(whole(commands))
}

fn asks(commands: &[&str]) -> Action {
    Action::Exchanges(whole(commands))
}

fn whole(commands: &[&str]) -> Vec<String> {
    let whole = |command: &&str| format!("{command}\r\n");
    commands.iter().map(whole).collect()
}

fn told(replies: &[&str]) -> Action {
    let whole = |reply: &&str| format!("{}\r\n", reply.trim_end());
    Action::Expects(replies.iter().map(whole).collect())
}
