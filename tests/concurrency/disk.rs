//! A disk in memory that knows what is synced. Each operation takes as long as
//! others like.

use crate::binlog::storage::{File, Storage};
use crate::sync::{self, thread};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A directory.
#[derive(Default)]
pub struct Disk {
    names: Mutex<BTreeMap<String, Arc<Content>>>,
    /// How many syncs succeed before one fails.
    syncs_left: Arc<Mutex<Option<u32>>>,
    is_shared: bool,
}

#[derive(Default)]
struct Content {
    bytes: Mutex<Vec<u8>>,
    /// How many syncs have begun.
    syncs: AtomicU64,
    /// What is synced, and by which of them.
    synced: Mutex<(u64, Vec<u8>)>,
    syncs_left: Arc<Mutex<Option<u32>>>,
    is_lost: AtomicBool,
}

impl Disk {
    /// One that another machine can use.
    pub fn shared() -> Disk {
        Disk {
            is_shared: true,
            ..Disk::default()
        }
    }

    /// After this many more syncs one fails. As on a real system only one thread
    /// is told: later syncs succeed, and what the failed one was to make durable
    /// stays lost.
    pub fn fail_after(&self, syncs: u32) {
        *self.syncs_left.lock().unwrap() = Some(syncs);
    }

    /// Whether these bytes stand in a file, where a power cut would leave them.
    pub fn keeps(&self, bytes: &[u8]) -> bool {
        let names = self.names.lock().unwrap();
        let mut files = names.values();
        files.any(|file| {
            let synced = file.synced.lock().unwrap();
            synced.1.windows(bytes.len()).any(|part| part == bytes)
        })
    }

    /// The same, where the end of the process would leave them.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let names = self.names.lock().unwrap();
        let mut files = names.values();
        files.any(|file| {
            let written = file.bytes.lock().unwrap();
            written.windows(bytes.len()).any(|part| part == bytes)
        })
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names.lock().unwrap().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let names = self.names.lock().unwrap();
        let file = names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(file.clone())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        thread::yield_now();
        let file = Arc::new(Content {
            syncs_left: self.syncs_left.clone(),
            ..Content::default()
        });
        let mut names = self.names.lock().unwrap();
        assert!(names.insert(name.to_string(), file.clone()).is_none());
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        thread::yield_now();
        let mut names = self.names.lock().unwrap();
        let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        assert!(names.insert(to.to_string(), file).is_none());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        thread::yield_now();
        let removed = self.names.lock().unwrap().remove(name);
        removed.map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        thread::yield_now();
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn look(&self) -> io::Result<()> {
        thread::yield_now();
        let is_taken = sync::is_taken();
        thread::yield_now();
        sync::take_long();
        match is_taken {
            true => Err(io::Error::other("another machine has it")),
            false => Ok(()),
        }
    }

    fn now(&self) -> Duration {
        sync::storage_clock()
    }
}

impl File for Content {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = &bytes[(offset as usize).min(bytes.len())..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, part: &[u8], offset: u64) -> io::Result<()> {
        thread::yield_now();
        let mut bytes = self.bytes.lock().unwrap();
        let (from, to) = (offset as usize, offset as usize + part.len());
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        thread::yield_now();
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        let len = bytes.len().max(len as usize);
        bytes.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // What is written while it syncs may be missing, unless another sync that
        // began later ends sooner.
        let bytes = self.bytes.lock().unwrap().clone();
        let number = self.syncs.fetch_add(1, Ordering::SeqCst) + 1;
        thread::yield_now();
        let mut syncs_left = self.syncs_left.lock().unwrap();
        match &mut *syncs_left {
            Some(0) => {
                *syncs_left = None;
                self.is_lost.store(true, Ordering::SeqCst);
                return Err(io::Error::other("broken"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        drop(syncs_left);
        let mut synced = self.synced.lock().unwrap();
        if synced.0 < number && !self.is_lost.load(Ordering::SeqCst) {
            *synced = (number, bytes);
        }
        Ok(())
    }
}
