//! `binlog`: shows the content of a server's log while no server runs.
//!
//! Nothing in the directory is changed; what is saved goes to another
//! directory. While a server has the directory locked, nothing is read.

use crate::command::{Invocation, Run};
use crate::failure::{Failure, Outcome, Status, plain};
use crate::inspection::{Finding, Inspection};
use crate::text::json::{self, Json, json};
use crate::text::{Output, complain, counted, listed, print, shell_word};
use beanpole::binlog::import::{self, their_name};
use beanpole::binlog::recovery::recover;
use beanpole::binlog::{Error, Options, Record, SyncMode, lock};
use beanpole::engine::{JobFields, StoredJob, StoredPause, StoredState};
use beanpole::protocol::jobs::COUNTERS;
use beanpole::protocol::{Body, JobId, Seconds, TubeName};
use clap::{Args, ValueEnum, ValueHint};
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
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
        let inspect = || Inspection::of(&self.dir).map_err(refused);
        match (self.what, &self.new) {
            (What::Verify, None) => verify(&inspect()?),
            (What::Cat, None) => cat(&inspect()?),
            (What::Repair, Some(new)) => save(&inspect()?, new, repair),
            (What::Export7, Some(new)) => save(&inspect()?, new, export),
            (_, Some(_)) => Failure::usage("verify and cat take one directory"),
            (_, None) => {
                Failure::usage("repair and export7 take a directory, and a new one to write to")
            }
        }
    }
}

/// Reads the whole log, so that every checksum is checked.
fn verify(inspection: &Inspection) -> Outcome {
    let mut output = Output::new();
    let live = read(inspection, false, |finding| match finding.words() {
        Some(text) => output.line(text),
        None => Ok(()),
    })?;
    for loss in &live.losses {
        output.line(loss)?;
    }
    let taken = inspection.taken_bytes();
    if taken > 0 {
        output.line(format_args!(
            "files binlog.*.taken have {taken} bytes, and no server needs them"
        ))?;
    }
    let verdict = if live.is_sound() { "sound" } else { "damaged" };
    let pauses = match live.pauses.len() as u64 {
        0 => String::new(),
        pauses => format!(", {}", counted(pauses, "pause")),
    };
    output.line(format_args!(
        "{verdict}: {}, {}, {} live{pauses}",
        counted(live.files, "file"),
        counted(live.records, "record"),
        counted(live.there().count() as u64, "job"),
    ))?;
    output.sync()?;
    if !live.is_sound() {
        let dir = shell_word(&inspection.path.to_string_lossy());
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
        Ok(Record::Pause(pause)) => json!({
            "record": "pause", "tube": pause.tube.as_str(), "length": pause.length.0,
            "until-ns": pause.until.as_nanos(),
        }),
        Err(id) => json!({"record": "not whole", "id": id.0}),
    };
    let mut placed = json!({"file": at.name, "offset": at.offset});
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
    for (key, count) in COUNTERS.into_iter().zip(fields.counters) {
        line[key] = count.into();
    }
}

/// The result of reading a log.
#[derive(Default)]
struct Live {
    /// The jobs that live according to a record; `None` where no record has the content.
    jobs: BTreeMap<JobId, Option<StoredJob>>,
    pauses: BTreeMap<TubeName, StoredPause>,
    /// The highest id in a record.
    highest: u64,
    /// How many things were found that should not be.
    flaws: usize,
    /// How many records and files there are.
    records: u64,
    files: u64,
    /// What is lost or cannot be taken over, a line each.
    losses: Vec<String>,
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
    let reading = inspection.read(whole, &mut |finding| {
        if outcome.is_ok() {
            outcome = each(&finding);
            live.note(finding, whole);
        }
    });
    let (theirs, files) = reading.map_err(refused)?;
    outcome?;
    live.files = files as u64;
    if files == 0 && live.flaws == 0 {
        let path = inspection.path.display();
        let nothing = format!("there is no file of a binlog in {path}");
        return Err(Failure::Missing(nothing));
    }
    let unknown = live.jobs.iter().filter(|(_, job)| job.is_none());
    let lost = unknown.map(|(id, _)| format!("job {id} is lost: no record says what it was"));
    live.losses = lost.chain(theirs.flaws()).collect();
    live.highest = live.highest.max(theirs.highest);
    let theirs = theirs.jobs.into_iter();
    live.jobs.extend(theirs.map(|(id, job)| (id, Some(job))));
    // A tube without jobs is forgotten with its pause.
    let tubes: BTreeSet<_> = live.there().map(|job| job.tube.clone()).collect();
    let is_there = |tube: &TubeName| tubes.contains(tube) || *tube == TubeName::default();
    live.pauses.retain(|tube, _| is_there(tube));
    Ok(live)
}

