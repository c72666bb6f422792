//! Images from files, bytes, arrays and Pillow.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use gabion_blocks::Pool;
use gabion_image::{Format, Formats, Image, ImageError, Limits, Metadata, Mode, Probe};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::argument;
use super::opening::Opening;
use super::patience::Patience;
use super::picture::BRIEF;
use super::refusal::{image_error, refused, type_error, unopened};
use crate::argument::path;
use crate::content::Content;
use crate::detached::{detached_ungated, detached_ungated_if};
use crate::errors::{answered, class_name};
use crate::ffi;
use crate::once::{import, intern, of_module};
use crate::streams;

/// An image of one colour, black unless said.
pub(super) fn plain(
    py: Python<'_>,
    mode: Mode,
    (width, height): (u32, u32),
    color: Option<&Bound<'_, PyAny>>,
    contiguous: bool,
) -> PyResult<Image> {
    let color = color.map_or_else(|| Ok(vec![0; mode.channels()]), |color| argument::color("color", mode, color))?;
    let bytes = u64::from(width) * u64::from(height) * mode.channels() as u64;
    let image = detached_ungated_if(py, bytes > BRIEF, || {
        let mut image = Image::new(Pool::global(), mode, width, height, &color)?;
        if contiguous {
            image.make_contiguous()?;
        }
        Ok(image)
    });
    image.map_err(|error| refused(py, error, None))
}

/// The image, with all rows in one piece where that is asked for.
pub(super) fn contiguous_if(py: Python<'_>, mut image: Image, contiguous: bool) -> Result<Image, ImageError> {
    if contiguous && !image.is_contiguous() {
        detached_ungated(py, || image.make_contiguous().map(drop))?;
    }
    Ok(image)
}

/// Opens a path, the bytes of a file, or a file object.
pub(super) fn open(source: &Bound<'_, PyAny>, how: &Opening) -> PyResult<Image> {
    let Opening { options, contiguous, patience } = how;
    let (partial, most) = (options.partial, options.limits.max_bytes);
    let whole = |image: Image| {
        let mut image = image;
        if *contiguous {
            image.make_contiguous()?;
        }
        Ok(image)
    };
    let decode = |bytes: &[u8]| Image::decode(Pool::global(), bytes, options).and_then(whole);
    let at = |path: &Path| Image::open(Pool::global(), path, options).and_then(whole);
    read(source, "open", Reading { partial, most, patience }, at, decode)
}

/// What a file says of its picture: of a path, the bytes of a file, or a file object, which stays where it stands.
pub(super) fn probe(source: &Bound<'_, PyAny>, formats: Formats, limits: &Limits) -> PyResult<Probe> {
    let before = streams::position(source)?;
    let reading = Reading { partial: false, most: limits.max_bytes, patience: &Patience::none() };
    let at = |path: &Path| Probe::open(Pool::global(), path, formats, limits);
    let found = read(source, "probe", reading, at, |bytes| Probe::of(bytes, formats, limits));
    let moved = before.map(|at| source.call_method1("seek", (at,))).transpose();
    found.and_then(|found| moved.map(|_| found))
}

/// How a source is read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    /// Whether the caller takes what can be decoded of a damaged file.
    partial: bool,
    /// Bytes that a file may have.
    most: u64,
    patience: &'a Patience,
}

