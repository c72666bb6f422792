//! What a class allows: which of the ways to encode its instances gives what pickle gives.

#![expect(
    unpredictable_function_pointer_comparisons,
    reason = "slots of classes hold the interpreter's own functions, each of which has one address"
)]

use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::found::Found;
use super::inspect::{Inspect, slot};
use super::known::Known;
use super::layout::{Entry, Layout};
use super::numpy::Numpy;
use super::plan::{ANY_VERSION, Attributes, Kind, Plan, Uuid, version};
use super::record::{Declared, may_be_described, same_declared, same_names};
use super::registry::Registry;
use super::{global, inline, natives};
use crate::codec::object::{Own, Raise, in_class};
use crate::ffi::{self, PyTypeObject};

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
        let inspect = Inspect::new(known, class);
        let analysis = Analysis { registry, known, inspect, found: OnceCell::new() };
        let kind = match analysis.special()? {
            Some(kind) => kind,
            None => Kind::Reduce { user_code: analysis.runs_user_code()? },
        };
        Ok(Plan::new(held, version, kind, analysis.found.into_inner().unwrap_or_else(Found::nowhere)))
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
                // The first lookup numbers the class's present state; one that changes meanwhile has another number
                // then.
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

/// Heirs of these have no items that a reducer asks them for by iteration.
const NEVER_ITERATED: std::ffi::c_ulong = ffi::Py_TPFLAGS_TUPLE_SUBCLASS
    | ffi::Py_TPFLAGS_UNICODE_SUBCLASS
    | ffi::Py_TPFLAGS_BYTES_SUBCLASS
    | ffi::Py_TPFLAGS_LONG_SUBCLASS
    | ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS
    | ffi::Py_TPFLAGS_DICT_SUBCLASS;

/// A class that a plan is made for.
struct Analysis<'a> {
    registry: &'a Registry,
    known: &'a Known,
    inspect: Inspect<'a>,
    /// Where the class is found, if that was asked.
    found: OnceCell<Found>,
}

impl<'a> Deref for Analysis<'a> {
    type Target = Inspect<'a>;

    fn deref(&self) -> &Inspect<'a> {
        &self.inspect
    }
}

impl Analysis<'_> {
    /// A way that needs no `__reduce_ex__`, if the class allows one.
    fn special(&self) -> Raise<Option<Kind>> {
        let known = self.known;
        let names = &known.names;
        if !self.gets_attributes() {
            return Ok(None);
        }
        // SAFETY: both are live classes.
        if unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(self.held().ptr()), known.enum_meta.ptr().cast()) } != 0 {
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
        if !self.is_reduced_by_default() {
            return Ok(None);
        }
        // SAFETY: live classes.
        if unsafe { (*self.class()).tp_base } == &raw mut ffi::PyTuple_Type {
            return self.named_tuple();
        }
        self.object()
    }

    fn enumeration(&self) -> Raise<Option<Kind>> {
        let Some(members) = self.members()? else { return Ok(None) };
        // A class that cannot be imported is refused.
        let (class, found) = (self.held(), self.check()?);
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
        Ok((self.known.decimal(py)?.ptr() == self.held().ptr()).then_some(Kind::Decimal))
    }

    fn uuid(&self) -> Raise<Option<Kind>> {
        // SAFETY: codec functions run attached.
        let py = unsafe { pyo3::Python::assume_attached() };
        if self.known.uuid(py)?.0.ptr() != self.held().ptr() {
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
        let Some(names) = self.only_items()?.filter(|names| may_be_described(names)) else { return Ok(None) };
        let (class, found, len) = (self.held(), self.check()?, names.len());
        let entry = self.registry.find_or_add(
            class.ptr(),
            found,
            |entry| matches!(entry, Entry::NamedTuple { names: old, called: false, .. } if same_names(old, &names)),
            |id| Entry::NamedTuple {
                id,
                class: class.clone(),
                len,
                names: names.clone(),
                found: found.clone(),
                called: false,
                arranged: None,
            },
        );
        Ok(match entry {
            Entry::NamedTuple { id, .. } => Some(Kind::NamedTuple { id: *id, len }),
            _ => None,
        })
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
            let Some(slots) = slots.filter(|slots| may_be_described(slots)) else { return Ok(None) };
            let Some(offsets) = self.offsets(&slots, own_state) else { return Ok(None) };
            if has_dict && !self.ordinary_dict() {
                return Ok(None);
            }
            let layout = self.layout((&slots, &offsets), own_state, has_dict)?;
            Ok(layout.map(|base| {
                if has_dict {
                    Kind::Attributes(Attributes::new(base, inline::usable(self.class())))
                } else {
                    Kind::Slots(base)
                }
            }))
        }
    }

    /// Checks that the class is what its name leads to.
    fn check(&self) -> Raise<&Found> {
        let found = global::check(self.known, self.held())?;
        Ok(self.found.get_or_init(|| found))
    }

    fn layout(
        &self,
        (slots, offsets): (&[Own], &[isize]),
        listed: bool,
        has_dict: bool,
    ) -> Raise<Option<*const Layout>> {
        let declared: Declared =
            self.declared()?.map(|fields| Arc::new(fields.into_iter().map(|field| field.name).collect()));
        if declared.as_ref().is_some_and(|names| !may_be_described(&**names)) {
            return Ok(None);
        }
        let found = self.check()?;
        let entry = self.registry.find_or_add(
            self.held().ptr(),
            found,
            |entry| match entry {
                Entry::Object(old) => {
                    old.offsets == offsets
                        && (old.listed, old.has_dict) == (listed, has_dict)
                        && same_names(&old.names, slots)
                        && same_declared(&old.declared, &declared)
                }
                _ => false,
            },
            |id| {
                Entry::Object(Layout {
                    id,
                    class: self.held().clone(),
                    names: slots.to_vec(),
                    offsets: offsets.to_vec(),
                    indices: Vec::new(),
                    plain_at: AtomicU32::new(0),
                    found: found.clone(),
                    former_slots: 0,
                    listed,
                    has_dict,
                    declared: declared.clone(),
                    changes: None,
                })
            },
        );
        Ok(match entry {
            Entry::Object(layout) => Some(std::ptr::from_ref(layout)),
            _ => None,
        })
    }

    /// Whether `__reduce_ex__` of this class may return what its instances do not hold themselves. Python code may: its
    /// own, or what the interpreter's reducers call. They ask lists, sets and deques for `__iter__`, dicts for `items`,
    /// all for `__dict__` and slots, time zones for `__getinitargs__`. What else may, see [`natives::give_their_own`].
    fn runs_user_code(&self) -> Raise<bool> {
        let (known, names) = (self.known, &self.known.names);
        // SAFETY: live class.
        let flags = unsafe { ffi::PyType_GetFlags(self.class()) };
        if !self.gets_attributes() {
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
