//! `clear`: deletes the jobs of a tube.

use crate::command::{Command, Invocation, Kind, STATE, YES, described, options, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::reply::Reply;
use crate::server::stats::{Facts, FreeState, State, in_order};
use crate::server::sweep::Sweep;
use crate::signals::interrupts;
use crate::text::output::{Output, Progress, confirm};
use beanpole::protocol::TubeName;
use std::sync::atomic::Ordering;

pub const CLEAR: Command = Command {
    name: "clear",
    operands: "TUBE",
    operand_kind: Kind::Tube,
    about: "delete the ready, delayed and buried jobs of a tube, after a question",
    options: || described(OPTIONS),
    run: clear,
    ..Command::BLANK
};

options! {
    states: Vec<FreeState> = STATE,
    yes: bool = YES,
}

fn clear(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let [name] = invocation.operands() else {
        return Err(Failure::Usage("which tube? give one".into()));
    };
    let tube: TubeName = word(name)?;
    let states = in_order(&options.states);
    let mut client = invocation.connect()?;
    let Some(facts) = client.tube_stats(&tube)? else {
        return Err(Failure::no_tube(&tube));
    };
    let mut left = states
        .iter()
        .map(|state| facts.number(state.count_key()))
        .sum::<u64>();
    if left > 0 && !options.yes {
        let question = format!(
            "Delete {} of tube '{tube}' at {}?",
            in_words(&facts, &states),
            invocation.address()
        );
        if !confirm(question)? {
            return Ok(Status::No);
        }
    }
    let interrupted = interrupts()?;
    let goes_on = |left| left > 0 && !interrupted.load(Ordering::SeqCst);
    let mut progress = Progress::new("deleting", Some(left));
    let mut deleted = 0;
    // Ready jobs last: meanwhile others may become ready. Whatever producers
    // add, no more are deleted than the question was about.
    for state in states {
        let mut sweep = Sweep::new(tube.clone(), state);
        while goes_on(left) {
            let mut jobs = sweep.next(&mut client)?;
            if jobs.is_empty() {
                break;
            }
            jobs.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            client.each(
                jobs.iter().map(|job| job.id),
                |id| format!("delete {id}"),
                |id, reply| {
                    match reply {
                        Reply::Deleted => {
                            deleted += 1;
                            left -= 1;
                            progress.add(1);
                        }
                        // A worker was faster.
                        Reply::NotFound => {}
                        other => {
                            return Err(Failure::unexpected(format_args!("delete {id}"), &other));
                        }
                    }
                    Ok(())
                },
            )?;
        }
    }
    drop(progress);
    let mut output = Output::new();
    output.line(deleted)?;
    output.sync()?;
    match left > 0 && !goes_on(left) {
        true => Err(Failure::interrupted(deleted, deleted + left)),
        false => Ok(Status::Done),
    }
}

/// So many jobs in these states: '3 ready and 1 buried jobs'.
fn in_words(facts: &Facts, states: &[State]) -> String {
    let counted = states
        .iter()
        .rev()
        .map(|state| (facts.number(state.count_key()), state.name()));
    let parts: Vec<_> = counted
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    match parts.as_slice() {
        [only] => format!("{only} jobs"),
        [first @ .., last] => format!("{} and {last} jobs", first.join(", ")),
        [] => "no jobs".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_what_there_is() {
        let facts = Facts::parse(
            b"---\ncurrent-jobs-ready: 3\ncurrent-jobs-delayed: 1\ncurrent-jobs-buried: 2\n",
        );
        let facts = facts.unwrap();
        let all = [State::Buried, State::Delayed, State::Ready];
        assert_eq!(
            in_words(&facts, &all),
            "3 ready, 1 delayed and 2 buried jobs"
        );
        assert_eq!(in_words(&facts, &all[..2]), "1 delayed and 2 buried jobs");
        assert_eq!(in_words(&facts, &all[..1]), "2 buried jobs");
        assert_eq!(in_words(&Facts::default(), &all), "no jobs");
    }
}
