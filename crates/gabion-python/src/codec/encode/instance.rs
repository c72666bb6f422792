//! Encoding of ordinary objects: slots and `__dict__`.

use gabion_blocks::prefetch;

use super::encoder::{Encoder, FROM_STACK, IN_PLACE, Restart, WHOLE};
use crate::codec::classes::layout::Layout;
use crate::codec::classes::plan::Attributes;
use crate::codec::classes::{inline, shape};
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Raised, Section, intern_own, is_same_text, referenced_at_most};
use crate::codec::room;
use crate::ffi::{self, PyObject, PyTypeObject};

/// The object in a slot, borrowed, or null.
///
/// # Safety
/// `obj` is a locked instance of the class that has a slot at `offset`.
#[inline(always)]
unsafe fn slot(obj: *mut PyObject, offset: isize) -> *mut PyObject {
    // SAFETY: as the caller promised.
    unsafe { *obj.byte_offset(offset).cast::<*mut PyObject>() }
}

/// What [`Encoder::contents`] found.
enum Contents {
    /// Names and values, without a dict.
    Lying(Vec<Own>, Vec<Own>),
    /// A dict of them.
    In(Own),
    /// A dict of another class, which may say otherwise than its entries do what is in it.
    Told,
}

impl Encoder<'_, '_> {
    #[inline(always)]
    fn object_tag(&mut self, layout: &Layout) -> Raise<()> {
        if layout.id < tags::OBJECT_SHORT_COUNT {
            writer::byte(self.out, tags::OBJECT_SHORT + layout.id as u8)
        } else {
            writer::tag_varint(self.out, tags::OBJECT, layout.id as usize)
        }
    }

    /// An object with slots only.
    ///
    /// # Safety
    /// `obj` is an instance of the layout's class, held by the caller.
    #[inline(always)]
    pub unsafe fn slots(&mut self, obj: *mut PyObject, limit: isize, layout: &Layout) -> Raise<()> {
        // SAFETY: an instance of the layout's class, held; slots are borrowed under its lock, leaves run no code.
        unsafe {
            if limit == WHOLE {
                self.begin_with(obj);
            } else if self.met(obj, limit)? {
                return Ok(());
            }
            Section::hold(obj, || {
                let unset = |&offset: &isize| {
                    let value = slot(obj, offset);
                    // What class it is of decides how it is written: all are asked for before the first is looked at.
                    prefetch(value);
                    value.is_null()
                };
                if layout.offsets.iter().any(unset) {
                    return self.partial(obj, layout);
                }
                self.object_tag(layout)?;
                let offsets = &*layout.offsets;
                let written = self.leaves(offsets.len(), |i| slot(obj, offsets[i]))?;
                if written < offsets.len() {
                    self.postpone(offsets[written..].iter().map(|&offset| slot(obj, offset)))?;
                }
                Ok(())
            })
        }
    }

    /// An object with unset slots.
    ///
    /// # Safety
    /// As [`Encoder::slots`], and `obj` is locked.
    unsafe fn partial(&mut self, obj: *mut PyObject, layout: &Layout) -> Raise<()> {
        writer::tag_varint(self.out, tags::OBJECT_PARTIAL, layout.id as usize)?;
        // SAFETY: as the caller promised.
        unsafe {
            self.slot_bits(obj, layout)?;
            self.postpone(layout.offsets.iter().map(|&offset| slot(obj, offset)).filter(|value| !value.is_null()))
        }
    }

    /// A bit for each slot, set when the slot is, low bits first.
    ///
    /// # Safety
    /// As [`Encoder::partial`].
    unsafe fn slot_bits(&mut self, obj: *mut PyObject, layout: &Layout) -> Raise<()> {
        for offsets in layout.offsets.chunks(8) {
            let bits = offsets.iter().enumerate().fold(0, |bits, (i, &offset)| {
                // SAFETY: as the caller promised.
                bits | u8::from(unsafe { !slot(obj, offset).is_null() }) << i
            });
            writer::byte(self.out, bits)?;
        }
        Ok(())
    }

