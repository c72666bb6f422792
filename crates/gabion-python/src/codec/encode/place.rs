//! Where in the whole a value lies that cannot be stored, for its error: `Batch.jobs[0].lock`.
//!
//! The walk keeps no way back (see `encoder`), so the way is looked for when it is asked for: in the order of the walk,
//! through what the walk itself went through, up to the value. So this takes about as long as the walk took, and what
//! the walk did not come to is not looked at.

use std::collections::HashSet;

use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::codec::classes::inline;
use crate::codec::classes::layout::Layout;
use crate::codec::classes::plan::{Attributes, Kind};
use crate::codec::classes::registry::Registry;
use crate::codec::object::{Own, Section, class_name, in_class, intern};
use crate::errors::{Errors, exception, shown};
use crate::ffi::{self, PyObject};

/// How many objects that hold others are looked through.
const MOST: usize = 1 << 20;
/// Of a longer way the first steps and the last ones are told.
const FIRST: usize = 6;
const LAST: usize = 6;

/// How an object is reached from the one that holds it.
enum Step {
    Attribute(Own),
    Key(Own),
    Index(usize),
    /// An element of a set, or a key of a dict.
    Element,
}

impl Step {
    fn text(&self, py: Python<'_>) -> String {
        // SAFETY: held by the step.
        let shown = |own: &Own| unsafe { shown(&Borrowed::from_ptr(py, own.ptr())) };
        match self {
            Step::Attribute(name) => format!(".{}", shown(name).trim_matches('\'')),
            Step::Key(key) => format!("[{}]", shown(key)),
            Step::Index(index) => format!("[{index}]"),
            Step::Element => "{...}".to_owned(),
        }
    }
}

/// What an object holds, as far as it may hold others or is looked for.
struct Held {
    steps: Vec<(Step, Own)>,
    wanted: *mut PyObject,
}

impl Held {
    /// Takes a value in. `None` where there is no memory for it.
    ///
    /// # Safety
    /// A live object, or null.
    unsafe fn add(&mut self, value: *mut PyObject, step: impl FnOnce() -> Step) -> Option<()> {
        // SAFETY: live by the caller's word where it is not null; one word is compared.
        if value.is_null() || value != self.wanted && unsafe { is_plain(value) } {
            return Some(());
        }
        self.steps.try_reserve(1).ok()?;
        // SAFETY: live by the caller's word, as it is not null.
        self.steps.push((step(), unsafe { Own::share(value) }));
        Some(())
    }

    /// # Safety
    /// Live objects, or nulls.
    unsafe fn add_items(&mut self, items: &[*mut PyObject]) -> Option<()> {
        // SAFETY: as the caller promised.
        items.iter().enumerate().try_for_each(|(i, &item)| unsafe { self.add(item, || Step::Index(i)) })
    }

    /// # Safety
    /// A dict or a subclass of one, held and locked.
    unsafe fn add_pairs(&mut self, dict: *mut PyObject, step: impl Fn(Own) -> Step) -> Option<()> {
        let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as the caller promised; keys and values live while the dict is locked.
        unsafe {
            while ffi::PyDict_Next(dict, &raw mut at, &raw mut key, &raw mut value) != 0 {
                self.add(key, || Step::Element)?;
                self.add(value, || step(Own::share(key)))?;
            }
        }
        Some(())
    }

    /// # Safety
    /// `obj` is a locked instance of the layout's class, or of one with these slots.
    unsafe fn add_slots(&mut self, obj: *mut PyObject, layout: &Layout) -> Option<()> {
        layout.names.iter().zip(&layout.offsets).try_for_each(|(name, &offset)| {
            // SAFETY: as the caller promised: a slot holds an object or null.
            unsafe { self.add(*obj.byte_offset(offset).cast(), || Step::Attribute(name.clone())) }
        })
    }

    /// The attributes in an object's `__dict__`, if it has one.
    ///
    /// # Safety
    /// A live object; no error is set.
    unsafe fn add_dict_of(&mut self, obj: *mut PyObject) -> Option<()> {
        // SAFETY: live by the caller's word; a new reference, or null with an error, which is dropped: it has none.
        unsafe {
            let Ok(dict) = Own::take(ffi::PyObject_GenericGetDict(obj, std::ptr::null_mut())) else {
                ffi::PyErr_Clear();
                return Some(());
            };
            if ffi::PyDict_Check(dict.ptr()) == 0 {
                return Some(());
            }
            Section::hold(dict.ptr(), || self.add_pairs(dict.ptr(), Step::Attribute))
        }
    }

