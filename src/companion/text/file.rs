//! Files to be read, and files that are written as a whole: a reader finds the
//! old text or the new one, even if the writing ends half-way.

use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, canonicalize, metadata, remove_file, rename};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is written as a whole, before it is complete.
pub struct WholeFile {
    stream: BufWriter<File>,
    path: PathBuf,
    /// Where the text is until it is complete. `None` if it goes directly to
    /// its place, or is there already.
    beside: Option<PathBuf>,
}

impl WholeFile {
    /// Begins a file for this path, with these permissions. If the path is
    /// something other than a regular file, such as a device, it is written
    /// directly and stays.
    pub fn create(path: &Path, mode: u32) -> Outcome<WholeFile> {
        let create = || {
            let mut options = OpenOptions::new();
            options.write(true).mode(mode);
            if metadata(path).is_ok_and(|there| !there.is_file()) {
                return Ok((options.open(path)?, path.into(), None));
            }
            // A symbolic link stays, too: the file that it points to is
            // replaced.
            let path = canonicalize(path).unwrap_or(path.into());
            let mut name = OsString::from(".");
            name.push(path.file_name().unwrap_or_default());
            name.push(format!(".{}", std::process::id()));
            let beside = path.with_file_name(name);
            // An earlier process with the same number may have left a file.
            let _ = remove_file(&beside);
            let file = options.create_new(true).open(&beside)?;
            Ok((file, path, Some(beside)))
        };
        let (file, path, beside) = create().map_err(|error| cannot_write(path, error))?;
        Ok(WholeFile {
            stream: BufWriter::new(file),
            path,
            beside,
        })
    }

    /// Writes these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome<()> {
        let written = self.stream.write_all(bytes);
        written.map_err(|error| cannot_write(&self.path, error))
    }

    /// Puts the file into its place, complete and on disk.
    pub fn finish(mut self) -> Outcome<()> {
        let finished = self.stream.flush().and_then(|()| match &self.beside {
            Some(beside) => {
                self.stream.get_ref().sync_all()?;
                rename(beside, &self.path)
            }
            None => Ok(()),
        });
        finished.map_err(|error| cannot_write(&self.path, error))?;
        self.beside = None;
        Ok(())
    }
}

/// Opens a file to be read, or standard input for `-`. Returns its name for
/// messages as well.
pub fn open(path: &OsStr) -> Outcome<(String, Box<dyn Read>)> {
    if path == "-" {
        return Ok(("stdin".into(), Box::new(io::stdin())));
    }
    let name = path.to_string_lossy().into_owned();
    match File::open(path) {
        Ok(file) => Ok((name, Box::new(file))),
        Err(error) => Err(cannot_read(&name, error)),
    }
}

/// The failure to read the input of this name.
pub fn cannot_read(name: &str, error: io::Error) -> Failure {
    Failure::io(format_args!("cannot read {name}"), error)
}

/// Removes a file that was not completed.
impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // If this fails, the path in the earlier message tells where to
            // look.
            let _ = remove_file(beside);
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::io(format_args!("cannot write {}", path.display()), error)
}