    /// An object with a `__dict__`.
    ///
    /// # Safety
    /// `obj` is an instance of the class of these attributes, held by the caller.
    pub unsafe fn attributes(&mut self, obj: *mut PyObject, limit: isize, attributes: &Attributes) -> Raise<()> {
        // SAFETY: held; views and slots are borrowed under the object's lock, leaves run no code.
        unsafe {
            if self.met(obj, limit)? {
                return Ok(());
            }
            let base = &*attributes.base;
            let full = Section::hold(obj, || base.offsets.iter().all(|&offset| !slot(obj, offset).is_null()));
            if attributes.inline && full {
                match Section::hold(obj, || self.inline(obj, attributes)) {
                    Inline::Written(result) => return result,
                    // To look names up in the class may run code (the keys of a class's dict may compare in a way of
                    // their own), which may change the object: so not while it is locked.
                    Inline::Unknown(names, indices) => {
                        shape::learn(attributes, self.registry, &names, &indices)?;
                    }
                    Inline::Nothing => {}
                }
                let dict = Section::hold(obj, || {
                    let dict = inline::made_dict(obj);
                    (!dict.is_null()).then(|| Own::share(dict))
                });
                if let Some(dict) = dict {
                    if self.pass_through(&dict)? {
                        return self.by_dict(obj, base, &dict);
                    }
                    if let Some(result) = self.dict_of_known_names(dict.ptr(), attributes) {
                        self.own(&dict)?;
                        return result;
                    }
                }
            }
            match self.contents(obj, attributes)? {
                Contents::Lying(names, values) => self.by_names(obj, attributes, full, (&names, &values), None),
                Contents::In(dict) if self.pass_through(&dict)? => self.by_dict(obj, base, &dict),
                Contents::In(dict) => {
                    let (names, values) = Section::hold(dict.ptr(), || items(dict.ptr()))?;
                    self.by_names(obj, attributes, full, (&names, &values), Some(&dict))
                }
                Contents::Told => self.reduce_after_all(obj),
            }
        }
    }

    /// An object of which the attributes were gathered, from the dict if one is given: in the shape of their names, if
    /// there is one or may be one; `full`: all of its slots are set.
    ///
    /// # Safety
    /// As [`Encoder::attributes`].
    unsafe fn by_names(
        &mut self,
        obj: *mut PyObject,
        attributes: &Attributes,
        full: bool,
        (names, values): (&[Own], &[Own]),
        dict: Option<&Own>,
    ) -> Raise<()> {
        // SAFETY: as the caller promised; names, values and the dict are held there.
        unsafe {
            let is_text = |name: &Own| ffi::PyUnicode_CheckExact(name.ptr()) != 0;
            if full && names.iter().all(is_text) {
                let known = attributes.shapes().find(|layout| is_of_names(layout, names));
                let layout = if known.is_some() {
                    known
                } else {
                    let names = room::list(names.iter().map(|name| intern_own(name.clone())))?;
                    shape::learn(attributes, self.registry, &names, &[])?
                };
                if let Some(layout) = layout {
                    if let Some(dict) = dict {
                        self.own(dict)?;
                    }
                    self.object_tag(layout)?;
                    self.postpone(values.iter().map(Own::ptr))?;
                    return Section::hold(obj, || self.postpone_slots(obj, layout));
                }
            }
            if names.iter().any(|name| is_text(name) && shape::is_hook(name)) {
                return self.reduce_after_all(obj);
            }
            if let Some(dict) = dict {
                self.own(dict)?;
            }
            self.open(obj, &*attributes.base, names, values)
        }
    }

    /// Goes on into a dict of attributes, which is held here and by its instance. It is not noted: where others hold it
    /// as well, the walk may come to what is in it by their ways, too, and no count proves anything. True if it is that
    /// of an object which was written before.
    fn pass_through(&mut self, dict: &Own) -> Raise<bool> {
        // SAFETY: the dict is held by whoever calls.
        if unsafe { referenced_at_most(dict.ptr(), FROM_STACK) } {
            return Ok(false);
        }
        if !self.exact {
            self.restart = Restart::Exact;
            return Err(Raised);
        }
        self.needed_exact = true;
        Ok(self.scratch()?.owned.contains_key(&(dict.ptr() as usize)))
    }

    /// Notes that an object is written with what is in this dict, if others may have the dict as well: they are written
    /// by it.
    fn own(&mut self, dict: &Own) -> Raise<()> {
        // SAFETY: the dict is held by whoever calls.
        if unsafe { referenced_at_most(dict.ptr(), FROM_STACK) } {
            return Ok(());
        }
        room::insert(&mut self.scratch()?.owned, dict.ptr() as usize, dict.clone())
    }

