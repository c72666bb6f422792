//! Piles in files: what a pile of Python objects keeps beside its objects, and how files are opened.
//!
//! The codec's numbers stand in the file's log, and each is there before an encoding that refers to it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gabion_blocks::BlockError;
use gabion_blocks::file::FileError;
use gabion_pile::{OpenOptions, Pile as Store};
use pyo3::prelude::*;

use super::registry::FileId;
use super::{refusal, registry};
use crate::argument;
use crate::codec::{Codec, Types};
use crate::errors::{class_name, type_error};
use crate::gate::through_gate;

/// Bytes from which on descriptions are appended in another record of the log, which is to be no longer than nearly
/// 4 MiB. One more number takes much less than that.
const AT_ONCE: usize = 1 << 20;

/// What is known of a pile's file.
pub(super) struct PileFile {
    path: Py<PyAny>,
    /// Which file it is, where the system says so.
    pub id: Option<FileId>,
    pub read_only: bool,
    /// Numbers of the codec's that the log describes.
    described: AtomicU32,
    /// Held while records are appended; no Python code runs then, nor the collector, which may run any.
    appending: Mutex<()>,
}

/// How a pile's file is opened.
pub(super) struct Opening<'a, 'py> {
    pub max_bytes: Option<u64>,
    pub shards: Option<usize>,
    pub types: Option<&'a Bound<'py, PyAny>>,
    pub create: bool,
    pub read_only: bool,
}

impl PileFile {
    /// Opens the pile in a file, with a codec that knows what its encodings refer to.
    pub fn open(path: &Bound<'_, PyAny>, opening: &Opening<'_, '_>) -> PyResult<(Store, Codec, Self)> {
        let py = path.py();
        let place = place_of(path)?;
        let &Opening { max_bytes, shards, types, create, read_only } = opening;
        // Before there is a file: it is not made for a call that is refused.
        let types = Types::read(types)?;
        let options = OpenOptions { max_bytes, shards, create, read_only, disk: None };
        let failed = |error| not_opened(error, path, &place);
        let pile = through_gate(py, || Store::open(&place, &options)).map_err(failed)?;
        let codec = Codec::with_types(py, Some(Arc::clone(pile.budget())), types)?;
        let log = through_gate(py, || pile.log()).map_err(failed)?;
        codec.restore(py, &log).map_err(|error| refusal::of_log(error, path))?;
        let described = AtomicU32::new(codec.type_count() as u32);
        let (path, id) = (argument::shown_path(py, &place)?.unbind(), file_at(&place));
        Ok((pile, codec, Self { path, id, read_only, described, appending: Mutex::new(()) }))
    }

    /// The path that was passed, as a str.
    pub fn path<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.path.bind(py)
    }

    /// Sees to it that all of the codec's numbers stand in the log, before an encoding that refers to them is stored.
    #[inline]
    pub fn describe(&self, py: Python<'_>, codec: &Codec, pile: &Store) -> PyResult<()> {
        // Acquire: pairs with the release in `append`, so that the records are in the log.
        if codec.type_count() > self.described.load(Ordering::Acquire) as usize {
            self.append(py, codec, pile)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn append(&self, py: Python<'_>, codec: &Codec, pile: &Store) -> PyResult<()> {
        let all = codec.type_count() as u32;
        loop {
            let from = self.described.load(Ordering::Acquire); // Acquire: as in `describe`.
            if from >= all {
                return Ok(());
            }
            let mut records = Vec::new();
            let end = codec.describe(py, from, AT_ONCE, &mut records)?;
            // Made here, without the lock: to make an exception may run the collector, and with it code that puts.
            self.append_unless_changed(pile, from, &records, end).map_err(|error| refusal::not_noted(py, &error))?;
        }
    }

    /// Appends what describes the numbers from `from` to `end`, unless another thread described some meanwhile.
    fn append_unless_changed(&self, pile: &Store, from: u32, records: &[u8], end: u32) -> Result<(), BlockError> {
        let _appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the lock orders it.
        if self.described.load(Ordering::Relaxed) != from {
            return Ok(());
        }
        pile.append(records)?;
        self.described.store(end, Ordering::Release); // Release: see `describe`.
        Ok(())
    }

    /// Waits until all is on the disk.
    pub fn flush(&self, py: Python<'_>, pile: &Store) -> PyResult<()> {
        through_gate(py, || pile.flush()).map_err(|error| self.failed(py, error))
    }

    /// Lets the file go, or leaves that to the last view.
    pub fn release_file(&self, py: Python<'_>, pile: &Store) -> PyResult<()> {
        through_gate(py, || pile.let_go()).map(drop).map_err(|error| self.failed(py, error))
    }

    fn failed(&self, py: Python<'_>, error: FileError) -> PyErr {
        refusal::of_file(error, self.path.bind(py))
    }
}

/// Which file a path leads to.
pub(super) fn file_at(place: &Path) -> Option<FileId> {
    let found = std::fs::metadata(place).ok()?;
    Some((found.dev(), found.ino()))
}

/// As [`refusal::of_file`], where a file that is in use is told whether this process is who has it open.
#[cold]
pub(super) fn not_opened(error: FileError, path: &Bound<'_, PyAny>, place: &Path) -> PyErr {
    let py = path.py();
    let FileError::InUse = error else { return refusal::of_file(error, path) };
    let Some((open, name)) = file_at(place).and_then(|file| registry::open_in(py, file)) else {
        return refusal::in_use(
            path,
            "the file is open already, in another process, or in views of a pile that this one has closed: close it \
             there, wait until the views are gone, or open all of them for reading only",
        );
    };
    let shown = |object: &Bound<'_, PyAny>| object.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    let open = shown(open.bind(py));
    let named = name.map_or_else(String::new, |name| format!(" {}", shown(name.bind(py).as_any())));
    let text = format!(
        "the file is open already in this process, as gabion.Pile{named} in {open}: use that one, or close() it first; where \
         no variable leads to it, what holds it may be a traceback (sys.last_traceback), Out[...] of a notebook, or a \
         thread; gc.get_objects() has it"
    );
    refusal::in_use(path, &text)
}

/// A path as callers write it.
pub(super) fn place_of(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    argument::path(path)?.ok_or_else(|| {
        let text = format!("path must be a str or an os.PathLike, not {}", class_name(path));
        type_error(path.py(), &text)
    })
}

/// Opens a file to read it, and looks through all of it.
///
/// # Errors
/// Those of opening it; `FileError` where it is damaged.
pub(super) fn open_validated(path: &Bound<'_, PyAny>) -> PyResult<(Store, Codec)> {
    let opening = Opening { max_bytes: None, shards: None, types: None, create: false, read_only: true };
    let (pile, codec, _) = PileFile::open(path, &opening)?;
    let valid = through_gate(path.py(), || pile.validate());
    valid.map_err(|wrong| refusal::of_file(FileError::damaged(None, wrong.0), path))?;
    Ok((pile, codec))
}

/// Looks through a file: the figures of the pile in it, and how many numbers its codec has.
pub(super) fn check(path: &Bound<'_, PyAny>) -> PyResult<(gabion_pile::PileStats, usize)> {
    let (pile, codec) = open_validated(path)?;
    Ok((pile.stats(), codec.type_count()))
}