    /// # Safety
    /// `obj` is a live instance of the class of these attributes; no error is set.
    unsafe fn add_attributes(&mut self, obj: *mut PyObject, attributes: &Attributes) -> Option<()> {
        // SAFETY: as the caller promised; slots and values are read under the object's lock.
        unsafe {
            let lying = Section::hold(obj, || {
                self.add_slots(obj, &*attributes.base)?;
                let Some(view) = attributes.inline.then(|| inline::view(obj)).flatten() else { return Some(false) };
                for i in 0..view.len {
                    let index = view.index(i);
                    let name = || Step::Attribute(Own::share(inline::key(ffi::Py_TYPE(obj), index)));
                    self.add(view.value(index), name)?;
                }
                Some(true)
            })?;
            if lying { Some(()) } else { self.add_dict_of(obj) }
        }
    }

    /// The values of a named tuple.
    ///
    /// # Safety
    /// A live tuple; no error is set.
    unsafe fn add_fields(&mut self, obj: *mut PyObject) -> Option<()> {
        // SAFETY: as the caller promised; the names are held here.
        unsafe {
            let Ok(name) = intern(c"_fields") else {
                ffi::PyErr_Clear();
                return None;
            };
            let names = in_class(ffi::Py_TYPE(obj), name.ptr()).filter(|names| ffi::PyTuple_Check(names.ptr()) != 0);
            let Some(names) = names else { return self.add_items(tuple_items(obj)) };
            let names = tuple_items(names.ptr());
            tuple_items(obj).iter().enumerate().try_for_each(|(i, &item)| {
                let step = || names.get(i).map_or(Step::Index(i), |&name| Step::Attribute(Own::share(name)));
                self.add(item, step)
            })
        }
    }

    /// Everything that the walk goes on to from an object. `None` where there is no memory for it.
    ///
    /// # Safety
    /// A live object; no error is set.
    unsafe fn add_all(&mut self, registry: &Registry, obj: *mut PyObject) -> Option<()> {
        // SAFETY: live by the caller's word; each arm is for the class that the plan names; what is borrowed is
        // borrowed under the object's lock, and from tuples, which never change.
        unsafe {
            // Where the walk has been, there is one. It need not hold any more: to ask for a reducer may note something
            // in the class.
            let Some(plan) = registry.last_plan(ffi::Py_TYPE(obj)) else { return Some(()) };
            match &plan.kind {
                Kind::List => Section::hold(obj, || self.add_items(list_items(obj))),
                Kind::Tuple => self.add_items(tuple_items(obj)),
                Kind::NamedTuple { .. } => self.add_fields(obj),
                Kind::Dict => Section::hold(obj, || self.add_pairs(obj, Step::Key)),
                Kind::Set | Kind::FrozenSet => {
                    let Ok(elements) = Own::take(ffi::PySequence_Tuple(obj)) else {
                        ffi::PyErr_Clear();
                        return None;
                    };
                    tuple_items(elements.ptr()).iter().try_for_each(|&item| self.add(item, || Step::Element))
                }
                Kind::Slots(layout) => Section::hold(obj, || self.add_slots(obj, &**layout)),
                Kind::Attributes(attributes) => self.add_attributes(obj, attributes),
                // As most reducers have it: what Python's own classes hold, and what is in a `__dict__`.
                Kind::Reduce { .. } => {
                    if ffi::PyDict_Check(obj) != 0 {
                        Section::hold(obj, || self.add_pairs(obj, Step::Key))?;
                    } else if ffi::PyList_Check(obj) != 0 {
                        Section::hold(obj, || self.add_items(list_items(obj)))?;
                    } else if ffi::PyTuple_Check(obj) != 0 {
                        self.add_fields(obj)?;
                    }
                    self.add_dict_of(obj)
                }
                _ => Some(()),
            }
        }
    }
}

/// Whether a value is one of the common ones that hold no others.
///
/// # Safety
/// A live object.
unsafe fn is_plain(value: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word.
    let class = unsafe { ffi::Py_TYPE(value) };
    [&raw mut ffi::PyUnicode_Type, &raw mut ffi::PyLong_Type, &raw mut ffi::PyFloat_Type, &raw mut ffi::PyBytes_Type]
        .contains(&class)
}

