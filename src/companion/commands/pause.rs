//! `pause` keeps tubes from giving out jobs for a while. `resume` is another
//! word for a pause of 0.

use crate::command::{Invocation, Run, word, words};
use crate::failure::{Failure, Outcome, Status};
use crate::server::tubes::{Pattern, Patterns};
use crate::values::parse;
use beanpole::protocol::{Seconds, TubeName};
use clap::Args;

#[derive(Args)]
#[command(override_usage = "beanpole pause [OPTIONS] [TUBE…] TIME")]
pub struct Pause {
    /// the tubes, and at the end the time
    #[arg(value_name = "TUBE")]
    operands: Vec<String>,
    /// a tube; may be repeated (default: the operands)
    #[arg(short, long = "tube", value_name = "TUBE", value_parser = parse::<Pattern>)]
    tubes: Vec<Pattern>,
    /// all tubes that are there now
    #[arg(long)]
    all: bool,
}

impl Run for Pause {
    fn run(mut self, invocation: &Invocation) -> Outcome {
        let Some((time, names)) = self.operands.split_last() else {
            return Failure::usage("which tube, and for how long?");
        };
        let Seconds(time) = word(time)?;
        self.tubes.extend(words::<Pattern>(names)?);
        if self.all != self.tubes.is_empty() {
            return Failure::usage("which tubes? name them, or give --all");
        }
        let mut client = invocation.connect()?;
        let tubes = match self.all {
            true => client.tubes()?,
            false => Patterns(self.tubes).named(&mut client)?,
        };
        let line = |tube: &TubeName| format!("pause-tube {tube} {time}");
        let mut missing = None;
        client.each(tubes, line, |tube, line, reply| {
            if !reply.is_done(line)? {
                missing.get_or_insert(Failure::no_tube(&tube));
            }
            Ok(())
        })?;
        // With --all, a tube may be gone since the list was made: that is no
        // failure.
        missing.filter(|_| !self.all).map_or(Ok(Status::Done), Err)
    }
}
