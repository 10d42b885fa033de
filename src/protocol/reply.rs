//! Replies: a [`Reply`] becomes the bytes of its line and body.

use super::document::{LISTED_EACH, TubeNames, push_number};
use super::jobs::{JobList, JobStats};
use super::{Body, Document, JobId, JobState, Priority, TubeName};

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `INSERTED <id>`: the job exists.
    Inserted(JobId),
    /// `INSERTED <id> <state> [<pri>]`: the job with this key existed already, or
    /// its key is still taken by it. Its state is `None` if it is deleted, and its
    /// priority is included if this put has lowered it.
    InsertedBefore(JobId, Option<JobState>, Option<Priority>),
    /// `EXPECTED_CRLF`: the body was not followed by CR LF.
    ExpectedCrlf,
    /// `JOB_TOO_BIG`: the body is larger than the server takes.
    JobTooBig,
    /// `DRAINING`: the server takes no new jobs any more.
    Draining,
    /// `USING <tube>`
    Using(TubeName),
    /// `RESERVED <id> <bytes>` and the body: the job is the client's.
    Reserved(JobId, Body),
    /// The same, and on the line also `<tube> <pri> <age> <delay> <ttr> <reserves>
    /// <timeouts> <releases> <buries> <kicks> [<options>]`.
    ReservedWithStats(Box<JobStats>, Body),
    /// `DEADLINE_SOON`: a job of the client's is about to time out.
    DeadlineSoon,
    /// `TIMED_OUT`: no job came in time.
    TimedOut,
    /// `NOT_FOUND`: there is no such job or tube, or the job's state does not
    /// allow the command.
    NotFound,
    /// `DELETED`
    Deleted,
    /// `RELEASED`
    Released,
    /// `BURIED`
    Buried,
    /// `TOUCHED`
    Touched,
    /// `WATCHING <count>`: how many tubes are watched now.
    Watching(usize),
    /// `NOT_IGNORED`: it is the only tube watched.
    NotIgnored,
    /// `FOUND <id> <bytes>` and the body.
    Found(JobId, Body),
    /// `KICKED <count>`: how many jobs were kicked.
    KickedCount(usize),
    /// `KICKED`: the job was kicked.
    Kicked,
    /// `PAUSED`
    Paused,
    /// `OK <bytes>` and a YAML dictionary: `stats-job`.
    JobStats(Box<JobStats>),
    /// `OK <bytes>` and YAML: a dictionary for `stats-tube`; for `list-connections` and
    /// `list-tube-stats` a list, and the number to continue from.
    Document(Document),
    /// `OK <bytes>` and a YAML dictionary: `stats`. At the end, the server adds what only the
    /// process knows, and among that whether it drains.
    ServerStats(Document, bool),
    /// The same for `list-server-stats`, without the latter.
    MoreServerStats(Document),
    /// `OK <bytes>` and a YAML list.
    Tubes(TubeNames),
    /// `OK <bytes>` and YAML: a list of jobs, and the id to continue from.
    Jobs(Box<JobList>),
    /// `CLOSED`: the connection with this number ends. The server closes it.
    Closed(u64),
    /// `OUT_OF_MEMORY`: no room for the job.
    OutOfMemory,
    /// `INTERNAL_ERROR`: the server cannot keep what it would promise.
    InternalError,
    /// `BAD_FORMAT`: the line is malformed.
    BadFormat,
    /// `UNKNOWN_COMMAND`: no command begins like this.
    UnknownCommand,
}

/// Which changes a reply depends on: those that must be durable before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependsOn {
    /// The reply promises nothing that has to outlive the process.
    Nothing,
    /// It shows this job. If the put were lost, another job could get the same
    /// id.
    PutOf(JobId),
    /// It is true only if every change so far outlives the process.
    AllSoFar,
}

