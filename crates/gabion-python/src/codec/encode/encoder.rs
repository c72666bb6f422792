//! Encoding: a walk with its own stack, so that depth is bounded by memory only.
//!
//! A container writes its values in order. As long as they are leaves they are written in place, straight from the
//! container under its lock. At the first that is not, the rest are taken as strong references onto the stack, last
//! first, and the container is left: a value on the stack needs nothing of its parent any more.
//!
//! # Which objects are noted
//! An object that is met a second time becomes a reference to where it began, so its place has to be noted when it is
//! met first. Of most objects the count of references proves that there is no second time. The walk comes to an object
//! once for each reference that the graph has to it. Of these it knows one, its owner's, and those that it has added
//! itself: together the `limit`. *If there are no more references than the limit, no other way leads to the object, and
//! it was not met before:* it is written without a note, or a look at the [`Memo`].
//!
//! | who asks | `limit` | whose references these are |
//! |---|---|---|
//! | `leaves`, and `leaf` in `pairs` and `values`: read in the owner | [`IN_PLACE`], 1 | the owner's |
//! | `drain`, of a `Todo::Value` | [`FROM_STACK`], 2 | the owner's and the stack's |
//! | `elements`, of a set | [`FROM_STACK`], 2 | the set's and that of the tuple of its elements |
//! | `next_items`, `next_pairs`, by `stacked_leaf` | [`FROM_STACK`], 2 | the iterated object's and that of the item at
//! hand |
//! | `pass_through`, of a `__dict__` that was made | [`FROM_STACK`], 2 | its instance's and that of the dict at hand |
//! | `run`, of the whole | [`WHOLE`], -1; 0 of a leaf | the caller has some, nobody knows how many: less than any count
//! |
//! | `Encoder::limit`, of leaves while `exact` | -1 | no count proves anything |
//! | `quick::alone`; `quick_leaf` after `met`; names of enum members | `isize::MAX` | no count is asked for |
//!
//! The proof holds as long as nobody makes references meanwhile, and the walk goes through nothing that others lead to
//! without looking for a note of it. What a reducer written in Python returns may be objects that were passed by
//! without a note, and so may what others return that are not known to return only what their object holds itself
//! ([`natives`](super::natives)); and a `__dict__`, which has no note, may be that of two objects. So whoever comes to
//! one of these sets `restart`, and the whole is encoded anew with `exact`: every object is noted, whatever its count;
//! and of objects with one `__dict__` all but the first are written by the dict, as a value like any other. (The
//! registry remembers the class of a whole for which that was so, and `needed_exact` says whether it was so again.) Who
//! is noted is held by the memo, so that its address stays its own.
//!
//! There are two ways to note. [`Encoder::met`] is for what can be referred to from its first byte on: leaves, lists,
//! dicts, sets, ordinary objects. The whole begins at byte 1 and is kept in `root` instead of the memo.
//! [`Encoder::construct`] is for what exists only when its values do: tuples, frozensets, reduced objects. In the memo
//! such an object is in one of these states:
//!
//! | memo | meaning | when it is met |
//! |---|---|---|
//! | nothing | not met, or never to be met again | becomes `UNDER_CONSTRUCTION` |
//! | `UNDER_CONSTRUCTION` | its values are being written | `restart`, or with `exact` another round |
//! | a position | it begins there, and is complete | a reference |
//!
//! A round needs something new: it is refused where the one before noted no container that can be referred to, as then
//! all goes on in the same way without end ([`Memo::begin_round`]). `t = (l, m)`, `l = [t]`, `m = [t]` takes three: the
//! second refers to `l`, and notes `m`; the third refers to both. Kinds that have no form for a second round are
//! written by their reducers, after a `restart`.
//!
//! `t = ([t],)` with `exact`; the top of the stack is on the right. (Without, the list's count is 2, and the second `t`
//! restarts.)
//! ```text
//!  stack                            at   written
//!  t                                 1   a tuple of 1    t is under construction
//!  complete t@1, list                3   a list of 1     the list is noted at 3
//!  complete t@1, t                   4   a tuple of 1    t is in its second round
//!  complete t@1, complete t@4, list  6   a reference to 3
//!  complete t@1, complete t@4        8                   t begins at 4
//!  complete t@1                      8   a reference to 4; the tag at 1 gets to say that this is what counts
//! ```

