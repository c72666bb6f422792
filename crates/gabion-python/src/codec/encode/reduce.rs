//! Encoding through `__reduce_ex__`, for whatever has no form of its own.

use super::encoder::{Begun, Encoder, Restart};
use super::made::ONE_OWNER;
use super::place;
use super::scratch::Todo;
use crate::codec::classes::global;
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Raised, attribute, not_reduced, referenced_at_most, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject};

/// The protocol that reducers are asked for.
const PROTOCOL: i32 = 5;

impl Encoder<'_, '_> {
    /// An object through its reducer.
    ///
    /// # Safety
    /// `obj` is held by the stack or by the caller of `encode`.
    pub unsafe fn reduce(&mut self, obj: *mut PyObject, limit: isize, user_code: bool) -> Raise<()> {
        if user_code && !self.exact {
            // What the code returns may be objects that were passed by without a note, because nobody else held them.
            self.restart = Restart::Exact;
            return Err(Raised);
        }
        self.needed_exact |= user_code;
        // SAFETY: as the caller promised.
        unsafe {
            if (self.exact || !crate::codec::object::referenced_at_most(obj, limit))
                && self.construct(obj, true)? == Begun::Before
            {
                return Ok(());
            }
            self.reduce_noted(obj)
        }
    }

    /// As [`Encoder::reduce`], for an object that was noted as one that begins here: the hooks of pickling lie in its
    /// `__dict__`.
    ///
    /// # Safety
    /// As [`Encoder::reduce`].
    #[cold]
    pub unsafe fn reduce_after_all(&mut self, obj: *mut PyObject) -> Raise<()> {
        if !self.exact {
            self.restart = Restart::Exact;
            return Err(Raised);
        }
        self.needed_exact = true;
        // SAFETY: as the caller promised.
        unsafe {
            match self.construct_after_all(obj)? {
                Begun::Before => Ok(()),
                Begun::First | Begun::Again => self.reduce_noted(obj),
            }
        }
    }

    /// As [`Encoder::reduce`], for an object that was noted already where it had to be.
    ///
    /// # Safety
    /// As [`Encoder::reduce`].
    pub unsafe fn reduce_noted(&mut self, obj: *mut PyObject) -> Raise<()> {
        self.check_length()?;
        // SAFETY: held by the caller.
        unsafe {
            let parts = self.ask(obj)?;
            if ffi::PyUnicode_Check(parts.ptr()) != 0 {
                let known = self
                    .registry
                    .global(obj)
                    .filter(|entry| entry.is_found(|found| found.leads_here_from(parts.ptr())));
                let entry = if let Some(entry) = known {
                    entry
                } else {
                    let found = global::check_name(self.known, obj, parts.ptr())?;
                    self.registry.add_global(&Own::share(obj), found)
                };
                let crate::codec::classes::layout::Entry::Global { id, .. } = entry else { return Err(Raised) };
                writer::tag_varint(self.out, tags::GLOBAL, *id as usize)?;
                return Ok(());
            }
            let len = if ffi::PyTuple_Check(parts.ptr()) != 0 { ffi::PyTuple_Size(parts.ptr()) } else { 0 };
            if !(2..=6).contains(&len) {
                return Err(refuse("a reducer must return a string or a tuple of two to six items"));
            }
            let part = |i: isize| {
                let item = if i < len { ffi::PyTuple_GetItem(parts.ptr(), i) } else { ffi::Py_None() };
                (item != ffi::Py_None()).then(|| Own::share(item))
            };
            let (Some(callable), Some(arguments)) = (part(0), part(1)) else {
                return Err(refuse("a reducer must return a callable and a tuple of arguments"));
            };
            if ffi::PyCallable_Check(callable.ptr()) == 0 || ffi::PyTuple_Check(arguments.ptr()) == 0 {
                return Err(refuse("a reducer must return a callable and a tuple of arguments"));
            }
            if self.exact && referenced_at_most(parts.ptr(), ONE_OWNER) {
                self.look_for_made(obj, [Some(&arguments), part(2).as_ref()])?;
            }
            let rest = Rest { state: part(2), items: part(3), pairs: part(4), setter: part(5) };
            drop(parts);
            let start = self.out.len();
            writer::byte(self.out, tags::REDUCE)?;
            self.rest(rest)?;
            self.callable(obj, start, callable, &arguments)
        }
    }

