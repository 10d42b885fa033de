//! Completions, in the shells that they are for, as far as these are there.

use super::support::{BEANPOLE, Directory};
use std::path::Path;
use std::process::Command;

/// Runs a shell that reads `before`, the completion that is written for it, and
/// `after`. `None` if this machine does not have the shell.
fn shell(name: &str, options: &[&str], before: &str, after: &str) -> Option<String> {
    let shells = ["/bin", "/usr/bin", "/usr/local/bin"].map(|place| Path::new(place).join(name));
    let Some(program) = shells.iter().find(|path| path.exists()) else {
        ::support::left_out(name);
        return None;
    };
    let completion = Command::new(BEANPOLE)
        .args(["completion", name])
        .output()
        .unwrap();
    let directory = Directory::new();
    let path = directory.write("completion", &completion.stdout);
    let script = format!("{before}\nsource '{}'\n{after}", path.display());
    let output = Command::new(program)
        .args(options)
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Lines, and what the last word of each can become.
const COMPLETED: &[(&str, &[&str])] = &[
    ("beanpole cle", &["clear"]),
    ("beanpole cl", &["clear", "clients"]),
    ("beanpole ki", &["kick", "kick-job"]),
    ("beanpole --ver", &["--version"]),
    ("beanpole reserve --de", &["--delay", "--delete"]),
    ("beanpole clear --state b", &["buried"]),
];

#[test]
fn bash_completes_commands_options_and_values() {
    let mut script = String::new();
    let operands: &[(&str, &[&str])] = &[
        ("beanpole help mo", &["move"]),
        ("beanpole binlog ver", &["verify"]),
    ];
    let completed = [COMPLETED, operands].concat();
    for (line, _) in &completed {
        let words: Vec<_> = line.split(' ').collect();
        let [.., before, last] = words[..] else {
            panic!("{line}")
        };
        script += &format!(
            "COMP_WORDS=({line}) COMP_CWORD={}; _beanpole beanpole '{last}' '{before}'; \
             echo \"${{COMPREPLY[@]}}\"\n",
            words.len() - 1
        );
    }
    let Some(text) = shell("bash", &[], "", &script) else {
        return;
    };
    for ((line, expected), found) in completed.iter().zip(text.lines()) {
        let mut found: Vec<_> = found.split(' ').collect();
        found.sort();
        assert_eq!(found, *expected, "{line}");
    }
    assert_eq!(text.lines().count(), completed.len());
}

#[test]
fn fish_completes_commands_options_and_values() {
    let lines = COMPLETED
        .iter()
        .map(|(line, _)| format!("echo (complete -C '{line}' | string split -f 1 \\t)\n"));
    let Some(text) = shell("fish", &["--no-config"], "", &lines.collect::<String>()) else {
        return;
    };
    for ((line, expected), found) in COMPLETED.iter().zip(text.lines()) {
        let mut found: Vec<_> = found.split(' ').collect();
        found.sort();
        assert_eq!(found, *expected, "{line}");
    }
    assert_eq!(text.lines().count(), COMPLETED.len());
}

#[test]
fn zsh_reads_the_completion_without_an_error() {
    let before = "autoload -U compinit; compinit -u -D";
    if let Some(text) = shell("zsh", &["-f"], before, "whence -w _beanpole") {
        assert_eq!(text, "_beanpole: function\n");
    }
}
