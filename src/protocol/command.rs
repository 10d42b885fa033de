//! Command lines: the bytes of one line to a [`Command`].
//!
//! Each variant of [`Command`] documents its grammar, its replies, and what
//! decides between them. The syntax is beanstalkd's: it recognizes commands by their
//! prefix, and it is lenient in some respects and strict in others. We keep these
//! quirks because clients depend on them.
//! [`framing`](super::framing) finds where lines end and where bodies begin.
//!
//! These rules hold for all commands:
//!
//! - The commands of one connection are executed one after the other, each as
//!   if it had come alone. They are answered in the same order.
//! - With a binlog, a reply waits until what it says is as durable as the options
//!   of the server promise: see [`Reply::depends_on`].
//! - `OUT_OF_MEMORY` is a possible reply to each command that needs memory: `put`, `use`,
//!   `watch`, and `list-tubes` and `list-tubes-watched` if the list is long. Then nothing
//!   has changed, except that a put has used up its id.

use super::{JobId, JobState, Priority, PutOptions, Reply, Seconds, TubeName, name};

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `put <pri> <delay> <ttr> <bytes> [<options>]`, then that many bytes and CR
    /// LF: creates a job in the used tube. Replies: `INSERTED <id>` or the first of
    /// these that applies: `JOB_TOO_BIG`, `OUT_OF_MEMORY`, `EXPECTED_CRLF`, `DRAINING`, and
    /// `OUT_OF_MEMORY` again, if the disk, the tube or the keys have no room. With each of
    /// these replies the bytes of the body have been read. The id is given when the line has
    /// come, so every reply except `JOB_TOO_BIG` uses up an id. The job exists only after its
    /// body has come.
    ///
    /// The four [options](PutOptions) are ours. With `idp`, a put that is not refused
    /// may find that its job is there already: `INSERTED <id> <state> [<pri>]`.
    Put(Put),
    /// A `put` with a body that is larger than the server takes. The put gets no id, and
    /// is answered `JOB_TOO_BIG` after these bytes.
    PutTooBig,
    /// `use <tube>`: later puts go there. Reply: `USING <tube>`.
    Use(TubeName),

    /// `reserve`: a job of a watched tube. If there is none, the client waits
    /// for one. Among all ready jobs of these tubes it gets the one with the
    /// smallest priority and, among those, the smallest id. If several clients
    /// wait, the first to come gets the job.
    ///
    /// Replies: the first of these that applies. `RESERVED <id> <bytes>` and
    /// the body: there is a job, or one becomes ready. `DEADLINE_SOON`: a job
    /// that this connection has reserved is in the last second of its time to
    /// run, or enters it while the client waits. `TIMED_OUT`: the client has
    /// closed its sending side.
    ///
    /// `reserve-with-timeout <seconds>`: the same, but the client waits at most
    /// this long (less than 2^31; with 0 it does not wait). With -1 there is no such
    /// limit, because some client libraries send that for 'no timeout'. Replies: as for
    /// `reserve`, and `TIMED_OUT` when the time is over. If `DEADLINE_SOON`
    /// applies at the same moment, it is the reply.
    ///
    /// `reserve-with-stats [<seconds>]`: as `reserve`, or with a number as
    /// `reserve-with-timeout`, but the line of the reply goes on with what a worker
    /// would otherwise ask `stats-job` for: `RESERVED <id> <bytes> <tube> <pri> <age>
    /// <delay> <ttr> <reserves> <timeouts> <releases> <buries> <kicks> [<options>]`. This
    /// command is ours: beanstalkd answers `BAD_FORMAT`.
    Reserve(Ask),
    /// `reserve-job <id>`: this job, unless a client has reserved it. It need
    /// not be ready, and its tube may be paused. Replies: `RESERVED <id>
    /// <bytes>` and the body, `NOT_FOUND`.
    ReserveJob(JobId),
    /// `delete <id>`: removes a job, unless another client has reserved it.
    /// Replies: `DELETED`, `NOT_FOUND`.
    Delete(JobId),
    /// `release <id> <pri> <delay>`: gives a reserved job back. From now on it
    /// has this priority, and it is delayed for this long. Replies: `RELEASED`,
    /// `NOT_FOUND`.
    Release(JobId, Priority, Seconds),
    /// `bury <id> <pri>`: puts a reserved job aside until it is kicked. From
    /// now on it has this priority. Replies: `BURIED`, `NOT_FOUND`.
    Bury(JobId, Priority),
    /// `bury-later <id>`: buries a job that another connection has reserved, at the
    /// moment at which it would be ready again or its worker touches it, so that no other
    /// worker gets it. It holds until the job is no longer reserved, also when this
    /// connection has closed. This command is ours: beanstalkd answers `UNKNOWN_COMMAND`.
    /// Replies: `BURIED`, `NOT_FOUND`.
    BuryLater(JobId),
    /// `touch <id>`: restarts the time to run of a reserved job. Replies:
    /// `TOUCHED`, `NOT_FOUND`.
    Touch(JobId),
    /// `watch <tube>`: later reserves take jobs of this tube too. Reply:
    /// `WATCHING <count>`.
    Watch(TubeName),
    /// `ignore <tube>`: later reserves take no jobs of this tube. Replies:
    /// `WATCHING <count>`, `NOT_IGNORED`.
    Ignore(TubeName),

    /// `peek <id>`: shows a job. Replies: `FOUND <id> <bytes>` and the body,
    /// `NOT_FOUND`.
    Peek(JobId),
    /// `peek-ready`: the next ready job of the used tube. Replies: as `peek`.
    PeekReady,
    /// `peek-delayed`: the job of the used tube whose delay ends first.
    /// Replies: as `peek`.
    PeekDelayed,
    /// `peek-buried`: the job of the used tube that was buried first. Replies:
    /// as `peek`.
    PeekBuried,
    /// `kick <bound>`: makes up to this many buried jobs of the used tube ready.
    /// If the tube has none, it does this to delayed jobs. It kicks one job
    /// after the other, and offers each to the waiting clients before it kicks
    /// the next one. (When delays or times to run end at the same moment, all
    /// their jobs become ready first, and then the waiting clients get the best
    /// of them.) Reply: `KICKED <count>`.
    Kick(u32),
    /// `kick-job <id>`: makes this buried or delayed job ready.
    /// Replies: `KICKED`, `NOT_FOUND`.
    KickJob(JobId),
    /// `pause-tube <tube> <delay>`: for this long, `reserve` takes no job of this
    /// tube. Replies: `PAUSED`, `NOT_FOUND`, or `OUT_OF_MEMORY` if the disk has no room for
    /// a new pause.
    PauseTube(TubeName, Seconds),

    /// `stats`: the server, with beanstalkd's keys and no other, because some clients
    /// refuse what they do not know. Reply: `OK <bytes>` and a YAML dictionary.
    Stats,
    /// `list-server-stats`: what `stats` does not show. This command is ours: beanstalkd
    /// answers `UNKNOWN_COMMAND`. Reply: as `stats`.
    ListServerStats,
    /// `stats-job <id>`: a job. Replies: as `stats`, `NOT_FOUND`.
    StatsJob(JobId),
    /// `stats-tube <tube>`: a tube. Replies: as `stats`, `NOT_FOUND`.
    StatsTube(TubeName),
    /// `list-tubes`: all tubes. Reply: `OK <bytes>` and a YAML list.
    ListTubes,
    /// `list-tube-used`: Reply: `USING <tube>`.
    ListTubeUsed,
    /// `list-tubes-watched`: Reply: `OK <bytes>` and a YAML list.
    ListTubesWatched,
    /// `list-jobs <from> <count> [<tube> [<state>]]`: what `stats-job` shows, and more, of
    /// many jobs, without changing any of them. This command is ours:
    /// beanstalkd answers `UNKNOWN_COMMAND`. Reply: `OK <bytes>` and YAML:
    /// `jobs`, a list with a line for each job, and `next`, the id to continue
    /// from, or 0 after the last job.
    ///
    /// A client that begins with `from` 0 and continues until `next` is 0 sees
    /// each job that exists during all this time exactly once. The server remembers
    /// nothing between two calls, since a job keeps its id. One call examines a
    /// thousand jobs at most, so a list may be shorter than asked, or empty,
    /// while `next` is not 0. A tube that does not exist has no jobs.
    ListJobs(Box<ListJobs>),
    /// `list-connections <from> <count>`: the connections with this id or a higher
    /// one, at most this many and at most 100. This command is ours: beanstalkd
    /// answers `UNKNOWN_COMMAND`. Reply: `OK <bytes>` and YAML: `connections`, a
    /// list with a line for each, and `next`, the id to continue from, or 0 after
    /// the last one.
    ListConnections(u64, u64),
    /// `list-tube-stats <from> <count>`: the same for tubes: what `stats-tube` shows of
    /// each, and more. Their numbers are given in ascending order, too, and never
    /// reused. Reply: as for `list-connections`, with the key `tubes`.
    ListTubeStats(u64, u64),
    /// `close-connection <id>`: ends the connection with this number, as if its peer had
    /// closed it: what has been read of it is executed, and its jobs are ready again. With
    /// one's own number, `quit`. This command is ours: beanstalkd answers
    /// `UNKNOWN_COMMAND`. Replies: `CLOSED`, `NOT_FOUND`.
    CloseConnection(u64),
    /// `quit`: closes the connection. No reply.
    Quit,
    /// A `put` with something else after its numbers, or a `pause-tube` with a name that
    /// no tube can have: it is counted, and then refused with `BAD_FORMAT`.
    Malformed,
}

