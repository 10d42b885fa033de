//! The list of commands.

use crate::command::{Entry, Group};
use crate::commands::{
    acts, binlog, check, clients, completion, console, dump, help, ls, metrics, pause, peek, ping,
    put, raw, reserve, stats, tail, top, tubes, why, work,
};

/// All commands, in the order of the help.
#[rustfmt::skip]
pub const GROUPS: &[Group] = &[
    Group { title: "Look", changes: false, commands: &[
        Entry::of::<top::Top>("top", "show servers and their tubes on a live screen"),
        Entry::of::<console::Serve>("console", "serve a page for the browser that shows servers, tubes and jobs"),
        Entry::of::<why::Why>("why", "say what keeps jobs from being done, the worst first"),
        Entry::of::<stats::Stats>("stats", "show the statistics of the server, of a tube or of a job"),
        Entry::of::<tubes::List>("tubes", "list the tubes and what is in them"),
        Entry::of::<clients::Clients>("clients", "list the connections: who puts, who works and who waits"),
        Entry::of::<metrics::Metrics>("metrics", "write the statistics as text for Prometheus, or serve them"),
        Entry::of::<check::Check>("check", "say in one line whether a server is well, for monitoring"),
        Entry::of::<ping::Ping>("ping", "measure how fast servers answer"),
        Entry::of::<tail::Tail>("tail", "show jobs as they are put, of all tubes or of some"),
        Entry::of::<ls::Ls>("ls", "list the jobs of a server or of some tubes"),
        Entry::of::<peek::Peek>("peek", "show jobs: those with these ids, or the next of a tube"),
    ] },
    Group { title: "Touch", changes: true, commands: &[
        Entry::of::<put::Put>("put", "put jobs into a tube and print their ids"),
        Entry::of::<reserve::Reserve>("reserve", "take jobs and write their bodies; release, delete or bury them then"),
        Entry::of::<acts::Edit>("edit", "change the body of a job in $EDITOR, and put it again"),
        Entry::of::<acts::Delete>("delete", "delete jobs"),
        Entry::of::<acts::Bury>("bury", "bury jobs"),
        Entry::of::<acts::Release>("release", "make jobs ready, or delayed, with a new priority if wanted"),
        Entry::of::<acts::KickJob>("kick-job", "make buried or delayed jobs ready"),
        Entry::of::<acts::Kick>("kick", "make N (default: 1) buried jobs ready, or delayed ones if none is buried"),
        Entry::of::<pause::Pause>("pause", "let nothing be reserved from tubes for TIME; 0 ends that, as does 'resume TUBE'"),
        Entry::of::<acts::Clear>("clear", "delete the ready, delayed and buried jobs of tubes, after a question"),
        Entry::of::<acts::Move>("move", "move the jobs of a tube to another, on this server or another"),
        Entry::of::<acts::Copy>("copy", "copy the jobs of a tube to another, on this server or another"),
        Entry::of::<work::Work>("work", "run a command for each job, the body on its standard input"),
        Entry::of::<raw::Raw>("raw", "speak the protocol: one command, a script from a pipe, or a prompt"),
    ] },
    Group { title: "Move house", changes: true, commands: &[
        Entry::of::<dump::Dump>("dump", "write all jobs, or those of some tubes, for load to read"),
        Entry::of::<put::Load>("load", "put the jobs of a dump into a server"),
        Entry::of::<binlog::Binlog>("binlog", "look into a server's binlog while no server uses it, or save what is in it"),
    ] },
    Group { title: "About itself", changes: false, commands: &[
        Entry::of::<completion::Completion>("completion", "write the completion for a shell"),
        Entry::of::<help::Help>("help", "show the commands, how to use one, or the protocol on one screen"),
    ] },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_command_has_one_name_and_its_options_are_sound() {
        let mut names = HashSet::new();
        for command in GROUPS.iter().flat_map(|group| group.commands) {
            assert!(names.insert(command.name), "{}", command.name);
            command.parser().debug_assert();
        }
    }
}
