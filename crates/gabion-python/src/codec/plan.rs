//! How instances of a class are encoded: found once per class, again when the class is modified.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pyo3::ffi::{self, PyObject, PyTypeObject};

use super::known::Known;
use super::object::{Own, Raise, attribute, attribute_or_none, import};
use super::registry::{Entry, Layout, Registry};
use super::{global, inline};

unsafe extern "C" {
    /// Finds a name in the classes of a class's resolution order; borrowed, null when absent, no error set. It also
    /// gives the class a version number when it has none.
    fn _PyType_Lookup(class: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject;
}

/// A plan that holds whatever happens to the class.
pub const ANY_VERSION: u32 = u32::MAX;

/// Sets of attribute names remembered per class; further ones are stored with their names inline.
const MAX_SHAPES: usize = 16;

/// How to encode the instances of `class`, as long as its version is `version`.
pub struct Plan {
    pub class: Own,
    pub version: u32,
    pub kind: Kind,
}

/// Ways to encode.
pub enum Kind {
    List,
    Tuple,
    Dict,
    Set,
    FrozenSet,
    Bytes,
    ByteArray,
    Complex,
    Range,
    Slice,
    DateTime,
    Date,
    Time,
    TimeDelta,
    TimeZone,
    PickleBuffer,
    Array,
    Decimal,
    Uuid(Uuid),
    /// A class or a function: by reference.
    Global,
    Enum(u32),
    NamedTuple {
        id: u32,
        len: usize,
    },
    /// Slots only.
    Slots(*const Layout),
    /// A `__dict__`, and perhaps slots.
    Attributes(Attributes),
    /// `__reduce_ex__`; `user_code` when Python code takes part, which may show objects that were met before.
    Reduce {
        user_code: bool,
    },
}

/// Where a UUID keeps its parts.
pub struct Uuid {
    pub int: isize,
    pub is_safe: isize,
}

/// Sets of attribute names that instances of one class were seen with.
pub struct Attributes {
    /// The layout without attributes.
    pub base: *const Layout,
    /// Whether [`inline::view`] may be asked.
    pub inline: bool,
    shapes: [AtomicPtr<Layout>; MAX_SHAPES],
    count: AtomicU32,
    adding: Mutex<()>,
}

// SAFETY: the layouts belong to the registry, which outlives its plans; everything mutable is atomic.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Attributes {
    /// The layouts known, oldest first.
    #[inline(always)]
    pub fn shapes(&self) -> impl Iterator<Item = &Layout> {
        // Acquire: pairs with the Release in `add`.
        let count = self.count.load(Ordering::Acquire) as usize;
        // SAFETY: the first `count` pointers are set, to layouts of the registry.
        self.shapes[..count].iter().map(|shape| unsafe { &*shape.load(Ordering::Relaxed) })
    }

    /// Remembers a layout, while there is room.
    fn add(&self, layout: &Layout) {
        let _guard = self.adding.lock();
        let count = self.count.load(Ordering::Relaxed); // Relaxed: under the lock.
        if (count as usize) < MAX_SHAPES && self.shapes().all(|shape| !std::ptr::eq(shape, layout)) {
            self.shapes[count as usize].store(std::ptr::from_ref(layout).cast_mut(), Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Release); // Release: the pointer before the count.
        }
    }

    /// The layout for instances with these attribute names, if there may be one.
    ///
    /// `names` are exact strings; `indices` is empty or one index per name.
    pub fn learn<'a>(&self, registry: &'a Registry, names: &[Own], indices: Vec<u8>) -> Option<&'a Layout> {
        // Acquire: as in `shapes`.
        if self.count.load(Ordering::Acquire) as usize >= MAX_SHAPES || names.iter().any(is_special) {
            return None;
        }
        // SAFETY: layouts live as long as the registry.
        let base = unsafe { &*self.base };
        let class = base.class.ptr().cast::<PyTypeObject>();
        let all: Vec<Own> = base.names.iter().chain(names).cloned().collect();
        // SAFETY: the class is held by the layout.
        let plain_at = unsafe { plain_version(class, names) };
        let entry = registry.find_or_add(
            base.class.ptr(),
            |entry| match entry {
                Entry::Object(old) => {
                    old.offsets == base.offsets
                        && old.plain_at == plain_at
                        && old.indices == indices
                        && old.names.len() == all.len()
                        && old.names.iter().zip(&all).all(|(a, b)| a.ptr() == b.ptr())
                }
                _ => false,
            },
            |id| {
                Entry::Object(Layout {
                    id,
                    class: base.class.clone(),
                    names: all.clone(),
                    offsets: base.offsets.clone(),
                    indices: indices.clone(),
                    plain_at,
                })
            },
        );
        let Entry::Object(layout) = entry else { return None };
        self.add(layout);
        Some(layout)
    }
}

