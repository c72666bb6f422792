//! What the codec knows of NumPy, found when its first array is met.

use std::ffi::c_int;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;

use crate::codec::format::reader::damaged;
use crate::codec::object::{Own, Raise, Raised, attribute, import, intern};
use crate::codec::room;
use crate::ffi::{self, PyObject};
use crate::once::Importing;

/// The types of items that arrays are stored with as they are, by the letters that NumPy has for them: booleans,
/// integers and floats in the byte order of the machine, of which there is one `dtype` each. The number of one is its
/// place here.
const LETTERS: &str = "?bBhHiIlLqQefdgFDG";

/// An array as it lies in memory: the first fields of `PyArrayObject_fields`, which are part of NumPy's binary
/// interface since 1.7, because its macros read them.
#[repr(C)]
pub struct Array {
    head: PyObject,
    pub data: *mut u8,
    dimensions: c_int,
    shape: *mut isize,
    strides: *mut isize,
    base: *mut PyObject,
    pub dtype: *mut PyObject,
    flags: c_int,
}

impl Array {
    const ROWS_FIRST: c_int = 1;
    const COLUMNS_FIRST: c_int = 2;
    const WRITEABLE: c_int = 0x400;

    /// The lengths of its sides.
    pub fn shape(&self) -> &[isize] {
        if self.dimensions == 0 {
            return &[];
        }
        // SAFETY: an array has that many sides, and their lengths lie there as long as it does not change.
        unsafe { std::slice::from_raw_parts(self.shape, self.dimensions as usize) }
    }

    fn count(&self) -> isize {
        self.shape().iter().product()
    }

    /// How its items lie, if without gaps: by columns, or by rows.
    pub fn by_columns(&self) -> Option<bool> {
        match self.flags & (Self::ROWS_FIRST | Self::COLUMNS_FIRST) {
            0 => None,
            Self::COLUMNS_FIRST => Some(true),
            _ => Some(false),
        }
    }

    pub fn is_writeable(&self) -> bool {
        self.flags & Self::WRITEABLE != 0
    }
}

/// Arrays as they were when one was looked at: it, and those whose memory it shows. Most have their own.
pub struct Seen(SmallVec<[SeenArray; 1]>);

struct SeenArray {
    array: Own,
    data: *mut u8,
    count: isize,
    dtype: Own,
}

impl Seen {
    /// # Errors
    /// Memory.
    ///
    /// # Safety
    /// A live array, and NumPy's own class of arrays, which [`Array`] is known to be right for.
    pub unsafe fn of(array: *mut PyObject, class: *mut ffi::PyTypeObject) -> Raise<Seen> {
        let mut seen = SmallVec::new();
        // SAFETY: live by the caller's word; each holds the next, which is an array by its class, and its type of
        // items.
        unsafe {
            let mut next = array;
            while !next.is_null() && ffi::PyObject_TypeCheck(next, class) != 0 {
                let now = &*next.cast::<Array>();
                let (array, dtype) = (Own::share(next), Own::share(now.dtype));
                seen.try_reserve(1).map_err(|_| room::no_memory())?;
                seen.push(SeenArray { array, data: now.data, count: now.count(), dtype });
                next = now.base;
            }
        }
        Ok(Seen(seen))
    }

    /// Whether all of them lie where they lay, and have as many items of that type. Runs no code but this.
    pub fn is_as_it_was(&self) -> bool {
        self.0.iter().all(|seen| {
            // SAFETY: an array, as was seen, held.
            let now = unsafe { &*seen.array.ptr().cast::<Array>() };
            now.data == seen.data && now.dtype == seen.dtype.ptr() && now.count() == seen.count
        })
    }
}

/// A type of items.
struct Item {
    dtype: Own,
    /// Bytes.
    size: usize,
    /// The class of one item alone, where its value lies behind the object's head, as in NumPy's `PyDoubleScalarObject`
    /// and its like.
    scalar: Option<Own>,
}