/// What `at` makes of a path, or `decode` of the bytes of a file.
fn read<T: Send>(
    source: &Bound<'_, PyAny>,
    call: &str,
    reading: Reading<'_>,
    at: impl Fn(&Path) -> Result<T, ImageError> + Sync,
    decode: impl Fn(&[u8]) -> Result<T, ImageError> + Sync,
) -> PyResult<T> {
    let py = source.py();
    let Reading { partial, most, patience } = reading;
    if let Some(path) = path(source)? {
        if is_special(py, &path) {
            return with_file(source, "rb", |file| from_file(file, reading, decode));
        }
        return patience.run(py, || {
            detached_ungated(py, || at(&path)).map_err(|error| unopened(py, error, Some(source), partial))
        });
    }
    // Asked first: an image of Pillow's shows its pixels as an array, too, and has a palette apart.
    let maker = if is_pillows(source)? {
        Some("from_pillow(image)")
    } else if has_rows(source)? {
        Some("from_array(array)")
    } else {
        None
    };
    if let Some(maker) = maker {
        let given = class_name(source);
        let text = format!(
            "Image.{call}() takes the bytes of a file, not pixels: Image.{maker} makes an image of this {given}"
        );
        return Err(type_error(py, &text));
    }
    // SAFETY: attached, a live object.
    if unsafe { ffi::PyObject_CheckBuffer(source.as_ptr()) } != 0 {
        let content = Content::of(source)?;
        return patience.run(py, || {
            let copy;
            let bytes = if let Some(bytes) = content.as_immutable() {
                bytes
            } else {
                // A decoder counts on what it has read once, and others may write into this.
                copy = streams::copy_of(py, &content, most)?;
                copy.as_slice()
            };
            detached_ungated(py, || decode(bytes))
                .map_err(|error| unopened(py, unlike_a_path(bytes, error), None, partial))
        });
    }
    if !source.hasattr("read")? && !source.hasattr("readinto")? {
        let given = class_name(source);
        let text = format!("Image.{call}() takes a path, a binary file or the bytes of one, not {given}");
        return Err(type_error(py, &text));
    }
    from_file(source, reading, decode)
}

/// Bytes that are waited for before a file is read that cannot be read twice.
const BEGIN: u64 = 1 << 20;

fn from_file<T: Send>(
    source: &Bound<'_, PyAny>,
    reading: Reading<'_>,
    decode: impl Fn(&[u8]) -> Result<T, ImageError> + Sync,
) -> PyResult<T> {
    let py = source.py();
    let Reading { partial, most, patience } = reading;
    let name = source.getattr_opt("name")?.and_then(|name| name.cast_into::<PyString>().ok());
    let start = if patience.has_any() { streams::position(source)? } else { None };
    let whole = if let Some(start) = start {
        // Read anew: what came of it before is lost.
        patience.run(py, || {
            streams::whole(source, most).or_else(|error| streams::stand_at(source, start).and(Err(error)))
        })?
    } else {
        // What is read of it is gone: so it is not begun before there is some room.
        patience.for_room(py, BEGIN)?;
        streams::whole(source, most)?
    };
    let bytes = whole.as_slice();
    let raised = |error| unopened(py, error, name.as_ref().map(Bound::as_any), partial);
    match started_late(source, bytes)? {
        Some(error) => Err(raised(error)),
        // The bytes of the file are held meanwhile: nobody else can give them once more.
        None => patience.run(py, || detached_ungated(py, || decode(bytes)).map_err(raised)),
    }
}

/// Why the bytes that a file gave are no image, if it did not stand at its beginning: who has just written it forgets
/// that.
fn started_late(file: &Bound<'_, PyAny>, bytes: &[u8]) -> PyResult<Option<ImageError>> {
    if Format::of_bytes(bytes).is_some() {
        return Ok(None);
    }
    // It stands behind what was read of it now.
    let began = streams::position(file)?.and_then(|at| at.checked_sub(bytes.len() as u64));
    Ok(began.filter(|at| *at > 0).map(|at| ImageError::Unsupported {
        what: if bytes.is_empty() {
            format!("the file stands at byte {at}, its end: call seek(0) first")
        } else {
            format!(
                "the file stands at byte {at}, and what is there is of no image format that is known here: call seek(0) \
                 first, or seek to where the image begins"
            )
        },
    }))
}

/// Whether an object has what `from_pillow` asks of one.
fn is_pillows(source: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(source.hasattr(intern!(source.py(), "getbands")?)? && source.hasattr(intern!(source.py(), "tobytes")?)?)
}

/// Whether an object is an array of more than one dimension, or an image: no file's bytes are.
fn has_rows(source: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = source.py();
    if let Some(dimensions) = source.getattr_opt(intern!(py, "ndim")?)? {
        return Ok(answered(py, dimensions.extract::<usize>())?.is_some_and(|dimensions| dimensions > 1));
    }
    // Warm memory says what it is, too, in one dimension. What cannot say it is none.
    let dimensions = || match source.getattr_opt(intern!(py, "__array_interface__")?)? {
        Some(interface) => interface.get_item(intern!(py, "shape")?)?.len(),
        None => Ok(0),
    };
    Ok(answered(py, dimensions())?.is_some_and(|dimensions| dimensions > 1))
}

