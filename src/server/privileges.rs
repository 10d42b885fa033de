//! Becoming another user: permanently, or to do one thing as that user.

use crate::sys::set_supplementary_groups;
use nix::unistd::{Gid, Uid, User, setegid, seteuid, setgid, setuid};
use std::ffi::CString;
use std::io;

/// Becomes this user, with its group and its supplementary groups, with no way
/// back. If we are this user already, and not root, nothing changes.
///
/// # Errors
///
/// If we may not become this user. The process may then have changed only some
/// of its ids, and should end.
pub fn become_user(user: &User) -> io::Result<()> {
    if !is_already(user) || Uid::effective().is_root() {
        // Only a process with root's rights gets past the first call. For it, the
        // other two change all ids: real, effective and saved.
        set_groups_of(user)?;
        setgid(user.gid)?;
        setuid(user.uid)?;
    }
    // Some ways of starting a process let it keep root's rights.
    if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("it would be possible to go back to root"));
    }
    Ok(())
}

/// For root: does one thing with the rights of this user, and is root again. What it makes
/// belongs to the user and to this group. The user's supplementary groups stay, until
/// [`become_user`] sets them once more.
///
/// # Errors
///
/// As for the thing itself; also if we may not act as this user. Then the
/// process should end.
pub fn acting_as<T>(
    user: &User,
    group: Gid,
    thing: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let (root, own_group) = (Uid::effective(), Gid::effective());
    set_groups_of(user)?;
    setegid(group)?;
    seteuid(user.uid)?;
    let done = thing();
    seteuid(root)?;
    setegid(own_group)?;
    done
}

fn set_groups_of(user: &User) -> nix::Result<()> {
    let name = CString::new(user.name.as_str()).expect("the system's names have no NUL");
    set_supplementary_groups(&name, user.gid)
}

/// Whether our ids are this user's.
fn is_already(user: &User) -> bool {
    [Uid::current(), Uid::effective()] == [user.uid; 2]
        && [Gid::current(), Gid::effective()] == [user.gid; 2]
}
