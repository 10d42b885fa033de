//! `top` on terminals of several sizes, and into a pipe.

use super::screen::{Screen, without_spans};
use super::support::on_each_server;
use nix::sys::signal::Signal;
use support::session::Scene;
use support::text_of;
use vt100::Color;

const RED: Color = Color::Idx(1);
const YELLOW: Color = Color::Idx(3);

/// A test on servers with jobs of all states in two tubes.
fn on_busy_servers(test: impl Fn(Scene)) {
    on_each_server(&[], |scene| {
        scene.tell(
            "
            $ beanpole put -q -t mail -p 1 one two
            $ beanpole put -q -t mail -d 100000 later
            $ beanpole put -q -t images 'a picture' bad
            $ beanpole bury 5",
        );
        test(scene);
    });
}

fn top(scene: &Scene, columns: u16, rows: u16, arguments: &str) -> Screen {
    let shell = scene.shell(&format!("exec beanpole top -i 0.05 {arguments}"));
    Screen::start(&shell, columns, rows)
}

/// Types keys, and waits for what is shown then, one after the other.
fn type_all(screen: &mut Screen, exchanges: &[(&str, &str)]) {
    for (keys, shown) in exchanges {
        screen.type_keys(keys);
        screen.wait_for(shown);
    }
}

/// The row of a server on a screen of 80 columns, and a line for its figures.
fn server(name: &str, figures: &str) -> String {
    format!("{name:<18} {figures}    0.0    0.0     -")
}

const TITLES: &str =
    "SERVER               READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE";

/// The figures of busy servers.
const BUSY: &str = "      3      0      1      1      0     0";

#[test]
fn top_sorts_and_opens_a_tube() {
    on_busy_servers(|scene| {
        let mut screen = top(&scene, 80, 24, "--sort ready");
        let titles = "READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE\n";
        screen.wait_for(&format!("TUBE                *{titles}mail "));
        type_all(
            &mut screen,
            &[("\x1b[B\r", "nobody watches, 1 buried\n\n       ID ")],
        );
        let tube = "images                   1      0      0      1      0     0    0.0    0.0 Ns
nobody watches, 1 buried

       ID STATE           PRI   AGE  LEFT TRIES    SIZE BODY
        4 ready          1024 Ns     -     0       9 a picture
        5 buried         1024 Ns     -     1       3 bad
\n\n\n\n\n\n\n\n\n\n\n\n
q quit  enter look  esc back  s sort";
        screen.wait_until(tube, |screen| without_spans(screen).ends_with(tube));
        // Back, and to the other tube by its arrow.
        type_all(
            &mut screen,
            &[("\x1b", "\nmail "), ("\x1b[H\r", "delayed"), ("", "later")],
        );
    });
}

#[test]
fn trouble_is_coloured_unless_no_color_is_set() {
    for (no_colour, red, yellow) in [("", RED, YELLOW), ("1", Color::Default, Color::Default)] {
        on_busy_servers(|scene| {
            let mut shell = scene.shell("exec beanpole top -i 0.05");
            let screen = Screen::start(shell.env("NO_COLOR", no_colour), 80, 24);
            // Jobs that nobody watches, and one that is buried, of images; and all of
            // the buried ones, of the server.
            let places = [(4, 25), (4, 46), (4, 39), (1, 46)];
            let expected = [yellow, red, Color::Default, red];
            screen.wait_until("the colours", |text| {
                text.contains("\nmail ")
                    && places.map(|(row, column)| screen.colour_at(row, column)) == expected
            });
        });
    }
}

#[test]
fn a_wide_screen_shows_trouble_after_the_numbers_however_long_a_name_is() {
    on_busy_servers(|scene| {
        let screen = top(&scene, 200, 24, "");
        screen.wait_for("\nimages                     1      0      0      1      0     0");
        screen.wait_for("  nobody watches, 1 buried\n");
        screen.wait_for("  nobody watches\n");
        let long = "long".repeat(40);
        scene.tell(&format!("$ beanpole put -q -t {long} x; beanpole bury 6"));
        let screen = top(&scene, 120, 24, &long);
        screen.wait_for("  1 buried\n");
    });
}

#[test]
fn a_silent_server_is_marked_while_it_is_asked_and_buried_jobs_are_red() {
    on_busy_servers(|scene| {
        let other = Scene::ours();
        let [one, two] = [&scene, &other].map(Scene::address);
        let screen = top(&scene, 80, 24, &format!("-a {one} -a {two}"));
        screen.wait_for("\n1 images ");
        // Both have answered.
        let idle = server(
            &format!("2 {two}"),
            "      0      0      0      0      0     0",
        );
        screen.wait_for(&format!("\n{idle}\n\n"));
        screen.wait_until("a red number", |_| {
            [1, 2].map(|row| screen.colour_at(row, 46)) == [RED, Color::Default]
        });
        other.signal(Signal::SIGSTOP);
        screen.wait_for(&format!("\n{idle}\nno answer for "));
        other.signal(Signal::SIGCONT);
        screen.wait_for(&format!("\n{idle}\n\n"));
    });
}

