//! What commands do on a terminal: they ask, escape, colour and show their progress.

use super::screen::Screen;
use super::support::on_each_server;
use std::process::Command;
use support::as_root;
use support::session::Scene;
use vt100::Color;

/// These commands on a terminal of 24 rows.
fn on_terminal(shell: &Command, columns: u16) -> Screen {
    Screen::start(shell, columns, 24)
}

#[test]
fn clear_asks_for_confirmation_at_a_terminal() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail a b");
        let address = scene.address();
        let question = format!("Delete 2 ready jobs of tube 'mail' at {address}? [y/N]");
        for (answer, status) in [("\r", 1), ("y\r", 0)] {
            let mut screen = on_terminal(&scene.shell("exec beanpole delete -t mail"), 80);
            screen.wait_for(&question);
            screen.type_keys(answer);
            assert_eq!(screen.wait(), Some(status));
        }
        scene.tell("$ beanpole ls\n[1]");
    });
}

/// As `^G` does in emacs: the terminal sends SIGINT to all that run on it.
#[test]
fn what_interrupts_the_editor_does_not_end_edit() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q one");
        let editor =
            "trap '' INT\necho edits\nuntil [ -e go ]; do sleep 0.01; done\nprintf two > $1";
        scene.write("editor", editor);
        let edit = scene.shell("exec env EDITOR='sh editor' beanpole edit 1");
        let mut screen = on_terminal(&edit, 80);
        screen.wait_for("edits");
        screen.type_keys("\x03");
        screen.wait_for("^C");
        scene.write("go", "");
        assert_eq!(screen.wait(), Some(0));
        scene.tell("$ beanpole ls -q | beanpole peek -l -\ntwo");
    });
}

#[test]
fn load_shows_its_progress_at_a_terminal() {
    on_each_server(&[], |scene| {
        // A dump that comes slowly, each time as many jobs as are put together.
        let slow = r#"{ until [ -e go ]; do yes '{"body":"a"}' | head -n 500; sleep 0.1; done; } | beanpole load > out"#;
        let mut screen = on_terminal(&scene.shell(slow), 80);
        screen.wait_for("loading ");
        scene.write("go", "");
        assert_eq!(screen.wait(), Some(0));
        // The progress goes, and the output has nothing of it.
        screen.wait_until("nothing", |screen| screen.trim().is_empty());
        scene.tell("$ beanpole ls -q | wc -l | cmp - out");
    });
}

#[test]
fn ls_counts_the_columns_of_wide_characters() {
    on_each_server(&[], |scene| {
        scene.tell(&format!("$ beanpole put -q {}", "队列".repeat(40)));
        // The row fits into the line: nothing of the body is below it.
        let screen = on_terminal(&scene.shell("beanpole ls default; echo end"), 79);
        screen.wait_for("队列队\nend");
        assert_eq!(screen.text().matches('\n').count(), 2, "{}", screen.text());
    });
}

#[test]
fn a_command_that_work_runs_has_no_terminal() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q x");
        let ask = "exec beanpole work --all -- sh -c 'read answer < /dev/tty || exit 9'";
        let mut screen = on_terminal(&scene.shell(ask), 200);
        screen.wait_for("exit status 9 at try 1; delayed for 1 s");
        assert_eq!(screen.wait(), Some(1));
    });
}

#[test]
fn the_names_for_all_users_come_after_ones_own() {
    if !as_root() {
        return;
    }
    let scene = Scene::ours();
    let (port, wrong) = (scene.port, "127.0.0.1:1");
    scene.write(".beanpole_servers", format!("own {port}\n"));
    let common = format!("own {wrong}\ncommon {port}\n");
    scene.write("common", common);
    let line = "mount -t tmpfs tmpfs /etc; cp common /etc/beanpole_servers; \
                beanpole -a '*' tubes | grep :; BEANPOLE_SERVERS= beanpole -a '*' tubes";
    let said = scene.said(&format!("unshare -m sh -c \"{line}\""));
    assert_eq!(
        said.0,
        format!("own 127.0.0.1:{port}\ncommon 127.0.0.1:{port}\n")
    );
    assert!(
        said.1.contains("no server has a name like '*'"),
        "{}",
        said.1
    );
}

#[test]
fn a_change_of_several_servers_asks_at_each() {
    on_each_server(&[], |scene| {
        let port = scene.port;
        scene.write(".beanpole_servers", format!("a {port}\nb {port}\n"));
        scene.tell("$ beanpole put -q one two");
        let line = "beanpole -a '?' delete 1 2; echo end $?";
        let mut screen = on_terminal(&scene.shell(line), 80);
        screen.wait_for(&format!("Delete 2 jobs at a 127.0.0.1:{port}? [y/N]"));
        screen.type_keys("n\r");
        screen.wait_for(&format!("Delete 2 jobs at b 127.0.0.1:{port}? [y/N]"));
        screen.type_keys("y\r");
        screen.wait_for("end 1");
        scene.tell("$ beanpole ls\n[1]");
    });
}

#[test]
fn a_command_that_changes_jobs_shows_the_name_of_a_server_with_a_warning_colour() {
    on_each_server(&[], |scene| {
        scene.write("servers", format!("prod {0} red\ntest {0}\n", scene.port));
        let title = format!("prod {}\n", scene.address());
        for (command, is_named, colour) in [
            ("beanpole -a prod put x", true, Color::Idx(1)),
            ("NO_COLOR=1 beanpole -a prod put x", true, Color::Default),
            ("beanpole -a '*' pause default 0 -y", true, Color::Idx(1)),
            (
                "beanpole move --keep default mail --to prod",
                true,
                Color::Idx(1),
            ),
            // Commands that change nothing, and those without a terminal, show no warning.
            ("beanpole -a prod peek 1; echo", false, Color::Default),
            ("beanpole -a prod put x 2>&1 | cat", false, Color::Default),
        ] {
            let mut shell = scene.shell(&format!("{command}; echo end"));
            let screen = on_terminal(shell.env("BEANPOLE_SERVERS", "servers"), 80);
            screen.wait_for("\nend");
            assert_eq!(
                screen.text().starts_with(&title),
                is_named,
                "{command}: {}",
                screen.text()
            );
            assert_eq!(screen.colour_at(0, 0), colour, "{command}");
        }
    });
}
