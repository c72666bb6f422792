//! Parts of an object without the whole.
//!
//! What `fields` gives is what the object would have that `get` builds; where that is known without, it is not built.
//! Of a class that has changed since a file was written, that is what was stored, or what a new field gets. What such
//! an object does not have is looked for in what was stored, and so is all where it cannot be built: a field that the
//! class has no more can still be read, and moved into another.

use pyo3::Borrowed;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::classes::changes::{Arranged, Changes, Filling, Item};
use super::classes::inspect::Inspect;
use super::classes::known::Known;
use super::classes::layout::{Entry, Layout};
use super::classes::record::Shape;
use super::classes::registry::Registry;
use super::classes::{analyse, plan};
use super::decode::leaf::Maker;
use super::decode::walk::skip;
use super::decode::{decode, decode_part};
use super::format::reader::{Reader, leading_varint};
use super::format::tags;
use super::object::{Doing, Own, Raise, Raised, as_py, class_name, explain, in_class, intern, intern_own};
use super::room;
use crate::errors::{Errors, type_error};
use crate::ffi;

/// Where the raw buffer of a bytes-like payload lies in its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawView {
    /// First byte of the buffer, counted from the start of the encoding. A multiple of 8 for `array.array`.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// `array.array` type code, or `B` for `bytes` and `bytearray`.
    pub format: u8,
}

/// See [`Codec::decode_fields`](super::Codec::decode_fields).
pub fn decode_fields<'py>(
    py: Python<'py>,
    registry: &Registry,
    bytes: &[u8],
    names: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyTuple>> {
    let known = Known::get(py).map_err(|Raised| explain(py, Doing::RebuildPart))?;
    let search = Search { py, known, registry, bytes };
    match search.find(names) {
        Ok(Some(found)) => return tuple(py, found),
        Ok(None) => {}
        Err(Raised) => return Err(explain(py, Doing::RebuildPart)),
    }
    let Ok(whole) = decode(py, registry, known, bytes) else {
        let error = explain(py, Doing::Rebuild);
        if !Errors::get(py).is_ok_and(|errors| error.is_instance(py, errors.codec.bind(py))) {
            return Err(error);
        }
        return tuple(py, search.stored_instead(names, error)?);
    };
    let mut values = Vec::new();
    for name in names {
        let value = field(&whole, name).or_else(|Raised| {
            let error = PyErr::fetch(py);
            if !error.is_instance_of::<PyAttributeError>(py) {
                return Err(error);
            }
            search.stored_instead(std::slice::from_ref(name), error).map(|mut found| found.remove(0))
        })?;
        room::push(&mut values, value).map_err(|Raised| PyErr::fetch(py))?;
    }
    tuple(py, values)
}

/// A field of an object that was built.
fn field(whole: &Own, bound: &Bound<'_, PyAny>) -> Raise<Own> {
    let (whole, name) = (whole.ptr(), bound.as_ptr());
    // SAFETY: both are held; a new reference or null with an error.
    unsafe {
        if ffi::PyDict_Check(whole) == 0 {
            if ffi::PyUnicode_Check(name) == 0 {
                return Err(not_a_name(bound));
            }
            return Own::take(ffi::PyObject_GetAttr(whole, name));
        }
        if ffi::PyObject_Hash(name) == -1 {
            return Err(if ffi::PyErr_ExceptionMatches(ffi::PyExc_TypeError) != 0 {
                not_a_name(bound)
            } else {
                Raised
            });
        }
        let getitem = intern(c"__getitem__")?;
        let own = in_class(ffi::Py_TYPE(whole), getitem.ptr()).map(|found| found.ptr());
        if own != in_class(&raw mut ffi::PyDict_Type, getitem.ptr()).map(|found| found.ptr()) {
            return Own::take(ffi::PyObject_GetItem(whole, name));
        }
        // A dict that makes what is missing (`defaultdict`) would make it in a copy.
        let mut value = std::ptr::null_mut();
        match ffi::compat::PyDict_GetItemRef(whole, name, &raw mut value) {
            0 => {
                let error = Own::take(ffi::call(ffi::PyExc_KeyError, [name]))?;
                ffi::PyErr_SetObject(ffi::PyExc_KeyError, error.ptr());
                Err(Raised)
            }
            _ => Own::take(value),
        }
    }
}

