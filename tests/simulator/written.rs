//! Written histories: what random ones hardly ever come to. Each is tried in many
//! orders of its threads, and the judge looks at all of them as it does at any
//! other.

use crate::binlog::SyncMode;
use crate::simulator::disk::Survival;
use crate::simulator::plan::{Blow, Client, Deed, End, Life, Plan};
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
    let second = "put 0 0 60 6\r\nsecond";
    let large = &format!("put 0 0 60 900\r\n{}", "x".repeat(900));
    let given_first = "RESERVED 1 5\r\nfirst\r\n";
    vec![
        // One works on a job and asks for another, one waits, and one puts a job
        // while the server ends: nobody is given a job that they could not delete any more.
        (
            "a stop hands nothing on",
            plan(vec![
                vec![
                    says(&[first, "reserve"]),
                    Deed::Hears,
                    says(&["reserve"]),
                    Deed::Hears,
                ],
                vec![Deed::Awaits(0, 2), says(&["reserve"]), Deed::Hears],
                vec![Deed::Awaits(0, 2), says(&[second]), Deed::Hears],
                vec![Deed::Awaits(0, 2), Deed::Strikes(Blow::Stops)],
            ]),
        ),
        // There is one place, and so one worker.
        (
            "the next one takes the place, and what was left",
            Plan {
                max_connections: 1,
                ..plan(vec![vec![
                    says(&[first, "reserve"]),
                    told(&["INSERTED 1", given_first]),
                    Deed::Returns,
                    Deed::Returns,
                    says(&["peek-ready"]),
                    told(&["FOUND 1 5\r\nfirst\r\n"]),
                    Deed::Returns,
                    says(&["list-tube-used", "quit"]),
                    told(&["USING default"]),
                ]])
            },
        ),
        // Of two jobs with a limit of one at a time, one is reserved. The place is
        // free by a delete, and then because a worker leaves.
        (
            "who waits gets the job of a limit",
            plan(vec![
                vec![
                    says(&["put 0 0 60 5 con:a\r\nfirst"]),
                    says(&["use other", "put 0 0 60 6 con:a\r\nsecond"]),
                    Deed::Hears,
                ],
                vec![
                    Deed::Awaits(0, 3),
                    says(&["reserve"]),
                    told(&[given_first]),
                    says(&["delete 1"]),
                    told(&["DELETED"]),
                ],
                waits_for_the_other(),
                waits_for_the_other(),
            ]),
        ),
        // While another thread sends a worker's reply, that worker has the next one
        // ready.
        (
            "replies come in their turn",
            plan(vec![
                vec![says(&[first]), Deed::Hears],
                vec![
                    says(&[first]),
                    says(&[second]),
                    says(&[first]),
                    says(&["list-tube-used"]),
                    Deed::Hears,
                ],
            ]),
        ),
        // The thread that answers leaves the rest to the worker.
        (
            "of an answer without room the rest comes later",
            Plan {
                room: 3,
                ..plan(vec![vec![
                    says(&["reserve-with-timeout 1", "list-tube-used"]),
                    told(&["TIMED_OUT", "USING default"]),
                ]])
            },
        ),
        // No reply depends on the change that is made when a job's time is over.
        (
            "what nobody waits for is kept in time",
            Plan {
                sync: SyncMode::Every(Duration::from_millis(50)),
                lives: vec![Life {
                    end: End::Later { is_killed: true },
                    ..life(vec![
                        vec![
                            says(&["put 0 0 1 5\r\nshort", "reserve"]),
                            Deed::Hears,
                            Deed::Waits(1100),
                        ],
                        vec![says(&[first])],
                    ])
                }],
                ..plan(Vec::new())
            },
        ),
        // A job's time is over when the committer ends a round.
        (
            "what comes while the committer works is kept in time, too",
            while_the_committer_works(),
        ),
        // The committer syncs three milliseconds after the first put.
        (
            "what is written beside a sync is synced in time, too",
            beside_a_sync(),
        ),
        // Of those who wait, some may have been told when it happens.
        (
            "who is told finds the job after a power cut",
            with_cut(putting_at_once(Blow::Kills)),
        ),
        (
            "all who wait are told of a failure, once",
            with_cut(putting_at_once(Blow::Meets(Kind::Sync, FAILS))),
        ),
        // A server is killed when a segment has its name and that name is not synced
        // yet. The next server has no room for a spare, so it need not
        // sync a name of its own before it tells what is in that segment.
        (
            "what is told is in a file whose name is synced",
            Plan {
                max_job_size: 1000,
                lives: vec![
                    life(vec![vec![
                        says(&[large, large, large]),
                        Deed::Waits(1000),
                        Deed::Strikes(Blow::Meets(Kind::SyncNames, Fault::Kills)),
                        says(&[large, large]),
                        Deed::Hears,
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
            "who syncs beside a sync that fails believes nothing",
            Plan {
                sync: SyncMode::Every(Duration::from_millis(4)),
                max_job_size: 1000,
                lives: vec![
                    Life {
                        cut: Some(Survival::Nothing),
                        ..life(vec![vec![
                            says(&[large, large, large]),
                            Deed::Hears,
                            Deed::Waits(3),
                            Deed::Strikes(Blow::Meets(Kind::Sync, FAILS)),
                            says(&[large, large]),
                            Deed::Hears,
                        ]])
                    };
                    4
                ],
                ..plan(Vec::new())
            },
        ),
        ("on a full disk all but puts goes on", on_a_full_disk()),
        (
            "what a start has dropped does not come again",
            what_was_dropped(first),
        ),
        (
            "what a start has dropped does not come behind what it writes",
            what_was_dropped_behind(first),
        ),
        // One reserves, one waits for a moment, one puts, when another machine
        // takes the lock.
        (
            "who has lost the lock tells nothing",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![
                        says(&[first]),
                        Deed::Hears,
                        says(&["use other", second, "stats-job 1"]),
                        Deed::Hears,
                    ],
                    vec![Deed::Awaits(0, 2), says(&["reserve"]), Deed::Hears],
                    vec![
                        says(&["watch other", "ignore default", "reserve-with-timeout 1"]),
                        Deed::Hears,
                    ],
                    vec![
                        Deed::Awaits(0, 2),
                        Deed::Strikes(Blow::StandsStill { is_replaced: true }),
                    ],
                ])
            },
        ),
        // Those who write look before they tell, whatever the lease says.
        (
            "what is told is what the next server finds",
            Plan {
                is_shared: true,
                ..putting_at_once(Blow::LosesLock)
            },
        ),
        // The job that one puts another one keeps, and the one who waits is told of
        // it after that.
        (
            "who finds it kept may have lost the lock since",
            Plan {
                is_shared: true,
                ..plan(vec![
                    vec![says(&["reserve"]), Deed::Hears],
                    putting_and_striking(),
                    putting_and_striking(),
                ])
            },
        ),
        // The thread that has the answer sends a part of it, and then the lock is
        // gone.
        (
            "of an answer without room nothing comes without the lock",
            Plan {
                is_shared: true,
                room: 3,
                ..plan(vec![
                    vec![
                        says(&["reserve"]),
                        Deed::Awaits(1, 3),
                        Deed::Strikes(Blow::StandsStill { is_replaced: true }),
                        Deed::Hears,
                    ],
                    vec![Deed::Awaits(0, 1), says(&[first]), Deed::Hears],
                ])
            },
        ),
        (
            "who stood still and has the lock goes on",
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
                        Deed::Awaits(0, 1),
                        Deed::Strikes(Blow::StandsStill { is_replaced: false }),
                        Deed::Awaits(0, 3),
                        Deed::Strikes(Blow::StandsStill { is_replaced: false }),
                    ],
                ])
            },
        ),
    ]
}

