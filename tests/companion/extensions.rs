//! The options of a put: put, ls, dump, load, move and edit know them, and ask a
//! server before they use them.

use super::story::tell;
use super::support::{Server, beanpoled, beanstalkd};

#[test]
fn put_makes_no_second_job_with_a_unique_key() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        r#"
        $ put -t nightly --unique report:1h one
        2
        $ put -t nightly --unique report:1h two
        2
        ! beanpole put: body 1: job 2 has the key: READY
        $ put -t nightly --unique report:1h -p 3 -q three
        $ peek 2
        one⊣
        $ delete 2
        $ put -t nightly --unique report:1h four
        2
        ! beanpole put: body 1: job 2 has the key: DELETED
        $ put -t nightly --unique a,b four
        ! beanpole put: --unique: 'a,b' cannot be a key: 1 to 200 letters, digits and -+/;.$_(), no hyphen first
        ! Try 'beanpole help put'.
        [2]
        $ put --limit a:0 four
        ! beanpole put: --limit: '0' is not a number from 1 to 4294967295
        ! Try 'beanpole help put'.
        [2]
        "#,
    );
}

#[test]
fn ls_tells_why_a_ready_job_is_not_given_out() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        r#"
        $ put -q -t web --limit deploy one two
        $ put -q -t web three
        "#,
    );
    let mut connection = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut connection, b"reserve-job 2\r\n").unwrap();
    let mut reply = [0; 19];
    std::io::Read::read_exact(&mut connection, &mut reply).unwrap();
    assert_eq!(&reply, b"RESERVED 2 3\r\none\r\n");
    let listed = server.said(&["ls", "web"]);
    let bodies: Vec<&str> = listed
        .lines()
        .map(|line| line.rsplit("  ").next().unwrap())
        .collect();
    assert_eq!(bodies, ["BODY", "one", "two", "three"], "{listed}");
    let limits: Vec<bool> = listed
        .lines()
        .map(|line| line.contains("  limit deploy:1  "))
        .collect();
    assert_eq!(limits, [false, false, true, false], "{listed}");
}

#[test]
fn a_job_whose_unique_key_is_taken_in_the_other_tube_stays_where_it_is() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        r#"
        $ put -t mail --unique a one
        2
        $ move - mail < '2'
        0
        ! beanpole move: job 2 stays: its unique key is taken there by job 2
        [1]
        $ put -q -t post --unique a other
        $ move mail post
        0
        ! beanpole move: job 2 stays: its unique key is taken there by job 6
        [1]
        $ copy mail third
        1
        $ ls -q -t mail -t post
        2
        6
        "#,
    );
}

#[test]
fn a_job_with_a_unique_key_is_not_lost_by_edit() {
    let server = Server::start(&beanpoled(), &[]);
    tell(&server, "$ put -q -t mail --unique a one");
    let mut edit = server.beanpole();
    edit.args(["edit", "2"]).env("EDITOR", "sed -i s/one/two/");
    edit.env_remove("VISUAL")
        .env("TMPDIR", server.directory.path());
    let said = String::from_utf8(edit.output().unwrap().stderr).unwrap();
    let reason = "beanpole edit: job 2 stays: its unique key is taken there by job 2\n";
    assert!(said.starts_with(reason), "{said}");
    tell(&server, "$ peek 2 -l\none");
}

/// As dumps had it before.
#[test]
fn the_options_of_a_put_may_be_called_words_in_a_dump() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        r#"
        $ put -q --json < '{"tube":"web","words":"con:b:2","body":"x"}'
        "#,
    );
    let listed = server.said(&["ls", "-j"]);
    assert!(listed.contains(r#""options":"con:b:2""#), "{listed}");
}

#[test]
fn a_dump_keeps_the_options_of_a_put_and_load_says_where_they_are_lost() {
    let server = Server::start(&beanpoled(), &[]);
    tell(
        &server,
        r#"
        $ put -q -t web --unique a:60 --limit b:2 --tries 3 one
        $ put -q -t web --limit b:2 two
        $ put -q -t web three
        "#,
    );
    let file = server.directory.path().join("dump");
    tell(&server, &format!("$ dump -o '{}'", file.display()));
    let dumped = std::fs::read_to_string(&file).unwrap();
    let options: Vec<bool> = dumped
        .lines()
        .map(|line| line.contains("options"))
        .collect();
    assert_eq!(options, [false, true, true, false, false], "{dumped}");
    assert!(
        dumped.contains(r#""options":"idp:a:60 con:b:2 try:3","body":"one""#),
        "{dumped}"
    );

    let ours = Server::start(&beanpoled(), &[]);
    tell(&ours, &format!("$ load '{}'\n3", file.display()));
    let again = ours.said(&["dump"]);
    assert!(
        again.contains(r#""options":"idp:a:60 con:b:2 try:3","body":"one""#),
        "{again}"
    );
    assert!(
        again.contains(r#""options":"con:b:2","body":"two""#),
        "{again}"
    );

    for theirs in beanstalkd() {
        let theirs = Server::start(&theirs, &[]);
        let lost = "2 jobs have lost their options (idp, con, try): the server does not know them";
        tell(
            &theirs,
            &format!("$ load '{}'\n3\n! beanpole load: {lost}", file.display()),
        );
        tell(
            &theirs,
            r#"
            $ put --tries 3 'delete 1\r\n'
            ! beanpole put: the server does not know --unique, --limit and --tries
            [4]
            $ peek 1
            one⊣
            $ put --json -q < '{"options":"con:a:1","body":"delete 1\\r\\n"}'
            ! beanpole put: 1 job has lost its options (idp, con, try): the server does not know them
            $ ls -q --match 'delete 1'
            4
            "#,
        );
    }
}
