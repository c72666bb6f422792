//! What a call on a pile can fail with, and how Python is told.

use std::fmt::Display;

use gabion_blocks::BlockError;
use gabion_blocks::file::FileError;
use gabion_pile::{PileError, Pointer};
use pyo3::exceptions::{PyBlockingIOError, PyException, PyMemoryError};
use pyo3::prelude::*;

use crate::codec::add_note;
use crate::errors::{Errors, class_name, exception, legible, os_error, own_error, refused, system_error};

pub(super) use crate::errors::type_error;

/// Why a call failed. A pointer that is not live is kept apart from what the code of a stored class raises, so that a
/// default stands in for the one and never hides the other.
pub(super) enum Failure {
    /// The pile refused.
    Refused(PileError),
    /// An int that no pointer can be: negative, or beyond 64 bits.
    Impossible(Py<PyAny>),
    /// Something was raised.
    Raised(PyErr),
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<PileError> for Failure {
    fn from(error: PileError) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    /// True when the pointer is not live.
    pub fn is_dead_pointer(&self) -> bool {
        matches!(self, Self::Impossible(_) | Self::Refused(PileError::Pointer { .. }))
    }

    /// The exception: its class by kind, its text as the pile says it.
    #[cold]
    pub fn raise(self, py: Python<'_>) -> PyErr {
        let pointer = |text: &str| own_error(py, |errors| &errors.pointer, text);
        match self {
            Self::Raised(error) => error,
            Self::Refused(error @ PileError::Pointer { .. }) => pointer(&error.to_string()),
            Self::Refused(error @ PileError::Memory { payload, cause }) => {
                let text = match cause {
                    BlockError::Limit { asked, used, limit } => over_limit(payload, asked, used, limit),
                    // Room is not what is missing.
                    BlockError::DescriptorLost => cause.to_string(),
                    _ => error.to_string(),
                };
                refused(py, &cause, &text)
            }
            Self::Refused(error @ PileError::Damaged { .. }) => {
                own_error(py, |errors| &errors.corrupt_file, &error.to_string())
            }
            Self::Refused(PileError::Blocks(cause)) => refused(py, &cause, &cause.to_string()),
            Self::Refused(error) => own_error(py, |errors| &errors.base, &error.to_string()),
            Self::Impossible(number) => {
                let number = number.bind(py).str().map_or_else(|_| "this int".to_owned(), |text| text.to_string());
                let text = "is not a pointer: no pile gives out such a number; pass what put() returned";
                pointer(&format!("{number} {text}"))
            }
        }
    }
}

/// What a pile says that reached its limit: the setting's name, and what would help.
#[cold]
fn over_limit(payload: u64, asked: u64, used: u64, limit: u64) -> String {
    if asked > limit {
        format!(
            "an object of {payload} bytes takes {asked}, more than the whole pile may (max_bytes={limit}): raise \
             pile.max_bytes, or put the object in parts"
        )
    } else {
        format!(
            "no room for an object of {payload} bytes: it takes {asked} bytes more, and {used} of max_bytes={limit} are \
             in use: remove objects, or raise pile.max_bytes"
        )
    }
}

/// `default` in place of the error of a pointer that is not live, when there is one.
pub(super) fn or_default<T>(py: Python<'_>, result: Result<T, Failure>, default: Option<T>) -> PyResult<T> {
    match (result, default) {
        (Ok(value), _) => Ok(value),
        (Err(failure), Some(default)) if failure.is_dead_pointer() => Ok(default),
        (Err(failure), _) => Err(failure.raise(py)),
    }
}

/// Notes what an error is about.
#[cold]
pub(super) fn add_note_about(py: Python<'_>, error: &PyErr, about: impl FnOnce() -> String) {
    // An interrupt is about nothing, and where there is no memory, there is none for a note.
    if error.is_instance_of::<PyException>(py) && !error.get_type(py).is(py.get_type::<PyMemoryError>()) {
        add_note(py, error, &about());
    }
}

/// Notes which of many objects an error is about.
#[cold]
pub(super) fn add_note_which(py: Python<'_>, error: &PyErr, index: usize, call: &str) {
    add_note_about(py, error, || format!("object {index} of those passed to {call}(), counted from 0"));
}

/// For an object that could not be built: notes its pointer.
#[cold]
pub(super) fn not_built(py: Python<'_>, error: PyErr, pointer: Pointer) -> PyErr {
    add_note_about(py, &error, || format!("the object behind pointer {}", pointer.to_bits()));
    error
}

/// For fields that could not be read: as [`not_built`], unless the error is about the names that were asked for.
#[cold]
pub(super) fn not_read(py: Python<'_>, error: PyErr, pointer: Pointer) -> PyErr {
    let of_object = Errors::get(py).is_ok_and(|errors| error.is_instance(py, errors.codec.bind(py)));
    if of_object { not_built(py, error, pointer) } else { error }
}

/// For what is not an int at all.
#[cold]
pub(super) fn not_an_int(value: &Bound<'_, PyAny>) -> PyErr {
    let class = class_name(value);
    // NumPy's are no instances of Python's, but for one.
    let hint = if class.starts_with("float") {
        ", which has lost digits that int() does not bring back: keep pointers as ints of 64 bits (uint64 in NumPy and pandas)"
    } else if matches!(class.rsplit('.').next(), Some("NAType" | "NaTType" | "NoneType")) {
        ", which stands for one that is missing: leave those out, as column.dropna() of pandas does, or use \
         column.map(pile.get, na_action=\"ignore\")"
    } else {
        ""
    };
    type_error(value.py(), &format!("a pointer is an int, as put() returned it, not {class}{hint}"))
}

/// For a table, which gives the names of its columns where pointers are asked for.
#[cold]
pub(super) fn no_pointers(values: &Bound<'_, PyAny>, call: &str) -> Option<PyErr> {
    let class = values.get_type();
    let is_table = class.hasattr("itertuples").unwrap_or(false) || class.hasattr("iter_rows").unwrap_or(false);
    let text = format!("{call}() takes pointers, and this is a table: pass the column of them, as in frame[\"ptr\"]");
    is_table.then(|| type_error(values.py(), &text))
}

/// For an object that has no bytes to view. `name` says what it is, where that is known without building it.
#[cold]
pub(super) fn not_viewable(py: Python<'_>, name: Option<&str>) -> PyErr {
    let given = name.unwrap_or("an instance of another class or a subclass");
    let hint = match name {
        Some("numpy.ndarray") => ", or put array.tobytes() and read it by numpy.frombuffer(pile.view(ptr), dtype)",
        _ => "",
    };
    let text = format!("view() shows stored bytes, bytearray or array.array of numbers, not {given}: use get(){hint}");
    type_error(py, &text)
}

/// For what was passed to the class by position.
#[cold]
pub(super) fn by_position(first: &Bound<'_, PyAny>) -> PyErr {
    let is_path = match crate::argument::path(first) {
        Ok(path) => path.is_some() && crate::size::parse("", first).is_err(),
        Err(_) => false,
    };
    let name = if is_path { "path" } else { "max_bytes" };
    let given = first.repr().map_or_else(|_| "...".to_owned(), |text| text.to_string());
    type_error(first.py(), &format!("Pile() takes settings by name only: write {name}={given}"))
}

/// For a pile that was closed.
#[cold]
pub(super) fn closed(py: Python<'_>, in_file: bool) -> PyErr {
    let text = if in_file {
        "this pile was closed: its objects are in its file; open it again with gabion.Pile(path=...)"
    } else {
        "this pile was closed: its objects are gone; make a new gabion.Pile()"
    };
    own_error(py, |errors| &errors.closed, text)
}

/// For a pile of which nothing may be changed.
#[cold]
pub(super) fn read_only(py: Python<'_>) -> PyErr {
    let text = "this pile was opened with read_only=True, and nothing of it can be changed: open it without, when no other process \
                reads it";
    own_error(py, |errors| &errors.read_only, text)
}

/// For a pile of a forked child's that lies in a file.
#[cold]
pub(super) fn parted(py: Python<'_>) -> PyErr {
    let text = "this pile lies in a file that belongs to the process which forked this one: use it there, or open the file here \
                when it is closed there (for reading, both may have it open with read_only=True)";
    own_error(py, |errors| &errors.closed, text)
}

fn named_file(path: &Bound<'_, PyAny>, text: &dyn Display) -> String {
    format!("{}: {text}", legible(path).unwrap_or_else(|_| "?".to_owned()))
}

/// For a file that somebody else has open.
#[cold]
pub(super) fn in_use(path: &Bound<'_, PyAny>, text: &str) -> PyErr {
    exception(&path.py().get_type::<PyBlockingIOError>(), &named_file(path, &text))
}

/// For a file that could not be opened, read or flushed.
#[cold]
pub(super) fn of_file(error: FileError, path: &Bound<'_, PyAny>) -> PyErr {
    let py = path.py();
    let named = |text: &dyn Display| named_file(path, text);
    match error {
        FileError::System { error, .. } => system_error(py, &error, Some(path)),
        FileError::InUse => in_use(path, &FileError::InUse.to_string()),
        FileError::DescriptorLost => os_error(py, libc::EBADF, &FileError::DescriptorLost.to_string(), Some(path)),
        FileError::Blocks(error) => refused(py, &error, &named(&error)),
        error @ FileError::Format { .. } => own_error(py, |errors| &errors.format, &named(&error)),
        error => own_error(py, |errors| &errors.corrupt_file, &named(&error)),
    }
}

/// For a log that the codec does not understand.
#[cold]
pub(super) fn of_log(error: PyErr, path: &Bound<'_, PyAny>) -> PyErr {
    let py = path.py();
    match Errors::get(py) {
        Ok(errors) if error.get_type(py).is(errors.codec.bind(py)) => {
            let text = format!("what the file says of classes makes no sense: {}", error.value(py));
            of_file(FileError::damaged(None, text), path)
        }
        _ => error,
    }
}

/// For a class that could not be noted in a file.
#[cold]
pub(super) fn not_noted(py: Python<'_>, error: &BlockError) -> PyErr {
    refused(py, error, &format!("a class cannot be noted in the pile's file: {error}"))
}

/// For a pile or a cache that could not be made.
#[cold]
pub(crate) fn not_made(py: Python<'_>, what: &str, error: &BlockError) -> PyErr {
    refused(py, error, &format!("no new {what}: {error}"))
}
