//! `binlog`: shows the content of a server's log while no server runs.
//!
//! Nothing in the directory is changed; what is saved goes to another
//! directory. While a server has the directory locked, nothing is read.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status, plain};
use crate::inspection::{Finding, Inspection};
use crate::text::counted;
use crate::text::json::{self, Json, json};
use crate::text::output::{Output, WholeFile, complain, print};
use beanpole::binlog::import;
use beanpole::binlog::{Binlog as Log, Error, Options, Record, SyncMode, put_len};
use beanpole::engine::{Change, JobFields, StoredJob, StoredState};
use beanpole::protocol::{Body, JobId, Seconds, TubeName};
use clap::{Args, ValueEnum, ValueHint};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(override_usage = "beanpole binlog [OPTIONS] verify|cat DIR | repair|export7 DIR NEW")]
pub struct Binlog {
    #[arg(value_name = "WHAT")]
    what: What,
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath)]
    new: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Verify,
    Cat,
    Repair,
    Export7,
}

impl Run for Binlog {
    fn run(self, _: &Invocation) -> Outcome {
        let dir = &self.dir;
        match (self.what, &self.new) {
            (What::Verify, None) => verify(&inspect(dir)?, dir),
            (What::Cat, None) => cat(&inspect(dir)?),
            (What::Repair, Some(new)) => save(&inspect(dir)?, new, repair),
            (What::Export7, Some(new)) => save(&inspect(dir)?, new, export),
            (_, Some(_)) => Failure::usage("verify and cat take one directory"),
            (_, None) => {
                Failure::usage("repair and export7 take a directory, and a new one to write to")
            }
        }
    }
}

/// Reads the whole log, so that every checksum is checked.
fn verify(inspection: &Inspection, dir: &Path) -> Outcome {
    let mut output = Output::new();
    let live = read(inspection, false, |finding| match in_words(finding) {
        Some(text) => output.line(text),
        None => Ok(()),
    })?;
    for loss in live.losses() {
        output.line(loss)?;
    }
    let verdict = if live.is_sound() { "sound" } else { "damaged" };
    output.line(format_args!(
        "{verdict}: {}, {}, {} live",
        counted(inspection.files.len() as u64, "file"),
        counted(live.records, "record"),
        counted(live.there().count() as u64, "job"),
    ))?;
    output.sync()?;
    if !live.is_sound() {
        let dir = dir.display();
        complain!("'beanpole binlog repair {dir} NEW' saves what can be read");
    }
    Ok(Status::done_if(live.is_sound()))
}

/// Writes every record as a line of JSON.
fn cat(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let live = read(inspection, false, |finding| {
        say(finding)?;
        record_line(finding).map_or(Ok(()), |line| output.json(&line))
    })?;
    output.sync()?;
    Ok(Status::done_if(live.is_sound()))
}

fn record_line(finding: &Finding) -> Option<Json> {
    let (at, record) = match finding {
        Finding::Record(at, record) => (at, Ok(record)),
        Finding::Theirs(at, id, record) => (at, record.as_ref().ok_or(id)),
        _ => return None,
    };
    let line = match record {
        Ok(Record::Put(job)) => {
            let fields = &job.fields;
            let mut line = json!({
                "record": "job", "id": fields.id.0, "tube": job.tube.as_str(),
                "pri": fields.priority.0, "delay": fields.delay.0, "ttr": fields.ttr.0,
                "created-ns": fields.created_at.as_nanos(),
            });
            add_state(&mut line, fields);
            if let Some(options) = &job.options {
                line["options"] = options.to_string().into();
                line["tries-failed"] = fields.failed_tries.into();
            }
            let (key, body) = json::body(job.body.content());
            line[key] = body;
            line
        }
        Ok(Record::Update(fields)) => {
            let mut line = json!({
                "record": "update", "id": fields.id.0, "pri": fields.priority.0,
                "delay": fields.delay.0,
            });
            add_state(&mut line, fields);
            line["tries-failed"] = fields.failed_tries.into();
            line
        }
        Ok(Record::Delete(id)) => json!({"record": "delete", "id": id.0}),
        Ok(Record::Mark(oldest)) => json!({"record": "mark", "oldest": oldest}),
        Err(id) => json!({"record": "not whole", "id": id.0}),
    };
    let mut placed = json!({"file": name(at.number), "offset": at.offset});
    placed.as_object_mut()?.extend(line.as_object()?.clone());
    Some(placed)
}