use pyo3::prelude::*;

use super::memo::{Endless, MOST_ROUNDS, UNDER_CONSTRUCTION};
use super::place;
use super::scratch::{self, Scratch, Todo};
use crate::codec::apart::{Apart, Owner};
use crate::codec::classes::analyse;
use crate::codec::classes::known::Known;
use crate::codec::classes::plan::Kind;
use crate::codec::classes::registry::Registry;
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Raised, class_name, referenced_at_most, refuse, too_large};
use crate::codec::room;
use crate::ffi::{self, PyObject};
use crate::yield_budget::YieldBudget;

/// References to a value that lies on the stack: its owner's and the stack's.
pub const FROM_STACK: isize = 2;
/// In the place of a count: the object is the whole that is encoded, and nothing was written of it yet.
pub const WHOLE: isize = -1;
/// References to a value read in its owner.
pub const IN_PLACE: isize = 1;
/// How many values that are no leaves are written from one look at the length to the next.
const VALUES_UNCHECKED: u32 = 64;

/// Whether an encoding that failed is to start again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    No,
    /// With `exact`: user code is about to run, or a value leads back to what is made of it.
    Exact,
    /// With `by_reducers` as well: that is a value which needs it.
    ByReducers,
}

/// What [`Encoder::construct`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The object was complete before: a reference is written.
    Before,
    /// Its values are to be written.
    First,
    /// As `First`, in the midst of its own values.
    Again,
}

/// Raises the error of an object whose values lead back to it with no end.
///
/// # Safety
/// `obj` is held.
#[cold]
unsafe fn refuse_round(obj: *mut PyObject, endless: &Endless) -> Raised {
    // SAFETY: as the caller promised.
    let class = unsafe { class_name(obj) };
    refuse(&match endless {
        Endless::NothingNew => {
            format!("cannot store an object of class {class}: the values it is constructed from contain itself")
        }
        Endless::NoMemory => return room::no_memory(),
        Endless::TooMany => format!(
            "cannot store an object of class {class}: the values it is constructed from contain it more than {MOST_ROUNDS} times, \
             each within the one before; have a list hold them"
        ),
    })
}

/// One encoding.
pub struct Encoder<'a, 'py> {
    pub py: Python<'py>,
    pub known: &'static Known,
    pub registry: &'a Registry,
    pub out: &'a mut Vec<u8>,
    /// Where large values are left out to.
    apart: Option<&'a mut Apart>,
    /// Where this encoding starts in `out`.
    pub base: usize,
    /// The object that is encoded, with all that it holds.
    pub whole: *mut PyObject,
    /// The object itself when it is noted as met without the memo; else null.
    pub root: *mut PyObject,
    /// Every object goes into the memo, however few references it has: user code runs and may show it again.
    pub exact: bool,
    /// Values that have no form for a second round are written by their reducers.
    pub by_reducers: bool,
    pub restart: Restart,
    /// It was good to be `exact`.
    pub needed_exact: bool,
    /// Values that are no leaves up to the next look at the length.
    unchecked: u32,
    yields: YieldBudget,
    scratch: Option<Box<Scratch>>,
}

impl Drop for Encoder<'_, '_> {
    fn drop(&mut self) {
        if let Some(scratch) = self.scratch.take() {
            scratch::keep(scratch);
        }
    }
}

