//! What is asked of the interpreter once.
//!
//! `PyOnceLock::get_or_init` lets the interpreter go and has it back when the cell is its own already: another thread
//! that forks just then leaves a child with a cell in the hands of a thread that it does not have, and whoever asks the
//! child's cell waits for ever. So values are made outside of their cells here, and put there while the thread stays
//! attached.
//!
//! Most of them begin with an import, and the interpreter's locks of modules are such cells, too: who imports the same
//! in the child waits for ever. So a fork waits for the imports that are under way here.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyString, PyType};

use crate::detached::detached_ungated;
use crate::{ffi, result};

/// Threads that are importing something here. Relaxed everywhere: a number alone, and nobody follows it to anything
/// else.
static IMPORTING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many of them are this thread: a fork does not wait for itself.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// How often a fork looks for their end at most: one may wait for a lock that a hook of somebody else's has just taken.
/// Half a minute of looks and not of time, because imports take long where all is slow or stands still.
const LOOKS: u32 = 30_000;

/// How long a fork waits from one look to the next.
const MOMENT: Duration = Duration::from_millis(1);

/// An import that is under way, until it is dropped.
pub(crate) struct Importing;

impl Importing {
    pub fn begin() -> Self {
        OWN.set(OWN.get() + 1);
        IMPORTING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        IMPORTING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Imports a module. Other threads fork before it or after it.
pub(crate) fn import<'py>(py: Python<'py>, name: &CStr) -> PyResult<Bound<'py, PyAny>> {
    let _importing = Importing::begin();
    // SAFETY: attached; a C string; a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyImport_ImportModule(name.as_ptr())) }
}

/// As [`import`], for Python code.
#[pyfunction]
fn _import<'py>(name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let _importing = Importing::begin();
    // SAFETY: attached; a string, held; a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(name.py(), ffi::PyImport_Import(name.as_ptr())) }
}

/// Waits, before a fork, until no other thread imports something here; false if that takes too long. Without a GIL one
/// may begin at any moment; with it, when this thread detaches.
pub(crate) fn wait_for_imports(py: Python<'_>) -> bool {
    for _ in 0..LOOKS {
        if !is_importing_elsewhere() {
            return true;
        }
        detached_ungated(py, || std::thread::sleep(MOMENT));
    }
    false
}

/// Whether another thread imports something here.
pub(crate) fn is_importing_elsewhere() -> bool {
    IMPORTING.load(Ordering::Relaxed) > OWN.get()
}

#[pyfunction]
fn before_fork(py: Python<'_>) {
    wait_for_imports(py);
}

#[pyfunction]
fn after_fork_in_child() {
    IMPORTING.store(OWN.get(), Ordering::Relaxed);
}

/// Has forks wait for imports.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_import, m)?)?;
    at_fork(m, Some(wrap_pyfunction!(before_fork, m)?), None, Some(wrap_pyfunction!(after_fork_in_child, m)?))
}

/// Has the interpreter call these around each fork: before it those that were registered last come first, after it
/// those that were registered first.
pub(crate) fn at_fork<'py>(
    m: &Bound<'py, PyModule>,
    before: Option<Bound<'py, PyCFunction>>,
    in_parent: Option<Bound<'py, PyCFunction>>,
    in_child: Option<Bound<'py, PyCFunction>>,
) -> PyResult<()> {
    let hooks = result::dict(m.py())?;
    for (when, hook) in [("before", before), ("after_in_parent", in_parent), ("after_in_child", in_child)] {
        if let Some(hook) = hook {
            hooks.set_item(result::text(m.py(), when)?, hook)?;
        }
    }
    import(m.py(), c"os")?.call_method("register_at_fork", (), Some(&hooks)).map(drop)
}

/// Makes a class that programs do not call by its name: at its first instance `PyO3` would make it, and end the process
/// where there is no memory for it.
pub(crate) fn make_class<T: pyo3::PyTypeInfo>(m: &Bound<'_, PyModule>) {
    let _ = T::type_object(m.py());
}

/// What is in a cell; what `make` gives, the first time.
pub(crate) fn once<'a, T>(
    py: Python<'_>,
    cell: &'a PyOnceLock<T>,
    make: impl FnOnce() -> PyResult<T>,
) -> PyResult<&'a T> {
    if let Some(found) = cell.get(py) {
        return Ok(found);
    }
    let importing = Importing::begin();
    let made = make();
    drop(importing);
    // Another thread may be faster: all go on with its value.
    let _ = cell.set(py, made?);
    Ok(cell.get(py).expect("a cell that was just filled"))
}

/// What a module has under a name. PyO3's own way panics where there is no memory for the names.
pub(crate) fn of_module<'py>(py: Python<'py>, module: &CStr, name: &CStr) -> PyResult<Bound<'py, PyAny>> {
    let module = import(py, module)?;
    // SAFETY: attached; a C string; the module is held; a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyObject_GetAttrString(module.as_ptr(), name.as_ptr())) }
}

/// As [`once`], a class of a module.
pub(crate) fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    module: &CStr,
    name: &CStr,
) -> PyResult<&'py Bound<'py, PyType>> {
    let found = once(py, cell, || Ok(of_module(py, module, name)?.cast_into::<PyType>()?.unbind()))?;
    Ok(found.bind(py))
}

/// As [`once`], an interned string: see `intern`.
#[inline]
pub(crate) fn text<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyString>>,
    text: &str,
) -> PyResult<&'py Bound<'py, PyString>> {
    if cell.get(py).is_none() {
        let _ = cell.set(py, interned(py, text)?.unbind());
    }
    Ok(cell.get(py).expect("a cell that was just filled").bind(py))
}

#[cold]
fn interned<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    let mut text = result::text(py, text)?.into_ptr();
    // SAFETY: attached; a str and a reference to it, which is exchanged for one to the str that is kept, or stays where
    // there is no memory to keep it.
    unsafe {
        ffi::PyUnicode_InternInPlace(&raw mut text);
        Ok(Bound::from_owned_ptr(py, text).cast_into_unchecked())
    }
}

/// An interned string, made at its first use: a result, as there may be no memory for it.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static TEXT: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::types::PyString>> = pyo3::sync::PyOnceLock::new();
        $crate::once::text($py, &TEXT, $text)
    }};
}

pub(crate) use intern;