/// No more bytes than a name may have on most discs.
const SHORT: usize = 255;

/// The error of bytes that are no image. Short ones may be meant as a path.
fn unlike_a_path(bytes: &[u8], error: ImageError) -> ImageError {
    let text = bytes.len() <= SHORT && !bytes.iter().any(u8::is_ascii_control) && !bytes.starts_with(b"<");
    let text = text && (bytes.contains(&b'/') || Format::of_path(Path::new(OsStr::from_bytes(bytes))).is_some());
    match error {
        ImageError::Unsupported { what } if text && Format::of_bytes(bytes).is_none() => {
            let meant = "bytes are the content of a file: if this is a path, pass it as a str or a Path";
            ImageError::Unsupported { what: format!("{what}; {meant}") }
        }
        error => error,
    }
}

/// Whether there is something that is neither a file nor a folder, such as a pipe or a device.
pub(super) fn is_special(py: Python<'_>, path: &Path) -> bool {
    detached_ungated(py, || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()))
}

/// Has `work` use a path as a file of Python's, which signals interrupt: a pipe may have nobody at its other end for
/// ever.
pub(super) fn with_file<T>(
    path: &Bound<'_, PyAny>,
    mode: &str,
    work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    let file = of_module(path.py(), c"io", c"open")?.call1((path, mode, 0))?;
    let done = work(&file);
    let closed = file.call_method0("close");
    done.and_then(|done| closed.map(|_| done))
}

/// A strided array of bytes, held by its view.
struct Array<'py> {
    view: ffi::Py_buffer,
    py: Python<'py>,
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        let _ = self.py;
        // SAFETY: attached (`py`), a view that was filled and is released once.
        unsafe { ffi::PyBuffer_Release(&raw mut self.view) };
    }
}

/// What of an array is needed to copy it.
#[derive(Clone, Copy)]
struct Strided {
    start: NonNull<u8>,
    /// Rows, columns, channels.
    shape: [usize; 3],
    strides: [isize; 3],
}

// SAFETY: an address with its shape; the copy that uses it runs while the view is held.
unsafe impl Send for Strided {}

impl<'py> Array<'py> {
    /// The array that an object is: by the buffer protocol, else by what NumPy makes of it.
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let flags = ffi::PyBUF_STRIDED_RO | ffi::PyBUF_FORMAT;
        let mut view = ffi::Py_buffer::new();
        // SAFETY: attached, a live object and a structure to fill.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view, flags) } == 0 {
            return Ok(Self { view, py });
        }
        // No buffer, or none in one piece: NumPy may know another way.
        let refused = PyErr::fetch(py);
        if !refused.is_instance_of::<PyTypeError>(py) && !refused.is_instance_of::<PyBufferError>(py) {
            return Err(refused);
        }
        let array = numpy(object)?;
        // SAFETY: as above.
        if unsafe { ffi::PyObject_GetBuffer(array.as_ptr(), &raw mut view, flags) } == 0 {
            Ok(Self { view, py })
        } else {
            Err(PyErr::fetch(py))
        }
    }

    fn format(&self) -> &CStr {
        // SAFETY: asked for, so it is null (bytes) or a string that lives as long as the view.
        unsafe { if self.view.format.is_null() { c"B" } else { CStr::from_ptr(self.view.format) } }
    }

    fn strided(&self) -> PyResult<Strided> {
        let dimensions = usize::try_from(self.view.ndim).unwrap_or(0);
        let format = self.format().to_string_lossy();
        if !matches!(&*format, "B" | "<B" | "=B" | "@B" | "|B" | ">B") || self.view.itemsize != 1 {
            let text = format!(
                "an array of uint8 is needed, not of format {format:?}: scale it to 0–255 and call .astype('uint8')"
            );
            return Err(type_error(self.py, &text));
        }
        if !(2..=3).contains(&dimensions) {
            let text = format!("an array of rows × columns × channels is needed, not of {dimensions} dimensions");
            return Err(image_error(self.py, &text));
        }
        let (mut shape, mut strides) = ([1; 3], [1; 3]);
        // SAFETY: asked for, so the shape has as many entries as there are dimensions, and so have the strides, where
        // they are not null. Both lie with the exporter: those of one dimension, which may lie in the view itself, were
        // refused.
        unsafe {
            (0..dimensions).for_each(|dimension| shape[dimension] = *self.view.shape.add(dimension) as usize);
            if self.view.strides.is_null() {
                // What lies without gaps may come without strides, as the arrays of ctypes do.
                strides[1] = shape[2] as isize;
                strides[0] = strides[1].saturating_mul(shape[1] as isize);
            } else {
                (0..dimensions).for_each(|dimension| strides[dimension] = *self.view.strides.add(dimension));
            }
        }
        let start = NonNull::new(self.view.buf.cast()).unwrap_or(NonNull::dangling());
        Ok(Strided { start, shape, strides })
    }
}

