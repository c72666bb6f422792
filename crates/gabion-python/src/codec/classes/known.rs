//! Objects of the interpreter that the codec recognises, found once per process.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::{inline, seen};
use crate::codec::object::{Own, Raise, Raised, import, intern};
use crate::ffi::{self, PyObject};
use crate::once::Importing;

/// Declares a struct of interned names.
macro_rules! names {
    ($($field:ident = $text:literal),* $(,)?) => {
        /// Interned attribute names.
        pub struct Names { $(pub $field: Own,)* }
        impl Names {
            fn new() -> Raise<Names> {
                Ok(Names { $($field: intern($text)?,)* })
            }
        }
    };
}

names! {
    reduce_ex = c"__reduce_ex__",
    reduce = c"__reduce__",
    getstate = c"__getstate__",
    setstate = c"__setstate__",
    getnewargs = c"__getnewargs__",
    getnewargs_ex = c"__getnewargs_ex__",
    getinitargs = c"__getinitargs__",
    iter = c"__iter__",
    items = c"items",
    dict = c"__dict__",
    class = c"__class__",
    module = c"__module__",
    qualname = c"__qualname__",
    new = c"__new__",
    value_name = c"_name_",
    member_map = c"_member_map_",
    fields = c"_fields",
    int = c"int",
    is_safe = c"is_safe",
    append = c"append",
}

/// What the codec recognises.
pub struct Known {
    pub names: Names,
    dispatch_table: Own,
    pub slot_names: Own,
    #[cfg_attr(Py_3_13, allow(dead_code))]
    pub no_arguments: Own,
    pub new_obj: Own,
    pub new_obj_ex: Own,
    pub object_reduce_ex: Own,
    pub object_reduce: Own,
    pub object_getstate: Own,
    pub enum_meta: Own,
    pub enum_reduce_ex: Own,
    pub flag: Own,
    /// The same in most versions of Python; before 3.11.4, one that leads to `getattr` and `operator.or_`.
    pub flag_reduce_ex: Own,
    /// The code object that every `namedtuple` class shares for `__getnewargs__`.
    pub named_tuple_code: Own,
    /// The class of what gets an item of such a class by its name.
    pub item_getter: Own,
    pub array: Own,
    pub which_module: Own,
    decimal: PyOnceLock<Own>,
    uuid: PyOnceLock<(Own, Own)>,
}

static KNOWN: PyOnceLock<Known> = PyOnceLock::new();

