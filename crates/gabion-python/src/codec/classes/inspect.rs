//! What a class has: slots, a `__dict__`, items, members, fields that it declares; and who has a say in how its
//! instances are made and filled.

#![expect(
    unpredictable_function_pointer_comparisons,
    reason = "slots of classes hold the interpreter's own functions, each of which has one address"
)]

use std::ffi::c_int;

use super::inline;
use super::known::Known;
use crate::codec::object::{Own, Raise, Raised, attribute, attribute_or_none, import, in_class, intern, intern_own};
use crate::codec::room;
use crate::ffi::{self, PyObject, PyTypeObject};
use crate::once::Importing;

/// A class that is looked at.
pub struct Inspect<'a> {
    known: &'a Known,
    /// A class, as [`Inspect::new`] was promised: "live class" below.
    held: Own,
}

/// What room a class has for the fields of the one before, and how its instances take them.
pub struct Room {
    pub slots: Vec<Own>,
    /// Where they lie, in instances that are made as `object` makes them and may be filled without a word to the class.
    pub offsets: Option<Vec<isize>>,
    pub has_dict: bool,
    /// The class has a `__setstate__`, and takes what it likes.
    pub sets_state: bool,
}

/// A field that a dataclass declares.
pub struct Field {
    /// Interned.
    pub name: Own,
    pub default: Option<Own>,
    pub factory: Option<Own>,
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

/// Offset of a name that is a slot's descriptor and nothing else.
///
/// # Safety
/// A live class and a string.
pub unsafe fn slot(class: *mut PyTypeObject, name: *mut PyObject) -> Option<isize> {
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

impl<'a> Inspect<'a> {
    /// # Safety
    /// `class` is a live class.
    pub unsafe fn new(known: &'a Known, class: *mut PyTypeObject) -> Inspect<'a> {
        // SAFETY: live by the caller's word.
        Inspect { known, held: unsafe { Own::share(class.cast()) } }
    }

    /// The class, held.
    pub fn held(&self) -> &Own {
        &self.held
    }

    /// The class, alive as long as `self`.
    pub fn class(&self) -> *mut PyTypeObject {
        self.held.ptr().cast()
    }

    pub fn lookup(&self, name: &Own) -> Option<Own> {
        // SAFETY: live class, exact string.
        unsafe { in_class(self.class(), name.ptr()) }
    }

    pub fn is_default(&self, name: &Own, default: &Own) -> bool {
        self.lookup(name).is_some_and(|found| found.ptr() == default.ptr())
    }

    /// What room there is for the fields of the class before.
    ///
    /// # Errors
    /// What code of the class's metaclass raises, as below.
    pub fn room(&self) -> Raise<Room> {
        let has_dict = self.has_dict();
        let slots = self.slot_names()?.unwrap_or_default();
        let sets_state = self.sets_state()?;
        let told = sets_state || !self.gets_attributes();
        let quiet = !told && self.ordinary() && (!has_dict || self.ordinary_dict());
        let offsets = if quiet { self.offsets(&slots, false) } else { None };
        Ok(Room { slots, offsets, has_dict, sets_state })
    }

    /// Whether instances are asked for attributes as the interpreter asks: one with its own `__getattribute__` or
    /// `__getattr__` may answer pickle's questions as it likes.
    pub fn gets_attributes(&self) -> bool {
        // SAFETY: live class.
        unsafe { (*self.class()).tp_getattro == Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc) }
    }

    /// Whether the interpreter's own `__reduce_ex__` and `__reduce__` take instances apart.
    pub fn is_reduced_by_default(&self) -> bool {
        let (known, names) = (self.known, &self.known.names);
        self.is_default(&names.reduce_ex, &known.object_reduce_ex)
            && self.is_default(&names.reduce, &known.object_reduce)
            && self.lookup(&names.getnewargs_ex).is_none()
    }

    /// Members by their names, if it is an enum whose members are stored by these.
    ///
    /// # Errors
    /// Those of an attribute.
    pub fn members(&self) -> Raise<Option<Own>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live classes; the map is held.
        unsafe {
            let is_enum = ffi::PyType_IsSubtype(ffi::Py_TYPE(self.held.ptr()), known.enum_meta.ptr().cast()) != 0;
            let default = self.is_default(&names.reduce_ex, &known.enum_reduce_ex)
                || self.is_default(&names.reduce_ex, &known.flag_reduce_ex);
            if !is_enum || !self.gets_attributes() || !default {
                return Ok(None);
            }
            let members = Own::take(ffi::PyObject_GetAttr(self.held.ptr(), names.member_map.ptr()))?;
            Ok((ffi::PyDict_CheckExact(members.ptr()) != 0).then_some(members))
        }
    }

    /// Names of the items, if it was made by `collections.namedtuple` or `typing.NamedTuple`, with nothing of its own
    /// beside them.
    ///
    /// # Errors
    /// Those of attributes.
    pub fn only_items(&self) -> Raise<Option<Vec<Own>>> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class; what is looked up is held.
        unsafe {
            let of_tuple = (*self.class()).tp_base == &raw mut ffi::PyTuple_Type;
            if !of_tuple || !self.gets_attributes() || !self.is_reduced_by_default() {
                return Ok(None);
            }
            let (Some(newargs), Some(items)) = (self.lookup(&names.getnewargs), self.items()?) else { return Ok(None) };
            let plain = (*self.class()).tp_dictoffset == 0
                && (*self.class()).tp_basicsize == ffi::PyTuple_Type.tp_basicsize
                && self.is_default(&names.getstate, &known.object_getstate)
                && self.lookup(&names.setstate).is_none();
            let Some(code) = attribute_or_none(newargs.ptr(), c"__code__")? else { return Ok(None) };
            Ok((plain && code.ptr() == known.named_tuple_code.ptr()).then_some(items))
        }
    }