/// Names that pickling looks up on the instance: an attribute of that name changes what pickling does.
fn is_special(name: &Own) -> bool {
    let special = [
        "__reduce_ex__",
        "__reduce__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__class__",
        "__dict__",
    ];
    // SAFETY: an exact string, held.
    unsafe {
        let mut len = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(name.ptr(), &raw mut len);
        if data.is_null() {
            // Lone surrogates: not one of those names.
            ffi::PyErr_Clear();
            return false;
        }
        let text = std::slice::from_raw_parts(data.cast::<u8>(), len as usize);
        special.iter().any(|name| name.as_bytes() == text)
    }
}

/// The version at which no name is a data descriptor of the class and attributes are set the ordinary way, else 0.
unsafe fn plain_version(class: *mut PyTypeObject, names: &[Own]) -> u32 {
    // SAFETY: the caller holds the class; lookups borrow from it.
    unsafe {
        let ordinary = (*class).tp_setattro == Some(ffi::PyObject_GenericSetAttr);
        let descriptor = |name: &Own| {
            let found = _PyType_Lookup(class, name.ptr());
            !found.is_null() && (*ffi::Py_TYPE(found)).tp_descr_set.is_some()
        };
        if ordinary && !names.iter().any(descriptor) { version(class) } else { 0 }
    }
}

/// The version of a class, which changes when the class or a base of it is modified; 0 when it has none just now.
#[inline(always)]
pub fn version(class: *mut PyTypeObject) -> u32 {
    // SAFETY: callers hold the class or an instance of it. A racing modification is seen before or after, like a racing
    // call of any method.
    unsafe { (&raw const (*class).tp_version_tag).read_volatile() }
}

/// Analyses a class.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn analyse(registry: &Registry, known: &Known, class: *mut PyTypeObject) -> Raise<Plan> {
    // SAFETY: live by the caller's word; `held` keeps it so.
    unsafe {
        let held = Own::share(class.cast());
        if known.reducer(class.cast())?.is_some() {
            return Ok(Plan { class: held, version: ANY_VERSION, kind: Kind::Reduce { user_code: true } });
        }
        if let Some(kind) = built_in(known, class)? {
            return Ok(Plan { class: held, version: ANY_VERSION, kind });
        }
        // The lookup numbers the class's present state; whatever changes it from here on changes the number.
        _PyType_Lookup(class, known.names.reduce_ex.ptr());
        let version = version(class);
        let inspect = Inspect { registry, known, class };
        let kind = match inspect.special()? {
            Some(kind) => kind,
            None => Kind::Reduce { user_code: inspect.runs_user_code() },
        };
        Ok(Plan { class: held, version, kind })
    }
}

unsafe fn built_in(known: &Known, class: *mut PyTypeObject) -> Raise<Option<Kind>> {
    // SAFETY: addresses of static classes; the datetime interface was loaded with the codec; `class` is live.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        let is = |other: *mut PyTypeObject| class == other;
        Ok(Some(if is(&raw mut ffi::PyList_Type) {
            Kind::List
        } else if is(&raw mut ffi::PyTuple_Type) {
            Kind::Tuple
        } else if is(&raw mut ffi::PyDict_Type) {
            Kind::Dict
        } else if is(&raw mut ffi::PySet_Type) {
            Kind::Set
        } else if is(&raw mut ffi::PyFrozenSet_Type) {
            Kind::FrozenSet
        } else if is(&raw mut ffi::PyBytes_Type) {
            Kind::Bytes
        } else if is(&raw mut ffi::PyByteArray_Type) {
            Kind::ByteArray
        } else if is(&raw mut ffi::PyComplex_Type) {
            Kind::Complex
        } else if is(&raw mut ffi::PyRange_Type) {
            Kind::Range
        } else if is(&raw mut ffi::PySlice_Type) {
            Kind::Slice
        } else if is(&raw mut ffi::PyFunction_Type) || ffi::PyType_IsSubtype(class, &raw mut ffi::PyType_Type) != 0 {
            Kind::Global
        } else if is(api.DateTimeType) {
            Kind::DateTime
        } else if is(api.DateType) {
            Kind::Date
        } else if is(api.TimeType) {
            Kind::Time
        } else if is(api.DeltaType) {
            Kind::TimeDelta
        } else if is(ffi::Py_TYPE(api.TimeZone_UTC)) {
            Kind::TimeZone
        } else if is(&raw mut PyPickleBuffer_Type) {
            Kind::PickleBuffer
        } else if class.cast() == known.array.ptr() {
            Kind::Array
        } else {
            return Ok(None);
        }))
    }
}

