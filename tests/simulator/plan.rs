//! What happens in a history, as a seed decides it; and how a history that
//! fails is made as short as it can be.

use crate::binlog::{SyncMode, segment_len_for};
use crate::simulator::disk::{Random, Survival};
use crate::simulator::world::{Fault, Kind};
use std::num::NonZeroUsize;
use std::time::Duration;

/// A history.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub sync: SyncMode,
    /// Whether other machines can use the directory.
    pub is_shared: bool,
    /// How long each sync of a file takes, in nanoseconds.
    pub sync_takes: u64,
    pub segment_size: u64,
    pub max_job_size: u32,
    pub max_memory: Option<u64>,
    pub max_jobs_per_tube: Option<NonZeroUsize>,
    pub max_connections: usize,
    pub idle_timeout: Option<Duration>,
    /// How many bytes a socket takes that nobody reads.
    pub room: usize,
    pub lives: Vec<Life>,
    /// The kernel is one that lacks calls.
    pub lacks_calls: bool,
}

/// The life of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Life {
    pub clients: Vec<Client>,
    /// What happens at which operation of the disk.
    pub faults: Vec<(u64, Kind, Fault)>,
    /// What happens to it, and at which step.
    pub incident: Option<(u64, Incident)>,
    pub end: End,
    /// If the power is cut after that: what survives.
    pub cut: Option<Survival>,
    /// How many nanoseconds later the clock shows at the next start.
    pub jump: i64,
}

/// How a process ends, if nothing else ends it before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum End {
    /// In order, when all clients are done.
    #[default]
    Done,
    /// A while after that, in order or not.
    Later { is_killed: bool },
    /// In order, when all clients are done, all jobs are deleted and no key is
    /// taken any more. Nothing fails in the meantime.
    Evening,
    /// In order, at this step.
    Stopped(u64),
    /// It is killed at this step.
    Killed(u64),
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Incident {
    Kills,
    /// This fault happens at the next operation of this kind on the disk.
    Disk(Kind, Fault),
    /// All its threads stall, for longer than shared storage waits for a machine.
    /// Perhaps another machine takes the lock meanwhile.
    Stalls {
        is_replaced: bool,
    },
    /// Another machine has taken the lock.
    LosesLock,
}

/// What a client does, one action after the other; then it disconnects.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    pub does: Vec<Action>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sends these commands, in pieces of any size.
    Sends(Vec<String>),
    /// Sends this number of bytes of a command, and disconnects.
    SendsPart(String, usize),
    /// Sends these commands, and reads all replies.
    Exchanges(Vec<String>),
    /// Reads all replies.
    Reads,
    /// Does nothing for this number of milliseconds.
    Waits(u64),
    /// Sends nothing more, and reads what comes.
    HalfCloses,
    /// Disconnects, and connects again.
    Reconnects,
    /// Has this happen to the server.
    Causes(Incident),
}

/// What the clients of a history have in common.
#[derive(Clone, Copy)]
struct Habits {
    /// How long a body is at most.
    most: u32,
    are_large: bool,
    /// How many milliseconds a client is silent at most.
    silence: u64,
}

/// Some days, in milliseconds.
const DAYS: u64 = 13 * 86_400_000;

