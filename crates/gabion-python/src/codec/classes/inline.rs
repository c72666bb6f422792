//! Attributes of ordinary objects, read and written where the interpreter keeps them.
//!
//! Since 3.11 an instance holds its attributes in an array of values beside keys shared by its class; a dict is only
//! made when somebody asks for `__dict__`. Asking would make one on the *user's* object, slower and larger for good, so
//! the array is read in place. Its layout belongs to one minor version of the interpreter. A self-test compares with
//! the truth when the codec is first used; where it disagrees, and on versions not listed here, [`view`] finds nothing
//! and the public interface serves.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::codec::object::Own;
use crate::ffi::{self, PyObject, PyTypeObject};

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Attributes of one instance, in order of insertion.
pub struct View {
    values: *const *mut PyObject,
    order: *const u8,
    /// Attributes.
    pub len: usize,
}

impl View {
    /// Index in the shared keys of the `i`-th attribute.
    ///
    /// # Safety
    /// `i < self.len`, and the instance is alive and locked as when the view was made.
    #[inline(always)]
    pub unsafe fn index(&self, i: usize) -> u8 {
        // SAFETY: the order has `len` bytes; before 3.13 it runs downwards.
        unsafe {
            #[cfg(Py_3_13)]
            {
                *self.order.add(i)
            }
            #[cfg(not(Py_3_13))]
            {
                *self.order.sub(i)
            }
        }
    }

    /// Value at an index of the shared keys, borrowed; null when the attribute is not set.
    ///
    /// # Safety
    /// As [`View::index`]; `index` came from it.
    #[inline(always)]
    pub unsafe fn value(&self, index: u8) -> *mut PyObject {
        // SAFETY: indices in the order lie within the values.
        unsafe { *self.values.add(index as usize) }
    }
}

/// Flag of a class whose instances keep their `__dict__` out of the instance proper.
pub const MANAGED_DICT: std::ffi::c_ulong = 1 << 4;

/// Where a free-threaded object keeps its dict, in words before the object.
#[cfg(Py_GIL_DISABLED)]
const DICT_WORD: usize = 1;
#[cfg(not(Py_GIL_DISABLED))]
const DICT_WORD: usize = 3;

/// Layout of 3.11: a word for the values, a word for the dict.
#[cfg(all(Py_3_11, not(Py_3_12)))]
#[inline(always)]
unsafe fn values(obj: *mut PyObject) -> *mut *mut PyObject {
    // SAFETY: the class has a managed dict, so the two words before the collector's header are there.
    unsafe {
        let words = obj.cast::<*mut PyObject>();
        if (*words.sub(DICT_WORD)).is_null() { (*words.sub(4)).cast() } else { std::ptr::null_mut() }
    }
}

/// Layout of 3.12: one word for either, values marked by the low bit.
#[cfg(all(Py_3_12, not(Py_3_13)))]
#[inline(always)]
unsafe fn values(obj: *mut PyObject) -> *mut *mut PyObject {
    // SAFETY: as above.
    unsafe {
        let word = *obj.cast::<usize>().sub(DICT_WORD);
        if word & 1 == 1 { (word + 1) as *mut *mut PyObject } else { std::ptr::null_mut() }
    }
}

/// Layout of 3.13 and 3.14: the values follow the object's header: capacity, size, embedded, valid.
#[cfg(Py_3_13)]
#[inline(always)]
unsafe fn values(obj: *mut PyObject) -> *mut *mut PyObject {
    // SAFETY: as above; the class has inline values, so they follow the header.
    unsafe {
        let head = obj.add(1).cast::<u8>();
        let dict = *obj.cast::<*mut PyObject>().sub(DICT_WORD);
        if dict.is_null() && *head.add(3) != 0 { head.add(8).cast() } else { std::ptr::null_mut() }
    }
}

#[cfg(not(any(Py_3_11, Py_3_12, Py_3_13)))]
compile_error!("older interpreters have no inline values");

/// Whether instances of a class keep their attributes in the layout known here.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn usable(class: *mut PyTypeObject) -> bool {
    // Relaxed: set once, before the first codec exists.
    if !ENABLED.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: live by the caller's word.
    unsafe { has_layout(class) }
}

