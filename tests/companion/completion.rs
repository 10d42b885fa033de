//! Completions, in the shells that they are for, as far as these are there.

use std::process::Command;
use support::session::Scene;

/// What a shell writes that reads `before`, the completion that is written for it, and
/// `after`. `None` if this machine does not have the shell.
fn shell(command: &str, before: &str, after: &str) -> Option<String> {
    let name = command.split(' ').next().expect("a word");
    if Command::new(name).arg("--version").output().is_err() {
        support::left_out(name);
        return None;
    }
    let scene = Scene::ours();
    scene.write("try", format!("{before}\nsource ./completion\n{after}"));
    let try_it = format!("beanpole completion {name} > completion; {command} try");
    let (text, error) = scene.said(&try_it);
    assert_eq!(error, "");
    Some(text)
}

/// Lines, and what the last word of each can become.
const COMPLETED: [(&str, &str); 6] = [
    ("beanpole cl", "clients"),
    ("beanpole mo", "move"),
    ("beanpole ki", "kick kick-job"),
    ("beanpole --ver", "--version"),
    ("beanpole reserve --t", "--timeout --tube"),
    ("beanpole delete --state b", "buried"),
];

/// A shell has written a line with these words for each of the lines.
fn compare(completed: &[(&str, &str)], text: &str) {
    let found = text.lines().map(|line| {
        let mut words: Vec<_> = line.split(' ').collect();
        words.sort();
        words.join(" ")
    });
    let expected = completed.iter().map(|(_, words)| *words);
    assert!(found.eq(expected), "{completed:#?}\nbut:\n{text}");
}

#[test]
fn bash_completes_commands_options_and_values() {
    let operands = [
        ("beanpole help mo", "move"),
        // No names of files where a tube is wanted: this word stays as it is.
        ("beanpole peek -t com", "com"),
        ("beanpole binlog ver", "verify"),
    ];
    let completed = [&COMPLETED[..], &operands].concat();
    let mut script = String::new();
    for (line, _) in &completed {
        let words: Vec<_> = line.split(' ').collect();
        let [.., before, last] = words[..] else {
            panic!("{line}")
        };
        script += &format!(
            "COMP_WORDS=({line}) COMP_CWORD={}; _beanpole beanpole '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"\n",
            words.len() - 1
        );
    }
    // It is called here outside of a completion.
    shell("bash", "compopt() { :; }", &script).inspect(|text| compare(&completed, text));
}

#[test]
fn fish_completes_commands_options_and_values() {
    let lines = COMPLETED.iter();
    let lines =
        lines.map(|(line, _)| format!("echo (complete -C '{line}' | string split -f 1 \\t)\n"));
    let text = shell("fish --no-config", "", &lines.collect::<String>());
    text.inspect(|text| compare(&COMPLETED, text));
}

#[test]
fn zsh_reads_the_completion_without_an_error() {
    let before = "autoload -U compinit; compinit -u -D";
    let text = shell("zsh -f", before, "whence -w _beanpole");
    text.inspect(|text| assert_eq!(text, "_beanpole: function\n"));
}
