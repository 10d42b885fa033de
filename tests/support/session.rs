//! Sessions at a shell: what is typed, and what comes back.
//!
//! ```text
//! $ beanpole put hello                a command, and its standard output
//! 1
//! $ beanpole delete 7
//! ! beanpole delete: there is ...     a line of its standard error
//! [1]                                 its exit status, if it is not 0
//! ```
//!
//! The output is a pattern: `<number>`, `<hex>`, `<text>` (without quotes) and `<any>`
//! stand for what varies, `...` for any number of lines, PORT for the port of the
//! server, and OTHER for that of another server. Bytes that are not text are written as in Rust. `⊣` follows output that does
//! not end its last line. Lines that begin with `# ` are comments.

use crate::story::lines_fit;
use crate::{
    Folder, Port, Server, beanstalkd, command, eventually, left_out, patience, program, run_by,
};
use std::env;
use std::fs::{self, create_dir};
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// The servers on which each session is played: ours first, and beanstalkd if there is
/// one.
pub fn servers() -> Vec<PathBuf> {
    static ONCE: Once = Once::new();
    let theirs = beanstalkd();
    if theirs.is_none() {
        ONCE.call_once(|| left_out("a beanstalkd, for each session once more"));
    }
    [program("beanpoled")].into_iter().chain(theirs).collect()
}

/// A server, and a folder in which a shell uses it.
pub struct Scene {
    pub folder: Folder,
    pub port: u16,
    server: Option<Server>,
    /// Its port, while it does not run.
    reserved: Option<Port>,
    command: Command,
    /// Another server, whose address the shell knows as `$OTHER`.
    other: Option<Server>,
}

impl Scene {
    /// Starts the server. It runs in the folder, in which the directory of `-b` is made.
    pub fn start(program: &Path, options: &[&str]) -> Scene {
        let (folder, reserved) = (Folder::new(), Port::reserve(0).expect("a free port"));
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-p", &reserved.number.to_string()]);
        command.args(options).current_dir(folder.path());
        if let Some(at) = options.iter().position(|option| *option == "-b") {
            create_dir(folder.join(options[at + 1])).expect("a new directory");
        }
        let (port, reserved, server) = (reserved.number, Some(reserved), None);
        let mut scene = Scene {
            folder,
            port,
            server,
            reserved,
            command,
            other: None,
        };
        scene.start_again();
        scene
    }

    /// Our server without options.
    pub fn ours() -> Scene {
        Scene::start(&program("beanpoled"), &[])
    }

    /// A folder and a shell that uses the server at this port, whatever it is.
    pub fn at(port: u16) -> Scene {
        let command = Command::new("false");
        Scene {
            folder: Folder::new(),
            port,
            server: None,
            reserved: None,
            command,
            other: None,
        }
    }

    /// Starts another server beside this one.
    pub fn start_other(&mut self, program: &Path, options: &[String]) {
        let options = options.iter().map(String::as_str);
        self.other = Some(Server::launch(program, options));
    }

    pub fn start_again(&mut self) {
        let port = self.reserved.take().expect("it does not run");
        self.server = Some(Server::listening_on(&mut self.command, port));
    }

    pub fn kill(&mut self) {
        let server = self.server.take().expect("it runs");
        self.reserved = server.kill();
    }

    /// Ends the server in order.
    pub fn end(&mut self) {
        let server = self.server.take().expect("it runs");
        self.reserved = server.end();
    }

