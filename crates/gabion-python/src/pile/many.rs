//! Many objects in one call.

use gabion_pile::Pointer;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use super::each::{announced, each, iterator};
use super::number;
use super::refusal::{Failure, Fallback, or_default};
use super::state::Pile;
use crate::ffi;
use crate::figures::Figure;

/// How many objects ahead memory is asked for: enough to cover a memory access with the building of objects.
const AHEAD: usize = 8;

/// Room made ahead for what an iterable says it holds; what it says may be wrong.
const ROOM_AHEAD: usize = 1 << 16;

/// `Pile.put_many`
pub(super) fn put_many<'py>(this: &Pile, iterable: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = iterable.py();
    this.open(py)?;
    let mut pointers: Vec<Pointer> = Vec::with_capacity(announced(iterable).min(ROOM_AHEAD));
    let stored = each(py, &iterator(iterable)?, |object| {
        let put = |pile: &gabion_pile::Pile, encoding: &[u8]| {
            pile.put(encoding, 0).map_err(|error| Failure::Refused(error).raise(py))
        };
        // SAFETY: `object` holds a reference over the call.
        pointers.push(unsafe { this.encoded(py, object.ptr(), put)? });
        Ok(())
    });
    stored.and_then(|()| array(py, &pointers)).inspect_err(|_| {
        for &pointer in &pointers {
            // Another thread may have removed what it found by iterating; gone is what we want.
            let _ = this.pile.remove(pointer);
        }
    })
}

/// `Pile.get_many`
pub(super) fn get_many<'py>(
    this: &Pile,
    ptrs: &Bound<'py, PyAny>,
    default: Fallback<'py>,
) -> PyResult<Bound<'py, PyList>> {
    let py = ptrs.py();
    let pointers = number::pointers(ptrs)?;
    let pile = this.open(py)?;
    for pointer in pointers.iter().take(AHEAD).flatten() {
        pile.prefetch(*pointer);
    }
    let list = new_list(py, pointers.len())?;
    for (index, pointer) in pointers.iter().enumerate() {
        if let Some(Some(ahead)) = pointers.get(index + AHEAD) {
            pile.prefetch(*ahead);
        }
        // One that is not live, whatever its number was.
        let pointer = pointer.unwrap_or(Pointer::from_bits(u64::MAX));
        let mut object = this.build(py, pointer);
        if object.is_err() {
            object = or_default(py, object, default.object()).map_err(Failure::Raised);
        }
        let object = object.map_err(|failure| failure.raise(py))?;
        // SAFETY: the list is new and nobody else's, the index below its length, the reference is given away.
        unsafe { ffi::PyList_SET_ITEM(list.as_ptr(), index as isize, object.into_ptr()) };
    }
    Ok(list)
}

/// A list with room for `length` objects, each still to be set.
fn new_list(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: attached; a new reference or null with an error set.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(length as isize))?.cast_into_unchecked() })
}

/// `Pile.remove_many`
pub(super) fn remove_many(this: &Pile, ptrs: &Bound<'_, PyAny>) -> PyResult<Figure> {
    let pointers: Vec<Pointer> = number::pointers(ptrs)?.into_iter().flatten().collect();
    let pile = this.open(ptrs.py())?;
    let removed = |index: usize| {
        if let Some(&ahead) = pointers.get(index + AHEAD) {
            pile.prefetch(ahead);
        }
        pile.remove(pointers[index]).is_ok()
    };
    Ok(Figure((0..pointers.len()).filter(|&index| removed(index)).count() as u64))
}

/// Pointers as an array('Q').
fn array<'py>(py: Python<'py>, pointers: &[Pointer]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_bits().to_ne_bytes()).collect();
    // SAFETY: attached; the bytes are copied; a new reference or null with an error set.
    let bytes = unsafe {
        let made = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    let (class, code) = array_maker(py)?;
    // SAFETY: attached; a callable and its arguments, all held; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::call(class.as_ptr(), [code.as_ptr(), bytes.as_ptr()])) }
}

/// `array.array` and "Q". Asked for once when the module is made, so that a put_many needs no more memory at its end
/// than its result takes.
pub(super) fn array_maker(py: Python<'_>) -> PyResult<&'static (Py<PyAny>, Py<PyAny>)> {
    static MAKER: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    MAKER.get_or_try_init(py, || {
        let class = py.import("array")?.getattr("array")?;
        Ok((class.unbind(), pyo3::types::PyString::intern(py, "Q").into_any().unbind()))
    })
}
