//! What a file may not do with what it may build.
//!
//! Whoever writes a file chooses which function or class is called, with what, and which items and which state an
//! object is given. A class that the file names is no object of it, nor is a member of an enum: the whole program has
//! them. NumPy takes what it gets as it is: memory that others have, items that lie outside of it. And some calls have
//! no end. No pickle has any of this. Where a file may do whatever it likes (`types="*"`), nothing of it is looked at.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::amplification::{
    MOST_COUNTED, arguments_of, is_endless, is_made_of_arguments, is_of_module, partial_of, written_to,
};
use super::leaf::Maker;
use crate::codec::classes::global::repr;
use crate::codec::classes::standard;
use crate::codec::datetime;
use crate::codec::format::reader::damaged;
use crate::codec::object::{
    Own, PASS_TYPES, Raise, Raised, attribute_or_none, import, in_class, intern, is_same_text, not_rebuilt, refuse,
};
use crate::ffi::{self, PyTypeObject};
use crate::once::{of_module, once};

unsafe extern "C" {
    static mut PyMethod_Type: PyTypeObject;
}

/// Functions that pickles call, of whose arguments not all are those of a pickle, and the modules that they are in.
/// Others stand in for them, whoever met the functions first.
const REPLACED: &[(&std::ffi::CStr, &[&std::ffi::CStr])] = &[
    (c"_reconstructor", &[c"copyreg"]),
    (c"_reconstruct", &[c"numpy._core.multiarray", c"numpy.core.multiarray"]),
    (c"scalar", &[c"numpy._core.multiarray", c"numpy.core.multiarray"]),
    (c"_frombuffer", &[c"numpy._core.numeric", c"numpy.core.numeric"]),
];

/// How many objects are looked into, each in the one before, for that which is meant.
const MOST_WITHIN: usize = 64;

/// What becomes of an object that is given a state.
pub enum Given {
    /// It gets it.
    Itself,
    /// This is in its place, and has it.
    Other(Own),
}

/// What NumPy has to do with a class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Numpy {
    Nothing,
    /// Arrays, and their items.
    Array,
    Dtype,
}

impl Maker<'_, '_> {
    /// Looks at a state that an object is to be given, or at what else is to be set in it.
    ///
    /// # Errors
    /// `CodecError` where a file may not give it; what NumPy says of the state.
    #[inline]
    pub fn guard(&self, object: &Own, state: &Own) -> Raise<Given> {
        if self.registry.is_guarded() { self.check_state(object, state) } else { Ok(Given::Itself) }
    }

    /// Looks at an object in which items are to be set, or to which they are to be added.
    ///
    /// # Errors
    /// `CodecError` where a file may not do that.
    #[inline]
    pub fn guard_items(&self, object: &Own) -> Raise<()> {
        if self.registry.is_guarded() { self.look_at_owner(object) } else { Ok(()) }
    }

    /// Looks at a call, with a tuple and a dict. Another function may be called in the place of one. Items that the
    /// file has not brought are taken off `left`.
    ///
    /// # Errors
    /// `CodecError` where a file may not call it.
    #[inline]
    pub fn guard_call(
        &self,
        callable: &Own,
        arguments: &Own,
        keywords: Option<&Own>,
        left: &mut isize,
    ) -> Raise<Option<Own>> {
        if self.registry.is_guarded() { self.look_at_call(callable, arguments, keywords, left) } else { Ok(None) }
    }

    /// Looks at what a call made.
    ///
    /// # Errors
    /// `CodecError` for what its class should not have made.
    #[inline]
    pub fn guard_made(&self, made: Own) -> Raise<Own> {
        if self.registry.is_guarded() && !datetime::is_sound(&made) {
            return Err(damaged("a date or time is out of range"));
        }
        Ok(made)
    }

