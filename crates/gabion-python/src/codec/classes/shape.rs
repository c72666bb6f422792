//! Sets of attribute names: which of them get a layout. How long that holds: see the tables at the head of `registry`.

use std::sync::atomic::AtomicU32;

use super::layout::{Entry, Layout};
use super::plan::{Attributes, look_for_setters};
use super::record::may_be_described;
use super::registry::Registry;
use crate::codec::object::{Own, Raise};
use crate::codec::room;
use crate::ffi;

/// The layout for instances with these attribute names, if there may be one.
///
/// `names` are exact strings; `indices` is empty or one index per name.
///
/// # Errors
/// `MemoryError`: there may be as many names as an object can have.
pub fn learn<'a>(
    attributes: &Attributes,
    registry: &'a Registry,
    names: &[Own],
    indices: &[u8],
) -> Raise<Option<&'a Layout>> {
    if !attributes.has_room() || !may_be_described(names) || names.iter().any(is_special) {
        return Ok(None);
    }
    // SAFETY: layouts live as long as the registry.
    let base = unsafe { &*attributes.base };
    let all = room::list(base.names.iter().chain(names).cloned())?;
    let mut own = room::list(all.iter().cloned())?;
    let entry = registry.find_or_add(
        base.class.ptr(),
        &base.found,
        |entry| match entry {
            Entry::Object(old) => {
                // One for what was stored before the class was defined anew fills fields by their names, past its
                // slots.
                old.former_slots == 0
                    && old.listed == base.listed
                    && old.declares_as(base)
                    && old.offsets == base.offsets
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
                names: std::mem::take(&mut own),
                offsets: base.offsets.clone(),
                indices: indices.to_vec(),
                plain_at: AtomicU32::new(0),
                found: base.found.clone(),
                former_slots: 0,
                listed: base.listed,
                has_dict: base.has_dict,
                declared: base.declared.clone(),
                changes: None,
            })
        },
    );
    let Entry::Object(layout) = entry else { return Ok(None) };
    look_for_setters(layout);
    attributes.add(layout);
    Ok(Some(layout))
}

/// Names that pickling looks up on the instance: an attribute of that name changes what pickling does.
fn is_special(name: &Own) -> bool {
    is_hook(name) || is_one_of(name, &["__setstate__", "__class__", "__dict__"])
}

/// Whether pickling asks the instance for an attribute of that name, and calls it.
pub fn is_hook(name: &Own) -> bool {
    is_one_of(name, &["__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"])
}

fn is_one_of(name: &Own, names: &[&str]) -> bool {
    // SAFETY: an exact string, held.
    unsafe {
        // Few names are as long as any of these.
        let len = ffi::PyUnicode_GetLength(name.ptr());
        if !names.iter().any(|name| name.len() as isize == len) {
            return false;
        }
        let mut len = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(name.ptr(), &raw mut len);
        if data.is_null() {
            // Lone surrogates: not one of those names.
            ffi::PyErr_Clear();
            return false;
        }
        let text = std::slice::from_raw_parts(data.cast::<u8>(), len as usize);
        names.iter().any(|name| name.as_bytes() == text)
    }
}
