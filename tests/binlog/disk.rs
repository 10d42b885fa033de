//! A simulated disk. It knows what a power cut leaves on it and what the end of
//! a process leaves, and it can be made to fail.
//!
//! Each file has two contents: those that the process sees, which are in the
//! kernel's cache, and those that are certain to be there after a power cut.
//! The changes that were not synced lie between the two.
//!
//! *A power cut.* Any of these changes may have survived. A write may survive in
//! part: some of its sectors of 512 bytes, or a piece of a sector. A length may
//! survive without its data. A rename or removal may survive without the ones
//! before it, and a rename may leave both names, as it does without a journal. Names
//! are synced apart from contents.
//!
//! *The end of a process.* The kernel lives on. The next process sees all that
//! the one before has written, and nothing became durable by that.
//!
//! *A sync of a file that fails* is reported once. Some of the changes may be durable.
//! After it the kernel takes all of them for written, so no later sync makes the others
//! durable. Processes see them
//! in the cache until the power is cut, or until the kernel forgets them. Names
//! are different: they belong to the file system, which tries again at the next
//! sync, or is broken for good.

use crate::binlog::storage::{File, LEFT_TO_COPY, Source, Storage, write_noise};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use support::Random;

const SECTOR: usize = 512;
const BLOCK: u64 = 4096;

/// A disk. A clone is the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

/// Is called before each operation, with its name; and after a write or a sync.
pub type Watcher = Arc<dyn Fn(&Disk, &'static str) + Send + Sync>;

#[derive(Default)]
pub struct State {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    operations: u64,
    fail_at: Option<(u64, io::ErrorKind)>,
    /// How many more operations of the same kind fail after that.
    fail_again: u32,
    failed: Option<&'static str>,
    /// A sync of a file has failed: the kernel may have forgotten what was written.
    pub has_lost_sync: bool,
    stop_at: Option<u64>,
    capacity: Option<u64>,
    /// How many files may be open at the same time, and how many are.
    descriptors: Option<usize>,
    open: usize,
    /// The files that cannot be opened to write, or to read.
    forbidden: BTreeMap<String, Forbidden>,
    /// How many times a file was given a mebibyte or more at once.
    large: u64,
    /// What only copies of files still use.
    copies: u64,
    /// Whether the kernel can neither allocate blocks nor unshare them, nor forget what it
    /// has cached.
    lacks_calls: bool,
    watcher: Option<Watcher>,
}

#[derive(Clone, Default)]
struct Contents {
    live: Vec<u8>,
    allocated: u64,
    /// The blocks that are only allocated. As XFS does, the disk wants room to allocate them
    /// once more.
    unwritten: BTreeSet<u64>,
    /// The blocks that a copy has as well (a reflink). What is written there
    /// goes to another block.
    shared: BTreeSet<u64>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
    Lengthen(usize),
}

#[derive(Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

/// What cannot be done with a file.
#[derive(Clone, Copy, PartialEq)]
pub enum Forbidden {
    /// It belongs to another user, who lets us read it.
    Writing,
    /// Its copies on several disks differ: nothing can be done with it.
    Everything,
}

/// What survives of the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Survival {
    Nothing,
    /// All of them, as when the system had the time to write them.
    Everything,
    /// A random part of them.
    Something,
}