fn add_state(line: &mut Json, fields: &JobFields) {
    let (name, number) = match fields.state {
        StoredState::Ready => ("ready", None),
        StoredState::Delayed { until } => ("delayed", Some(("until-ns", until.as_nanos()))),
        StoredState::Buried { order } => ("buried", Some(("order", order))),
        StoredState::Deleted { until } => ("deleted", Some(("until-ns", until.as_nanos()))),
    };
    line["state"] = name.into();
    if let Some((key, number)) = number {
        line[key] = number.into();
    }
    let counters = &fields.counters;
    line["reserves"] = counters.reserves.into();
    line["timeouts"] = counters.timeouts.into();
    line["releases"] = counters.releases.into();
    line["buries"] = counters.buries.into();
    line["kicks"] = counters.kicks.into();
}

/// The result of reading a log.
#[derive(Default)]
struct Live {
    jobs: BTreeMap<JobId, StoredJob>,
    /// Jobs that live according to a record, but no record has their content.
    lost: BTreeSet<JobId>,
    /// The highest id in a record.
    highest: u64,
    /// How many times a job of beanstalkd was buried up to now. Its log has no
    /// order of burial, so this number serves as one.
    buried: u64,
    /// How many things were found that should not be.
    flaws: usize,
    /// How many records there are.
    records: u64,
}

/// Opens the log in this directory.
fn inspect(path: &Path) -> Outcome<Inspection> {
    let inspection = Inspection::of(path).map_err(refused)?;
    if inspection.files.is_empty() && !inspection.is_gone {
        let nothing = format!("there is no file of a binlog in {}", path.display());
        return Err(Failure::Missing(nothing));
    }
    Ok(inspection)
}

/// Reads the whole log, and gives each finding to `each`. Bodies are kept only if
/// `whole` says so: a log may be larger than the memory.
fn read(
    inspection: &Inspection,
    whole: bool,
    mut each: impl FnMut(&Finding) -> Outcome<()>,
) -> Outcome<Live> {
    let mut live = Live::default();
    let mut outcome = Ok(());
    let reading = inspection.read(&mut |finding| {
        if outcome.is_ok() {
            outcome = each(&finding);
            live.note(finding, whole);
        }
    });
    reading.map_err(refused)?;
    outcome.map(|()| live)
}

impl Live {
    fn is_sound(&self) -> bool {
        self.flaws == 0 && self.lost.is_empty()
    }

    /// The jobs, without those of which only a key is left.
    fn there(&self) -> impl Iterator<Item = &StoredJob> {
        self.jobs.values().filter(|job| !job.is_deleted())
    }

    /// What is to be said of each job that is lost.
    fn losses(&self) -> impl Iterator<Item = String> {
        let lost = self.lost.iter();
        lost.map(|id| format!("job {id} is lost: no record says what it was"))
    }