    /// Looks at a function that is to give an object its state.
    ///
    /// # Errors
    /// `CodecError` where a file may not have it do that.
    #[inline]
    pub fn guard_setter(&self, setter: &Own, object: &Own, state: &Own) -> Raise<()> {
        if !self.registry.is_guarded() {
            return Ok(());
        }
        // SAFETY: all are held; a new reference or null with an error.
        let arguments = unsafe { Own::take(ffi::PyTuple_Pack(2, object.ptr(), state.ptr()))? };
        self.look_at_owner(object)?;
        match self.look_at_call(setter, &arguments, None, &mut { MOST_COUNTED })? {
            // Those that others stand in for set nothing.
            Some(_) => Err(forbidden("sets a state by", setter)),
            None => Ok(()),
        }
    }

    /// Looks at a method of an object that is to be called with one argument, and which it has under that name. An
    /// object may have had another function set in the place of its class's.
    ///
    /// # Errors
    /// `CodecError` where a file may not call it.
    #[inline]
    pub fn guard_method(&self, object: &Own, name: &std::ffi::CStr, method: Own, argument: &Own) -> Raise<Own> {
        // SAFETY: held; a function has the object that it is bound to, which is compared.
        let is_another = unsafe {
            let of = method.ptr();
            if ffi::PyCFunction_Check(of) != 0 {
                ffi::PyCFunction_GetSelf(of) != object.ptr()
            } else {
                ffi::Py_TYPE(of) != &raw mut PyMethod_Type
            }
        };
        if !is_another || !self.registry.is_guarded() || is_of_class(object, &intern(name)?)? {
            return Ok(method);
        }
        // SAFETY: held; a new reference or null with an error.
        let arguments = unsafe { Own::take(ffi::PyTuple_Pack(1, argument.ptr()))? };
        Ok(self.look_at_call(&method, &arguments, None, &mut { MOST_COUNTED })?.unwrap_or(method))
    }

    #[cold]
    fn check_state(&self, object: &Own, state: &Own) -> Raise<Given> {
        static REBUILT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if self.look_at_owner_but_numpy(object)? == Numpy::Nothing {
            return Ok(Given::Itself);
        }
        let rebuilt = once(self.py, &REBUILT, || Ok(of_module(self.py, c"gabion._arrays", c"rebuilt")?.unbind()));
        let rebuilt = rebuilt.map_err(|error| {
            error.restore(self.py);
            Raised
        })?;
        // SAFETY: all are held; a new reference or null with an error.
        let made = unsafe { Own::take(ffi::call(rebuilt.as_ptr(), [object.ptr(), state.ptr()]))? };
        // SAFETY: the interpreter's own object.
        Ok(if made.ptr() == unsafe { ffi::Py_None() } { Given::Itself } else { Given::Other(made) })
    }

    #[cold]
    fn look_at_owner(&self, object: &Own) -> Raise<()> {
        let mut owner = object.clone();
        for _ in 0..MOST_WITHIN {
            if self.look_at_owner_but_numpy(&owner)? != Numpy::Nothing {
                break;
            }
            // What passes items on to another object, of which the same holds.
            let Some(inner) = written_to(&owner)? else { return Ok(()) };
            owner = inner;
        }
        Err(forbidden("sets items of", &owner))
    }

    fn look_at_owner_but_numpy(&self, object: &Own) -> Raise<Numpy> {
        // SAFETY: held, as its class and the class of that are by it.
        let (named, class, of_enum) = unsafe {
            let class = ffi::Py_TYPE(object.ptr());
            let of_enum = ffi::PyType_IsSubtype(ffi::Py_TYPE(class.cast()), self.known.enum_meta.ptr().cast()) != 0;
            (self.registry.is_named(object.ptr()), class, of_enum)
        };
        if of_enum || named {
            return Err(forbidden("sets attributes or items of", object));
        }
        // SAFETY: the class of an object that is held.
        Ok(unsafe { of_numpy(class) })
    }

