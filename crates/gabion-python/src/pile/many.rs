//! Many objects in one call.

use gabion_pile::{Pointer, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use super::each::{announced, each, iterator, room_for};
use super::number;
use super::refusal::{Failure, add_note_which, or_default, type_error};
use super::state::Pile;
use crate::ffi;
use crate::figures::Figure;
use crate::once::{intern, of_module, once};
use crate::result;
use crate::yield_budget::YieldBudget;

/// How many objects ahead memory is asked for: enough to cover a memory access with the building of objects.
const AHEAD: usize = 8;

/// Room made ahead for what an iterable says it holds; what it says may be wrong.
const ROOM_AHEAD: usize = 1 << 16;

/// `Pile.put_many`
pub(super) fn put_many<'py>(this: &Pile, iterable: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = iterable.py();
    this.open_to_change(py)?;
    refuse_frames(iterable)?;
    let mut pointers: Vec<Pointer> = Vec::new();
    room_for(py, &mut pointers, announced(iterable)?.min(ROOM_AHEAD))?;
    let mut yields = YieldBudget::new();
    let objects = iterator(iterable, "objects are passed as an iterable of them")?;
    let stored = each(py, &objects, &mut yields, |object| {
        // Before the put: what is not in the list cannot be taken back.
        room_for(py, &mut pointers, 1)?;
        let put = |pile: &gabion_pile::Pile, value: Value<'_>| {
            pointers.push(pile.put_pieces(value, 0).map_err(|error| Failure::Refused(error).raise(py))?);
            Ok(value.len())
        };
        this.encoded(object, put).inspect_err(|error| add_note_which(py, error, pointers.len(), "put_many"))
    });
    let made = stored.and_then(|()| {
        let made = array(py, &pointers)?;
        yields.end(py)?;
        Ok(made)
    });
    made.map_err(|error| undo(this, py, &pointers, error))
}

/// Refuses what gives something else than the objects that its caller means: a mapping gives its keys, a table the
/// names of its columns, or whole columns.
fn refuse_frames(iterable: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, class) = (iterable.py(), iterable.get_type());
    let has = |name| -> PyResult<bool> { Ok(class.getattr_opt(name)?.is_some()) };
    let is_mapping =
        iterable.is_instance_of::<PyDict>() || (has(intern!(py, "keys")?)? && iterable.is_instance(mapping(py)?)?);
    let told = if is_mapping {
        "a mapping, which gives its keys: pass its values(), or its items(); put() stores it as one object"
    } else if has(intern!(py, "itertuples")?)? {
        "a table, which gives the names of its columns: pass frame.itertuples(index=False, name=None), or \
         frame.to_dict(\"records\"); put() stores it as one object"
    } else if has(intern!(py, "iter_rows")?)? {
        "a table, which gives its columns: pass frame.iter_rows(), or frame.iter_rows(named=True); put() stores it as one \
         object"
    } else {
        return Ok(());
    };
    Err(type_error(py, &format!("put_many() stores what an iterable gives, and this is {told}")))
}

/// `collections.abc.Mapping`
fn mapping(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MAPPING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    once(py, &MAPPING, || Ok(of_module(py, c"collections.abc", c"Mapping")?.unbind())).map(|class| class.bind(py))
}

/// Removes what a failed call has put. Returns its error, or that of a signal which comes while many are removed.
#[cold]
fn undo(this: &Pile, py: Python<'_>, pointers: &[Pointer], mut error: PyErr) -> PyErr {
    let mut yields = YieldBudget::new();
    for &pointer in pointers {
        // Another thread may have removed what it found by iterating; gone is what we want.
        let _ = this.pile.remove(pointer);
        if let Err(later) = yields.step(py, 0) {
            let (value, context) = (later.value(py), error.into_value(py));
            if !value.is(&context) {
                // SAFETY: two exceptions; the reference to the second is given away.
                unsafe { ffi::PyException_SetContext(value.as_ptr(), context.into_ptr()) };
            }
            error = later;
        }
    }
    error
}

