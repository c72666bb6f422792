//! Encoding of containers: lists, tuples, dicts, sets.

use std::{ptr, slice};

use gabion_blocks::prefetch;

use super::encoder::{Begun, Encoder, FROM_STACK, IN_PLACE};
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Section, referenced_at_most};
use crate::codec::room;
use crate::ffi::{self, PyObject};

/// How many items of a list or tuple ahead of the one being written are asked for.
const AHEAD: usize = 8;

impl Encoder<'_, '_> {
    /// A list.
    ///
    /// # Safety
    /// `obj` is an exact list, held by the stack or by the caller of `encode`.
    pub unsafe fn list(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: an exact list, held; its items are borrowed under its lock, and leaves run no code.
        unsafe {
            if self.met(obj, limit)? {
                return Ok(());
            }
            Section::hold(obj, || {
                let len = ffi::PyList_GET_SIZE(obj) as usize;
                let first = (*obj.cast::<ffi::PyListObject>()).ob_item;
                // An empty list has no items at all, not even a place for them.
                let items = if len == 0 { &[] } else { slice::from_raw_parts(first, len) };
                self.header(tags::LIST_SHORT, tags::LIST_SHORT_MAX, tags::LIST, len)?;
                self.sequence(items)
            })
        }
    }

    fn header(&mut self, short: u8, max: usize, long: u8, len: usize) -> Raise<()> {
        if len <= max { writer::byte(self.out, short + len as u8) } else { writer::tag_varint(self.out, long, len) }
    }

    unsafe fn sequence(&mut self, items: &[*mut PyObject]) -> Raise<()> {
        // SAFETY: the caller keeps the items alive while this runs.
        unsafe {
            let item = |i: usize| {
                if let Some(&ahead) = items.get(i + AHEAD) {
                    prefetch(ahead);
                }
                items[i]
            };
            let written = self.leaves(items.len(), item)?;
            if written < items.len() {
                self.postpone(items[written..].iter().copied())?;
            }
        }
        Ok(())
    }

    /// A tuple.
    ///
    /// # Safety
    /// `obj` is an exact tuple, held by the stack or by the caller of `encode`.
    pub unsafe fn tuple(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: an exact tuple, held: its items never change.
        unsafe {
            let len = ffi::PyTuple_GET_SIZE(obj) as usize;
            let items = slice::from_raw_parts((&raw const (*obj.cast::<ffi::PyTupleObject>()).ob_item).cast(), len);
            if len == 0 || (!self.exact && referenced_at_most(obj, limit)) {
                self.header(tags::TUPLE_SHORT, tags::TUPLE_SHORT_MAX, tags::TUPLE, len)?;
                return self.sequence(items);
            }
            let begun = self.construct(obj, true)?;
            if begun == Begun::Before {
                return Ok(());
            }
            writer::tag_varint(self.out, tags::TUPLE_SHARED, len)?;
            if begun == Begun::Again { self.one_by_one(obj) } else { self.sequence(items) }
        }
    }

    /// What a tuple or frozenset holds, in its second and further rounds: what waits needs no room on the stack for
    /// each of them.
    #[cold]
    unsafe fn one_by_one(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: an exact tuple or frozenset, held; a new reference or null with an error.
        unsafe {
            let items = Own::take(ffi::PyObject_GetIter(obj))?;
            self.next_items(items)
        }
    }

    /// A tuple of a subclass without anything of its own, number `id` of the registry, that has `len` fields.
    ///
    /// # Safety
    /// `obj` is an instance of that class, held by the stack or by the caller of `encode`.
    pub unsafe fn named_tuple(&mut self, obj: *mut PyObject, limit: isize, id: u32, len: usize) -> Raise<()> {
        // SAFETY: a tuple of a subclass without anything of its own, held.
        unsafe {
            if ffi::PyTuple_GET_SIZE(obj) as usize != len {
                return self.reduce(obj, limit, false);
            }
            if (self.exact || !referenced_at_most(obj, limit)) && self.construct(obj, true)? == Begun::Before {
                return Ok(());
            }
            writer::tag_varint(self.out, tags::NAMED_TUPLE, id as usize)?;
            let items = slice::from_raw_parts((&raw const (*obj.cast::<ffi::PyTupleObject>()).ob_item).cast(), len);
            self.sequence(items)
        }
    }

    /// A dict.
    ///
    /// # Safety
    /// `obj` is an exact dict, held by the stack or by the caller of `encode`.
    pub unsafe fn dict(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: an exact dict, held; keys and values are borrowed under its lock, and leaves run no code that could
        // change it.
        unsafe {
            if self.met(obj, limit)? {
                return Ok(());
            }
            Section::hold(obj, || {
                let len = ffi::PyDict_Size(obj) as usize;
                self.header(tags::DICT_SHORT, tags::DICT_SHORT_MAX, tags::DICT, len)?;
                self.pairs(obj)
            })
        }
    }

    /// The pairs of a dict that is locked.
    unsafe fn pairs(&mut self, obj: *mut PyObject) -> Raise<()> {
        let (mut at, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: as in `dict`.
        unsafe {
            while ffi::PyDict_Next(obj, &raw mut at, &raw mut key, &raw mut value) != 0 {
                let mut rest = Vec::new();
                if !self.leaf(key, IN_PLACE)? {
                    room::push(&mut rest, key)?;
                    room::push(&mut rest, value)?;
                } else if !self.leaf(value, IN_PLACE)? {
                    room::push(&mut rest, value)?;
                } else {
                    continue;
                }
                while ffi::PyDict_Next(obj, &raw mut at, &raw mut key, &raw mut value) != 0 {
                    room::push(&mut rest, key)?;
                    room::push(&mut rest, value)?;
                }
                return self.postpone(rest.into_iter());
            }
        }
        Ok(())
    }

    /// A set.
    ///
    /// # Safety
    /// `obj` is an exact set, held by the stack or by the caller of `encode`.
    pub unsafe fn set(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: an exact set, held.
        unsafe {
            if self.met(obj, limit)? {
                return Ok(());
            }
            self.elements(obj, tags::SET)
        }
    }

    /// A frozenset.
    ///
    /// # Safety
    /// `obj` is an exact frozenset, held by the stack or by the caller of `encode`.
    pub unsafe fn frozenset(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: an exact frozenset, held.
        unsafe {
            let shared = self.exact || !referenced_at_most(obj, limit);
            match if shared { self.construct(obj, true)? } else { Begun::First } {
                Begun::Before => Ok(()),
                Begun::First => self.elements(obj, tags::FROZENSET),
                Begun::Again => {
                    writer::tag_varint(self.out, tags::FROZENSET, ffi::PySet_Size(obj) as usize)?;
                    self.one_by_one(obj)
                }
            }
        }
    }

    unsafe fn elements(&mut self, obj: *mut PyObject, tag: u8) -> Raise<()> {
        // SAFETY: an exact set or frozenset, held; its elements are held by the tuple, then by the stack.
        unsafe {
            let elements = Own::take(ffi::PySequence_Tuple(obj))?;
            let len = ffi::PyTuple_GET_SIZE(elements.ptr()) as usize;
            writer::tag_varint(self.out, tag, len)?;
            let first = (&raw const (*elements.ptr().cast::<ffi::PyTupleObject>()).ob_item).cast();
            // The tuple holds each element once more, as the stack would.
            for (i, &item) in slice::from_raw_parts(first, len).iter().enumerate() {
                if !self.leaf(item, FROM_STACK)? {
                    return self.postpone(slice::from_raw_parts(first, len)[i..].iter().copied());
                }
            }
        }
        Ok(())
    }
}