/// What a reserve asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// How long it may wait; `None` for ever.
    pub timeout: Option<Seconds>,
    /// Whether the answer tells about the job.
    pub with_stats: bool,
}

/// The numbers of a `put` line, and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Smaller is sooner.
    pub priority: Priority,
    /// How long the job stays delayed before it is ready.
    pub delay: Seconds,
    /// The time to run: at least one second, even if the client asked for less.
    pub ttr: Seconds,
    /// The length of the body, without its CR LF.
    pub size: u32,
    /// The options that follow the size, if there are any.
    pub options: Option<Box<PutOptions>>,
    /// Whether anything else follows the size. Then the line is malformed. But
    /// if the size is above the limit, the client gets that error.
    pub trailing: bool,
}

/// The rest of a command that has used up its time slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// A `kick` of very many jobs.
    Kick(Kick),
    /// A reserve, while clients that came before it are to be served first.
    Reserve(Ask),
}

/// What a `kick` has done, and what is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kick {
    /// Whether the tube had a buried job at the start. Then only buried jobs
    /// are kicked.
    pub only_buried: bool,
    /// How many more jobs it may kick at most.
    pub left: usize,
    /// How many it has kicked.
    pub kicked: usize,
}

/// Which jobs a `list-jobs` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListJobs {
    /// Jobs with this id or a higher one.
    pub from: JobId,
    /// At most this many jobs; never 0.
    pub count: u64,
    /// Only jobs in this tube, if one is named.
    pub tube: Option<TubeName>,
    /// Only jobs in this state, if one is named.
    pub state: Option<JobState>,
}

