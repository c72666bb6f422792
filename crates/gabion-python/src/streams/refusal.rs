//! What a stream refuses, and the exceptions for it.

use pyo3::exceptions::{PyBlockingIOError, PyException, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::codec::add_note;
use crate::errors::{exception, on_its_way, own_error};
use crate::once::of_module;
use crate::result;

pub(super) use crate::errors::{type_error, value_error};

#[cold]
pub(super) fn closed(py: Python<'_>, what: &str) -> PyErr {
    let text = format!("this {what} was closed: open the file again and make another");
    own_error(py, |errors| &errors.closed, &text)
}

#[cold]
pub(super) fn closed_file(py: Python<'_>, name: &str) -> PyErr {
    own_error(py, |errors| &errors.closed, &format!("{name} is a closed file: open it again"))
}

#[cold]
pub(super) fn detached(py: Python<'_>, what: &str) -> PyErr {
    let text = format!("this {what} was detached: use the file that detach() returned, or make another {what} of it");
    own_error(py, |errors| &errors.closed, &text)
}

#[cold]
pub(super) fn reentrant(py: Python<'_>, what: &str) -> PyErr {
    let text = format!(
        "this {what} is called by the file that it is just calling, or by a signal handler meanwhile: use the file itself \
         there, or call again when that call has ended"
    );
    exception(&py.get_type::<PyRuntimeError>(), &text)
}

#[cold]
pub(super) fn left_by_fork(py: Python<'_>, what: &str) -> PyErr {
    let text = format!(
        "another thread used this {what} when the process was forked, and is not in this process: make another {what}"
    );
    exception(&py.get_type::<PyRuntimeError>(), &text)
}

#[cold]
pub(super) fn same_file(py: Python<'_>) -> PyErr {
    value_error(py, "src and dst are the same file: copy to another one")
}

#[cold]
pub(super) fn os_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyOSError>(), text)
}

/// `io.UnsupportedOperation`, an `OSError` and a `ValueError`.
#[cold]
pub(super) fn unsupported(py: Python<'_>, text: &str) -> PyErr {
    match of_module(py, c"io", c"UnsupportedOperation").and_then(|class| Ok(class.cast_into()?)) {
        Ok(class) => exception(&class, text),
        Err(error) => error,
    }
}

/// A `BlockingIOError` whose `characters_written` says how many bytes were taken.
#[cold]
pub(super) fn would_block(py: Python<'_>, text: &str, written: u64) -> PyErr {
    let make = || {
        let parts = [
            result::signed(py, libc::EAGAIN.into())?,
            result::text(py, text)?.into_any(),
            result::number(py, written)?,
        ];
        py.get_type::<PyBlockingIOError>().call1(result::tuple(py, parts.into_iter())?)
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// How many bytes an error says were written before it: `BlockingIOError.characters_written`, else 0.
#[cold]
pub(super) fn characters_written(py: Python<'_>, error: &PyErr) -> usize {
    if !error.is_instance_of::<PyBlockingIOError>(py) {
        return 0;
    }
    error.value(py).getattr("characters_written").and_then(|count| count.extract()).unwrap_or(0)
}

/// How many bytes an error of a Writer says were written or gathered, else 0.
#[cold]
pub(super) fn bytes_taken(py: Python<'_>, error: &PyErr) -> usize {
    error.value(py).getattr("bytes_taken").and_then(|count| count.extract()).unwrap_or(0)
}

/// An error that says how far the work had come: by an attribute for programs, by a note for people.
#[cold]
pub(super) fn with_progress(py: Python<'_>, error: PyErr, attribute: &str, count: u64, note: &str) -> PyErr {
    // An exception that takes neither is raised as it is.
    let set = || error.value(py).setattr(result::text(py, attribute)?, result::number(py, count)?);
    let _: PyResult<()> = set();
    add_note(py, &error, note);
    error
}

/// What becomes of the errors of two steps of closing: the first goes on, unless only the other is an interrupt, and
/// gets a note of the other.
pub(super) fn both(py: Python<'_>, what: &str, first: PyResult<()>, second: PyResult<()>) -> PyResult<()> {
    match (first, second) {
        (Err(first), Err(second)) => {
            let interrupted = !second.is_instance_of::<PyException>(py) && first.is_instance_of::<PyException>(py);
            let (leaving, other) = if interrupted { (second, first) } else { (first, second) };
            add_note(py, &leaving, &failed_too(what, &other));
            Err(leaving)
        }
        (first, second) => first.and(second),
    }
}

fn failed_too(what: &str, error: &PyErr) -> String {
    format!("gabion.streams.{what}: closing it failed, too: {error}")
}

/// What becomes of an error of closing at the end of a with statement. It never takes the place of the exception that
/// leaves the block, of which it may be a consequence: that one gets a note of it.
pub(super) fn at_exit(
    py: Python<'_>,
    what: &str,
    arguments: &Bound<'_, PyTuple>,
    closed: PyResult<()>,
) -> PyResult<()> {
    let (Err(error), Some(leaving)) = (&closed, on_its_way(arguments)) else { return closed };
    // An interrupt that comes just now is nobody's consequence.
    if !error.is_instance_of::<PyException>(py) {
        return closed;
    }
    let text = failed_too(what, error);
    // The end of a task or a generator is nothing that people read.
    let noted = leaving.is_instance_of::<PyException>() && leaving.call_method1("add_note", (text,)).is_ok();
    if !noted && let Err(error) = closed {
        error.write_unraisable(py, Some(&leaving));
    }
    Ok(())
}