/// Whether an object has all these attributes.
fn has_all(object: &Bound<'_, PyAny>, names: &[&str]) -> PyResult<bool> {
    for name in names {
        if answered(object.py(), object.hasattr(*name))? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The NumPy array of what is none itself: tensors, other images.
fn numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let ways = ["__array_interface__", "__array__", "__array_struct__", "__dlpack__"];
    let mut found = None;
    for way in ways {
        if has_all(object, &[way])? {
            found = Some(way);
            break;
        }
    }
    let Some(way) = found else {
        let given = class_name(object);
        return Err(type_error(py, &format!("from_array() takes an array of uint8, not {given}")));
    };
    let call = if way == "__dlpack__" { "from_dlpack" } else { "asarray" };
    import(py, c"numpy")?.call_method1(call, (object,))
}

/// A copy of an array of uint8: (rows, columns) or (rows, columns, channels).
pub(super) fn array(object: &Bound<'_, PyAny>, mode: Option<Mode>) -> PyResult<Image> {
    let py = object.py();
    let array = Array::of(object)?;
    let from = array.strided()?;
    let [height, width, channels] = from.shape;
    let mode = match (mode, channels) {
        (Some(mode), channels) if mode.channels() == channels => mode,
        (Some(mode), _) => {
            let text = format!("an array of {channels} channels is no {mode} image: that has {}", mode.channels());
            return Err(image_error(py, &text));
        }
        (None, 1) => Mode::L,
        (None, 2) => Mode::LA,
        (None, 3) => Mode::RGB,
        (None, 4) => Mode::RGBA,
        (None, _) => {
            let text = format!("an array of {channels} channels is no image: 1 to 4 are, the last dimension counts");
            return Err(image_error(py, &text));
        }
    };
    let side = |side: usize| argument::side(py, "array", i64::try_from(side).unwrap_or(i64::MAX));
    let (width, height) = (side(width)?, side(height)?);
    // SAFETY: the array is held by its view; it is as large as the image.
    unsafe { copied(py, mode, width, height, from) }
}

/// An image of a copy of pixels.
///
/// # Safety
/// The pixels are alive until this returns, and of as many rows, columns and channels as the image.
unsafe fn copied(py: Python<'_>, mode: Mode, width: u32, height: u32, from: Strided) -> PyResult<Image> {
    let image = detached_ungated(py, move || {
        let mut image = Image::new(Pool::global(), mode, width, height, &vec![0; mode.channels()])?;
        // SAFETY: duty of the caller.
        image.rows_mut().enumerate().for_each(|(y, row)| unsafe { copy_row(from, y, row) });
        Ok(image)
    });
    image.map_err(|error| refused(py, error, None))
}

/// An image of pixels that lie row after row without gaps.
pub(super) fn bytes(mode: Mode, (width, height): (u32, u32), data: &Bound<'_, PyAny>) -> PyResult<Image> {
    let py = data.py();
    let content = Content::of(data)?;
    let shape = [height as usize, width as usize, mode.channels()];
    let need = u64::from(width) * u64::from(height) * mode.channels() as u64;
    if content.len() as u64 != need {
        let text = format!(
            "data has {} bytes; {width} × {height} pixels of {mode} are {need}, row after row without gaps",
            content.len()
        );
        return Err(image_error(py, &text));
    }
    let strides = [(shape[1] * shape[2]) as isize, shape[2] as isize, 1];
    let start = NonNull::new(content.start()).unwrap_or(NonNull::dangling());
    // SAFETY: the bytes are held by `content`, and are as many as the shape says.
    unsafe { copied(py, mode, width, height, Strided { start, shape, strides }) }
}

/// Copies a row of an array.
///
/// # Safety
/// The array is alive, has a row `y`, and as many bytes in it as `row`.
unsafe fn copy_row(from: Strided, y: usize, row: &mut [u8]) {
    let [_, _, channels] = from.shape;
    let [down, right, deep] = from.strides;
    // SAFETY: all indices are within the shape (duty of the caller), which the strides lead into the array for.
    unsafe {
        let start = from.start.as_ptr().offset(y as isize * down);
        if deep == 1 && right == channels as isize {
            start.copy_to_nonoverlapping(row.as_mut_ptr(), row.len());
            return;
        }
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = *start.offset(x as isize * right + channel as isize * deep);
            }
        }
    }
}

