//! Decoding: as the encoder walked, with its own stack.

use std::collections::HashMap;

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::amplification::MOST_COUNTED;
use super::frame::{Frame, Late, NOWHERE, Place, Unfilled};
use super::keys::Keys;
use super::leaf::{Maker, bytes_leaf};
use super::nested::Nested;
use crate::codec::classes::known::Known;
use crate::codec::classes::layout::Entry;
use crate::codec::classes::registry::Registry;
use crate::codec::datetime::{self, Zone};
use crate::codec::format::reader::{Reader, damaged};
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise, Raised};
use crate::codec::room;
use crate::ffi::{self, PyObject};

/// One decoding. With `REFS`, positions are compared with those that references lead to, lists grow as they are
/// filled (a rebuilt object may look at them), and without it nothing of that costs anything.
pub struct Decoder<'a, 'py, const REFS: bool> {
    pub maker: Maker<'a, 'py>,
    pub reader: Reader<'a>,
    /// The first few without memory of their own: most values are not deeper.
    frames: SmallVec<[Frame<'a>; 4]>,
    targets: Vec<usize>,
    met: Vec<Option<Own>>,
    /// Index of the next target, and its position.
    next: usize,
    next_at: usize,
    /// By the address of the dict. Most graphs have none.
    pub late: Option<HashMap<usize, Late<'a>>>,
    /// What is looked at of those of a file.
    pub keys: Keys,
    nested: Nested,
    /// Items that containers may still be built of beside those that the file has brought.
    pub counted: isize,
}

/// Decodes one encoding.
///
/// # Errors
/// `CodecError` when the bytes make no sense, and whatever the code of stored classes raises.
#[inline]
pub fn decode(py: Python<'_>, registry: &Registry, known: &'static Known, bytes: &[u8]) -> Raise<Own> {
    let maker = Maker { py, known, registry, ready: None };
    match bytes.first() {
        Some(&tags::FORMAT) => match lone_leaf(&maker, bytes)? {
            Some(value) => Ok(value),
            None => Decoder::<false>::new(maker, bytes, Vec::new(), Vec::new()).run(),
        },
        Some(&tags::FORMAT_WITH_REFS) => {
            let (bytes, targets) = targets(bytes)?;
            let met = room::list(targets.iter().map(|_| None))?;
            Decoder::<true>::new(maker, bytes, targets, met).run()
        }
        _ => Err(damaged("an unknown format")),
    }
}

/// A whole that is one leaf, such as a text: it needs no stack. `None` when it is none.
#[inline]
fn lone_leaf(maker: &Maker<'_, '_>, bytes: &[u8]) -> Raise<Option<Own>> {
    let mut reader = Reader::new(bytes, 1);
    let value = match bytes.get(1) {
        // Short objects and containers, which are told at once.
        Some(&(tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST | tags::LIST_SHORT..=tags::DICT_SHORT_LAST)) => {
            return Ok(None);
        }
        // A leaf as any other, but one that is often alone.
        Some(&tags::BYTES) => {
            reader.at += 1;
            Some(bytes_leaf(&mut reader)?)
        }
        _ => maker.leaf(&mut reader)?,
    };
    if value.is_some() && reader.left() > 0 {
        return Err(damaged("bytes follow the value"));
    }
    Ok(value)
}

/// Builds the one value of an encoding without references that lies from `at` to the end of `bytes`.
///
/// # Errors
/// As [`decode`].
pub fn decode_part(maker: Maker<'_, '_>, bytes: &[u8], at: usize) -> Raise<Own> {
    let mut decoder = Decoder::<false>::new(maker, bytes, Vec::new(), Vec::new());
    decoder.reader.at = at;
    decoder.run()
}

/// Splits off the table of the positions that references lead to.
fn targets(bytes: &[u8]) -> Raise<(&[u8], Vec<usize>)> {
    let error = || damaged("the table of references");
    let (rest, len) = bytes.split_last_chunk::<8>().ok_or_else(error)?;
    let len = u64::from_le_bytes(*len) as usize;
    let start = rest.len().checked_sub(len).ok_or_else(error)?;
    let (values, table) = rest.split_at(start);
    let mut reader = Reader::new(table, 0);
    let (mut targets, mut at) = (Vec::new(), 0usize);
    while reader.left() > 0 {
        at = at.saturating_add(reader.varint()?);
        room::push(&mut targets, at)?;
    }
    Ok((values, targets))
}

impl<'a, 'py, const REFS: bool> Decoder<'a, 'py, REFS> {
    fn new(maker: Maker<'a, 'py>, bytes: &'a [u8], targets: Vec<usize>, met: Vec<Option<Own>>) -> Self {
        let next_at = targets.first().copied().unwrap_or(usize::MAX);
        let reader = Reader::new(bytes, 1);
        Decoder {
            maker,
            reader,
            frames: SmallVec::new(),
            targets,
            met,
            next: 0,
            next_at,
            late: None,
            keys: Keys::of(bytes.len()),
            nested: Nested::default(),
            counted: MOST_COUNTED.saturating_add(bytes.len() as isize),
        }
    }