#[test]
fn control_z_suspends_top_and_restores_the_terminal() {
    let scene = Scene::ours();
    let mut shell = scene.shell("exec bash --norc --noprofile -i");
    let mut screen = Screen::start(shell.env("PS1", "shell> "), 80, 24);
    type_all(
        &mut screen,
        &[
            ("", "shell>"),
            ("beanpole top -i 0.05\r", "\ndefault "),
            ("\x1a", "Stopped"),
            ("echo as it $((1 + 1)) was\r", "\nas it 2 was\n"),
            ("fg\r", "\ndefault "),
            ("q", "\nas it 2 was\n"),
        ],
    );
    screen.type_keys("exit\r");
    assert_eq!(screen.wait(), Some(0));
}

#[test]
fn top_follows_the_size_of_the_terminal() {
    on_busy_servers(|scene| {
        let mut screen = top(&scene, 80, 24, "");
        screen.wait_for("images                   1");
        screen.resize(120, 40);
        screen.wait_for("images                     1");
        screen.wait_until("40 lines", |screen| screen.lines().count() == 40);
        screen.resize(64, 7);
        screen.wait_for_screen(&format!(
            "SERVER     READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S
127.0.0. {BUSY}    0.0    0.0

*TUBE      READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S
images         1      0      0      1      0     0    0.0    0.0

q quit  enter look  esc back  s sort",
        ));
        // The next page.
        type_all(&mut screen, &[("\x1b[6~", "\nmail           2")]);
        screen.resize(80, 24);
        screen.wait_for("\nmail                     2");
    });
}

#[test]
fn top_keeps_a_lost_server_and_finds_it_again() {
    on_busy_servers(|mut scene| {
        let mut screen = top(&scene, 120, 24, "");
        screen.wait_for("\nimages ");
        scene.kill();
        let address = scene.address();
        screen.wait_for(&format!(
            "\ncannot connect to {address}: Connection refused\n"
        ));
        // What was known is still there.
        screen.wait_for("\nimages ");
        scene.start_again();
        let head = format!("\n{address:<23} ");
        screen.wait_until("the server", |screen| {
            screen.contains(&head) && !screen.contains("cannot connect")
        });
        screen.type_keys("\x03");
        assert_eq!(screen.wait(), Some(0));
    });
}

#[test]
fn several_servers_have_a_line_each_and_share_the_table_of_tubes() {
    on_busy_servers(|scene| {
        let other = Scene::ours();
        other.tell("$ beanpole put -q -t images theirs");
        let [one, two] = [&scene, &other].map(Scene::address);
        let mut screen = top(&scene, 80, 24, &format!("-a {one} -a {two}"));
        let busy = server(&format!("1 {one}"), BUSY);
        let other = server(
            &format!("2 {two}"),
            "      1      0      0      0      0     0",
        );
        let gap = "\n".repeat(13);
        screen.wait_for_screen(&format!(
            "{TITLES}
{busy}
{other}

*TUBE                READY   RSVD   DLYD   BURY  WATCH  WAIT  PUT/S  DEL/S   AGE
1 images                 1      0      0      1      0     0    0.0    0.0 Ns
2 images                 1      0      0      0      0     0    0.0    0.0 Ns
1 mail                   2      0      1      0      0     0    0.0    0.0 Ns
1 default                0      0      0      0      0     0    0.0    0.0     -
2 default                0      0      0      0      0     0    0.0    0.0     -
{gap}q quit  enter look  esc back  s sort"
        ));
        screen.type_keys("q");
        assert_eq!(screen.wait(), Some(0));
        // The screen from before is back.
        screen.wait_until("nothing", |screen| screen.trim().is_empty());
    });
}

#[test]
fn many_servers_leave_room_for_tubes_and_those_in_trouble_come_first() {
    on_busy_servers(|scene| {
        let names = (1..25).map(|number| format!("s{number} {}\n", scene.address()));
        scene.write(".beanpole_servers", names.collect::<String>());
        let screen = top(&scene, 80, 24, "-a 's*' -a 1");
        screen.wait_for("AGE\n25 127.0.0.1:1");
        screen.wait_for("\ncannot connect to 127.0.0.1:1: Connection refused\n1 s1 ");
        screen.wait_for("\nand 17 more servers\n\n*TUBE ");
        screen.wait_for("\n9 images ");
    });
}

/// The titles of the columns, and the keys: they are the same for all servers.
#[test]
fn the_picture_in_the_readme_shows_this_screen() {
    let scene = Scene::ours();
    let screen = top(&scene, 118, 14, "");
    screen.wait_for("q quit");
    let picture = text_of("man/pictures/top.svg");
    let texts = picture
        .split("</text>")
        .filter_map(|text| text.rsplit('>').next());
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let drawn = words(&texts.collect::<Vec<_>>().join(" "));
    let shown = screen.text();
    let mut lines = shown.lines();
    for begin in ["*TUBE", "q quit"] {
        let line = lines.find(|line| line.starts_with(begin)).expect("a line");
        assert!(drawn.contains(&words(line)), "{line} is not in {drawn}");
    }
}
