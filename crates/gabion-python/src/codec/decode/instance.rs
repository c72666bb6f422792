//! Making ordinary objects: allocated as `object.__new__` does, then filled without `__init__`, as pickle does.

use super::decoder::Decoder;
use super::frame::{Frame, Late, PartialObject, Place, State};
use super::guard::Given;
use crate::codec::classes::known::Known;
use crate::codec::classes::layout::{Entry, Layout};
use crate::codec::classes::{inline, plan};
use crate::codec::format::reader::damaged;
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise, Raised, in_class, intern_own, not_rebuilt};
use crate::codec::room;
use crate::ffi::{self, PyObject, PyTypeObject};

impl<'a, const REFS: bool> Decoder<'a, '_, REFS> {
    /// How instances are filled; `None` where the class has a say in that, and where an error is set:
    /// [`Decoder::called`] tells which.
    #[inline(always)]
    fn layout(&self, id: u32) -> Option<&'a Layout> {
        match self.maker.registry.entry(id) {
            Some(Entry::Object(layout)) if layout.found.is_as_seen() => Some(layout),
            _ => self.layout_anew(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn layout_anew(&self, id: u32) -> Option<&'a Layout> {
        match self.maker.entry(id, self.reader.whole()) {
            Ok(Some(Entry::Object(layout))) => Some(layout),
            Ok(_) | Err(Raised) => None,
        }
    }

    /// An object of a layout.
    #[inline(always)]
    pub fn object(&mut self, id: u32, place: Place) -> Raise<Option<Own>> {
        let Some(layout) = self.layout(id) else { return self.stated_object(id, place) };
        let object = allocate(layout, self.maker.known)?;
        self.note(place, &object);
        self.fill_object(object, layout, 0)
    }

    /// Reads values into the object until one is not a leaf, or all are there.
    #[inline(always)]
    fn fill_object(&mut self, object: Own, layout: &'a Layout, mut next: usize) -> Raise<Option<Own>> {
        while next < layout.slots() {
            let Some(value) = self.leaf()? else { return self.wait(Frame::Object { object, layout, next }) };
            put_slot(&object, layout.offsets[next], value);
            next += 1;
        }
        while next < layout.len() {
            let Some(value) = self.leaf()? else { return self.wait(Frame::Object { object, layout, next }) };
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
        let (object, layout, state) = match self.layout(id) {
            Some(layout) => (allocate(layout, self.maker.known)?, layout, None),
            None => self.called(id)?,
        };
        self.note(place, &object);
        let end = layout.stored_slots();
        let bits = room::list(self.reader.take(end.div_ceil(8))?.iter().copied())?;
        let open = if tag == tags::OBJECT_OPEN { self.reader.varint()? } else { 0 };
        self.reader.claim(open.saturating_mul(2))?;
        let by_dict = tag == tags::OBJECT_BY_DICT;
        self.fill_partial(room::boxed(PartialObject {
            object,
            layout,
            next: 0,
            end,
            bits,
            open,
            name: None,
            by_dict,
            state,
        })?)
    }

    /// An object with all of its fields, of a class that takes them as its state.
    #[cold]
    #[inline(never)]
    fn stated_object(&mut self, id: u32, place: Place) -> Raise<Option<Own>> {
        let (object, layout, state) = self.called(id)?;
        self.note(place, &object);
        let (end, bits) = (layout.len(), room::list((0..layout.len().div_ceil(8)).map(|_| u8::MAX))?);
        self.fill_partial(room::boxed(PartialObject {
            object,
            layout,
            next: 0,
            end,
            bits,
            open: 0,
            name: None,
            by_dict: false,
            state,
        })?)
    }

    /// A new instance of a class that takes its fields as its state, or has changed, of which there is nothing yet,
    /// where [`Decoder::layout`] found no other way.
    #[cold]
    fn called(&self, id: u32) -> Raise<(Own, &'a Layout, Option<State>)> {
        // SAFETY: attached, as whoever decodes is.
        if !unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Err(Raised);
        }
        match self.maker.entry(id, self.reader.whole())? {
            Some(Entry::Stated(layout)) => {
                let object = if layout.changes.as_ref().is_some_and(|changes| changes.quiet) {
                    allocate(layout, self.maker.known)?
                } else {
                    let made = new_instance(&layout.class, &self.maker.known.no_arguments, None);
                    made.map_err(|Raised| not_rebuilt(&layout.class))?
                };
                Ok((object, layout, Some(State::default())))
            }
            // Defined anew once more, just now.
            Some(Entry::Object(layout)) => Ok((allocate(layout, self.maker.known)?, layout, None)),
            _ => Err(damaged("an unknown class")),
        }
    }

    fn fill_partial(&mut self, mut partial: Box<PartialObject<'a>>) -> Raise<Option<Own>> {
        loop {
            while partial.next < partial.end && partial.bits[partial.next / 8] >> (partial.next % 8) & 1 == 0 {
                partial.next += 1;
            }
            if partial.next >= partial.end && partial.open == 0 {
                return if partial.by_dict {
                    self.dict_of_attributes(partial)
                } else {
                    self.complete_partial(*partial).map(Some)
                };
            }
            let Some(value) = self.leaf()? else { return self.wait(Frame::PartialObject(partial)) };
            self.put_partial(&mut partial, value)?;
        }
    }

    /// An unusual object, all of which was read.
    fn complete_partial(&mut self, mut partial: PartialObject<'a>) -> Raise<Own> {
        if let Some(state) = partial.state.take() {
            if let Some(changes) = &partial.layout.changes {
                self.fill_changed(&partial.object, changes, state)?;
            } else if let Some(state) = whole_state(partial.layout, &state, self.maker.known)? {
                if let Given::Other(made) = self.maker.guard(&partial.object, &state)? {
                    return Ok(made);
                }
                self.set_state(&partial.object, &state)?;
            }
        }
        Ok(partial.object)
    }

    /// Reads the dict that an object has its attributes of: a new one, or a reference to one that was read before, or
    /// that is being read. The object waits for the rest of such a one, and is as good as whole meanwhile: code that
    /// runs by then sees what there is.
    fn dict_of_attributes(&mut self, partial: Box<PartialObject<'a>>) -> Raise<Option<Own>> {
        let (at, tag) = (self.reader.at, self.reader.peek()?);
        if tags::is_dict(tag) {
            return self.wait(Frame::PartialObject(partial));
        }
        if tag != tags::REF {
            return Err(damaged("a dict of attributes is expected"));
        }
        self.reader.at += 1;
        let (target, dict) = self.reference(at)?;
        let len = self.entries_at(target)?.ok_or_else(|| damaged("a dict of attributes is expected"))?;
        if has_entries(&dict, len) {
            return self.complete_by(*partial, &dict).map(Some);
        }
        let object = partial.object.clone();
        if partial.state.is_none() {
            // SAFETY: the dict is held over the call.
            unsafe { self.guard_keys(dict.ptr())? };
            update(&object, &dict)?;
        }
        room::push(&mut self.late_of(dict)?.objects, *partial)?;
        Ok(Some(object))
    }

    /// What waits for the rest of a dict.
    pub fn late_of(&mut self, dict: Own) -> Raise<&mut Late<'a>> {
        let (late, key) = (self.late.get_or_insert_default(), dict.ptr() as usize);
        late.try_reserve(1).map_err(|_| room::no_memory())?;
        Ok(late.entry(key).or_insert_with(|| Late::of(dict)))
    }

    /// How many entries the dict has that begins there, when they are read; `None` where something else does.
    fn entries_at(&self, target: usize) -> Raise<Option<usize>> {
        let mut reader = self.reader.back_at(target);
        Ok(match reader.byte()? {
            tag @ tags::DICT_SHORT..=tags::DICT_SHORT_LAST => Some((tag - tags::DICT_SHORT) as usize),
            tags::DICT => Some(reader.varint()?),
            _ => None,
        })
    }

    /// The dict that the next value is, or the first of two in a tuple, where that is a dict of which not all is read.
    pub fn unfinished(&self) -> Raise<Option<Own>> {
        const OF_TWO: u8 = tags::TUPLE_SHORT + 2;
        if !REFS {
            return Ok(None);
        }
        let mut at = self.reader.at;
        let mut reader = self.reader.back_at(at);
        let mut tag = reader.byte()?;
        if tag == OF_TWO || (matches!(tag, tags::TUPLE | tags::TUPLE_SHARED) && reader.varint()? == 2) {
            at = reader.at;
            tag = reader.byte()?;
        }
        if tag != tags::REF {
            return Ok(None);
        }
        let (target, found) = self.referred(at, reader.varint()?)?;
        Ok(self.entries_at(target)?.and_then(|len| (!has_entries(&found, len)).then_some(found)))
    }

    /// An object that has its attributes of a dict, all of which was read.
    fn complete_by(&mut self, mut partial: PartialObject<'a>, dict: &Own) -> Raise<Own> {
        // SAFETY: the dict is held by the caller.
        unsafe { self.guard_keys(dict.ptr())? };
        if let Some(state) = &mut partial.state {
            // SAFETY: all are held.
            unsafe {
                each(dict.ptr(), |key, value| {
                    let added = room::push(&mut state.attributes, (Own::share(key), Own::share(value)));
                    if added.is_ok() { 0 } else { -1 }
                })?;
            }
        } else {
            update(&partial.object, dict)?;
        }
        self.complete_partial(partial)
    }

    /// Looks at the keys of a dict, if it is one, that are to be hashed once more for another object.
    ///
    /// # Errors
    /// As [`Decoder::guard_key`].
    ///
    /// # Safety
    /// A live object.
    pub unsafe fn guard_keys(&mut self, dict: *mut PyObject) -> Raise<()> {
        // SAFETY: live by the caller's word; a new reference or null with an error; keys are held by the list.
        unsafe {
            if !REFS || !self.maker.registry.is_guarded() || ffi::PyDict_Check(dict) == 0 {
                return Ok(());
            }
            let keys = Own::take(ffi::PyDict_Keys(dict))?;
            (0..ffi::PyList_Size(keys.ptr()))
                .try_for_each(|i| self.guard_key(&Own::share(ffi::PyList_GetItem(keys.ptr(), i))))
        }
    }

    /// Completes the objects that waited for a dict which is whole now.
    #[cold]
    #[inline(never)]
    pub fn complete_those_of(&mut self, dict: &Own) -> Raise<()> {
        let Some(late) = self.late.as_mut().and_then(|late| late.remove(&(dict.ptr() as usize))) else { return Ok(()) };
        self.complete_all(late)
    }

    fn complete_all(&mut self, late: Late<'a>) -> Raise<()> {
        late.objects.into_iter().try_for_each(|partial| self.complete_by(partial, &late.dict).map(drop))?;
        // SAFETY: held by `late`.
        late.rebuilt.iter().try_for_each(|object| unsafe { self.set_attributes(object, late.dict.ptr()) })
    }

    /// Gives an unusual object its next value. That may be the name of an attribute, which is hashed as a key.
    fn put_partial(&mut self, partial: &mut PartialObject<'a>, value: Own) -> Raise<()> {
        if partial.next >= partial.end && partial.name.is_none() {
            self.guard_key(&value)?;
        }
        put_partial(partial, value)
    }

    /// Completes the objects that still wait at the end.
    pub fn complete_late(&mut self) -> Raise<()> {
        let Some(late) = self.late.take() else { return Ok(()) };
        late.into_values().try_for_each(|late| self.complete_all(late))
    }

    /// Gives an unusual object the value that it waited for, and reads on.
    pub fn resume_partial(&mut self, mut partial: Box<PartialObject<'a>>, value: Own) -> Raise<Option<Own>> {
        if partial.next >= partial.end && partial.open == 0 {
            // The dict, which was begun as one.
            return self.complete_by(*partial, &value).map(Some);
        }
        self.put_partial(&mut partial, value)?;
        self.fill_partial(partial)
    }
}