    fn note(&mut self, finding: Finding, whole: bool) {
        let (is_theirs, record) = match finding {
            Finding::Record(_, record) => (false, Ok(record)),
            Finding::Theirs(_, id, record) => (true, record.ok_or(id)),
            Finding::Torn(..) => return,
            Finding::Flaw(..) | Finding::Missing(_) | Finding::Gone => {
                self.flaws += 1;
                return;
            }
        };
        self.records += 1;
        match record {
            Ok(Record::Put(mut job)) => {
                self.place(&mut job.fields, is_theirs);
                if !whole {
                    job.body = Body::new(b"");
                }
                self.lost.remove(&job.fields.id);
                self.jobs.insert(job.fields.id, job);
            }
            Ok(Record::Update(mut fields)) => {
                self.place(&mut fields, is_theirs);
                if let Some(job) = self.jobs.get_mut(&fields.id) {
                    job.fields = fields;
                } else if !is_theirs {
                    // The job may still come: compaction may have moved it here
                    // from a file that was removed. In a log of beanstalkd, an
                    // update before the complete job has no effect.
                    self.lost.insert(fields.id);
                }
            }
            Ok(Record::Delete(id)) => {
                self.highest = self.highest.max(id.0);
                self.lost.remove(&id);
                self.jobs.remove(&id);
            }
            Ok(Record::Mark(_)) => {}
            Err(id) => {
                self.flaws += 1;
                self.highest = self.highest.max(id.0);
                if !self.jobs.contains_key(&id) {
                    self.lost.insert(id);
                }
            }
        }
    }

    /// Counts the id of a job. If a job of beanstalkd is buried, it gets a place in the
    /// order of burial, and keeps it as long as it stays buried.
    fn place(&mut self, fields: &mut JobFields, is_theirs: bool) {
        self.highest = self.highest.max(fields.id.0);
        if let StoredState::Buried { order } = &mut fields.state
            && is_theirs
        {
            *order = match self.jobs.get(&fields.id).map(|job| job.fields.state) {
                Some(StoredState::Buried { order }) => order,
                _ => {
                    self.buried += 1;
                    self.buried
                }
            };
        }
    }
}

/// The failure for a log that cannot be read.
fn refused(error: Error) -> Failure {
    Failure::Refused(match error {
        Error::Locked(path) => format!("a server uses {}: stop it first", path.display()),
        other => plain(other),
    })
}

/// The name of the file with this number.
fn name(number: u32) -> String {
    format!("binlog.{number}")
}

/// Describes a finding on standard error, if it is worth a message.
fn say(finding: &Finding) -> Outcome<()> {
    if let Some(text) = in_words(finding) {
        complain!("{text}");
    }
    Ok(())
}

/// The description of a finding. A record needs none.
fn in_words(finding: &Finding) -> Option<String> {
    let (at, text) = match finding {
        Finding::Flaw(at, bytes, flaw) => (at, format!("{bytes} bytes cannot be read: {flaw}")),
        Finding::Torn(at, bytes) => {
            let torn = format!("{bytes} bytes were never finished: a server drops them");
            (at, torn)
        }
        Finding::Theirs(at, id, None) => (at, format!("the body of job {id} is not whole")),
        Finding::Missing(number) => return Some(format!("{}: missing, and needed", name(*number))),
        Finding::Gone => return Some("all segments are missing or empty".into()),
        Finding::Record(..) | Finding::Theirs(..) => return None,
    };
    Some(format!(
        "{} at offset {}: {text}",
        name(at.number),
        at.offset
    ))
}

/// The longest body that beanstalkd reads by default, in bytes, with CR LF.
const ITS_LIMIT: usize = 65_535;
/// Writes all jobs that can be read to a new directory. Flaws and lost jobs are
/// reported. Prints how many jobs `write` has written.
fn save(
    inspection: &Inspection,
    new: &Path,
    write: fn(&Inspection, Live, &Path) -> Outcome<usize>,
) -> Outcome {
    let live = read(inspection, true, say)?;
    for loss in live.losses() {
        complain!("{loss}");
    }
    if live.flaws > 0 {
        complain!(
            "the records there are lost: jobs that were put there, and changes of others, \
             which may come back as they were before, or although they were deleted"
        );
    }
    make_empty(new)?;
    let is_sound = live.is_sound();
    print(format!("{}\n", write(inspection, live, new)?))?;
    Ok(Status::done_if(is_sound))
}

