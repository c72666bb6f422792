//! What a class allows: which of the ways to encode its instances gives what pickle gives.

#![expect(
    unpredictable_function_pointer_comparisons,
    reason = "slots of classes hold the interpreter's own functions, each of which has one address"
)]

use std::cell::OnceCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use super::found::Found;
use super::known::Known;
use super::layout::{Entry, Layout};
use super::numpy::Numpy;
use super::plan::{ANY_VERSION, Attributes, Kind, Plan, Uuid, version};
use super::registry::Registry;
use super::{global, inline, natives};
use crate::codec::object::{Own, Raise, attribute, attribute_or_none, import, in_class};
use crate::ffi::{self, PyObject, PyTypeObject};

/// How to encode instances of `class`: as found before, unless the class was modified since.
///
/// # Safety
/// `class` is a live class.
#[inline(always)]
pub unsafe fn plan<'a>(registry: &'a Registry, known: &Known, class: *mut PyTypeObject) -> Raise<&'a Plan> {
    // SAFETY: as the caller promised.
    unsafe {
        match registry.plan(class) {
            Some(plan) => Ok(plan),
            None => analyse(registry, known, class).map(|plan| registry.add_plan(class, plan)),
        }
    }
}

/// Analyses a class.
///
/// # Safety
/// `class` is a live class.
#[cold]
unsafe fn analyse(registry: &Registry, known: &Known, class: *mut PyTypeObject) -> Raise<Plan> {
    // SAFETY: live by the caller's word; `held` keeps it so.
    unsafe {
        let held = Own::share(class.cast());
        let built_in = natives::built_in(known, class);
        if !natives::is_never_asked_for(class, built_in.as_ref()) && known.reducer(class.cast())?.is_some() {
            return Ok(Plan::new(held, ANY_VERSION, Kind::Reduce { user_code: true }, Found::nowhere()));
        }
        if let Some(kind) = built_in {
            return Ok(Plan::new(held, ANY_VERSION, kind, Found::nowhere()));
        }
        // The lookup numbers the class's present state; whatever changes it from here on changes the number.
        in_class(class, known.names.reduce_ex.ptr());
        let version = version(class);
        if version == 0 {
            // Modified too often to be numbered: nothing would tell that it was modified again.
            return Ok(Plan::new(held, version, Kind::Reduce { user_code: true }, Found::nowhere()));
        }
        let inspect = Inspect::new(registry, known, class);
        let kind = match inspect.special()? {
            Some(kind) => kind,
            None => Kind::Reduce { user_code: inspect.runs_user_code()? },
        };
        Ok(Plan::new(held, version, kind, inspect.found.into_inner().unwrap_or_else(Found::nowhere)))
    }
}

/// What room a class has for the fields of the one before, and how its instances take them.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn room(registry: &Registry, known: &Known, class: *mut PyTypeObject) -> Raise<Room> {
    // SAFETY: as the caller promised.
    let inspect = unsafe { Inspect::new(registry, known, class) };
    let has_dict = inspect.has_dict();
    let slots = inspect.slot_names()?.unwrap_or_default();
    let sets_state = inspect.sets_state()?;
    // SAFETY: live class.
    let told = sets_state || unsafe { (*class).tp_getattro != Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc) };
    let quiet = !told && inspect.ordinary() && (!has_dict || inspect.ordinary_dict());
    let offsets = if quiet { inspect.offsets(&slots, false) } else { None };
    Ok(Room { slots, offsets, has_dict, sets_state })
}

/// How many items the instances of a class have, if it makes them as `collections.namedtuple` does.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn items(registry: &Registry, known: &Known, class: *mut PyTypeObject) -> Raise<Option<usize>> {
    // SAFETY: as the caller promised.
    unsafe { Inspect::new(registry, known, class) }.items()
}

/// Offset of a name that is a slot's descriptor and nothing else.
///
/// # Safety
/// A live class and a string.
unsafe fn slot(class: *mut PyTypeObject, name: *mut PyObject) -> Option<isize> {
    // SAFETY: as the caller promised; the descriptor is held; the cast is checked by its exact class.
    unsafe {
        let found = in_class(class, name)?;
        if ffi::Py_TYPE(found.ptr()) != &raw mut ffi::PyMemberDescr_Type {
            return None;
        }
        let descriptor = &*found.ptr().cast::<MemberDescriptor>();
        let member = &*descriptor.member;
        let ours = ffi::PyType_IsSubtype(class, descriptor.class) != 0;
        let plain = member.type_code == ffi::Py_T_OBJECT_EX as c_int && member.flags == 0 && ours;
        plain.then_some(member.offset)
    }
}