unsafe extern "C" {
    static mut PyPickleBuffer_Type: PyTypeObject;
}

/// A member descriptor, to read where a slot lies.
#[repr(C)]
struct MemberDescriptor {
    base: PyObject,
    class: *mut PyTypeObject,
    name: *mut PyObject,
    qualname: *mut PyObject,
    member: *const ffi::PyMemberDef,
}

struct Inspect<'a> {
    registry: &'a Registry,
    known: &'a Known,
    class: *mut PyTypeObject,
}

// Every method: the class is live, held by `analyse`.
impl Inspect<'_> {
    fn lookup(&self, name: &Own) -> *mut PyObject {
        // SAFETY: live class, exact string; borrowed from the class.
        unsafe { _PyType_Lookup(self.class, name.ptr()) }
    }

    fn is_default(&self, name: &Own, default: &Own) -> bool {
        self.lookup(name) == default.ptr()
    }

    /// A way that needs no `__reduce_ex__`, if the class allows one.
    fn special(&self) -> Raise<Option<Kind>> {
        let known = self.known;
        let names = &known.names;
        // SAFETY: live class.
        let (getattr, meta) = unsafe { ((*self.class).tp_getattro, ffi::Py_TYPE(self.class.cast())) };
        // A class with its own `__getattribute__` or `__getattr__` may answer pickle's questions as it likes.
        if getattr != Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc) {
            return Ok(None);
        }
        // SAFETY: both are live classes.
        if unsafe { ffi::PyType_IsSubtype(meta, known.enum_meta.ptr().cast()) } != 0 {
            return self.enumeration();
        }
        if !self.is_default(&names.reduce_ex, &known.object_reduce_ex) {
            return Ok(None);
        }
        // SAFETY: live class, static string inside it.
        match unsafe { std::ffi::CStr::from_ptr((*self.class).tp_name) }.to_bytes() {
            b"decimal.Decimal" => return self.decimal(),
            b"UUID" => return self.uuid(),
            _ => {}
        }
        if !self.is_default(&names.reduce, &known.object_reduce) || !self.lookup(&names.getnewargs_ex).is_null() {
            return Ok(None);
        }
        // SAFETY: live classes.
        if unsafe { (*self.class).tp_base } == &raw mut ffi::PyTuple_Type {
            return self.named_tuple();
        }
        self.object()
    }

    fn enumeration(&self) -> Raise<Option<Kind>> {
        let (known, names) = (self.known, &self.known.names);
        if !self.is_default(&names.reduce_ex, &known.enum_reduce_ex) {
            return Ok(None);
        }
        // SAFETY: live class; the map is held by the entry; a class that cannot be imported is refused.
        unsafe {
            let class = Own::share(self.class.cast());
            let members = Own::take(ffi::PyObject_GetAttr(class.ptr(), names.member_map.ptr()))?;
            if ffi::PyDict_CheckExact(members.ptr()) == 0 {
                return Ok(None);
            }
            global::check(known, &class)?;
            let entry = self.registry.find_or_add(
                class.ptr(),
                |entry| matches!(entry, Entry::Enum { .. }),
                |id| Entry::Enum { id, class: class.clone(), members: members.clone() },
            );
            Ok(match entry {
                Entry::Enum { id, .. } => Some(Kind::Enum(*id)),
                _ => None,
            })
        }
    }

    fn decimal(&self) -> Raise<Option<Kind>> {
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        Ok((self.known.decimal(py)?.ptr() == self.class.cast()).then_some(Kind::Decimal))
    }

    fn uuid(&self) -> Raise<Option<Kind>> {
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        if self.known.uuid(py)?.0.ptr() != self.class.cast() {
            return Ok(None);
        }
        let names = &self.known.names;
        Ok(match (self.slot(names.int.ptr()), self.slot(names.is_safe.ptr())) {
            (Some(int), Some(is_safe)) => Some(Kind::Uuid(Uuid { int, is_safe })),
            _ => None,
        })
    }

    /// A class made by `collections.namedtuple` or `typing.NamedTuple`, with nothing of its own beside the items.
    fn named_tuple(&self) -> Raise<Option<Kind>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class; borrowed lookups are shared before anything else runs.
        unsafe {
            let (fields, newargs, new) =
                (self.lookup(&names.fields), self.lookup(&names.getnewargs), self.lookup(&names.new));
            let plain = (*self.class).tp_dictoffset == 0
                && (*self.class).tp_basicsize == ffi::PyTuple_Type.tp_basicsize
                && self.is_default(&names.getstate, &known.object_getstate)
                && self.lookup(&names.setstate).is_null();
            if !plain || fields.is_null() || newargs.is_null() || new.is_null() || ffi::PyTuple_Check(fields) == 0 {
                return Ok(None);
            }
            let len = ffi::PyTuple_Size(fields) as usize;
            let newargs = Own::share(newargs);
            let Some(code) = attribute_or_none(newargs.ptr(), c"__code__")? else { return Ok(None) };
            let class = Own::share(self.class.cast());
            let new = attribute(class.ptr(), c"__new__")?;
            let Some(globals) = attribute_or_none(new.ptr(), c"__globals__")? else { return Ok(None) };
            let made = ffi::PyMapping_HasKeyString(globals.ptr(), c"_tuple_new".as_ptr()) != 0;
            if code.ptr() != known.named_tuple_code.ptr() || !made {
                return Ok(None);
            }
            global::check(known, &class)?;
            let entry = self.registry.find_or_add(
                class.ptr(),
                |entry| matches!(entry, Entry::NamedTuple { len: old, .. } if *old == len),
                |id| Entry::NamedTuple { id, class: class.clone(), len },
            );
            Ok(match entry {
                Entry::NamedTuple { id, .. } => Some(Kind::NamedTuple { id: *id, len }),
                _ => None,
            })
        }
    }

    /// An ordinary Python class: nothing but slots and a `__dict__`.
    fn object(&self) -> Raise<Option<Kind>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class, static base class.
        unsafe {
            let class = &*self.class;
            let base = &raw mut ffi::PyBaseObject_Type;
            let flags = ffi::PyType_GetFlags(self.class);
            let ordinary = flags & ffi::Py_TPFLAGS_HEAPTYPE != 0
                && flags & ffi::Py_TPFLAGS_IS_ABSTRACT == 0
                && class.tp_new == (*base).tp_new
                && class.tp_alloc == Some(ffi::PyType_GenericAlloc)
                && class.tp_itemsize == 0
                && self.lookup(&names.getnewargs).is_null()
                && self.lookup(&names.class) == _PyType_Lookup(base, names.class.ptr());
            if !ordinary {
                return Ok(None);
            }
            let own_state =
                !self.is_default(&names.getstate, &known.object_getstate) || !self.lookup(&names.setstate).is_null();
            let has_dict = class.tp_dictoffset != 0 || flags & (1 << 4) != 0;
            let slots = if own_state {
                if has_dict {
                    return Ok(None);
                }
                self.frozen_dataclass_fields()?
            } else {
                self.slot_names()?
            };
            let Some(slots) = slots else { return Ok(None) };
            let Some(offsets) = self.offsets(&slots, own_state) else { return Ok(None) };
            let held = Own::share(self.class.cast());
            if has_dict && !self.ordinary_dict()? {
                return Ok(None);
            }
            global::check(known, &held)?;
            let layout = self.layout(&held, &slots, &offsets);
            Ok(layout.map(|base| {
                if has_dict {
                    Kind::Attributes(Attributes {
                        base,
                        inline: inline::usable(self.class),
                        shapes: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
                        count: AtomicU32::new(0),
                        adding: Mutex::new(()),
                    })
                } else {
                    Kind::Slots(base)
                }
            }))
        }
    }

    fn layout(&self, class: &Own, slots: &[Own], offsets: &[isize]) -> Option<*const Layout> {
        let entry = self.registry.find_or_add(
            class.ptr(),
            |entry| match entry {
                Entry::Object(old) => old.names.len() == slots.len() && old.offsets == offsets,
                _ => false,
            },
            |id| {
                Entry::Object(Layout {
                    id,
                    class: class.clone(),
                    names: slots.to_vec(),
                    offsets: offsets.to_vec(),
                    indices: Vec::new(),
                    plain_at: 0,
                })
            },
        );
        match entry {
            Entry::Object(layout) => Some(std::ptr::from_ref(layout)),
            _ => None,
        }
    }

    /// Names of all slots, as `copyreg` lists them: inherited ones too, private names mangled.
    fn slot_names(&self) -> Raise<Option<Vec<Own>>> {
        // SAFETY: live class; a new reference or null with an error; items are strings held by the list.
        unsafe {
            let list = Own::take(ffi::PyObject_CallOneArg(self.known.slot_names.ptr(), self.class.cast()))?;
            if ffi::PyList_Check(list.ptr()) == 0 {
                return Ok(None);
            }
            let mut names: Vec<Own> = Vec::new();
            for i in 0..ffi::PyList_Size(list.ptr()) {
                let name = Own::share(ffi::PyList_GetItem(list.ptr(), i));
                if ffi::PyUnicode_CheckExact(name.ptr()) == 0 {
                    return Ok(None);
                }
                let mut raw = name.into_ptr();
                ffi::PyUnicode_InternInPlace(&raw mut raw);
                let name = Own::take(raw)?;
                if names.iter().all(|old| old.ptr() != name.ptr()) {
                    names.push(name);
                }
            }
            Ok(Some(names))
        }
    }

    /// Field names, when the state methods are those that `dataclass(frozen=True, slots=True)` adds.
    fn frozen_dataclass_fields(&self) -> Raise<Option<Vec<Own>>> {
        let names = &self.known.names;
        // SAFETY: live class; lookups are borrowed and compared by address only; the rest are held references.
        unsafe {
            if _PyType_Lookup(self.class, super::object::intern(c"__dataclass_fields__")?.ptr()).is_null() {
                return Ok(None);
            }
            let (getter, setter) =
                (import(c"dataclasses", c"_dataclass_getstate"), import(c"dataclasses", c"_dataclass_setstate"));
            let (Ok(getter), Ok(setter)) = (getter, setter) else {
                ffi::PyErr_Clear();
                return Ok(None);
            };
            if !self.is_default(&names.getstate, &getter) || !self.is_default(&names.setstate, &setter) {
                return Ok(None);
            }
            let list = import(c"dataclasses", c"fields")?;
            let fields = Own::take(ffi::PyObject_CallOneArg(list.ptr(), self.class.cast()))?;
            let mut found = Vec::new();
            for i in 0..ffi::PyTuple_Size(fields.ptr()) {
                let mut raw = attribute(ffi::PyTuple_GetItem(fields.ptr(), i), c"name")?.into_ptr();
                ffi::PyUnicode_InternInPlace(&raw mut raw);
                found.push(Own::take(raw)?);
            }
            Ok(Some(found))
        }
    }

    /// Offset of a name that is a slot's descriptor and nothing else.
    fn slot(&self, name: *mut PyObject) -> Option<isize> {
        // SAFETY: live class; the descriptor is borrowed from it; the cast is checked by its exact class.
        unsafe {
            let found = _PyType_Lookup(self.class, name);
            if found.is_null() || ffi::Py_TYPE(found) != &raw mut ffi::PyMemberDescr_Type {
                return None;
            }
            let descriptor = &*found.cast::<MemberDescriptor>();
            let member = &*descriptor.member;
            let ours = ffi::PyType_IsSubtype(self.class, descriptor.class) != 0;
            let plain = member.type_code == ffi::Py_T_OBJECT_EX as c_int && member.flags == 0 && ours;
            plain.then_some(member.offset)
        }
    }

    /// Offsets of all slots, provided that they and the standard parts are everything in an instance.
    fn offsets(&self, slots: &[Own], some: bool) -> Option<Vec<isize>> {
        let offsets: Vec<isize> = slots.iter().map(|name| self.slot(name.ptr())).collect::<Option<_>>()?;
        // SAFETY: live class.
        let class = unsafe { &*self.class };
        let word = size_of::<usize>() as isize;
        let mut expected = size_of::<PyObject>() as isize + word * offsets.len() as isize;
        expected += if class.tp_dictoffset > 0 { word } else { 0 };
        expected += if class.tp_weaklistoffset > 0 { word } else { 0 };
        (some || class.tp_basicsize <= expected).then_some(offsets)
    }

    /// Whether `__dict__` is the interpreter's own attribute.
    fn ordinary_dict(&self) -> Raise<bool> {
        // SAFETY: borrowed lookup, compared by its exact class.
        unsafe {
            let found = self.lookup(&self.known.names.dict);
            Ok(!found.is_null() && ffi::Py_TYPE(found) == &raw mut ffi::PyGetSetDescr_Type)
        }
    }

    /// Whether `__reduce_ex__` of this class runs Python code.
    fn runs_user_code(&self) -> bool {
        let names = &self.known.names;
        let native = |name: &Own| {
            let found = self.lookup(name);
            // SAFETY: borrowed lookup, compared by its exact class.
            found.is_null() || unsafe { ffi::Py_TYPE(found) == &raw mut ffi::PyMethodDescr_Type }
        };
        // SAFETY: live class.
        let ordinary = unsafe { (*self.class).tp_getattro } == Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc);
        let methods = [&names.reduce_ex, &names.reduce, &names.getstate, &names.getnewargs, &names.getnewargs_ex];
        !(ordinary && methods.into_iter().all(native))
    }
}
