//! What `stats-job` and `list-jobs` show of jobs: `stats-job` has a line for each of
//! beanstalkd's keys, `list-jobs` a line for each job, with what is ours as well.

use super::{Document, JobId, Priority, PutOptions, Seconds, TubeName};

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
    /// All states, in the order in which people are shown them.
    pub const ALL: [JobState; 4] = {
        use JobState::{Buried, Delayed, Ready, Reserved};
        [Ready, Reserved, Delayed, Buried]
    };

    /// The state of this name.
    pub fn parse(name: &[u8]) -> Option<JobState> {
        let mut all = JobState::ALL.into_iter();
        all.find(|state| state.name().as_bytes() == name)
    }

    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        ["ready", "delayed", "reserved", "buried"][self as usize]
    }
}

/// What happens to a job, and is counted.
#[derive(Clone, Copy)]
pub enum Event {
    /// A client has got it.
    Reserve,
    /// Its time to run has ended.
    Timeout,
    /// Its client has released it.
    Release,
    /// It was buried.
    Bury,
    /// It was kicked.
    Kick,
}

/// How often each [`Event`] has happened to a job since it was put.
pub type Counters = [u32; 5];

/// The keys of these counts.
pub const COUNTERS: [&str; 5] = ["reserves", "timeouts", "releases", "buries", "kicks"];

/// What the server shows of a job. Times are in whole seconds, rounded down.
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
    /// The length of its body, in bytes; this and what follows are not in `stats-job`.
    pub size: u32,
    /// The connection that has reserved it, 0 if none has.
    pub reserved_by: u64,
    /// The options of its put, if it has any.
    pub options: Option<Box<PutOptions>>,
    /// How many more jobs with the key of its limit may be reserved now.
    pub places_free: u64,
    /// How many tries have failed, if it has a try limit.
    pub failed_tries: u32,
    /// How many seconds are left until it expires, whatever its state, if it expires at
    /// all.
    pub expires_in: Option<u32>,
}

impl JobStats {
    /// What `stats-job` shows.
    pub(super) fn facts(&self) -> Document {
        let mut facts = Document::default();
        facts.add_number("id", self.id.0);
        facts.add_name("tube", &self.tube);
        facts.add("state", self.state.name());
        facts.add_number("pri", self.priority.0);
        facts.add_number("age", self.age);
        facts.add_number("delay", self.delay.0);
        facts.add_number("ttr", self.ttr.0);
        facts.add_number("time-left", self.time_left);
        facts.add_number("file", self.file);
        for (key, count) in COUNTERS.into_iter().zip(self.counters) {
            facts.add_number(key, count);
        }
        facts
    }
}

/// What `list-jobs` answers: a part of a list, in the order of the ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobList {
    /// What is listed.
    pub items: Vec<JobStats>,
    /// The first id that this part leaves out; `None` if it is the last part.
    pub next: Option<u64>,
}

impl JobList {
    pub(super) fn document(&self) -> Document {
        let facts = |job: &JobStats| {
            let mut facts = job.facts();
            facts.add_number("size", job.size);
            facts.add_number("reserved-by", job.reserved_by);
            if let Some(options) = &job.options {
                options.add_to(&mut facts, job);
            }
            facts
        };
        Document::list("jobs", self.items.iter().map(facts), self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Reply;
    use crate::protocol::document::LISTED_EACH;

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
            counters: [5, 6, 7, 8, 9],
            size: 10,
            reserved_by: 0,
            options: None,
            places_free: 0,
            failed_tries: 9,
            expires_in: None,
        }
    }

    fn encoded(list: &JobList) -> String {
        let mut whole = Vec::new();
        Reply::Jobs(Box::new(list.clone())).encode(&mut whole);
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn a_list_of_jobs_has_a_job_on_each_line_and_the_next_id_on_the_last() {
        let list = JobList {
            items: vec![job(u64::MAX)],
            next: Some(12),
        };
        let expected = "OK 249\r\n---\njobs:\n\
            - {id: 18446744073709551615, tube: default, state: buried, pri: 4294967295, \
            age: 18446744073709551615, delay: 1, ttr: 2, time-left: 3, file: 4, reserves: 5, \
            timeouts: 6, releases: 7, buries: 8, kicks: 9, size: 10, reserved-by: 0}\nnext: 12\n\r\n";
        assert_eq!(encoded(&list), expected);
    }

    #[test]
    fn a_list_of_no_jobs_is_an_empty_list() {
        let expected = "OK 21\r\n---\njobs: []\nnext: 0\n\r\n";
        let list = JobList {
            items: Vec::new(),
            next: None,
        };
        assert_eq!(encoded(&list), expected);
    }

    #[test]
    fn a_list_of_a_thousand_jobs_is_one_reply_with_its_length() {
        let list = JobList {
            items: (0..1000).map(job).collect(),
            next: None,
        };
        let text = encoded(&list);
        let (line, yaml) = text.split_once("\r\n").unwrap();
        assert_eq!(line, format!("OK {}", yaml.len() - 2));
        assert_eq!(yaml.matches("\n- {id: ").count(), 1000);
        assert!(yaml.ends_with("size: 10, reserved-by: 0}\nnext: 0\n\r\n"));
    }

    /// While it is encoded, its text is there twice.
    #[test]
    fn a_listed_job_counts_as_much_as_one_with_long_names_and_all_options_takes() {
        let key = "k".repeat(200);
        let options = format!(" idp:{key}:31536000 con:{key}:99 try:9 exp:99");
        let job = JobStats {
            tube: TubeName::parse(&[b'n'; 200]).unwrap(),
            options: PutOptions::parse(options.as_bytes()).map(Box::new),
            expires_in: Some(9),
            ..job(u64::MAX)
        };
        let list = JobList {
            items: vec![job; 1000],
            next: None,
        };
        let each = size_of::<JobStats>() + size_of::<PutOptions>();
        let took = 1000 * each + 2 * encoded(&list).len();
        assert!(
            (LISTED_EACH * 600..LISTED_EACH * 1000).contains(&took),
            "{took}"
        );
    }
}
