//! The binlog in stories: what is on the disk after each step.
//!
//! In `stories/*.txt` a line that begins with `>` is a step. The indented lines
//! after it say what is found then. All other lines are for the reader. The
//! disk is simulated, changes are synced when they are committed, and segments
//! end at 4096 bytes.

use crate::disk::{Disk, Random, Survival};
use crate::model::Server;
use beanpole::protocol::JobId;
use std::fs;

struct Story {
    disk: Disk,
    server: Option<Server>,
    random: Random,
}

impl Story {
    fn step(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let random = &mut self.random;
        match (words[0], &mut self.server) {
            ("start", server) => *server = Some(Server::open(&self.disk)),
            ("put", Some(server)) => {
                if !server.put(usize::try_from(number(1)).unwrap(), random) {
                    return vec!["OUT_OF_MEMORY".into()];
                }
            }
            ("update", Some(server)) => server.update(JobId(number(1)), random),
            ("delete", Some(server)) => server.delete(JobId(number(1))),
            ("commit", Some(server)) => assert!(server.commit()),
            ("tend", Some(server)) => server.log.flush_and_recycle().unwrap(),
            ("stop", server) => server.take().unwrap().log.close().unwrap(),
            ("power", server) => {
                *server = None;
                let left = self.disk.state().cut(Survival::Nothing, random);
                self.disk = left;
            }
            ("fill", _) => self.disk.set_capacity(Some(self.disk.used())),
            ("jobs", Some(server)) => {
                let ids = server.jobs.keys().map(ToString::to_string);
                return vec![ids.collect::<Vec<_>>().join(" ")];
            }
            ("disk", _) => {
                let names = self.disk.names();
                let show =
                    |name: &String| format!("{name}: {}", in_words(&self.disk.contents(name)));
                return names.iter().map(show).collect();
            }
            _ => panic!("{line}"),
        }
        Vec::new()
    }
}

/// The records of a segment in words. beanpole-binlog(5) has their kinds and
/// fields.
fn in_words(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return format!("{} zeros", bytes.len());
    }
    let mut words = vec!["header".to_owned()];
    let mut offset = 44;
    while let Some(frame) = bytes.get(offset..offset + 18) {
        let len = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
        if len == u32::MAX as usize {
            words.push("continued".into());
            break;
        }
        // The ids and numbers of segments in the stories fit into one byte.
        let id = frame[17];
        words.push(match frame[16] {
            _ if len == 0 => break,
            kind if kind % 8 == 1 => format!("put {id}"),
            kind if kind % 8 == 2 => format!("update {id}"),
            3 => format!("delete {id}"),
            4 => format!("mark {id}"),
            kind => panic!("a record of kind {kind}"),
        });
        offset += 16 + len;
    }
    words.join(", ")
}

fn play(text: &str) -> String {
    let mut story = Story {
        disk: Disk::default(),
        server: None,
        random: Random::new(1),
    };
    let mut told = String::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        told += &format!("{line}\n");
        if let Some(step) = line.strip_prefix("> ") {
            for found in story.step(step) {
                told += &format!("    {found}\n");
            }
        }
    }
    told
}

#[test]
fn each_story_shows_what_is_on_the_disk_after_each_step() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/binlog/stories");
    let mut count = 0;
    for story in fs::read_dir(directory).unwrap() {
        let path = story.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let told = play(&text);
        assert!(told == text, "{} is not so, but:\n{told}", path.display());
        count += 1;
    }
    assert_eq!(count, 5);
}