unsafe fn has_layout(class: *mut PyTypeObject) -> bool {
    // SAFETY: live by the caller's word; a heap class has the longer struct.
    unsafe {
        let flags = ffi::PyType_GetFlags(class);
        let heap = flags & ffi::Py_TPFLAGS_HEAPTYPE != 0;
        #[cfg(Py_3_13)]
        let inline = flags & (1 << 2) != 0 && (*class).tp_basicsize == size_of::<PyObject>() as isize;
        #[cfg(not(Py_3_13))]
        let inline = true;
        heap && inline
            && flags & MANAGED_DICT != 0
            && !(*class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.is_null()
    }
}

/// The attributes of `obj`, unless a dict was made for it.
///
/// # Safety
/// `obj` is alive and locked ([`crate::codec::object::Section`]), and [`usable`] holds for its class.
#[inline(always)]
pub unsafe fn view(obj: *mut PyObject) -> Option<View> {
    // SAFETY: as the caller promised.
    unsafe {
        let values = values(obj);
        if values.is_null() {
            return None;
        }
        #[cfg(Py_3_13)]
        {
            let head = values.cast::<u8>().sub(8);
            let order = values.add(*head as usize).cast::<u8>();
            Some(View { values, order, len: *head.add(1) as usize })
        }
        #[cfg(not(Py_3_13))]
        {
            let bytes = values.cast::<u8>();
            Some(View { values, order: bytes.sub(3), len: *bytes.sub(2) as usize })
        }
    }
}

/// The dict that was made for `obj`, borrowed, or null.
///
/// # Safety
/// As [`view`].
pub unsafe fn made_dict(obj: *mut PyObject) -> *mut PyObject {
    // SAFETY: as the caller promised; in 3.12 the word is marked when it is no dict.
    unsafe {
        let word = *obj.cast::<usize>().sub(DICT_WORD);
        if word & 1 == 0 { word as *mut PyObject } else { std::ptr::null_mut() }
    }
}

/// Sets an attribute that is not set yet, at an index of the shared keys, taking over `value`. Gives `value` back when
/// the instance has a dict by now or the place is taken.
///
/// # Safety
/// As [`view`], and no other thread has seen `obj`; `index` is one of the shared keys of its class.
#[inline(always)]
pub unsafe fn set(obj: *mut PyObject, index: u8, value: Own) -> Result<(), Own> {
    // SAFETY: the values have room for every shared key, and the order for as many bytes.
    unsafe {
        let values = values(obj);
        if values.is_null() || !(*values.add(index as usize)).is_null() {
            return Err(value);
        }
        #[cfg(Py_3_13)]
        {
            let head = values.cast::<u8>().sub(8);
            if index >= *head {
                return Err(value);
            }
            let size = *head.add(1);
            *head.add(1) = size + 1;
            *values.add(*head as usize).cast::<u8>().add(size as usize) = index;
        }
        #[cfg(not(Py_3_13))]
        {
            let size = values.cast::<u8>().sub(2);
            if *size + 2 >= *size.add(1) {
                return Err(value);
            }
            *size += 1;
            *size.sub(*size as usize) = index;
        }
        *values.add(index as usize) = value.into_ptr();
        Ok(())
    }
}

/// The name at an index of the keys that the instances of a class share, borrowed.
///
/// # Safety
/// [`usable`] holds for the class; a view of one of its instances gave the index.
pub unsafe fn key(class: *mut PyTypeObject, index: u8) -> *mut PyObject {
    // SAFETY: shared keys are only ever appended to and live as long as the class. Header of 32 bytes, the hash
    // indices, then pairs of key and (unused) value.
    unsafe {
        let keys = (*class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys;
        let entries = keys.byte_add(32 + (1usize << *keys.cast::<u8>().add(9)));
        *entries.cast::<*mut PyObject>().add(2 * index as usize)
    }
}

/// Compares the layout with the truth once, and turns the fast path on when they agree.
pub fn test(py: Python<'_>) {
    if compare(py).unwrap_or(false) {
        ENABLED.store(true, Ordering::Relaxed); // Relaxed: see `usable`.
    }
}

fn compare(py: Python<'_>) -> PyResult<bool> {
    let scope = crate::result::dict(py)?;
    let code = c"class Probe: pass\np = Probe(); p.a = object(); p.b = 2; p.c = 'x'; del p.b; p.d = 4\nq = Probe()\n";
    py.run(code, Some(&scope), Some(&scope))?;
    let item = |name: &str| -> PyResult<Bound<'_, PyAny>> { scope.as_any().get_item(name) };
    let (class, p, q) = (item("Probe")?, item("p")?, item("q")?);
    let expected = ["a", "c", "d"];
    // SAFETY: `p` and `q` are alive, private to this thread, and of the class that is asked about; every index is
    // compared with a bound before it is used.
    unsafe {
        let class = class.as_ptr().cast::<PyTypeObject>();
        if !has_layout(class) || (*(*class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<u8>().add(10)) != 2 {
            return Ok(false);
        }
        let Some(found) = view(p.as_ptr()) else { return Ok(false) };
        if found.len != 3 {
            return Ok(false);
        }
        let indices: Vec<u8> = (0..3).map(|i| found.index(i)).collect();
        if indices != [0, 2, 3] {
            return Ok(false);
        }
        for (name, &index) in expected.iter().zip(&indices) {
            let key = Bound::from_borrowed_ptr(py, key(class, index));
            if found.value(index) != p.getattr(*name)?.as_ptr() || key.extract::<String>()? != *name {
                return Ok(false);
            }
            let value = Own::share(found.value(index));
            if set(q.as_ptr(), index, value).is_err() {
                return Ok(false);
            }
        }
        if !made_dict(p.as_ptr()).is_null() && view(p.as_ptr()).is_none() {
            return Ok(false);
        }
    }
    let same = p.getattr("__dict__")?.eq(q.getattr("__dict__")?)?;
    // SAFETY: as above; a dict has been made now.
    let seen = unsafe { view(p.as_ptr()).is_none() && made_dict(p.as_ptr()) == p.getattr("__dict__")?.as_ptr() };
    Ok(same && seen)
}