    /// Names of the items of an instance, if `__new__` is that of `collections.namedtuple`.
    ///
    /// # Errors
    /// Those of attributes.
    pub fn items(&self) -> Raise<Option<Vec<Own>>> {
        let names = &self.known.names;
        let (Some(fields), Some(_)) = (self.lookup(&names.fields), self.lookup(&names.new)) else { return Ok(None) };
        // SAFETY: live class; all are held.
        unsafe {
            let new = attribute(self.held.ptr(), c"__new__")?;
            let Some(globals) = attribute_or_none(new.ptr(), c"__globals__")? else { return Ok(None) };
            if ffi::PyDict_Check(globals.ptr()) == 0 {
                return Ok(None);
            }
            match ffi::PyDict_Contains(globals.ptr(), intern(c"_tuple_new")?.ptr()) {
                0 => Ok(None),
                1 => names_of(&fields),
                _ => Err(Raised),
            }
        }
    }

    /// Fields that the class declares, if it is a dataclass. As `dataclasses.fields`, which is written in Python, finds
    /// them.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn declared(&self) -> Raise<Option<Vec<Field>>> {
        let Some(fields) = self.lookup(&intern(c"__dataclass_fields__")?) else { return Ok(None) };
        fields_in(&fields).or_else(|Raised| {
            // SAFETY: attached, with an error set. Who made something else of it is no dataclass.
            unsafe {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0
                    || ffi::PyErr_ExceptionMatches(ffi::PyExc_MemoryError) != 0
                {
                    return Err(Raised);
                }
                ffi::PyErr_Clear();
            }
            Ok(None)
        })
    }

    /// Whether instances are made as `object` makes them.
    pub fn ordinary(&self) -> bool {
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

    /// Whether the class has a `__setstate__`, other than that of frozen dataclasses with slots, which goes by
    /// position: their fields, too, come back by their names.
    pub fn sets_state(&self) -> Raise<bool> {
        let Some(set) = self.lookup(&self.known.names.setstate) else { return Ok(false) };
        let _importing = Importing::begin();
        // SAFETY: NUL-terminated strings; a new reference or null with an error, held while it is asked.
        unsafe {
            let dataclasses = Own::take(ffi::PyImport_ImportModule(c"dataclasses".as_ptr()))?;
            let known = attribute_or_none(dataclasses.ptr(), c"_dataclass_setstate")?;
            Ok(known.is_none_or(|known| known.ptr() != set.ptr()))
        }
    }

    pub fn has_dict(&self) -> bool {
        // SAFETY: live class.
        unsafe { (*self.class()).tp_dictoffset != 0 || ffi::PyType_GetFlags(self.class()) & inline::MANAGED_DICT != 0 }
    }

    /// Names of all slots, as `copyreg` lists them: inherited ones too, private names mangled.
    pub fn slot_names(&self) -> Raise<Option<Vec<Own>>> {
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
                let name = intern_own(name);
                if names.iter().all(|old| old.ptr() != name.ptr()) {
                    names.push(name);
                }
            }
            Ok(Some(names))
        }
    }

    /// Field names, when the state methods are those that `dataclass(frozen=True, slots=True)` adds.
    pub fn frozen_dataclass_fields(&self) -> Raise<Option<Vec<Own>>> {
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
            Ok(self.declared()?.map(|fields| fields.into_iter().map(|field| field.name).collect()))
        }
    }

    /// Offset of a slot by its name, a string.
    pub fn slot(&self, name: &Own) -> Option<isize> {
        // SAFETY: live class and string.
        unsafe { slot(self.class(), name.ptr()) }
    }

    /// Offsets of all slots, provided that they and the standard parts are everything in an instance.
    pub fn offsets(&self, slots: &[Own], some: bool) -> Option<Vec<isize>> {
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
    pub fn ordinary_dict(&self) -> bool {
        let found = self.lookup(&self.known.names.dict);
        // SAFETY: what was found is held.
        found.is_some_and(|found| unsafe { ffi::Py_TYPE(found.ptr()) == &raw mut ffi::PyGetSetDescr_Type })
    }
}

