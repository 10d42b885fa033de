//! What `stats-job` and `list-jobs` tell of jobs: the same facts, one to a line
//! for one job, one job to a line for many.

use super::document::{begin, push_number};
use super::{JobId, Priority, Seconds, TubeName};
use std::io::Write;

/// Where in its life a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a worker.
    Ready,
    /// It is not to be reserved yet.
    Delayed,
    /// A client has it.
    Reserved,
    /// It was put aside until it is kicked.
    Buried,
}

impl JobState {
    /// The state that this word names.
    pub fn parse(word: &[u8]) -> Option<JobState> {
        use JobState::{Buried, Delayed, Ready, Reserved};
        let all = [Ready, Delayed, Reserved, Buried];
        all.into_iter()
            .find(|state| state.word().as_bytes() == word)
    }

    /// The protocol's word for it.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Ready => "ready",
            JobState::Delayed => "delayed",
            JobState::Reserved => "reserved",
            JobState::Buried => "buried",
        }
    }
}

/// What has happened to a job since it was put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times reserved.
    pub reserves: u32,
    /// Times its time to run was over.
    pub timeouts: u32,
    /// Times released by a client.
    pub releases: u32,
    /// Times buried.
    pub buries: u32,
    /// Times kicked.
    pub kicks: u32,
}

/// What is told of a job. Times are in whole seconds, rounded down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStats {
    /// The job.
    pub id: JobId,
    /// The tube it is in.
    pub tube: TubeName,
    /// Where in its life it is.
    pub state: JobState,
    /// As set by put, release or bury.
    pub priority: Priority,
    /// How long ago it was put, in seconds.
    pub age: u64,
    /// The delay that put or release asked for last.
    pub delay: Seconds,
    /// The time to run.
    pub ttr: Seconds,
    /// How long it stays delayed, or its holder has it, in seconds.
    pub time_left: u64,
    /// The number of the oldest file that holds it; 0 if none does, or whoever
    /// knows has not filled it in yet.
    pub file: u32,
    /// What has happened to it.
    pub counters: Counters,
    /// The length of its body, in bytes. `stats-job` does not tell it.
    pub size: u32,
}

impl JobStats {
    /// Appends the keys and values of `stats-job`, with this between them.
    fn write(&self, out: &mut Vec<u8>, between: &str) {
        let (id, tube, state) = (self.id, &self.tube, self.state.word());
        write!(
            out,
            "id: {id}{between}tube: \"{tube}\"{between}state: {state}"
        )
        .expect("a Vec takes all bytes");
        let counters = &self.counters;
        for (key, number) in [
            ("pri: ", self.priority.0.into()),
            ("age: ", self.age),
            ("delay: ", self.delay.0.into()),
            ("ttr: ", self.ttr.0.into()),
            ("time-left: ", self.time_left),
            ("file: ", self.file.into()),
            ("reserves: ", counters.reserves.into()),
            ("timeouts: ", counters.timeouts.into()),
            ("releases: ", counters.releases.into()),
            ("buries: ", counters.buries.into()),
            ("kicks: ", counters.kicks.into()),
        ] {
            out.extend_from_slice(between.as_bytes());
            out.extend_from_slice(key.as_bytes());
            push_number(out, number);
        }
    }

    /// The bytes of the whole reply to `stats-job`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut yaml = b"---\n".to_vec();
        self.write(&mut yaml, "\n");
        begin(out, yaml.len() + 1);
        out.extend_from_slice(&yaml);
        out.extend_from_slice(b"\n\r\n");
    }

    /// Its line in a list.
    fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"- {");
        self.write(out, ", ");
        out.extend_from_slice(b", size: ");
        push_number(out, self.size.into());
        out.extend_from_slice(b"}\n");
    }
}

/// Some jobs, in the order of their ids, and where the next ones begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobStats>,
    /// The first job that was not looked at; `None` if all were.
    pub next: Option<JobId>,
}

