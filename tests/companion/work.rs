//! `work`: commands that succeed, fail, hang and print much, and what becomes of
//! their jobs.

use super::screen::Screen;
use super::story::tell;
use super::support::{Directory, PATIENT, Running, Server, servers};

#[test]
fn a_job_outlives_a_restart_of_the_server_which_counts_as_no_try() {
    for program in servers() {
        let binlog = Directory::new();
        let mut server = Server::start(&program, &["-b", binlog.text(), "-f", "0"]);
        tell(&server, "$ put -r 100 -q precious");
        let script = format!("{PATIENT}; exit 1");
        let mut command = server.beanpole();
        command.args(["work", "-n", "1", "--tries", "2", "--backoff", "1000", "--"]);
        command.args(["sh", "-c", &script]);
        let mut worker = Running::start(command.arg(server.directory.path()));
        for _ in 0..2 {
            server.directory.wait_for("pid");
            server.end();
            server.restart();
            worker.wait_for_line("beanpole work: job 1: taken back");
        }
        server.directory.write("go", b"");
        let said = "beanpole work: job 1 of default: exit status 1 at try 1; delayed for 1000 s\n";
        assert_eq!(worker.wait(), (1, said.into()));
        // What the end of the server has cut short counts as no reservation.
        tell(
            &server,
            r"
            $ kick
            1
            $ work --all --tries 2 -- false
            ! beanpole work: job 1 of default: exit status 1 at try 2; buried
            [1]
            ",
        );
    }
}

#[test]
fn a_command_has_no_terminal_to_ask_at() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let mut command = server.beanpole();
        command.args([
            "work",
            "--all",
            "--",
            "sh",
            "-c",
            "read answer < /dev/tty || exit 9",
        ]);
        let mut screen = Screen::start(&command, 200, 24);
        screen.wait_for("exit status 9 at try 1; delayed for 1 s");
        assert_eq!(screen.wait(), Some(1));
    }
}