/// Raises the error of what can be no field's name.
#[cold]
fn not_a_name(name: &Bound<'_, PyAny>) -> Raised {
    // SAFETY: a held object.
    let class = unsafe { class_name(name.as_ptr()) };
    let text = format!("fields() takes names one by one, fields(ptr, *names), and a name is no {class}");
    type_error(name.py(), &text).restore(name.py());
    Raised
}

fn tuple(py: Python<'_>, values: Vec<Own>) -> PyResult<Bound<'_, PyTuple>> {
    // SAFETY: a new tuple or null with an error; each of its places is filled once, with an owned reference.
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(values.len() as isize))?;
        for (i, value) in values.into_iter().enumerate() {
            ffi::PyTuple_SET_ITEM(made.as_ptr(), i as isize, value.into_ptr());
        }
        Ok(made.cast_into_unchecked())
    }
}

struct Search<'a, 'py> {
    py: Python<'py>,
    known: &'static Known,
    registry: &'a Registry,
    bytes: &'a [u8],
}

/// One name that is asked for, with what was found.
struct Wanted<'a, 'py> {
    name: Borrowed<'a, 'py, PyAny>,
    value: Option<Own>,
}

impl Wanted<'_, '_> {
    /// Whether this is the key, as a dict tells: only what hashes alike is compared.
    fn is_key(&self, key: Borrowed<'_, '_, PyAny>) -> Raise<bool> {
        Ok((is_text(self.name) && is_text(key) || hash(self.name)? == hash(key)?) && same(self.name, key)?)
    }

    /// The one string of this name, which is text.
    fn interned(&self) -> Own {
        // SAFETY: borrowed from a held reference.
        intern_own(unsafe { Own::share(self.name.as_ptr()) })
    }
}

/// The number of an object whose tag was read.
fn object_id(tag: u8, reader: &mut Reader<'_>) -> Raise<u32> {
    if tag == tags::OBJECT { reader.id() } else { Ok(u32::from(tag - tags::OBJECT_SHORT)) }
}

/// Whether an instance of a class that has changed has what its fields say under this name, if they say anything.
fn tells(class: &Inspect<'_>, changes: &Changes, name: &Own) -> bool {
    let Some(own) = class.lookup(name) else { return true };
    if let Some(offset) = changes.slot(name) {
        return class.slot(name) == Some(offset);
    }
    // SAFETY: held. What sets attributes comes before them.
    let sets = unsafe { (*ffi::Py_TYPE(own.ptr())).tp_descr_set.is_some() };
    !sets && changes.takes(name)
}

fn hash(object: Borrowed<'_, '_, PyAny>) -> Raise<isize> {
    // SAFETY: borrowed from a held reference; -1 with an error.
    match unsafe { ffi::PyObject_Hash(object.as_ptr()) } {
        -1 => Err(Raised),
        hash => Ok(hash),
    }
}

