//! `binlog repair` and `binlog export7`: write all that can be read to a new
//! directory, for our own server or for beanstalkd, and report what cannot be
//! read.

use super::live::{Live, name, read, refused, say};
use crate::failure::{Failure, Outcome, Status, plain};
use crate::inspection::Inspection;
use crate::text::output::{complain, print};
use beanpole::binlog::import;
use beanpole::binlog::{Binlog, Options, SyncMode, lens, put_len};
use beanpole::engine::{Change, Counters, StoredJob, StoredState, Time};
use beanpole::protocol::{Body, JobId, Priority, Seconds, TubeName};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest body that beanstalkd reads by default, in bytes, with CR LF.
const ITS_LIMIT: usize = 65_535;
/// How many jobs are written together.
const AT_ONCE: usize = 1000;

/// All jobs that can be read. Flaws and lost jobs are reported.
fn salvage(inspection: &Inspection) -> Outcome<Live> {
    let live = read(inspection, true, |finding| {
        say(finding);
        Ok(())
    })?;
    for loss in live.losses() {
        complain!("{loss}");
    }
    if live.flaws > 0 {
        complain!(
            "what stood there is lost: jobs put there, and what happened there to \
             others, which may come back as they were before, or though they were deleted"
        );
    }
    Ok(live)
}

/// Writes what can be read to a new directory, for our own server.
pub fn repair(inspection: &Inspection, new: &Path) -> Outcome {
    let live = salvage(inspection)?;
    let sound = live.flaws == 0 && live.lost.is_empty();
    make_empty(new)?;
    let options = Options {
        dir: new.into(),
        sync: SyncMode::Never,
        segment_size: Options::SEGMENT_SIZE,
        wait: false,
    };
    let log = Binlog::open(&options, BTreeMap::new())
        .map_err(refused)?
        .binlog;
    let failed = || {
        let full = || format!("there is no room in {}", new.display());
        Failure::Refused(log.failure().map_or_else(full, plain))
    };
    let jobs = live.jobs.into_iter().map(|(id, living)| (id, living.job));
    let mut jobs: BTreeMap<JobId, StoredJob> = jobs.collect();
    let count = jobs.values().filter(|job| !job.is_deleted()).count();
    let write = |jobs: &BTreeMap<_, StoredJob>, id| {
        let (tube_len, keys_len, body_len) = lens(&jobs[&id]);
        let room = log.make_room_to_copy(put_len(id, tube_len, keys_len, body_len));
        room.map_err(|_| failed())?;
        Ok(log.append(&[Change::Put(id)], jobs))
    };
    for (index, id) in jobs.keys().enumerate() {
        let end = write(&jobs, *id)?;
        if index % AT_ONCE == 0 {
            log.commit(end).map_err(|_| failed())?;
        }
    }
    // A server must not give an id twice, even if its job is gone.
    let next = inspection.next_id().0.max(live.highest.saturating_add(1));
    let id = JobId(next - 1);
    if id.0 > 0 && !jobs.contains_key(&id) {
        jobs.insert(id, ghost(id));
        write(&jobs, id)?;
        let (tube_len, keys_len, body_len) = lens(&jobs[&id]);
        let delete = Change::Delete {
            id,
            tube_len,
            body_len,
            keys_len,
        };
        let end = log.append(&[delete], &jobs);
        log.commit(end).map_err(|_| failed())?;
    }
    log.close().map_err(|_| failed())?;
    told(count, sound)
}

/// A job whose only purpose is to use up an id.
fn ghost(id: JobId) -> StoredJob {
    StoredJob {
        id,
        tube: TubeName::default(),
        body: Body::new(b""),
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(1),
        created_at: Time::from_nanos(0),
        state: StoredState::Ready,
        counters: Counters::default(),
        options: None,
    }
}

/// Writes what can be read to a new directory, for beanstalkd 1.12.
pub fn export(inspection: &Inspection, new: &Path) -> Outcome {
    let live = salvage(inspection)?;
    let sound = live.flaws == 0 && live.lost.is_empty();
    make_empty(new)?;
    let path = new.join(name(1));
    let cannot_write = |error| Failure::io(format_args!("cannot write {}", path.display()), error);
    let mut jobs = live.in_order();
    let all = jobs.len();
    jobs.retain(|job| !job.is_deleted());
    let keys = all - jobs.len();
    // At the first job that is too large for it, beanstalkd drops the rest of
    // the file. So these jobs come last, ordered by size: all after such a job
    // are as large at least.
    let too_large = |job: &&StoredJob| Some(job.body.wire().len()).filter(|len| *len > ITS_LIMIT);
    jobs.sort_by_key(too_large);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let write = || -> io::Result<()> {
        let mut file = io::BufWriter::new(options.open(&path)?);
        file.write_all(&import::FILE_START)?;
        let mut bytes = Vec::new();
        for job in &jobs {
            bytes.clear();
            import::encode(job, &mut bytes);
            file.write_all(&bytes)?;
        }
        file.into_inner()?.sync_all()?;
        std::fs::File::open(new)?.sync_all()
    };
    write().map_err(cannot_write)?;
    if let Some(largest) = jobs.last().and_then(too_large) {
        let count = jobs.iter().filter_map(too_large).count();
        complain!(
            "{count} of the jobs are larger than beanstalkd takes by default: start it \
             with -z {largest}, or it drops them for good"
        );
    }
    say_what_is_lost(&jobs, keys);
    told(jobs.len(), sound)
}

/// Says what beanstalkd's files have no place for: the options of puts, and the
/// keys that deleted jobs have left taken.
fn say_what_is_lost(jobs: &[&StoredJob], keys: usize) {
    let options = jobs
        .iter()
        .filter_map(|job| Some(&job.options.as_ref()?.options));
    let (mut unique, mut limit, mut tries) = (0, 0, 0);
    for options in options {
        unique += usize::from(options.unique.is_some());
        limit += usize::from(options.limit.is_some());
        tries += usize::from(options.tries.is_some());
    }
    for (count, what) in [
        (unique, "of the jobs are no longer unique (idp)"),
        (limit, "of the jobs have no limit any more (con)"),
        (tries, "of the jobs are tried without end (try)"),
        (keys, "keys of deleted jobs are no longer taken (idp)"),
    ] {
        if count > 0 {
            complain!("beanstalkd knows no options of a put: {count} {what}");
        }
    }
}

fn told(jobs: usize, sound: bool) -> Outcome {
    print(format!("{jobs}\n"))?;
    Ok(Status::done_if(sound))
}

/// Makes a directory, or accepts one that is empty.
fn make_empty(path: &Path) -> Outcome<()> {
    let fail = |error| Failure::io(format_args!("cannot use {}", path.display()), error);
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(path).map_err(fail)?;
            match entries.next() {
                None => Ok(()),
                Some(_) => Failure::refused(format!("{} is not empty", path.display())),
            }
        }
        other => other.map_err(fail),
    }
}
