//! `top` on terminals of several sizes, and into a pipe.

use super::screen::{Screen, without_spans};
use super::story::tell;
use super::support::{BEANPOLE, Server, servers, wait_for};
use std::process::Command;

/// A server with jobs of all states in two tubes.
fn busy(program: &std::path::Path) -> Server {
    let server = Server::start(program, &[]);
    tell(
        &server,
        r"
        $ put -q -t mail -p 1 one 'two\nlines'
        $ put -q -t mail -d 100000 later
        $ put -q -t images 'a picture'
        $ put -q -t images bad
        $ bury 5
        ",
    );
    server
}

fn top(server: &Server, columns: u16, rows: u16, arguments: &[&str]) -> Screen {
    let mut command = server.beanpole();
    command.arg("top").args(["-i", "0.05"]).args(arguments);
    Screen::start(&command, columns, rows)
}

/// The lines of the picture in the README that are the same for all servers: the
/// titles of the columns, and the keys.
fn lines_of_the_picture() -> [String; 2] {
    let picture = include_str!("../../man/pictures/top.svg");
    let mut rows: Vec<(&str, String)> = Vec::new();
    for text in picture.split("<text x=\"").skip(1) {
        let (x, rest) = text.split_once("\" y=\"").unwrap();
        let (y, rest) = rest.split_once('"').unwrap();
        let (_, text) = rest.split_once('>').unwrap();
        let (text, _) = text.split_once("</text>").unwrap();
        if rows.last().is_none_or(|(last, _)| *last != y) {
            rows.push((y, String::new()));
        }
        let line = &mut rows.last_mut().unwrap().1;
        // A column is 8.4 wide, after a margin of 16.
        let column = (x.parse::<f64>().unwrap() - 16.0) / 8.4;
        *line = format!("{line:width$}{text}", width = column.round() as usize);
    }
    ["*TUBE", "q quit"].map(|start| {
        let mut lines = rows.iter().map(|(_, line)| line);
        let line = lines.find(|line| line.starts_with(start));
        line.expect("a line of the picture").clone()
    })
}

/// The first lines, with the version of the server.
fn head(server: &Server) -> String {
    let stats = server.stats(&[]);
    let version = stats["version"].as_str().expect("a version");
    format!(
        "127.0.0.1:{}  {version}  up Ns  1 connection: 0 put, 0 work, 0 wait",
        server.port
    )
}

/// What it shows of such a server at 80x24.
fn at_80_by_24(server: &Server) -> String {
    format!(
        "{}
jobs: 3 ready (2 urgent), 0 reserved, 1 delayed, 1 buried; 5 put so far
per second: 0.0 put, 0.0 reserve, 0.0 delete, 0.0 timeouts
binlog off

*TUBE                READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE
images                   1      0      0      1      0     0    0.0    0.0 Ns
mail                     2      0      1      0      0     0    0.0    0.0 Ns
default                  0      0      0      0      0     0    0.0    0.0     -














q quit  enter look  esc back  s sort  / filter",
        head(server)
    )
}

#[test]
fn top_shows_the_server_and_its_tubes_at_80_by_24() {
    for program in servers() {
        let server = busy(&program);
        let mut screen = top(&server, 80, 24, &[]);
        screen.wait_for_screen(&at_80_by_24(&server));
        screen.type_keys("q");
        assert_eq!(screen.wait(), Some(0));
        // The screen from before is back.
        wait_for("an empty screen", || screen.text().trim().is_empty());
    }
}

#[test]
fn top_sorts_filters_and_opens_a_tube() {
    for program in servers() {
        let server = busy(&program);
        let mut screen = top(&server, 80, 24, &["--sort", "ready"]);
        screen.wait_for(
            "TUBE                *READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE\nmail ",
        );
        screen.type_keys("/ag\r");
        screen.wait_for("\n\nonly tubes with 'ag'\n");
        screen.type_keys("\r");
        screen.wait_for_screen(&format!(
            "{}
jobs: 3 ready (2 urgent), 0 reserved, 1 delayed, 1 buried; 5 put so far
per second: 0.0 put, 0.0 reserve, 0.0 delete, 0.0 timeouts
binlog off

TUBE                *READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE
images                   1      0      0      1      0     0    0.0    0.0 Ns
nobody watches, 1 buried

next ready   ID        PRI   AGE   TTR  LEFT TRIES  BYTES  BODY
              4       1024 Ns Ns           0      9  a picture

next buried  ID        PRI   AGE   TTR  LEFT TRIES  BYTES  BODY
              5       1024 Ns Ns           1      3  bad








only tubes with 'ag'
q quit  enter look  esc back  s sort  / filter",
            head(&server)
        ));
        // Back, and to the other tube by its arrow.
        screen.type_keys("\x1b");
        screen.wait_for("only tubes with 'ag'\nq quit  enter look");
        screen.type_keys("\x1b");
        screen.wait_for("\nmail ");
        screen.type_keys("\x1b[H\r");
        screen.wait_for("two\\nlines");
        screen.wait_for("later");
    }
}