/// Bytes that are asked of Pillow at a time.
const STRIP: usize = 1 << 20;

/// How a channel lies in the bytes that Pillow gives.
#[derive(Clone, Copy)]
struct Depth {
    /// How many bytes it has: 1 or 2.
    bytes: usize,
    /// Which of them is taken: the one with the upper bits.
    upper: usize,
    /// Of 16 bits, the grey that is transparent.
    clear: Option<u16>,
}

/// A copy of a Pillow image. One that keeps its transparency beside its pixels gets an alpha of it. Other modes that
/// are none here are converted: 1-bit ones to L, others to RGB. Of greys with 16 bits the upper eight are taken, as
/// from a file; Pillow's own conversion would make white of all that is above 255, as of I and F, which are refused.
pub(super) fn pillow(original: &Bound<'_, PyAny>) -> PyResult<Image> {
    let py = original.py();
    let known = ["mode", "size", "tobytes", "crop", "convert", "info"];
    if !has_all(original, &known)? {
        return Err(type_error(py, &format!("from_pillow() takes a PIL.Image.Image, not {}", class_name(original))));
    }
    let (mode, depth, converted) = pillow_mode(original)?;
    let picture = if converted { original.call_method1("convert", (mode.name(),))? } else { original.clone() };
    let (width, height): (u32, u32) = picture.getattr("size")?.extract()?;
    let blank = || Image::new(Pool::global(), mode, width, height, &vec![0; mode.channels()]);
    let mut image = detached_ungated(py, blank).map_err(|error| refused(py, error, None))?;
    copy_strips(&picture, depth, &mut image)?;
    // Last, because a file may tell it behind its pixels, which Pillow reads late.
    *image.metadata_mut() = pillow_metadata(&original.getattr("info")?)?;
    image.metadata_mut().fit(mode);
    Ok(image)
}

/// The mode that a Pillow image gets here, how its channels lie in its bytes, and whether Pillow is to convert it to
/// that mode first.
fn pillow_mode(picture: &Bound<'_, PyAny>) -> PyResult<(Mode, Depth, bool)> {
    let name: String = picture.getattr("mode")?.extract()?;
    let (bytes, upper) = match name.as_str() {
        "I;16" | "I;16L" => (2, 1),
        "I;16B" => (2, 0),
        "I;16N" => (2, usize::from(cfg!(target_endian = "little"))),
        _ => (1, 0),
    };
    if let "I" | "F" = name.as_str() {
        let text = format!("from_pillow() takes no mode {name}: scale its values to 0-255 and convert them to mode L");
        return Err(type_error(picture.py(), &text));
    }
    let transparency = picture.getattr("info")?.call_method1("get", ("transparency",))?;
    let transparent = !transparency.is_none();
    let clear = if bytes == 2 { transparency.extract::<u16>().ok() } else { None };
    let known = Mode::of_name(&name).or((bytes == 2).then_some(Mode::L));
    let mode = match (name.as_str(), known) {
        _ if clear.is_some() => Mode::LA,
        ("1" | "L", _) if transparent => Mode::LA,
        ("RGB", _) if transparent => Mode::RGBA,
        (_, Some(mode)) => mode,
        ("1", None) => Mode::L,
        ("La", None) => Mode::LA,
        ("PA" | "RGBa", None) => Mode::RGBA,
        (_, None) if transparent => Mode::RGBA,
        (_, None) => Mode::RGB,
    };
    Ok((mode, Depth { bytes, upper, clear }, known != Some(mode) && clear.is_none()))
}