impl Disk {
    pub fn state(&self) -> MutexGuard<'_, State> {
        // A test that has failed meanwhile has poisoned it, and is told of anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn watch(&self, watcher: Watcher) {
        self.state().watcher = Some(watcher);
    }

    fn tell(&self, operation: &'static str) {
        let watcher = self.state().watcher.clone();
        if let Some(watcher) = watcher {
            watcher(self, operation);
        }
    }

    /// Must be called at the beginning of each operation. An error means that the
    /// operation fails.
    fn begin(&self, operation: &'static str) -> io::Result<MutexGuard<'_, State>> {
        self.tell(operation);
        let mut state = self.state();
        state.begin(operation).map(|()| state)
    }

    /// Makes the operation of this number fail. The first one is 1, and
    /// [`operations`](Self::operations) is the number of the last one so far.
    pub fn fail_at(&self, operation: u64, kind: io::ErrorKind) {
        self.state().fail_at = Some((operation, kind));
    }

    /// After the operation that [is made to fail](Self::fail_at), this many more of
    /// its kind fail.
    pub fn fail_again(&self, times: u32) {
        self.state().fail_again = times;
    }

    /// The kind of the operation that was made to fail, if it came.
    pub fn failed(&self) -> Option<&'static str> {
        self.state().failed
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Limits how many bytes may be allocated.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Limits how many files may be open at the same time.
    pub fn set_descriptors(&self, files: usize) {
        self.state().descriptors = Some(files);
    }

    /// From now on this cannot be done with the file of this name.
    pub fn forbid(&self, name: &str, what: Forbidden) {
        self.state().forbidden.insert(name.to_owned(), what);
    }

    /// From now on the kernel is one that lacks calls.
    pub fn lack_calls(&self) {
        self.state().lacks_calls = true;
    }

    /// Gives a file another name as well.
    pub fn link(&self, name: &str, other: &str) {
        let state = &mut *self.state();
        let file = state.names[name];
        state.names.insert(other.to_owned(), file);
        state.durable_names.insert(other.to_owned(), file);
    }

    /// Stops the disk after this number of further operations: all later ones fail and
    /// change nothing.
    pub fn stop_after(&self, operations: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.operations + operations);
    }

    /// The contents of a file.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].live.clone()
    }

    /// Puts a file there, as if it had always been there.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let state = &mut *self.state();
        state.files.push(Contents {
            live: bytes.to_vec(),
            allocated: blocks(bytes.len()),
            durable: bytes.to_vec(),
            ..Contents::default()
        });
        state.names.insert(name.to_owned(), state.files.len() - 1);
        state.durable_names = state.names.clone();
    }

    pub fn remove_file(&self, name: &str) {
        let state = &mut *self.state();
        state.names.remove(name).unwrap();
        state.durable_names.remove(name);
    }

    /// The files with such names are copied, and the copies share their blocks.
    pub fn copy_by_reflink(&self, is_copied: impl Fn(&str) -> bool) {
        let state = &mut *self.state();
        for (_, &file) in state.names.iter().filter(|(name, _)| is_copied(name)) {
            let file = &mut state.files[file];
            file.shared = (0..file.allocated / BLOCK).collect();
        }
    }

    /// How many files were ever made, and how many times one of them was given a
    /// mebibyte or more at once.
    pub fn made(&self) -> (usize, u64) {
        let state = self.state();
        (state.files.len(), state.large)
    }

    /// The names of the files, in order.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// The number of the file with this name. A file that is renamed keeps its
    /// number.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.state().names.get(name).copied()
    }

    fn handle(&self, state: &mut State, file: usize) -> Arc<dyn File> {
        state.open += 1;
        Arc::new(Handle(self.clone(), file))
    }

    /// How many bytes are allocated to all files together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }
}

fn blocks(len: usize) -> u64 {
    (len as u64).next_multiple_of(BLOCK)
}

