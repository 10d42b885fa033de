//! Logs of any content whose checksums are right: somebody who can write to a directory can
//! forge one. No program panics, and on what `repair` and `export7` make of it, a server
//! starts.

use crate::disk::Random;
use crate::model::{Opened, SIZE};
use crate::support::{beanpole, saved, start_in, storage};
use beanpole::binlog::format::Header;
use beanpole::binlog::{SyncMode, recovery};
use beanpole::engine::{Config, Engine, Peer, StoredJob, StoredState, Time};
use beanpole::protocol::{Framer, JobId};
use std::fs;
use std::path::Path;

/// The CRC of gzip, continued from an earlier one, as beanpole-binlog(5) says it.
fn crc(before: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
    let next = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(!before, next)
}

/// A segment with these records.
fn segment(number: u32, salt: u32, next_id: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let header = Header {
        number,
        oldest: number,
        previous_end: 0,
        next_id: JobId(next_id),
        salt,
    };
    let mut bytes = header.encode();
    for record in records {
        let offset = bytes.len() as u64;
        let fields = [record.len() as u32, 0].map(u32::to_le_bytes).concat();
        let place = [&number.to_le_bytes()[..], &offset.to_le_bytes()].concat();
        let seed = crc(0, &[&place[..], &fields].concat()) ^ salt;
        bytes.extend(fields);
        bytes.extend(seed.to_le_bytes());
        bytes.extend(crc(seed, record).to_le_bytes());
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

/// A number as a record has it, perhaps at an end of what it may be.
fn number(random: &mut Random, out: &mut Vec<u8>) {
    let ends = [
        0,
        127,
        128,
        u64::from(u32::MAX),
        1 << 32,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let mut left = match random.below(12) {
        0 => *random.choose(&ends),
        1 => random.next() >> random.below(64),
        _ => random.below(6),
    };
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn record(random: &mut Random) -> Vec<u8> {
    let kind = *random.choose(&[1, 1, 1, 2, 2, 3, 3, 4, 5, 5]);
    let (state, counters) = (random.below(4) as u8, random.below(2) as u8);
    let mut record = vec![kind];
    let mut numbers = match kind {
        1 | 2 => {
            record[0] += 8 * state + 32 * counters;
            4 + u8::from(state > 0) + 6 * counters
        }
        5 => 2,
        _ => 1,
    };
    if random.one_in(20) {
        numbers = random.below(5) as u8;
    }
    (0..numbers).for_each(|_| number(random, &mut record));
    let names: [&[u8]; 5] = [b"default", b"mail", b"a", b"", b"-"];
    let options: [&[u8]; 6] = [b"", b"", b"", b" idp:a:60", b" con:b:2 try:1", b" exp:1"];
    // A tenth of the names and bodies are none.
    let wrong = |random: &mut Random, all, right| if random.one_in(10) { all } else { right };
    let among = wrong(random, 5, 3);
    let name = *random.choose(&names[..among]);
    match kind {
        1 => {
            record.extend((random.next() >> 4).to_le_bytes());
            let text = [name, *random.choose(&options)].concat();
            record.push(text.len() as u8 + u8::from(random.one_in(30)));
            record.extend(text);
            let bodies: [&[u8]; 3] = [b"\r\n", b"body\r\n", b"torn"];
            let among = wrong(random, 3, 2);
            record.extend(*random.choose(&bodies[..among]));
        }
        2 => record.extend(random.next().to_le_bytes()),
        5 => record.extend(name),
        _ => {}
    }
    if random.one_in(40) {
        record.push(random.next() as u8);
    }
    record
}

/// Whether there are more ids, and positions of buried jobs, than a server ever gives: a
/// forger may have used them up.
fn has_numbers_left(opened: &Opened) -> bool {
    let order = |job: &StoredJob| match job.fields.state {
        StoredState::Buried { order } => order,
        _ => 0,
    };
    let highest = opened.jobs.values().map(order).max();
    opened.next_id.0.max(highest.unwrap_or(0)) < 1 << 62
}

/// Clients do to the jobs what can be done, and the server starts on that again.
fn work_on(directory: &Path) {
    let config = Config {
        keeps_changes: true,
        ..Config::new(100)
    };
    let now = Time::from_nanos(1_800_000_000_000_000_000);
    for _ in 0..2 {
        let mut engine = Engine::new(config, now);
        let opened = recovery::recover(storage(directory), SyncMode::Never, SIZE, &mut engine);
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        engine.set_next_id(opened.next_id);
        let client = engine.connect(Peer::default(), now);
        let lines = [
            "put 0 0 60 1\r\nx\r\n",
            "watch mail\r\nwatch a\r\nkick 9\r\nuse mail\r\nkick 9\r\nuse a\r\nkick 9\r\n",
            "pause-tube default 0\r\npause-tube mail 0\r\npause-tube a 0\r\n",
            &"reserve-with-timeout 0\r\n".repeat(5),
            "bury 1 5\r\nbury 2 5\r\nrelease 3 1 4294967295\r\ndelete 4\r\ntouch 5\r\n",
            "pause-tube mail 4294967295\r\nlist-jobs 0 100\r\nlist-tube-stats 0 100\r\nstats\r\n",
        ];
        for line in lines {
            let (mut framer, mut input) = (Framer::new(100), line.as_bytes());
            while let Some(request) = framer.next(&mut input) {
                engine.execute(client, request, now);
                opened.binlog.append(&engine.effects.changes, &engine);
                engine.effects.changes.clear();
            }
        }
        engine.disconnect(client, now);
        opened.binlog.append(&engine.effects.changes, &engine);
        opened.binlog.close().expect("there is room");
    }
}

#[test]
fn a_forged_log_with_right_checksums_misleads_no_program() {
    let mut started = 0;
    for seed in support::search::seeds(0..40) {
        let random = &mut Random::new(seed);
        let directory = tempfile::tempdir().expect("a folder");
        let old = directory.path().join("old");
        fs::create_dir(&old).expect("it is new");
        let next = if random.one_in(8) { 1 << 63 } else { 1 };
        let most = *random.choose(&[4, 20]);
        let records: Vec<_> = (0..random.below(most)).map(|_| record(random)).collect();
        let bytes = segment(1, random.next() as u32, next, &records);
        fs::write(old.join("segment.1"), bytes).expect("there is room");
        let is_sound = beanpole(&["verify", "old"], directory.path())
            .status
            .success();
        beanpole(&["cat", "old"], directory.path());
        let repaired = saved("repair", directory.path());
        let are_numbers_left = repaired.as_ref().is_none_or(has_numbers_left);
        let repaired = repaired.map(|opened| (opened.jobs, opened.next_id));
        saved("export7", directory.path());
        let opened = start_in(&old);
        assert!(
            opened.is_ok() || !is_sound,
            "seed {seed}: {:?}",
            opened.err()
        );
        if let Ok(opened) = opened {
            started += 1;
            if is_sound {
                let (jobs, next_id) = repaired.expect("it is sound");
                assert_eq!(jobs, opened.jobs, "seed {seed}");
                assert!(next_id >= opened.next_id, "seed {seed}");
            }
            drop(opened.binlog);
            if are_numbers_left {
                work_on(&old);
            }
        }
        if are_numbers_left && directory.path().join("repair").exists() {
            work_on(&directory.path().join("repair"));
        }
    }
    println!("{started} servers started");
    assert!(started >= 5, "{started}");
}