/// Whether a dict has that many entries. One with keys that became equal when they were built never gets them.
fn has_entries(dict: &Own, len: usize) -> bool {
    // SAFETY: held, and a dict: one was read where a reference leads.
    unsafe { ffi::PyDict_Size(dict.ptr()) as usize >= len }
}

/// Gives an object, of a class that is not told, the attributes that are in a dict.
fn update(object: &Own, dict: &Own) -> Raise<()> {
    // SAFETY: all are held; without a dict of its own there is an error.
    unsafe {
        let own = Own::take(ffi::PyObject_GenericGetDict(object.ptr(), std::ptr::null_mut()))?;
        each(dict.ptr(), |key, value| ffi::PyDict_SetItem(own.ptr(), key, value))
    }
}

fn put_partial(partial: &mut PartialObject<'_>, value: Own) -> Raise<()> {
    let layout = partial.layout;
    if let Some(state) = &mut partial.state {
        if partial.next < partial.end {
            let fields = if partial.next < layout.stored_slots() { &mut state.slots } else { &mut state.attributes };
            room::push(fields, (layout.names[partial.next].clone(), value))?;
            partial.next += 1;
        } else if let Some(name) = partial.name.take() {
            room::push(&mut state.attributes, (name, value))?;
            partial.open -= 1;
        } else {
            partial.name = Some(value);
        }
    } else if let Some(&offset) = layout.offsets.get(partial.next) {
        put_slot(&partial.object, offset, value);
        partial.next += 1;
    } else if partial.next < partial.end {
        put_attribute(&partial.object, layout, partial.next, value)?;
        partial.next += 1;
    } else if let Some(name) = partial.name.take() {
        put_in_dict(&partial.object, name, &value)?;
        partial.open -= 1;
    } else {
        partial.name = Some(value);
    }
    Ok(())
}

