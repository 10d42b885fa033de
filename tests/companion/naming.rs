//! What things are called: commands, options, servers, and what is meant by a
//! name that is wrong.

use super::screen::Screen;
use super::story::{on_each_server, tell};
use super::support::{Server, servers};

#[test]
fn a_misspelt_command_or_option_gets_a_suggestion() {
    on_each_server(
        r#"
        $ stast
        ! beanpole: unrecognized subcommand 'stast'; tip: a similar subcommand exists: 'stats'
        ! Try 'beanpole help'.
        [2]
        $ help comp
        ! beanpole help: unrecognized subcommand 'comp'; tip: some similar subcommands exist: 'top', 'completion', 'copy'
        ! Try 'beanpole help help'.
        [2]
        $ stats --jsno
        ! beanpole stats: unexpected argument '--jsno' found; tip: a similar argument exists: '--json'
        ! Try 'beanpole help stats'.
        [2]
        $ --versoin
        ! beanpole: unexpected argument '--versoin' found; tip: a similar argument exists: '--version'
        ! Try 'beanpole help'.
        [2]
        $ fetch
        ! beanpole: unrecognized subcommand 'fetch'
        ! Try 'beanpole help'.
        [2]
        $ stats -x
        ! beanpole stats: unexpected argument '-x' found; tip: to pass '-x' as a value, use '-- -x'
        ! Try 'beanpole help stats'.
        [2]
        $ -a http://example.org stats
        ! beanpole: --addr: 'http://example.org' is not an address: give HOST:PORT, PORT or unix:PATH
        ! Try 'beanpole help'.
        [2]
        "#,
    );
}

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
fn a_server_may_be_named_as_in_the_servers_file() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x");
        let run = |arguments: &[&str]| {
            let output = naming(&server, NAMES, arguments)
                .env("BEANPOLE_ADDR", "1")
                .output()
                .unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            said.replace(server.directory.text(), "PLACE")
        };
        for name in ["prod", "test"] {
            assert_eq!(run(&["-a", name, "tubes", "--names"]), "default\nmail\n");
        }
        assert_eq!(
            run(&["-a", "prod", "move", "mail", "post", "--to", "test"]),
            "1\n"
        );
        for (name, reason) in [
            ("bare", "line 3: the address is missing"),
            (
                "pink",
                "line 4: 'pink' is none of the colours red, green, yellow, blue, magenta, cyan",
            ),
        ] {
            let said = format!("beanpole: --addr: PLACE/servers {reason}\nTry 'beanpole help'.\n");
            assert_eq!(run(&["-a", name, "tubes"]), said);
        }
        assert_eq!(
            run(&["-a", "prodd", "tubes"]),
            "beanpole tubes: cannot connect to prodd:11300: Name or service not known; \
             and there is no server 'prodd' in PLACE/servers\n"
        );
        // The variable may hold a name, too.
        let output = naming(&server, NAMES, &["tubes", "--names"])
            .env("BEANPOLE_ADDR", "prod")
            .output();
        assert_eq!(output.unwrap().stdout, b"default\npost\n");
        // A home that is closed to us holds no such file.
        let mut command = naming(&server, NAMES, &["tubes", "--names"]);
        command
            .env_remove("BEANPOLE_SERVERS")
            .env("HOME", "/dev/null");
        assert_eq!(command.output().unwrap().stdout, b"default\npost\n");
    }
}

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
fn a_tube_may_be_named_by_an_option_or_an_operand_where_only_tubes_can_stand() {
    on_each_server(
        r#"
        $ put -q -t mail one two
        $ put -q -t fax three
        $ ls -q -t mail
        1
        2
        $ ls -q fax -t mail -n 3
        1
        2
        3
        $ tubes -t mail --names
        mail
        $ delete -t mail --match two --dry-run
        1
        $ delete -t mail --match two --yes
        1
        $ bury -t mail --yes
        1
        $ kick-job -t mail --state buried --yes
        1
        $ move -t mail -t fax later
        2
        $ clear -t later --yes
        2
        $ kick mail
        ! beanpole kick: 'mail' is not a number of jobs; a tube is named by -t mail
        ! Try 'beanpole help kick'.
        [2]
        $ peek mail
        ! beanpole peek: 'mail' is not the id of a job; a tube is named by -t mail
        ! Try 'beanpole help peek'.
        [2]
        $ delete
        ! beanpole delete: which job? give its id
        ! Try 'beanpole help delete'.
        [2]
        $ delete 1 --match x
        ! beanpole delete: ids and conditions exclude each other
        ! Try 'beanpole help delete'.
        [2]
        "#,
    );
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
