//! Which tubes and which jobs a command is about: patterns, conditions, and what
//! it would do.

use super::story::{on_each_server, tell};
use super::support::{Server, servers};

#[test]
fn a_pattern_selects_among_the_tubes_that_exist() {
    on_each_server(
        r#"
        $ put -q -t mail a
        $ put -q -t mails b c
        $ put -q -t fax d
        $ tubes 'mail*' --names
        mail
        mails
        $ tubes '?ax' --names
        fax
        $ tubes 'x*'
        TUBE     READY  RESERVED   DELAYED    BURIED      PUTS     USING  WATCHING   WAITING     PAUSE
        [1]
        $ tubes --sort ready 'mail*'
        TUBE      READY  RESERVED   DELAYED    BURIED      PUTS     USING  WATCHING   WAITING     PAUSE
        mails         2         0         0         0         2         0         0         0         0
        mail          1         0         0         0         1         0         0         0         0
        $ tubes --sort colour
        ! beanpole tubes: --sort: there is no column 'colour'
        ! Try 'beanpole help tubes'.
        [2]
        $ ls -q 'mail*'
        1
        2
        3
        $ ls 'x*'
        ! beanpole ls: there is no tube like 'x*'
        [1]
        $ ls 'a b'
        ! beanpole ls: 'a b' cannot be the name of a tube: 1 to 200 letters, digits and -+/;.$_(), no hyphen first
        ! Try 'beanpole help ls'.
        [2]
        $ pause 'mail*' 100000
        $ why mail
        mail: It is paused for another 27h; 1 job is ready. Nobody watches it.
        [1]
        $ pause 'x*' 1
        ! beanpole pause: there is no tube like 'x*'
        [1]
        $ resume '*'
        $ pause fax 100000
        $ dump -o /dev/null
        ! beanpole dump: a dump has no pauses: pause these where it is loaded: fax
        $ dump 'mail*' -o /dev/null
        $ resume fax
        $ bury 1 2
        $ kick -t 'mail*' --all
        2
        $ bury 1 2
        $ kick -t 'mail*' 1
        1
        $ kick -t fax -t 'mail*' 5
        1
        $ kick -t 'x*'
        ! beanpole kick: there is no tube like 'x*'
        [1]
        $ reserve -t 'mai?' --all -l
        a
        $ reserve -t 'x*' --all
        ! beanpole reserve: there is no tube like 'x*'
        [1]
        $ check -t 'mail*' --ready-max 2
        BEANSTALK CRITICAL: ready 3 (limit 2) | 'ready'=3;;2;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=0;;;0 'workers'=0;;;0
        [2]
        $ check -t 'x*'
        BEANSTALK UNKNOWN: there is no tube like 'x*'
        [3]
        $ move '*' all
        4
        $ reserve -t all --all -l
        a
        b
        c
        d
        "#,
    );
}

#[test]
fn stats_shows_each_tube_that_an_option_or_a_pattern_selects() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail a\n$ put -q -t mails b\n$ put -q -t fax c",
        );
        let said = server.said(&["stats", "-t", "fax", "mail*"]);
        let of_names = said.lines().filter(|line| line.starts_with("name "));
        let names: Vec<_> = of_names
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        assert_eq!(names, ["fax", "mail", "mails"], "{said}");
        let json = server.said(&["stats", "--json", "ma*"]);
        assert!(json.starts_with("[{\"name\":\"mail\","), "{json}");
        tell(
            &server,
            "$ stats 'x*'\n! beanpole stats: there is no tube like 'x*'\n[1]",
        );
    }
}

#[test]
fn conditions_choose_the_jobs_that_are_deleted_moved_and_copied() {
    on_each_server(
        r#"
        $ put -q -t mail red blue 'dark red' green
        $ put -q -t mail -d 1000 'red later'
        $ put -q -t fax red
        $ bury 2
        $ clear mail --match red --dry-run
        3
        $ clear mail --match red --state ready --yes
        2
        $ clear mail fax --older 1h --yes
        0
        $ clear mail fax --dry-run
        4
        $ clear mail --match e
        ! beanpole clear: Delete 1 ready, 1 delayed and 1 buried jobs of tube 'mail' at 127.0.0.1:PORT? no terminal to ask at: give --yes if you mean it
        ! Try 'beanpole help clear'.
        [2]
        $ clear mail --state reserved
        ! beanpole clear: --state: 'reserved' is not ready, delayed or buried
        ! Try 'beanpole help clear'.
        [2]
        $ copy mail tried --tries 1
        1
        $ move mail later --match later --dry-run
        1
        $ move mail later --match later
        1
        $ move mail later --dry-run
        2
        $ ls -q mail fax
        2
        4
        6
        $ delete --dry-run 2 2 4 99
        2
        ! beanpole delete: there is no job 99
        [1]
        $ clear '*' -n 1 --yes
        1
        $ clear '*' --yes
        4
        "#,
    );
}

#[test]
fn ls_sorts_by_the_given_property() {
    on_each_server(
        r#"
        $ put -q -p 5 aaa
        $ put -q -p 3 b
        $ put -q -d 1000 cc
        $ put -q -d 500 -t other dddd
        $ bury 2
        $ ls -q --sort pri
        2
        1
        3
        4
        $ ls -q --sort size -n 2
        4
        1
        $ ls -q --sort left
        4
        3
        1
        2
        $ ls -q --sort tries -n 1
        2
        $ ls -q --sort tube -n 1
        1
        $ ls -q --sort state -n 1
        2
        $ ls --sort x
        ! beanpole ls: invalid value 'x' for '--sort <COLUMN>'; [possible values: id, state, pri, age, left, tries, size, tube]
        ! Try 'beanpole help ls'.
        [2]
        "#,
    );
}