/// Writes the jobs for our own server.
fn repair(inspection: &Inspection, live: Live, new: &Path) -> Outcome<usize> {
    let options = Options {
        dir: new.into(),
        sync: SyncMode::Never,
        segment_size: Options::SEGMENT_SIZE,
        wait: false,
    };
    let log = Log::open(&options, &mut BTreeMap::new())
        .map_err(refused)?
        .binlog;
    let failed = || {
        let full = || format!("there is no room in {}", new.display());
        Failure::Refused(log.failure().map_or_else(full, plain))
    };
    let count = live.there().count();
    let mut jobs = live.jobs;
    let write = |jobs: &BTreeMap<_, StoredJob>, id| {
        let room = log.make_room_to_copy(put_len(&jobs[&id]));
        room.map_err(|_| failed())?;
        log.commit(log.append(&[Change::Put(id)], jobs))
            .map_err(|_| failed())
    };
    jobs.keys().try_for_each(|id| write(&jobs, *id))?;
    // A server must not give an id twice, even if its job is deleted.
    let next = inspection.next_id().0.max(live.highest.saturating_add(1));
    let id = JobId(next - 1);
    if id.0 > 0 && !jobs.contains_key(&id) {
        jobs.insert(id, ghost(id));
        write(&jobs, id)?;
        log.append(&[Change::Delete(id, jobs[&id].lengths())], &jobs);
    }
    log.close().map_err(|_| failed())?;
    Ok(count)
}

/// A job whose only purpose is to use up an id.
fn ghost(id: JobId) -> StoredJob {
    StoredJob {
        fields: JobFields {
            id,
            ttr: Seconds(1),
            ..JobFields::default()
        },
        tube: TubeName::default(),
        options: None,
        body: Body::new(b""),
    }
}

/// Writes the jobs for beanstalkd 1.12. Its server has them as they are here if
/// they come by id, and the buried ones in the order of burial.
fn export(_: &Inspection, live: Live, new: &Path) -> Outcome<usize> {
    let mut jobs: Vec<_> = live.there().collect();
    // At the first job that is too large for it, beanstalkd drops the rest of
    // the file. So these jobs come last, ordered by size: all after such a job
    // are as large at least.
    let too_large = |job: &&StoredJob| Some(job.body.wire().len()).filter(|len| *len > ITS_LIMIT);
    jobs.sort_by_key(|job| match job.fields.state {
        StoredState::Buried { order } => (too_large(job), Some(order)),
        _ => (too_large(job), None),
    });
    let mut file = WholeFile::create(&new.join(name(1)), 0o600)?;
    file.bytes(&import::FILE_START)?;
    let mut bytes = Vec::new();
    for job in &jobs {
        bytes.clear();
        import::encode(job, &mut bytes);
        file.bytes(&bytes)?;
    }
    file.finish()?;
    if let Some(largest) = jobs.last().and_then(too_large) {
        let count = jobs.iter().filter_map(too_large).count();
        complain!(
            "{count} of the jobs are larger than beanstalkd takes by default: start it \
             with -z {largest}, or it drops them for good"
        );
    }
    // Its files have no place for the options of puts, and for the keys that
    // deleted jobs have left taken.
    let have = jobs.iter().filter(|job| job.options.is_some()).count();
    let keys = live.jobs.len() - jobs.len();
    if have + keys > 0 {
        complain!(
            "beanstalkd knows no options of a put: {have} of the jobs lose theirs (idp, con, try), \
             and {keys} keys of deleted jobs are no longer taken"
        );
    }
    Ok(jobs.len())
}

/// Makes a directory, or accepts one that is empty.
fn make_empty(path: &Path) -> Outcome<()> {
    let fail = |error| Failure::io(format_args!("cannot use {}", path.display()), error);
    std::fs::create_dir_all(path).map_err(fail)?;
    match std::fs::read_dir(path).map_err(fail)?.next() {
        None => Ok(()),
        Some(_) => Failure::refused(format!("{} is not empty", path.display())),
    }
}