#[test]
fn top_finds_one_of_5000_tubes_by_a_part_of_its_name() {
    for program in servers() {
        let server = busy(&program);
        let names = (0..5000).map(|number| format!("use tube{number}\\nput 0 0 1 0\\n\\n"));
        let lines = names.collect::<String>();
        let lines = server
            .directory
            .write("lines", lines.replace("\\n", "\n").as_bytes());
        let raw = server
            .beanpole()
            .arg("raw")
            .stdin(std::fs::File::open(lines).unwrap())
            .output();
        assert!(raw.unwrap().status.success());
        let mut screen = top(&server, 80, 24, &[]);
        screen.wait_for("\ntube0 ");
        screen.type_keys("/tube4999\r");
        screen.wait_for("\ntube4999                 1");
    }
}

#[test]
fn buried_jobs_are_red_in_the_table_of_servers() {
    for program in servers() {
        let (server, other) = (busy(&program), Server::start(&program, &[]));
        let addresses = [server.address(), other.address()];
        let screen = top(&server, 80, 24, &["-a", &addresses[0], "-a", &addresses[1]]);
        screen.wait_for("\n1 mail");
        assert_eq!(screen.colour_at(1, 58), vt100::Color::Idx(1));
        assert_eq!(screen.colour_at(2, 58), vt100::Color::Default);
    }
}

#[test]
fn trouble_is_coloured_unless_no_color_is_set() {
    const RED: vt100::Color = vt100::Color::Idx(1);
    const YELLOW: vt100::Color = vt100::Color::Idx(3);
    const NONE: vt100::Color = vt100::Color::Default;
    for (no_colour, red, yellow) in [("", RED, YELLOW), ("1", NONE, NONE)] {
        for program in servers() {
            let server = busy(&program);
            let mut command = server.beanpole();
            command
                .args(["top", "-i", "0.05"])
                .env("NO_COLOR", no_colour);
            let screen = Screen::start(&command, 80, 24);
            screen.wait_for("\nmail ");
            // Jobs that nobody watches, and one that is buried, of images.
            let text = screen.text();
            let row = text.lines().position(|line| line.starts_with("images "));
            let row = u16::try_from(row.unwrap()).unwrap();
            assert_eq!(screen.colour_at(row, 25), yellow);
            assert_eq!(screen.colour_at(row, 46), red);
            assert_eq!(screen.colour_at(row, 39), NONE);
            // All of them, in the head.
            let column = text.lines().nth(1).unwrap().find("1 buried").unwrap();
            assert_eq!(screen.colour_at(1, u16::try_from(column).unwrap()), red);
        }
    }
}

#[test]
fn a_wide_screen_shows_trouble_after_the_numbers() {
    for program in servers() {
        let server = busy(&program);
        let screen = top(&server, 200, 24, &[]);
        screen.wait_for("\nimages                     1      0      0      1      0     0");
        screen.wait_for("s      -  nobody watches, 1 buried\n");
        screen.wait_for("s      -  nobody watches\n");
    }
}

#[test]
fn a_silent_server_is_marked_within_a_second() {
    for program in servers() {
        let server = busy(&program);
        let other = Server::start(&program, &[]);
        let addresses = [server.address(), other.address()];
        let screen = top(&server, 80, 24, &["-a", &addresses[0], "-a", &addresses[1]]);
        screen.wait_for("\n1 images ");
        // Both have answered.
        screen.wait_for(&format!("\n2 {:<29}      0", addresses[1]));
        other.signal("STOP");
        screen.wait_for(&format!(
            "\n2 {:<29}      0      0      0      0 SILENT\n",
            addresses[1]
        ));
        screen.wait_for(&format!("\n{}: no answer for 1 s\n", addresses[1]));
        other.signal("CONT");
        screen.wait_for(&format!(
            "\n2 {:<29}      0      0      0      0    0.0",
            addresses[1]
        ));
        screen.wait_for("\n\nq quit");
    }
}

