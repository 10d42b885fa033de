//! `binlog repair` and `export7`: what damage leaves, and what the other server reads.

pub use beanpole::binlog::{Record, storage};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::session::{Scene, servers};
use support::{Server, as_root, beanstalkd, program};

/// Jobs of all states in the directory `jobs`, whose server has ended: seven were put,
/// two are deleted, and one segment of ours holds a dozen records or so.
fn written_by(server: &Path) -> Scene {
    let mut scene = Scene::start(server, &["-b", "jobs", "-f", "0"]);
    scene.tell(
        r"
        $ beanpole put -q -t mail -p 1 -r 70 one two three
        $ beanpole put -q -t mail -p 2 -d 100000 later
        $ printf '\377\0' | beanpole put -q -t bin
        $ beanpole put -q -t bad first second
        $ beanpole bury 7 6
        $ beanpole delete 2
        $ beanpole put -q -t mail last
        $ beanpole delete 8",
    );
    scene.end();
    scene
}

fn written_by_ours() -> Scene {
    written_by(&program("beanpoled"))
}

/// What a server that starts on this directory of a scene knows: all jobs, in their
/// order and states. Of the buried ones, the second was buried first.
fn expect_all_jobs(server: &Path, scene: &Scene, name: &str, next_id: u64) {
    let joined = scene.folder.join(name);
    let path = joined.to_str().expect("letters");
    let server = Server::launch(server, ["-b", path, "-f", "0"]);
    Scene::at(server.port()).tell(&format!(
        r"
        $ beanpole reserve -t mail -t bin -t bad --all -l
        one
        three
        \xff\x00
        $ beanpole peek -t mail --state delayed -l
        later
        $ beanpole kick -t bad
        1
        $ beanpole reserve -t bad -l --delete
        second
        $ beanpole kick -t bad
        1
        $ beanpole reserve -t bad -l
        first
        $ beanpole put new
        {next_id}"
    ));
}

#[test]
fn beanstalkd_starts_on_the_files_that_export7_writes() {
    let Some(theirs) = beanstalkd() else { return };
    for server in servers() {
        let scene = written_by(&server);
        scene.tell("$ beanpole binlog export7 jobs new\n6");
        // It cannot know that there was a job 8: it goes on with 8.
        expect_all_jobs(&theirs, &scene, "new", 8);
    }
}

#[test]
fn a_server_starts_on_the_directory_that_repair_writes() {
    for server in servers() {
        let scene = written_by(&server);
        scene.tell(
            "
            $ beanpole binlog repair jobs new
            6
            $ beanpole binlog repair jobs new
            ! beanpole binlog: new is not empty
            [4]
            $ beanpole binlog repair jobs .
            ! beanpole binlog: . is no name for a new directory
            [4]
            $ mkdir empty; ln -s empty link; beanpole binlog repair jobs link
            ! beanpole binlog: link is no name for a new directory
            [4]
            $ beanpole binlog repair jobs
            ! beanpole binlog: repair and export7 take a directory, and a new one to write to
            ! Try 'beanpole help binlog'.
            [2]",
        );
        expect_all_jobs(&program("beanpoled"), &scene, "new", 9);
    }
}