impl State {
    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|file| self.files[*file].allocated)
            .sum::<u64>()
            + self.copies
    }

    /// Whether the disk has stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop_at.is_some_and(|at| self.operations >= at)
    }

    /// Whether the disk has a limit.
    pub fn is_limited(&self) -> bool {
        self.capacity.is_some()
    }

    /// Returns the disk as it is after a power cut.
    pub fn cut(&self, survival: Survival, random: &mut Random) -> Disk {
        let mut names = self.durable_names.clone();
        for (index, change) in self.pending_names.iter().enumerate() {
            let survives = match survival {
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::Something => random.one_in(2),
            };
            match change {
                NameChange::Rename(from, to)
                    if survival == Survival::Something && self.is_third(index) =>
                {
                    let file = names.get(from).copied();
                    names.extend(file.map(|file| (to.clone(), file)));
                }
                _ if survives => change.apply(&mut names),
                _ => {}
            }
        }
        let (disk, mut first_names) = (Disk::default(), BTreeMap::<usize, String>::new());
        for (name, file) in names {
            match first_names.entry(file) {
                Entry::Occupied(first) => disk.link(first.get(), &name),
                Entry::Vacant(first) => {
                    disk.put(&name, &self.files[file].cut(survival, random));
                    first.insert(name);
                }
            }
        }
        disk.set_capacity(self.capacity);
        disk.state().lacks_calls = self.lacks_calls;
        disk
    }

    /// Returns the disk as the next process finds it if this one is killed. The
    /// old process has its own copy, so nothing that it still does counts.
    pub fn kill(&self) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            files: self.files.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending_names: self.pending_names.clone(),
            capacity: self.capacity,
            copies: self.copies,
            lacks_calls: self.lacks_calls,
            ..State::default()
        })))
    }

    fn begin(&mut self, operation: &'static str) -> io::Result<()> {
        if self.is_stopped() {
            return Err(io::Error::other("the world has stopped"));
        }
        self.operations += 1;
        match self.fail_at {
            Some((number, kind)) if number == self.operations => {
                self.failed = Some(operation);
                Err(kind.into())
            }
            Some((_, kind)) if self.failed == Some(operation) && self.fail_again > 0 => {
                self.fail_again -= 1;
                Err(kind.into())
            }
            _ => Ok(()),
        }
    }

    /// An error if not even reading is possible.
    fn must_be_whole(&self, name: &str) -> io::Result<()> {
        match self.forbidden.get(name) {
            Some(Forbidden::Everything) => Err(io::Error::other("split brain")),
            _ => Ok(()),
        }
    }

    fn allocate(&mut self, file: usize, len: u64) -> io::Result<()> {
        let more = len
            .next_multiple_of(BLOCK)
            .saturating_sub(self.files[file].allocated);
        self.must_have_room(more)?;
        self.large += u64::from(more >= 1 << 20);
        self.files[file].allocated += more;
        Ok(())
    }

    /// An error if no other file can be opened.
    fn must_have_descriptor(&self) -> io::Result<()> {
        match self.descriptors {
            Some(most) if self.open >= most => Err(io::Error::other("too many open files")),
            _ => Ok(()),
        }
    }

    /// An error if there is no room for this many more bytes.
    fn must_have_room(&self, more: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if more > 0 && self.used() + more > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    /// Where a file shares these blocks, it gets others: only the copy uses the
    /// old ones from now on.
    fn unshare(&mut self, file: usize, blocks: Range<u64>) -> io::Result<()> {
        let blocks_there = self.files[file].shared.range(blocks);
        let shared: Vec<u64> = blocks_there.copied().collect();
        let more = shared.len() as u64 * BLOCK;
        self.must_have_room(more)?;
        self.copies += more;
        let own = &mut self.files[file].shared;
        own.retain(|block| !shared.contains(block));
        Ok(())
    }

    /// Whether one case in three is this one. (A random number would change what all later
    /// ones are.)
    fn is_third(&self, index: usize) -> bool {
        (self.operations + index as u64).is_multiple_of(3)
    }

    fn change_name(&mut self, change: NameChange) {
        if let NameChange::Remove(name) = &change {
            let file = &mut self.files[self.names[name]];
            self.copies += std::mem::take(&mut file.shared).len() as u64 * BLOCK;
        }
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    /// Makes the change, if the names that it needs are there.
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes: new } => write(bytes, *offset, new),
            Change::SetLen(len) => {
                bytes.truncate(*len);
                lengthen(bytes, *len);
            }
            Change::Lengthen(len) => lengthen(bytes, *len),
        }
    }
}

/// Adds zeros up to this length. Without optimisation, `resize` would take a step for
/// each of the many.
fn lengthen(bytes: &mut Vec<u8>, len: usize) {
    let more = len.saturating_sub(bytes.len());
    bytes.extend_from_slice(&vec![0; more]);
}

fn write(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    lengthen(bytes, offset + new.len());
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

impl Contents {
    fn cut(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match survival {
            Survival::Nothing => {}
            Survival::Everything => bytes = self.live.clone(),
            Survival::Something => {
                let odds = 1 + random.below(4);
                for change in &self.pending {
                    match change {
                        Change::Write { offset, bytes: new } if random.one_in(3) => {
                            write_some_sectors(&mut bytes, *offset, new, random);
                        }
                        _ if random.below(5) < odds => change.apply(&mut bytes),
                        _ => {}
                    }
                }
            }
        }
        bytes
    }
}

fn write_some_sectors(bytes: &mut Vec<u8>, offset: usize, new: &[u8], random: &mut Random) {
    let mut at = 0;
    while at < new.len() {
        let len = (SECTOR - (offset + at) % SECTOR).min(new.len() - at);
        if random.one_in(2) {
            // Some disks tear a write in the middle of a sector, too.
            let torn = random.one_in(8).then(|| random.below(len as u64) as usize);
            write(bytes, offset + at, &new[at..at + torn.unwrap_or(len)]);
        }
        at += len;
    }
}

impl Source for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.begin("list")?.names.keys().cloned().collect())
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.begin("open")?;
        state.must_be_whole(name)?;
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        state.must_have_descriptor()?;
        Ok(self.handle(&mut state, file))
    }
}