impl Live {
    fn is_sound(&self) -> bool {
        self.flaws == 0 && self.losses.is_empty()
    }

    /// The jobs, without those of which only a key is left.
    fn there(&self) -> impl Iterator<Item = &StoredJob> {
        let known = self.jobs.values().flatten();
        known.filter(|job| !job.is_deleted())
    }

    fn note(&mut self, finding: Finding, whole: bool) {
        match finding {
            Finding::Record(_, record) => self.apply(record, whole),
            Finding::Theirs(..) => self.records += 1,
            Finding::Flaw(_) => self.flaws += 1,
            Finding::Note(_) => {}
        }
    }

    fn apply(&mut self, record: Record, whole: bool) {
        self.records += 1;
        match record {
            Record::Put(mut job) => {
                let id = job.fields.id;
                self.highest = self.highest.max(id.0);
                if !whole {
                    job.body = Body::new(b"");
                }
                self.jobs.insert(id, Some(job));
            }
            Record::Update(fields) => {
                self.highest = self.highest.max(fields.id.0);
                // Its content may still come: compaction may have moved it here from a file
                // that was removed.
                if let Some(job) = self.jobs.entry(fields.id).or_default() {
                    job.fields = fields;
                }
            }
            Record::Delete(id) => {
                self.highest = self.highest.max(id.0);
                self.jobs.remove(&id);
            }
            Record::Pause(pause) => {
                self.pauses.remove(&pause.tube);
                if pause.length > Seconds(0) {
                    self.pauses.insert(pause.tube.clone(), pause);
                }
            }
            Record::Mark(_) => {}
        }
    }
}

/// The failure for a log that cannot be read.
fn refused(error: Error) -> Failure {
    Failure::Refused(match error {
        Error::Locked(path) => format!(
            "a server or another such command uses {}: stop it first",
            path.display()
        ),
        other => plain(other),
    })
}

/// Says on standard error what is to be said of a finding.
fn say(finding: &Finding) -> Outcome<()> {
    if let Some(words) = finding.words() {
        complain!("{words}");
    }
    Ok(())
}

/// The longest body that beanstalkd reads by default, in bytes, with CR LF.
const ITS_LIMIT: usize = 65_535;

/// What writes jobs to a new directory, and says how many.
type Saving = fn(&Inspection, Live, &Path) -> Outcome<usize>;

/// Writes all jobs that can be read to a new directory. Flaws and lost jobs are
/// reported. Prints how many jobs `write` has written.
fn save(inspection: &Inspection, new: &Path, write: Saving) -> Outcome {
    let live = read(inspection, true, say)?;
    for loss in &live.losses {
        complain!("{loss}");
    }
    if live.flaws > 0 {
        complain!(
            "the records there are lost: jobs that were put there, and changes of others, \
             which may come back as they were before, or although they were deleted"
        );
    }
    let is_sound = live.is_sound();
    // No server can start on a part of the jobs: it gets its name when it is whole.
    let part = new.with_added_extension("part");
    let parent = part.parent().filter(|parent| *parent != "");
    let parent = parent.unwrap_or(Path::new("."));
    must_be_new(new)?;
    let fail = |error| Failure::io(format_args!("cannot use {}", part.display()), error);
    fs::create_dir_all(parent).map_err(fail)?;
    match fs::create_dir(&part) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let part = part.display();
            return Failure::refused(format!(
                "{part} is left from such a command that did not end: remove it first"
            ));
        }
        made => made.map_err(fail)?,
    }
    let saved = write(inspection, live, &part).and_then(|count| {
        let renamed = give_away(&part, &inspection.path)
            .and_then(|()| sync_names(&part))
            .and_then(|()| fs::rename(&part, new))
            .and_then(|()| sync_names(parent));
        renamed.map(|()| count).map_err(fail)
    });
    let count = saved.inspect_err(|_| drop(fs::remove_dir_all(&part)))?;
    print(format!("{count}\n"))?;
    Ok(Status::done_if(is_sound))
}

