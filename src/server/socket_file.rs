//! The file of a Unix socket, in a directory that may belong to another user.
//!
//! Root binds the sockets before it becomes the user of `-u`, and the directory
//! often belongs to that user, who may put links and other files into it while
//! the server starts. So root does nothing there with its own rights: it acts as
//! that user, who can then harm no one else. Root's own rights are used only where
//! only root can change the directory.

use super::LOOKS_EVERY;
use super::privileges::acting_as;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, Uid, User};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::thread;

/// Which users may connect to a Unix socket: those who may write to its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The file's permissions.
    pub mode: Mode,
    /// The file's group; `None`: the group of the user.
    pub group: Option<String>,
}

/// The file that was created for a socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The device and the number of the file. No other file has them while the
    /// socket is open.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds a socket and makes it listen. A stale file, left by a server
    /// that has ended, is replaced.
    ///
    /// The file belongs to `user`, if this process is about to become that
    /// user, who can then connect to it and remove it.
    ///
    /// # Errors
    ///
    /// If the path cannot be used, or another server listens there.
    pub fn bind(
        path: &Path,
        access: &SocketAccess,
        user: Option<&User>,
    ) -> io::Result<(OwnedFd, SocketFile)> {
        let group = access.group.as_deref().map(find_group).transpose()?;
        let bind = |path: &Path| bind_file(path, access.mode, group);
        // Only root can become another user.
        let Some(user) = user.filter(|_| Uid::effective().is_root()) else {
            return bind(path);
        };
        let group = group.unwrap_or(user.gid);
        match acting_as(user, group, || bind(path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let path = path_only_root_can_change(path)?.ok_or(error)?;
                let (socket, file) = bind(&path)?;
                lchown(&path, Some(user.uid.as_raw()), Some(group.as_raw()))
                    .map_err(failed("giving it to the user"))
                    .inspect_err(|_| drop(file.remove()))?;
                Ok((socket, file))
            }
            bound => bound,
        }
    }

    /// Removes the file, unless it was removed already, or replaced by that of
    /// another server.
    ///
    /// # Errors
    ///
    /// If the system does not let us remove it.
    pub fn remove(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(file) if identity(&file) == self.identity => fs::remove_file(&self.path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Binds a socket, with this mode and group of its file from the first moment
/// at which clients can connect.
fn bind_file(path: &Path, mode: Mode, group: Option<Gid>) -> io::Result<(OwnedFd, SocketFile)> {
    // Two servers must not both find the same stale file: the slower one would
    // remove the file of the faster one.
    let _directory_lock = lock_directory(path);
    if is_stale(path)? {
        fs::remove_file(path).map_err(failed("removing the old one"))?;
    }
    let socket = new_socket(AddressFamily::Unix)?;
    let before = umask(!mode);
    let bound = bind(socket.as_raw_fd(), &UnixAddr::new(path)?);
    umask(before);
    bound?;
    let file = SocketFile {
        path: path.into(),
        identity: identity(&fs::symlink_metadata(path)?),
    };
    let in_group = group.map_or(Ok(()), |group| lchown(path, None, Some(group.as_raw())));
    let in_group = in_group.map_err(failed("setting its group"));
    let listens = in_group.and_then(|()| Ok(listen(&socket, Backlog::MAXCONN)?));
    listens.inspect_err(|_| drop(file.remove()))?;
    Ok((socket, file))
}

/// Keeps other servers from binding in the same directory until this is
/// dropped. Each holds it for a moment only. Any user who may read the directory
/// could hold it for ever, so after a second the server starts without it.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = File::open(directory.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..100 {
        if directory.try_lock().is_ok() {
            return Some(directory);
        }
        thread::sleep(LOOKS_EVERY);
    }
    None
}

/// Whether there is a socket's file, and no server listens on it any more. One
/// that is too busy to accept does listen.
fn is_stale(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::other("the file there is no socket")),
        Err(_) => return Ok(false),
    }
    let socket = new_socket(AddressFamily::Unix)?;
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED) => Ok(true),
        // It belongs to somebody else. Root can find out.
        Err(errno @ Errno::EACCES) => Err(failed("connecting to the old one")(errno.into())),
        _ => Ok(false),
    }
}

/// A stream socket. Programs that this process might start do not inherit it.
pub fn new_socket(family: AddressFamily) -> nix::Result<OwnedFd> {
    let socket = socket(family, SockType::Stream, SockFlag::empty(), None)?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(socket)
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The same path without links, if only root can change where it leads.
fn path_only_root_can_change(path: &Path) -> io::Result<Option<PathBuf>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let directory = std::path::absolute(Path::new(".").join(directory))?;
    // This fails if the links lead in a circle.
    let without_links = directory.canonicalize()?;
    Ok(can_only_root_change(&directory)?.then(|| without_links.join(name)))
}

/// Whether only root can change any directory or link on the way to this directory. (In a
/// directory with the sticky bit, such as /tmp, others cannot touch what is root's.)
fn can_only_root_change(directory: &Path) -> io::Result<bool> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o022;
    for above in directory.ancestors() {
        let found = fs::symlink_metadata(above)?;
        let is_safe = match (found.is_symlink(), above.parent()) {
            // Its mode says nothing.
            (true, Some(parent)) => can_only_root_change(&parent.join(fs::read_link(above)?))?,
            _ => found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0,
        };
        if found.uid() != 0 || !is_safe {
            return Ok(false);
        }
    }
    Ok(true)
}

