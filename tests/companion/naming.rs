//! What things are called: commands, options, servers, and what is meant by a
//! name that is wrong.

use super::screen::Screen;
use super::support::{Server, servers};

/// A command of the program that knows the names in this file.
fn naming(server: &Server, names: &str, arguments: &[&str]) -> std::process::Command {
    let port = server.port.to_string();
    let path = server
        .directory
        .write("servers", names.replace("PORT", &port).as_bytes());
    let mut command = server.beanpole();
    command.env("BEANPOLE_SERVERS", path).args(arguments);
    command
}

const NAMES: &str = "# name address colour
prod  PORT  red   # with care
bare
pink  PORT  pink
test  127.0.0.1:PORT
";

#[test]
fn a_changing_command_shows_the_name_of_a_server_with_a_warning_colour() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let title = format!("prod 127.0.0.1:{}", server.port);
        let mut command = naming(&server, NAMES, &["-a", "prod", "put", "x"]);
        let mut screen = Screen::start(&command, 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for(&format!("{title}\n1"));
        assert_eq!(screen.colour_at(0, 0), vt100::Color::Idx(1));
        command.env("NO_COLOR", "1");
        let mut screen = Screen::start(&command, 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for(&format!("{title}\n2"));
        assert_eq!(screen.colour_at(0, 0), vt100::Color::Default);
        let mut copy = naming(&server, NAMES, &["copy", "default", "mail", "--to", "prod"]);
        copy.env("BEANPOLE_ADDR", server.address());
        let mut screen = Screen::start(&copy, 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for(&format!("{title}\n2"));
        // Who only looks, or reads no screen, is not disturbed.
        let look = naming(&server, NAMES, &["-a", "prod", "peek", "1"]);
        let mut screen = Screen::start(&look, 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for("x");
        assert!(!screen.text().contains("prod"), "{}", screen.text());
        assert_eq!(command.output().unwrap().stderr, b"");
    }
}

#[test]
fn put_warns_on_a_terminal_when_the_first_body_looks_like_a_tube() {
    let server = Server::start(&servers()[0], &[]);
    let mut put = server.beanpole();
    put.args(["put", "mail", "hello"]);
    let screen = Screen::start(&put, 100, 10);
    screen.wait_for(
        "'mail' is the first of 2 bodies for the tube 'default'; a tube is named by -t mail",
    );
}
