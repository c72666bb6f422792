//! Many objects in one call.

use gabion_pile::Pointer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::class::Pile;
use super::scratch::with_encoded;
use super::{number, refusal};

/// How many objects ahead memory is asked for: enough to cover a memory access with the building of objects.
const AHEAD: usize = 8;

/// `Pile.put_many`
pub(super) fn put_many<'py>(this: &Pile, iterable: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = iterable.py();
    this.open(py)?;
    let mut pointers: Vec<Pointer> = Vec::with_capacity(iterable.len().unwrap_or(0));
    let stored = iterable.try_iter()?.try_for_each(|object| {
        let object = object?;
        let pile = this.open(py)?;
        with_encoded(|encoded| {
            // SAFETY: `object` holds a reference over the call.
            unsafe { this.codec.encode(py, object.as_ptr(), encoded)? };
            pointers.push(pile.put(encoded, 0).map_err(|error| refusal::raise(py, &error))?);
            Ok(())
        })
    });
    if let Err(error) = stored {
        for pointer in pointers {
            // Another thread may have removed what it found by iterating; gone is what we want.
            let _ = this.pile.remove(pointer);
        }
        return Err(error);
    }
    array(py, &pointers)
}

/// `Pile.get_many`
pub(super) fn get_many<'py>(
    this: &Pile,
    ptrs: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = ptrs.py();
    let pointers = number::pointers(ptrs)?;
    let pile = this.open(py)?;
    for &pointer in pointers.iter().take(AHEAD) {
        pile.prefetch(pointer);
    }
    let mut objects = Vec::with_capacity(pointers.len());
    for (index, &pointer) in pointers.iter().enumerate() {
        if let Some(&ahead) = pointers.get(index + AHEAD) {
            pile.prefetch(ahead);
        }
        let mut object = this.build(py, pointer);
        if object.is_err() {
            object = Pile::or_default(py, object, default.map(|default| default.clone().unbind()));
        }
        objects.push(object?);
    }
    PyList::new(py, objects)
}

/// `Pile.remove_many`
pub(super) fn remove_many(this: &Pile, ptrs: &Bound<'_, PyAny>) -> PyResult<usize> {
    let pointers = number::pointers(ptrs)?;
    let pile = this.open(ptrs.py())?;
    Ok(ptrs.py().detach(|| {
        let removed = |index: usize| {
            if let Some(&ahead) = pointers.get(index + AHEAD) {
                pile.prefetch(ahead);
            }
            pile.remove(pointers[index]).is_ok()
        };
        (0..pointers.len()).filter(|&index| removed(index)).count()
    }))
}

/// Pointers as an array('Q').
fn array<'py>(py: Python<'py>, pointers: &[Pointer]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new_with(py, pointers.len() * 8, |bytes| {
        for (place, pointer) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(pointers) {
            *place = pointer.to_bits().to_ne_bytes();
        }
        Ok(())
    })?;
    py.import("array")?.getattr("array")?.call1(("Q", bytes))
}
