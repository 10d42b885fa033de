//! `clear`: deletes the jobs of a tube.

use crate::command::{Command, Invocation, Kind, STATE, YES, described, options, word};
use crate::failure::{Failure, Outcome, Status};
use crate::server::stats::{Facts, FreeState, State, in_order};
use crate::server::sweep::Sweep;
use crate::signals::interrupts;
use crate::text::output::{Progress, confirm, print};
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
        return Failure::usage("which tube? give one");
    };
    let tube: TubeName = word(name)?;
    let states = in_order(&options.states);
    let mut client = invocation.connect()?;
    let facts = client.known_tube(&tube)?;
    let mut left = facts.jobs_in(&states);
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
    // Ready jobs come last, because others may become ready meanwhile. No more
    // jobs are deleted than the question named, whatever producers add.
    for state in states {
        let mut sweep = Sweep::new(tube.clone(), state);
        while goes_on(left) {
            let sent = sweep.send_to_next(&mut client, left, "delete")?;
            let Some(count) = sent else { break };
            deleted += count;
            left -= count;
            progress.add(count);
        }
    }
    drop(progress);
    print(format!("{deleted}\n"))?;
    match left > 0 && !goes_on(left) {
        true => Err(Failure::interrupted(deleted, deleted + left)),
        false => Ok(Status::Done),
    }
}

/// The jobs in these states in words, as in '3 ready and 1 buried jobs'.
fn in_words(facts: &Facts, states: &[State]) -> String {
    let counted = states
        .iter()
        .rev()
        .map(|state| (facts.jobs_in(&[*state]), state.name()));
    let some = counted.filter(|(count, _)| *count > 0);
    let parts: Vec<_> = some
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