/// Writes the jobs for our own server.
fn repair(inspection: &Inspection, live: Live, new: &Path) -> Outcome<usize> {
    let failed = |error: Error| {
        let text = plain(error);
        Failure::Refused(text.replace("the binlog directory", &new.display().to_string()))
    };
    let (storage, _) = lock(new, false).map_err(failed)?;
    let (len, none) = (Options::SEGMENT_SIZE, &mut BTreeMap::new());
    let opened = recover(storage, SyncMode::Never, len, none).map_err(failed)?;
    // A server must not give an id twice, even if its job is deleted.
    let next = inspection.next_id().0.max(live.highest.saturating_add(1));
    let count = live.there().count();
    let jobs = live.jobs.into_values().flatten().map(Record::Put);
    let pauses = live.pauses.into_values().map(Record::Pause);
    let copied = opened.binlog.copy(jobs.chain(pauses), JobId(next));
    copied.map(|()| count).map_err(failed)
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
    let path = new.join(their_name(1));
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(&import::FILE_START)?;
        let mut bytes = Vec::new();
        for job in &jobs {
            bytes.clear();
            import::encode(job, &mut bytes);
            file.write_all(&bytes)?;
        }
        file.sync_all()
    };
    write().map_err(Failure::of(format_args!("cannot write {}", path.display())))?;
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
    let keys = live.jobs.values().flatten().count() - jobs.len();
    if have + keys > 0 {
        complain!(
            "beanstalkd knows no options of a put: {have} of the jobs lose theirs (idp, con, try, exp), \
             and {keys} keys of deleted jobs are no longer taken"
        );
    }
    if !live.pauses.is_empty() {
        let tubes: Vec<_> = live.pauses.keys().collect();
        complain!(
            "beanstalkd keeps no pauses: pause these again: {}",
            listed(&tubes)
        );
    }
    Ok(jobs.len())
}

/// A failure unless there is no such directory, or it is empty, and another one can be
/// renamed to it.
fn must_be_new(path: &Path) -> Outcome<()> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link || path.file_name().is_none() {
        let path = path.display();
        return Failure::refused(format!("{path} is no name for a new directory"));
    }
    let (found, parent) = (fs::metadata(path), fs::metadata(path.join("..")));
    if found.is_ok_and(|found| parent.is_ok_and(|parent| found.dev() != parent.dev())) {
        let path = path.display();
        return Failure::refused(format!("{path} is a mount point: name a directory in it"));
    }
    match fs::read_dir(path).map(|mut names| names.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Failure::refused(format!("{} is not empty", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::io(
            format_args!("cannot use {}", path.display()),
            error,
        )),
    }
}

/// Gives a directory and its files to the owner of another one: the server that has to read
/// them may not be root. Only root can do that.
fn give_away(directory: &Path, like: &Path) -> io::Result<()> {
    let (owner, own) = (fs::metadata(like)?, fs::metadata(directory)?);
    if !geteuid().is_root() || (owner.uid(), owner.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    let give = |path: &Path| chown(path, Some(owner.uid()), Some(owner.gid()));
    for entry in fs::read_dir(directory)? {
        give(&entry?.path())?;
    }
    give(directory)
}

/// Makes the names in a directory durable, if the file system can do that.
fn sync_names(directory: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, Unsupported};
    match File::open(directory)?.sync_all() {
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported) => Ok(()),
        done => done,
    }
}
