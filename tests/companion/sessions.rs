//! Plays `sessions/*.txt`, which show at a shell what each command does. A part of
//! them, below its title, is played on a server of its own: on ours, and on beanstalkd
//! if there is one. `SESSION=work` plays only the parts with `work` in the name of their
//! file or in their title.
//!
//! Before its first command, a part may say `server: -z 10`, the options of the server,
//! and `on beanpoled only`. With `another server:` and its options, it is played beside
//! each of the servers, whose address is `$OTHER`.
//!
//! What happens to the server is a line such as `-- the server drains`. What other clients
//! do is written as `-- alice: reserve`, with the reply below it, or nothing if alice waits
//! for that; `-- alice closes` ends her connection. All else is explained in
//! tests/support/session.rs.

use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};
use support::session::{Scene, servers, steps};
use support::{Client, eventually, source, text_of};

const FOLDER: &str = "tests/companion/sessions";

struct Part {
    /// The name of its file, and its title.
    name: String,
    /// The only server for which it is meant.
    only: Option<String>,
    options: Vec<String>,
    /// The options of another server.
    other: Option<Vec<String>>,
    session: String,
}

impl Part {
    fn read(file: &str, text: &str) -> Part {
        let (title, session) = text.split_once('\n').expect("a session below its title");
        let mut part = Part {
            name: format!("{file}: {title}"),
            only: None,
            options: Vec::new(),
            other: None,
            session: String::new(),
        };
        let words = |options: &str| options.split_whitespace().map(str::to_owned).collect();
        for line in session.lines() {
            if let Some(options) = line.strip_prefix("server: ") {
                part.options = words(options);
            } else if let Some(options) = line.strip_prefix("another server:") {
                part.other = Some(words(options));
            } else if let Some(only) = line.strip_prefix("on ") {
                part.only = only.strip_suffix(" only").map(str::to_owned);
            } else {
                part.session += line;
                part.session += "\n";
            }
        }
        part
    }

    /// On which servers it is played, each with the one beside it.
    fn casts<'a>(&self, programs: &'a [PathBuf]) -> Vec<(&'a Path, Option<&'a Path>)> {
        let only = self.only.as_ref();
        let is_wanted = |program: &&PathBuf| only.is_none_or(|only| program.ends_with(only));
        let with = |program: &'a Path| match self.other {
            Some(_) => programs
                .iter()
                .map(|other| (program, Some(other.as_path())))
                .collect(),
            None => vec![(program, None)],
        };
        let wanted = programs.iter().filter(is_wanted);
        wanted.flat_map(|program| with(program)).collect()
    }

    fn play(&self, program: &Path, beside: Option<&Path>) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let mut scene = Scene::start(program, &options);
        if let (Some(options), Some(program)) = (&self.other, beside) {
            scene.start_other(program, options);
        }
        let mut clients = BTreeMap::new();
        for (typed, expected) in steps(&self.session) {
            match typed.strip_prefix("-- ") {
                None => scene.expect(&typed, &expected),
                Some("the server drains") => scene.drain(),
                Some("the server ends") => scene.end(),
                Some("the server is killed and starts again") => scene.restart(),
                Some("the server hangs") => scene.signal(Signal::SIGSTOP),
                Some("the server goes on") => scene.signal(Signal::SIGCONT),
                Some(event) => play_client(&scene, &mut clients, event, &expected),
            }
        }
    }
}

/// What a client says, and the reply that it gets; or that it closes its connection.
fn play_client(scene: &Scene, clients: &mut BTreeMap<String, Client>, event: &str, expected: &str) {
    if let Some(name) = event.strip_suffix(" closes") {
        let mut observer = scene.connect();
        let before = observer.count("current-connections");
        clients.remove(name).expect("a client").close();
        return eventually("the server to notice that", || {
            observer.count("current-connections") < before
        });
    }
    let (name, said) = event.split_once(": ").expect("what a client says");
    let client = clients
        .entry(name.to_owned())
        .or_insert_with(|| scene.connect());
    let line = said.replace("\\r\\n", "\r\n") + "\r\n";
    let expected = expected.trim_end();
    if expected.is_empty() {
        let mut observer = scene.connect();
        let before = observer.count("current-waiting");
        client.send(line);
        return eventually("the client to wait", || {
            observer.count("current-waiting") > before
        });
    }
    client.send(line);
    let (line, body) = client.reply().expect("a reply");
    let body = body.map(|body| String::from_utf8(body).expect("text"));
    let answer = [Some(line), body].into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(answer.join("\n"), expected, "-- {event}");
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
            for (program, beside) in part.casts(&programs) {
                let name = format!("{} ({})", part.name, program.display());
                let thread = thread::Builder::new().name(name);
                let playing = thread.spawn_scoped(scope, move || part.play(program, beside));
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
