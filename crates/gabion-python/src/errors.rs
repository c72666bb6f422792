//! The exception classes of the package: one tree under `gabion.GabionError`.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};

use gabion_blocks::BlockError;
use pyo3::exceptions::{
    PyBufferError, PyException, PyLookupError, PyMemoryError, PyOSError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::ffi;
use crate::once::{intern, of_module, once};
use crate::result;

/// The exception classes of the package, made once per process.
pub(crate) struct Errors {
    /// `gabion.GabionError(Exception)`: the root of the tree.
    pub base: Py<PyType>,
    /// `gabion.PointerError(GabionError, LookupError)`.
    pub pointer: Py<PyType>,
    /// `gabion.LimitError(GabionError, MemoryError)`.
    pub limit: Py<PyType>,
    /// `gabion.CodecError(GabionError, ValueError)`.
    pub codec: Py<PyType>,
    /// `gabion.ImageError(GabionError, ValueError)`.
    pub image: Py<PyType>,
    /// `gabion.CorruptFileError(GabionError, OSError)`.
    pub corrupt_file: Py<PyType>,
    /// `gabion.FormatError(GabionError, OSError)`.
    pub format: Py<PyType>,
    /// `gabion.ClosedError(GabionError, ValueError)`.
    pub closed: Py<PyType>,
    /// A `GabionError` and `io.UnsupportedOperation`, as files raise it. Nobody needs its name: it has no public one.
    pub read_only: Py<PyType>,
}

static ERRORS: PyOnceLock<Errors> = PyOnceLock::new();

impl Errors {
    /// The classes; made at the first call.
    ///
    /// # Errors
    /// Whatever `type()` raises: out of memory, in practice.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Errors> {
        once(py, &ERRORS, || Errors::create(py))
    }

    fn create(py: Python<'_>) -> PyResult<Errors> {
        let base = class(
            py,
            c"gabion.GabionError",
            c"Base of every error that gabion raises itself.",
            &[py.get_type::<PyException>()],
            &[],
        )?;
        let with = |name, doc, other, more: &[&str]| class(py, name, doc, &[base.bind(py).clone(), other], more);
        let under = |name, doc, other| with(name, doc, other, &[]);
        Ok(Errors {
            pointer: under(
                c"gabion.PointerError",
                c"The pointer is stale, freed, forged or out of range. Also a LookupError.",
                py.get_type::<PyLookupError>(),
            )?,
            limit: with(
                c"gabion.LimitError",
                c"A configured or physical limit of memory does not allow what was asked. Also a MemoryError.\n\n\
                  limit is the limit's name: \"max_bytes\", \"max_pixels\", \"side\" (of an image), \"total_limit\", \n\
                  \"allocation_limit\", \"machine\" (its memory and swap), or None for others; asked and allowed are \n\
                  what it is about, or None. What is refused by total_limit with asked <= allowed may be had later.",
                py.get_type::<PyMemoryError>(),
                &LIMIT,
            )?,
            codec: under(
                c"gabion.CodecError",
                c"The object cannot be stored, or the stored bytes cannot be read back. Also a ValueError.",
                py.get_type::<PyValueError>(),
            )?,
            image: with(
                c"gabion.ImageError",
                c"The image is damaged, of an unknown kind, or cannot be made or saved as asked. Also a ValueError.\n\n\
                  kind is \"corrupt\" for bytes that are damaged or cut off, \"unsupported\" for what is no image or of \n\
                  a format or kind that is not read or written, \"unfit\" for what cannot be done with this image.",
                py.get_type::<PyValueError>(),
                &[KIND],
            )?,
            corrupt_file: under(
                c"gabion.CorruptFileError",
                c"The file is not a file of gabion, or it is damaged. Also an OSError.",
                py.get_type::<PyOSError>(),
            )?,
            format: under(
                c"gabion.FormatError",
                c"The file is in a format that this version of gabion does not know: nothing is wrong with it, and the \n\
                  version that wrote it opens it. Also an OSError.",
                py.get_type::<PyOSError>(),
            )?,
            closed: under(
                c"gabion.ClosedError",
                c"The object was closed or released before. Also a ValueError.",
                py.get_type::<PyValueError>(),
            )?,
            read_only: under(
                c"gabion._native._ReadOnlyError",
                c"Nothing of it can be changed. Also an io.UnsupportedOperation.",
                of_module(py, c"io", c"UnsupportedOperation")?.cast_into()?,
            )?,
            base,
        })
    }
}

