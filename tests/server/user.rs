//! How the daemon becomes another user.

use nix::unistd::User;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::process::Command;
use support::Port;
use support::{Client, Folder, PROGRAM, Server, as_root, run, run_command, shell};

/// With another group it is not the same user, and only root can change groups.
#[test]
fn a_server_that_is_not_root_cannot_change_its_user() {
    if !as_root() {
        return;
    }
    let directory = Folder::new();
    let program = directory.join("beanpoled");
    // Not by this process: a file that is open for writing, also in a copy of it that another
    // test has just made, cannot be run.
    let copied = Command::new("cp").arg(&*PROGRAM).arg(&program).status();
    assert!(copied.is_ok_and(|status| status.success()));
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("root may");
    let nobody = User::from_name("nobody").expect("readable");
    let group = nobody.expect("a user").gid.to_string();
    let line = r#"exec setpriv --reuid nobody --regid $1 --clear-groups "$COPY" -p 0 -u $2"#;
    let start = |group, user| Server::spawn(shell(line, [group, user]).env("COPY", &program));
    start(&group, "nobody").log_line("listening on");
    for (group, user) in [(&*group, "daemon"), ("1", "nobody")] {
        let error = format!("-u {user}: becoming the user: Operation not permitted");
        start(group, user).log_line(&error);
    }
}

#[test]
fn root_becomes_the_user_with_all_its_groups_and_no_other() {
    if !as_root() {
        return;
    }
    // Only this process sees this user and its groups.
    let directory = Folder::new();
    let (passwd, group) = (directory.join("passwd"), directory.join("group"));
    let users = "root:x:0:0::/:/bin/sh\nworker:x:4001:4002::/:/bin/sh\n";
    let groups = "root:x:0:\nworkers:x:4002:\nprinters:x:4003:worker\nothers:x:4004:root\n";
    std::fs::write(&passwd, users).expect("a file");
    std::fs::write(&group, groups).expect("a file");
    let line = r#"mount --bind "$USERS" /etc/passwd && mount --bind "$GROUPS_OF" /etc/group"#;
    let line = format!(r#"exec unshare -m sh -c '{line} && exec "$0" "$@"' "$0" "$@""#);
    let (socket, place) = (directory.join("socket"), directory.socket("socket"));
    // Only root may bind such a port. (Others may run the same test now.)
    let first = 600 + (std::process::id() % 400) as u16;
    let reserved = (first..1024).find_map(|number| Port::reserve(number).ok());
    let port = reserved.as_ref().expect("a port").number;
    let number = port.to_string();
    let options = [
        "-l",
        "127.0.0.1",
        "-p",
        &number,
        "-l",
        &place,
        "-u",
        "worker",
    ];
    let access = ["--socket-mode", "0660", "--socket-group", "others"];
    let options = options.into_iter().chain(access);
    let mut shell = shell(&line, options);
    let daemon = Server::spawn(shell.env("USERS", passwd).env("GROUPS_OF", group));
    // The daemon has bound the port and the socket in root's directory while it
    // was root.
    assert_eq!(daemon.port(), port);
    daemon.log_line("listening on unix:");
    let file = std::fs::metadata(&socket).expect("a socket");
    assert_eq!((file.gid(), file.mode() & 0o7777), (4004, 0o660));
    assert_eq!(daemon.status("Uid"), "4001\t4001\t4001\t4001");
    assert_eq!(daemon.status("Gid"), "4002\t4002\t4002\t4002");
    assert_eq!(daemon.status("Groups"), "4002 4003");
    assert_eq!(daemon.status("CapEff"), "0000000000000000");
    assert_eq!(daemon.status("CapPrm"), "0000000000000000");
    Client::connect(port).exchange("use a", "USING a");
}

#[test]
fn a_socket_file_belongs_to_the_user_who_can_use_and_remove_it() {
    if !as_root() {
        return;
    }
    let nobody = User::from_name("nobody")
        .expect("readable")
        .expect("a user");
    let directory = Folder::for_all();
    chown(directory.path(), Some(nobody.uid.as_raw()), None).expect("root may");
    let (socket, place) = (directory.join("socket"), directory.socket("socket"));
    let daemon = Server::start(["-l", &place, "-u", "nobody"]);
    daemon.log_line("listening on unix:");
    let file = std::fs::metadata(&socket).expect("a socket");
    let ids = (nobody.uid.as_raw(), nobody.gid.as_raw(), 0o600);
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), ids);
    let line = r#"exec setpriv --reuid nobody --clear-groups perl -MIO::Socket::UNIX -e '
        my $server = IO::Socket::UNIX->new($ARGV[0]) or die;
        print $server "use a\r\n";
        print scalar <$server>;
    ' "$@""#;
    let mut asked = shell(line, [socket.to_str().expect("text")]);
    assert_eq!(run_command(&mut asked).1, "USING a\r\n");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!log.iter().any(|line| line.contains("warning")), "{log:?}");
    assert!(!socket.exists());
}

