//! Opens a directory as a server does. Its files may have any bytes.
//!
//! An error must leave everything as it was. A directory that could be opened
//! can be opened again, with the same jobs. Inspecting it changes nothing.

use beanpole::binlog::recovery;
use beanpole::binlog::{SyncMode, lock};
use beanpole::engine::StoredJob;
use beanpole::protocol::JobId;
use companion::inspection::Inspection;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

type Jobs = BTreeMap<JobId, StoredJob>;

thread_local! {
    /// All runs use the same directory, because making one takes longer than
    /// most runs.
    static DIRECTORY: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// Opens a directory with these files.
pub fn open(files: &[(u32, &[u8])]) {
    DIRECTORY.with_borrow_mut(|directory| {
        let directory = directory.get_or_insert_with(|| {
            let memory = Path::new("/dev/shm");
            let place = if memory.exists() {
                memory
            } else {
                Path::new("/tmp")
            };
            tempfile::tempdir_in(place).expect("a directory in memory")
        });
        let path = directory.path();
        for name in contents(path).keys() {
            fs::remove_file(path.join(name)).expect("a file of ours");
        }
        for (number, bytes) in files {
            // Whose file it is, is its name.
            let name = if bytes.starts_with(b"beanpole") {
                "segment"
            } else {
                "binlog"
            };
            fs::write(path.join(format!("{name}.{number}")), bytes).expect("room in memory");
        }
        check(path);
    });
}

fn check(path: &Path) {
    let before = contents(path);
    if let Ok(inspection) = Inspection::of(path) {
        let _ = inspection.read(true, &mut |_| {});
    }
    assert_eq!(contents(path), before, "looking at it has changed it");
    match recover(path) {
        Err(said) => {
            assert!(!said.is_empty());
            assert_eq!(contents(path), before, "an error has changed it: {said}");
        }
        Ok(jobs) => assert_eq!(recover(path), Ok(jobs), "another time it is not the same"),
    }
}

fn recover(path: &Path) -> Result<(Jobs, JobId), String> {
    let mut jobs = Jobs::new();
    let (storage, _) = lock(path, false).map_err(|error| error.to_string())?;
    let opened = recovery::recover(storage, SyncMode::Never, 4096, &mut jobs);
    let opened = opened.map_err(|error| error.to_string())?;
    opened
        .binlog
        .close()
        .map_err(|error| format!("{error:?}"))?;
    Ok((jobs, opened.next_id))
}

/// The contents of all files but the lock.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).expect("a directory of ours");
    let files = entries.map(|entry| {
        let entry = entry.expect("a file of ours");
        let name = entry.file_name().into_string().expect("a name of ours");
        let bytes = fs::read(entry.path()).expect("a file of ours");
        (name, bytes)
    });
    files.filter(|(name, _)| name != "lock").collect()
}
