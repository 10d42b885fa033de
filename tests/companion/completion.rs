//! Completions, in the shells that they are for, as far as these are there.

use super::screen::Screen;
use super::story::tell;
use super::support::{BEANPOLE, Server, servers};
use std::path::Path;
use std::process::Command;

/// A server with the tubes `mail` and `mailing`.
fn server() -> Server {
    let server = Server::start(&servers()[0], &[]);
    tell(&server, "$ put -q -t mail x\n$ put -q -t mailing y");
    let script = |shell| {
        Command::new(BEANPOLE)
            .args(["completion", shell])
            .output()
            .unwrap()
            .stdout
    };
    for shell in ["bash", "zsh", "fish"] {
        server.directory.write(shell, &script(shell));
    }
    server
}

/// A shell that finds the program by its name.
fn shell(server: &Server, name: &str) -> Option<Command> {
    let shells = ["/bin", "/usr/bin", "/usr/local/bin"].map(|place| Path::new(place).join(name));
    let Some(program) = shells.iter().find(|path| path.exists()) else {
        ::support::left_out(name);
        return None;
    };
    let mut command = Command::new(program);
    let mut path = Path::new(BEANPOLE).parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env("BEANPOLE_ADDR", server.address())
        .env("HOME", server.directory.path());
    Some(command)
}

/// Lines, and what the last word of each can become.
const COMPLETED: &[(&str, &[&str])] = &[
    ("beanpole cle", &["clear"]),
    ("beanpole cl", &["clear", "clients"]),
    ("beanpole ki", &["kick", "kick-job"]),
    ("beanpole --ver", &["--version"]),
    ("beanpole reserve --de", &["--delay", "--delete"]),
    ("beanpole put -t mai", &["mail", "mailing"]),
    (
        "beanpole -a 127.0.0.1:PORT clear mail",
        &["mail", "mailing"],
    ),
    ("beanpole clear mail --state b", &["buried"]),
    ("beanpole help mo", &["move"]),
    ("beanpole help pro", &["protocol"]),
    ("beanpole completion b", &["bash"]),
    ("beanpole --ti", &["--timeout"]),
    ("beanpole --timeout 5 completion b", &["bash"]),
    ("beanpole binlog ver", &["verify"]),
    ("beanpole tu", &["tubes"]),
    ("beanpole raw stats-", &["stats-job", "stats-tube"]),
];

#[test]
fn bash_completes_commands_options_and_tubes() {
    let server = server();
    let Some(mut bash) = shell(&server, "bash") else {
        return;
    };
    let mut script = format!("source '{}/bash'\n", server.directory.text());
    for (line, _) in COMPLETED {
        // Bash itself splits words at colons.
        let line = line
            .replace("PORT", &server.port.to_string())
            .replace(':', " : ");
        script += &format!(
            "COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _beanpole; echo \"${{COMPREPLY[@]}}\"\n"
        );
    }
    let output = bash.args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    for ((line, expected), found) in COMPLETED.iter().zip(text.lines()) {
        let mut found: Vec<_> = found.split(' ').collect();
        found.sort();
        assert_eq!(found, *expected, "{line}");
    }
    assert_eq!(text.lines().count(), COMPLETED.len());
}

#[test]
fn fish_completes_commands_options_and_tubes() {
    let server = server();
    let Some(mut fish) = shell(&server, "fish") else {
        return;
    };
    let mut script = format!("source '{}/fish'\n", server.directory.text());
    for (line, _) in COMPLETED {
        let line = line.replace("PORT", &server.port.to_string());
        script += &format!("echo (complete -C '{line}' | string split -f 1 \\t)\n");
    }
    let output = fish.args(["--no-config", "-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    for ((line, expected), found) in COMPLETED.iter().zip(text.lines()) {
        let mut found: Vec<_> = found.split(' ').collect();
        found.sort();
        assert_eq!(found, *expected, "{line}");
    }
    assert_eq!(text.lines().count(), COMPLETED.len());
}

#[test]
fn zsh_completes_commands_options_and_tubes() {
    let server = server();
    let Some(mut zsh) = shell(&server, "zsh") else {
        return;
    };
    zsh.args(["-f", "-i"]);
    let mut screen = Screen::start(&zsh, 200, 50);
    let place = server.directory.text();
    screen.type_keys(&format!(
        "PS1='ready''> '; setopt nolistambiguous noautomenu; autoload -U compinit; compinit -u -d '{place}/dump'; source '{place}/zsh'\r"
    ));
    screen.wait_for("\nready>");
    for (line, expected) in COMPLETED {
        let line = line.replace("PORT", &server.port.to_string());
        // A lone candidate is written at once, several are listed.
        screen.type_keys(&format!("\x15\x0c{line}\t"));
        match expected {
            [only] => {
                let (before, _) = line.rsplit_once(' ').unwrap();
                screen.wait_for(&format!("{before} {only}"));
            }
            several => {
                for candidate in *several {
                    screen.wait_for(&format!("\n{}", several[0]));
                    screen.wait_for(candidate);
                }
            }
        }
    }
}

#[test]
fn bash_quotes_a_tube_name_that_it_would_run() {
    let server = server();
    tell(&server, "$ put -q -t '$(pwd)' x");
    let Some(mut bash) = shell(&server, "bash") else {
        return;
    };
    let place = server.directory.text();
    let script = format!(
        "source '{place}/bash'; COMP_WORDS=(beanpole clear '$') COMP_CWORD=2; _beanpole; echo \"${{COMPREPLY[@]}}\""
    );
    let output = bash.args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "\\$\\(pwd\\)\n");
}
