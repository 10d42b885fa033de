//! `dump`: writes the jobs of a server, or of some tubes, as a file that `load`
//! reads.

use crate::command::{Invocation, Run, Tubes};
use crate::failure::Outcome;
use crate::server::finder::{self, MOST, Scope, each_body, jobs_of};
use crate::server::form::{dump_end, dump_start, job_to_json};
use crate::server::stats::State;
use crate::server::trouble::listed;
use crate::server::tubes::stats_of;
use crate::text::json::{self, Json};
use crate::text::output::WholeFile;
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
        let (ids, status) = finder::all(&mut client, &scope, usize::MAX)?;
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
        let mut jobs = 0u64;
        for some in ids.chunks(MOST) {
            let there = jobs_of(&mut client, some.iter().map(|(id, _)| *id))?;
            each_body(&mut client, there, |job, body| {
                jobs += 1;
                write(job_to_json(job.id, Some(&job.all), &body))
            })?;
            progress.add(some.len() as u64);
        }
        write(dump_end(jobs))?;
        drop(progress);
        match file {
            Some(file) => file.finish()?,
            None => output.sync()?,
        }
        let names = tubes.meant(&mut client)?;
        let mut paused = stats_of(&mut client, &names)?;
        paused.retain(|(_, facts)| facts.number("pause-time-left") > 0);
        let paused: Vec<_> = paused.iter().map(|(tube, _)| tube).collect();
        if !paused.is_empty() {
            complain!(
                "a dump has no pauses: pause these where it is loaded: {}",
                listed(&paused)
            );
        }
        Ok(status)
    }
}
