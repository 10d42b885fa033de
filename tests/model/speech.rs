//! What clients say: lines and bodies, most of them right, about few tubes and
//! jobs.

use super::{Random, World};
use crate::naive::Client;

/// The names of tubes.
pub(super) const TUBES: [&str; 8] = ["default", "a", "b", LONG_NAME, "c", "d", "e", "007"];

/// 200 bytes, the longest name there is.
const LONG_NAME: &str = "and-they-may-contain/letters;numerals.1234567890$_(and-these-signs)+\
    and-they-may-contain/letters;numerals.1234567890$_(and-these-signs)+\
    and-they-may-contain/letters;numerals.1234567890$_(and-these-sig";

/// Lines that are no commands, by one mistake each.
const MALFORMED: [&str; 36] = [
    " stats",
    "STATS",
    "putt 0 0 1 1",
    "put",
    "put 0 0 1",
    "put 0 0 1 x",
    "put 4294967296 0 1 1",
    "put 0 0 1 1 ",
    "put 0 0 1 1 idp:",
    "put 0 0 1 1 idp:a idp:b",
    "put 0 0 1 1  idp:a",
    "put 0 0 1 1 con:a:0",
    "put 0 0 1 1 try:1 ",
    "put 0 0 1 1 grp:a",
    "put 0 0 1 1 exp:0",
    "put 0 0 1 1 exp:1:1",
    "reserve-with-stats ",
    "reserve 1",
    "reserve-with-timeout x",
    "reserve-job",
    "delete",
    "delete 1x",
    "release 1 0",
    "bury 1",
    "bury-later",
    "close-connection",
    "close-connection 1 1",
    "use -a",
    "watch a*",
    "kick",
    "kick-job x",
    "pause-tube -a 1",
    "peek-readyx",
    "stats-tube ",
    "list-jobs 1 0",
    "list-jobs 1 1 a burried",
];

impl World {
    /// The line of a put and its body with the two bytes behind it.
    pub(super) fn put(&mut self) -> (String, String) {
        let random = &mut self.random;
        let most = self.model.max_job_size;
        let size = match random.below(20) {
            0 => most + 1 + random.below(50),
            1 => random.below(most + 1).max(most.min(20)),
            2 => 0,
            _ => random.below(8),
        };
        let body: String = (0..size)
            .map(|_| *random.choose(&['a', 'b', '\r', '\n']))
            .collect();
        let end = if random.one_in(15) {
            *random.choose(&["\n\r", "xx", "\r\r"])
        } else {
            "\r\n"
        };
        let delay = *random.choose(&[0, 0, 0, 0, 1, 2, 5, u32::MAX]);
        let ttr = *random.choose(&[0, 1, 1, 2, 3, 5, 60, u32::MAX]);
        let options = options(random);
        let line = format!("put {} {delay} {ttr} {size}{options}", priority(random));
        (line, body + end)
    }

    /// Any other line.
    pub(super) fn line(&mut self, client: Client) -> String {
        let id = self.some_job(client);
        let random = &mut self.random;
        let tube = *random.choose(&TUBES[..self.tubes]);
        match random.below(77) {
            0..4 => format!("use {tube}"),
            4..9 => format!("watch {tube}"),
            9..12 => format!("ignore {tube}"),
            12..17 => "reserve".into(),
            17 => "reserve-with-stats".into(),
            18 => format!("reserve-with-stats {}", random.choose(&[0, 1, 3])),
            19..26 => {
                let seconds = random.choose(&[0, 1, 2, 4, 10, i32::MAX]);
                format!("reserve-with-timeout {seconds}")
            }
            26..29 => format!("reserve-job {id}"),
            29..34 => format!("delete {id}"),
            34..39 => {
                let delay = *random.choose(&[0, 0, 1, 3, u32::MAX]);
                format!("release {id} {} {delay}", priority(random))
            }
            39..43 => format!("bury {id} {}", priority(random)),
            43..46 => format!("touch {id}"),
            46..48 => format!("peek {id}"),
            48 => "peek-ready".into(),
            49 => "peek-delayed".into(),
            50 => "peek-buried".into(),
            51..54 => format!("kick {}", random.choose(&[0, 1, 2, 100])),
            54 => format!("kick-job {id}"),
            55 => format!("bury-later {id}"),
            56..59 => format!("pause-tube {tube} {}", random.choose(&[0, 1, 2, 5])),
            59..62 => format!("stats-job {id}"),
            62..65 => format!("stats-tube {tube}"),
            65 => "stats".into(),
            66..68 => "list-tubes".into(),
            68 => "list-tube-used".into(),
            69 => "list-tubes-watched".into(),
            70..74 => {
                let state = *random.choose(&["ready", "delayed", "reserved", "buried"]);
                let filter = [
                    String::new(),
                    format!(" {tube}"),
                    format!(" {tube} {state}"),
                ];
                let count = *random.choose(&[1, 2, 1000, u64::MAX]);
                format!("list-jobs {id} {count}{}", random.choose(&filter))
            }
            74 if random.one_in(2) => {
                let what = random.choose(&["connections", "tube-stats"]);
                let (from, count) = (random.below(6), 1 + random.below(4));
                format!("list-{what} {from} {count}")
            }
            74 => (*random.choose(&MALFORMED)).into(),
            75 => {
                let there = self.links.values().map(|link| link.id.0);
                let numbers: Vec<_> = there.chain([random.below(20) as u64]).collect();
                format!("close-connection {}", random.choose(&numbers))
            }
            _ if random.one_in(4) => "quit".into(),
            _ => "list-server-stats".into(),
        }
    }

    /// Usually one that this client has, if it has any.
    fn some_job(&mut self, client: Client) -> u64 {
        let all: Vec<_> = self.model.jobs.iter().collect();
        let mut its = all.clone();
        its.retain(|job| job.state.holder() == Some(client));
        match self.random.below(10) {
            0..7 if !its.is_empty() => self.random.choose(&its).id,
            0..9 if !all.is_empty() => self.random.choose(&all).id,
            _ => self.random.below(self.model.last_id as usize + 2) as u64,
        }
    }
}

/// The options after a put, each with a space before it.
fn options(random: &mut Random) -> String {
    let mut options = Vec::new();
    if random.one_in(2) {
        let key = random.choose(&["a", "b"]);
        options.push(match random.choose(&[0, 0, 1, 2, 60]) {
            0 => format!(" idp:{key}"),
            seconds => format!(" idp:{key}:{seconds}"),
        });
    }
    if random.one_in(2) {
        let key = random.choose(&["a", "c"]);
        options.push(match random.choose(&[1, 1, 2, 3]) {
            1 => format!(" con:{key}"),
            most => format!(" con:{key}:{most}"),
        });
    }
    if random.one_in(2) {
        options.push(format!(" try:{}", random.choose(&[1, 2, 3])));
    }
    if random.one_in(3) {
        options.push(format!(" exp:{}", random.choose(&[1, 1, 2, 5, u32::MAX])));
    }
    let first = random.below(options.len().max(1));
    options.rotate_left(first);
    options.concat()
}

fn priority(random: &mut Random) -> u32 {
    *random.choose(&[0, 1, 5, 5, 1023, 1024, u32::MAX])
}