    /// An object whose `__dict__` is that of others as well: the dict is a value, which the next of them refers to. The
    /// first has its own form: few dicts have a second owner, though a variable may hold any.
    #[cold]
    unsafe fn by_dict(&mut self, obj: *mut PyObject, base: &Layout, dict: &Own) -> Raise<()> {
        writer::tag_varint(self.out, tags::OBJECT_BY_DICT, base.id as usize)?;
        // SAFETY: as `attributes`; the dict is held.
        unsafe {
            Section::hold(obj, || {
                self.slot_bits(obj, base)?;
                let slots = base.offsets.iter().map(|&offset| slot(obj, offset)).filter(|value| !value.is_null());
                self.postpone(slots.chain(std::iter::once(dict.ptr())))
            })
        }
    }

    /// An object without slots whose `__dict__` was made, if its set of names is remembered.
    unsafe fn dict_of_known_names(&mut self, dict: *mut PyObject, attributes: &Attributes) -> Option<Raise<()>> {
        // SAFETY: both are held by the caller; the dict's contents are borrowed under its lock, leaves run no code.
        unsafe {
            if ffi::PyDict_CheckExact(dict) == 0 || !(*attributes.base).offsets.is_empty() {
                return None;
            }
            Section::hold(dict, || {
                let layout = attributes.shapes().find(|layout| has_names(dict, &layout.names))?;
                Some(self.object_tag(layout).and_then(|()| self.values(dict)))
            })
        }
    }

    /// The values of a dict that is locked.
    unsafe fn values(&mut self, dict: *mut PyObject) -> Raise<()> {
        let (mut at, mut value) = (0, std::ptr::null_mut());
        // SAFETY: as `dict_of_known_names`.
        unsafe {
            while ffi::PyDict_Next(dict, &raw mut at, std::ptr::null_mut(), &raw mut value) != 0 {
                if !self.leaf(value, IN_PLACE)? {
                    let mut rest = Vec::new();
                    room::push(&mut rest, value)?;
                    while ffi::PyDict_Next(dict, &raw mut at, std::ptr::null_mut(), &raw mut value) != 0 {
                        room::push(&mut rest, value)?;
                    }
                    return self.postpone(rest.into_iter());
                }
            }
        }
        Ok(())
    }

    /// What an object has as attributes. A dict is made for it only where its layout is not known.
    #[inline(never)]
    unsafe fn contents(&self, obj: *mut PyObject, attributes: &Attributes) -> Raise<Contents> {
        // SAFETY: held by the caller; views are read under the object's lock.
        unsafe {
            if attributes.inline {
                let lying = Section::hold(obj, || {
                    let view = inline::view(obj)?;
                    let indices = || (0..view.len).map(|i| view.index(i));
                    let names = room::list(indices().map(|i| Own::share(inline::key(ffi::Py_TYPE(obj), i))));
                    let values = room::list(indices().map(|i| Own::share(view.value(i))));
                    Some(names.and_then(|names| Ok(Contents::Lying(names, values?))))
                });
                if let Some(lying) = lying {
                    return lying;
                }
            }
            let dict = Own::take(ffi::PyObject_GenericGetDict(obj, std::ptr::null_mut()))?;
            Ok(if ffi::PyDict_CheckExact(dict.ptr()) == 0 { Contents::Told } else { Contents::In(dict) })
        }
    }

    /// The slots of an object, all set, onto the stack.
    unsafe fn postpone_slots(&mut self, obj: *mut PyObject, layout: &Layout) -> Raise<()> {
        // SAFETY: as `Encoder::slots`. A slot that another thread emptied meanwhile is written as None.
        unsafe {
            self.postpone(layout.offsets.iter().map(|&offset| {
                let value = slot(obj, offset);
                if value.is_null() { ffi::Py_None() } else { value }
            }))
        }
    }