/// Copies the pixels of a Pillow image, whose channels lie as `depth` says, into an image of its size.
fn copy_strips(picture: &Bound<'_, PyAny>, depth: Depth, image: &mut Image) -> PyResult<()> {
    let py = picture.py();
    let (width, height) = image.size();
    let row_bytes = if depth.bytes == 1 { image.row_bytes() } else { width as usize * depth.bytes };
    let rows = u32::try_from(STRIP / image.row_bytes()).unwrap_or(u32::MAX).max(1);
    for top in (0..height).step_by(rows as usize) {
        let bottom = top.saturating_add(rows).min(height);
        // A picture of one strip need not be copied within Pillow.
        let part = if bottom - top == height {
            picture.clone()
        } else {
            picture.call_method1("crop", ((0, top, width, bottom),))?
        };
        let strip = part.call_method0("tobytes")?;
        let content = Content::of(&strip)?;
        if content.len() != row_bytes * (bottom - top) as usize {
            return Err(image_error(py, "Pillow gives another number of bytes than the image's size and mode say"));
        }
        for (number, y) in (top..bottom).enumerate() {
            let Some(row) = image.row_mut(y) else { break };
            // SAFETY: the strip has `bottom - top` rows of `row_bytes`, as was just seen, and is held in place. These
            // are as many as the image's row has, or two for each of its pixels.
            unsafe {
                let start = content.start().add(number * row_bytes);
                if depth.bytes == 1 {
                    start.copy_to_nonoverlapping(row.as_mut_ptr(), row.len());
                } else {
                    upper_eight(start, depth, row);
                }
            }
        }
    }
    Ok(())
}

/// The upper eight of 16 bits of a row of greys. With a transparent one, of which all bits count, the row has alpha.
///
/// # Safety
/// There are two bytes for each of the row's pixels at `start`; `upper`, 0 or 1, is the one with the upper bits.
unsafe fn upper_eight(start: *const u8, Depth { upper, clear, .. }: Depth, row: &mut [u8]) {
    for (x, pixel) in row.chunks_exact_mut(1 + usize::from(clear.is_some())).enumerate() {
        // SAFETY: both are bytes of pixel `x` (duty of the caller).
        let grey = unsafe { [start.add(2 * x + upper).read(), start.add(2 * x + 1 - upper).read()] };
        pixel[0] = grey[0];
        if let (Some(alpha), Some(clear)) = (pixel.get_mut(1), clear) {
            *alpha = if u16::from_be_bytes(grey) == clear { 0 } else { 255 };
        }
    }
}

/// What stands before an EXIF block where Pillow keeps one. It is no part of the block.
pub(super) const EXIF_PREFIX: &[u8] = b"Exif\0\0";

/// What Pillow kept of a file's metadata.
fn pillow_metadata(info: &Bound<'_, PyAny>) -> PyResult<Metadata> {
    let kept = |name: &str| {
        let value = info.call_method1("get", (name,))?;
        PyResult::Ok(value.cast_into::<PyBytes>().ok())
    };
    let filled = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let exif = kept("exif")?.and_then(|exif| {
        let exif = exif.as_bytes();
        filled(exif.strip_prefix(EXIF_PREFIX).unwrap_or(exif))
    });
    Ok(Metadata { exif, icc: kept("icc_profile")?.and_then(|icc| filled(icc.as_bytes())) })
}