/// `Pile.get_many`
pub(super) fn get_many<'py>(
    this: &Pile,
    ptrs: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = ptrs.py();
    let pointers = number::pointers(ptrs, "get_many")?;
    let pile = this.open(py)?;
    for pointer in pointers.iter().take(AHEAD).flatten() {
        pile.prefetch(*pointer);
    }
    let list = new_list(py, pointers.len())?;
    let mut yields = YieldBudget::new();
    for (index, pointer) in pointers.iter().enumerate() {
        if let Some(Ok(ahead)) = pointers.get(index + AHEAD) {
            pile.prefetch(*ahead);
        }
        let mut object = match pointer {
            Ok(pointer) => this.build_sized(py, *pointer),
            Err(number) => Err(Failure::Impossible(number.clone_ref(py))),
        };
        if object.is_err() {
            let default = default.map(|default| (default.clone().unbind(), 0));
            object = or_default(py, object, default).map_err(Failure::Raised);
        }
        let (object, bytes) = object.map_err(|failure| {
            let error = failure.raise(py);
            add_note_which(py, &error, index, "get_many");
            error
        })?;
        // SAFETY: the list is new and nobody else's, the index below its length, the reference is given away.
        unsafe { ffi::PyList_SET_ITEM(list.as_ptr(), index as isize, object.into_ptr()) };
        yields.step(py, bytes)?;
    }
    // SAFETY: a list that the collector does not know; every place is set.
    unsafe { ffi::PyObject_GC_Track(list.as_ptr().cast()) };
    Ok(list)
}

/// A list with room for `length` objects, each still to be set. Code that runs before they are must not see it, so the
/// collector, of whom anybody may ask all objects, does not know it yet.
fn new_list(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: attached; a new reference or null with an error set; a list is a container that the collector knows.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(length as isize))?.cast_into_unchecked();
        ffi::PyObject_GC_UnTrack(list.as_ptr().cast());
        Ok(list)
    }
}

/// `Pile.remove_many`
pub(super) fn remove_many(this: &Pile, ptrs: &Bound<'_, PyAny>) -> PyResult<Figure> {
    let py = ptrs.py();
    let pointers = number::pointers(ptrs, "remove_many")?;
    let pile = this.open_to_change(py)?;
    let (mut removed, mut yields) = (0, YieldBudget::new());
    for (index, pointer) in pointers.iter().enumerate() {
        // Others, who run meanwhile, may close it. What was removed before that is told.
        if this.is_closed() {
            break;
        }
        if let Some(Ok(ahead)) = pointers.get(index + AHEAD) {
            pile.prefetch(*ahead);
        }
        let Ok(pointer) = *pointer else { continue };
        removed += u64::from(pile.remove(pointer).is_ok());
        yields.step(py, 0)?;
    }
    Ok(Figure(removed))
}

/// Pointers as an array('Q').
fn array<'py>(py: Python<'py>, pointers: &[Pointer]) -> PyResult<Bound<'py, PyAny>> {
    let mut numbers: Vec<u64> = Vec::new();
    room_for(py, &mut numbers, pointers.len())?;
    numbers.extend(pointers.iter().map(|pointer| pointer.to_bits()));
    // SAFETY: attached; the bytes of the numbers are copied; a new reference or null with an error set.
    let bytes = unsafe {
        let made = ffi::PyBytes_FromStringAndSize(numbers.as_ptr().cast(), size_of_val(&*numbers) as isize);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    drop(numbers);
    let (class, code) = array_maker(py)?;
    result::call(class.bind(py), [code.bind(py), &bytes])
}

/// `array.array` and "Q". Asked for once when the module is made, so that a put_many needs no more memory at its end
/// than its result takes.
pub(super) fn array_maker(py: Python<'_>) -> PyResult<&'static (Py<PyAny>, Py<PyAny>)> {
    static MAKER: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    once(py, &MAKER, || {
        let class = of_module(py, c"array", c"array")?;
        Ok((class.unbind(), result::text(py, "Q")?.into_any().unbind()))
    })
}