/// # Safety
/// A tuple or a subclass of one, held as long as the items are used.
unsafe fn tuple_items<'a>(obj: *mut PyObject) -> &'a [*mut PyObject] {
    // SAFETY: as the caller promised.
    unsafe {
        let first = (&raw const (*obj.cast::<ffi::PyTupleObject>()).ob_item).cast();
        std::slice::from_raw_parts(first, ffi::PyTuple_Size(obj) as usize)
    }
}

/// # Safety
/// A list or a subclass of one, held and locked as long as the items are used.
unsafe fn list_items<'a>(obj: *mut PyObject) -> &'a [*mut PyObject] {
    // SAFETY: as the caller promised. An empty list has no items at all, not even a place for them.
    unsafe {
        let len = ffi::PyList_Size(obj) as usize;
        if len == 0 { &[] } else { std::slice::from_raw_parts((*obj.cast::<ffi::PyListObject>()).ob_item, len) }
    }
}

/// The steps from the whole to the value; `None` where the way is not found.
///
/// # Safety
/// Live objects; no error is set.
unsafe fn way(registry: &Registry, whole: *mut PyObject, wanted: *mut PyObject) -> Option<Vec<Step>> {
    let mut seen = HashSet::new();
    // Of each object on the way how it was reached, and what of it is still to be looked at, the next last.
    let (mut way, mut rest): (Vec<Step>, Vec<Vec<(Step, Own)>>) = (Vec::new(), Vec::new());
    // SAFETY: as the caller promised.
    let mut object = unsafe { Own::share(whole) };
    loop {
        let mut held = Held { steps: Vec::new(), wanted };
        seen.try_reserve(1).ok()?;
        if seen.insert(object.ptr() as usize) {
            if seen.len() > MOST {
                return None;
            }
            // SAFETY: held here; no error is set, as each of these clears its own.
            unsafe { held.add_all(registry, object.ptr())? };
            held.steps.reverse();
        }
        rest.try_reserve(1).ok()?;
        rest.push(held.steps);
        loop {
            if let Some((step, next)) = rest.last_mut()?.pop() {
                way.try_reserve(1).ok()?;
                way.push(step);
                if next.ptr() == wanted {
                    return Some(way);
                }
                // Alive as long as the whole: what was seen keeps its address.
                object = next;
                break;
            }
            rest.pop();
            way.pop();
        }
    }
}

/// What an error says of where a value lies; nothing when it is the whole itself.
///
/// # Safety
/// Live objects; no error is set.
#[cold]
pub unsafe fn inside(py: Python<'_>, registry: &Registry, whole: *mut PyObject, value: *mut PyObject) -> String {
    if value == whole {
        return String::new();
    }
    // SAFETY: as the caller promised.
    let (class, way) = unsafe { (class_name(whole), way(registry, whole, value)) };
    let Some(way) = way else { return format!(" (inside {class})") };
    let mut text = format!(" (at {}", class.rsplit('.').next().unwrap_or_default());
    for (i, step) in way.iter().enumerate() {
        if i == FIRST && way.len() > FIRST + LAST {
            text += "...";
        }
        if i >= FIRST && i + LAST < way.len() {
            continue;
        }
        text += &step.text(py);
    }
    text + ")"
}

/// Has the error that is set tell where the value lies that it is about, if it is a `CodecError` of this codec's own.
///
/// # Safety
/// Live objects; an error is set.
#[cold]
pub unsafe fn add_location(py: Python<'_>, registry: &Registry, whole: *mut PyObject, value: *mut PyObject) {
    let Some(error) = PyErr::take(py) else { return };
    // One that an object's code has raised has come through that code; what has a cause tells its place itself.
    let own = Errors::get(py).ok().filter(|errors| {
        error.get_type(py).is(errors.codec.bind(py)) && error.traceback(py).is_none() && error.cause(py).is_none()
    });
    let Some(errors) = own else { return error.restore(py) };
    // SAFETY: as the caller promised; the error was taken.
    let place = unsafe { inside(py, registry, whole, value) };
    let text = error.value(py).to_string();
    let text = match text.split_once(" by reference: ") {
        Some((what, why)) => format!("{what} by reference{place}: {why}"),
        None => format!("{text}{place}"),
    };
    exception(errors.codec.bind(py), &text).restore(py);
}
