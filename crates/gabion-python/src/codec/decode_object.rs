//! Making ordinary objects: allocated as `object.__new__` does, then filled without `__init__`, as pickle does.

use pyo3::ffi::{self, PyObject, PyTypeObject};

use super::decode::{Decoder, Frame, Place};
use super::known::Known;
use super::object::{Own, Raise, Raised};
use super::reader::damaged;
use super::registry::{Entry, Layout};
use super::{inline, plan, tags};

/// An object that is being filled.
pub struct Object {
    object: Own,
    layout: *const Layout,
    /// Index of the next value in the layout.
    next: usize,
    /// Which slots have a value; all when there is no bit set.
    bits: Option<Box<[u8]>>,
    /// Attributes with inline names still to be read, and the name of the one that is.
    open: usize,
    name: Option<Own>,
}

impl<const REFS: bool> Decoder<'_, '_, REFS> {
    fn layout(&self, id: u32) -> Raise<&Layout> {
        match self.maker.registry.entry(id) {
            Some(Entry::Object(layout)) => Ok(layout),
            _ => Err(damaged("an unknown class")),
        }
    }

    fn new_object(&mut self, id: u32, place: Place) -> Raise<Object> {
        let layout: *const Layout = self.layout(id)?;
        // SAFETY: layouts live as long as the registry.
        let object = unsafe { allocate(&*layout, self.maker.known)? };
        self.note(place, &object);
        Ok(Object { object, layout, next: 0, bits: None, open: 0, name: None })
    }

    /// An object of a layout.
    #[inline(always)]
    pub fn object(&mut self, id: u32, place: Place) -> Raise<Option<Own>> {
        let object = self.new_object(id, place)?;
        self.fill_object(object)
    }

    /// An object with unset slots, or with attribute names inline.
    pub fn odd_object(&mut self, tag: u8, place: Place) -> Raise<Option<Own>> {
        let id = self.maker.id(&mut self.reader)?;
        let mut object = self.new_object(id, place)?;
        // SAFETY: layouts live as long as the registry.
        let slots = unsafe { (*object.layout).slots() };
        object.bits = Some(self.reader.take(slots.div_ceil(8))?.into());
        if tag == tags::OBJECT_OPEN {
            object.open = self.reader.varint()?;
            self.reader.claim(object.open.saturating_mul(2))?;
        }
        self.fill_object(object)
    }

    /// Reads values into the object until one is not a leaf, or all are there.
    #[inline(always)]
    pub fn fill_object(&mut self, mut object: Object) -> Raise<Option<Own>> {
        // SAFETY: layouts live as long as the registry.
        let layout = unsafe { &*object.layout };
        if object.bits.is_some() {
            return self.fill_odd(object);
        }
        let slots = layout.slots();
        while object.next < slots {
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Object(object))) };
            put_slot(&object.object, layout.offsets[object.next], value);
            object.next += 1;
        }
        while object.next < layout.len() {
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Object(object))) };
            put_attribute(&object.object, layout, object.next, value)?;
            object.next += 1;
        }
        Ok(Some(object.object))
    }

    #[inline(never)]
    fn fill_odd(&mut self, mut object: Object) -> Raise<Option<Own>> {
        // SAFETY: layouts live as long as the registry.
        let layout = unsafe { &*object.layout };
        loop {
            let bits = object.bits.as_deref().unwrap_or_default();
            while object.next < layout.slots() && bits[object.next / 8] >> (object.next % 8) & 1 == 0 {
                object.next += 1;
            }
            if object.next >= layout.slots() && object.open == 0 {
                return Ok(Some(object.object));
            }
            let Some(value) = self.leaf()? else { return Ok(self.wait(Frame::Object(object))) };
            self.put(&mut object, value)?;
        }
    }

    /// Gives the object the value that is next.
    pub fn put(&mut self, object: &mut Object, value: Own) -> Raise<()> {
        // SAFETY: layouts live as long as the registry.
        let layout = unsafe { &*object.layout };
        if object.next < layout.slots() {
            put_slot(&object.object, layout.offsets[object.next], value);
            object.next += 1;
        } else if object.bits.is_none() {
            put_attribute(&object.object, layout, object.next, value)?;
            object.next += 1;
        } else if let Some(name) = object.name.take() {
            put_in_dict(&object.object, name, &value)?;
            object.open -= 1;
        } else {
            object.name = Some(value);
        }
        Ok(())
    }
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
            return Own::take(new(class, known.no_arguments.ptr(), std::ptr::null_mut()));
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
    let class: *mut PyTypeObject = layout.class.ptr().cast();
    let index = layout.indices.get(i - layout.slots()).copied();
    // SAFETY: an instance of the layout's class that no other thread has seen; indices are only remembered for classes
    // whose instances have the known layout, and shared keys are never taken back.
    let value = match index {
        Some(index) => match unsafe { inline::set(object.ptr(), index, value) } {
            Ok(()) => return Ok(()),
            Err(value) => value,
        },
        None => value,
    };
    let name = &layout.names[i];
    if layout.plain_at != 0 && layout.plain_at == plan::version(class) {
        // SAFETY: held.
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
