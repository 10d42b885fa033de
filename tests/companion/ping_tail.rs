//! Commands that look at a server for some time: ping and tail.

use super::support::{ended, on_each_server};
use nix::sys::signal::Signal;
use support::eventually;
use support::session::Scene;

#[test]
fn ping_reports_latencies_of_each_server() {
    on_each_server(&[], |mut scene| {
        scene.tell(
            "
            $ beanpole ping -n 2 -i 10ms
            127.0.0.1:PORT: <text> ms
            127.0.0.1:PORT: <text> ms
            2 answers: 50% within <text>, 90% within <text>, 99% within <text>, longest <text> ms",
        );
        // Several servers are asked in turn, and one that is not there hides none.
        let other = Scene::ours();
        scene.tell(&format!(
            "
            $ beanpole ping -a 1 -a $PORT -a {0} -n 2 -i 10ms --json 2> error
            {{\"127.0.0.1:PORT\":{{<any>\"answers\":2,<any>\"127.0.0.1:{0}\":{{<any>\"answers\":2,<any>
            [3]",
            other.port
        ));
        // Interrupted, it says what it has found; and so it does if the server ends.
        for is_interrupted in [true, false] {
            let ping = scene.begin("beanpole ping -i 10ms >&2 2> error");
            ping.log_line(" ms");
            match is_interrupted {
                true => ping.signal(Signal::SIGINT),
                false => scene.kill(),
            }
            let (_, said) = ended(ping);
            assert!(said.contains(" answers: 50% within "), "{said}");
        }
    });
}

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