    /// What the reducer returns.
    unsafe fn ask(&mut self, obj: *mut PyObject) -> Raise<Own> {
        // SAFETY: held by the caller; new references or null with an error.
        unsafe {
            let reduced = if let Some(reducer) = self.known.reducer(ffi::Py_TYPE(obj).cast())? {
                Own::take(ffi::PyObject_CallOneArg(reducer.ptr(), obj))
            } else if let Some(parts) = self.ask_flag(obj)? {
                Ok(parts)
            } else {
                let name = &self.known.names.reduce_ex;
                let method = Own::take(ffi::PyObject_GetAttr(obj, name.ptr()))?;
                let protocol = Own::take(ffi::PyLong_FromLong(PROTOCOL.into()))?;
                Own::take(ffi::PyObject_CallOneArg(method.ptr(), protocol.ptr()))
            };
            let inside = || place::inside(self.py, self.registry, self.whole, obj);
            reduced.map_err(|Raised| not_reduced(self.py, obj, inside))
        }
    }

    /// What Python's own reducer of flags returns from 3.11.4 on, for a flag whose class has an older one: that needs
    /// functions which no file may ask for.
    unsafe fn ask_flag(&mut self, obj: *mut PyObject) -> Raise<Option<Own>> {
        let (old, new) = (&self.known.flag_reduce_ex, &self.known.enum_reduce_ex);
        // SAFETY: held by the caller, and its class with it; tuples just made, whose items are new references.
        unsafe {
            let class = ffi::Py_TYPE(obj).cast();
            let meta = self.known.enum_meta.ptr().cast();
            if old.ptr() == new.ptr()
                || ffi::PyType_IsSubtype(ffi::Py_TYPE(class), meta) == 0
                || attribute(class, c"__reduce_ex__")?.ptr() != old.ptr()
            {
                return Ok(None);
            }
            let value = attribute(obj, c"_value_")?;
            let (parts, arguments) = (Own::take(ffi::PyTuple_New(2))?, Own::take(ffi::PyTuple_New(1))?);
            ffi::PyTuple_SetItem(arguments.ptr(), 0, value.into_ptr());
            ffi::PyTuple_SetItem(parts.ptr(), 0, Own::share(class).into_ptr());
            ffi::PyTuple_SetItem(parts.ptr(), 1, arguments.into_ptr());
            Ok(Some(parts))
        }
    }

    /// Puts everything that follows the arguments onto the stack, and writes which parts there are.
    unsafe fn rest(&mut self, rest: Rest) -> Raise<()> {
        let mut bits = 0;
        let todo = &mut self.scratch()?.todo;
        if let Some(setter) = rest.setter
            && rest.state.is_some()
        {
            bits |= tags::PART_SETTER;
            room::push(todo, Todo::Value(setter))?;
        }
        if let Some(state) = rest.state {
            bits |= tags::PART_STATE;
            room::push(todo, Todo::Value(state))?;
        }
        // SAFETY: the parts are held.
        let iterator = |part: &Own| unsafe { Own::take(ffi::PyObject_GetIter(part.ptr())) };
        if let Some(pairs) = rest.pairs {
            bits |= tags::PART_DICT;
            room::push(todo, Todo::Byte(tags::END))?;
            room::push(todo, Todo::Pairs(iterator(&pairs)?))?;
        }
        if let Some(items) = rest.items {
            bits |= tags::PART_LIST;
            room::push(todo, Todo::Byte(tags::END))?;
            room::push(todo, Todo::Items(iterator(&items)?))?;
        }
        writer::byte(self.out, bits)?;
        Ok(())
    }

    /// Puts the callable and its arguments onto the stack. `construct` noted the object below them: its note is moved
    /// above what follows the arguments, so that it takes effect as soon as they are written.
    unsafe fn callable(&mut self, obj: *mut PyObject, start: usize, callable: Own, arguments: &Own) -> Raise<()> {
        // SAFETY: everything is held.
        unsafe {
            self.raise_note(obj)?;
            let args = |from: isize| Own::take(ffi::PyTuple_GetSlice(arguments.ptr(), from, isize::MAX));
            let len = ffi::PyTuple_Size(arguments.ptr());
            let first = || Own::share(ffi::PyTuple_GetItem(arguments.ptr(), 0));
            if callable.ptr() == self.known.new_obj.ptr() && len >= 1 {
                self.same_class(obj, ffi::PyTuple_GetItem(arguments.ptr(), 0))?;
                self.out[start] = tags::NEW;
                let (class, rest) = (first(), args(1)?);
                self.next([Todo::Value(rest), Todo::Value(class)])?;
            } else if callable.ptr() == self.known.new_obj_ex.ptr() && len == 3 {
                self.same_class(obj, ffi::PyTuple_GetItem(arguments.ptr(), 0))?;
                self.out[start] = tags::NEW_KEYWORDS;
                let positional = Own::share(ffi::PyTuple_GetItem(arguments.ptr(), 1));
                let keywords = Own::share(ffi::PyTuple_GetItem(arguments.ptr(), 2));
                let class = first();
                self.next([Todo::Value(keywords), Todo::Value(positional), Todo::Value(class)])?;
            } else {
                self.next([Todo::Value(arguments.clone()), Todo::Value(callable)])?;
            }
        }
        Ok(())
    }