/// A piece of the encoded list is handed on when it has so many bytes.
const PIECE: usize = 16 * 1024;

impl JobList {
    /// What it takes in memory, in bytes, but for the names of the tubes.
    pub fn memory(&self) -> usize {
        self.jobs.len() * size_of::<JobStats>()
    }

    /// The bytes of the whole reply, handed to `take` in pieces of 16 kB.
    ///
    /// # Errors
    ///
    /// The first error of `take`.
    pub fn encode<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        // The length stands in front, and the whole text would be too much to
        // hold: so it is written twice.
        let mut length = 0;
        let Ok(()) = self.write(|piece| {
            length += piece.len();
            Ok::<(), std::convert::Infallible>(())
        });
        let mut first = Vec::new();
        begin(&mut first, length);
        take(&first)?;
        self.write(&mut take)?;
        take(b"\r\n")
    }

    fn write<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut piece = Vec::with_capacity(PIECE + 512);
        piece.extend_from_slice(match self.jobs.is_empty() {
            true => b"---\njobs: []\n",
            false => b"---\njobs:\n",
        });
        for job in &self.jobs {
            job.write_line(&mut piece);
            if piece.len() >= PIECE {
                take(&piece)?;
                piece.clear();
            }
        }
        piece.extend_from_slice(b"next: ");
        push_number(&mut piece, self.next.map_or(0, |id| id.0));
        piece.push(b'\n');
        take(&piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> JobStats {
        JobStats {
            id: JobId(id),
            tube: TubeName::default_tube(),
            state: JobState::Buried,
            priority: Priority(u32::MAX),
            age: u64::MAX,
            delay: Seconds(1),
            ttr: Seconds(2),
            time_left: 3,
            file: 4,
            counters: Counters {
                reserves: 5,
                timeouts: 6,
                releases: 7,
                buries: 8,
                kicks: 9,
            },
            size: 10,
        }
    }

    fn encoded(list: &JobList) -> (String, usize) {
        let (mut whole, mut pieces) = (Vec::new(), 0);
        let taken = list.encode(|piece| {
            whole.extend_from_slice(piece);
            pieces += 1;
            Ok::<(), ()>(())
        });
        assert_eq!(taken, Ok(()));
        (String::from_utf8(whole).unwrap(), pieces)
    }

    #[test]
    fn a_list_has_a_job_on_each_line_and_where_to_go_on_on_the_last() {
        let list = JobList {
            jobs: vec![job(u64::MAX)],
            next: Some(JobId(12)),
        };
        let expected = "OK 235\r\n---\njobs:\n\
            - {id: 18446744073709551615, tube: \"default\", state: buried, pri: 4294967295, \
            age: 18446744073709551615, delay: 1, ttr: 2, time-left: 3, file: 4, reserves: 5, \
            timeouts: 6, releases: 7, buries: 8, kicks: 9, size: 10}\nnext: 12\n\r\n";
        assert_eq!(encoded(&list).0, expected);
    }

    #[test]
    fn an_empty_list_is_a_list_too() {
        let expected = "OK 21\r\n---\njobs: []\nnext: 0\n\r\n";
        assert_eq!(encoded(&JobList::default()).0, expected);
    }

    #[test]
    fn a_list_of_jobs_leaves_in_pieces_and_is_one_reply() {
        let list = JobList {
            jobs: (0..1000).map(job).collect(),
            next: None,
        };
        let (text, pieces) = encoded(&list);
        let (line, yaml) = text.split_once("\r\n").unwrap();
        assert_eq!(line, format!("OK {}", yaml.len() - 2));
        assert_eq!(yaml.matches("\n- {id: ").count(), 1000);
        assert!(yaml.ends_with("size: 10}\nnext: 0\n\r\n"));
        assert!(pieces > 10);
    }

    #[test]
    fn a_thousand_jobs_of_a_list_take_less_than_100_kilobytes() {
        assert!(size_of::<JobStats>() <= 96, "{}", size_of::<JobStats>());
    }
}