/// A server of root or of another user was killed. The user may not connect to its socket,
/// and so cannot see that nobody listens there.
#[test]
fn the_old_socket_of_another_user_is_replaced() {
    if !as_root() {
        return;
    }
    let directory = Folder::for_all();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("root may");
    let (socket, place) = (directory.join("socket"), directory.socket("socket"));
    drop(UnixListener::bind(&socket).expect("a file that is stale"));
    std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("root may");
    let daemon = Server::start(["-l", &place, "-u", "nobody"]);
    daemon.log_line("listening on unix:");
    let file = std::fs::metadata(&socket).expect("a socket");
    let nobody = User::from_name("nobody").expect("readable");
    assert_eq!(file.uid(), nobody.expect("a user").uid.as_raw());
}

#[test]
fn where_there_is_no_list_of_groups_there_is_no_such_group() {
    if !as_root() {
        return;
    }
    let directory = Folder::new();
    let place = directory.socket("socket");
    let options = ["-l", &place, "--socket-group", "daemon"];
    let line = r#"exec unshare -m sh -c 'mount --bind "$0" /etc && exec "$@"' "$EMPTY" "$0" "$@""#;
    let daemon = Server::spawn(shell(line, options).env("EMPTY", directory.path()));
    daemon.log_line("no such group: daemon");
}

/// The user of `-u` may change the directory in which root binds the socket:
/// here it replaces the socket's file with a link as fast as it can.
#[test]
fn root_does_not_touch_a_file_that_the_user_puts_at_the_path_of_the_socket() {
    if !as_root() {
        return;
    }
    let user = User::from_name("nobody").expect("readable");
    let nobody = user.expect("a user").uid.as_raw();
    let directory = Folder::new();
    let theirs = directory.join("theirs");
    let secret = directory.join("secret");
    std::fs::create_dir(&theirs).expect("a directory");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("root may");
    chown(&theirs, Some(nobody), None).expect("root may");
    std::fs::write(&secret, "root's").expect("a file");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("root may");
    let socket = theirs.join("socket");
    let line = r#"exec setpriv --reuid nobody --clear-groups perl -e '
        my ($secret, $socket) = @ARGV;
        while (1) {
            symlink $secret, "$socket~";
            rename "$socket~", $socket;
            unlink $socket;
        }
    ' "$@""#;
    let files = [&secret, &socket].map(|file| file.to_str().expect("text"));
    let mut swapping = shell(line, files).spawn().expect("it runs");
    let place = format!("unix:{}", socket.display());
    // It may bind the socket or not, and then it ends, since another one listens there.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("a port").to_string();
    let starts = (0..40).map(|_| {
        assert_eq!(run(["-l", &place, "-l", &taken, "-u", "nobody"]).0, 111);
        let file = std::fs::metadata(&secret).expect("a file");
        (file.uid(), file.gid(), file.mode() & 0o7777)
    });
    let found: BTreeSet<_> = starts.collect();
    assert_eq!(swapping.try_wait().expect("our child"), None);
    swapping.kill().expect("it runs");
    swapping.wait().expect("it ends");
    assert_eq!(found, BTreeSet::from([(0, 0, 0o600)]));
}

#[test]
fn root_does_not_follow_a_link_of_the_user_on_the_way_to_the_socket() {
    if !as_root() {
        return;
    }
    let user = User::from_name("nobody").expect("readable");
    let nobody = user.expect("a user").uid.as_raw();
    let directory = Folder::new();
    let [theirs, secret] = ["theirs", "secret"].map(|name| directory.join(name));
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("root may");
    for (folder, mode) in [(&theirs, 0o755), (&secret, 0o700)] {
        std::fs::create_dir(folder).expect("a directory");
        std::fs::set_permissions(folder, Permissions::from_mode(mode)).expect("root may");
    }
    std::os::unix::fs::symlink(&secret, theirs.join("way")).expect("a link");
    chown(&theirs, Some(nobody), None).expect("root may");
    let place = format!("unix:{}", theirs.join("way/socket").display());
    let (status, _, error) = run(["-l", &place, "-u", "nobody"]);
    assert_eq!(status, 111);
    assert!(error.contains("Permission denied"), "{error}");
    assert!(!secret.join("socket").exists());
}
