//! A beanstalkd whose binlog has had no room: what the program asks of it is
//! still answered, and nothing is left behind.

use std::fs;
use support::beanstalkd;
use support::session::Scene;

/// A server that has no room for another file of its binlog, and how many jobs
/// it took before it refused the first.
fn full() -> Option<(Scene, usize)> {
    let scene = Scene::start(&beanstalkd()?, &["-b", "jobs", "-s", "16384"]);
    fs::remove_dir_all(scene.folder.join("jobs")).expect("a folder");
    for size in [4000, 400, 1] {
        let put = format!("yes $(printf '%0{size}d' 0) | head -n 60 | beanpole put -q -t mail -l");
        scene.expect(&put, "! beanpole put: <any>(OUT_OF_MEMORY)\n[4]");
    }
    let count = scene.out("beanpole ls -q mail 2> error").lines().count();
    Some((scene, count))
}

#[test]
fn a_beanstalkd_whose_disk_was_full_can_be_evacuated() {
    let Some((scene, count)) = full() else { return };
    let other = Scene::ours();
    // Each of these asks for the latest id by a job that is refused, and passes over those
    // that were refused.
    let session = "
        $ beanpole ls mail --json | grep -c '\"state\":\"ready\"'
        COUNT
        $ beanpole move --keep mail mail --to OTHER 2> error
        COUNT
        $ beanpole dump > dump
        $ beanpole load -a OTHER -t loaded dump
        COUNT
        # Nothing can be done to those that were refused.
        $ beanpole delete REFUSED
        ! beanpole delete: job REFUSED is invalid: this is no state for it
        [1]
        $ beanpole delete -t mail -y 2> error
        COUNT
        $ beanpole tubes | sed 's/ .*//'
        TUBE
        default
        mail";
    let session = session.replace("REFUSED", &(count + 1).to_string());
    let session = session.replace("COUNT", &count.to_string());
    scene.tell(&session.replace("OTHER", &other.address()));
}