/// Whether the names of a layout that is of slots only still lead to these slots. If so, that is noted for
/// [`plan::is_plain`](super::plan::is_plain).
#[cold]
pub fn slots_stand(layout: &Layout) -> bool {
    let class: *mut PyTypeObject = layout.class.ptr().cast();
    // SAFETY: the layout holds the class and the names.
    unsafe {
        let mut before = 0;
        let ordinary = (*class).tp_getattro == Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc);
        let stand = ordinary
            && layout.names.iter().zip(&layout.offsets).all(|(name, &offset)| {
                let stands = slot(class, name.ptr()) == Some(offset);
                // The first lookup numbers the class's present state; one that changes meanwhile has another number then.
                if before == 0 {
                    before = version(class);
                }
                stands
            });
        if stand {
            layout.plain_at.store(before, Ordering::Relaxed); // Relaxed: see the field.
        }
        stand
    }
}

/// See [`room`].
pub struct Room {
    pub slots: Vec<Own>,
    /// Where they lie, in instances that are made as `object` makes them and may be filled without a word to the class.
    pub offsets: Option<Vec<isize>>,
    pub has_dict: bool,
    /// The class has a `__setstate__`, and takes what it likes.
    pub sets_state: bool,
}

/// Heirs of these have no items that a reducer asks them for by iteration.
const NEVER_ITERATED: std::ffi::c_ulong = ffi::Py_TPFLAGS_TUPLE_SUBCLASS
    | ffi::Py_TPFLAGS_UNICODE_SUBCLASS
    | ffi::Py_TPFLAGS_BYTES_SUBCLASS
    | ffi::Py_TPFLAGS_LONG_SUBCLASS
    | ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS
    | ffi::Py_TPFLAGS_DICT_SUBCLASS;

/// A member descriptor, to read where a slot lies.
#[repr(C)]
struct MemberDescriptor {
    base: PyObject,
    class: *mut PyTypeObject,
    name: *mut PyObject,
    qualname: *mut PyObject,
    member: *const ffi::PyMemberDef,
}

/// A class that is looked at.
struct Inspect<'a> {
    registry: &'a Registry,
    known: &'a Known,
    /// A class, as [`Inspect::new`] was promised: "live class" below.
    held: Own,
    /// Where the class is found, if that was asked.
    found: OnceCell<Found>,
}