    /// An object whose attributes lie inline, all slots set, locked.
    #[inline(always)]
    unsafe fn inline(&mut self, obj: *mut PyObject, attributes: &Attributes) -> Inline {
        // SAFETY: as the caller promised; indices come from the view itself or from a layout that equals it.
        unsafe {
            let Some(view) = inline::view(obj) else { return Inline::Nothing };
            let same = |layout: &&Layout| {
                layout.indices.len() == view.len
                    && layout.indices.iter().enumerate().all(|(i, &index)| view.index(i) == index)
                    && layout.names.len() - layout.slots() == view.len
            };
            let Some(layout) = attributes.shapes().find(same) else {
                return unknown(obj, &view).unwrap_or_else(|error| Inline::Written(Err(error)));
            };
            if let Err(error) = self.object_tag(layout) {
                return Inline::Written(Err(error));
            }
            let (offsets, indices) = (&*layout.offsets, &*layout.indices);
            // As in `slots`.
            for &index in indices {
                prefetch(view.value(index));
            }
            match self.leaves(offsets.len(), |i| slot(obj, offsets[i])) {
                Ok(written) if written == offsets.len() => {}
                Ok(written) => {
                    let values = self.postpone(indices.iter().map(|&index| view.value(index)));
                    let slots = offsets[written..].iter().map(|&offset| slot(obj, offset));
                    return Inline::Written(values.and_then(|()| self.postpone(slots)));
                }
                Err(error) => return Inline::Written(Err(error)),
            }
            Inline::Written(match self.leaves(indices.len(), |i| view.value(indices[i])) {
                Ok(written) if written == indices.len() => Ok(()),
                Ok(written) => self.postpone(indices[written..].iter().map(|&index| view.value(index))),
                Err(error) => Err(error),
            })
        }
    }

    /// An object with its attribute names inline.
    unsafe fn open(&mut self, obj: *mut PyObject, base: &Layout, names: &[Own], values: &[Own]) -> Raise<()> {
        writer::tag_varint(self.out, tags::OBJECT_OPEN, base.id as usize)?;
        // SAFETY: as `attributes`; names and values are held here.
        unsafe {
            let slots = Section::hold(obj, || {
                self.slot_bits(obj, base)?;
                let set = base.offsets.iter().map(|&offset| slot(obj, offset)).filter(|value| !value.is_null());
                room::list(set.map(|value| Own::share(value)))
            })?;
            writer::varint(self.out, names.len() as u64)?;
            self.postpone(names.iter().zip(values).flat_map(|(name, value)| [name.ptr(), value.ptr()]))?;
            self.postpone(slots.iter().map(Own::ptr))
        }
    }
}

/// What came of writing an object whose attributes lie in it.
enum Inline {
    Written(Raise<()>),
    /// Nothing yet: these names, and where their values lie, are those of no shape that is known.
    Unknown(Vec<Own>, Vec<u8>),
    /// Nothing: they do not lie in it any more.
    Nothing,
}

/// The attributes that an object has now.
///
/// # Safety
/// A view of the object, which is locked.
#[cold]
unsafe fn unknown(obj: *mut PyObject, view: &inline::View) -> Raise<Inline> {
    // SAFETY: as the caller promised.
    unsafe {
        let class: *mut PyTypeObject = ffi::Py_TYPE(obj);
        let indices = room::list((0..view.len).map(|i| view.index(i)))?;
        let names = room::list(indices.iter().map(|&index| Own::share(inline::key(class, index))))?;
        Ok(Inline::Unknown(names, indices))
    }
}

/// Whether these strings are the attributes of a layout, in this order. Those that were made at run time are others of
/// the same text.
fn is_of_names(layout: &Layout, names: &[Own]) -> bool {
    let own = &layout.names[layout.slots()..];
    own.len() == names.len() && own.iter().zip(names).all(|(a, b)| is_same_text(a, b))
}

/// Whether the keys of a dict that is locked are these strings, in this order.
unsafe fn has_names(dict: *mut PyObject, names: &[Own]) -> bool {
    let (mut at, mut key) = (0, std::ptr::null_mut());
    // SAFETY: an exact dict, held by the caller.
    unsafe {
        ffi::PyDict_Size(dict) as usize == names.len()
            && names.iter().all(|name| {
                ffi::PyDict_Next(dict, &raw mut at, &raw mut key, std::ptr::null_mut()) != 0 && key == name.ptr()
            })
    }
}

/// Keys and values of a dict that is locked.
unsafe fn items(dict: *mut PyObject) -> Raise<(Vec<Own>, Vec<Own>)> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a dict, locked and held by the caller: what it holds lives while it is not changed.
    unsafe {
        while ffi::PyDict_Next(dict, &raw mut at, &raw mut key, &raw mut value) != 0 {
            room::push(&mut names, Own::share(key))?;
            room::push(&mut values, Own::share(value))?;
        }
    }
    Ok((names, values))
}
