//! Becoming another user, permanently.

use nix::errno::Errno;
use nix::unistd::{Uid, User, getresgid, getresuid, initgroups, setresgid, setresuid, setuid};
use std::ffi::CString;
use std::io;

/// The user of this name; `None` if there is none.
///
/// # Errors
///
/// If the system's list of users cannot be read.
pub fn find_user(name: &str) -> io::Result<Option<User>> {
    match User::from_name(name) {
        // Without a list there are no users in it.
        Err(Errno::ENOENT) => Ok(None),
        found => Ok(found?),
    }
}

/// Becomes this user, with its group and its supplementary groups, with no way
/// back. If we are this user already, nothing changes.
///
/// # Errors
///
/// If we may not become this user. The process may then have changed only some
/// of its ids, and should end.
pub fn become_user(user: &User) -> io::Result<()> {
    if is_only(user)? && !Uid::effective().is_root() {
        return Ok(());
    }
    let name = CString::new(user.name.as_str()).expect("the system's names have no NUL");
    initgroups(&name, user.gid)?;
    setresgid(user.gid, user.gid, user.gid)?;
    setresuid(user.uid, user.uid, user.uid)?;
    // Some ways of starting a process let it keep root's rights.
    if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("it would be possible to go back to root"));
    }
    Ok(())
}

/// Whether all of our ids are this user's: real, effective and saved.
fn is_only(user: &User) -> nix::Result<bool> {
    let (uids, gids) = (getresuid()?, getresgid()?);
    Ok([uids.real, uids.effective, uids.saved] == [user.uid; 3]
        && [gids.real, gids.effective, gids.saved] == [user.gid; 3])
}
