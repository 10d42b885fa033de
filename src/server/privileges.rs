//! Becoming another user, for good.

use nix::unistd::{
    Uid, User, getgrouplist, getgroups, getresgid, getresuid, initgroups, setresgid, setresuid,
    setuid,
};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;

/// Why we are not that user.
#[derive(Debug)]
pub enum Refusal {
    /// There is none of that name.
    NoSuchUser,
    /// The system refuses.
    NotAllowed(io::Error),
}

/// Becomes this user, with its group and its supplementary groups, without a
/// way back. If we are this user already, nothing changes.
///
/// # Errors
///
/// If there is no such user or we may not become it. The process may then be
/// half of it, and should end.
pub fn become_user(name: &str) -> Result<(), Refusal> {
    let user = User::from_name(name).map_err(|error| Refusal::NotAllowed(error.into()))?;
    let user = user.ok_or(Refusal::NoSuchUser)?;
    let not_allowed = |error: nix::Error| Refusal::NotAllowed(error.into());
    if is_only(&user).map_err(not_allowed)? && !Uid::effective().is_root() {
        return Ok(());
    }
    change(&user).map_err(not_allowed)?;
    verify(&user).map_err(Refusal::NotAllowed)
}

fn change(user: &User) -> nix::Result<()> {
    initgroups(&c_name(user), user.gid)?;
    setresgid(user.gid, user.gid, user.gid)?;
    setresuid(user.uid, user.uid, user.uid)
}

/// That the system has done as it said, and that there is no way back.
fn verify(user: &User) -> io::Result<()> {
    let groups: BTreeSet<u32> = getgroups()?.iter().map(|gid| gid.as_raw()).collect();
    let wanted = getgrouplist(&c_name(user), user.gid)?;
    let wanted: BTreeSet<u32> = wanted.iter().map(|gid| gid.as_raw()).collect();
    if !is_only(user)? || groups != wanted {
        return Err(io::Error::other("the system has not changed all it should"));
    }
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

fn c_name(user: &User) -> CString {
    CString::new(user.name.as_str()).expect("the system's names have no NUL")
}
