//! The tools say of a directory what a server says that starts there: the same jobs, or that
//! something is wrong. The directories are those that power cuts leave at any moment, also
//! of a takeover from beanstalkd, and each with some damage.

use crate::disk::{Disk, Random, Survival};
use crate::model::{Jobs, Server, Traffic, start};
use crate::support::{beanpole, saved};
use beanpole::binlog::import::{self, their_name};
use beanpole::engine::{JobFields, StoredJob};
use beanpole::protocol::{Body, JobId, Seconds, TubeName};
use std::fs;
use std::sync::{Arc, Mutex};

const TRAFFIC: Traffic = Traffic {
    longest_body: 700,
    most_jobs: 12,
    long_one_in: 9,
};

/// What was compared: how many directories on which a server starts, and on which it
/// does not.
#[derive(Default)]
struct Compared {
    started: u64,
    refused: u64,
}

impl Compared {
    /// Compares what the tools and a server say of these files.
    fn compare(&mut self, disk: &Disk, random: &mut Random) {
        let directory = tempfile::tempdir().expect("a folder");
        let old = directory.path().join("old");
        fs::create_dir(&old).expect("it is new");
        for name in disk.names() {
            fs::write(old.join(&name), disk.contents(&name)).expect("it is written");
        }
        let verified = beanpole(&["verify", "old"], directory.path());
        let told = String::from_utf8_lossy(&verified.stdout);
        let opened = match start(disk) {
            Ok(opened) => opened,
            Err(error) => {
                self.refused += 1;
                assert!(!verified.status.success(), "{error}, but: {told}");
                return;
            }
        };
        // A start takes the end of a file for the end of what was written.
        if told.contains("the file ends within a record") {
            return;
        }
        self.started += 1;
        let live = opened.jobs.values().filter(|job| !job.is_deleted()).count();
        let plural = if live == 1 { "" } else { "s" };
        let verdict = format!("{live} job{plural} live\n");
        assert!(told.ends_with(&verdict), "{verdict}, but: {verified:?}");
        // It starts beside a file of beanstalkd of which it has taken over only a part.
        let is_sound = !opened
            .notices
            .iter()
            .any(|told| told.starts_with("not all was taken over"));
        assert_eq!(verified.status.success(), is_sound, "{verified:?}");
        if is_sound && random.one_in(15) {
            let repaired = saved("repair", directory.path()).expect("it is sound");
            assert_eq!(repaired.jobs, opened.jobs);
            assert_eq!(repaired.next_id, opened.next_id);
            // beanstalkd knows no tombstones, and no options. What a server of ours takes
            // over from its file is the rest.
            let exported = saved("export7", directory.path()).expect("it is sound");
            let left = |jobs: &Jobs| -> Vec<_> {
                let there = jobs.values().filter(|job| !job.is_deleted());
                let known = there.map(|job| (job.fields.id, job.tube.clone(), job.body.clone()));
                known.collect()
            };
            assert_eq!(left(&exported.jobs), left(&opened.jobs));
        }
    }

    /// The same after something has happened to one of the files.
    fn compare_damaged(&mut self, disk: &Disk, random: &mut Random) {
        let names = disk.names();
        let name = random.choose(&names);
        let mut bytes = disk.contents(name);
        let at = random.below(bytes.len().max(1) as u64) as usize;
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes
                .iter_mut()
                .skip(at)
                .take(512)
                .for_each(|byte| *byte = 0),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 16),
        }
        if random.one_in(6) {
            disk.remove_file(name);
        } else {
            disk.put(name, &bytes);
        }
        self.compare(disk, random);
    }
}

/// A file of beanstalkd with jobs that have these ids.
fn of_beanstalkd(ids: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = import::FILE_START.to_vec();
    for id in ids.map(JobId) {
        let fields = JobFields {
            id,
            ttr: Seconds(60),
            ..JobFields::default()
        };
        let job = StoredJob {
            fields,
            tube: TubeName::default(),
            options: None,
            body: Body::new(b"theirs"),
        };
        import::encode(&job, &mut bytes);
    }
    bytes
}

#[test]
fn the_tools_say_of_each_directory_what_a_server_says_that_starts_there() {
    let mut random = Random::new(1);
    let compared = Arc::new(Mutex::new((Compared::default(), random.clone())));
    for seed in 0..4 {
        let disk = Disk::default();
        if seed % 2 == 1 {
            disk.put(&their_name(3), &of_beanstalkd(1..9));
            disk.put(&their_name(4), &of_beanstalkd(9..12));
        }
        let watched = compared.clone();
        disk.watch(Arc::new(move |disk, _| {
            let (compared, random) = &mut *watched.lock().expect("no test has failed");
            if !random.one_in(12) {
                return;
            }
            let survival = *random.choose(&[Survival::Everything, Survival::Something]);
            let left = disk.state().cut(survival, random);
            if left.names().iter().any(|name| !name.contains("spare")) {
                compared.compare(&left.state().kill(), random);
                compared.compare_damaged(&left, random);
            }
        }));
        let mut server = Server::open(&disk);
        for _ in 0..120 {
            server.command(TRAFFIC, &mut random);
            if random.one_in(2) {
                assert!(server.commit());
            }
            if random.one_in(8) {
                server.log.flush_and_recycle().expect("the disk is sound");
            }
        }
        server.log.close().expect("the disk is sound");
    }
    let (compared, _) = &*compared.lock().expect("no test has failed");
    let Compared { started, refused } = compared;
    assert!(*started > 100 && *refused > 30, "{started}, {refused}");
}