    fn run(&mut self) -> Raise<Own> {
        let mut done = self.begin()?;
        loop {
            let Some(value) = done else {
                done = self.begin()?;
                continue;
            };
            let Some(frame) = self.frames.pop() else {
                if self.reader.left() > 0 {
                    return Err(damaged("bytes follow the value"));
                }
                if REFS {
                    self.complete_late()?;
                }
                return Ok(value);
            };
            done = self.resume(frame, value)?;
        }
    }

    /// Whether references lead to the value that starts here, and if so, where to note it.
    #[inline(always)]
    fn place(&mut self) -> Place {
        if !REFS || self.reader.at != self.next_at {
            return NOWHERE;
        }
        let place = self.next;
        self.next += 1;
        self.next_at = self.targets.get(self.next).copied().unwrap_or(usize::MAX);
        place
    }

    /// Notes an object that references lead to.
    #[inline(always)]
    pub fn note(&mut self, place: Place, obj: &Own) {
        if REFS && place != NOWHERE {
            self.met[place] = Some(obj.clone());
        }
    }

    /// Reads a leaf, noting it if references lead to it, or a reference; `None` when the next value is neither.
    #[inline(always)]
    pub fn leaf(&mut self) -> Raise<Option<Own>> {
        if REFS && self.reader.at == self.next_at {
            return self.noted_leaf();
        }
        let found = self.maker.leaf(&mut self.reader)?;
        if REFS && found.is_none() { self.referenced() } else { Ok(found) }
    }

    /// What the next value refers to, if it is a reference: as good as a leaf.
    #[inline(never)]
    fn referenced(&mut self) -> Raise<Option<Own>> {
        let at = self.reader.at;
        if self.reader.peek()? != tags::REF {
            return Ok(None);
        }
        self.reader.at += 1;
        self.reference(at).map(|(_, value)| Some(value))
    }

    #[inline(never)]
    fn noted_leaf(&mut self) -> Raise<Option<Own>> {
        let Some(value) = self.maker.leaf(&mut self.reader)? else { return Ok(None) };
        // The place is that of where the leaf started.
        let place = self.next;
        self.next += 1;
        self.next_at = self.targets.get(self.next).copied().unwrap_or(usize::MAX);
        self.note(place, &value);
        Ok(Some(value))
    }

    /// Looks at what is to be hashed. Without references no file has keys that take longer than it is long, but they
    /// may be as deep.
    ///
    /// # Errors
    /// `CodecError` where a file would have that take for ever, or more stack than there is.
    #[inline(always)]
    pub fn guard_key(&mut self, key: &Own) -> Raise<()> {
        // SAFETY: held by the caller. Most keys are strings.
        let is_text = || unsafe { ffi::PyUnicode_CheckExact(key.ptr()) != 0 };
        if self.maker.registry.is_guarded() && !is_text() { self.keys.check_key(key) } else { Ok(()) }
    }

