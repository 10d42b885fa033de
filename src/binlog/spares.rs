//! Segments before and after their use: spare ones are prepared ahead, empty
//! ones serve again or are removed.

use super::error::Error;
use super::record::segment_name;
use super::storage::{File, Storage, write_zeros};
use super::tail::{Spare, Tail};
use super::{Binlog, Failed, NoRoom, held};
use std::io;
use std::sync::Arc;

/// The name of a segment while it is prepared. Such a file holds nothing.
pub(super) const UNFINISHED: &str = "binlog.unfinished";

impl Binlog {
    /// Sets room for a put of this length aside.
    pub(super) fn reserve(&self, len: u32) -> Result<(), NoRoom> {
        loop {
            {
                let mut tail = self.tail();
                if tail.spares.len() >= tail.needed(len) {
                    tail.promise(len);
                    return Ok(());
                }
            }
            self.settle_retired().map_err(|Failed| NoRoom)?;
            self.provide(|tail| tail.spares.len() < tail.needed(len))
                .map_err(|_| NoRoom)?;
        }
    }

    /// Spares ahead, and the empty segments away. It may take as long as the
    /// writing of a segment.
    pub(super) fn keep_segments(&self) -> Result<(), Failed> {
        if !self.tail().needs_upkeep() {
            return Ok(());
        }
        self.settle_retired()?;
        // An error is in `tail.full`, to be told; the next put tries again.
        self.provide(Tail::wants_spare).ok();
        let _upkeep = held(self.upkeep.lock());
        let surplus = || {
            let mut tail = self.tail();
            let spare = tail.has_surplus().then(|| tail.spares.pop_back());
            Some(spare??.number)
        };
        while let Some(number) = self.take_retired().or_else(surplus) {
            let name = segment_name(number);
            let removed = self
                .storage
                .remove(&name)
                .map_err(Error::on("remove", name));
            removed.map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    /// Syncs what empty segments wait for.
    fn settle_retired(&self) -> Result<(), Failed> {
        let after = self.tail().retired.back().map(|retired| retired.after);
        after.map_or(Ok(()), |after| self.settle(after))
    }

    /// The oldest empty segment that may go.
    fn take_retired(&self) -> Option<u32> {
        let synced_to = self.progress().synced_to;
        let mut tail = self.tail();
        let may_go = tail.retired.front()?.after <= synced_to;
        may_go
            .then(|| tail.retired.pop_front())?
            .map(|retired| retired.number)
    }

    /// Makes spares, as long as there are too few.
    fn provide(&self, too_few: impl Fn(&Tail) -> bool) -> Result<(), Arc<Error>> {
        let _upkeep = held(self.upkeep.lock());
        while too_few(&self.tail()) {
            let old = self.take_retired();
            let is_new = old.is_none();
            let made = self.make_spare(old).map_err(Arc::new);
            // That an old one serves again says nothing about the disk.
            if is_new || made.is_err() {
                let full = made.clone().err();
                let before = std::mem::replace(&mut self.tail().full, full.clone());
                if before.is_some() != full.is_some() {
                    self.wake_for_upkeep(); // to tell
                }
            }
            made?;
        }
        Ok(())
    }

    /// The next spare, to be used. (By the one who writes.)
    pub(super) fn take_spare(&self) -> Result<Spare, Error> {
        if let Some(spare) = self.tail().use_spare() {
            return Ok(spare);
        }
        let _upkeep = held(self.upkeep.lock());
        if self.tail().spares.is_empty() {
            let old = self.take_retired();
            self.make_spare(old)?;
        }
        let spare = self.tail().use_spare();
        Ok(spare.expect("no other can have taken it"))
    }

    /// Makes one spare, out of an old segment if there is one. (With `upkeep` held.)
    fn make_spare(&self, old: Option<u32>) -> Result<(), Error> {
        let (size, number) = {
            let tail = self.tail();
            (tail.segment_size, tail.next_spare())
        };
        let spare = make_spare(&*self.storage, old, number, size)?;
        self.tail().spares.push_back(spare);
        Ok(())
    }
}

/// Makes the spare of this number: a new file, or that of an empty segment.
///
/// It gets its name when all of it is synced, so that a file with the name of
/// a segment is never half prepared. The old name goes before the contents.
pub(super) fn make_spare(
    storage: &dyn Storage,
    old: Option<u32>,
    number: u32,
    size: u32,
) -> Result<Spare, Error> {
    let name = segment_name(number);
    let made = (|| {
        let on = |action| Error::on(action, UNFINISHED);
        let file = match old.map(segment_name) {
            None => storage.create(UNFINISHED).map_err(on("create"))?,
            Some(old) => {
                let renamed = storage.rename(&old, UNFINISHED);
                renamed.map_err(Error::on("rename", old))?;
                storage.sync().map_err(on("sync the name of"))?;
                storage.open(UNFINISHED).map_err(on("open"))?
            }
        };
        zero(&*file, size).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full {
                what: "another segment",
                source: error,
            },
            _ => on("prepare")(error),
        })?;
        storage.rename(UNFINISHED, &name).map_err(on("rename"))?;
        storage
            .sync()
            .map_err(Error::on("sync the name of", &name))?;
        Ok(Spare { number, file })
    })();
    if made.is_err() {
        // Whichever name it has by now. If that fails too, the next start
        // removes it; the first error is the one to tell.
        storage
            .remove(UNFINISHED)
            .or_else(|_| storage.remove(&name))
            .ok();
    }
    made
}

/// Filled with zeros before, a segment can be synced in half the time: the
/// file system has nothing to note about its blocks any more.
fn zero(file: &dyn File, size: u32) -> io::Result<()> {
    if file.len()? > size.into() {
        file.set_len(size.into())?;
    }
    file.allocate(size.into())?;
    write_zeros(file, 0, size.into())?;
    file.sync()
}

impl Tail {
    fn use_spare(&mut self) -> Option<Spare> {
        let spare = self.spares.pop_front()?;
        self.taken -= 1;
        Some(spare)
    }
}
