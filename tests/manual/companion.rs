//! The companion's manual page: it describes every command and option, and its
//! examples are what a shell shows.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use support::page::Manual;
use support::{Folder, Server, beanstalkd, command, left_out, source, text_of};

const BEANPOLE: &str = env!("CARGO_BIN_EXE_beanpole");
pub(super) static PAGE: LazyLock<Manual> = LazyLock::new(|| Manual {
    text: text_of("man/beanpole.1"),
});

/// The lines of the section or subsection of this title.
pub(super) fn lines_of(title: &str) -> Vec<&'static str> {
    let section = PAGE.sections().find(|section| section.title == title);
    let lines = section.expect(title).lines.into_iter();
    lines.map(|(_, line)| line).collect()
}

/// The sections about commands: the name of each, and its lines.
fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let titles = PAGE.sections().map(|section| section.title);
    let commands = titles.filter_map(|title| Some((title.strip_prefix("beanpole ")?, title)));
    commands
        .map(|(name, title)| (name, lines_of(title)))
        .collect()
}

fn help(arguments: &[&str]) -> String {
    let output = command(BEANPOLE)
        .arg("help")
        .args(arguments)
        .output()
        .unwrap();
    // The page shows what a value is called without brackets.
    String::from_utf8(output.stdout)
        .unwrap()
        .replace(['<', '>'], "")
}

#[test]
fn every_command_has_a_section() {
    let overview = help(&[]);
    let mut commands: Vec<_> = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .take_while(|line| !line.starts_with("Options"))
        .filter(|line| line.starts_with("  "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    let mut described: Vec<_> = sections().into_iter().map(|(name, _)| name).collect();
    commands.sort();
    described.sort();
    assert_eq!(described, commands);
}

#[test]
fn the_help_of_raw_ends_with_the_protocol_on_one_screen() {
    let card = text_of("man/card.txt").replace(['<', '>'], "");
    assert!(help(&["raw"]).trim_end().ends_with(card.trim_end()));
}

#[test]
fn each_section_describes_exactly_the_options_of_its_command() {
    let shared = lines_of("TUBES AND JOBS").into_iter();
    let shared = shared.filter(|line| line.starts_with(".It Fl "));
    let shared: Vec<_> = shared.map(as_typed).collect();
    for (name, lines) in sections() {
        let help = help(&[name]);
        let mut expected: Vec<String> = help
            .lines()
            .skip_while(|line| *line != "Options:")
            .filter_map(|line| {
                line.strip_prefix("  ")
                    .filter(|line| line.trim().starts_with('-'))
            })
            .filter(|line| !line.contains("--addr") && !line.contains("--help"))
            .filter(|line| !line.contains("wait TIME for a reply"))
            .map(|line| {
                let words: Vec<_> = line
                    .split_whitespace()
                    .take_while(|word| is_of_option(word))
                    .collect();
                words.join(" ")
            })
            .collect();
        let mut described: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with(".It Fl "))
            .map(|line| as_typed(line))
            .collect();
        // What many commands share is described once.
        let own = |option: &String| !shared.contains(option);
        expected.retain(own);
        described.retain(own);
        expected.sort();
        described.sort();
        assert_eq!(described, expected, "{name}");
    }
}

#[test]
fn help_names_the_default_of_each_option() {
    // Without these, there is nothing of the kind.
    const NOTHING: &[&str] = &[
        "limit", "watch", "listen", "file", "from", "skip", "seconds", "rate", "to",
    ];
    let mut silent = BTreeSet::new();
    for (name, _) in sections() {
        for line in help(&[name])
            .lines()
            .filter(|line| line.trim().starts_with('-'))
        {
            let words: Vec<_> = line
                .split_whitespace()
                .skip_while(|word| !word.starts_with("--"))
                .collect();
            let has_value = words
                .get(1)
                .is_some_and(|word| word.len() > 1 && is_of_option(word));
            let option = words[0].trim_start_matches('-');
            // What ls filters by: without it, all are shown.
            if has_value && name != "ls" && !line.contains("default") && !NOTHING.contains(&option)
            {
                silent.insert(format!("{name} --{option}"));
            }
        }
    }
    assert_eq!(silent, BTreeSet::new());
}

/// Whether a word of the help belongs to the names and the value of an option.
fn is_of_option(word: &str) -> bool {
    let value = word.trim_end_matches(',');
    word.starts_with('-')
        || value
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b":[],/".contains(&b))
}

/// `.It Fl t , Fl -tube Ar TUBE` as `-t, --tube TUBE`.
fn as_typed(line: &str) -> String {
    let text = line
        .trim_start_matches(".It ")
        .replace("Fl ", "-")
        .replace("Ar ", "");
    text.replace(" ,", ",")
}

#[test]
fn examples_show_what_a_shell_shows() {
    let ours = support::program("beanpoled");
    if beanstalkd().is_none() {
        left_out("a beanstalkd, for each example once more");
    }
    for program in [Some(ours), beanstalkd()].into_iter().flatten() {
        for (name, lines) in sections() {
            let server = Server::launch(&program, []);
            let folder = Folder::new();
            let mut playing = false;
            let mut skipping = false;
            let mut expected = String::new();
            let mut played = String::new();
            for line in lines {
                match line {
                    ".Bd -literal -offset indent" => playing = true,
                    ".Ed" => playing = false,
                    _ if !playing => {}
                    _ if line.starts_with(".\\\" Not played") => skipping = true,
                    _ if skipping => {}
                    _ => {
                        let line = line.replace("\\e", "\\").replace("\\&", "");
                        expected += &format!("{line}\n");
                        if let Some(command) = line.strip_prefix("$ ") {
                            played += &format!("{line}\n{}", play(&server, folder.path(), command));
                        }
                    }
                }
            }
            assert!(skipping || !expected.is_empty(), "{name} has no example");
            assert!(
                played == expected,
                "{name}: played:\n{played}\nexpected:\n{expected}"
            );
        }
    }
}

/// What a shell says to this, without what cannot be seen at the ends of lines.
pub(super) fn play(server: &Server, folder: &Path, typed: &str) -> String {
    let mut path = Path::new(BEANPOLE).parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let output = command("sh")
        .args(["-c", &format!("{{ {typed}\n}} 2>&1")])
        .env("PATH", path)
        .env("BEANPOLE_ADDR", format!("127.0.0.1:{}", server.port()))
        .env("XDG_STATE_HOME", folder)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[test]
fn mandoc_finds_no_fault() {
    let mut mandoc = Command::new("mandoc");
    mandoc.arg("-Tlint").arg(source("man/beanpole.1"));
    let Ok(output) = mandoc.output() else {
        return left_out("mandoc");
    };
    let said = String::from_utf8(output.stdout).unwrap();
    // Its neighbours need not be installed.
    let said: Vec<_> = said
        .lines()
        .filter(|line| !line.contains("referenced manual not found"))
        .collect();
    assert_eq!(said, Vec::<&str>::new());
}