/// The server that reads them may not be root.
#[test]
fn what_root_saves_belongs_to_the_owner_of_the_directory() {
    if !as_root() {
        return;
    }
    let scene = written_by_ours();
    scene.tell(
        "
        $ chown -R nobody:daemon jobs; beanpole binlog repair jobs new; beanpole binlog export7 jobs old
        6
        6
        $ stat -c %U:%G new new/* old old/* | sort -u
        nobody:daemon",
    );
}

/// Changes a byte of a file.
fn damage(scene: &Scene, name: &str, offset: usize) {
    let path = scene.folder.join(name);
    let mut bytes = fs::read(&path).expect("a file");
    bytes[offset] ^= 0x20;
    fs::write(&path, bytes).expect("a file");
}

/// Where the record that puts this job begins, as `cat` says.
fn offset_of(scene: &Scene, id: u64) -> usize {
    let find = format!("grep '\"record\":\"job\",\"id\":{id},' | grep -o '[0-9]*,\"record'");
    let said = scene.out(&format!("beanpole binlog cat jobs | {find}"));
    said.split(',')
        .next()
        .and_then(|offset| offset.parse().ok())
        .expect("an offset")
}

#[test]
fn verify_names_damage_and_repair_saves_the_rest() {
    let scene = written_by_ours();
    let (offset, next) = (offset_of(&scene, 3), offset_of(&scene, 4));
    damage(&scene, "jobs/segment.1", offset + 20);
    let bytes = next - offset;
    let flaw = format!(
        "segment.1 at offset {offset}: {bytes} bytes cannot be read: there is no valid record here, though a later record says that one was synced"
    );
    scene.tell(&format!(
        "
        $ beanpole binlog verify jobs
        {flaw}
        damaged: 1 file, 12 records, 5 jobs live
        ! beanpole binlog: 'beanpole binlog repair jobs NEW' saves what can be read
        [1]
        $ beanpole binlog repair jobs new
        5
        ! beanpole binlog: {flaw}
        ! beanpole binlog: the records there are lost: jobs that were put there, and changes of others, which may come back as they were before, or although they were deleted
        [1]
        $ beanpole binlog verify new
        sound: <any> 5 jobs live
        $ beanpole binlog cat new | grep -c three
        0
        [1]"
    ));
}

#[test]
fn verify_names_a_job_whose_put_record_is_lost() {
    let scene = written_by_ours();
    damage(&scene, "jobs/segment.1", offset_of(&scene, 6) + 30);
    scene.tell(
        "
        $ beanpole binlog verify jobs 2> error
        segment.1 at offset <any>
        job 6 is lost: no record says what it was
        damaged: 1 file, 12 records, 5 jobs live
        [1]",
    );
}

#[test]
fn verify_calls_a_log_damaged_whose_newest_file_was_cut_short() {
    let scene = written_by_ours();
    let path = scene.folder.join("jobs/segment.1");
    let whole = fs::read(&path).expect("a file");
    let offset = offset_of(&scene, 5);
    for more in [1, 15, 16, 17, 30] {
        fs::write(&path, &whole[..offset + more]).expect("a file");
        scene.tell(&format!(
            "
            $ beanpole binlog verify jobs 2> error
            segment.1 at offset {offset}: {more} bytes cannot be read: the file ends within a record
            damaged: 1 file, 4 records, 4 jobs live
            [1]"
        ));
    }
}

/// Such a directory is what is left of a dying disk, or a snapshot.
#[test]
fn a_directory_that_nobody_can_write_to_is_read() {
    if !as_root() {
        return; // it takes a mount
    }
    let scene = written_by_ours();
    scene.tell(
        "
        $ mkdir seen; unshare -m sh -c 'mount --bind jobs seen && mount -o remount,bind,ro seen && beanpole binlog verify seen && beanpole binlog repair seen new && beanpole binlog export7 seen old' 2> error || cat error
        sound: 1 file, <any> 6 jobs live
        6
        6
        $ mkdir disk; unshare -m sh -c 'mount -t tmpfs tmp disk; beanpole binlog repair jobs disk; beanpole binlog repair jobs disk/new'
        6
        ! beanpole binlog: disk is a mount point: name a directory in it",
    );
}

#[test]
fn a_directory_that_is_read_keeps_what_another_server_has_prepared() {
    let scene = written_by_ours();
    let prepared = scene.folder.join("jobs/segment.spare2.17");
    fs::write(&prepared, "").expect("a file is made");
    scene.tell("$ beanpole binlog repair jobs new\n6");
    assert!(prepared.exists());
}

#[test]
fn the_jobs_of_beanstalkd_are_taken_over_and_their_files_have_a_size() {
    let Some(theirs) = beanstalkd() else { return };
    let scene = written_by(&theirs);
    let ours = Server::start(["-b", scene.folder.join("jobs").to_str().expect("letters")]);
    ours.port();
    assert_eq!(ours.stop().code(), Some(0));
    scene.tell(
        "
        $ beanpole binlog verify jobs
        files binlog.*.taken have 10485760 bytes, and no server needs them
        sound: <any> 6 jobs live
        $ rm jobs/binlog.*.taken; beanpole binlog verify jobs
        sound: <any> 6 jobs live",
    );
    expect_all_jobs(&program("beanpoled"), &scene, "jobs", 9);
}

/// The old jobs may be done, and the new ones are in neither of the two logs.
#[test]
fn files_that_beanstalkd_has_written_after_a_takeover_are_refused() {
    let scene = written_by_ours();
    let why = "binlog.2 was written by beanstalkd after its jobs had been taken over, by a server \
        that no client has reached yet; nothing was changed; remove segment.* and takeover*, \
        take .taken off the names that end in it, and start again";
    scene.tell(&format!(
        "
        $ beanpole binlog export7 jobs old
        6
        $ mv old/binlog.1 jobs/binlog.2; echo binlog.1 > jobs/takeover.done
        $ cp jobs/segment.1 jobs/segment.9
        $ beanpole binlog verify jobs
        segment.2 to segment.8 is missing though jobs in it are needed
        segment.9 at offset 0: 44 bytes cannot be read: its header is that of another segment
        ! beanpole binlog: {why}
        [4]
        $ rm jobs/segment.9; beanpole binlog repair jobs new 2>&1
        beanpole binlog: {why}
        [4]"
    ));
}

/// As if somebody had removed our files before those of beanstalkd had their new names.
#[test]
fn repair_saves_the_jobs_of_a_takeover_whose_copies_are_lost() {
    let Some(theirs) = beanstalkd() else { return };
    let scene = written_by(&theirs);
    scene.tell(
        "
        $ (cd jobs; ls binlog.* > takeover.done; touch takeover); beanpole binlog verify jobs 2> error
        all segments are missing, though takeover.done shows that there were some
        damaged: <any> 6 jobs live
        [1]
        $ beanpole binlog repair jobs new 2> error
        6
        [1]",
    );
    expect_all_jobs(&program("beanpoled"), &scene, "new", 9);
}

#[test]
fn export7_loses_no_job_that_its_server_can_take() {
    let Some(theirs) = beanstalkd() else { return };
    let options = ["-b", "jobs", "-f", "0", "-z", "99999"];
    let mut scene = Scene::start(&program("beanpoled"), &options);
    for (size, count) in [(65_533, 1), (70_000, 2), (65_534, 1), (65_535, 1), (1, 20)] {
        scene.tell(&format!(
            "$ yes $(printf '%0{size}d' 0) | head -n {count} | beanpole put -q -l"
        ));
    }
    scene.end();
    for (size, count) in [
        (65_535, 21),
        (65_536, 22),
        (65_537, 23),
        (70_001, 23),
        (70_002, 25),
    ] {
        scene.tell(
            "
            $ rm -rf new; beanpole binlog export7 jobs new
            25
            ! beanpole binlog: 4 of the jobs are larger than beanstalkd takes by default: start it with -z 70002, or it drops them for good",
        );
        let new = scene.folder.join("new");
        let mode = fs::metadata(new.join("binlog.1"))
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let size = size.to_string();
        let options = ["-b", new.to_str().expect("letters"), "-z", &size];
        let server = Server::launch(&theirs, options);
        assert_eq!(
            server.connect().count("current-jobs-ready"),
            count,
            "-z {size}"
        );
    }
}
