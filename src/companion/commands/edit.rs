//! `edit`: changes the body of a job in an editor.
//!
//! A body cannot be changed, so the job is put again and the old one is deleted.
//! Until then the old one stays where it is. If somebody takes it meanwhile, the
//! new one is deleted again, and nothing has changed.

use crate::command::{Invocation, Run, ids};
use crate::failure::{Failure, Outcome, Status};
use crate::server::by_id::{complain_of_each, send_each};
use crate::server::place::{Placed, Placement, Placer};
use crate::server::stats::{JobFacts, State};
use crate::server::take::bodies;
use crate::text::output::{complain, print};
use beanpole::protocol::JobId;
use clap::Args;
use std::fs::{OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Edit {
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// leave a buried job buried (default: it becomes ready)
    #[arg(long)]
    buried: bool,
}

impl Run for Edit {
    fn run(self, invocation: &Invocation) -> Outcome {
        let [id] = ids(&self.ids)?[..] else {
            return Failure::usage("which job? give one id");
        };
        let mut client = invocation.connect()?;
        let jobs = client
            .job(id)?
            .into_iter()
            .filter(|job| job.state != State::Reserved);
        let jobs = bodies(&mut client, jobs.collect())?;
        let Some((job, body)) = jobs.into_iter().next() else {
            complain_of_each(&mut client, [id])?;
            return Ok(Status::No);
        };
        let file = Draft::new(id, &body)?;
        let edited = file.edited(&body)?;
        if edited == body {
            complain!("job {id} is as it was");
            return Ok(Status::No);
        }
        // The editor may have taken longer than a server keeps idle connections.
        let replaced = replace(invocation, &job, edited, self.buried);
        replaced
            .map_err(|failure| file.kept(failure))
            .and_then(print_id)
    }
}

fn print_id(id: Option<JobId>) -> Outcome {
    match id {
        Some(id) => print(format!("{id}\n")),
        None => Ok(Status::No),
    }
}

/// Puts the new job and deletes the old one. Returns the id of the new one;
/// `None` if the old one was not to be had.
fn replace(
    invocation: &Invocation,
    job: &JobFacts,
    body: Vec<u8>,
    stays_buried: bool,
) -> Outcome<Option<JobId>> {
    let mut placement = Placement::of(job, job.tube.clone(), body);
    placement.buried &= stays_buried;
    let mut placer = Placer::new(invocation.connect()?);
    let Placed { ids, outcome, .. } = placer.place(&[placement]);
    outcome?;
    let mut client = invocation.connect()?;
    if !send_each(&mut client, [job.id], "delete")?.is_empty() {
        placer.take_away(&ids)?;
        return Failure::refused(format!(
            "job {} was taken by somebody else meanwhile; nothing has changed",
            job.id
        ));
    }
    Ok(ids.first().copied())
}

/// The file that is edited. It is removed at the end, unless it is kept.
struct Draft {
    path: PathBuf,
    is_kept: std::cell::Cell<bool>,
}

impl Draft {
    /// A file with this body, for nobody else to read.
    fn new(id: JobId, body: &[u8]) -> Outcome<Draft> {
        let name = format!("beanpole-job-{id}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let create = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(body)
        };
        create()
            .map_err(|error| Failure::io(format_args!("cannot write {}", path.display()), error))?;
        Ok(Draft {
            path,
            is_kept: false.into(),
        })
    }

    /// What the editor makes of this body. A line feed that it adds at the end
    /// does not count.
    fn edited(&self, before: &[u8]) -> Outcome<Vec<u8>> {
        run_editor(&self.path)?;
        let read = std::fs::read(&self.path);
        let shown = self.path.display();
        let mut after =
            read.map_err(|error| Failure::io(format_args!("cannot read {shown}"), error))?;
        if !before.ends_with(b"\n") && after.ends_with(b"\n") {
            after.pop();
        }
        Ok(after)
    }

    /// The failure that says where the text still is.
    fn kept(&self, failure: Failure) -> Failure {
        self.is_kept.set(true);
        failure.with(format_args!(
            "the edited body is in {}",
            self.path.display()
        ))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // It may be gone.
            let _ = remove_file(&self.path);
        }
    }
}

/// Runs the editor of the user on this file. Its command may have arguments.
fn run_editor(path: &Path) -> Outcome<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL")
        .or_else(|| set("EDITOR"))
        .unwrap_or("vi".into());
    let mut command = std::process::Command::new("sh");
    let run = command
        .args(["-c", &format!("{editor} \"$0\"")])
        .arg(path)
        .status();
    let status = run.map_err(|error| Failure::io(format_args!("cannot start {editor}"), error))?;
    match status.success() {
        true => Ok(()),
        false => Failure::refused(format!("{editor} failed: nothing has changed")),
    }
}