/// What a `LimitError` has beside its text: the limit's name, what was asked, what is allowed.
const LIMIT: [&str; 3] = ["limit", "asked", "allowed"];

/// What an `ImageError` has beside its text.
const KIND: &str = "kind";

/// `more` are attributes that its errors may have; by default they are None.
fn class(py: Python<'_>, name: &CStr, doc: &CStr, bases: &[Bound<'_, PyType>], more: &[&str]) -> PyResult<Py<PyType>> {
    let attributes = result::dict(py)?;
    for name in more {
        attributes.set_item(result::text(py, name)?, py.None())?;
    }
    let bases = result::tuple(py, bases.iter().map(|base| base.clone().into_any()))?;
    // SAFETY: the thread is attached (`py`), the strings end with NUL and live over the call, `bases` is a tuple of
    // classes, `attributes` a dict; the result is a new reference or null with an error set.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyErr_NewExceptionWithDoc(name.as_ptr(), doc.as_ptr(), bases.as_ptr(), attributes.as_ptr()),
        )?
    };
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// An exception made at once. Where there is no memory for it, it is the `MemoryError` that the interpreter keeps
/// ready; PyO3's own way to make one panics there.
#[cold]
pub(crate) fn exception(class: &Bound<'_, PyType>, text: &str) -> PyErr {
    let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
    // SAFETY: attached (the class is bound), a class of exceptions and a C string; sets some error in every case.
    unsafe { ffi::PyErr_SetString(class.as_ptr(), text.as_ptr()) };
    PyErr::fetch(class.py())
}

/// One of the package's own exceptions.
#[cold]
pub(crate) fn own_error(py: Python<'_>, class: impl FnOnce(&Errors) -> &Py<PyType>, text: &str) -> PyErr {
    match Errors::get(py) {
        Ok(errors) => exception(class(errors).bind(py), text),
        Err(error) => error,
    }
}

/// A `LimitError` that says which limit it is about, and by how much.
#[cold]
pub(crate) fn limit_error(py: Python<'_>, limit: &str, asked: u64, allowed: u64, text: &str) -> PyErr {
    let error = own_error(py, |errors| &errors.limit, text);
    // Where there is no memory for these, the text says as much.
    let _ = (|| {
        let [name, before, after] = LIMIT;
        let value = error.value(py);
        value.setattr(name, result::text(py, limit)?)?;
        value.setattr(before, result::number(py, asked)?)?;
        value.setattr(after, result::number(py, allowed)?)
    })();
    error
}

/// An `ImageError` that says of which kind it is.
#[cold]
pub(crate) fn image_error(py: Python<'_>, kind: &str, text: &str) -> PyErr {
    let error = own_error(py, |errors| &errors.image, text);
    let _ = result::text(py, kind).and_then(|kind| error.value(py).setattr(KIND, kind));
    error
}

/// The exception for memory that was refused: its class by what refused, for all parts alike. A `LimitError` is for
/// limits, those that are set and gabion's own; what the system refuses is a plain `MemoryError`.
#[cold]
pub(crate) fn refused(py: Python<'_>, error: &BlockError, text: &str) -> PyErr {
    match *error {
        BlockError::Refused { .. } | BlockError::NoMemory { .. } => exception(&py.get_type::<PyMemoryError>(), text),
        BlockError::Setting { .. } => value_error(py, text),
        // A limit of the disk's is none of memory's.
        BlockError::Disk { errno, .. } => os_error(py, errno, text, None),
        BlockError::DescriptorLost => os_error(py, libc::EBADF, text, None),
        BlockError::Limit { asked, limit, .. } => limit_error(py, "max_bytes", asked, limit, text),
        BlockError::TooLarge { asked, limit } => limit_error(py, "allocation_limit", asked, limit, text),
        BlockError::Machine { asked, limit } => limit_error(py, "machine", asked, limit, text),
        BlockError::Total { asked, limit, .. } | BlockError::TimedOut { asked, limit, .. } => {
            limit_error(py, "total_limit", asked, limit, text)
        }
        _ => own_error(py, |errors| &errors.limit, text),
    }
}

