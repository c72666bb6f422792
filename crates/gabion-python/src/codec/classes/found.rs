//! Where a class or a function is found, and whether its name still leads to it.
//!
//! ```text
//!   sys.modules ──"models"──► a module's dict ──"Person"──► the class
//! ```
//! A module that is loaded again, or a cell of a notebook that runs again, puts another class under the name. That is
//! noticed at the next object: see `seen`, and the tables at the head of `registry`.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::known::Known;
use super::seen::{self, Seen};
use crate::codec::object::{Own, Raise, Raised, as_py, intern, intern_own, is_same_text, is_text};
use crate::ffi::{self, PyObject, PyTypeObject};
use crate::once::Importing;

/// A dict on the way, and the name to look up in it.
struct Link {
    dict: Own,
    name: Own,
}

/// What a name led to.
pub struct Found {
    module: Option<Own>,
    name: Option<Own>,
    /// Compared only; its owner holds it.
    object: *mut PyObject,
    /// From `sys.modules` on. Empty where the way is none of dicts, such as a module's `__getattr__`: then it is not
    /// looked at again.
    links: Box<[Link]>,
    seen: Seen,
    /// The name led to nothing of the kind when it was looked up last.
    astray: AtomicBool,
}

// SAFETY: the object is only compared, numbers are read under the interpreter's lock, the rest is shared as `Own` and
// atomics are.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Found {
    /// For what is not found by a name.
    pub fn nowhere() -> Found {
        Found {
            module: None,
            name: None,
            object: std::ptr::null_mut(),
            links: Box::default(),
            seen: Seen::new([].iter()),
            astray: AtomicBool::new(false),
        }
    }

    /// Imports the module and follows the dotted name.
    ///
    /// # Errors
    /// Those of the import and of the lookups.
    ///
    /// # Safety
    /// Both are live objects, the name a string.
    pub unsafe fn follow(module: *mut PyObject, name: *mut PyObject) -> Raise<(Own, Found)> {
        // What a module has may be imported when it is asked for.
        let _importing = Importing::begin();
        // SAFETY: live by the caller's word; items are borrowed from a list that is held.
        unsafe {
            let mut way = Way { dicts: Vec::new(), plain: true };
            way.enter(ffi::PyImport_GetModuleDict(), &Own::share(module));
            let mut object = Own::take(ffi::PyImport_Import(module))?;
            way.plain &= way.leads_to(&object);
            let parts = Own::take(ffi::PyUnicode_Split(name, intern(c".")?.ptr(), -1))?;
            for i in 0..ffi::PyList_Size(parts.ptr()) {
                // Of two equal strings, the dict's own is found sooner.
                let part = intern_own(Own::share(ffi::PyList_GetItem(parts.ptr(), i)));
                let inside = namespace(object.ptr());
                way.enter(inside, &part);
                object = Own::take(ffi::PyObject_GetAttr(object.ptr(), part.ptr()))?;
                way.plain &= !inside.is_null() && way.leads_to(&object);
            }
            // What holds is seen when it is first asked.
            let links = way.links();
            let found = Found {
                module: Some(Own::share(module)),
                name: Some(Own::share(name)),
                object: object.ptr(),
                seen: Seen::new(links.iter().map(|link: &Link| &link.dict)),
                links,
                astray: AtomicBool::new(false),
            };
            Ok((object, found))
        }
    }

    /// Module and name, if it was found by them.
    pub fn names(&self) -> Option<(&Own, &Own)> {
        self.module.as_ref().zip(self.name.as_ref())
    }

    /// Whether the name leads where it led. False with certainty only: what is found in another way counts as there.
    #[inline(always)]
    pub fn holds(&self) -> bool {
        self.is_as_seen() || self.revalidate()
    }

    /// As [`Found::holds`] where that was asked before, and nothing was bound anew since.
    #[inline(always)]
    pub fn is_as_seen(&self) -> bool {
        self.seen.is_now()
    }

    /// As [`Found::holds`], and the name did not go astray.
    pub fn leads_here(&self) -> bool {
        self.holds() && !self.astray.load(Ordering::Relaxed) // Relaxed: see `Seen`.
    }

    /// As [`Found::leads_here`], where it was found by this name.
    ///
    /// # Safety
    /// The name is a live string.
    pub unsafe fn leads_here_from(&self, name: *mut PyObject) -> bool {
        // SAFETY: two live strings.
        let named = self.name.as_ref().is_some_and(|own| unsafe { ffi::PyUnicode_Compare(own.ptr(), name) == 0 });
        named && self.leads_here()
    }

    /// Follows the links again.
    #[cold]
    pub fn revalidate(&self) -> bool {
        let now = self.seen.now();
        // In a loop of a script each variable is one of the module's.
        let astray = self.astray.load(Ordering::Relaxed); // Relaxed: see `Seen`.
        let from = usize::from(!astray && self.seen.has_same_modules());
        let mut next = self.links.iter().skip(from + 1);
        for link in self.links.iter().skip(from) {
            let Some(value) = look_up(&link.dict, &link.name) else { return false };
            let same = match next.next() {
                // SAFETY: the value is held here.
                Some(next) => unsafe { namespace(value.ptr()) == next.dict.ptr() },
                None => value.ptr() == self.object,
            };
            if !same {
                return false;
            }
        }
        self.seen.set(now);
        self.astray.store(false, Ordering::Relaxed); // Relaxed: see `Seen`.
        true
    }

    /// What the name leads to now, and how; `None` where it leads to nothing that will do.
    ///
    /// # Errors
    /// Those of an import, except that there is no such module.
    pub fn now(&self, will_do: impl FnOnce(&Own) -> bool) -> Raise<Option<(Own, Found)>> {
        let (Some(module), Some(name)) = (&self.module, &self.name) else { return Ok(None) };
        let now = self.seen.now();
        // SAFETY: both are held.
        match unsafe { Found::follow(module.ptr(), name.ptr()) } {
            Ok(found) if will_do(&found.0) => return Ok(Some(found)),
            Ok(_) => {}
            // SAFETY: an error is set, which is compared with classes of the interpreter.
            Err(Raised) => unsafe {
                let missing = [ffi::PyExc_ImportError, ffi::PyExc_AttributeError];
                if missing.into_iter().all(|kind| ffi::PyErr_ExceptionMatches(kind) == 0) {
                    return Err(Raised);
                }
                ffi::PyErr_Clear();
            },
        }
        // It stays so until one of the dicts changes.
        self.seen.set(now);
        self.astray.store(true, Ordering::Relaxed); // Relaxed: see `Seen`.
        Ok(None)
    }

    /// Whether both were found by one name. The same object may be found by another one later: what was stored means
    /// the name.
    pub fn is_named_as(&self, other: &Found) -> bool {
        let is_same = |one: &Option<Own>, other: &Option<Own>| match (one, other) {
            (Some(one), Some(other)) => is_same_text(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same(&self.name, &other.name) && is_same(&self.module, &other.module)
    }

    /// Whether a class that was found by its own name has it still. What belongs to the interpreter has it for good.
    ///
    /// # Safety
    /// A live class.
    #[inline]
    pub unsafe fn is_name_of(&self, class: *mut PyTypeObject) -> bool {
        let Some(name) = &self.name else { return true };
        // SAFETY: live by the caller's word; a class that was made at run time has the longer struct, of which an
        // address is compared; a new reference or null with an error.
        unsafe {
            !is_made_at_run_time(class)
                || is_at(&raw mut (*class.cast::<ffi::PyHeapTypeObject>()).ht_qualname, name)
                || says(Own::take(ffi::PyType_GetQualName(class)), name)
        }
    }

    /// Whether a class or a function says of itself where it was found. What says nothing, or belongs to the
    /// interpreter and cannot say otherwise, counts as such.
    ///
    /// # Safety
    /// A live object.
    pub unsafe fn is_told_by(&self, object: *mut PyObject, known: &Known) -> bool {
        let (Some(module), Some(name)) = (&self.module, &self.name) else { return true };
        // SAFETY: live by the caller's word; addresses in it are compared; a class that was made at run time has a
        // dict; new references, or null with an error or without.
        unsafe {
            if ffi::PyFunction_Check(object) != 0 {
                let function = object.cast::<ffi::PyFunctionObject>();
                let own = |name: &Own| Own::take(ffi::PyObject_GetAttr(object, name.ptr()));
                (is_at(&raw mut (*function).func_qualname, name) || says(own(&known.names.qualname), name))
                    && (is_at(&raw mut (*function).func_module, module) || says(own(&known.names.module), module))
            } else if ffi::PyType_Check(object) != 0 && is_made_at_run_time(object.cast()) {
                let class = object.cast::<PyTypeObject>();
                self.is_name_of(class) && {
                    let mut own = std::ptr::null_mut();
                    ffi::compat::PyDict_GetItemRef((*class).tp_dict, known.names.module.ptr(), &raw mut own);
                    says(Own::take(own), module)
                }
            } else {
                true
            }
        }
    }

    /// Whether both are the same way to the same object.
    pub fn is_equivalent(&self, other: &Found) -> bool {
        let same = |(one, other): (&Link, &Link)| one.dict.ptr() == other.dict.ptr();
        self.object == other.object
            && self.is_named_as(other)
            && self.links.len() == other.links.len()
            && self.links.iter().zip(&other.links).all(same)
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.links.iter().try_for_each(|link| visit.call(as_py(&link.dict)))
    }
}

impl Clone for Found {
    fn clone(&self) -> Found {
        let links: Box<[Link]> =
            self.links.iter().map(|link| Link { dict: link.dict.clone(), name: link.name.clone() }).collect();
        Found {
            module: self.module.clone(),
            name: self.name.clone(),
            object: self.object,
            // The first comparison looks.
            seen: Seen::new(links.iter().map(|link: &Link| &link.dict)),
            links,
            astray: AtomicBool::new(self.astray.load(Ordering::Relaxed)), // Relaxed: see `Seen`.
        }
    }
}

/// Whether this very object stands at a place.
///
/// # Safety
/// A field of a live object, which another thread may change where there is no global lock.
unsafe fn is_at(place: *mut *mut PyObject, object: &Own) -> bool {
    // SAFETY: live by the caller's word. Relaxed: an address is compared, and nothing is read there.
    unsafe { AtomicPtr::from_ptr(place).load(Ordering::Relaxed) == object.ptr() }
}

/// Whether an object that says this of itself was found by that. One that says nothing may have been.
fn says(own: Raise<Own>, found: &Own) -> bool {
    let Ok(own) = own else {
        // SAFETY: attached; there may be no error.
        unsafe { ffi::PyErr_Clear() };
        return true;
    };
    !is_text(&own) || is_same_text(&own, found)
}

/// # Safety
/// A live class.
unsafe fn is_made_at_run_time(class: *mut PyTypeObject) -> bool {
    // SAFETY: live by the caller's word.
    unsafe { ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 }
}

/// The dicts that a name leads through.
struct Way {
    dicts: Vec<(Own, Own)>,
    /// Each has what was found by its name, as far as that was asked.
    plain: bool,
}

impl Way {
    /// The name is about to be looked up in this dict, unless it is null.
    ///
    /// # Safety
    /// A live dict or null.
    unsafe fn enter(&mut self, dict: *mut PyObject, name: &Own) {
        if dict.is_null() {
            return;
        }
        // SAFETY: live by the caller's word.
        let dict = unsafe { Own::share(dict) };
        seen::watch(&dict, name);
        self.dicts.push((dict, name.clone()));
    }

    /// Whether the last dict has this object under its name.
    fn leads_to(&self, object: &Own) -> bool {
        let value = self.dicts.last().and_then(|(dict, name)| look_up(dict, name));
        value.is_some_and(|value| value.ptr() == object.ptr())
    }

    fn links(self) -> Box<[Link]> {
        if !self.plain {
            return Box::default();
        }
        self.dicts.into_iter().map(|(dict, name)| Link { dict, name }).collect()
    }
}

/// The dict that attributes of a module or a class lie in, borrowed; null for other objects.
///
/// # Safety
/// A live object.
unsafe fn namespace(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: live by the caller's word; each is asked what its class has.
    unsafe {
        if ffi::PyModule_Check(object) != 0 {
            ffi::PyModule_GetDict(object)
        } else if ffi::PyType_Check(object) != 0 && is_made_at_run_time(object.cast()) {
            (*object.cast::<PyTypeObject>()).tp_dict
        } else {
            std::ptr::null_mut()
        }
    }
}

/// What a dict has under a name. What goes wrong there (keys may compare in ways of their own) counts as nothing; an
/// interrupt comes once more, a moment later.
fn look_up(dict: &Own, name: &Own) -> Option<Own> {
    // A change that was announced and is not done yet is waited for.
    // SAFETY: the dict is held by the caller.
    #[cfg(Py_GIL_DISABLED)]
    unsafe {
        crate::codec::object::Section::hold(dict.ptr(), || ());
    }
    let mut value = std::ptr::null_mut();
    // SAFETY: a dict and a name, both held; the result is a new reference, or null: with an error if there is one.
    unsafe {
        if ffi::compat::PyDict_GetItemRef(dict.ptr(), name.ptr(), &raw mut value) < 0 {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyboardInterrupt) != 0 {
                ffi::PyErr_SetInterrupt();
            }
            ffi::PyErr_Clear();
        }
        Own::take(value).ok()
    }
}