/// Reads what follows the command's name; `None` if it is malformed.
type Arguments = fn(&[u8]) -> Option<Command>;

/// How many commands `stats` counts: not `reserve-job`, `kick-job`, `quit` and our own.
pub const COUNTED: usize = 22;

/// The prefix of each command, in the order in which they are tried: where one
/// prefix begins another, the longer one comes first. After it the command's place among
/// those that `stats` counts.
#[rustfmt::skip]
const COMMANDS: &[(&str, Option<usize>, Arguments)] = &[
    ("put ", Some(0), put),
    ("delete ", Some(7), |rest| id(rest).map(Command::Delete)),
    ("reserve-with-timeout ", Some(6), |rest| Some(reserve(timeout(rest)?, false))),
    ("reserve-with-stats", None, reserve_with_stats),
    ("reserve-job ", None, |rest| id(rest).map(Command::ReserveJob)),
    ("reserve", Some(5), |rest| nothing(rest, reserve(None, false))),
    ("release ", Some(8), release),
    ("touch ", Some(14), |rest| id(rest).map(Command::Touch)),
    ("bury ", Some(12), bury),
    ("bury-later ", None, |rest| id(rest).map(Command::BuryLater)),
    ("use ", Some(9), |rest| TubeName::parse(rest).map(Command::Use)),
    ("watch ", Some(10), |rest| TubeName::parse(rest).map(Command::Watch)),
    ("ignore ", Some(11), |rest| TubeName::parse(rest).map(Command::Ignore)),
    ("peek ", Some(1), |rest| id(rest).map(Command::Peek)),
    ("peek-ready", Some(2), |rest| nothing(rest, Command::PeekReady)),
    ("peek-delayed", Some(3), |rest| nothing(rest, Command::PeekDelayed)),
    ("peek-buried", Some(4), |rest| nothing(rest, Command::PeekBuried)),
    ("kick ", Some(13), |rest| kick_bound(rest).map(Command::Kick)),
    ("kick-job ", None, |rest| id(rest).map(Command::KickJob)),
    ("pause-tube", Some(21), pause_tube),
    ("stats-job ", Some(16), |rest| id(rest).map(Command::StatsJob)),
    ("stats-tube ", Some(17), |rest| TubeName::parse(rest).map(Command::StatsTube)),
    ("stats", Some(15), |rest| nothing(rest, Command::Stats)),
    ("list-tubes-watched", Some(20), |rest| nothing(rest, Command::ListTubesWatched)),
    ("list-tubes", Some(18), |rest| nothing(rest, Command::ListTubes)),
    ("list-tube-used", Some(19), |rest| nothing(rest, Command::ListTubeUsed)),
    ("list-server-stats", None, |rest| nothing(rest, Command::ListServerStats)),
    ("list-jobs ", None, list_jobs),
    ("list-connections ", None, |rest| page(rest, Command::ListConnections)),
    ("close-connection ", None, |rest| id(rest).map(|JobId(id)| Command::CloseConnection(id))),
    ("list-tube-stats ", None, |rest| page(rest, Command::ListTubeStats)),
    ("quit", None, |_| Some(Command::Quit)),
];