/// Calls `set` with each pair of a state's dict, keys interned. What is no dict is a `TypeError`.
///
/// # Safety
/// A live object, held by the caller.
pub unsafe fn each(dict: *mut PyObject, mut set: impl FnMut(*mut PyObject, *mut PyObject) -> i32) -> Raise<()> {
    // SAFETY: held by the caller; the list of items holds the pairs while code runs.
    unsafe {
        if ffi::PyDict_Check(dict) == 0 {
            // Whoever fills the object says of which class it is.
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"its state is neither a dict nor a pair of dicts, and the class has no __setstate__".as_ptr(),
            );
            return Err(Raised);
        }
        let items = Own::take(ffi::PyDict_Items(dict))?;
        for i in 0..ffi::PyList_Size(items.ptr()) {
            let pair = ffi::PyList_GetItem(items.ptr(), i);
            let key = intern_own(Own::share(ffi::PyTuple_GetItem(pair, 0)));
            if set(key.ptr(), ffi::PyTuple_GetItem(pair, 1)) < 0 {
                return Err(Raised);
            }
        }
    }
    Ok(())
}

/// The state that pickle stores of an object with these fields; `None` where it has none, and its class is not told.
fn whole_state(layout: &Layout, state: &State, known: &Known) -> Raise<Option<Own>> {
    let dict = |fields: &[(Own, Own)]| {
        // SAFETY: a new reference or null with an error; names and values are held.
        unsafe {
            let dict = Own::take(ffi::PyDict_New())?;
            for (name, value) in fields {
                if ffi::PyDict_SetItem(dict.ptr(), name.ptr(), value.ptr()) < 0 {
                    return Err(Raised);
                }
            }
            Ok(dict)
        }
    };
    // SAFETY: new references or null with an error; all are held.
    unsafe {
        // Without the method, pickle would refuse a list.
        let hook = || in_class(layout.class.ptr().cast(), known.names.setstate.ptr()).is_some();
        if layout.listed && state.slots.len() == layout.len() && hook() {
            let list = Own::take(ffi::PyList_New(0))?;
            for (_, value) in &state.slots {
                if ffi::PyList_Append(list.ptr(), value.ptr()) < 0 {
                    return Err(Raised);
                }
            }
            return Ok(Some(list));
        }
        let attributes = if state.attributes.is_empty() { None } else { Some(dict(&state.attributes)?) };
        if state.slots.is_empty() {
            return Ok(attributes);
        }
        let (first, slots) = (attributes.as_ref().map_or(ffi::Py_None(), Own::ptr), dict(&state.slots)?);
        Own::take(ffi::PyTuple_Pack(2, first, slots.ptr())).map(Some)
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
            let made = Own::take(ffi::call_new(new, class, known.no_arguments.ptr(), std::ptr::null_mut()));
            return made.map_err(|Raised| not_rebuilt(&layout.class));
        }
        let _ = known;
        Own::take(ffi::PyType_GenericAlloc(class, 0))
    }
}

