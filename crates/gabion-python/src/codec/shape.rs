//! Sets of attribute names: which of them get a layout.

use super::layout::{Entry, Layout};
use super::object::Own;
use super::plan::{Attributes, version};
use super::registry::Registry;
use crate::ffi::{self, PyTypeObject};

/// The layout for instances with these attribute names, if there may be one.
///
/// `names` are exact strings; `indices` is empty or one index per name.
pub fn learn<'a>(attributes: &Attributes, registry: &'a Registry, names: &[Own], indices: &[u8]) -> Option<&'a Layout> {
    if !attributes.has_room() || names.iter().any(is_special) {
        return None;
    }
    // SAFETY: layouts live as long as the registry.
    let base = unsafe { &*attributes.base };
    let class = base.class.ptr().cast::<PyTypeObject>();
    let all: Vec<Own> = base.names.iter().chain(names).cloned().collect();
    // SAFETY: the class is held by the layout.
    let plain_at = unsafe { plain_version(class, names) };
    let entry = registry.find_or_add(
        base.class.ptr(),
        |entry| match entry {
            Entry::Object(old) => {
                old.offsets == base.offsets
                    && old.plain_at == plain_at
                    && old.indices == indices
                    && old.names.len() == all.len()
                    && old.names.iter().zip(&all).all(|(a, b)| a.ptr() == b.ptr())
            }
            _ => false,
        },
        |id| {
            Entry::Object(Layout {
                id,
                class: base.class.clone(),
                names: all.clone(),
                offsets: base.offsets.clone(),
                indices: indices.to_vec(),
                plain_at,
            })
        },
    );
    let Entry::Object(layout) = entry else { return None };
    attributes.add(layout);
    Some(layout)
}

/// Names that pickling looks up on the instance: an attribute of that name changes what pickling does.
fn is_special(name: &Own) -> bool {
    let special = [
        "__reduce_ex__",
        "__reduce__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__class__",
        "__dict__",
    ];
    // SAFETY: an exact string, held.
    unsafe {
        let mut len = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(name.ptr(), &raw mut len);
        if data.is_null() {
            // Lone surrogates: not one of those names.
            ffi::PyErr_Clear();
            return false;
        }
        let text = std::slice::from_raw_parts(data.cast::<u8>(), len as usize);
        special.iter().any(|name| name.as_bytes() == text)
    }
}

#[expect(unpredictable_function_pointer_comparisons, reason = "the interpreter's functions have one address")]
/// The version at which no name is a data descriptor of the class and attributes are set the ordinary way, else 0.
unsafe fn plain_version(class: *mut PyTypeObject, names: &[Own]) -> u32 {
    // SAFETY: the caller holds the class; lookups borrow from it.
    unsafe {
        let ordinary = (*class).tp_setattro == Some(pyo3::ffi::PyObject_GenericSetAttr);
        let descriptor = |name: &Own| {
            let found = ffi::PyType_Lookup(class, name.ptr());
            !found.is_null() && (*ffi::Py_TYPE(found)).tp_descr_set.is_some()
        };
        if ordinary && !names.iter().any(descriptor) { version(class) } else { 0 }
    }
}