/// The name of each command, the extensions included.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(prefix, ..)| prefix.trim_end())
}

/// The names of those that `stats` counts, in its order.
pub fn counted() -> impl Iterator<Item = &'static str> {
    let at = |place| COMMANDS.iter().find(|(_, its, _)| *its == Some(place));
    (0..COUNTED)
        .filter_map(at)
        .map(|(prefix, ..)| prefix.trim_end())
}

/// Parses a line, given without its CR LF. Returns the command, and before it its place
/// among those that are [counted], if it is one of them.
///
/// # Errors
///
/// The reply to a line that is no command.
pub fn parse(line: &[u8]) -> Result<(Option<usize>, Command), Reply> {
    if line.contains(&0) {
        return Err(Reply::BadFormat);
    }
    let (prefix, place, arguments) = COMMANDS
        .iter()
        .find(|(prefix, ..)| line.starts_with(prefix.as_bytes()))
        .ok_or(Reply::UnknownCommand)?;
    let command = arguments(&line[prefix.len()..]).ok_or(Reply::BadFormat)?;
    Ok((*place, command))
}

fn nothing(rest: &[u8], command: Command) -> Option<Command> {
    rest.is_empty().then_some(command)
}

fn id(mut rest: &[u8]) -> Option<JobId> {
    let id = JobId(number(&mut rest)?);
    rest.is_empty().then_some(id)
}