impl Storage for Disk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let forbidden = self.state().forbidden.get(name).copied();
        match forbidden {
            Some(Forbidden::Writing) => Err(io::ErrorKind::PermissionDenied.into()),
            _ => self.open_to_read(name),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.begin("create")?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.must_have_descriptor()?;
        state.files.push(Contents::default());
        let file = state.files.len() - 1;
        state.change_name(NameChange::Create(name.to_owned(), file));
        Ok(self.handle(&mut state, file))
    }

    fn has(&self, name: &str) -> io::Result<bool> {
        Ok(self.begin("has")?.names.contains_key(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin("rename")?;
        state.must_be_whole(from)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin("remove")?;
        state.must_be_whole(name)?;
        if state.names.contains_key(name) {
            state.change_name(NameChange::Remove(name.to_owned()));
        }
        Ok(())
    }

    fn free(&self) -> Option<u64> {
        let state = self.state();
        Some(state.capacity?.saturating_sub(state.used()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.begin("sync names")?;
        for change in std::mem::take(&mut state.pending_names) {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }
}

struct Handle(Disk, usize);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

impl Handle {
    fn change(&self, operation: &'static str, len: u64, change: Change) -> io::Result<()> {
        let mut state = self.0.begin(operation)?;
        state.allocate(self.1, len)?;
        if let Change::Write { offset, bytes } = &change {
            let (from, to) = (*offset as u64, (offset + bytes.len()) as u64);
            let blocks = from / BLOCK..to.div_ceil(BLOCK);
            state.unshare(self.1, blocks.clone())?;
            let unwritten = &mut state.files[self.1].unwritten;
            unwritten.retain(|block| !blocks.contains(block));
        }
        let file = &mut state.files[self.1];
        change.apply(&mut file.live);
        file.pending.push(change);
        drop(state);
        self.0.tell("done");
        Ok(())
    }
}

impl File for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state().files[self.1].live.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.begin("read")?;
        let live = &state.files[self.1].live;
        let rest = live.get(offset as usize..).unwrap_or_default();
        let read = rest.get(..buffer.len());
        buffer.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(
            "write",
            offset + bytes.len() as u64,
            Change::Write {
                offset: offset as usize,
                bytes: bytes.to_vec(),
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change("cut", 0, Change::SetLen(len as usize))?;
        let mut state = self.0.state();
        let file = &mut state.files[self.1];
        file.allocated = file.allocated.min(blocks(len as usize));
        file.unwritten.retain(|block| *block < len.div_ceil(BLOCK));
        let gone = file.shared.split_off(&len.div_ceil(BLOCK)).len() as u64;
        state.copies += gone * BLOCK;
        Ok(())
    }

    fn unshare(&self) -> io::Result<()> {
        let mut state = self.0.begin("unshare")?;
        if state.lacks_calls {
            return Ok(());
        }
        let len = state.files[self.1].allocated;
        if state.must_have_room(len).is_err() {
            // Then the file is written again.
            state.files[self.1].unwritten.clear();
        }
        state.unshare(self.1, 0..u64::MAX)
    }

    fn allocate(&self, len: u64, written: u64) -> io::Result<()> {
        let from = self.len()?;
        let cannot = self.0.state().lacks_calls;
        if cannot {
            let needed = len.saturating_sub(from) + LEFT_TO_COPY;
            self.0.state().must_have_room(needed)?;
            return write_noise(self, from, len);
        }
        let state = self.0.state();
        let Contents {
            allocated,
            unwritten,
            ..
        } = &state.files[self.1];
        let (before, first) = (*allocated, unwritten.first().map(|block| block * BLOCK));
        let again = len.min(before).saturating_sub(first.unwrap_or(before));
        state.must_have_room(len.max(before) - before + again)?;
        drop(state);
        self.change("allocate", len, Change::Lengthen(len as usize))?;
        let new = before / BLOCK..len.max(before).div_ceil(BLOCK);
        self.0.state().files[self.1].unwritten.extend(new);
        match written.saturating_sub(from) {
            0 => Ok(()),
            more => self.write_at(&vec![0; more as usize], from),
        }
    }

    fn links(&self) -> io::Result<u64> {
        let state = self.0.state();
        let names = state.names.values();
        Ok(names.filter(|file| **file == self.1).count() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let begun = self.0.begin("sync").map(drop);
        let mut state = self.0.state();
        state.has_lost_sync |= begun.is_err();
        let pending = std::mem::take(&mut state.files[self.1].pending);
        for (index, change) in pending.into_iter().enumerate() {
            if begun.is_ok() || !state.is_stopped() && state.is_third(index) {
                change.apply(&mut state.files[self.1].durable);
            }
        }
        drop(state);
        self.0.tell("done");
        begun
    }

    fn forget(&self) -> io::Result<()> {
        let mut state = self.0.begin("forget")?;
        if state.lacks_calls {
            return Ok(());
        }
        let file = &mut state.files[self.1];
        file.live.clone_from(&file.durable);
        for change in &file.pending {
            change.apply(&mut file.live);
        }
        Ok(())
    }
}
