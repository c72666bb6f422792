//! Making ordinary objects: allocated as `object.__new__` does, then filled without `__init__`, as pickle does.

use super::decode::Decoder;
use super::frame::{Frame, Odd, Place};
use super::known::Known;
use super::layout::{Entry, Layout};
use super::object::{Own, Raise, Raised};
use super::reader::damaged;
use super::{inline, plan, tags};
use crate::ffi::{self, PyObject, PyTypeObject};

impl<'a, const REFS: bool> Decoder<'a, '_, REFS> {
    #[inline(always)]
    fn layout(&self, id: u32) -> Raise<&'a Layout> {
        match self.maker.registry.entry(id) {
            Some(Entry::Object(layout)) if layout.found.is_as_seen() => Ok(layout),
            _ => self.layout_anew(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn layout_anew(&self, id: u32) -> Raise<&'a Layout> {
        match self.maker.entry(id)? {
            Some(Entry::Object(layout)) => Ok(layout),
            _ => Err(damaged("an unknown class")),
        }
    }

    /// An object of a layout.
    #[inline(always)]
    pub fn object(&mut self, id: u32, place: Place) -> Raise<Option<Own>> {
        let layout = self.layout(id)?;
        let object = allocate(layout, self.maker.known)?;
        self.note(place, &object);
        self.fill_object(object, layout, 0)
    }

    /// Reads values into the object until one is not a leaf, or all are there.
    #[inline(always)]
    fn fill_object(&mut self, object: Own, layout: &'a Layout, mut next: usize) -> Raise<Option<Own>> {
        while next < layout.slots() {
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Object { object, layout, next })) };
            put_slot(&object, layout.offsets[next], value);
            next += 1;
        }
        while next < layout.len() {
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Object { object, layout, next })) };
            put_attribute(&object, layout, next, value)?;
            next += 1;
        }
        Ok(Some(object))
    }

    /// Gives an object the value that it waited for, and reads on.
    pub fn resume_object(&mut self, object: Own, layout: &'a Layout, next: usize, value: Own) -> Raise<Option<Own>> {
        match layout.offsets.get(next) {
            Some(&offset) => put_slot(&object, offset, value),
            None => put_attribute(&object, layout, next, value)?,
        }
        self.fill_object(object, layout, next + 1)
    }

    /// An object with unset slots, or with attribute names inline.
    pub fn odd_object(&mut self, tag: u8, place: Place) -> Raise<Option<Own>> {
        let id = self.reader.id()?;
        let layout = self.layout(id)?;
        let (object, slots) = (allocate(layout, self.maker.known)?, layout.stored_slots());
        self.note(place, &object);
        let bits = self.reader.take(slots.div_ceil(8))?.to_vec();
        let open = if tag == tags::OBJECT_OPEN { self.reader.varint()? } else { 0 };
        self.reader.claim(open.saturating_mul(2))?;
        self.fill_odd(Box::new(Odd { object, layout, next: 0, bits, open, name: None }))
    }

    fn fill_odd(&mut self, mut odd: Box<Odd<'a>>) -> Raise<Option<Own>> {
        loop {
            let slots = odd.layout.stored_slots();
            while odd.next < slots && odd.bits[odd.next / 8] >> (odd.next % 8) & 1 == 0 {
                odd.next += 1;
            }
            if odd.next >= slots && odd.open == 0 {
                return Ok(Some(odd.object));
            }
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Odd(odd))) };
            put_odd(&mut odd, value)?;
        }
    }

    /// Gives an unusual object the value that it waited for, and reads on.
    pub fn resume_odd(&mut self, mut odd: Box<Odd<'a>>, value: Own) -> Raise<Option<Own>> {
        put_odd(&mut odd, value)?;
        self.fill_odd(odd)
    }
}

fn put_odd(odd: &mut Odd<'_>, value: Own) -> Raise<()> {
    let layout = odd.layout;
    if let Some(&offset) = layout.offsets.get(odd.next) {
        put_slot(&odd.object, offset, value);
        odd.next += 1;
    } else if odd.next < layout.former_slots {
        put_attribute(&odd.object, layout, odd.next, value)?;
        odd.next += 1;
    } else if let Some(name) = odd.name.take() {
        put_in_dict(&odd.object, name, &value)?;
        odd.open -= 1;
    } else {
        odd.name = Some(value);
    }
    Ok(())
}

/// A new instance, as `object.__new__` makes it.
#[inline(always)]
fn allocate(layout: &Layout, known: &Known) -> Raise<Own> {
    let class: *mut PyTypeObject = layout.class.ptr().cast();
    // SAFETY: the class inherits `object.__new__` and allocates generically (see its plan); it is held by the layout.
    unsafe {
        // Before 3.13 `object.__new__` itself makes room for the attributes of an instance with a `__dict__`.
        #[cfg(not(Py_3_13))]
        if ffi::PyType_GetFlags(class) & inline::MANAGED_DICT != 0
            && let Some(new) = (*class).tp_new
        {
            return Own::take(ffi::call_new(new, class, known.no_arguments.ptr(), std::ptr::null_mut()));
        }
        let _ = known;
        Own::take(ffi::PyType_GenericAlloc(class, 0))
    }
}

#[inline(always)]
fn put_slot(object: &Own, offset: isize, value: Own) {
    // SAFETY: an instance of the layout's class, which has a slot there. Code that runs in the midst of a decoding may
    // have set it: what it set is dropped.
    unsafe {
        let slot = object.ptr().byte_offset(offset).cast::<*mut PyObject>();
        let old = std::mem::replace(&mut *slot, value.into_ptr());
        if !old.is_null() {
            drop(Own::take(old));
        }
    }
}

/// Sets an attribute without running user code, and without a dict where there need be none.
#[inline(always)]
fn put_attribute(object: &Own, layout: &Layout, i: usize, value: Own) -> Raise<()> {
    let index = layout.indices.get(i - layout.slots()).copied();
    let value = match index {
        None => value,
        // SAFETY: an instance of the layout's class that no other thread has seen; indices are only remembered for
        // classes whose instances have the known layout, and shared keys are never taken back.
        Some(index) => match unsafe { inline::set(object.ptr(), index, value) } {
            Ok(()) => return Ok(()),
            Err(value) => value,
        },
    };
    let name = &layout.names[i];
    if plan::is_plain(layout) || i < layout.former_slots {
        // SAFETY: `object`, the name and `value` are references held over the call.
        let failed = unsafe { ffi::PyObject_GenericSetAttr(object.ptr(), name.ptr(), value.ptr()) < 0 };
        return if failed { Err(Raised) } else { Ok(()) };
    }
    put_in_dict(object, name.clone(), &value)
}

/// Sets an attribute in the object's dict, past `__setattr__` and properties.
pub fn put_in_dict(object: &Own, name: Own, value: &Own) -> Raise<()> {
    // SAFETY: held; the class has a dict (see its plan); a new reference or null with an error.
    unsafe {
        let mut name = name.into_ptr();
        if ffi::PyUnicode_CheckExact(name) != 0 {
            ffi::PyUnicode_InternInPlace(&raw mut name);
        }
        let name = Own::take(name)?;
        let dict = Own::take(ffi::PyObject_GenericGetDict(object.ptr(), std::ptr::null_mut()))?;
        if ffi::PyDict_SetItem(dict.ptr(), name.ptr(), value.ptr()) < 0 { Err(Raised) } else { Ok(()) }
    }
}
