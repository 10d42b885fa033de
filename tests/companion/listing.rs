//! Seeing what is in a tube, and acting on what was found.

use super::screen::Screen;
use super::story::tell;
use super::support::{Running, Server, servers, wait_for};
use unicode_width::UnicodeWidthStr;
#[test]
fn ls_cuts_bodies_only_at_the_width_of_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let body = format!(
            "{{\"type\":\"a\\\\b\",\"x\":\"{}needle\"}}",
            "x".repeat(200)
        );
        tell(
            &server,
            &format!("$ put -q '{body}' '\\x1b]0;title\\x07\\xff'"),
        );
        let ls = |columns: &str| {
            let mut command = server.beanpole();
            let output = command.arg("ls").env("COLUMNS", columns).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let whole = ls("");
        let rows: Vec<_> = whole.lines().collect();
        assert!(rows[1].ends_with("needle\"}"), "{whole}");
        assert!(rows[1].contains(r#"{"type":"a\b","x":"#), "{whole}");
        assert!(rows[2].ends_with(r"\x1b]0;title\x07\xff"), "{whole}");
        let cut = ls("90");
        assert_eq!(cut.lines().nth(1).unwrap().len(), 90, "{cut}");
        // Another command writes them alike.
        let mut tail = server.beanpole();
        let mut tail = Running::reading_output(tail.args(["tail", "-n", "1", "-i", "0.05"]));
        wait_for("it to look", || server.counted("cmd-stats") > 1);
        while tail.is_running() {
            tell(&server, "$ put -q '\\x1b\"\\n'");
        }
        assert!(tail.wait().1.ends_with(" bytes=3 \\x1b\"\\n\n"));
    }
}

#[test]
fn peek_escapes_control_characters_of_bodies_on_a_terminal() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q '\\x1b]0;owned\\x07two\\nlines'");
        let mut peek = server.beanpole();
        let mut screen = Screen::start(peek.args(["peek", "1"]), 80, 5);
        assert_eq!(screen.wait(), Some(0));
        screen.wait_for("\\x1b]0;owned\\x07two\nlines");
    }
}

#[test]
fn ls_counts_the_columns_of_wide_characters() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let body = "队列".repeat(40);
        tell(&server, &format!("$ put -q {body}"));
        let listed = server
            .beanpole()
            .args(["ls", "default"])
            .env("COLUMNS", "80")
            .output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let widest = listed.lines().map(UnicodeWidthStr::width).max();
        assert!((79..=80).contains(&widest.unwrap()), "{listed}");
    }
}