impl Known {
    /// Found at the first call, which imports a few modules of the standard library.
    #[inline(always)]
    pub fn get(py: Python<'_>) -> Raise<&'static Known> {
        match KNOWN.get(py) {
            Some(known) => Ok(known),
            None => Known::create(py),
        }
    }

    #[cold]
    fn create(py: Python<'_>) -> Raise<&'static Known> {
        let _importing = Importing::begin();
        // First: what goes wrong within the import, such as Ctrl-C, would be an ImportError of the interface's.
        import(c"datetime", c"datetime")?;
        // SAFETY: attached; keeps the interface of `datetime`.
        unsafe { ffi::PyDateTime_IMPORT() };
        if PyErr::occurred(py) {
            return Err(Raised);
        }
        inline::test(py);
        // Not by `get_or_init`: see `once`.
        let _ = KNOWN.set(py, Known::find()?);
        KNOWN.get(py).ok_or(Raised)
    }

    fn find() -> Raise<Known> {
        let attr = |object: *mut PyObject, name: &std::ffi::CStr| {
            // SAFETY: `object` is a static class.
            unsafe { crate::codec::object::attribute(object, name) }
        };
        let object = (&raw mut ffi::PyBaseObject_Type).cast::<PyObject>();
        let point = named_tuple_class()?;
        // SAFETY: `point` is a live class, its attributes are held while they are read.
        let named_tuple_code = unsafe {
            let function = crate::codec::object::attribute(point.ptr(), c"__getnewargs__")?;
            crate::codec::object::attribute(function.ptr(), c"__code__")?
        };
        // SAFETY: as above; a class lives as long as an object of it is held.
        let item_getter = unsafe {
            let of_item = crate::codec::object::attribute(point.ptr(), c"x")?;
            Own::share(ffi::Py_TYPE(of_item.ptr()).cast())
        };
        let enum_class = import(c"enum", c"Enum")?;
        // SAFETY: `enum_class` is held.
        let enum_reduce_ex = unsafe { crate::codec::object::attribute(enum_class.ptr(), c"__reduce_ex__")? };
        let flag_class = import(c"enum", c"Flag")?;
        // SAFETY: `flag_class` is held.
        let flag_reduce_ex = unsafe { crate::codec::object::attribute(flag_class.ptr(), c"__reduce_ex__")? };
        let dispatch_table = import(c"copyreg", c"dispatch_table")?;
        seen::watch_all(&dispatch_table);
        Ok(Known {
            names: Names::new()?,
            dispatch_table,
            // SAFETY: the empty tuple, a new reference.
            no_arguments: unsafe { Own::take(ffi::PyTuple_New(0))? },
            slot_names: import(c"copyreg", c"_slotnames")?,
            new_obj: import(c"copyreg", c"__newobj__")?,
            new_obj_ex: import(c"copyreg", c"__newobj_ex__")?,
            object_reduce_ex: attr(object, c"__reduce_ex__")?,
            object_reduce: attr(object, c"__reduce__")?,
            object_getstate: attr(object, c"__getstate__")?,
            enum_meta: import(c"enum", c"EnumType")?,
            enum_reduce_ex,
            flag: flag_class,
            flag_reduce_ex,
            named_tuple_code,
            item_getter,
            array: import(c"array", c"array")?,
            which_module: import(c"pickle", c"whichmodule")?,
            decimal: PyOnceLock::new(),
            uuid: PyOnceLock::new(),
        })
    }

    /// A number that is another one after a reducer was registered with `copyreg`, or taken back.
    #[inline(always)]
    pub fn reducers(&self) -> isize {
        let table = self.dispatch_table.ptr();
        // SAFETY: held by `self`; a module could have put another mapping there, which is then not watched.
        unsafe {
            if ffi::PyDict_CheckExact(table) == 0 {
                return -2;
            }
            seen::changes(table.cast())
        }
    }

    /// The reducer registered for a class.
    ///
    /// # Safety
    /// `class` is a live class.
    pub unsafe fn reducer(&self, class: *mut PyObject) -> Raise<Option<Own>> {
        // SAFETY: a new reference or null with a KeyError (or another error) set.
        unsafe {
            match Own::take(ffi::PyObject_GetItem(self.dispatch_table.ptr(), class)) {
                Ok(found) => Ok(Some(found)),
                Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) != 0 => {
                    ffi::PyErr_Clear();
                    Ok(None)
                }
                Err(Raised) => Err(Raised),
            }
        }
    }

    /// `decimal.Decimal`, imported at the first call.
    pub fn decimal(&self, py: Python<'_>) -> Raise<&Own> {
        if self.decimal.get(py).is_none() {
            let class = import(c"decimal", c"Decimal")?;
            let _ = self.decimal.set(py, class);
        }
        self.decimal.get(py).ok_or(Raised)
    }

    /// `uuid.UUID` and `uuid.SafeUUID.unknown`, imported at the first call.
    pub fn uuid(&self, py: Python<'_>) -> Raise<&(Own, Own)> {
        if self.uuid.get(py).is_none() {
            let class = import(c"uuid", c"UUID")?;
            let safe = import(c"uuid", c"SafeUUID")?;
            // SAFETY: `safe` holds a reference to a live object.
            let unknown = unsafe { crate::codec::object::attribute(safe.ptr(), c"unknown")? };
            let _ = self.uuid.set(py, (class, unknown));
        }
        self.uuid.get(py).ok_or(Raised)
    }
}

fn named_tuple_class() -> Raise<Own> {
    let make = import(c"collections", c"namedtuple")?;
    let (name, fields) = (intern(c"Point")?, intern(c"x")?);
    // SAFETY: all are held; a new reference or null with an error.
    unsafe { Own::take(ffi::call(make.ptr(), [name.ptr(), fields.ptr()])) }
}