fn find_group(name: &str) -> io::Result<Gid> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        // Without a list of groups there are none in it.
        Ok(None) | Err(Errno::ENOENT) => Err(io::Error::other(format!("no such group: {name}"))),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes an error that names the step that the system refused.
fn failed(step: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{step}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use tempfile::TempDir;

    fn access() -> SocketAccess {
        SocketAccess {
            mode: Mode::from_bits_truncate(0o640),
            group: None,
        }
    }

    fn directory() -> (TempDir, PathBuf) {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("socket");
        (directory, path)
    }

    #[test]
    fn a_socket_file_has_its_mode_from_the_start_and_is_removed_at_the_end() {
        let (_directory, path) = directory();
        let (_socket, file) = SocketFile::bind(&path, &access(), None).expect("bound");
        let mode = fs::symlink_metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o7777, 0o640);
        file.remove().expect("removed");
        file.remove().expect("gone already");
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_file_of_another_server_is_not_removed() {
        let (_directory, path) = directory();
        let (_first, first) = SocketFile::bind(&path, &access(), None).expect("bound");
        fs::remove_file(&path).expect("removed by hand");
        let (_second, _) = SocketFile::bind(&path, &access(), None).expect("bound again");
        first.remove().expect("left alone");
        UnixStream::connect(&path).expect("the second server can be reached");
    }

    #[test]
    fn only_one_of_many_servers_takes_over_a_stale_socket_file() {
        for _ in 0..20 {
            let (_directory, path) = directory();
            drop(UnixListener::bind(&path).expect("a file that will be stale"));
            let bound: Vec<_> = thread::scope(|scope| {
                let start = |_| scope.spawn(|| SocketFile::bind(&path, &access(), None));
                let starting: Vec<_> = (0..8).map(start).collect();
                let started = starting
                    .into_iter()
                    .map(|one| one.join().expect("no panic"));
                started.filter_map(Result::ok).collect()
            });
            assert_eq!(bound.len(), 1);
            UnixStream::connect(&path).expect("it can be reached");
        }
    }

    /// Its queue is full and it does not accept: connecting to it would wait
    /// for ever.
    #[test]
    fn the_socket_file_of_a_hung_server_is_not_stale() {
        let (_directory, path) = directory();
        let hung = new_socket(AddressFamily::Unix).expect("a socket");
        let address = UnixAddr::new(&path).expect("an address");
        bind(hung.as_raw_fd(), &address).expect("bound");
        listen(&hung, Backlog::new(0).expect("a number")).expect("listening");
        let mut queue = Vec::new();
        loop {
            let client = new_socket(AddressFamily::Unix).expect("a socket");
            fcntl(&client, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("not blocking");
            if connect(client.as_raw_fd(), &address).is_err() {
                break;
            }
            queue.push(client);
        }
        let error = SocketFile::bind(&path, &access(), None).expect_err("it is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn root_trusts_no_directory_that_another_user_can_change() {
        let (directory, _) = directory();
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).expect("a directory");
        fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .expect("open to all");
        let path = path_only_root_can_change(&theirs.join("socket")).expect("looked at");
        assert_eq!(path, None);
    }

    #[test]
    fn root_follows_no_link_that_another_user_can_change() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (directory, _) = directory();
        let [roots, theirs, link] = ["roots", "theirs", "link"].map(|it| directory.path().join(it));
        fs::create_dir(&roots).expect("a directory");
        fs::create_dir(&theirs).expect("a directory");
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("open to all");
        symlink(&roots, theirs.join("way")).expect("a link");
        symlink("theirs/way", &link).expect("a link");
        for path in [
            theirs.join("way/socket"),
            link.join("socket"),
            theirs.join("../socket"),
        ] {
            let path = path_only_root_can_change(&path).expect("looked at");
            assert_eq!(path, None);
        }
        // A link of root's, such as /var/run, is as good as what it leads to.
        fs::remove_file(&link).expect("a link");
        symlink("roots", &link).expect("a link");
        let path = path_only_root_can_change(&link.join("socket")).expect("looked at");
        let is_root = Uid::effective().is_root();
        assert_eq!(path, is_root.then(|| roots.join("socket")));
    }

    #[test]
    fn removing_a_socket_file_that_cannot_be_reached_is_an_error() {
        let (directory, _) = directory();
        let (inner, moved) = (directory.path().join("a"), directory.path().join("b"));
        fs::create_dir(&inner).expect("a directory");
        let (_socket, file) =
            SocketFile::bind(&inner.join("socket"), &access(), None).expect("bound");
        fs::rename(&inner, moved).expect("moved");
        fs::write(&inner, "").expect("a file");
        let error = file.remove().expect_err("there is no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn the_directory_is_locked_while_a_socket_file_is_bound() {
        let (directory, path) = directory();
        let other = File::open(directory.path()).expect("a directory");
        let lock = lock_directory(&path);
        assert!(other.try_lock().is_err());
        drop(lock);
        other.try_lock().expect("it is free");
    }
}