impl Item {
    fn find(dtype: &Own, letter: char) -> Raise<Item> {
        // SAFETY: held; new references or null with an error. What is read is within the object, whose size is asked
        // first.
        unsafe {
            let letter = Own::take(ffi::PyUnicode_FromOrdinal(letter as _))?;
            let dtype = Own::take(ffi::PyObject_CallOneArg(dtype.ptr(), letter.ptr()))?;
            let size = ffi::PyLong_AsSize_t(attribute(dtype.ptr(), c"itemsize")?.ptr());
            let (class, one) = (attribute(dtype.ptr(), c"type")?, tuple_item(1)?);
            let sample = Own::take(ffi::PyObject_CallOneArg(class.ptr(), one.ptr()))?;
            let bytes = attribute(sample.ptr(), c"tobytes")?;
            let bytes = Own::take(ffi::call(bytes.ptr(), []))?;
            let known = ffi::Py_TYPE(sample.ptr()).cast() == class.ptr()
                && (*ffi::Py_TYPE(sample.ptr())).tp_basicsize as usize >= HEAD + size
                && ffi::PyBytes_CheckExact(bytes.ptr()) != 0
                && ffi::PyBytes_Size(bytes.ptr()) as usize == size
                && value_of(sample.ptr(), size)
                    == std::slice::from_raw_parts(ffi::PyBytes_AsString(bytes.ptr()).cast::<u8>(), size);
            Ok(Item { dtype, size, scalar: known.then_some(class) })
        }
    }
}

/// Where the value of a single item lies in its object.
const HEAD: usize = size_of::<PyObject>();

/// The value of a single item.
///
/// # Safety
/// `obj` is an object with that many bytes behind its head, which lives and does not change as long as they are looked
/// at.
pub unsafe fn value_of<'a>(obj: *mut PyObject, size: usize) -> &'a [u8] {
    // SAFETY: as the caller promised.
    unsafe { std::slice::from_raw_parts(obj.cast::<u8>().add(HEAD), size) }
}

/// NumPy's own objects.
pub struct Numpy {
    ndarray: Own,
    empty: Own,
    /// Makes a single item of a `dtype` and bytes, as pickle has it do.
    scalar: Own,
    rows_first: Own,
    columns_first: Own,
    items: Vec<Item>,
}

static NUMPY: PyOnceLock<Option<Numpy>> = PyOnceLock::new();

