//! The prompt of `raw`.

use super::screen::Screen;
use super::support::on_each_server;
use support::session::Scene;

/// The prompt on a terminal, and its text, for which to wait before typing: until it
/// comes, keys may mean something else.
fn prompt(scene: &Scene) -> (Screen, String) {
    let screen = Screen::start(&scene.shell("exec beanpole raw"), 80, 24);
    let name = format!("{}>", scene.address());
    screen.wait_for(&name);
    (screen, name)
}

/// Types keys at the prompt, and waits for what is shown then, in which PROMPT is its
/// text.
fn type_all(scene: &Scene, exchanges: &[(&str, &str)]) -> Screen {
    let (mut screen, name) = prompt(scene);
    for (keys, shown) in exchanges {
        screen.type_keys(keys);
        screen.wait_for(&shown.replace("PROMPT", &name));
    }
    screen
}

#[test]
fn the_prompt_asks_for_the_body_of_a_put_and_counts_it() {
    on_each_server(&[], |scene| {
        let card = support::text_of("man/card.txt");
        let card_ends = format!("{}\nPROMPT", card.lines().last().expect("a line"));
        let mut screen = type_all(
            &scene,
            &[
                ("put 0 0 60\r", "\nbody>"),
                ("héllo\r", "\nINSERTED 1\nPROMPT"),
                ("put 0 0 60 3\r", "3\nbody>"),
                (
                    "four\r",
                    "\nthe body has 4 bytes, not 3: nothing was sent\nPROMPT",
                ),
                ("peek 1\r", "\nFOUND 1 6\nhéllo\nPROMPT"),
                ("help\r", &card_ends),
            ],
        );
        screen.type_keys("quit\r");
        assert_eq!(screen.wait(), Some(0));
    });
}

#[test]
fn the_prompt_runs_each_of_several_pasted_lines() {
    on_each_server(&[], |scene| {
        // As a terminal that marks what is pasted, and as one that does not.
        type_all(
            &scene,
            &[
                (
                    "\x1b[200~use a\rput 0 0 60 5\rhello\x1b[201~\r",
                    "\nUSING a\nINSERTED 1\nPROMPT",
                ),
                ("use b\rput 0 0 60 5\rworld\rpeek 1\r", "\nUSING b\n"),
                ("", "\nINSERTED 2\n"),
                ("", "\nFOUND 1 5\nhello\n"),
            ],
        );
    });
}

#[test]
fn the_prompt_has_a_history_of_its_lines() {
    on_each_server(&[], |scene| {
        let mut screen = type_all(
            &scene,
            &[
                ("list-tube-used\r", "\nUSING default\nPROMPT"),
                ("use mail\r", "\nUSING mail\nPROMPT"),
                ("\x1b[A\x1b[A\r", "> list-tube-used\nUSING mail\nPROMPT"),
                (
                    "\x1b[A\x1b[A\x17other\r",
                    "> use other\nUSING other\nPROMPT",
                ),
            ],
        );
        screen.type_keys("\x04");
        assert_eq!(screen.wait(), Some(0));
    });
}

#[test]
fn control_c_ends_a_wait_and_not_the_prompt() {
    on_each_server(&[], |scene| {
        let (mut screen, name) = prompt(&scene);
        screen.type_keys("reserve\r");
        scene.await_stat("current-waiting", 1);
        for (keys, shown) in [
            (
                "\x03",
                "interrupted: the connection is closed, the next command opens another\nPROMPT",
            ),
            ("abandoned\x03", "> abandoned\nPROMPT"),
            ("list-tube-used\r", "\nUSING default\n"),
        ] {
            screen.type_keys(keys);
            screen.wait_for(&shown.replace("PROMPT", &name));
        }
    });
}
