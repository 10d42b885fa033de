//! Plays `sessions/*.txt`, which show at a shell what each command does. A part of
//! them, below its title, is played on a server of its own: on ours, and on beanstalkd
//! if there is one. `SESSION=work` plays only the parts with `work` in the name of their
//! file or in their title.
//!
//! Before its first command, a part may say `server: -z 10`, the options of the server,
//! and `on beanpoled only`. What happens to the server is a line such as
//! `-- the server drains`. All else is explained in tests/support/session.rs.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};
use support::session::{Scene, servers, steps};
use support::{source, text_of};

/// More than there are processors: some parts wait for the clock.
const AT_A_TIME: usize = 8;

struct Part {
    /// The name of its file, and its title.
    name: String,
    /// The only server for which it is meant.
    only: Option<String>,
    options: Vec<String>,
    session: String,
}

impl Part {
    fn read(file: &str, text: &str) -> Part {
        let (title, session) = text.split_once('\n').expect("a session below its title");
        let mut part = Part {
            name: format!("{file}: {title}"),
            only: None,
            options: Vec::new(),
            session: String::new(),
        };
        for line in session.lines() {
            if let Some(options) = line.strip_prefix("server: ") {
                part.options = options.split(' ').map(str::to_owned).collect();
            } else if let Some(only) = line.strip_prefix("on ") {
                part.only = only.strip_suffix(" only").map(str::to_owned);
            } else {
                part.session += line;
                part.session += "\n";
            }
        }
        part
    }

    fn is_for(&self, program: &Path) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| program.ends_with(only))
    }

    fn play(&self, program: &Path) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let mut scene = Scene::start(program, &options);
        for (typed, expected) in steps(&self.session) {
            match typed.as_str() {
                "-- the server drains" => scene.drain(),
                "-- the server ends" => scene.end(),
                "-- the server is killed and starts again" => scene.restart(),
                _ => scene.expect(&typed, &expected),
            }
        }
    }
}

fn parts() -> Vec<Part> {
    let folder = "tests/companion/sessions";
    let entries = fs::read_dir(source(folder)).expect("the folder of the sessions");
    let names = entries.map(|entry| entry.expect("a file").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("letters"))
        .collect();
    names.sort();
    let mut parts = Vec::new();
    for name in names {
        let text = text_of(&format!("{folder}/{name}"));
        let texts = text.split("\n## ").skip(1);
        parts.extend(texts.map(|text| Part::read(&name, text)));
    }
    let wanted = env::var("SESSION").unwrap_or_default();
    parts.retain(|part| part.name.contains(&wanted));
    parts
}

#[test]
fn every_command_does_what_its_session_shows() {
    let (parts, programs) = (parts(), servers());
    let mut all = Vec::new();
    for part in &parts {
        let programs = programs.iter().filter(|program| part.is_for(program));
        all.extend(programs.map(|program| (part, program)));
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let play_some = || {
        while let Some((part, program)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = format!("{} ({})", part.name, program.display());
            // A deadline is that of a thread.
            let thread = thread::Builder::new().name(name.clone());
            let played = thread::scope(|scope| {
                let play = thread.spawn_scoped(scope, || part.play(program));
                play.expect("a thread").join()
            });
            if played.is_err() {
                failed.lock().expect("no panic").push(name);
            }
        }
    };
    thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(play_some))));
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty() && !all.is_empty(), "failed: {failed:#?}");
}
