//! `raw`: one command, scripts, and the prompt.

use super::screen::Screen;
use super::story::tell;
use super::support::{Server, beanpoled, servers, wait_for};

/// The program at a terminal, and its prompt, for which to wait before typing:
/// until it comes, keys may mean something else.
fn prompt(server: &Server) -> (Screen, String) {
    let mut command = server.beanpole();
    command
        .arg("raw")
        .env("BEANPOLE_HISTORY", server.directory.path().join("history"));
    let screen = Screen::start(&command, 80, 24);
    let name = format!("127.0.0.1:{}>", server.port);
    screen.wait_for(&name);
    (screen, name)
}

#[test]
fn the_prompt_completes_commands_and_tubes() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x\n$ put -q -t mailing y");
        let (mut screen, name) = prompt(&server);
        // The rest of the word, both tubes, the longer one.
        screen.type_keys("stats-t\t");
        screen.wait_for(&format!("{name} stats-tube"));
        screen.type_keys(" m\t\t");
        screen.wait_for(&format!("\nmail     mailing\n{name} stats-tube mail"));
        screen.type_keys("in\t\r");
        screen.wait_for(&format!("{name} stats-tube mailing\nOK "));
        screen.wait_for("\ncurrent-jobs-ready: 1\n");
    }
}

#[test]
fn the_prompt_asks_for_the_body_of_a_put_and_counts_it() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (mut screen, name) = prompt(&server);
        screen.type_keys("put 0 0 60\r");
        screen.wait_for("\nbody>");
        screen.type_keys("héllo\r");
        screen.wait_for(&format!("\nINSERTED 1\n{name}"));
        screen.type_keys("put 0 0 60 3\r");
        screen.wait_for("3\nbody>");
        screen.type_keys("four\r");
        screen.wait_for(&format!(
            "\nthe body has 4 bytes, not 3: nothing was sent\n{name}"
        ));
        screen.type_keys("peek 1\r");
        screen.wait_for(&format!("\nFOUND 1 6\nhéllo\n{name}"));
        screen.type_keys("help\r");
        let card = include_str!("../../man/card.txt");
        screen.wait_for(&format!("{}\n{name}", card.lines().last().unwrap()));
        screen.type_keys("quit\r");
        assert_eq!(screen.wait(), Some(0));
    }
}

#[test]
fn the_prompt_runs_each_of_several_pasted_lines() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (mut screen, name) = prompt(&server);
        // As a terminal that marks what is pasted, and as one that does not.
        screen.type_keys("\x1b[200~use a\rput 0 0 60 5\rhello\x1b[201~\r");
        screen.wait_for(&format!("\nUSING a\nINSERTED 1\n{name}"));
        screen.type_keys("use b\rput 0 0 60 5\rworld\rpeek 1\r");
        screen.wait_for("\nUSING b\n");
        screen.wait_for("\nINSERTED 2\n");
        screen.wait_for("\nFOUND 1 5\nhello\n");
    }
}

#[test]
fn the_prompt_takes_the_options_of_a_put() {
    let server = Server::start(&beanpoled(), &[]);
    let (mut screen, name) = prompt(&server);
    screen.type_keys("put 0 0 60 5 try:3\r");
    screen.wait_for("\nbody>");
    screen.type_keys("hello\r");
    screen.wait_for(&format!("\nINSERTED 2\n{name}"));
}

#[test]
fn the_prompt_remembers_what_was_typed() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (mut screen, name) = prompt(&server);
        screen.type_keys("list-tube-used\r");
        screen.wait_for(&format!("\nUSING default\n{name}"));
        screen.type_keys("use mail\r");
        screen.wait_for(&format!("\nUSING mail\n{name}"));
        screen.type_keys("\x1b[A\x1b[A\r");
        screen.wait_for(&format!("> list-tube-used\nUSING mail\n{name}"));
        screen.type_keys("\x04");
        assert_eq!(screen.wait(), Some(0));
        // The next prompt, too.
        let (mut screen, _) = prompt(&server);
        screen.type_keys("\x1b[A\x1b[A\x17other\r");
        screen.wait_for("> use other\nUSING other\n");
    }
}

#[test]
fn control_c_ends_a_wait_and_not_the_prompt() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let (mut screen, name) = prompt(&server);
        screen.type_keys("reserve\r");
        wait_for("it to wait", || server.stats(&[])["current-waiting"] == 1);
        screen.type_keys("\x03");
        screen.wait_for(&format!(
            "interrupted: the connection is closed, the next command opens another\n{name}"
        ));
        screen.type_keys("abandoned\x03");
        screen.wait_for(&format!("> abandoned\n{name}"));
        screen.type_keys("list-tube-used\r");
        screen.wait_for("\nUSING default\n");
    }
}

#[test]
fn no_command_waits_for_a_silent_server_longer_than_its_timeout() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        server.signal("STOP");
        for command in [
            "raw stats",
            "raw --timeout 0.1 stats",
            "put x",
            "tubes",
            "move a b",
        ] {
            let mut words: Vec<_> = command.split(' ').collect();
            if !words.contains(&"--timeout") {
                words.splice(0..0, ["--timeout", "0.1"]);
            }
            let output = server.beanpole().args(&words).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(": no reply within 100ms\n"), "{said}");
            assert_eq!(output.status.code(), Some(3));
        }
        server.signal("CONT");
    }
}
