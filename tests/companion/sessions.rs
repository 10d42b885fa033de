//! Plays `sessions/*.txt`, which show at a shell what each command does. A part of
//! them, below its title, is played on a server of its own: on ours, and on beanstalkd
//! if there is one. `SESSION=work` plays only the parts with `work` in the name of their
//! file or in their title.
//!
//! Before its first command, a part may say `server: -z 10`, the options of the server,
//! and `on beanpoled only`. What happens to the server is a line such as
//! `-- the server drains`. All else is explained in tests/support/session.rs.

use std::path::Path;
use std::{env, fs, thread};
use support::session::{Scene, servers, steps};
use support::{source, text_of};

const FOLDER: &str = "tests/companion/sessions";

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

/// Plays all parts of a file at the same time; some wait for the clock. Each has a
/// thread with its name, and the deadline of one.
fn play(file: &str) {
    let text = text_of(&format!("{FOLDER}/{file}.txt"));
    let wanted = env::var("SESSION").unwrap_or_default();
    let texts = text.split("\n## ").skip(1);
    let mut parts: Vec<Part> = texts.map(|text| Part::read(file, text)).collect();
    parts.retain(|part| part.name.contains(&wanted));
    let programs = servers();
    thread::scope(|scope| {
        for part in &parts {
            for program in programs.iter().filter(|program| part.is_for(program)) {
                let name = format!("{} ({})", part.name, program.display());
                let thread = thread::Builder::new().name(name);
                let playing = thread.spawn_scoped(scope, || part.play(program));
                playing.expect("a thread");
            }
        }
    });
}

/// Makes a test of each file.
macro_rules! sessions {
    ($($file:ident)*) => {
        $(#[test]
        fn $file() {
            play(stringify!($file));
        })*

        #[test]
        fn every_file_is_played() {
            let entries = fs::read_dir(source(FOLDER)).expect("the folder of the sessions");
            let files = entries.map(|file| file.expect("a file").file_name());
            let mut names: Vec<_> = files.map(|file| file.into_string().expect("letters")).collect();
            names.sort();
            assert_eq!(names, [$(concat!(stringify!($file), ".txt")),*]);
        }
    };
}

sessions!(binlog dumping jobs listing moving naming options raw reserving watching working);