    /// Puts what is to be written next onto the stack, the first of it last.
    fn next<const N: usize>(&mut self, entries: [Todo; N]) -> Raise<()> {
        let todo = &mut self.scratch()?.todo;
        entries.into_iter().try_for_each(|entry| room::push(todo, entry))
    }

    /// Moves the note that `construct` put onto the stack for this object to the top.
    fn raise_note(&mut self, obj: *mut PyObject) -> Raise<()> {
        let todo = &mut self.scratch()?.todo;
        // At most six entries were pushed since: the parts that follow the arguments.
        let lowest = todo.len().saturating_sub(8);
        let found =
            todo[lowest..].iter().rposition(|todo| matches!(todo, Todo::Complete(held, _) if held.ptr() == obj));
        if let Some(index) = found {
            todo[lowest + index..].rotate_left(1);
        }
        Ok(())
    }

    /// Pickle refuses a reducer that makes an object of another class than the one it reduces.
    unsafe fn same_class(&self, obj: *mut PyObject, class: *mut PyObject) -> Raise<()> {
        // SAFETY: held by the caller.
        unsafe {
            let own = Own::take(ffi::PyObject_GetAttr(obj, self.known.names.class.ptr()))?;
            if own.ptr() != class {
                return Err(refuse("the class in the reducer's arguments is not the object's class"));
            }
        }
        Ok(())
    }

    /// Writes a reducer's next items: leaves at once, until one is none; then it comes back for the rest.
    ///
    /// # Safety
    /// An iterator.
    pub unsafe fn next_items(&mut self, iterator: Own) -> Raise<()> {
        let mut taken = 0_usize;
        loop {
            if taken.is_multiple_of(ITEMS_UNCHECKED) {
                self.check_iterated()?;
            }
            taken = taken.wrapping_add(1);
            // SAFETY: held; a new reference, or null with or without an error.
            unsafe {
                let item = ffi::PyIter_Next(iterator.ptr());
                if item.is_null() {
                    return if ffi::PyErr_Occurred().is_null() { Ok(()) } else { Err(Raised) };
                }
                let item = Own::take(item)?;
                if !self.stacked_leaf(&item)? {
                    return self.next([Todo::Items(iterator), Todo::Value(item)]);
                }
            }
        }
    }

    /// Writes a reducer's next pairs, as [`Encoder::next_items`] does items.
    ///
    /// # Safety
    /// An iterator.
    pub unsafe fn next_pairs(&mut self, iterator: Own) -> Raise<()> {
        let mut taken = 0_usize;
        loop {
            if taken.is_multiple_of(ITEMS_UNCHECKED) {
                self.check_iterated()?;
            }
            taken = taken.wrapping_add(1);
            // SAFETY: as in `next_items`; a pair's parts are shared before the pair is let go, as its tuple may be the
            // iterator's, to be filled anew.
            unsafe {
                let pair = ffi::PyIter_Next(iterator.ptr());
                if pair.is_null() {
                    return if ffi::PyErr_Occurred().is_null() { Ok(()) } else { Err(Raised) };
                }
                let pair = Own::take(pair)?;
                if ffi::PyTuple_Check(pair.ptr()) == 0 || ffi::PyTuple_Size(pair.ptr()) != 2 {
                    return Err(refuse("a reducer's dict items must be pairs"));
                }
                let key = Own::share(ffi::PyTuple_GetItem(pair.ptr(), 0));
                let value = Own::share(ffi::PyTuple_GetItem(pair.ptr(), 1));
                drop(pair);
                if !self.stacked_leaf(&key)? {
                    return self.next([Todo::Pairs(iterator), Todo::Value(value), Todo::Value(key)]);
                }
                if !self.stacked_leaf(&value)? {
                    return self.next([Todo::Pairs(iterator), Todo::Value(value)]);
                }
            }
        }
    }
}

/// How many leaves are taken out of an iterator from one look at the length to the next.
const ITEMS_UNCHECKED: usize = 16;

/// What may follow the callable and its arguments.
struct Rest {
    state: Option<Own>,
    items: Option<Own>,
    pairs: Option<Own>,
    setter: Option<Own>,
}