impl<'a> Inspect<'a> {
    /// # Safety
    /// `class` is a live class.
    unsafe fn new(registry: &'a Registry, known: &'a Known, class: *mut PyTypeObject) -> Inspect<'a> {
        // SAFETY: live by the caller's word.
        Inspect { registry, known, held: unsafe { Own::share(class.cast()) }, found: OnceCell::new() }
    }

    /// The class, alive as long as `self`.
    fn class(&self) -> *mut PyTypeObject {
        self.held.ptr().cast()
    }

    fn lookup(&self, name: &Own) -> Option<Own> {
        // SAFETY: live class, exact string.
        unsafe { in_class(self.class(), name.ptr()) }
    }

    fn is_default(&self, name: &Own, default: &Own) -> bool {
        self.lookup(name).is_some_and(|found| found.ptr() == default.ptr())
    }

    /// A way that needs no `__reduce_ex__`, if the class allows one.
    fn special(&self) -> Raise<Option<Kind>> {
        let known = self.known;
        let names = &known.names;
        // SAFETY: live class.
        let (getattr, meta) = unsafe { ((*self.class()).tp_getattro, ffi::Py_TYPE(self.held.ptr())) };
        // A class with its own `__getattribute__` or `__getattr__` may answer pickle's questions as it likes.
        if getattr != Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc) {
            return Ok(None);
        }
        // SAFETY: both are live classes.
        if unsafe { ffi::PyType_IsSubtype(meta, known.enum_meta.ptr().cast()) } != 0 {
            return self.enumeration();
        }
        if let Some(kind) = self.of_numpy()? {
            return Ok(Some(kind));
        }
        if !self.is_default(&names.reduce_ex, &known.object_reduce_ex) {
            return Ok(None);
        }
        // SAFETY: live class, static string inside it.
        match unsafe { std::ffi::CStr::from_ptr((*self.class()).tp_name) }.to_bytes() {
            b"decimal.Decimal" => return self.decimal(),
            b"UUID" => return self.uuid(),
            _ => {}
        }
        if !self.is_default(&names.reduce, &known.object_reduce) || self.lookup(&names.getnewargs_ex).is_some() {
            return Ok(None);
        }
        // SAFETY: live classes.
        if unsafe { (*self.class()).tp_base } == &raw mut ffi::PyTuple_Type {
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
            let class = &self.held;
            let members = Own::take(ffi::PyObject_GetAttr(class.ptr(), names.member_map.ptr()))?;
            if ffi::PyDict_CheckExact(members.ptr()) == 0 {
                return Ok(None);
            }
            let found = self.check()?;
            let entry = self.registry.find_or_add(
                class.ptr(),
                found,
                |entry| matches!(entry, Entry::Enum { .. }),
                |id| Entry::Enum { id, class: class.clone(), members: members.clone(), found: found.clone() },
            );
            Ok(match entry {
                Entry::Enum { id, .. } => Some(Kind::Enum(*id)),
                _ => None,
            })
        }
    }

    /// The class of NumPy's arrays, and those of their items.
    fn of_numpy(&self) -> Raise<Option<Kind>> {
        // SAFETY: live class, static string inside it.
        let name = unsafe { std::ffi::CStr::from_ptr((*self.class()).tp_name) };
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        if !name.to_bytes().starts_with(b"numpy.") {
            return Ok(None);
        }
        Ok(Numpy::get(py)?.and_then(|numpy| {
            let array = numpy.has_class(self.class()).then_some(Kind::NdArray);
            array.or_else(|| numpy.scalar_of(self.class()).map(Kind::NdScalar))
        }))
    }

    fn decimal(&self) -> Raise<Option<Kind>> {
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        Ok((self.known.decimal(py)?.ptr() == self.held.ptr()).then_some(Kind::Decimal))
    }

    fn uuid(&self) -> Raise<Option<Kind>> {
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        if self.known.uuid(py)?.0.ptr() != self.held.ptr() {
            return Ok(None);
        }
        let names = &self.known.names;
        Ok(match (self.slot(&names.int), self.slot(&names.is_safe)) {
            (Some(int), Some(is_safe)) => Some(Kind::Uuid(Uuid { int, is_safe })),
            _ => None,
        })
    }

    /// A class made by `collections.namedtuple` or `typing.NamedTuple`, with nothing of its own beside the items.
    fn named_tuple(&self) -> Raise<Option<Kind>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class; what is looked up is held.
        unsafe {
            let (Some(newargs), Some(len)) = (self.lookup(&names.getnewargs), self.items()?) else { return Ok(None) };
            let plain = (*self.class()).tp_dictoffset == 0
                && (*self.class()).tp_basicsize == ffi::PyTuple_Type.tp_basicsize
                && self.is_default(&names.getstate, &known.object_getstate)
                && self.lookup(&names.setstate).is_none();
            let Some(code) = attribute_or_none(newargs.ptr(), c"__code__")? else { return Ok(None) };
            if !plain || code.ptr() != known.named_tuple_code.ptr() {
                return Ok(None);
            }
            let class = &self.held;
            let found = self.check()?;
            let entry = self.registry.find_or_add(
                class.ptr(),
                found,
                |entry| matches!(entry, Entry::NamedTuple { len: old, called: false, .. } if *old == len),
                |id| Entry::NamedTuple { id, class: class.clone(), len, found: found.clone(), called: false },
            );
            Ok(match entry {
                Entry::NamedTuple { id, .. } => Some(Kind::NamedTuple { id: *id, len }),
                _ => None,
            })
        }
    }

    /// How many items an instance has, if `__new__` is that of `collections.namedtuple`.
    fn items(&self) -> Raise<Option<usize>> {
        let names = &self.known.names;
        let (Some(fields), Some(_)) = (self.lookup(&names.fields), self.lookup(&names.new)) else { return Ok(None) };
        // SAFETY: live class; all are held.
        unsafe {
            let new = attribute(self.held.ptr(), c"__new__")?;
            let Some(globals) = attribute_or_none(new.ptr(), c"__globals__")? else { return Ok(None) };
            let made = ffi::PyTuple_Check(fields.ptr()) != 0
                && ffi::PyMapping_HasKeyString(globals.ptr(), c"_tuple_new".as_ptr()) != 0;
            Ok(made.then(|| ffi::PyTuple_Size(fields.ptr()) as usize))
        }
    }

    /// An ordinary Python class: nothing but slots and a `__dict__`.
    fn object(&self) -> Raise<Option<Kind>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class, static base class.
        unsafe {
            let base = &raw mut ffi::PyBaseObject_Type;
            let ordinary = self.ordinary()
                && self.lookup(&names.getnewargs).is_none()
                && in_class(base, names.class.ptr()).is_some_and(|class| self.is_default(&names.class, &class));
            if !ordinary {
                return Ok(None);
            }
            let own_state =
                !self.is_default(&names.getstate, &known.object_getstate) || self.lookup(&names.setstate).is_some();
            let has_dict = self.has_dict();
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
            if has_dict && !self.ordinary_dict() {
                return Ok(None);
            }
            let layout = self.layout(&slots, &offsets, own_state, self.check()?);
            Ok(layout.map(|base| {
                if has_dict {
                    Kind::Attributes(Attributes::new(base, inline::usable(self.class())))
                } else {
                    Kind::Slots(base)
                }
            }))
        }
    }

    /// Whether instances are made as `object` makes them.
    fn ordinary(&self) -> bool {
        // SAFETY: live class, static base class.
        unsafe {
            let (class, flags) = (&*self.class(), ffi::PyType_GetFlags(self.class()));
            flags & ffi::Py_TPFLAGS_HEAPTYPE != 0
                && flags & ffi::Py_TPFLAGS_IS_ABSTRACT == 0
                && class.tp_new == ffi::PyBaseObject_Type.tp_new
                && class.tp_alloc == Some(pyo3::ffi::PyType_GenericAlloc)
                && class.tp_itemsize == 0
        }
    }

    /// Whether the class has a `__setstate__`, other than that of frozen dataclasses with slots, which goes by position: their
    /// fields, too, come back by their names.
    fn sets_state(&self) -> Raise<bool> {
        let Some(set) = self.lookup(&self.known.names.setstate) else { return Ok(false) };
        // SAFETY: NUL-terminated strings; a new reference or null with an error, held while it is asked.
        unsafe {
            let dataclasses = Own::take(ffi::PyImport_ImportModule(c"dataclasses".as_ptr()))?;
            let known = attribute_or_none(dataclasses.ptr(), c"_dataclass_setstate")?;
            Ok(known.is_none_or(|known| known.ptr() != set.ptr()))
        }
    }

    fn has_dict(&self) -> bool {
        // SAFETY: live class.
        unsafe { (*self.class()).tp_dictoffset != 0 || ffi::PyType_GetFlags(self.class()) & inline::MANAGED_DICT != 0 }
    }

    /// Checks that the class is what its name leads to.
    fn check(&self) -> Raise<&Found> {
        let found = global::check(self.known, &self.held)?;
        Ok(self.found.get_or_init(|| found))
    }

    fn layout(&self, slots: &[Own], offsets: &[isize], listed: bool, found: &Found) -> Option<*const Layout> {
        let entry = self.registry.find_or_add(
            self.held.ptr(),
            found,
            |entry| match entry {
                Entry::Object(old) => old.names.len() == slots.len() && old.offsets == offsets && old.listed == listed,
                _ => false,
            },
            |id| {
                Entry::Object(Layout {
                    id,
                    class: self.held.clone(),
                    names: slots.to_vec(),
                    offsets: offsets.to_vec(),
                    indices: Vec::new(),
                    plain_at: AtomicU32::new(0),
                    found: found.clone(),
                    former_slots: 0,
                    listed,
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
            let list = Own::take(ffi::PyObject_CallOneArg(self.known.slot_names.ptr(), self.held.ptr()))?;
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
        // SAFETY: live class; all are held references.
        unsafe {
            if self.lookup(&crate::codec::object::intern(c"__dataclass_fields__")?).is_none() {
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
            let fields = Own::take(ffi::PyObject_CallOneArg(list.ptr(), self.held.ptr()))?;
            let mut found = Vec::new();
            for i in 0..ffi::PyTuple_Size(fields.ptr()) {
                let mut raw = attribute(ffi::PyTuple_GetItem(fields.ptr(), i), c"name")?.into_ptr();
                ffi::PyUnicode_InternInPlace(&raw mut raw);
                found.push(Own::take(raw)?);
            }
            Ok(Some(found))
        }
    }

    /// Offset of a slot by its name, a string.
    fn slot(&self, name: &Own) -> Option<isize> {
        // SAFETY: live class and string.
        unsafe { slot(self.class(), name.ptr()) }
    }

    /// Offsets of all slots, provided that they and the standard parts are everything in an instance.
    fn offsets(&self, slots: &[Own], some: bool) -> Option<Vec<isize>> {
        let offsets: Vec<isize> = slots.iter().map(|name| self.slot(name)).collect::<Option<_>>()?;
        // SAFETY: live class.
        let class = unsafe { &*self.class() };
        let word = size_of::<usize>() as isize;
        let mut expected = size_of::<PyObject>() as isize + word * offsets.len() as isize;
        expected += if class.tp_dictoffset > 0 { word } else { 0 };
        expected += if class.tp_weaklistoffset > 0 { word } else { 0 };
        (some || class.tp_basicsize <= expected).then_some(offsets)
    }

    /// Whether `__dict__` is the interpreter's own attribute.
    fn ordinary_dict(&self) -> bool {
        let found = self.lookup(&self.known.names.dict);
        // SAFETY: what was found is held.
        found.is_some_and(|found| unsafe { ffi::Py_TYPE(found.ptr()) == &raw mut ffi::PyGetSetDescr_Type })
    }

    /// Whether `__reduce_ex__` of this class may return what its instances do not hold themselves. Python code may: its own, or what
    /// the interpreter's reducers call. They ask lists, sets and deques for `__iter__`, dicts for `items`, all for `__dict__` and
    /// slots, time zones for `__getinitargs__`. What else may, see [`natives::give_their_own`].
    fn runs_user_code(&self) -> Raise<bool> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class.
        let (getattr, flags) = unsafe { ((*self.class()).tp_getattro, ffi::PyType_GetFlags(self.class())) };
        if getattr != Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc) {
            return Ok(true);
        }
        let own = |name: &Own, native: &[*mut PyTypeObject]| {
            // SAFETY: what was found is held.
            self.lookup(name).is_some_and(|found| unsafe { !native.contains(&ffi::Py_TYPE(found.ptr())) })
        };
        let methods = [&raw mut ffi::PyMethodDescr_Type, &raw mut ffi::PyWrapperDescr_Type];
        let parts = [&raw mut ffi::PyGetSetDescr_Type, &raw mut ffi::PyMemberDescr_Type];
        let called = [&names.reduce_ex, &names.reduce, &names.getstate, &names.getnewargs, &names.getnewargs_ex];
        let is = |kinds: std::ffi::c_ulong| flags & kinds != 0;
        let own_iteration = own(&names.iter, &methods) && !is(NEVER_ITERATED);
        let own_items = is(ffi::Py_TPFLAGS_DICT_SUBCLASS) && own(&names.items, &methods);
        if own_iteration
            || own_items
            || called.into_iter().chain([&names.getinitargs]).any(|name| own(name, &methods))
            || [&names.dict, &names.class].into_iter().any(|name| own(name, &parts))
            || !natives::give_their_own(known, |name| self.lookup(name))
        {
            return Ok(true);
        }
        // Slots are for `object.__getstate__` to ask for. Classes that are not made at run time have none.
        if !is(ffi::Py_TPFLAGS_HEAPTYPE) || !self.is_default(&names.getstate, &known.object_getstate) {
            return Ok(false);
        }
        let Some(slots) = self.slot_names()? else { return Ok(true) };
        Ok(slots.iter().any(|name| own(name, &parts)))
    }
}