/// Waits in the other tube, and leaves when it has got the job.
fn waits_for_the_other() -> Vec<Deed> {
    vec![
        Deed::Awaits(1, 3),
        says(&["watch other", "ignore default", "reserve"]),
        told(&["WATCHING 2", "WATCHING 1", "RESERVED 2 6\r\nsecond\r\n"]),
    ]
}

/// A job's time is over, a worker gets it again, and somebody else puts one, all
/// about when the committer's round ends.
fn while_the_committer_works() -> Plan {
    lives_synced_soon(vec![
        vec![
            says(&["put 0 0 1 5\r\nshort", "reserve"]),
            Deed::Hears,
            Deed::Waits(1100),
        ],
        vec![Deed::Awaits(0, 2), says(&["reserve"]), Deed::Hears],
        vec![
            Deed::Awaits(0, 2),
            Deed::Waits(997),
            says(&["use other", "put 0 0 60 6\r\nsecond"]),
        ],
    ])
}

/// What is written while a sync runs is not among what it keeps.
fn beside_a_sync() -> Plan {
    let put = "put 0 0 60 5\r\nagain";
    let mut plan = lives_synced_soon(vec![
        vec![says(&[put]), Deed::Hears],
        vec![
            Deed::Awaits(0, 2),
            Deed::Waits(3),
            says(&[put]),
            Deed::Hears,
        ],
    ]);
    for life in &mut plan.lives {
        life.cut = Some(Survival::Nothing);
    }
    plan
}

