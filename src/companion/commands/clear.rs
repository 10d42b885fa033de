//! `clear`: deletes the jobs of a tube.

use crate::command::{Command, DRY_RUN, Invocation, Kind, YES, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::selection::{SELECTION, Selection};
use crate::server::by_id::send_each;
use crate::server::change;
use crate::server::list::{MOST, Scope};
use crate::server::stats::{Facts, State};
use crate::server::task::Task;
use crate::server::tubes::stats_of;
use crate::text::output::{confirm, print};
use beanpole::protocol::TubeName;

pub const CLEAR: Command = Command {
    name: "clear",
    operands: "TUBE…",
    operand_kind: Kind::Tube,
    about: "delete the ready, delayed and buried jobs of tubes, after a question",
    options: || [described(OPTIONS), described(SELECTION)].concat(),
    run: clear,
    ..Command::BLANK
};

options! {
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
}

fn clear(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let tubes = invocation.tubes()?;
    if tubes.0.is_empty() {
        return Failure::usage("which tube? give one");
    }
    let mut client = invocation.connect()?;
    let selection = Selection::of(invocation, OPTIONS.len(), &mut client, &tubes)?.free()?;
    let Scope { tubes, states } = &selection.scope;
    let mut status = Status::Done;
    let ((what, left), ids) = match selection.is_plain() {
        true => {
            let stats = stats_of(&mut client, tubes)?;
            (in_words(&stats, states, selection.most()), None)
        }
        false => {
            let (ids, found) = selection.ids(&mut client)?;
            status = found;
            ((format!("{} jobs", ids.len()), ids.len() as u64), Some(ids))
        }
    };

    if options.dry_run {
        return print(format!("{left}\n"));
    }
    if left > 0 && !options.yes {
        let place = match tubes.as_slice() {
            [tube] => format!("tube '{tube}'"),
            several => format!("{} tubes", several.len()),
        };
        let question = format!("Delete {what} of {place} at {}?", invocation.address());
        if !confirm(question)? {
            return Ok(Status::No);
        }
    }
    // No more jobs are deleted than the question named, whatever producers add.
    let mut task = Task::new("deleting", left);
    match ids {
        None => {
            for tube in tubes {
                change::delete_in(&mut client, tube, states, &mut task)?;
            }
        }
        Some(ids) => {
            for some in ids.chunks(MOST) {
                if !task.goes_on()? {
                    break;
                }
                let missing = send_each(&mut client, some.iter().copied(), "delete")?;
                task.drop(missing.len() as u64);
                task.add((some.len() - missing.len()) as u64);
            }
        }
    }
    task.finish(Ok(()))?;
    Ok(status)
}

/// The jobs of these tubes in these states in words, as in '3 ready and 1 buried
/// jobs', and how many they are; at most so many.
fn in_words(tubes: &[(TubeName, Facts)], states: &[State], most: u64) -> (String, u64) {
    let count = |state: State| {
        tubes
            .iter()
            .map(|(_, facts)| facts.jobs_in(&[state]))
            .sum::<u64>()
    };
    let all: u64 = states.iter().map(|state| count(*state)).sum();
    if most < all {
        return (format!("{most} jobs"), most);
    }
    let counted = states
        .iter()
        .rev()
        .map(|state| (count(*state), state.name()));
    let some = counted.filter(|(count, _)| *count > 0);
    let parts: Vec<_> = some
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let words = match parts.as_slice() {
        [only] => format!("{only} jobs"),
        [first @ .., last] => format!("{} and {last} jobs", first.join(", ")),
        [] => "no jobs".into(),
    };
    (words, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_what_there_is() {
        let facts = Facts::parse(
            b"---\ncurrent-jobs-ready: 3\ncurrent-jobs-delayed: 1\ncurrent-jobs-buried: 2\n",
        );
        let tubes = [(TubeName::default_tube(), facts.unwrap())];
        let all = [State::Buried, State::Delayed, State::Ready];
        let words = |states, most| in_words(&tubes, states, most).0;
        let most = u64::MAX;
        assert_eq!(words(&all, most), "3 ready, 1 delayed and 2 buried jobs");
        assert_eq!(words(&all[..2], most), "1 delayed and 2 buried jobs");
        assert_eq!(words(&all[..1], most), "2 buried jobs");
        assert_eq!(words(&all, 5), "5 jobs");
        assert_eq!(in_words(&[], &all, most), ("no jobs".into(), 0));
    }
}
