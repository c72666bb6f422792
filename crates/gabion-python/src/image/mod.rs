//! `gabion.Image`: the images of `gabion-image` as Python sees them.
//!
//! ```text
//!  Python      Image        memoryviews of rows and blocks · arrays · DLPack · Arrow
//!                │ until closed          │ as long as they are alive
//!                └───────► Picture ◄─────┘
//!                            │ one lock: many read, or one changes
//!                   gabion_image::Image
//! ```
//! Pixels are decoded, changed and encoded without the interpreter, except for work of microseconds, and behind the
//! gate that keeps `os.fork` out while a picture is locked. `thumbnail()` and `make_contiguous()` put another picture
//! in the place of the object's: whoever has it locked for writing may, and who changes a picture looks whether it is
//! still in its place. `close()` ends the use by the Image object, at once and for ever; the memory goes back with the
//! last view. Views see the pixels in place and take no lock, as with every buffer of Python's: what threads write into
//! the same bytes is theirs to order.
//!
//! | module | what it holds |
//! |---|---|
//! | `refusal` | what can go wrong, and how Python is told |
//! | `argument` | sizes, modes, colours and boxes as callers write them |
//! | `patience` | calls that wait for room |
//! | `opening` | the options of open() |
//! | `info` | what a file says before it is decoded |
//! | `picture` | the pixels, shared by the object and its views |
//! | `view` | memoryviews of rows, of blocks and of the whole |
//! | `export` | DLPack, Arrow, `__array_interface__` |
//! | `source` | from files, bytes, arrays and Pillow |
//! | `target` | to files, arrays and Pillow |
//! | `parts` | what pickle takes them apart into, and makes them anew from |
//! | `state` | the object: a picture until it is closed |
//! | `class` | its methods |
//! | `thumbnail` | from file to file, in one go |

#![allow(rustdoc::broken_intra_doc_links, reason = "docstrings are Python's, whose slices look like links")]
#![allow(clippy::doc_lazy_continuation, reason = "docstrings are Python's, whose prompts look like quotes")]

mod refusal;

mod argument;

mod patience;

mod opening;

mod info;

mod picture;

mod view;

mod export;

mod source;

mod target;

mod parts;

mod state;

mod class;

mod thumbnail;

use pyo3::prelude::*;

use crate::once::make_class;

/// Adds the classes and functions to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<state::Image>()?;
    m.add_class::<info::ImageInfo>()?;
    make_class::<view::Part>(m);
    make_class::<view::Rows>(m);
    m.add_function(wrap_pyfunction!(thumbnail::_thumbnail, m)?)?;
    m.add_function(wrap_pyfunction!(thumbnail::_image_size, m)?)?;
    m.add_function(wrap_pyfunction!(thumbnail::_image_format, m)?)?;
    m.add_function(wrap_pyfunction!(thumbnail::_processors, m)?)?;
    m.add_function(wrap_pyfunction!(thumbnail::_image_formats, m)?)
}