impl Reply {
    /// Appends the bytes on the wire. Only those of [`body`](Self::body) are
    /// missing; they follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.word().as_bytes());
        match self {
            Reply::Inserted(id) => add_number(out, id.0),
            Reply::InsertedBefore(id, state, priority) => {
                add_number(out, id.0);
                let state = state.map_or("deleted", JobState::name);
                add_word(out, &state.to_ascii_uppercase());
                priority.inspect(|priority| add_number(out, priority.0.into()));
            }
            Reply::Reserved(id, body) | Reply::Found(id, body) => {
                add_number(out, id.0);
                add_number(out, body.content().len() as u64);
            }
            Reply::ReservedWithStats(job, body) => {
                add_number(out, job.id.0);
                add_number(out, body.content().len() as u64);
                add_word(out, job.tube.as_str());
                add_number(out, job.priority.0.into());
                add_number(out, job.age);
                for number in [job.delay.0, job.ttr.0].into_iter().chain(job.counters) {
                    add_number(out, number.into());
                }
                if let Some(options) = &job.options {
                    add_word(out, &options.to_string());
                }
            }
            Reply::Watching(count) | Reply::KickedCount(count) => add_number(out, *count as u64),
            Reply::Using(tube) => add_word(out, tube.as_str()),
            Reply::ServerStats(facts, _) | Reply::MoreServerStats(facts) => facts.encode(out),
            Reply::Document(document) => document.encode(out),
            Reply::JobStats(job) => job.facts().encode(out),
            Reply::Tubes(names) => names.encode(out),
            Reply::Jobs(list) => list.document().encode(out),
            _ => {}
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The job's body, which is sent after the bytes of
    /// [`encode`](Self::encode).
    pub fn body(&self) -> Option<&Body> {
        match self {
            Reply::Reserved(_, body) | Reply::Found(_, body) => Some(body),
            Reply::ReservedWithStats(_, body) => Some(body),
            _ => None,
        }
    }

    /// About how much memory it takes until it is sent, as it is and encoded, in bytes.
    pub fn memory(&self) -> usize {
        32 + match self {
            Reply::Tubes(names) => names.reply_len(),
            Reply::JobStats(_) => LISTED_EACH,
            Reply::ReservedWithStats(_, body) => LISTED_EACH + body.wire().len(),
            Reply::Jobs(list) => LISTED_EACH * list.items.len(),
            Reply::ServerStats(facts, _) | Reply::MoreServerStats(facts) => 3 * facts.len(),
            Reply::Document(document) => 3 * document.len(),
            Reply::Using(tube) => tube.as_str().len(),
            reply => reply.body().map_or(0, |body| body.wire().len()),
        }
    }

    /// What must be durable before this reply is sent, because the reply would be
    /// false if that were lost. (`TOUCHED` promises nothing that outlives the process.)
    pub fn depends_on(&self) -> DependsOn {
        match self {
            // The client's own change, which is the latest; or the puts of many jobs.
            // NOT_FOUND may be due to a delete that is not durable yet: a client that
            // repeats a delete whose reply was lost takes it for done.
            Reply::Inserted(_)
            | Reply::InsertedBefore(..)
            | Reply::Deleted
            | Reply::Released
            | Reply::Buried
            | Reply::KickedCount(_)
            | Reply::Kicked
            | Reply::Paused
            | Reply::NotFound
            | Reply::Jobs(_) => DependsOn::AllSoFar,
            Reply::Reserved(id, _) | Reply::Found(id, _) => DependsOn::PutOf(*id),
            Reply::JobStats(job) | Reply::ReservedWithStats(job, _) => DependsOn::PutOf(job.id),
            _ => DependsOn::Nothing,
        }
    }

    /// The first word of the reply, by which clients recognize it.
    pub fn word(&self) -> &'static str {
        match self {
            Reply::Inserted(_) | Reply::InsertedBefore(..) => "INSERTED",
            Reply::ExpectedCrlf => "EXPECTED_CRLF",
            Reply::JobTooBig => "JOB_TOO_BIG",
            Reply::Draining => "DRAINING",
            Reply::Using(_) => "USING",
            Reply::Reserved(..) | Reply::ReservedWithStats(..) => "RESERVED",
            Reply::DeadlineSoon => "DEADLINE_SOON",
            Reply::TimedOut => "TIMED_OUT",
            Reply::NotFound => "NOT_FOUND",
            Reply::Deleted => "DELETED",
            Reply::Released => "RELEASED",
            Reply::Buried => "BURIED",
            Reply::Touched => "TOUCHED",
            Reply::Watching(_) => "WATCHING",
            Reply::NotIgnored => "NOT_IGNORED",
            Reply::Found(..) => "FOUND",
            Reply::KickedCount(_) | Reply::Kicked => "KICKED",
            Reply::Paused => "PAUSED",
            Reply::JobStats(_) | Reply::Document(_) => "OK",
            Reply::ServerStats(..) | Reply::MoreServerStats(_) => "OK",
            Reply::Tubes(_) | Reply::Jobs(_) => "OK",
            Reply::Closed(_) => "CLOSED",
            Reply::OutOfMemory => "OUT_OF_MEMORY",
            Reply::InternalError => "INTERNAL_ERROR",
            Reply::BadFormat => "BAD_FORMAT",
            Reply::UnknownCommand => "UNKNOWN_COMMAND",
        }
    }
}

fn add_word(out: &mut Vec<u8>, word: &str) {
    out.push(b' ');
    out.extend_from_slice(word.as_bytes());
}

fn add_number(out: &mut Vec<u8>, number: u64) {
    out.push(b' ');
    push_number(out, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_sent_with_its_length_and_then_its_body() {
        let reply = Reply::Reserved(JobId(7), Body::new(b"hello"));
        let mut out = Vec::new();
        reply.encode(&mut out);
        out.extend_from_slice(reply.body().unwrap().wire());
        assert_eq!(out, b"RESERVED 7 5\r\nhello\r\n");
    }

    #[test]
    fn numbers_are_written_without_leading_zeros() {
        for (id, line) in [
            (0, "INSERTED 0\r\n"),
            (10, "INSERTED 10\r\n"),
            (u64::MAX, "INSERTED 18446744073709551615\r\n"),
        ] {
            let mut out = Vec::new();
            Reply::Inserted(JobId(id)).encode(&mut out);
            assert_eq!(out, line.as_bytes());
        }
    }
}