#[test]
fn control_z_leaves_the_terminal_to_the_shell() {
    if Command::new("bash").arg("--version").output().is_err() {
        return ::support::left_out("bash");
    }
    for program in servers() {
        let server = busy(&program);
        let mut shell = Command::new("bash");
        shell
            .args(["--norc", "--noprofile", "-i"])
            .env("PS1", "shell> ")
            .env("BEANPOLE_ADDR", server.address());
        let mut screen = Screen::start(&shell, 80, 24);
        screen.wait_for("shell>");
        screen.type_keys(&format!("'{BEANPOLE}' top -i 0.05\r"));
        screen.wait_for("\nmail ");
        screen.type_keys("\x1a");
        screen.wait_for("Stopped");
        screen.type_keys("echo as it $((1 + 1)) was\r");
        screen.wait_for("\nas it 2 was\n");
        screen.type_keys("fg\r");
        screen.wait_for("\nmail ");
        screen.type_keys("q");
        screen.wait_for("\nas it 2 was\n");
        screen.type_keys("exit\r");
        assert_eq!(screen.wait(), Some(0));
    }
}

/// And at 64x9.
fn at_64_by_9(server: &Server) -> String {
    format!(
        "{}
jobs: 3 ready (2 urgent), 0 reserved, 1 delayed, 1 buried; 5 put
per second: 0.0 put, 0.0 reserve, 0.0 delete, 0.0 timeouts
binlog off

*TUBE      READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S
images         1      0      0      1      0     0    0.0    0.0

q quit  enter look  esc back  s sort  / filter",
        &head(server)[..64]
    )
}

#[test]
fn top_follows_the_size_of_the_terminal() {
    for program in servers() {
        let server = busy(&program);
        let mut screen = top(&server, 80, 24, &[]);
        screen.wait_for("images                   1");
        screen.resize(120, 40);
        screen.wait_for("images                     1");
        wait_for("40 lines", || screen.text().lines().count() == 40);
        screen.resize(64, 9);
        screen.wait_for_screen(&at_64_by_9(&server));
        // The next page.
        screen.type_keys("\x1b[6~");
        screen.wait_for("\nmail           2");
        screen.resize(80, 24);
        screen.wait_for("\nmail                     2");
    }
}

#[test]
fn top_keeps_a_lost_server_and_finds_it_again() {
    for program in servers() {
        let mut server = busy(&program);
        let mut screen = top(&server, 120, 24, &[]);
        screen.wait_for("\nimages ");
        server.kill();
        let port = server.port;
        screen.wait_for(&format!(
            "\ncannot connect to 127.0.0.1:{port}: Connection refused; trying again\n"
        ));
        // What was known is still there.
        screen.wait_for("\nimages ");
        server.restart();
        screen.wait_for("; 0 put so far");
        screen.wait_for("\n\nq quit");
        screen.type_keys("\x03");
        assert_eq!(screen.wait(), Some(0));
    }
}

#[test]
fn several_servers_have_a_line_each_and_share_the_table_of_tubes() {
    for program in servers() {
        let server = busy(&program);
        let other = Server::start(&program, &[]);
        tell(&other, "$ put -q -t images theirs");
        let (one, two) = (server.address(), other.address());
        let mut screen = top(&server, 80, 24, &["-a", &one, "-a", &two]);
        screen.wait_for_screen(&format!(
            "  SERVER                         READY   RSVD   DLYD   BURY  PUT/S  DEL/S  TMO/S
1 {one:<29}      3      0      1      1    0.0    0.0    0.0
2 {two:<29}      1      0      0      0    0.0    0.0    0.0

*TUBE                READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE
1 images                 1      0      0      1      0     0    0.0    0.0 Ns
2 images                 1      0      0      0      0     0    0.0    0.0 Ns
1 mail                   2      0      1      0      0     0    0.0    0.0 Ns
1 default                0      0      0      0      0     0    0.0    0.0     -
2 default                0      0      0      0      0     0    0.0    0.0     -













q quit  enter look  esc back  s sort  / filter"
        ));
        screen.type_keys("q");
        assert_eq!(screen.wait(), Some(0));
    }
}

#[test]
fn top_prints_once_into_a_pipe() {
    for program in servers() {
        let server = busy(&program);
        let (status, text) = server.run(&["top", "-i", "0.01", "-s", "age"]);
        assert_eq!(status, Some(0));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(without_spans(lines[0]), head(&server), "{text}");
        let title =
            "TUBE                 READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S  *AGE";
        assert_eq!(lines[5], title);
        assert_eq!(lines.len(), 9, "{text}");
        assert!(!text.contains('\x1b'));
        tell(
            &server,
            "$ top --sort colour\n! beanpole top: --sort: there is no column 'colour'\n! Try 'beanpole help top'.\n[2]",
        );
    }
}

#[test]
fn the_picture_in_the_readme_shows_this_screen() {
    let server = busy(&servers()[0]);
    let mut screen = top(&server, 118, 14, &[]);
    for line in lines_of_the_picture() {
        screen.wait_for(&line);
    }
    screen.type_keys("q");
    assert_eq!(screen.wait(), Some(0));
}