/// Appends the encoding of `obj`, except for what it leaves out if there is a place for that.
///
/// # Safety
/// `obj` is a live object and stays so over the call.
#[inline]
pub unsafe fn encode(
    py: Python<'_>,
    registry: &Registry,
    known: &'static Known,
    obj: *mut PyObject,
    (out, mut apart): (&mut Vec<u8>, Option<&mut Apart>),
) -> Raise<()> {
    let base = out.len();
    // SAFETY: live by the caller's word.
    let class = unsafe { ffi::Py_TYPE(obj) };
    let (mut exact, mut by_reducers) = (registry.begins_exact(class), false);
    loop {
        let mut encoder = Encoder {
            py,
            known,
            registry,
            out,
            apart: apart.as_deref_mut(),
            base,
            whole: obj,
            root: std::ptr::null_mut(),
            exact,
            by_reducers,
            restart: Restart::No,
            needed_exact: false,
            unchecked: VALUES_UNCHECKED,
            yields: YieldBudget::new(),
            scratch: None,
        };
        // SAFETY: as the caller promised.
        let result = writer::byte(encoder.out, tags::FORMAT).and_then(|()| unsafe { encoder.run(obj) });
        let (restart, for_nothing) = (encoder.restart, exact && !encoder.needed_exact);
        drop(encoder);
        match result {
            Ok(()) => {
                if for_nothing {
                    registry.begin_exact(std::ptr::null_mut());
                }
                return Ok(());
            }
            Err(Raised) => out.truncate(base),
        }
        if let Some(apart) = &mut apart {
            apart.clear();
        }
        if restart == Restart::No {
            // There may be no memory. What was kept for the next encoding is some.
            scratch::drop_cached();
            if base == 0 {
                *out = Vec::new();
            }
            return Err(Raised);
        }
        registry.begin_exact(class);
        exact = true;
        by_reducers |= restart == Restart::ByReducers;
    }
}

/// True for instances of classes that were made at run time: leaves are of the interpreter's own classes.
#[inline(always)]
unsafe fn never_leaf(obj: *mut PyObject) -> bool {
    // SAFETY: the caller's object is live.
    unsafe { ffi::PyType_HasFeature(ffi::Py_TYPE(obj), ffi::Py_TPFLAGS_HEAPTYPE) != 0 }
}

impl Encoder<'_, '_> {
    unsafe fn run(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: `obj` is kept alive by the caller of `encode`, and values on the stack by the stack.
        unsafe {
            // The common leaves have gone another way. The caller holds at least one reference that is not the graph's,
            // so no count proves anything here.
            if never_leaf(obj) || !self.leaf(obj, 0)? {
                self.compound(obj, WHOLE)?;
            }
            if self.scratch.is_some() {
                self.drain()?;
                self.finish()?;
            }
        }
        Ok(())
    }

    unsafe fn drain(&mut self) -> Raise<()> {
        while let Some(todo) = self.scratch()?.todo.pop() {
            // SAFETY: every `Todo` holds what it names.
            unsafe {
                match todo {
                    Todo::Value(value) => {
                        if !self.stacked_leaf(&value)? {
                            // Here, as all that may go on and on goes on in a value.
                            self.unchecked -= 1;
                            if self.unchecked == 0 {
                                self.check_length_of_walk()?;
                            }
                            self.compound(value.ptr(), FROM_STACK).map_err(|Raised| self.failed(&value))?;
                        }
                    }
                    Todo::Byte(value) => writer::byte(self.out, value)?,
                    Todo::Complete(obj, start) => self.complete(obj.ptr(), start)?,
                    Todo::Items(iterator) => self.next_items(iterator)?,
                    Todo::Pairs(iterator) => self.next_pairs(iterator)?,
                }
            }
        }
        Ok(())
    }

    /// For a value that could not be written: its error is to tell where it lies.
    #[cold]
    #[inline(never)]
    fn failed(&self, value: &Own) -> Raised {
        // Where it starts again, nothing is raised.
        // SAFETY: attached; both are held: by the caller of `encode`, and here.
        unsafe {
            if !ffi::PyErr_Occurred().is_null() {
                place::add_location(self.py, self.registry, self.whole, value.ptr());
            }
        }
        Raised
    }

