//! A disk in memory that knows what is synced. Each operation takes as long as
//! others like.

use crate::binlog::storage::{File, Storage};
use crate::sync::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A directory.
#[derive(Default)]
pub struct Disk {
    names: Mutex<BTreeMap<String, Arc<Content>>>,
    /// How many syncs succeed before one fails, and all after it.
    syncs_left: Arc<Mutex<Option<u32>>>,
}

#[derive(Default)]
struct Content {
    bytes: Mutex<Vec<u8>>,
    /// How many syncs have begun.
    syncs: AtomicU64,
    /// What is synced, and by which of them.
    synced: Mutex<(u64, Vec<u8>)>,
    syncs_left: Arc<Mutex<Option<u32>>>,
}

impl Disk {
    /// From now on so many syncs succeed, and no further one.
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
        if let Some(left) = &mut *self.syncs_left.lock().unwrap() {
            *left = left.checked_sub(1).ok_or(io::Error::other("broken"))?;
        }
        let mut synced = self.synced.lock().unwrap();
        if synced.0 < number {
            *synced = (number, bytes);
        }
        Ok(())
    }
}