const SECOND: i64 = 1_000_000_000;

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let random = &mut Random::new(seed.wrapping_add(0x51));
        for _ in 0..4 {
            random.next();
        }
        let sync = match random.below(6) {
            0..3 => SyncMode::Always,
            3..5 => SyncMode::Every(Duration::from_millis(*random.choose(&[50, 50, 1]))),
            _ => SyncMode::Never,
        };
        let max_job_size = *random.choose(&[20, 900, 900, 2500, 6000]);
        let idle_timeout = random.one_in(8).then_some(Duration::from_secs(2));
        let is_shared = random.one_in(5);
        let habits = Habits {
            most: max_job_size,
            are_large: random.one_in(2),
            // A server with a timeout wakes again and again, and so does one that
            // checks its lock: a long silence would have too many steps.
            silence: if idle_timeout.is_some() || is_shared {
                20_000
            } else {
                DAYS
            },
        };
        let mut plan = Plan {
            sync,
            is_shared,
            // (Otherwise a sync may be due in a millisecond.)
            sync_takes: match sync {
                SyncMode::Always => *random.choose(&[0, 0, 300_000, 2_000_000]),
                SyncMode::Every(_) | SyncMode::Never => 0,
            },
            // As the server's options ask for it.
            segment_size: (*random.choose(&[4096, 4096, 4096, 8192, 16384]))
                .max(segment_len_for(max_job_size as usize + 2)),
            max_job_size,
            max_memory: random.one_in(8).then(|| 500 + random.below(8000)),
            max_jobs_per_tube: random
                .one_in(8)
                .then_some(NonZeroUsize::MIN.saturating_add(3)),
            max_connections: *random.choose(&[2, 10, 10, 10]),
            idle_timeout,
            room: *random.choose(&[40, 300, 5000, 100_000]),
            lives: {
                let count = *random.choose(&[1, 1, 2, 2, 3, 4]);
                let incident = |random: &mut Random| incident(random).filter(|_| is_shared);
                let life = |random: &mut Random| Life {
                    incident: incident(random),
                    ..life(habits, random)
                };
                (0..count).map(|_| life(random)).collect()
            },
            lacks_calls: random.one_in(4),
        };
        // Such a kernel cannot tell which blocks a file has after a power cut. So its log may
        // end on a full disk.
        let fills = |life: &Life| {
            let mut faults = life.faults.iter();
            faults.any(|(_, _, fault)| matches!(fault, Fault::Fills(_)))
        };
        plan.lacks_calls &= !plan.lives.iter().any(fills);
        plan
    }

    /// The same with a little less.
    pub fn smaller(&self) -> Vec<Plan> {
        let mut all = Vec::new();
        let mut try_with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = self.clone();
            change(&mut plan);
            all.push(plan);
        };
        for (at, life) in self.lives.iter().enumerate() {
            if self.lives.len() > 1 {
                try_with(&|plan| drop(plan.lives.remove(at)));
            }
            for (number, client) in life.clients.iter().enumerate() {
                try_with(&|plan| drop(plan.lives[at].clients.remove(number)));
                for action in 0..client.does.len() {
                    try_with(&|plan| drop(plan.lives[at].clients[number].does.remove(action)));
                }
            }
            for fault in 0..life.faults.len() {
                try_with(&|plan| {
                    plan.lives[at].faults.remove(fault);
                });
            }
            try_with(&|plan| {
                let life = &mut plan.lives[at];
                (life.incident, life.jump, life.end) = (None, 0, End::Done);
            });
        }
        try_with(&|plan| plan.max_jobs_per_tube = None);
        try_with(&|plan| (plan.max_memory, plan.idle_timeout, plan.room) = (None, None, 100_000));
        all.retain(|plan| plan != self);
        all
    }
}

/// What fails: any operation, more often than not.
const KINDS: [Kind; 6] = [
    Kind::Any,
    Kind::Any,
    Kind::Write,
    Kind::Sync,
    Kind::SyncNames,
    Kind::Rename,
];

