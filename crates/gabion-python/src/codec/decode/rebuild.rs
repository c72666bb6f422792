//! Rebuilding what a reducer took apart, as `pickle` does.

use super::amplification::{is_container, is_hashing, is_looking_up};
use super::decoder::Decoder;
use super::frame::{Frame, Rebuild, Stage};
use super::guard::Given;
use super::instance::{each, new_instance};
use crate::codec::classes::global::repr;
use crate::codec::format::reader::damaged;
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise, Raised, attribute_or_none, not_filled, not_rebuilt, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject};

impl<'a, const REFS: bool> Decoder<'a, '_, REFS> {
    /// Gives the object its next part.
    pub fn rebuild(&mut self, mut rebuild: Box<Rebuild<'a>>, value: Own) -> Raise<Option<Own>> {
        match rebuild.stage {
            Stage::Callable => {
                rebuild.callable = Some(value);
                rebuild.stage = Stage::Arguments;
                return self.wait(Frame::Rebuild(rebuild));
            }
            Stage::Arguments if rebuild.tag == tags::NEW_KEYWORDS => {
                rebuild.arguments = Some(value);
                rebuild.stage = Stage::Keywords;
                return self.wait(Frame::Rebuild(rebuild));
            }
            Stage::Arguments => {
                if rebuild.parts & tags::PART_AGAIN != 0 {
                    rebuild.stage = Stage::Again;
                    return self.wait(Frame::Rebuild(rebuild));
                }
                let value = match rebuild.arranged {
                    Some(arranged) => arranged.of(&value)?,
                    None => value,
                };
                let made = self.call(&rebuild, &value, None)?;
                self.constructed(&mut rebuild, made);
            }
            Stage::Keywords => {
                if rebuild.parts & tags::PART_AGAIN != 0 {
                    rebuild.stage = Stage::Again;
                    return self.wait(Frame::Rebuild(rebuild));
                }
                let arguments = rebuild.arguments.take().ok_or_else(|| damaged("no arguments"))?;
                let made = self.call(&rebuild, &arguments, Some(&value))?;
                self.constructed(&mut rebuild, made);
            }
            Stage::Again => self.constructed(&mut rebuild, value),
            Stage::Items => room::push(&mut rebuild.items, value)?,
            Stage::Key => {
                rebuild.kept = Some(value);
                rebuild.stage = Stage::Value;
                return self.wait(Frame::Rebuild(rebuild));
            }
            Stage::Value => {
                let key = rebuild.kept.take().ok_or_else(|| damaged("a missing part"))?;
                self.put(rebuild.object()?, &key, &value)?;
                rebuild.stage = Stage::Key;
            }
            Stage::State if rebuild.parts & tags::PART_SETTER != 0 => {
                rebuild.kept = Some(value);
                rebuild.stage = Stage::Setter;
                return self.wait(Frame::Rebuild(rebuild));
            }
            Stage::State => return self.stated(*rebuild, &value).map(Some),
            Stage::Setter => {
                let state = rebuild.kept.take().ok_or_else(|| damaged("a missing part"))?;
                let object = rebuild.object()?;
                self.maker.guard_setter(&value, object, &state)?;
                // SAFETY: held; a new reference or null with an error.
                unsafe {
                    Own::take(ffi::call(value.ptr(), [object.ptr(), state.ptr()]))
                        .map_err(|Raised| not_filled(object))?;
                }
                return Ok(rebuild.object);
            }
        }
        self.next_part(rebuild)
    }

    /// Gives an object its state, which is the last of its parts.
    fn stated(&mut self, mut rebuild: Rebuild<'a>, state: &Own) -> Raise<Own> {
        let object = rebuild.object()?.clone();
        if let Given::Other(made) = self.maker.guard(&object, state)? {
            self.guard_depth(&made)?;
            self.note(rebuild.place, &made);
            return Ok(made);
        }
        let told = self.set_state(&object, state)?;
        self.guard_depth(&object)?;
        if let Some(dict) = rebuild.unfinished.take()
            && !told
        {
            room::push(&mut self.late_of(dict)?.rebuilt, object.clone())?;
        }
        Ok(object)
    }

    fn constructed(&mut self, rebuild: &mut Rebuild<'a>, made: Own) {
        self.note(rebuild.place, &made);
        rebuild.object = Some(made);
        rebuild.callable = None;
        rebuild.stage = Stage::Items;
    }

    /// Finds out which part comes next, past those that are not there or at their end.
    fn next_part(&mut self, mut rebuild: Box<Rebuild<'a>>) -> Raise<Option<Own>> {
        loop {
            rebuild.stage = match rebuild.stage {
                Stage::Items => {
                    if rebuild.parts & tags::PART_LIST == 0 {
                        Stage::Key
                    } else if self.reader.peek()? == tags::END {
                        self.reader.at += 1;
                        let items = std::mem::take(&mut rebuild.items);
                        // Without items pickle asks for neither method: the object may not have them, or may not be
                        // ready.
                        if !items.is_empty() {
                            self.extend(rebuild.object()?, items)?;
                        }
                        Stage::Key
                    } else if let Some(item) = self.leaf_part()? {
                        room::push(&mut rebuild.items, item)?;
                        Stage::Items
                    } else {
                        break;
                    }
                }
                Stage::Key => {
                    if rebuild.parts & tags::PART_DICT == 0 {
                        Stage::State
                    } else if self.reader.peek()? == tags::END {
                        self.reader.at += 1;
                        Stage::State
                    } else if let Some(key) = self.leaf_part()? {
                        let Some(value) = self.leaf_part()? else {
                            rebuild.kept = Some(key);
                            rebuild.stage = Stage::Value;
                            break;
                        };
                        self.put(rebuild.object()?, &key, &value)?;
                        Stage::Key
                    } else {
                        break;
                    }
                }
                _ if rebuild.parts & tags::PART_STATE == 0 => return Ok(rebuild.object),
                _ => {
                    rebuild.unfinished = self.unfinished()?;
                    break;
                }
            }
        }
        self.wait(Frame::Rebuild(rebuild))
    }

    /// As [`Decoder::leaf`], and not in line: what containers hold is read more often than what reducers gave.
    #[inline(never)]
    fn leaf_part(&mut self) -> Raise<Option<Own>> {
        self.leaf()
    }

    fn call(&mut self, rebuild: &Rebuild<'_>, arguments: &Own, keywords: Option<&Own>) -> Raise<Own> {
        let callable = rebuild.callable.as_ref().ok_or_else(|| damaged("a missing part"))?;
        // SAFETY: held; checked for being a tuple and a dict; a new reference or null with an error.
        unsafe {
            let good = ffi::PyTuple_Check(arguments.ptr()) != 0
                && keywords.is_none_or(|keywords| ffi::PyDict_Check(keywords.ptr()) != 0);
            if !good {
                return Err(damaged("arguments are no tuple"));
            }
            let instead = self.maker.guard_call(callable, arguments, keywords, &mut self.counted)?;
            if REFS && self.maker.registry.is_guarded() {
                if instead.is_some() || is_container(callable)? {
                    self.keys.look_at_all(arguments)?;
                } else if is_looking_up(callable, self.maker.known) {
                    self.keys.look_at_values(arguments)?;
                } else if is_hashing(callable)? {
                    self.keys.check_key(arguments)?;
                }
            }
            let callable = instead.as_ref().unwrap_or(callable);
            if rebuild.tag == tags::REDUCE {
                let keywords = keywords.map_or(std::ptr::null_mut(), Own::ptr);
                let made = Own::take(ffi::PyObject_Call(callable.ptr(), arguments.ptr(), keywords));
                let made = self.maker.guard_made(made.map_err(|Raised| not_rebuilt(callable))?)?;
                self.guard_depth(&made)?;
                return Ok(made);
            }
            if ffi::PyType_Check(callable.ptr()) == 0 {
                // Nothing is damaged: the name that led to the class leads to this since.
                return Err(refuse(&format!(
                    "cannot build an object: the name of its class leads to {} by now; bind it to a class again",
                    repr(callable)
                )));
            }
            self.maker.guard_made(new_instance(callable, arguments, keywords).map_err(|Raised| not_rebuilt(callable))?)
        }
    }

    fn put(&mut self, object: &Own, key: &Own, value: &Own) -> Raise<()> {
        self.maker.guard_items(object)?;
        self.guard_key(key)?;
        // SAFETY: all held over the call.
        let failed = unsafe { ffi::PyObject_SetItem(object.ptr(), key.ptr(), value.ptr()) } < 0;
        if failed { Err(not_filled(object)) } else { Ok(()) }
    }

    fn extend(&self, object: &Own, items: Vec<Own>) -> Raise<()> {
        self.maker.guard_items(object)?;
        self.extend_by(object, items).map_err(|Raised| not_filled(object))
    }

    fn extend_by(&self, object: &Own, items: Vec<Own>) -> Raise<()> {
        // SAFETY: held; every result is a new reference or null with an error.
        unsafe {
            if let Some(extend) = attribute_or_none(object.ptr(), c"extend")? {
                let list = Own::take(ffi::PyList_New(items.len() as isize))?;
                for (i, item) in items.into_iter().enumerate() {
                    ffi::PyList_SET_ITEM(list.ptr(), i as isize, item.into_ptr());
                }
                let extend = self.maker.guard_method(object, c"extend", extend, &list)?;
                Own::take(ffi::PyObject_CallOneArg(extend.ptr(), list.ptr()))?;
                return Ok(());
            }
            let append = Own::take(ffi::PyObject_GetAttr(object.ptr(), self.maker.known.names.append.ptr()))?;
            for item in items {
                let append = self.maker.guard_method(object, c"append", append.clone(), &item)?;
                Own::take(ffi::PyObject_CallOneArg(append.ptr(), item.ptr()))?;
            }
        }
        Ok(())
    }

    /// `__setstate__`, or the rules that pickle has without one: a dict for `__dict__`, a pair of dicts for `__dict__`
    /// and the rest. True if it was `__setstate__`.
    pub fn set_state(&mut self, object: &Own, state: &Own) -> Raise<bool> {
        self.set_state_by(object, state).map_err(|Raised| not_filled(object))
    }

    fn set_state_by(&mut self, object: &Own, state: &Own) -> Raise<bool> {
        // SAFETY: held; every result is a new reference or null with an error, items are borrowed from a held tuple.
        unsafe {
            if let Some(set) = attribute_or_none(object.ptr(), c"__setstate__")? {
                let set = self.maker.guard_method(object, c"__setstate__", set, state)?;
                Own::take(ffi::PyObject_CallOneArg(set.ptr(), state.ptr()))?;
                return Ok(true);
            }
            let pair = ffi::PyTuple_Check(state.ptr()) != 0 && ffi::PyTuple_Size(state.ptr()) == 2;
            let (dict, slots) = if pair {
                (ffi::PyTuple_GetItem(state.ptr(), 0), ffi::PyTuple_GetItem(state.ptr(), 1))
            } else {
                (state.ptr(), ffi::Py_None())
            };
            if dict != ffi::Py_None() {
                self.set_attributes(object, dict)?;
            }
            if slots != ffi::Py_None() {
                each(slots, |key, value| ffi::PyObject_SetAttr(object.ptr(), key, value))?;
            }
        }
        Ok(false)
    }

    /// The part of a state that goes into `__dict__`, which is not asked for where there is nothing to go there.
    ///
    /// # Safety
    /// A live object, held by the caller.
    pub unsafe fn set_attributes(&mut self, object: &Own, state: *mut PyObject) -> Raise<()> {
        // SAFETY: held by the caller; a new reference or null with an error.
        unsafe {
            match ffi::PyObject_IsTrue(state) {
                0 => Ok(()),
                1.. => {
                    let target = Own::take(ffi::PyObject_GetAttr(object.ptr(), self.maker.known.names.dict.ptr()))?;
                    self.guard_keys(state)?;
                    each(state, |key, value| ffi::PyObject_SetItem(target.ptr(), key, value))
                }
                _ => Err(Raised),
            }
        }
    }
}