    #[cold]
    fn look_at_call(
        &self,
        callable: &Own,
        arguments: &Own,
        keywords: Option<&Own>,
        left: &mut isize,
    ) -> Raise<Option<Own>> {
        // SAFETY: a live object, which is held over this.
        if unsafe { ffi::PyType_Check(callable.ptr()) == 0 } {
            if let Some(called) = self.within(callable)? {
                // Its own arguments come to those that are here.
                let looked_at = self.look_at_call(&called, arguments, keywords, left)?;
                let refused = looked_at.is_some() || is_made_of_arguments(&called)?;
                return if refused { Err(forbidden("calls, by functools.partial,", &called)) } else { Ok(None) };
            }
            let instead = self.look_at_function(callable)?;
            if instead.is_some() && is_endless_base(arguments, left).map_err(|Raised| not_rebuilt(callable))? {
                return Err(forbidden(FEW_BYTES, callable));
            }
            return Ok(instead);
        }
        let class: *mut PyTypeObject = callable.ptr().cast();
        // SAFETY: a class, as was just seen, held.
        let numpy = unsafe { of_numpy(class) };
        let first = arguments_of(arguments).next();
        let told = first.is_some_and(|first| {
            // SAFETY: held by the arguments, which the caller holds.
            unsafe { ffi::PyUnicode_CheckExact(first) != 0 || ffi::PyType_Check(first) != 0 }
        });
        // SAFETY: the same.
        let made_by_numpy = numpy == Numpy::Array && !unsafe { has_its_own_new(class)? };
        if made_by_numpy || (numpy == Numpy::Dtype && !told) {
            return Err(forbidden("calls", callable));
        }
        // SAFETY: a class, a tuple and a dict, all held.
        if unsafe { is_endless(class, arguments, keywords, left).map_err(|Raised| not_rebuilt(callable))? } {
            return Err(forbidden(FEW_BYTES, callable));
        }
        // SAFETY: live, as its name is with it.
        let is_dtype = unsafe { std::ffi::CStr::from_ptr((*class).tp_name) } == c"numpy.dtype";
        if is_dtype { import(c"gabion._arrays", c"dtype").map(Some) } else { Ok(None) }
    }

    /// What is called in the end by a `functools.partial` that the file has built.
    fn within(&self, callable: &Own) -> Raise<Option<Own>> {
        // SAFETY: a live object, which is held over this.
        if unsafe { self.registry.is_named(callable.ptr()) } {
            return Ok(None);
        }
        let Some(mut called) = partial_of(callable)? else { return Ok(None) };
        for _ in 0..MOST_WITHIN {
            let Some(inner) = partial_of(&called)? else { return Ok(Some(called)) };
            called = inner;
        }
        Err(forbidden("calls", callable))
    }

    /// Whether the file has built something that its class alone lets be called: by a method of it. Methods of classes
    /// that are not written in Python, which have no number either, are there by `getattr` only.
    fn is_called_by_method(&self, callable: &Own) -> bool {
        // SAFETY: a live object, which is held over this, as its class is by it.
        unsafe {
            let class = ffi::Py_TYPE(callable.ptr());
            let made_by_code = ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0;
            (made_by_code || class == &raw mut ffi::Py_GenericAliasType) && !self.registry.is_named(callable.ptr())
        }
    }

    /// Whether something is in the file by its name because it is an object: its name is not that of a function, and
    /// nobody has said that a file may call it.
    fn is_only_object(&self, callable: &Own) -> Raise<bool> {
        // SAFETY: a live object, which is held over this.
        unsafe {
            Ok(self.registry.is_named(callable.ptr())
                && attribute_or_none(callable.ptr(), c"__qualname__")?.is_none()
                && !self.registry.types().is_for_calls(callable.ptr()))
        }
    }