#[inline(always)]
pub fn put_slot(object: &Own, offset: isize, value: Own) {
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

/// A new instance, as the class's own `__new__` makes it: perhaps one of another class.
pub fn new_instance(class: &Own, arguments: &Own, keywords: Option<&Own>) -> Raise<Own> {
    // SAFETY: a class, a tuple, and a dict or null, all held by the caller; a new reference or null with an error.
    unsafe {
        let Some(new) = (*class.ptr().cast::<PyTypeObject>()).tp_new else {
            return Err(damaged("a class that cannot be instantiated"));
        };
        let keywords = keywords.map_or(std::ptr::null_mut(), Own::ptr);
        Own::take(ffi::call_new(new, class.ptr().cast(), arguments.ptr(), keywords))
    }
}

/// Sets an attribute in the object's dict, past `__setattr__` and properties.
pub fn put_in_dict(object: &Own, name: Own, value: &Own) -> Raise<()> {
    // SAFETY: held; the class has a dict (see its plan); a new reference or null with an error.
    unsafe {
        let name = intern_own(name);
        let dict = Own::take(ffi::PyObject_GenericGetDict(object.ptr(), std::ptr::null_mut()))?;
        if ffi::PyDict_SetItem(dict.ptr(), name.ptr(), value.ptr()) < 0 { Err(Raised) } else { Ok(()) }
    }
}