    /// Writes a value that the stack has held, or could have, if it is a leaf.
    #[inline(always)]
    pub fn stacked_leaf(&mut self, value: &Own) -> Raise<bool> {
        // SAFETY: held over the call.
        unsafe { Ok(!never_leaf(value.ptr()) && self.leaf(value.ptr(), FROM_STACK)?) }
    }

    /// Appends the table of the positions that references lead to.
    fn finish(&mut self) -> Raise<()> {
        let mut targets = std::mem::take(&mut self.scratch()?.targets);
        if targets.is_empty() {
            return Ok(());
        }
        targets.sort_unstable();
        targets.dedup();
        let start = self.out.len();
        let mut before = 0;
        for &target in &targets {
            writer::varint(self.out, (target - before) as u64)?;
            before = target;
        }
        let len = (self.out.len() - start) as u64;
        writer::bytes(self.out, &len.to_le_bytes())?;
        self.out[self.base] |= tags::HAS_REFS;
        targets.clear();
        self.scratch()?.targets = targets;
        Ok(())
    }

    #[inline(always)]
    pub fn scratch(&mut self) -> Raise<&mut Scratch> {
        match &mut self.scratch {
            Some(scratch) => Ok(scratch),
            none => Ok(none.insert(scratch::take()?)),
        }
    }

    /// Refuses to go on where nobody has room for what was written. Code can give more and more of what is not there
    /// yet: whatever asks it for the next piece asks this first.
    #[inline(always)]
    pub fn check_length(&self) -> Raise<()> {
        let most = self.registry.most();
        if self.position() as u64 > most { Err(too_large(most)) } else { Ok(()) }
    }

    /// As [`Encoder::check_length`], of what an iterator gives. One without Python code may never end, and lets no
    /// signal in.
    pub fn check_iterated(&mut self) -> Raise<()> {
        self.check_length()?;
        // Without `exact`, what runs now might refer to what was passed by without a note. Such an iterator ends.
        if !self.exact {
            return Ok(());
        }
        self.yields.step(self.py, 0).map_err(|error| {
            error.restore(self.py);
            Raised
        })
    }

    /// As [`Encoder::check_length`]. A walk without such code comes to an end, unless there is a way to go round that
    /// the head of this file does not know: then it ends here.
    #[cold]
    #[inline(never)]
    fn check_length_of_walk(&mut self) -> Raise<()> {
        self.unchecked = VALUES_UNCHECKED;
        self.check_length()
    }