    /// What is called in the place of a function.
    fn look_at_function(&self, function: &Own) -> Raise<Option<Own>> {
        // SAFETY: a live object, which is held over this.
        if unsafe { ffi::PyCFunction_Check(function.ptr()) == 0 && ffi::PyFunction_Check(function.ptr()) == 0 } {
            let refused = self.is_called_by_method(function) || self.is_only_object(function)?;
            return if refused { Err(forbidden("calls", function)) } else { Ok(None) };
        }
        if standard::is_getattr(function) {
            let allowed = self.registry.types().named(b"builtins.getattr").is_some();
            return if allowed { Ok(None) } else { standard::limited_getattr().map(Some) };
        }
        // SAFETY: a live object, which is held over this.
        let (name, module) = unsafe {
            let Some(name) = attribute_or_none(function.ptr(), c"__name__")? else { return Ok(None) };
            let Some(module) = attribute_or_none(function.ptr(), c"__module__")? else { return Ok(None) };
            (name, module)
        };
        for (replaced, modules) in REPLACED {
            if is_same_text(&name, &intern(replaced)?) {
                for of in *modules {
                    if is_same_text(&module, &intern(of)?) {
                        return import(c"gabion._arrays", replaced).map(Some);
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Whether an object has an attribute of its class alone: one that is no field of its instances.
fn is_of_class(object: &Own, name: &Own) -> Raise<bool> {
    // SAFETY: held, as its class is by it; what was found there is held.
    unsafe {
        let Some(found) = in_class(ffi::Py_TYPE(object.ptr()), name.ptr()) else { return Ok(false) };
        if (*ffi::Py_TYPE(found.ptr())).tp_descr_set.is_some() {
            return Ok(false);
        }
        let Some(dict) = attribute_or_none(object.ptr(), c"__dict__")? else { return Ok(true) };
        if ffi::PyDict_Check(dict.ptr()) == 0 {
            return Ok(false);
        }
        match ffi::PyDict_Contains(dict.ptr(), name.ptr()) {
            -1 => Err(Raised),
            contains => Ok(contains == 0),
        }
    }
}

const FEW_BYTES: &str = "calls with a few bytes what takes all memory, or all time:";

/// Whether `copyreg._reconstructor` would call a base with what has no end: class, base, and what the base is made of.
/// Other functions have no class as their second argument, or do nothing with it.
fn is_endless_base(arguments: &Own, left: &mut isize) -> Raise<bool> {
    let mut parts = arguments_of(arguments).skip(1);
    let (Some(base), Some(state)) = (parts.next(), parts.next()) else { return Ok(false) };
    // SAFETY: held by the arguments, which the caller holds; a new reference or null with an error.
    unsafe {
        if ffi::PyType_Check(base) == 0 {
            return Ok(false);
        }
        let state = Own::take(ffi::PyTuple_Pack(1, state))?;
        is_endless(base.cast(), &state, None, left)
    }
}

fn forbidden(does: &str, what: &Own) -> Raised {
    refuse(&format!(
        "cannot rebuild the stored object: it {does} {}, which a file may not do; if you trust it, pass \
         {PASS_TYPES}\"*\")",
        repr(what)
    ))
}

/// Whether instances of a class that inherits from one of NumPy's are made by the class itself, or by one between the
/// two.
///
/// # Safety
/// A live class.
unsafe fn has_its_own_new(mut class: *mut PyTypeObject) -> Raise<bool> {
    let numpy = intern(c"numpy")?;
    // SAFETY: live by the caller's word, as its bases are by it; classes that Python code makes have a dict.
    unsafe {
        while !class.is_null() && ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 {
            if is_of_module(class, &numpy)? {
                return Ok(false);
            }
            match ffi::PyDict_Contains((*class).tp_dict, intern(c"__new__")?.ptr()) {
                0 => class = (*class).tp_base,
                1 => return Ok(true),
                _ => return Err(Raised),
            }
        }
    }
    Ok(false)
}

/// What NumPy has to do with a class, or with one that it inherits from.
///
/// # Safety
/// A live class.
pub unsafe fn of_numpy(mut class: *mut PyTypeObject) -> Numpy {
    // SAFETY: live by the caller's word, as its bases are by it; a class's name lives with it. Classes that are not
    // written in Python are called by their modules, too.
    unsafe {
        while !class.is_null() {
            match std::ffi::CStr::from_ptr((*class).tp_name).to_bytes() {
                b"numpy.ndarray" | b"numpy.generic" => return Numpy::Array,
                b"numpy.dtype" => return Numpy::Dtype,
                _ => class = (*class).tp_base,
            }
        }
    }
    Numpy::Nothing
}
