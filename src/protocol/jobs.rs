//! What `stats-job` and `list-jobs` tell of jobs. Both tell the same facts:
//! `stats-job` has a line for each fact, `list-jobs` a line for each job.

use super::document::push_number;
use super::options::{Fact, OptionStats};
use super::{JobId, Priority, Seconds, TubeName};
use std::io::{self, Write};

/// Where in its life a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a worker.
    Ready,
    /// Its delay is not over.
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
    /// How often its time to run ended.
    pub timeouts: u32,
    /// Times released by a client.
    pub releases: u32,
    /// Times buried.
    pub buries: u32,
    /// Times kicked.
    pub kicks: u32,
}

/// What the server tells of a job. Times are in whole seconds, rounded down.
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
    /// How long it still stays delayed or reserved, in seconds; 0 in other
    /// states.
    pub time_left: u32,
    /// The number of the binlog file with its latest put; 0 if none has it. The
    /// engine leaves it 0; the server asks the binlog and fills it in.
    pub file: u32,
    /// What has happened to it.
    pub counters: Counters,
    /// The length of its body, in bytes. `stats-job` does not tell it.
    pub size: u32,
    /// Its options, if it has any.
    pub options: Option<Box<OptionStats>>,
    /// The connection that has reserved it; 0 if none has.
    pub reserved_by: u64,
}

impl JobStats {
    /// Appends the keys and values of `stats-job`, separated by `between`.
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
            ("time-left: ", self.time_left.into()),
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

    /// Appends the keys and values that other servers do not have, with `between`
    /// before each of them.
    fn write_ours(&self, out: &mut Vec<u8>, between: &str) {
        for (key, fact) in self.options.iter().flat_map(|options| options.facts()) {
            out.extend_from_slice(between.as_bytes());
            out.extend_from_slice(key.as_bytes());
            match fact {
                Fact::Key(key) => write!(out, "\"{key}\"").expect("a Vec takes all bytes"),
                Fact::Number(number) => push_number(out, number),
            }
        }
        write!(out, "{between}reserved-by: {}", self.reserved_by).expect("a Vec takes all bytes");
    }

    /// The bytes of the whole reply to `stats-job`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut yaml = b"---\n".to_vec();
        self.write(&mut yaml, "\n");
        self.write_ours(&mut yaml, "\n");
        write!(out, "OK {}\r\n", yaml.len() + 1).expect("a Vec takes all bytes");
        out.extend_from_slice(&yaml);
        out.extend_from_slice(b"\n\r\n");
    }

    /// Its line in a list.
    fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"- {");
        self.write(out, ", ");
        out.extend_from_slice(b", size: ");
        push_number(out, self.size.into());
        self.write_ours(out, ", ");
        out.extend_from_slice(b"}\n");
    }
}

/// Some jobs, in the order of their ids, and where the next ones begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobStats>,
    /// The first job that this call did not look at; `None` if it looked at
    /// all.
    pub next: Option<JobId>,
}

impl JobList {
    /// The memory that it takes, in bytes, without the names of the tubes.
    pub fn memory(&self) -> usize {
        let options = self.jobs.iter().filter(|job| job.options.is_some());
        self.jobs.len() * size_of::<JobStats>() + options.count() * size_of::<OptionStats>()
    }

    /// Writes the whole reply, job by job.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        let none = if self.jobs.is_empty() { " []" } else { "" };
        let head = format!("---\njobs:{none}\n");
        let end = format!("next: {}\n", self.next.map_or(0, |id| id.0));
        // The length stands before the text, and the whole text may be too
        // large for memory: so each line is made twice.
        let mut line = Vec::new();
        let mut length = head.len() + end.len();
        for job in &self.jobs {
            line.clear();
            job.write_line(&mut line);
            length += line.len();
        }
        write!(out, "OK {length}\r\n{head}")?;
        for job in &self.jobs {
            line.clear();
            job.write_line(&mut line);
            out.write_all(&line)?;
        }
        write!(out, "{end}\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::options::PutOptions;

    fn job(id: u64) -> JobStats {
        JobStats {
            id: JobId(id),
            tube: TubeName::default(),
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
            options: None,
            reserved_by: 0,
        }
    }

    fn encoded(list: &JobList) -> String {
        let mut whole = Vec::new();
        list.encode(&mut whole).unwrap();
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn a_list_has_a_job_on_each_line_and_where_to_go_on_on_the_last() {
        let list = JobList {
            jobs: vec![job(u64::MAX)],
            next: Some(JobId(12)),
        };
        let expected = "OK 251\r\n---\njobs:\n\
            - {id: 18446744073709551615, tube: \"default\", state: buried, pri: 4294967295, \
            age: 18446744073709551615, delay: 1, ttr: 2, time-left: 3, file: 4, reserves: 5, \
            timeouts: 6, releases: 7, buries: 8, kicks: 9, size: 10, reserved-by: 0}\nnext: 12\n\r\n";
        assert_eq!(encoded(&list), expected);
    }

    #[test]
    fn an_empty_list_is_a_list_too() {
        let expected = "OK 21\r\n---\njobs: []\nnext: 0\n\r\n";
        assert_eq!(encoded(&JobList::default()), expected);
    }

    #[test]
    fn a_list_of_jobs_is_one_reply() {
        let list = JobList {
            jobs: (0..1000).map(job).collect(),
            next: None,
        };
        let text = encoded(&list);
        let (line, yaml) = text.split_once("\r\n").unwrap();
        assert_eq!(line, format!("OK {}", yaml.len() - 2));
        assert_eq!(yaml.matches("\n- {id: ").count(), 1000);
        assert!(yaml.ends_with("size: 10, reserved-by: 0}\nnext: 0\n\r\n"));
    }

    #[test]
    fn a_thousand_jobs_of_a_list_take_less_than_100_kilobytes() {
        let mut list = JobList {
            jobs: (0..1000).map(job).collect(),
            next: None,
        };
        let without = list.memory();
        assert_eq!(without, 1000 * size_of::<JobStats>());
        assert!(without <= 96_000, "{without}");
        for job in &mut list.jobs[..10] {
            job.options = Some(Box::new(OptionStats {
                options: PutOptions::NONE,
                free: 0,
                tries_left: 0,
            }));
        }
        assert_eq!(list.memory() - without, 10 * size_of::<OptionStats>());
    }
}