/// The fields among those that a dataclass notes, which has variables of the class there, too.
fn fields_in(noted: &Own) -> Raise<Option<Vec<Field>>> {
    let (is_field, missing) = (import(c"dataclasses", c"_FIELD")?, import(c"dataclasses", c"MISSING")?);
    let mut fields = Vec::new();
    // SAFETY: held; a new list, whose items are borrowed while it is held; new references or null with an error.
    unsafe {
        if ffi::PyDict_Check(noted.ptr()) == 0 {
            return Ok(None);
        }
        let noted = Own::take(ffi::PyDict_Values(noted.ptr()))?;
        for i in 0..ffi::PyList_Size(noted.ptr()) {
            let field = ffi::PyList_GetItem(noted.ptr(), i);
            if attribute(field, c"_field_type")?.ptr() != is_field.ptr() {
                continue;
            }
            let given =
                |name| attribute(field, name).map(|value| Some(value).filter(|value| value.ptr() != missing.ptr()));
            let name = intern_own(attribute(field, c"name")?);
            let (default, factory) = (given(c"default")?, given(c"default_factory")?);
            room::push(&mut fields, Field { name, default, factory })?;
        }
    }
    Ok(Some(fields))
}

/// The names in a tuple of such; `None` of anything else.
///
/// # Errors
/// `MemoryError`.
pub fn names_of(tuple: &Own) -> Raise<Option<Vec<Own>>> {
    let mut names = Vec::new();
    // SAFETY: held by the caller; items are borrowed from a tuple.
    unsafe {
        if ffi::PyTuple_Check(tuple.ptr()) == 0 {
            return Ok(None);
        }
        for i in 0..ffi::PyTuple_Size(tuple.ptr()) {
            let name = Own::share(ffi::PyTuple_GetItem(tuple.ptr(), i));
            if ffi::PyUnicode_CheckExact(name.ptr()) == 0 {
                return Ok(None);
            }
            room::push(&mut names, intern_own(name))?;
        }
    }
    Ok(Some(names))
}