    /// Position of the next byte in this encoding.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.out.len() - self.base + self.apart.as_ref().map_or(0, |apart| apart.left_out())
    }

    /// Writes bytes, or leaves them out if they are as many as `least`.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// `len` bytes from there on, which stay where they are as long as what `owner` makes.
    pub unsafe fn raw(
        &mut self,
        bytes: *const u8,
        len: usize,
        least: usize,
        owner: impl FnOnce() -> Owner,
    ) -> Raise<()> {
        // SAFETY: as the caller promised.
        unsafe {
            match &mut self.apart {
                Some(apart) if len >= least => apart.leave_out(self.out.len() - self.base, bytes, len, owner()),
                _ => writer::raw(self.out, bytes, len),
            }
        }
    }

    /// Writes a reference when the object was met before; else notes that it starts here. `limit` is how many
    /// references there are when nobody else can meet it.
    ///
    /// # Safety
    /// `obj` is a live object.
    #[inline(always)]
    pub unsafe fn met(&mut self, obj: *mut PyObject, limit: isize) -> Raise<bool> {
        // SAFETY: live by the caller's word.
        unsafe {
            if !self.exact && referenced_at_most(obj, limit) {
                return Ok(false);
            }
            self.met_again(obj)
        }
    }

    /// Notes the object that is encoded as met, without a table.
    #[inline(always)]
    pub fn begin_with(&mut self, obj: *mut PyObject) {
        self.root = obj;
    }

    #[inline(never)]
    unsafe fn met_again(&mut self, obj: *mut PyObject) -> Raise<bool> {
        let at = self.position();
        if obj == self.root {
            if at == 1 {
                return Ok(false);
            }
            self.reference(1)?;
            return Ok(true);
        }
        if at == 1 {
            // A leaf never gets here twice.
            self.begin_with(obj);
            return Ok(false);
        }
        // SAFETY: live by the caller's word.
        let found = unsafe { self.scratch()?.memo.get_or_insert(obj, at)? };
        match found {
            Some(UNDER_CONSTRUCTION) => {
                // Its attributes had it constructed (see `reduce_after_all`), and may not any more.
                self.scratch()?.memo.reopen(obj, at);
                Ok(false)
            }
            Some(start) => {
                self.reference(start)?;
                Ok(true)
            }
            None => {
                // What leads on to others is known to the collector.
                // SAFETY: live by the caller's word.
                if unsafe { ffi::PyType_HasFeature(ffi::Py_TYPE(obj), ffi::Py_TPFLAGS_HAVE_GC) != 0 } {
                    self.scratch()?.memo.count_container();
                }
                Ok(false)
            }
        }
    }

    /// Writes a reference to the value that starts there.
    pub fn reference(&mut self, start: usize) -> Raise<()> {
        let distance = self.position() - start;
        room::push(&mut self.scratch()?.targets, start)?;
        writer::tag_varint(self.out, tags::REF, distance)
    }

    /// Starts an object that can only be made from its finished values (a tuple, a frozenset, what a reducer took
    /// apart), which may be referred to.
    ///
    /// When a value leads back to it, it is written once more there, as pickle does: on that round what was noted on
    /// the way is referred to, so it ends, or comes further (see the head of this file). That needs a memo of
    /// everything, so without one the encoding starts again.
    ///
    /// `again` is false for values whose encoding has no form for a second round.
    ///
    /// # Safety
    /// `obj` is held by the stack or by the caller of `encode`.
    pub unsafe fn construct(&mut self, obj: *mut PyObject, again: bool) -> Raise<Begun> {
        let start = self.position();
        // SAFETY: held by the caller.
        let begun = match unsafe { self.scratch()?.memo.get_or_insert(obj, UNDER_CONSTRUCTION)? } {
            None => Begun::First,
            Some(at) if at != UNDER_CONSTRUCTION => {
                self.reference(at)?;
                return Ok(Begun::Before);
            }
            Some(_) if !again || !self.exact => {
                self.restart = if again { Restart::Exact } else { Restart::ByReducers };
                return Err(Raised);
            }
            Some(_) => {
                self.needed_exact = true;
                // SAFETY: held by the caller.
                self.scratch()?.memo.begin_round(obj).map_err(|endless| unsafe { refuse_round(obj, &endless) })?;
                Begun::Again
            }
        };
        // SAFETY: held by the caller.
        unsafe { self.complete_later(obj, start)? };
        Ok(begun)
    }

    /// Has an object noted that starts there, when the values are written that it is made from.
    ///
    /// # Safety
    /// As [`Encoder::construct`].
    unsafe fn complete_later(&mut self, obj: *mut PyObject, start: usize) -> Raise<()> {
        // SAFETY: held by the caller.
        let held = unsafe { Own::share(obj) };
        room::push(&mut self.scratch()?.todo, Todo::Complete(held, start))
    }

    /// As [`Encoder::construct`], for an object that [`Encoder::met`] just noted as one that begins here.
    ///
    /// # Safety
    /// As [`Encoder::construct`].
    #[cold]
    pub unsafe fn construct_after_all(&mut self, obj: *mut PyObject) -> Raise<Begun> {
        if self.root == obj {
            self.root = std::ptr::null_mut();
        } else if !self.scratch()?.memo.close_again(obj) && self.scratch()?.memo.get(obj).is_some() {
            let start = self.position();
            self.scratch()?.memo.set(obj, UNDER_CONSTRUCTION);
            // SAFETY: as the caller promised.
            unsafe { self.complete_later(obj, start)? };
            return Ok(Begun::First);
        }
        // SAFETY: as the caller promised.
        unsafe { self.construct(obj, true) }
    }

    /// The values are written from which an object is made. If one of them led back to it, it was written there once
    /// more: then the innermost counts, and this one becomes a reference to it.
    fn complete(&mut self, obj: *mut PyObject, start: usize) -> Raise<()> {
        match self.scratch()?.memo.get(obj) {
            Some(earlier) if earlier != UNDER_CONSTRUCTION => {
                let at = self.base + self.apart.as_ref().map_or(start, |apart| apart.index(start));
                match self.out[at] {
                    tags::FROZENSET => self.out[at] = tags::FROZENSET_AGAIN,
                    tags::TUPLE_SHARED => self.out[at] = tags::TUPLE_AGAIN,
                    tags::NAMED_TUPLE => self.out[at] = tags::NAMED_TUPLE_AGAIN,
                    _ => self.drop_rest(at + 1)?,
                }
                self.reference(earlier)
            }
            _ => {
                self.scratch()?.memo.set(obj, start);
                Ok(())
            }
        }
    }

    /// The innermost round has written what follows a reducer's arguments; what this one has of it is not asked for any
    /// more, as in pickle. `at` is where it says which parts there are; they lie on top of the stack.
    fn drop_rest(&mut self, at: usize) -> Raise<()> {
        let parts = std::mem::replace(&mut self.out[at], tags::PART_AGAIN);
        let entries = |part: u8, entries: usize| if parts & part == 0 { 0 } else { entries };
        // Items and pairs have an end each.
        let dropped = entries(tags::PART_LIST, 2)
            + entries(tags::PART_DICT, 2)
            + entries(tags::PART_STATE, 1)
            + entries(tags::PART_SETTER, 1);
        let todo = &mut self.scratch()?.todo;
        todo.truncate(todo.len().saturating_sub(dropped));
        Ok(())
    }

    /// Writes a value that is not a leaf; what it holds that is no leaf goes onto the stack.
    ///
    /// # Safety
    /// `obj` is held by the stack or by the caller of `encode`.
    unsafe fn compound(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: live by the caller's word; each arm's function is for the class that the plan names.
        unsafe {
            let plan = analyse::plan(self.registry, self.known, ffi::Py_TYPE(obj))?;
            match &plan.kind {
                Kind::Slots(layout) => self.slots(obj, limit, &**layout),
                Kind::Attributes(attributes) => self.attributes(obj, limit, attributes),
                Kind::List => self.list(obj, limit),
                Kind::Dict => self.dict(obj, limit),
                Kind::Tuple => self.tuple(obj, limit),
                Kind::Set => self.set(obj, limit),
                Kind::FrozenSet => self.frozenset(obj, limit),
                Kind::NamedTuple { id, len } => self.named_tuple(obj, limit, *id, *len),
                Kind::Reduce { user_code } => self.reduce(obj, limit, *user_code),
                Kind::Global => self.global(obj),
                Kind::Native => self.native(obj, limit),
                Kind::NdArray => self.nd_array(obj, limit),
                Kind::NdScalar(number) => self.nd_scalar(obj, limit, *number),
                kind => self.scalar(obj, limit, kind),
            }
        }
    }

    /// Takes the rest of a container onto the stack, so that it is written next.
    ///
    /// # Safety
    /// The pointers are live objects.
    pub unsafe fn postpone(&mut self, rest: impl DoubleEndedIterator<Item = *mut PyObject>) -> Raise<()> {
        let todo = &mut self.scratch()?.todo;
        for value in rest.rev() {
            // SAFETY: live by the caller's word.
            room::push(todo, Todo::Value(unsafe { Own::share(value) }))?;
        }
        Ok(())
    }
}