fn put(mut rest: &[u8]) -> Option<Command> {
    let mut put = Put {
        priority: Priority(number_u32(&mut rest)?),
        delay: Seconds(number_u32(&mut rest)?),
        ttr: Seconds(number_u32(&mut rest)?.max(1)),
        size: number_u32(&mut rest)?,
        options: None,
        trailing: false,
    };
    if !rest.is_empty() {
        put.options = PutOptions::parse(rest).map(Box::new);
        put.trailing = put.options.is_none();
    }
    Some(Command::Put(put))
}

/// How long a reserve may wait; `Some(None)`: without a limit.
fn timeout(mut rest: &[u8]) -> Option<Option<Seconds>> {
    if rest == b"-1" {
        return Some(None);
    }
    let seconds = number_u32(&mut rest)?;
    let in_range = i32::try_from(seconds).is_ok();
    in_range.then_some(Some(Seconds(seconds)))
}

fn reserve(timeout: Option<Seconds>, with_stats: bool) -> Command {
    Command::Reserve(Ask {
        timeout,
        with_stats,
    })
}

fn reserve_with_stats(rest: &[u8]) -> Option<Command> {
    match rest.strip_prefix(b" ") {
        Some(rest) => Some(reserve(timeout(rest)?, true)),
        None => nothing(rest, reserve(None, true)),
    }
}

fn release(mut rest: &[u8]) -> Option<Command> {
    let id = JobId(number(&mut rest)?);
    let priority = Priority(number_u32(&mut rest)?);
    let delay = Seconds(number_u32(&mut rest)?);
    nothing(rest, Command::Release(id, priority, delay))
}

fn bury(mut rest: &[u8]) -> Option<Command> {
    let id = JobId(number(&mut rest)?);
    let priority = Priority(number_u32(&mut rest)?);
    nothing(rest, Command::Bury(id, priority))
}

fn pause_tube(mut rest: &[u8]) -> Option<Command> {
    skip_spaces(&mut rest);
    let end = rest.iter().position(|&byte| !name::is_name_byte(byte))?;
    let (name, mut rest) = rest.split_at(end);
    let delay = Seconds(number_u32(&mut rest)?);
    let pause = match TubeName::parse(name) {
        Some(tube) => Command::PauseTube(tube, delay),
        None => Command::Malformed,
    };
    nothing(rest, pause)
}

/// The number at which a list begins, and how many items it may have.
fn page(mut rest: &[u8], list: fn(u64, u64) -> Command) -> Option<Command> {
    let from = number(&mut rest)?;
    let count = number(&mut rest).filter(|&count| count > 0)?;
    nothing(rest, list(from, count))
}

fn list_jobs(mut rest: &[u8]) -> Option<Command> {
    let from = JobId(number(&mut rest)?);
    let count = number(&mut rest).filter(|&count| count > 0)?;
    let words: Vec<&[u8]> = rest.split(|&byte| byte == b' ').collect();
    let (tube, state) = match words[..] {
        [b""] => (None, None),
        [b"", tube] => (Some(TubeName::parse(tube)?), None),
        [b"", tube, state] => (Some(TubeName::parse(tube)?), Some(JobState::parse(state)?)),
        _ => return None,
    };
    Some(Command::ListJobs(Box::new(ListJobs {
        from,
        count,
        tube,
        state,
    })))
}

/// The bound of `kick`, read as C's `strtoul` reads it and then cut to 32 bits:
/// `-1` means all jobs, 4294967296 means none, and text after the number is
/// ignored.
fn kick_bound(rest: &[u8]) -> Option<u32> {
    // C's white space has a vertical tab that Rust's lacks.
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let spaces = rest.iter().take_while(|byte| is_space(byte)).count();
    let rest = &rest[spaces..];
    let (negative, mut rest) = match rest.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, rest),
    };
    if rest.first() == Some(&b' ') {
        return None;
    }
    let jobs = number(&mut rest)? as u32;
    Some(if negative { jobs.wrapping_neg() } else { jobs })
}