fn life(habits: Habits, random: &mut Random) -> Life {
    let clients = 1 + random.below(5);
    let early = random.one_in(2);
    let when = |random: &mut Random| {
        if early {
            1 + random.below(60)
        } else {
            1 + random.below(600)
        }
    };
    let mut faults = Vec::new();
    let count = *random.choose(&[0, 0, 1, 1, 1, 2, 3]);
    for _ in 0..count {
        let fault = match random.below(10) {
            0..4 => Fault::Fails {
                is_full: random.one_in(4),
                for_good: random.one_in(4),
            },
            4..6 => Fault::Fills(*random.choose(&[0, 0, 1, 2, 5, 40])),
            6 => Fault::Drains,
            _ => Fault::Kills,
        };
        let kind = match fault {
            Fault::Fails { .. } | Fault::Kills => *random.choose(&KINDS),
            Fault::Fills(_) | Fault::Drains => Kind::Any,
        };
        faults.push((when(random), kind, fault));
    }
    faults.sort_by_key(|(at, ..)| *at);
    Life {
        clients: (0..clients).map(|_| client(habits, random)).collect(),
        faults,
        end: match random.below(12) {
            0 => End::Done,
            1 => End::Evening,
            2..4 => End::Later { is_killed: false },
            4..6 => End::Later { is_killed: true },
            6..8 => End::Stopped(20 << random.below(9)),
            _ => End::Killed(some_step(random)),
        },
        cut: match random.below(6) {
            0..3 => None,
            3 => Some(Survival::Nothing),
            _ => Some(Survival::Something),
        },
        jump: match random.below(12) {
            0 => -86_400 * SECOND,
            1 => -5 * SECOND,
            2 => 30 * 86_400 * SECOND,
            _ => random.below(60) as i64 * SECOND,
        },
        ..Life::default()
    }
}

fn some_step(random: &mut Random) -> u64 {
    (20 << random.below(9)) + random.below(500)
}

/// For storage that machines share.
fn incident(random: &mut Random) -> Option<(u64, Incident)> {
    let incident = match random.below(8) {
        0 => Incident::Stalls { is_replaced: false },
        1..3 => Incident::Stalls { is_replaced: true },
        3 => Incident::LosesLock,
        _ => return None,
    };
    Some((some_step(random), incident))
}

fn client(habits: Habits, random: &mut Random) -> Client {
    match random.below(12) {
        0 => return churning(habits, random),
        1 => return deaf(habits, random),
        _ => {}
    }
    let reads = !random.one_in(8);
    let mut does = Vec::new();
    let verbosity = *random.choose(&[1, 1, 1, 3, 12]);
    for _ in 0..1 + random.below(8) {
        match random.below(20) {
            0 => does.push(Action::Waits(*random.choose(&[
                0,
                1,
                50,
                1100,
                20_000,
                habits.silence,
            ]))),
            1 => does.push(Action::Reconnects),
            2 if random.one_in(2) => {
                let command = put(habits, random);
                let bytes = 1 + random.below(command.len() as u64 - 1) as usize;
                does.push(Action::SendsPart(command, bytes));
            }
            3 if random.one_in(4) => does.push(Action::HalfCloses),
            _ => {
                let count = 1 + random.below(verbosity);
                let commands = (0..count).map(|_| command(habits, random));
                does.push(Action::Sends(commands.collect()));
                if reads && !random.one_in(6) {
                    does.push(Action::Reads);
                }
            }
        }
    }
    if reads && random.one_in(2) {
        does.push(Action::Reads);
    }
    Client { does }
}

/// Puts, reserves and deletes, so that segments become empty.
fn churning(habits: Habits, random: &mut Random) -> Client {
    let mut does = Vec::new();
    for _ in 0..2 + random.below(10) {
        let taken = "reserve-with-timeout 0\r\n".to_owned();
        does.push(Action::Sends(vec![put(habits, random), taken]));
        does.push(Action::Reads);
        does.push(Action::Sends(vec!["delete {}\r\n".into()]));
    }
    Client { does }
}

/// Asks for much, and reads nothing for long.
fn deaf(habits: Habits, random: &mut Random) -> Client {
    let mut does = Vec::new();
    for _ in 0..1 + random.below(3) {
        let command = |random: &mut Random| match random.below(3) {
            0 => "list-tubes\r\n".into(),
            1 => "stats-job 1\r\n".into(),
            _ => put(habits, random),
        };
        let commands = (0..2 + random.below(8)).map(|_| command(random));
        does.push(Action::Sends(commands.collect()));
    }
    does.push(Action::Waits(*random.choose(&[50, 1100, 20_000])));
    if random.one_in(2) {
        does.push(Action::Reads);
    }
    Client { does }
}