/// A `TypeError`.
#[cold]
pub(crate) fn type_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyTypeError>(), text)
}

/// A `ValueError`.
#[cold]
pub(crate) fn value_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyValueError>(), text)
}

/// A `BufferError`.
#[cold]
pub(crate) fn buffer_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyBufferError>(), text)
}

/// What somebody's object has answered; `None` where it could not. What is no `Exception`, such as Ctrl-C, is no
/// answer, and goes on.
pub(crate) fn answered<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The exception that leaves the block, out of what `__exit__` is called with.
pub(crate) fn on_its_way<'py>(arguments: &Bound<'py, PyTuple>) -> Option<Bound<'py, PyAny>> {
    // Whoever calls `__exit__` by hand may pass nothing, or the class alone.
    let class = arguments.get_item(0).ok().filter(|class| !class.is_none())?;
    Some(arguments.get_item(1).ok().filter(|value| !value.is_none()).unwrap_or(class))
}

/// The name of a value's class, as an error shows it.
#[cold]
pub(crate) fn class_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// The name of a class with its module, unless that is Python's own.
#[cold]
pub(crate) fn full_name(class: &Bound<'_, PyType>) -> PyResult<String> {
    let py = class.py();
    let module = legible(&class.getattr(intern!(py, "__module__")?)?)?;
    let name = legible(&class.getattr(intern!(py, "__qualname__")?)?)?;
    Ok(if module == "builtins" { name } else { format!("{module}.{name}") })
}

/// A value as an error shows it. A long one would hide what is wrong with it.
#[cold]
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text }
}

/// A name as it is shown. What of it is no text is written as Python writes it, so that another name does not look the
/// same.
pub(crate) fn legible(name: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = name.str()?;
    if let Ok(text) = name.to_str() {
        return Ok(text.to_owned());
    }
    let bytes = name.call_method1("encode", ("utf-8", "backslashreplace"))?;
    Ok(String::from_utf8_lossy(bytes.cast::<PyBytes>()?.as_bytes()).into_owned())
}

/// The system's text for the number of an error, without the number that Rust adds.
pub(crate) fn system_text(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    match text.rsplit_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// An `OSError` of the right subclass, with its number where it is known, and the file's name.
#[cold]
pub(crate) fn system_error(py: Python<'_>, error: &io::Error, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let number = error.raw_os_error().or(match error.kind() {
        ErrorKind::NotFound => Some(libc::ENOENT),
        ErrorKind::PermissionDenied => Some(libc::EACCES),
        ErrorKind::IsADirectory => Some(libc::EISDIR),
        ErrorKind::NotADirectory => Some(libc::ENOTDIR),
        ErrorKind::StorageFull => Some(libc::ENOSPC),
        ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
        _ => None,
    });
    match number {
        Some(number) => os_error(py, number, &system_text(number), name),
        None if error.kind() == ErrorKind::OutOfMemory => {
            exception(&py.get_type::<PyMemoryError>(), &error.to_string())
        }
        None => exception(&py.get_type::<PyOSError>(), &error.to_string()),
    }
}

/// An `OSError` of the subclass that its number stands for.
#[cold]
pub(crate) fn os_error(py: Python<'_>, number: i32, text: &str, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let make = || {
        let (number, text) = (result::signed(py, number.into())?, result::text(py, text)?);
        let arguments = [Some(&number), Some(text.as_any()), name];
        let arguments = result::tuple(py, arguments.into_iter().flatten().cloned().collect::<Vec<_>>().into_iter())?;
        // SAFETY: attached; a class and its arguments, all held; a new reference, or null with an error set.
        unsafe {
            let class = py.get_type::<PyOSError>();
            let made = ffi::PyObject_Call(class.as_ptr(), arguments.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)
        }
    };
    make().map_or_else(|error: PyErr| error, PyErr::from_value)
}

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let errors = Errors::get(py)?;
    let classes = [
        &errors.base,
        &errors.pointer,
        &errors.limit,
        &errors.codec,
        &errors.image,
        &errors.corrupt_file,
        &errors.format,
        &errors.closed,
        &errors.read_only,
    ];
    for class in classes {
        let class = class.bind(py);
        m.add(class.name()?, class)?;
    }
    Ok(())
}