/// Whether these may be keys of a dict.
fn hashable(names: &[Bound<'_, PyAny>]) -> Raise<bool> {
    for name in names {
        if let Err(Raised) = hash(name.as_borrowed()) {
            // SAFETY: attached, with an error set; whoever asks again gets it again, unless somebody else raised it.
            unsafe {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
                    return Err(Raised);
                }
                ffi::PyErr_Clear();
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a name still leads to the item that the class of a named tuple calls so in `_fields`.
fn is_item(known: &Known, class: &Inspect<'_>, fields: &Own, name: &Own) -> Raise<bool> {
    let Some(own) = class.lookup(name) else { return Ok(false) };
    // SAFETY: all are held; what gets an item takes any tuple, and of this one gives the name.
    unsafe {
        let of = ffi::Py_TYPE(own.ptr());
        if of.cast() != known.item_getter.ptr() {
            return Ok(false);
        }
        let Some(get) = (*of).tp_descr_get else { return Ok(false) };
        Ok(Own::take(get(own.ptr(), fields.ptr(), class.class().cast()))?.ptr() == name.ptr())
    }
}

/// Whether this is an exact string.
fn is_text(name: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: borrowed from a held reference.
    unsafe { ffi::PyUnicode_CheckExact(name.as_ptr()) != 0 }
}

impl<'py> Search<'_, 'py> {
    /// The values of these names; `None` when only the whole object can tell.
    fn find(&self, names: &[Bound<'py, PyAny>]) -> Raise<Option<Vec<Own>>> {
        if self.bytes.first() != Some(&tags::FORMAT) {
            return Ok(None);
        }
        let mut wanted = room::list(names.iter().map(|name| Wanted { name: name.as_borrowed(), value: None }))?;
        let mut reader = Reader::new(self.bytes, 1);
        let tag = reader.byte()?;
        // The whole tells what is wrong with other names, if anything is.
        let told = names.iter().all(|name| is_text(name.as_borrowed())) || (tags::is_dict(tag) && hashable(names)?);
        if !told {
            return Ok(None);
        }
        let complete = match tag {
            tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST | tags::OBJECT => {
                let id = object_id(tag, &mut reader)?;
                self.object(id, &mut reader, &mut wanted)?
            }
            tags::NAMED_TUPLE => {
                let id = reader.id()?;
                self.named_tuple(id, &mut reader, &mut wanted)?
            }
            tags::DICT_SHORT..=tags::DICT_SHORT_LAST => {
                self.dict((tag - tags::DICT_SHORT) as usize, &mut reader, &mut wanted)?
            }
            tags::DICT => {
                let len = reader.varint()?;
                self.dict(len, &mut reader, &mut wanted)?
            }
            _ => false,
        };
        if !complete || wanted.iter().any(|wanted| wanted.value.is_none()) {
            return Ok(None);
        }
        room::list(wanted.into_iter().filter_map(|wanted| wanted.value)).map(Some)
    }

    /// What `get` would build an instance of; where the class was defined anew without room for the fields, the one
    /// before, and where it may not be built, what the file says of it: the fields can still be read.
    fn entry(&self, id: u32) -> Raise<Option<&Entry>> {
        let found = self.maker().entry(id, &[]);
        // SAFETY: where there is an error, it is set; the class that it is compared with is held.
        let refused = |errors: &Errors| unsafe { ffi::PyErr_ExceptionMatches(errors.codec.as_ptr()) != 0 };
        if found.is_ok() || !Errors::get(self.py).is_ok_and(refused) {
            return found;
        }
        // SAFETY: attached.
        unsafe { ffi::PyErr_Clear() };
        Ok(self.registry.entry(id))
    }

    fn maker(&self) -> Maker<'_, '_> {
        Maker { py: self.py, known: self.known, registry: self.registry, ready: None }
    }

    fn object(&self, id: u32, reader: &mut Reader<'_>, wanted: &mut [Wanted<'_, '_>]) -> Raise<bool> {
        let names = match self.entry(id)? {
            Some(Entry::Object(layout)) if self.plain(layout) => &layout.names,
            Some(Entry::Stated(layout @ Layout { changes: Some(changes), .. })) => {
                return self.changed(layout, changes, reader, wanted);
            }
            // Of a class that may not be built, what was stored can be read.
            Some(Entry::Unmet(record)) => match &record.shape {
                Shape::Object(fields) => &fields.names,
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        self.each_of(names, reader, wanted)
    }

    /// As `object`, of a class that has changed since its object was stored.
    fn changed(
        &self,
        layout: &Layout,
        changes: &Changes,
        reader: &mut Reader<'_>,
        wanted: &mut [Wanted<'_, '_>],
    ) -> Raise<bool> {
        // SAFETY: held by the layout.
        let class = unsafe { Inspect::new(self.known, layout.class.ptr().cast()) };
        if !changes.quiet || !class.gets_attributes() {
            return Ok(false);
        }
        for wish in &*wanted {
            if !tells(&class, changes, &wish.interned()) {
                return Ok(false);
            }
        }
        if !self.each_of(&layout.names, reader, wanted)? {
            return Ok(false);
        }
        let mut new = Vec::new();
        for (i, wish) in wanted.iter().enumerate().filter(|(_, wish)| wish.value.is_none()) {
            let name = wish.interned();
            let Some((_, filling)) = changes.added.iter().find(|(added, _)| added.ptr() == name.ptr()) else {
                return Ok(true);
            };
            room::push(&mut new, (i, filling))?;
        }
        // A factory is called when all others are there, so once.
        new.into_iter().try_for_each(|(i, filling): (usize, &Filling)| {
            wanted[i].value = Some(filling.value()?);
            Ok(())
        })?;
        Ok(true)
    }

    /// Whether the fields of a layout are what attribute access on an instance would find.
    fn plain(&self, layout: &Layout) -> bool {
        plan::is_plain(layout) || (layout.names.len() == layout.slots() && analyse::slots_stand(layout))
    }

    fn named_tuple(&self, id: u32, reader: &mut Reader<'_>, wanted: &mut [Wanted<'_, '_>]) -> Raise<bool> {
        let (class, len) = match self.entry(id)? {
            Some(Entry::NamedTuple { class, len, called: false, .. }) => (class, len),
            Some(Entry::NamedTuple { class, names, arranged: Some(arranged), .. }) => {
                return self.arranged(class, (names, arranged), reader, wanted);
            }
            Some(Entry::Unmet(record)) => {
                let Shape::NamedTuple(names) = &record.shape else { return Ok(false) };
                return self.each_of(names, reader, wanted);
            }
            _ => return Ok(false),
        };
        // SAFETY: held by the registry; the tuple of names is held while its items are compared.
        unsafe {
            let fields = Own::take(ffi::PyObject_GetAttr(class.ptr(), self.known.names.fields.ptr()))?;
            if ffi::PyTuple_Check(fields.ptr()) == 0 || ffi::PyTuple_Size(fields.ptr()) != *len as isize {
                return Ok(false);
            }
            let class = Inspect::new(self.known, class.ptr().cast());
            for wish in &*wanted {
                if !class.gets_attributes() || !is_item(self.known, &class, &fields, &wish.interned())? {
                    return Ok(false);
                }
            }
            let name = |i| Borrowed::from_ptr(self.py, ffi::PyTuple_GetItem(fields.ptr(), i as isize));
            self.each((0..*len).map(name), reader, wanted)
        }
    }

    /// As `named_tuple`, of one whose class has other fields by now.
    fn arranged(
        &self,
        class: &Own,
        (stored, arranged): (&[Own], &Arranged),
        reader: &mut Reader<'_>,
        wanted: &mut [Wanted<'_, '_>],
    ) -> Raise<bool> {
        // SAFETY: held by the registry.
        let class = unsafe { Inspect::new(self.known, class.ptr().cast()) };
        let (Some(items), Some(fields)) = (class.only_items()?, class.lookup(&self.known.names.fields)) else {
            return Ok(false);
        };
        let place = |name: &Own| items.iter().position(|item| item.ptr() == name.ptr());
        for wish in &*wanted {
            let name = wish.interned();
            // The class has something else of the name of an item, or of one that is no more.
            let is_known = if place(&name).is_some() {
                is_item(self.known, &class, &fields, &name)?
            } else {
                class.lookup(&name).is_none()
            };
            if !is_known {
                return Ok(false);
            }
        }
        if !self.each_of(stored, reader, wanted)? {
            return Ok(false);
        }
        for wish in wanted.iter_mut().filter(|wish| wish.value.is_none()) {
            let place = place(&wish.interned());
            if let Some(Item::Default(value)) = place.and_then(|place| arranged.0.get(place)) {
                wish.value = Some(value.clone());
            }
        }
        Ok(true)
    }

    /// What was stored under these names, of an object that does not have them by now, or cannot be built; where that
    /// is not told either, what is wrong with the object.
    fn stored_instead(&self, names: &[Bound<'py, PyAny>], error: PyErr) -> PyResult<Vec<Own>> {
        match self.stored(names) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(error),
            Err(Raised) => Err(explain(self.py, Doing::RebuildPart)),
        }
    }

    fn stored(&self, names: &[Bound<'py, PyAny>]) -> Raise<Option<Vec<Own>>> {
        if self.bytes.first() != Some(&tags::FORMAT) || !names.iter().all(|name| is_text(name.as_borrowed())) {
            return Ok(None);
        }
        let mut wanted = room::list(names.iter().map(|name| Wanted { name: name.as_borrowed(), value: None }))?;
        let mut reader = Reader::new(self.bytes, 1);
        let id = match reader.byte()? {
            tag @ (tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST | tags::OBJECT) => object_id(tag, &mut reader)?,
            tags::NAMED_TUPLE => reader.id()?,
            _ => return Ok(None),
        };
        let stored = match self.entry(id)? {
            Some(Entry::Stated(layout)) => &layout.names,
            Some(Entry::NamedTuple { names, called: true, .. }) => names,
            _ => return Ok(None),
        };
        if !self.each_of(stored, &mut reader, &mut wanted)? || wanted.iter().any(|wish| wish.value.is_none()) {
            return Ok(None);
        }
        room::list(wanted.into_iter().filter_map(|wish| wish.value)).map(Some)
    }

    /// As [`Search::each`], of interned names.
    fn each_of(&self, names: &[Own], reader: &mut Reader<'_>, wanted: &mut [Wanted<'_, '_>]) -> Raise<bool> {
        self.each(names.iter().map(|name| as_py(name).bind_borrowed(self.py)), reader, wanted)
    }

    /// Walks over the fields and reads those that are wanted. False when one cannot be skipped.
    fn each<'a>(
        &self,
        names: impl Iterator<Item = Borrowed<'a, 'py, PyAny>>,
        reader: &mut Reader<'_>,
        wanted: &mut [Wanted<'_, '_>],
    ) -> Raise<bool> {
        let mut missing = wanted.len();
        for name in names {
            if missing == 0 {
                break;
            }
            let start = reader.at;
            if !skip(self.registry, reader)? {
                return Ok(false);
            }
            for wish in wanted.iter_mut().filter(|wish| wish.value.is_none()) {
                if same(wish.name, name)? {
                    wish.value = Some(self.part(start, reader.at)?);
                    missing -= 1;
                }
            }
        }
        Ok(true)
    }

    fn dict(&self, len: usize, reader: &mut Reader<'_>, wanted: &mut [Wanted<'_, '_>]) -> Raise<bool> {
        let mut missing = wanted.len();
        for _ in 0..len {
            if missing == 0 {
                break;
            }
            let start = reader.at;
            if !skip(self.registry, reader)? {
                return Ok(false);
            }
            let made = self.part(start, reader.at)?;
            let key = as_py(&made).bind_borrowed(self.py);
            let start = reader.at;
            if !skip(self.registry, reader)? {
                return Ok(false);
            }
            for wish in wanted.iter_mut().filter(|wish| wish.value.is_none()) {
                if wish.is_key(key)? {
                    wish.value = Some(self.part(start, reader.at)?);
                    missing -= 1;
                }
            }
        }
        Ok(true)
    }

    /// Builds the value that lies there.
    fn part(&self, start: usize, end: usize) -> Raise<Own> {
        decode_part(self.maker(), &self.bytes[..end], start)
    }
}

/// Whether two names or keys are equal.
fn same(left: Borrowed<'_, '_, PyAny>, right: Borrowed<'_, '_, PyAny>) -> Raise<bool> {
    // SAFETY: both are borrowed from held references.
    match unsafe { ffi::PyObject_RichCompareBool(left.as_ptr(), right.as_ptr(), ffi::Py_EQ) } {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Raised),
    }
}

/// See [`Codec::plain_name`](super::Codec::plain_name).
pub fn plain_name(bytes: &[u8]) -> Option<&'static str> {
    Some(match *bytes.get(1)? {
        ..=tags::STR_SHORT_LAST | tags::STR_ASCII..=tags::STR_UCS4 => "str",
        tags::INT_SMALL..=tags::INT_SMALL_LAST | tags::INT..=tags::INT_BIG => "int",
        tags::LIST_SHORT..=tags::LIST_SHORT_LAST | tags::LIST => "list",
        tags::TUPLE_SHORT..=tags::TUPLE_SHORT_LAST | tags::TUPLE..=tags::TUPLE_AGAIN => "tuple",
        tags::DICT_SHORT..=tags::DICT_SHORT_LAST | tags::DICT => "dict",
        tags::FLOAT | tags::FLOAT_CENTS => "float",
        tags::NONE => "NoneType",
        tags::ARRAY => "array.array of characters",
        tags::ND_ARRAY => "numpy.ndarray",
        _ => return None,
    })
}

/// See [`Codec::raw_view`](super::Codec::raw_view).
pub fn raw_view(bytes: &[u8]) -> Option<RawView> {
    let (&format, &tag) = (bytes.first()?, bytes.get(1)?);
    if format != tags::FORMAT || !matches!(tag, tags::BYTES | tags::BYTEARRAY | tags::ARRAY) {
        return None;
    }
    let array = tag == tags::ARRAY;
    let code = if array { *bytes.get(2)? } else { b'B' };
    let at = 2 + usize::from(array);
    let (len, taken) = leading_varint(bytes.get(at..)?)?;
    let offset = if array { (at + taken).next_multiple_of(8) } else { at + taken };
    let len = usize::try_from(len).ok()?;
    (offset.checked_add(len)? <= bytes.len()).then_some(RawView { offset, len, format: code })
}
