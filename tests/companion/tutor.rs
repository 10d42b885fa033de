//! The tutor: its lessons from a pipe and on a terminal. It has a server of its
//! own, so these tests start none.

use super::screen::Screen;
use super::support::{BEANPOLE, Directory, beanpoled, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The program with these arguments. What it keeps, it keeps in this directory.
fn tutor(place: &Directory, arguments: &[&str]) -> Command {
    // It is to find this one beside itself.
    beanpoled();
    let mut command = Command::new(BEANPOLE);
    command
        .arg("tutor")
        .args(arguments)
        .env("XDG_STATE_HOME", place.path())
        // It is never asked.
        .env("BEANPOLE_ADDR", "127.0.0.1:1");
    command
}

/// Starts it, and returns it with its input.
fn start(command: &mut Command) -> (Child, ChildStdin) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let stdin = child.stdin.take().expect("it has an input");
    (child, stdin)
}

/// What comes of these answers.
fn answer(command: &mut Command, answers: &str) -> Output {
    let (child, mut stdin) = start(command);
    // It need not read all.
    let _ = stdin.write_all(answers.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

/// The same, for a program that has nothing to complain about.
fn text(command: &mut Command, answers: &str) -> String {
    let output = answer(command, answers);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).expect("it writes text")
}

/// The answers that a learner who skipped all questions was shown.
fn answers_in(told: &str) -> String {
    let mut answers = String::new();
    let mut lines = told.lines();
    while let Some(line) = lines.next() {
        let Some(prompt) = line.strip_suffix("skip") else {
            continue;
        };
        let said = lines.next().expect("an answer follows");
        // A reply may be a document, of which one line was asked for.
        let shown = lines
            .find(|line| line.starts_with(prompt) || line.ends_with(')') && prompt.ends_with("< "))
            .expect("the answer is shown");
        let shown = match shown.strip_prefix(prompt) {
            Some(shown) => shown,
            None => shown.trim_start().split_once(' ').expect("who waits").1,
        };
        answers += &format!("{shown}\n");
        // After the line of a put comes its body.
        if shown.starts_with("put ") {
            let body = lines.next().and_then(|line| line.strip_prefix(prompt));
            answers += &format!("{}\n", body.expect("a body"));
        }
        assert!(said.starts_with("This is what "), "{said}");
    }
    answers
}

#[test]
fn the_whole_tour_can_be_done_with_the_answers_that_it_shows() {
    let place = Directory::new();
    let skipped = text(&mut tutor(&place, &[]), &"skip\n".repeat(200));
    for lesson in 1..=10 {
        let heading = format!("\nLesson {lesson} of 10: ");
        assert_eq!(skipped.matches(&heading).count(), 1, "{lesson}");
    }
    let answers = answers_in(&skipped);
    let done = text(&mut tutor(&place, &[]), &answers);
    for wrong in [
        "This is what ",
        "Not this time",
        "The reply is the same",
        "To that",
    ] {
        assert_eq!(done.matches(wrong).count(), 0, "{wrong}:\n{done}");
    }
    let questions = done.matches("\nYou are ").count() + done.matches("\nWhat does ").count();
    assert_eq!(skipped.matches("skip\n").count(), questions);
    assert!((45..61).contains(&questions), "{questions}");
    // A tour is no book.
    let words = done.split_whitespace().count();
    assert!(words < 3800, "{words}");
    assert!(done.contains("\nThis was the tour."), "{done}");
    // The next tour begins anew.
    assert_eq!(place.wait_for("beanpole/tutor"), "1 0\n");
}

#[test]
fn the_server_answers_what_is_wrong_and_the_tutor_helps() {
    let place = Directory::new();
    let told = text(
        &mut tutor(&place, &["1"]),
        "put 0 0 60 4\nhello\n?\nput 0 0 60 5\nhello\n\
         reserve-with-timeout 10\n\
         delete 7\nDELETE 1\n\
         DELETED\n\nnot_found\n\
         back\nskip\nquit\n",
    );
    let lesson = told.split("You are alice: put").nth(1).expect("a lesson");
    let expected = r#" a job with priority 0, delay 0, a TTR of 60 and the body 'hello'.
    alice: put 0 0 60 4
    alice: hello
To that the server answers EXPECTED_CRLF, which is not what alice wants.
Please try once more; ? gives a hint.
    alice: ?
put _ _ _ _
    alice: put 0 0 60 5
    alice: hello
    alice< INSERTED 1
        [job 1 is ready]

bob works. He reserves the next job, does what it says, and deletes it.

You are bob: reserve the next job, and wait if there is none.
    bob: reserve-with-timeout 10
The reply is the same, RESERVED 1 5. The story goes on with this:
    bob: reserve
    bob< RESERVED 1 5
    bob< hello
        [job 1 is reserved]
You are bob: delete job 1.
    bob: delete 7
To that the server answers NOT_FOUND, which is not what bob wants.
Please try once more; ? gives a hint.
    bob: DELETE 1
To that the server answers UNKNOWN_COMMAND, which is not what bob wants.
This is what bob sends:
    bob: delete 1
    bob< DELETED
        [job 1 is gone]

Now the job is gone, for everybody.

    alice: delete 1
What does alice get?
    alice< DELETED
Not this time. Please try once more; ? gives a hint.
    alice< 
One word, which begins with NO
    alice< not_found
Yes:
    alice< NOT_FOUND

Tubes
"#;
    assert!(lesson.starts_with(expected), "{lesson}");
    // The question before that about tubes is the last one of the first story.
    assert!(
        lesson.ends_with("'beanpole tutor' goes on from here.\n"),
        "{lesson}"
    );
    assert_eq!(
        lesson.matches("What does alice get?").count(),
        2,
        "{lesson}"
    );
}

#[test]
fn who_leaves_comes_back_to_the_same_question() {
    let place = Directory::new();
    let left = text(&mut tutor(&place, &["2"]), "reserve\nskip\nquit\n");
    assert!(
        left.ends_with("'beanpole tutor' goes on from here.\n"),
        "{left}"
    );
    let prompt = |text: &str| text.lines().rev().nth(1).map(String::from);
    let asked = prompt(&left).expect("a question");
    let list = text(&mut tutor(&place, &["--list"]), "");
    assert!(
        list.starts_with("   1  A first session\n>  2  The wire\n   3  "),
        "{list}"
    );
    // Also at the end of the input it can be left.
    let back = text(&mut tutor(&place, &[]), "");
    assert!(back.starts_with("\nLesson 2 of 10: The wire\n"), "{back}");
    assert_eq!(prompt(&back), Some(asked.replace("quit", "")));
    // What came before is still true on the new server.
    let on = text(&mut tutor(&place, &[]), "skip\nskip\n");
    assert!(on.contains("\n    alice< NOT_FOUND\n"), "{on}");
    // Another version may have had more lessons, or the file may be damaged.
    for kept in ["11 0\n", "2 9999\n", "0 0\n", "1\n", "\u{fffd}", ""] {
        place.write("beanpole/tutor", kept.as_bytes());
        let again = text(&mut tutor(&place, &[]), "");
        assert!(again.contains("\nLesson 1 of 10: "), "{kept}: {again}");
    }
}

#[test]
fn it_teaches_also_where_nothing_can_be_kept() {
    let place = Directory::new();
    let mut command = tutor(&place, &["3"]);
    command.env_remove("XDG_STATE_HOME").env_remove("HOME");
    let left = text(&mut command, "skip\nquit\n");
    assert!(
        left.ends_with("'beanpole tutor 3' begins this lesson again.\n"),
        "{left}"
    );
    // A file stands where the directory should be.
    let file = place.write("file", b"");
    let mut command = tutor(&place, &["3"]);
    let output = answer(command.env("XDG_STATE_HOME", &file), "skip\nskip\nquit\n");
    let complaint = format!(
        "beanpole tutor: cannot make {}/beanpole: Not a directory\n",
        file.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
    assert_eq!(output.status.code(), Some(0));
    // In the home directory, the usual place is made.
    let mut command = tutor(&place, &["4"]);
    command
        .env_remove("XDG_STATE_HOME")
        .env("HOME", place.path());
    text(&mut command, "");
    let kept = place.wait_for(".local/state/beanpole/tutor");
    assert!(kept.starts_with("4 "), "{kept}");
}

#[test]
fn it_says_what_is_wrong_with_its_arguments() {
    let place = Directory::new();
    for (arguments, complaint) in [
        (&["0"][..], "'0' is not a number from 1 to 10"),
        (&["11"], "'11' is not a number from 1 to 10"),
        (&["1", "2"], "one lesson at a time"),
    ] {
        let output = answer(&mut tutor(&place, arguments), "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("beanpole tutor: {complaint}\nTry 'beanpole help tutor'.\n");
        assert_eq!((said, output.status.code()), (expected, Some(2)));
    }
}

#[test]
fn without_a_server_to_start_it_says_so() {
    let place = Directory::new();
    let lonely = place.path().join("beanpole");
    std::fs::copy(BEANPOLE, &lonely).expect("the program can be copied");
    let mut command = Command::new(&lonely);
    command
        .args(["tutor", "1"])
        .env("XDG_STATE_HOME", place.path().join("state"))
        .env("PATH", place.path());
    let output = answer(&mut command, "skip\n");
    let said = format!(
        "beanpole tutor: it needs a server of its own, but there is no beanpoled beside {} or in PATH\n",
        lonely.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    assert_eq!(output.status.code(), Some(3));
    // One that does not serve is not waited for.
    let broken = place.write("beanpoled", b"#!/bin/sh\necho out of order >&2\n");
    let status = Command::new("/bin/chmod").arg("+x").arg(broken).status();
    assert!(status.is_ok_and(|status| status.success()));
    let output = answer(&mut command, "skip\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "beanpole tutor: beanpoled does not serve: out of order\n"
    );
    assert_eq!(output.status.code(), Some(4));
}

/// The process of the server that this program has started.
fn server_of(child: &Child) -> u32 {
    let id = child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.expect("Linux lists them");
    children.trim().parse().expect("there is one")
}

#[test]
fn its_server_ends_with_it_whatever_the_signal() {
    for signal in ["INT", "TERM", "HUP"] {
        let place = Directory::new();
        let (mut child, mut stdin) = start(&mut tutor(&place, &["1"]));
        stdin.write_all(b"skip\n").expect("it reads");
        let mut said = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        let asks = |line: &String| line.contains("You are bob");
        assert!(said.any(|line| asks(&line.expect("text"))));
        let server = server_of(&child);
        let kill = format!("kill -{signal} {}", child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()));
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{signal}");
        let complaint = "beanpole tutor: stopped by a signal\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
        assert!(!Path::new(&format!("/proc/{server}")).exists(), "{signal}");
        drop(stdin);
        // The next time it asks bob again.
        let back = text(&mut tutor(&place, &[]), "");
        assert!(back.contains("    alice< INSERTED 1\n"), "{back}");
        assert!(back.contains("You are bob: reserve"), "{back}");
    }
}

#[test]
fn on_a_terminal_lines_are_typed_and_edited_there() {
    let place = Directory::new();
    let mut screen = Screen::start(&tutor(&place, &["1"]), 100, 50);
    screen.wait_for("and the body 'hello'.\n    alice:");
    screen.type_keys("put 0 0 60 55\x7f\r");
    screen.wait_for("    alice: put 0 0 60 5\n    alice:");
    screen.type_keys("hello\r");
    screen.wait_for("    alice: hello\n    alice< INSERTED 1\n");
    screen.wait_for("wait if there is none.\n    bob:");
    screen.type_keys("\x03");
    screen.wait_for("\nbeanpole tutor: stopped by a signal");
    assert_eq!(screen.wait(), Some(130));
    let mut screen = Screen::start(&tutor(&place, &[]), 100, 50);
    screen.wait_for("wait if there is none.\n    bob:");
    screen.type_keys("\x04");
    screen.wait_for("'beanpole tutor' goes on from here.");
    assert_eq!(screen.wait(), Some(0));
}

#[test]
fn a_learner_who_thinks_for_long_finds_the_story_as_it_was() {
    let place = Directory::new();
    let (mut child, mut stdin) = start(&mut tutor(&place, &["5"]));
    let mut said = BufReader::new(child.stdout.take().expect("it has an output")).lines();
    let mut told = Vec::new();
    let mut is_late = false;
    while !is_late {
        let line = said.next().expect("the lesson goes on").expect("text");
        if line.starts_with("You are ") || line.starts_with("What does ") {
            is_late = line == "What does carol get?";
            if is_late {
                // Meanwhile carol gets the job.
                std::thread::sleep(std::time::Duration::from_millis(1500));
            }
            stdin.write_all(b"skip\n").expect("it reads");
        }
        told.push(line);
    }
    let rest = said
        .map_while(Result::ok)
        .take_while(|line| !line.contains("bob comes too late"));
    let rest: Vec<_> = rest.collect();
    let expected = ["    carol (waits)", "    -- 1 second passes"];
    assert_eq!(rest[2..4], expected, "{rest:?}");
    drop(stdin);
    wait_for("its end", || child.try_wait().expect("our child").is_some());
}
