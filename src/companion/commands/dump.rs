//! `dump`: writes the jobs of a server, or of some tubes, as a file that `load`
//! reads.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::Outcome;
use crate::server::finder;
use crate::server::form::{dump_end, dump_start, job_to_json};
use crate::server::list::Scope;
use crate::server::stats::State;
use crate::server::take::{Room, bodies, jobs_of};
use crate::server::trouble::listed;
use crate::server::tubes::stats_of;
use crate::text::file::WholeFile;
use crate::text::json::{self, Json};
use crate::text::output::{Output, Progress, complain};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::Path;

#[derive(Args)]
pub struct Dump {
    #[command(flatten)]
    tubes: Tubes,
    /// write to this file when all is there (default: stdout)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
}

impl Run for Dump {
    fn run(self, invocation: &Invocation) -> Outcome {
        let tubes = self.tubes.patterns();
        let mut client = invocation.connect()?;
        let version = client.server_stats()?.text("version").to_owned();
        let scope = Scope {
            tubes: tubes.existing(&mut client)?,
            states: State::ALL.into(),
        };
        let (ids, status) = finder::all(&mut client, &scope)?;
        // No other user may read the bodies.
        let create = |path| WholeFile::create(Path::new(path), 0o600);
        let mut file = self.output.as_ref().map(create).transpose()?;
        let mut output = Output::new();
        let mut write = |line: Json| match &mut file {
            Some(file) => file.bytes((json::line(&line) + "\n").as_bytes()),
            None => output.json(&line),
        };
        write(dump_start(&client.address.to_string(), &version))?;
        let mut progress = Progress::new("dumping", Some(ids.len() as u64));
        let mut room = Room::default();
        let mut left = ids.as_slice();
        let mut jobs = 0u64;
        while !left.is_empty() {
            let now = left.split_off(..room.jobs().min(left.len()));
            let now = now.unwrap_or_default();
            let there = jobs_of(&mut client, now.iter().copied())?;
            let batch = bodies(&mut client, there)?;
            room.learn(batch.iter().map(|(_, body)| body.len()));
            for (job, body) in &batch {
                write(job_to_json(job.id, Some(&job.all), body))?;
            }
            jobs += batch.len() as u64;
            progress.add(now.len() as u64);
        }
        write(dump_end(jobs))?;
        drop(progress);
        match file {
            Some(file) => file.finish()?,
            None => output.sync()?,
        }
        let names = tubes.meant(&mut client)?;
        let stats = stats_of(&mut client, &names)?;
        let paused = stats
            .iter()
            .filter(|(_, facts)| facts.number("pause-time-left") > 0);
        let paused: Vec<_> = paused.map(|(tube, _)| tube).collect();
        if !paused.is_empty() {
            complain!(
                "a dump has no pauses: pause these where it is loaded: {}",
                listed(&paused)
            );
        }
        Ok(status)
    }
}