    /// Kills the server, and starts it again in the same place.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Has the server take no new jobs.
    pub fn drain(&self) {
        self.signal(nix::sys::signal::Signal::SIGUSR1);
        self.await_stat("draining", true);
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Writes a file in the folder.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, content).expect("a file can be written");
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).expect("a file of text")
    }

    /// Waits until there is a file of this name, and reads it.
    #[track_caller]
    pub fn wait_for_file(&self, name: &str) -> String {
        eventually(name, || self.folder.join(name).exists());
        self.read(name)
    }

    /// A shell that knows the programs of this project, and runs these commands.
    pub fn shell(&self, commands: &str) -> Command {
        let own = program("beanpole").with_file_name("");
        let inherited = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([own].into_iter().chain(env::split_paths(&inherited)));
        let mut shell = command("sh");
        shell.args(["-c", commands]).current_dir(self.folder.path());
        shell.env("PATH", path.expect("a path without colons"));
        shell.env("BEANPOLE_ADDR", self.address());
        shell.env("PORT", self.port.to_string());
        let others = self.other.iter().map(|other| other.port());
        shell.envs(others.map(|port| ("OTHER", format!("127.0.0.1:{port}"))));
        for name in ["HOME", "TMPDIR"] {
            shell.env(name, self.folder.path());
        }
        shell.stdin(Stdio::null());
        shell
    }

    /// Runs these commands. What hangs ends with the deadline, and with status 124.
    fn output(&self, commands: &str) -> Output {
        let shell = self.shell(commands);
        let mut bounded = Command::new("timeout");
        bounded.arg(patience().as_secs().max(1).to_string());
        run_by(&mut bounded, &shell).output().expect("a shell")
    }

    /// What these commands write to their standard output and to their standard error.
    pub fn said(&self, commands: &str) -> (String, String) {
        let output = self.output(commands);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr))
    }

    /// What these commands write to their standard output.
    pub fn out(&self, commands: &str) -> String {
        self.said(commands).0
    }

    /// Starts a command beside the test, which can wait for lines of its standard error.
    pub fn begin(&self, command: &str) -> Server {
        Server::spawn(&mut self.shell(&format!("exec {command}")))
    }

    /// What comes back when this is typed, as in a session.
    pub fn answer(&self, commands: &str) -> String {
        let output = self.output(commands);
        // A time may have the same digits.
        let port = format!(":{}", self.port);
        let answer = told(&output).replace(&port, ":PORT");
        self.other.iter().fold(answer, |answer, other| {
            answer.replace(&format!(":{}", other.port()), ":OTHER")
        })
    }

    /// Plays a session.
    #[track_caller]
    pub fn tell(&self, session: &str) {
        for (typed, expected) in steps(session) {
            self.expect(&typed, &expected);
        }
    }

    /// What comes back when this is typed must fit this pattern.
    #[track_caller]
    pub fn expect(&self, typed: &str, expected: &str) {
        let answer = self.answer(typed);
        let lines: Vec<&str> = answer.trim_end().lines().map(str::trim_end).collect();
        let patterns: Vec<&str> = expected.trim_end().lines().collect();
        let is_so = lines_fit(&patterns, &lines);
        assert!(is_so, "$ {typed}\n{answer}\nbut expected was:\n{expected}");
    }
}

impl Deref for Scene {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }
}

/// What is typed in a session or, after `-- `, happens, each with the pattern of what comes
/// back. The indentation of the first line is no part of any line.
pub fn steps(session: &str) -> Vec<(String, String)> {
    let session = session.trim_start_matches('\n');
    let margin = session.len() - session.trim_start_matches(' ').len();
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in session.lines() {
        let line = line.split_at_checked(margin).map_or("", |(_, line)| line);
        let event = line.starts_with("-- ").then_some(line);
        match (line.strip_prefix("$ ").or(event), steps.last_mut()) {
            (Some(typed), _) => steps.push((typed.to_owned(), String::new())),
            (None, Some((_, expected))) if !line.starts_with("# ") => {
                *expected += line;
                *expected += "\n";
            }
            (None, _) => assert!(!line.starts_with(|c| c != '#'), "nothing is typed: {line}"),
        }
    }
    steps
}

fn told(output: &Output) -> String {
    let mut text = readable(&output.stdout);
    for line in readable(&output.stderr).lines() {
        text += &format!("! {line}\n");
    }
    let signal = output.status.signal().map(|signal| 128 + signal);
    match output.status.code().or(signal) {
        Some(0) => {}
        status => text += &format!("[{}]\n", status.expect("it has ended")),
    }
    text
}

fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\0'..='\x09' | '\x0b'..='\x1f' | '\x7f' => {
                    text += &character.to_string().as_bytes().escape_ascii().to_string();
                }
                other => text.push(other),
            }
        }
        text += &chunk.invalid().escape_ascii().to_string();
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text += "⊣\n";
    }
    text
}