    /// Looks at what was made, and has by now what will be in it.
    ///
    /// # Errors
    /// `CodecError` where a file would have that lie too deep in each other.
    #[inline]
    pub fn guard_depth(&mut self, made: &Own) -> Raise<()> {
        if self.maker.registry.is_guarded() { self.nested.check_depth(self.maker.py, made) } else { Ok(()) }
    }

    /// Puts a container aside; its next value is to be read.
    #[inline(always)]
    pub fn wait(&mut self, frame: Frame<'a>) -> Raise<Option<Own>> {
        if self.frames.len() == self.frames.capacity() {
            self.deepen()?;
        }
        self.frames.push(frame);
        Ok(None)
    }

    /// Makes room for more containers, each within the one before.
    #[cold]
    #[inline(never)]
    fn deepen(&mut self) -> Raise<()> {
        let more = self.frames.try_reserve(1).or_else(|_| self.frames.try_reserve_exact(1 + self.frames.len() / 16));
        more.map_err(|_| room::no_memory())
    }

    /// Reads a value: gives it when it is complete, else leaves its frame on the stack.
    fn begin(&mut self) -> Raise<Option<Own>> {
        if let Some(value) = self.leaf()? {
            return Ok(Some(value));
        }
        let place = self.place();
        let tag = self.reader.byte()?;
        match tag {
            tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST => self.object(u32::from(tag - tags::OBJECT_SHORT), place),
            tags::OBJECT => {
                let id = self.reader.id()?;
                self.object(id, place)
            }
            tags::OBJECT_PARTIAL | tags::OBJECT_OPEN | tags::OBJECT_BY_DICT => self.odd_object(tag, place),
            tags::LIST_SHORT..=tags::LIST_SHORT_LAST => self.list((tag - tags::LIST_SHORT) as usize, place),
            tags::LIST => {
                let len = self.reader.varint()?;
                self.list(len, place)
            }
            tags::DICT_SHORT..=tags::DICT_SHORT_LAST => self.dict((tag - tags::DICT_SHORT) as usize, place),
            tags::DICT => {
                let len = self.reader.varint()?;
                self.dict(len, place)
            }
            tags::TUPLE_SHORT..=tags::TUPLE_SHORT_LAST => self.tuple((tag - tags::TUPLE_SHORT) as usize, place, false),
            tags::TUPLE | tags::TUPLE_SHARED | tags::TUPLE_AGAIN => {
                let len = self.reader.varint()?;
                self.tuple(len, place, tag == tags::TUPLE_AGAIN)
            }
            tags::SET | tags::FROZENSET | tags::FROZENSET_AGAIN => self.set(tag, place),
            tags::NAMED_TUPLE | tags::NAMED_TUPLE_AGAIN => self.named_tuple(place, tag == tags::NAMED_TUPLE_AGAIN),
            tags::REDUCE | tags::NEW | tags::NEW_KEYWORDS => {
                let parts = self.reader.byte()?;
                if parts & tags::PART_AGAIN != 0 && parts != tags::PART_AGAIN {
                    // Another object's, which has had them.
                    return Err(damaged("parts of an object that is there already"));
                }
                self.wait(Frame::rebuild(tag, parts, place)?)
            }
            tags::DATETIME_ZONE => {
                let packed = self.reader.number(8)?;
                self.gather(tag, 1, packed, [0; 12], place)
            }
            tags::TIME_ZONE | tags::TIMEZONE => {
                let mut bytes = [0; 12];
                let n = if tag == tags::TIME_ZONE { 7 } else { 12 };
                bytes[..n].copy_from_slice(self.reader.take(n)?);
                self.gather(tag, 1, 0, bytes, place)
            }
            tags::RANGE | tags::SLICE => self.gather(tag, 3, 0, [0; 12], place),
            _ => Err(damaged("an unknown tag")),
        }
    }

