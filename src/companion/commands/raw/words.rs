//! The words of the protocol, for completion and for help at the prompt.

use beanpole::protocol::command::{Command, parse};
use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::{OsStr, OsString};

/// The commands, with their arguments.
pub const COMMANDS: &[(&str, &str)] = &[
    ("put", "<pri> <delay> <ttr> [<bytes>]"),
    ("use", "<tube>"),
    ("reserve", ""),
    ("reserve-with-timeout", "<seconds>"),
    ("reserve-job", "<id>"),
    ("delete", "<id>"),
    ("release", "<id> <pri> <delay>"),
    ("bury", "<id> <pri>"),
    ("touch", "<id>"),
    ("watch", "<tube>"),
    ("ignore", "<tube>"),
    ("peek", "<id>"),
    ("peek-ready", ""),
    ("peek-delayed", ""),
    ("peek-buried", ""),
    ("kick", "<bound>"),
    ("kick-job", "<id>"),
    ("stats", ""),
    ("stats-job", "<id>"),
    ("stats-tube", "<tube>"),
    // Only beanpoled has these two.
    ("list-jobs", "<from> <count> [<tube> [<state>]]"),
    ("list-connections", "<from> <count>"),
    ("list-tubes", ""),
    ("list-tube-used", ""),
    ("list-tubes-watched", ""),
    ("pause-tube", "<tube> <seconds>"),
    ("quit", ""),
];

/// Any words of a command line, of which a shell can complete the first.
#[derive(Clone)]
pub struct Any;

impl TypedValueParser for Any {
    type Value = OsString;

    fn parse_ref(
        &self,
        _: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        Ok(value.into())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = COMMANDS.iter().map(|(name, _)| PossibleValue::new(*name));
        Some(Box::new(names))
    }
}

/// The arguments of this command.
fn arguments(command: &str) -> &'static str {
    let known = COMMANDS.iter().find(|(name, _)| *name == command);
    known.map_or("", |(_, arguments)| arguments)
}

/// If this line asks for help: the beginning of the commands that it asks
/// about.
pub fn help_wanted(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let asked = matches!(words.next(), Some("help" | "?"));
    asked.then(|| words.next().unwrap_or(""))
}

/// The commands that begin so, with their arguments.
pub fn help(beginning: &str) -> String {
    let commands = COMMANDS
        .iter()
        .filter(|(name, _)| name.starts_with(beginning));
    let lines = commands.map(|(name, arguments)| format!("{name} {arguments}").trim_end().into());
    let last = "After put comes the body; without <bytes> they are counted.".into();
    lines.chain([last]).collect::<Vec<String>>().join("\n")
}

/// The arguments of the command in this line that are still to be typed. While
/// a word is being typed, they come after a space.
pub fn hint(line: &str) -> String {
    let mut words = line.split(' ');
    let arguments = arguments(words.next().unwrap_or_default());
    let typed = words.filter(|word| !word.is_empty()).count();
    let left: Vec<&str> = arguments.split(' ').skip(typed).collect();
    let left = left.join(" ");
    match left.is_empty() || line.ends_with(' ') {
        true => left,
        false => format!(" {left}"),
    }
}

/// What the last word of this line can become. If the word is a tube, `tubes`
/// gives the names.
pub fn candidates(line: &str, tubes: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let (mut candidates, word) = match line.split_once(' ') {
        None => (
            COMMANDS
                .iter()
                .map(|(name, _)| String::from(*name))
                .collect(),
            line,
        ),
        Some((command, word))
            if !word.contains(' ') && arguments(command).starts_with("<tube>") =>
        {
            (tubes(), word)
        }
        Some(_) => return Vec::new(),
    };
    candidates.retain(|candidate| candidate.starts_with(word));
    candidates
}

/// Whether the command of this line takes another word after those that it has.
pub fn more_follow(line: &str) -> bool {
    let mut given = line.split(' ');
    let arguments = arguments(given.next().unwrap_or_default());
    arguments.split_whitespace().count() > given.count()
}

/// Whether this line is a `put` that lacks nothing but the number of bytes.
pub fn is_put_without_size(line: &str) -> bool {
    let with_size = parse(format!("{} 0", line.trim_end()).as_bytes());
    parse(line.as_bytes()).is_err() && matches!(with_size, Ok(Command::Put(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_by_what_may_stand_there() {
        let tubes = || {
            vec![
                String::from("mail"),
                String::from("mails"),
                String::from("x"),
            ]
        };
        let complete = |line: &str| candidates(line, tubes).join(" ");
        assert_eq!(complete("res"), "reserve reserve-with-timeout reserve-job");
        assert_eq!(complete("stats-t"), "stats-tube");
        assert_eq!(complete("use ma"), "mail mails");
        assert_eq!(complete("pause-tube x"), "x");
        assert_eq!(complete("pause-tube x "), "");
        assert_eq!(complete("delete m"), "");
        assert_eq!(complete("nonsense m"), "");
        for (line, more) in [
            ("stats", false),
            ("use", true),
            ("use x", false),
            ("pause-tube x", true),
        ] {
            assert_eq!(more_follow(line), more, "{line}");
        }
    }

    #[test]
    fn the_arguments_that_are_missing_are_known() {
        assert!(is_put_without_size("put 1 2 3"));
        assert!(!is_put_without_size("put 1 2 x"));
        for (line, left) in [
            ("release", " <id> <pri> <delay>"),
            ("release ", "<id> <pri> <delay>"),
            ("release 1", " <pri> <delay>"),
            ("release 1 ", "<pri> <delay>"),
            ("release 1 2 3", ""),
            ("release 1 2 3 4", ""),
            ("stats", ""),
            ("stats ", ""),
            ("rel", ""),
        ] {
            assert_eq!(hint(line), left, "{line}");
        }
        assert_eq!(help_wanted("help put"), Some("put"));
        assert_eq!(help_wanted("?"), Some(""));
        assert_eq!(help_wanted("put help"), None);
    }
}