fn put(habits: Habits, random: &mut Random) -> String {
    let most = u64::from(habits.most);
    let size = match random.below(20) {
        0 => most + 1 + random.below(50),
        1..7 => random.below(most + 1),
        7..15 if habits.are_large => random.below(most + 1),
        _ => random.below(8),
    };
    let delay = *random.choose(&[0, 0, 0, 0, 0, 1, 5, 100_000]);
    let ttr = *random.choose(&[1, 2, 60, 60, 60, 1_000_000]);
    let priority = *random.choose(&[0, 1, 5, 5, 1024]);
    let options = match random.below(14) {
        0 => *random.choose(&[" idp:a", " idp:a:9", " idp:b:60"]),
        1 => *random.choose(&[" con:a", " con:b:2"]),
        2 => *random.choose(&[" try:1", " try:2", " try:1 con:a idp:c"]),
        3 => *random.choose(&[" exp:1", " exp:1", " exp:5", " exp:100000"]),
        4 => *random.choose(&[" try:1 exp:1", " idp:a:9 exp:1", " con:a exp:2 try:2 idp:c"]),
        _ => "",
    };
    let letter = (b'a' + random.below(26) as u8) as char;
    let body: String = (0..size).map(|_| letter).collect();
    let end = if random.one_in(20) { "xx" } else { "\r\n" };
    format!("put {priority} {delay} {ttr} {size}{options}\r\n{body}{end}")
}

/// A command with its line's end, and its body. `{}` is the last job that the
/// client has reserved, or else some job.
fn command(habits: Habits, random: &mut Random) -> String {
    let tube = *random.choose(&["default", "default", "a"]);
    let id = match random.below(3) {
        0 => (1 + random.below(8)).to_string(),
        _ => "{}".to_owned(),
    };
    let priority = random.below(3);
    let line = match random.below(62) {
        0..22 => return put(habits, random),
        22..28 => "reserve-with-timeout 0".into(),
        28..31 => format!("reserve-with-timeout {}", random.choose(&[1, 4, 100])),
        31..33 => "reserve".into(),
        33 => (*random.choose(&["reserve-with-stats", "reserve-with-stats 0"])).into(),
        34..41 => format!("delete {id}"),
        41..44 => format!(
            "release {id} {priority} {}",
            random.choose(&[0, 0, 1, 50_000])
        ),
        44..46 => format!("bury {id} {priority}"),
        46 => format!("touch {id}"),
        // A longer one is done in pieces, between which others may be served: the
        // model knows no such pieces.
        47 => format!("kick {}", random.choose(&[1, 3, 15])),
        48 => format!("kick-job {id}"),
        49 => format!("use {tube}"),
        50 => format!("watch {tube}"),
        51 => format!("ignore {tube}"),
        52 => format!("pause-tube {tube} {}", random.choose(&[0, 1, 3, 20_000])),
        53 => format!("reserve-job {id}"),
        54 => format!("peek {id}"),
        55 => (*random.choose(&["peek-ready", "peek-delayed", "peek-buried"])).into(),
        56 => format!("stats-job {id}"),
        57 => "list-tubes".into(),
        58 => (*random.choose(&["list-tube-used", "list-tubes-watched"])).into(),
        59 => (*random.choose(&[
            "stats",
            "stats-tube a",
            "stats-tube default",
            "list-tube-stats 0 100",
            "list-server-stats",
        ]))
        .into(),
        60 => format!("close-connection {}", 1 + random.below(8)),
        _ => (*random.choose(&["delete x", "nonsense", "kick", "quit"])).into(),
    };
    line + "\r\n"
}