    fn gather(&mut self, tag: u8, want: usize, packed: u64, bytes: [u8; 12], place: Place) -> Raise<Option<Own>> {
        let named = tags::is_named(self.reader.peek()?);
        let mut values = Vec::new();
        room::make(&mut values, want)?;
        self.wait(Frame::Gather { tag, values, want, packed, bytes, place, named })
    }

    /// Gives a container the value that it waited for.
    fn resume(&mut self, frame: Frame<'a>, value: Own) -> Raise<Option<Own>> {
        match frame {
            Frame::Object { object, layout, next } => self.resume_object(object, layout, next, value),
            Frame::PartialObject(partial) => self.resume_partial(partial, value),
            Frame::List { list, next, len } => {
                put_item::<REFS>(&list, next, value)?;
                self.fill_list(list, next + 1, len)
            }
            Frame::Tuple { tuple, next, len, place, again } => {
                if again && next == len {
                    // The value is the reference to the tuple that counts.
                    self.note(place, &value);
                    return Ok(Some(value));
                }
                put_tuple(tuple.places(), next, value);
                self.fill_tuple(tuple, next + 1, len, place, again)
            }
            Frame::Dict { dict, left, key } => match key {
                None => self.fill_dict(dict, left, Some(value)),
                Some(key) => {
                    self.guard_key(&key)?;
                    put_pair(&dict, &key, &value)?;
                    self.fill_dict(dict, left - 1, None)
                }
            },
            Frame::Set { set, left, place, again } => {
                if again && left == 0 {
                    self.note(place, &value);
                    return Ok(Some(value));
                }
                self.guard_key(&value)?;
                put_element(&set, &value)?;
                self.fill_set(set, left - 1, place, again)
            }
            Frame::Gather { tag, mut values, want, packed, bytes, place, named } => {
                room::push(&mut values, value)?;
                if values.len() < want {
                    return self.wait(Frame::Gather { tag, values, want, packed, bytes, place, named });
                }
                let made = combine(tag, &values, named, packed, &bytes)?;
                if tag == tags::SLICE {
                    self.guard_depth(&made)?;
                }
                self.note(place, &made);
                Ok(Some(made))
            }
            Frame::Rebuild(rebuild) => self.rebuild(rebuild, value),
        }
    }

    /// Where the reference leads that begins there, and whose tag was read.
    pub fn reference(&mut self, at: usize) -> Raise<(usize, Own)> {
        let distance = self.reader.varint()?;
        self.referred(at, distance)
    }

    /// What begins so far before there.
    pub fn referred(&self, at: usize, distance: usize) -> Raise<(usize, Own)> {
        let target = at.checked_sub(distance).ok_or_else(|| damaged("a reference to nowhere"))?;
        let found = self.targets.binary_search(&target).ok().and_then(|place| self.met[place].clone());
        found.map(|found| (target, found)).ok_or_else(|| damaged("a reference to what is not there yet"))
    }

    fn list(&mut self, len: usize, place: Place) -> Raise<Option<Own>> {
        self.reader.claim(len)?;
        // SAFETY: a new reference or null with an error.
        let list = unsafe { Own::take(ffi::PyList_New(if REFS { 0 } else { len as isize }))? };
        if !REFS && len > 0 {
            hide(&list);
        }
        self.note(place, &list);
        self.fill_list(list, 0, len)
    }

    fn fill_list(&mut self, list: Own, mut next: usize, len: usize) -> Raise<Option<Own>> {
        while next < len {
            match self.leaf()? {
                Some(value) => put_item::<REFS>(&list, next, value)?,
                None => return self.wait(Frame::List { list, next, len }),
            }
            next += 1;
        }
        if !REFS && len > 0 {
            show(&list);
        }
        Ok(Some(list))
    }

