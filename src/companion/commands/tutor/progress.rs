//! How far the learner has come: a file with the number of the lesson and of
//! the step in it, which is written as a whole.

use crate::failure::{Failure, Outcome};
use crate::text::file::WholeFile;
use crate::text::output::complain;
use std::env::var_os;
use std::fs::{create_dir_all, read_to_string};
use std::path::PathBuf;

/// Where somebody is in the tour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The lesson, counted from 0.
    pub lesson: usize,
    /// The step in it, counted from 0.
    pub step: usize,
}

/// The file, if there is a place for it.
pub struct Progress(Option<PathBuf>);

impl Progress {
    /// The file in the directory that the environment names for such things, or
    /// in the home directory. Relative paths do not count.
    pub fn find() -> Progress {
        let path = |name| var_os(name).map(PathBuf::from);
        let state = path("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let home = || path("HOME").filter(|path| path.is_absolute());
        let state = state.or_else(|| Some(home()?.join(".local/state")));
        Progress(state.map(|state| state.join("beanpole/tutor")))
    }

    /// The place that was kept; the beginning if there is none.
    pub fn place(&self) -> Place {
        let text = self.0.as_ref().and_then(|path| read_to_string(path).ok());
        let kept = text.as_deref().and_then(|text| {
            let (lesson, step) = text.trim().split_once(' ')?;
            Some(Place {
                lesson: lesson.parse::<usize>().ok()?.checked_sub(1)?,
                step: step.parse().ok()?,
            })
        });
        kept.unwrap_or_default()
    }

    /// How somebody who leaves at this place comes back.
    pub fn way_back(&self, place: Place) -> String {
        match self.0 {
            Some(_) => "'beanpole tutor' goes on from here.".into(),
            None => format!(
                "'beanpole tutor {}' begins this lesson again.",
                place.lesson + 1
            ),
        }
    }

    /// Keeps this place. If that fails, no more places are kept.
    pub fn keep(&mut self, place: Place) {
        let Some(path) = &self.0 else { return };
        let keep = || -> Outcome<()> {
            let directory = path.parent().unwrap_or(path);
            create_dir_all(directory).map_err(|error| {
                Failure::io(format_args!("cannot make {}", directory.display()), error)
            })?;
            let mut file = WholeFile::create(path, 0o600)?;
            file.bytes(format!("{} {}\n", place.lesson.saturating_add(1), place.step).as_bytes())?;
            file.finish()
        };
        if let Err(failure) = keep() {
            complain!("{failure}");
            self.0 = None;
        }
    }
}