/// Some lives of these clients, with a sync within four milliseconds. They end a
/// while after the clients have left.
fn lives_synced_soon(clients: Vec<Vec<Deed>>) -> Plan {
    let one = Life {
        end: End::Later { is_killed: true },
        ..life(clients)
    };
    Plan {
        sync: SyncMode::Every(Duration::from_millis(4)),
        lives: vec![one; 9],
        ..plan(Vec::new())
    }
}

/// Of some puts that were not synced, a power cut leaves a part.
fn unsynced(puts: &[&str]) -> Life {
    let each = |put| [says(&[put]), Deed::Hears];
    let mut does: Vec<_> = puts.iter().copied().flat_map(each).collect();
    does.push(Deed::Strikes(Blow::Kills));
    Life {
        cut: Some(Survival::Something),
        ..life(vec![does])
    }
}

/// A power cut leaves later puts without the first. A start writes zeros over
/// these, and a job as long as the first before it is killed. If the zeros are not
/// on the disk, the later ones follow on that job after another power cut.
fn what_was_dropped_behind(put: &str) -> Plan {
    Plan {
        sync: SyncMode::Every(Duration::from_millis(50)),
        lives: vec![unsynced(&[put; 3]), unsynced(&[put])],
        ..plan(Vec::new())
    }
}

/// A power cut leaves later puts without the first. A start writes zeros over
/// these, and that is not synced: the next start sees the zeros only in the cache.
fn what_was_dropped(put: &str) -> Plan {
    let fails_at = |operation| Life {
        faults: vec![(operation, Kind::Sync, FAILS)],
        ..life(Vec::new())
    };
    let again = Life {
        end: End::Later { is_killed: true },
        cut: Some(Survival::Nothing),
        ..life(vec![vec![says(&[put]), Deed::Hears]])
    };
    // One of these starts fails when it has written the zeros.
    let starts = (16..24).map(fails_at);
    Plan {
        sync: SyncMode::Every(Duration::from_millis(50)),
        lives: [unsynced(&[put; 3])]
            .into_iter()
            .chain(starts)
            .chain([again])
            .collect(),
        ..plan(Vec::new())
    }
}

/// Each job is longer than half of a segment.
fn on_a_full_disk() -> Plan {
    let long: &str = &format!("put 0 0 60 2500\r\n{}", "x".repeat(2500));
    let change = ["reserve-job 1", "release 1 4000000000 4000000000"];
    let mut does = vec![
        says(&[long]),
        Deed::Hears,
        Deed::Waits(1000),
        Deed::Strikes(Blow::Meets(Kind::Any, Fault::Fills(0))),
        says(&[long; 4]),
        Deed::Hears,
    ];
    for _ in 0..3 {
        does.extend([says(&change.repeat(60)), Deed::Hears]);
    }
    Plan {
        max_job_size: 2500,
        ..plan(vec![does])
    }
}

/// Puts a job, and when that is told, another machine has the lock.
fn putting_and_striking() -> Vec<Deed> {
    vec![
        Deed::Awaits(0, 1),
        says(&["put 0 0 60 5\r\nagain"]),
        Deed::Hears,
        Deed::Strikes(Blow::StandsStill { is_replaced: true }),
    ]
}

/// Three put two jobs each when it happens.
fn putting_at_once(blow: Blow) -> Plan {
    let put = || says(&["put 0 0 60 5\r\nagain"]);
    let putting = || vec![put(), Deed::Hears, put(), Deed::Hears];
    let striking = vec![Deed::Awaits(0, 1), Deed::Strikes(blow)];
    plan(vec![putting(), putting(), putting(), striking])
}

fn with_cut(mut plan: Plan) -> Plan {
    plan.lives[0].cut = Some(Survival::Nothing);
    plan
}

/// One life with these clients, without faults.
fn plan(clients: Vec<Vec<Deed>>) -> Plan {
    Plan {
        sync: SyncMode::Always,
        is_shared: false,
        segment_size: 4096,
        max_job_size: 100,
        max_memory: None,
        max_connections: 10,
        idle_timeout: None,
        room: 10_000,
        lives: vec![life(clients)],
    }
}

fn life(clients: Vec<Vec<Deed>>) -> Life {
    Life {
        clients: clients.into_iter().map(|does| Client { does }).collect(),
        faults: Vec::new(),
        blow: None,
        end: End::Done,
        cut: None,
        jump: 0,
    }
}

fn says(commands: &[&str]) -> Deed {
    let whole = |command: &&str| format!("{command}\r\n");
    Deed::Says(commands.iter().map(whole).collect())
}

fn told(replies: &[&str]) -> Deed {
    let whole = |reply: &&str| format!("{}\r\n", reply.trim_end());
    Deed::IsTold(replies.iter().map(whole).collect())
}