    fn tuple(&mut self, len: usize, place: Place, again: bool) -> Raise<Option<Own>> {
        self.reader.claim(len)?;
        // SAFETY: a new reference or null with an error.
        let tuple = unsafe { Own::take(ffi::PyTuple_New(len as isize))? };
        if len > 0 {
            hide(&tuple);
        }
        // SAFETY: a new tuple, hidden if it has places.
        self.fill_tuple(unsafe { Unfilled::new(tuple) }, 0, len, place, again)
    }

    fn named_tuple(&mut self, place: Place, again: bool) -> Raise<Option<Own>> {
        let id = self.reader.id()?;
        let Some(Entry::NamedTuple { class, len, called, arranged, .. }) = self.maker.entry(id, self.reader.whole())?
        else {
            return Err(damaged("an unknown class"));
        };
        if *called {
            self.wait(Frame::call(class, arranged.as_deref(), place, again)?)?;
            return self.tuple(*len, NOWHERE, false);
        }
        self.reader.claim(*len)?;
        // SAFETY: a subclass of `tuple` without anything of its own (see its plan), which `tuple.__new__` allocates so
        // too; held by the registry.
        let tuple = unsafe { Own::take(ffi::PyType_GenericAlloc(class.ptr().cast(), *len as isize))? };
        #[cfg(Py_3_14)]
        // SAFETY: a new tuple, which no code has seen; -1 says that its hash is not known yet.
        unsafe {
            (*tuple.ptr().cast::<ffi::PyTupleObject>()).ob_hash = -1;
        }
        if *len > 0 {
            hide(&tuple);
        }
        // SAFETY: a new tuple, hidden if it has places; its class adds nothing, as above.
        self.fill_tuple(unsafe { Unfilled::new(tuple) }, 0, *len, place, again)
    }

    fn fill_tuple(
        &mut self,
        tuple: Unfilled,
        mut next: usize,
        len: usize,
        place: Place,
        again: bool,
    ) -> Raise<Option<Own>> {
        while next < len {
            match self.leaf()? {
                Some(value) => put_tuple(tuple.places(), next, value),
                None => return self.wait(Frame::Tuple { tuple, next, len, place, again }),
            }
            next += 1;
        }
        if again {
            return self.wait(Frame::Tuple { tuple, next, len, place, again });
        }
        let tuple = tuple.into_filled();
        if len > 0 {
            show(&tuple);
        }
        self.note(place, &tuple);
        Ok(Some(tuple))
    }

    fn dict(&mut self, len: usize, place: Place) -> Raise<Option<Own>> {
        self.reader.claim(len.saturating_mul(2))?;
        // SAFETY: a new reference or null with an error.
        let dict = unsafe { Own::take(ffi::PyDict_New())? };
        self.note(place, &dict);
        self.fill_dict(dict, len, None)
    }

    fn fill_dict(&mut self, dict: Own, mut left: usize, mut key: Option<Own>) -> Raise<Option<Own>> {
        while left > 0 {
            let Some(found) = self.leaf()? else { return self.wait(Frame::Dict { dict, left, key }) };
            key = match key {
                None => Some(found),
                Some(key) => {
                    self.guard_key(&key)?;
                    put_pair(&dict, &key, &found)?;
                    left -= 1;
                    None
                }
            };
        }
        if REFS && self.late.is_some() {
            self.complete_those_of(&dict)?;
        }
        Ok(Some(dict))
    }

    fn set(&mut self, tag: u8, place: Place) -> Raise<Option<Own>> {
        let len = self.reader.varint()?;
        self.reader.claim(len)?;
        // SAFETY: a new reference or null with an error.
        let set = unsafe {
            Own::take(if tag == tags::SET {
                ffi::PySet_New(std::ptr::null_mut())
            } else {
                ffi::PyFrozenSet_New(std::ptr::null_mut())
            })?
        };
        let place = if tag == tags::SET {
            self.note(place, &set);
            NOWHERE
        } else {
            hide(&set);
            place
        };
        self.fill_set(set, len, place, tag == tags::FROZENSET_AGAIN)
    }

