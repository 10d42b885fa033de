//! Jobs are shown as they are put: tail.

use super::support::{ended, on_each_server};
use support::eventually;

#[test]
fn tail_shows_new_jobs_without_reserving_them() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q earlier");
        let tail = scene.begin("beanpole tail mail log -n 5 -i 0.01 >&2");
        // It is ready when it has learned the latest id: of the second job.
        let mut client = scene.connect();
        eventually("tail to begin", || client.count("cmd-delete") == 1);
        scene.tell(
            r#"
            $ beanpole put -q -t mail -p 1 one "$(printf '\033two')"
            $ beanpole put -q -t other three
            $ printf '\377' | beanpole put -q -t log -d 1000 -r 5
            $ beanpole put -q -t mail four five"#,
        );
        let expected = r"3 mail ready pri=1 delay=0 ttr=60 bytes=3 one
4 mail ready pri=1 delay=0 ttr=60 bytes=4 \x1btwo
6 log delayed pri=1024 delay=1000 ttr=5 bytes=1 \xff
7 mail ready pri=1024 delay=0 ttr=60 bytes=4 four
8 mail ready pri=1024 delay=0 ttr=60 bytes=4 five";
        assert_eq!(ended(tail), (Some(0), expected.into()));
        scene.tell("$ beanpole reserve -t mail --all | wc -c\n15");
    });
}