/// Takes a number from the front: spaces, then digits. It is no number if
/// anything else comes before the digits (a sign, a tab), or if its value is
/// 2^64 or more.
fn number(rest: &mut &[u8]) -> Option<u64> {
    skip_spaces(rest);
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(count);
    *rest = after;
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    digits.iter().try_fold(0, add).filter(|_| count > 0)
}

pub(super) fn number_u32(rest: &mut &[u8]) -> Option<u32> {
    number(rest)?.try_into().ok()
}

fn skip_spaces(rest: &mut &[u8]) {
    while let Some((b' ', after)) = rest.split_first() {
        *rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reply::{BadFormat as Malformed, UnknownCommand as Unknown};

    fn parse(line: &[u8]) -> Result<Command, Reply> {
        super::parse(line).map(|(_, command)| command)
    }

    fn tube(name: &str) -> TubeName {
        TubeName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn a_put_has_four_numbers_and_perhaps_options() {
        let expected = Put {
            priority: Priority(4294967295),
            delay: Seconds(0),
            ttr: Seconds(1),
            size: 5,
            options: None,
            trailing: false,
        };
        let numbers = parse(b"put 4294967295  00 0 5");
        assert_eq!(numbers, Ok(Command::Put(expected.clone())));
        let with_options = Put {
            options: PutOptions::parse(b" try:3").map(Box::new),
            ..expected.clone()
        };
        let options = parse(b"put 4294967295 0 0 5 try:3");
        assert_eq!(options, Ok(Command::Put(with_options)));
        let trailing = Put {
            trailing: true,
            ..expected
        };
        assert_eq!(parse(b"put 4294967295 0 0 5 "), Ok(Command::Put(trailing)));
        for bad in ["put ", "put 0 0 0", "put 4294967296 0 0 0", "put -1 0 0 0"] {
            assert_eq!(parse(bad.as_bytes()), Err(Malformed), "{bad}");
        }
    }

    #[test]
    fn commands_are_recognized_by_their_prefix() {
        for line in [
            "reserve-with-timeout",
            "reserve-job",
            "stats-job",
            "stats-tube",
            "pause-tube",
            "statsx",
            "stats ",
            "peek-readyx",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Malformed), "{line}");
        }
        for line in [
            "put", "peek", "kick", "use", "delete", "", "puts", " stats", "STATS",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Unknown), "{line}");
        }
        assert_eq!(parse(b"quitting time"), Ok(Command::Quit));
        assert_eq!(parse(b"stats\0"), Err(Malformed));
    }

    #[test]
    fn a_number_may_have_spaces_and_zeros_before_it_and_nothing_else() {
        assert_eq!(parse(b"delete   007"), Ok(Command::Delete(JobId(7))));
        assert_eq!(
            parse(b"delete 18446744073709551615"),
            Ok(Command::Delete(JobId(u64::MAX)))
        );
        for bad in ["+7", "-7", "\t7", "7 ", "7x", "18446744073709551616", ""] {
            assert_eq!(parse(format!("delete {bad}").as_bytes()), Err(Malformed));
        }
    }

    #[test]
    fn a_timeout_ignores_trailing_bytes_and_is_below_two_to_the_31() {
        let seconds = |n| Ok(reserve(Some(Seconds(n)), false));
        assert_eq!(parse(b"reserve-with-timeout 5xyz"), seconds(5));
        assert_eq!(
            parse(b"reserve-with-timeout 2147483647"),
            seconds(2147483647)
        );
        let endless = Ok(reserve(None, false));
        assert_eq!(parse(b"reserve-with-timeout -1"), endless);
        for bad in [
            "2147483648",
            "-2",
            "-0",
            "-1 ",
            "-10",
            "+1",
            "undefined",
            "",
        ] {
            let line = format!("reserve-with-timeout {bad}");
            assert_eq!(parse(line.as_bytes()), Err(Malformed));
        }
    }

    #[test]
    fn kick_reads_its_bound_as_strtoul_does() {
        for (text, bound) in [
            ("5", 5),
            ("+5 and so on", 5),
            ("-1", u32::MAX),
            (" \t\x0b 7", 7),
            ("4294967296", 0),
        ] {
            let line = format!("kick {text}");
            assert_eq!(parse(line.as_bytes()), Ok(Command::Kick(bound)), "{line}");
        }
        for bad in ["", "x", "- 5", "18446744073709551616"] {
            assert_eq!(parse(format!("kick {bad}").as_bytes()), Err(Malformed));
        }
    }

    #[test]
    fn pause_tube_needs_no_space_before_its_name() {
        let pause = Ok(Command::PauseTube(tube("default"), Seconds(3)));
        assert_eq!(parse(b"pause-tubedefault 3"), pause);
        assert_eq!(parse(b"pause-tube   default   3"), pause);
        assert_eq!(parse(b"pause-tube -x 3"), Ok(Command::Malformed));
        for bad in ["pause-tube default", "pause-tube 3 ", "pause-tube * 3"] {
            assert_eq!(parse(bad.as_bytes()), Err(Malformed), "{bad}");
        }
    }

    #[test]
    fn list_jobs_takes_an_id_a_count_and_perhaps_a_tube_and_a_state() {
        let list = |from, count, name: Option<&str>, state| {
            Ok(Command::ListJobs(Box::new(ListJobs {
                from: JobId(from),
                count,
                tube: name.map(tube),
                state,
            })))
        };
        let most = u64::MAX;
        assert_eq!(parse(b"list-jobs 0 1"), list(0, 1, None, None));
        let line = format!("list-jobs {most} {most} a");
        assert_eq!(parse(line.as_bytes()), list(most, most, Some("a"), None));
        let reserved = Some(JobState::Reserved);
        let expected = list(7, 10, Some("a"), reserved);
        assert_eq!(parse(b"list-jobs 7 10 a reserved"), expected);
        for bad in [
            "",
            "1",
            "1 0",
            "1 2 ",
            "1 2x",
            "1 2 a ",
            "1 2  a",
            "1 2 -a",
            "1 2 a b",
            "1 2 a ready ",
            "1 2 a ready b",
            "1 18446744073709551616",
            "-1 2",
            "a 2",
        ] {
            assert_eq!(
                parse(format!("list-jobs {bad}").as_bytes()),
                Err(Malformed),
                "{bad}"
            );
        }
        assert_eq!(parse(b"list-jobs"), Err(Unknown));
    }

    #[test]
    fn list_connections_takes_an_id_and_a_count() {
        let list = |from, count| Ok(Command::ListConnections(from, count));
        assert_eq!(parse(b"list-connections 0 1"), list(0, 1));
        let line = format!("list-connections {0} {0}", u64::MAX);
        assert_eq!(parse(line.as_bytes()), list(u64::MAX, u64::MAX));
        for bad in ["", "1", "1 0", "1 2 ", "1 2 a", "-1 2", "a 2"] {
            let line = format!("list-connections {bad}");
            assert_eq!(parse(line.as_bytes()), Err(Malformed), "{bad}");
        }
        assert_eq!(parse(b"list-connections"), Err(Unknown));
        assert_eq!(
            parse(b"list-tube-stats 2 9"),
            Ok(Command::ListTubeStats(2, 9))
        );
    }

    #[test]
    fn a_name_follows_exactly_one_space() {
        assert_eq!(parse(b"use a"), Ok(Command::Use(tube("a"))));
        assert_eq!(parse(b"use  a"), Err(Malformed));
        assert_eq!(parse(b"watch a "), Err(Malformed));
    }
}