    fn fill_set(&mut self, set: Own, mut left: usize, place: Place, again: bool) -> Raise<Option<Own>> {
        while left > 0 {
            match self.leaf()? {
                Some(value) => {
                    self.guard_key(&value)?;
                    put_element(&set, &value)?;
                }
                None => return self.wait(Frame::Set { set, left, place, again }),
            }
            left -= 1;
        }
        if again {
            return self.wait(Frame::Set { set, left, place, again });
        }
        // SAFETY: the set is held here.
        if unsafe { ffi::PyFrozenSet_CheckExact(set.ptr()) != 0 } {
            show(&set);
        }
        self.note(place, &set);
        Ok(Some(set))
    }
}

/// Takes a new container out of the collector's sight: a list or a tuple has places with no object in them, and a
/// frozenset is filled only while nobody else holds it. Of the collector anybody may ask all objects, and code runs in
/// the midst of a decoding: that of keys and reducers, of modules that are imported, of finalizers in a collection that
/// any new object starts.
#[inline(always)]
fn hide(container: &Own) {
    // SAFETY: held; a container of a kind that the collector knows, and nobody has seen.
    unsafe { ffi::PyObject_GC_UnTrack(container.ptr().cast()) };
}

/// Ends what [`hide`] began: the container is complete. One that never is goes without the collector.
#[inline(always)]
fn show(container: &Own) {
    // SAFETY: held; it was hidden, and nobody shows it but this.
    unsafe { ffi::PyObject_GC_Track(container.ptr().cast()) };
}

#[inline(always)]
fn put_item<const REFS: bool>(list: &Own, next: usize, value: Own) -> Raise<()> {
    // SAFETY: without references, the list was made with room for `next` and nobody else has seen it.
    unsafe {
        if REFS {
            return if ffi::PyList_Append(list.ptr(), value.ptr()) < 0 { Err(Raised) } else { Ok(()) };
        }
        ffi::PyList_SET_ITEM(list.ptr(), next as isize, value.into_ptr());
    }
    Ok(())
}

#[inline(always)]
fn put_tuple(tuple: &Own, next: usize, value: Own) {
    // SAFETY: the tuple was made with room for `next`, which is empty, and no code has seen it.
    unsafe { ffi::PyTuple_SET_ITEM(tuple.ptr(), next as isize, value.into_ptr()) }
}

#[inline(always)]
fn put_pair(dict: &Own, key: &Own, value: &Own) -> Raise<()> {
    // SAFETY: a dict; all held.
    if unsafe { ffi::PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) } < 0 { Err(Raised) } else { Ok(()) }
}

#[inline(always)]
fn put_element(set: &Own, value: &Own) -> Raise<()> {
    // SAFETY: a set, or a frozenset that nobody else has seen; held.
    if unsafe { ffi::PySet_Add(set.ptr(), value.ptr()) } < 0 { Err(Raised) } else { Ok(()) }
}

fn combine(tag: u8, values: &[Own], named: bool, packed: u64, bytes: &[u8; 12]) -> Raise<Own> {
    let three = |class: *mut PyObject| {
        // SAFETY: a class of the interpreter and three held arguments; a new reference or null with an error.
        unsafe { Own::take(ffi::call(class, [values[0].ptr(), values[1].ptr(), values[2].ptr()])) }
    };
    match tag {
        tags::DATETIME_ZONE => datetime::aware(packed, Zone::new(&values[0], named)?),
        tags::TIME_ZONE => datetime::time(&bytes[..7], Some(Zone::new(&values[0], named)?)),
        tags::TIMEZONE => datetime::timezone(&datetime::timedelta(bytes)?, &values[0]),
        tags::RANGE => three((&raw mut ffi::PyRange_Type).cast()),
        _ => three((&raw mut ffi::PySlice_Type).cast()),
    }
}