impl Numpy {
    /// Imports it the first time. `None` where arrays do not lie in memory as they are known to.
    pub fn get(py: Python<'_>) -> Raise<Option<&'static Numpy>> {
        if NUMPY.get(py).is_none() {
            // NumPy imports more when it is asked for what is looked for. Not by `get_or_init`: see `once`.
            let _importing = Importing::begin();
            let _ = NUMPY.set(py, Numpy::find()?);
        }
        Ok(NUMPY.get(py).and_then(Option::as_ref))
    }

    /// It, where an array was met before.
    pub fn met(py: Python<'_>) -> Option<&'static Numpy> {
        NUMPY.get(py).and_then(Option::as_ref)
    }

    /// It, where an array may be met.
    ///
    /// # Errors
    /// As [`Numpy::get`].
    pub fn if_imported(py: Python<'_>) -> Raise<Option<&'static Numpy>> {
        if let Some(met) = Numpy::met(py) {
            return Ok(Some(met));
        }
        // SAFETY: a held string; a new reference, or null: with an error if there is one.
        let module = unsafe { Own::take(ffi::PyImport_GetModule(intern(c"numpy")?.ptr())) };
        match module {
            // SAFETY: the interpreter's own object, which stands where an import is to fail.
            Ok(module) if module.ptr() == unsafe { ffi::Py_None() } => Ok(None),
            Ok(_) => Numpy::get(py),
            // SAFETY: attached.
            Err(Raised) if unsafe { ffi::PyErr_Occurred() }.is_null() => Ok(None),
            Err(Raised) => Err(Raised),
        }
    }

    fn find() -> Raise<Option<Numpy>> {
        let dtype = import(c"numpy", c"dtype")?;
        // SAFETY: a reducer returns a tuple, the first item of which is a callable; all are held.
        let scalar = unsafe {
            let one = Own::take(ffi::PyObject_CallOneArg(import(c"numpy", c"float64")?.ptr(), tuple_item(1)?.ptr()))?;
            let reduce = attribute(one.ptr(), c"__reduce__")?;
            let parts = Own::take(ffi::call(reduce.ptr(), []))?;
            Own::take(ffi::PySequence_GetItem(parts.ptr(), 0))?
        };
        let found = Numpy {
            ndarray: import(c"numpy", c"ndarray")?,
            empty: import(c"numpy", c"empty")?,
            scalar,
            rows_first: intern(c"C")?,
            columns_first: intern(c"F")?,
            items: LETTERS.chars().map(|letter| Item::find(&dtype, letter)).collect::<Raise<_>>()?,
        };
        Ok(found.is_as_known()?.then_some(found))
    }

    /// Whether an array lies in memory as [`Array`] says.
    fn is_as_known(&self) -> Raise<bool> {
        let Some((number, item)) = self.items.iter().enumerate().find(|(_, item)| item.size == 8) else {
            return Ok(false);
        };
        for columns in [false, true] {
            let made = self.empty(&[3, 5], number, columns)?;
            // SAFETY: an array, held.
            unsafe {
                let interface = attribute(made.ptr(), c"__array_interface__")?;
                let data = Own::take(ffi::PyMapping_GetItemString(interface.ptr(), c"data".as_ptr()))?;
                let address = ffi::PyLong_AsSize_t(ffi::PyTuple_GetItem(data.ptr(), 0));
                let array = &*made.ptr().cast::<Array>();
                // In this order: nothing is read through what may be no address.
                let as_known = array.data.addr() == address
                    && array.dimensions == 2
                    && array.dtype == item.dtype.ptr()
                    && array.by_columns() == Some(columns)
                    && array.is_writeable()
                    && array.shape() == [3, 5];
                if !as_known {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether a class is that of arrays, and not one derived from it.
    pub fn has_class(&self, class: *mut ffi::PyTypeObject) -> bool {
        self.ndarray.ptr() == class.cast()
    }

    /// What an array is now, or one of a class derived from that of arrays; `None` for other objects.
    ///
    /// # Errors
    /// Memory.
    ///
    /// # Safety
    /// A live object.
    pub unsafe fn seen(&self, object: *mut PyObject) -> Raise<Option<Seen>> {
        let class = self.ndarray.ptr().cast();
        // SAFETY: live by the caller's word; an array by its class.
        unsafe { (ffi::PyObject_TypeCheck(object, class) != 0).then(|| Seen::of(object, class)).transpose() }
    }

    /// The number and the size of the items of a `dtype`.
    pub fn item_of(&self, dtype: *mut PyObject) -> Option<(usize, usize)> {
        let number = self.items.iter().position(|item| item.dtype.ptr() == dtype)?;
        Some((number, self.items[number].size))
    }

    /// The number of the type of items that a class is of, and no other class.
    pub fn scalar_of(&self, class: *mut ffi::PyTypeObject) -> Option<u8> {
        let is = |item: &Item| item.scalar.as_ref().is_some_and(|scalar| scalar.ptr() == class.cast());
        self.items.iter().position(is).map(|number| number as u8)
    }

    /// A single item.
    pub fn scalar(&self, number: usize, value: &[u8]) -> Raise<Own> {
        let dtype = self.items[number].dtype.ptr();
        // SAFETY: held; new references or null with an error.
        unsafe {
            let value = Own::take(ffi::PyBytes_FromStringAndSize(value.as_ptr().cast(), value.len() as isize))?;
            Own::take(ffi::call(self.scalar.ptr(), [dtype, value.ptr()]))
        }
    }

    /// Bytes of an item.
    pub fn size(&self, number: usize) -> Raise<usize> {
        self.items.get(number).map(|item| item.size).ok_or_else(|| damaged("an unknown type of items"))
    }

    /// A new array whose items are whatever they are.
    pub fn empty(&self, shape: &[usize], number: usize, columns: bool) -> Raise<Own> {
        let shape = tuple(shape)?;
        let arguments = [shape.ptr(), self.items[number].dtype.ptr(), self.order(columns)];
        // SAFETY: all held; a new reference or null with an error.
        unsafe { Own::take(ffi::call(self.empty.ptr(), arguments)) }
    }

    /// A new array in the memory of a buffer.
    pub fn over(&self, buffer: &Own, shape: &[usize], number: usize, columns: bool) -> Raise<Own> {
        let (shape, offset) = (tuple(shape)?, tuple_item(0)?);
        let dtype = self.items[number].dtype.ptr();
        // SAFETY: all held; a new reference or null with an error.
        unsafe {
            let arguments = [shape.ptr(), dtype, buffer.ptr(), offset.ptr(), ffi::Py_None(), self.order(columns)];
            Own::take(ffi::call(self.ndarray.ptr(), arguments))
        }
    }

    fn order(&self, columns: bool) -> *mut PyObject {
        if columns { self.columns_first.ptr() } else { self.rows_first.ptr() }
    }
}

fn tuple_item(value: usize) -> Raise<Own> {
    // SAFETY: a new reference or null with an error.
    unsafe { Own::take(ffi::PyLong_FromSize_t(value)) }
}

fn tuple(values: &[usize]) -> Raise<Own> {
    // SAFETY: a new tuple, or null with an error, with room for each value.
    unsafe {
        let made = Own::take(ffi::PyTuple_New(values.len() as isize))?;
        for (at, value) in values.iter().enumerate() {
            ffi::PyTuple_SET_ITEM(made.ptr(), at as isize, tuple_item(*value)?.into_ptr());
        }
        Ok(made)
    }
}
