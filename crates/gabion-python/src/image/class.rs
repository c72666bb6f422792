//! The methods of `gabion.Image`.

use std::ffi::c_int;

use gabion_image::{Fit, Formats};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::info::ImageInfo;
use super::opening::{AVERAGED, Opening};
use super::patience::Patience;
use super::state::Image;
use super::view::{self, Rows};
use super::{argument, export, parts, refusal, source, target};
use crate::argument::Given;
use crate::detached::detached_ungated;
use crate::errors::exception;
use crate::ffi;
use crate::gate::through_gate;
use crate::memory::{basic_size, row_index};
use crate::result;

#[pymethods]
impl Image {
    /// Refuses, except for what `__reduce_ex__` gave: an image is opened or made.
    #[new]
    #[pyo3(signature = (*args, **options))]
    fn refuse(py: Python<'_>, args: &Bound<'_, PyTuple>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let parts = if options.is_none() { parts::given(args) } else { None };
        let parts = parts.ok_or_else(|| refusal::not_made(py))?;
        Patience::none().run(py, || Self::made(py, Ok(parts::put_together(parts)?)))
    }

    #[doc = include_str!("open.txt")]
    #[staticmethod]
    #[pyo3(
        signature = (source, **options),
        text_signature = "(source, *, max_size=None, mode=None, filter='lanczos3', reducing_gap=2.0, scaled=True, \
                          upright=True, metadata=True, partial=False, contiguous=False, max_pixels=None, \
                          max_bytes=None, fit='inside', background=None, formats=None, timeout=None)"
    )]
    fn open(source: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = source.py();
        Self::made(py, Ok(source::open(source, &Opening::of(py, options)?)?))
    }

    /// Look at a file without decoding it; returns an ImageInfo. source, limits and formats are those of open(), and so
    /// are the errors, but for what only decoding finds damaged. A file object that can seek stays where it stands.
    /// Reads the file, and takes no memory for pixels.
    ///
    /// >>> import gabion, io
    /// >>> file = io.BytesIO()
    /// >>> gabion.Image.new("RGB", (300, 200), 128).save(file, format="PNG")
    /// >>> found = gabion.Image.probe(file.getvalue())
    /// >>> found.format, found.mode, found.size, found.frames
    /// ('PNG', 'RGB', (300, 200), 1)
    #[staticmethod]
    #[pyo3(signature = (source, *, max_pixels = None, max_bytes = None, formats = None))]
    fn probe(
        source: &Bound<'_, PyAny>,
        max_pixels: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        formats: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ImageInfo> {
        let formats = formats.map_or(Ok(Formats::ALL), argument::formats)?;
        Ok(ImageInfo::of(&source::probe(source, formats, &argument::limits(max_pixels, max_bytes)?)?))
    }

    /// Make an image of one colour. size is (width, height); color is a number from 0 to 255 for all channels, or one
    /// for each. contiguous=True puts all rows in one piece. Raises ValueError for a side of 0 or of more than 2³¹ − 1,
    /// LimitError or MemoryError when the pool has no room; timeout waits for some, as that of open().
    ///
    /// >>> import gabion
    /// >>> bytes(gabion.Image.new("RGBA", (2, 1), (1, 2, 3, 255)).row(0))
    /// b'\x01\x02\x03\xff\x01\x02\x03\xff'
    #[staticmethod]
    #[pyo3(
        signature = (mode, size, color = None, *, contiguous = Given::Absent, timeout = None),
        text_signature = "(mode, size, color=0, *, contiguous=False, timeout=None)"
    )]
    fn new(
        mode: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        color: Option<&Bound<'_, PyAny>>,
        contiguous: Given<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = mode.py();
        let (mode, contiguous) = (argument::mode(mode)?, contiguous.flag("contiguous", false)?);
        let size = argument::size("size", size)?;
        let made = Patience::of(timeout)?.run(py, || source::plain(py, mode, size, color, contiguous))?;
        Self::made(py, Ok(made))
    }

    /// Make an image of a copy of pixels as to_bytes() gives them: data, bytes-like, has a byte for each channel, row
    /// after row without gaps. size is (width, height). Raises ImageError for another number of bytes than these pixels
    /// have. timeout is that of open().
    ///
    /// >>> import gabion
    /// >>> gabion.Image.from_bytes("RGB", (2, 1), bytes([255, 0, 0, 0, 255, 0]))
    /// <gabion.Image RGB 2 × 1>
    #[staticmethod]
    #[pyo3(signature = (mode, size, data, *, timeout = None))]
    fn from_bytes(
        mode: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (py, mode, size) = (data.py(), argument::mode(mode)?, argument::size("size", size)?);
        Self::made(py, Ok(Patience::of(timeout)?.run(py, || source::bytes(mode, size, data))?))
    }

    /// Make an image of a copy of an array of uint8: (rows, columns), or (rows, columns, channels) of 1 to 4 channels,
    /// with any strides. Takes what has the buffer protocol; NumPy is asked for what has __array__ or DLPack, such as
    /// tensors. mode is needed for CMYK only, which is RGBA otherwise. contiguous=True puts all rows in one piece.
    /// Raises TypeError for what is no array of uint8, ImageError for another shape.
    ///
    /// >>> import gabion, numpy
    /// >>> gabion.Image.from_array(numpy.zeros((20, 30, 3), dtype="uint8"))
    /// <gabion.Image RGB 30 × 20>
    #[staticmethod]
    #[pyo3(
        signature = (array, *, mode = None, contiguous = Given::Absent),
        text_signature = "(array, *, mode=None, contiguous=False)"
    )]
    fn from_array(array: &Bound<'_, PyAny>, mode: Option<&Bound<'_, PyAny>>, contiguous: Given<'_>) -> PyResult<Self> {
        let (mode, contiguous) = (mode.map(argument::mode).transpose()?, contiguous.flag("contiguous", false)?);
        let py = array.py();
        Patience::none().run(py, || Self::made(py, source::contiguous_if(py, source::array(array, mode)?, contiguous)))
    }

    #[doc = include_str!("from_pillow.txt")]
    #[staticmethod]
    #[pyo3(signature = (image, /))]
    fn from_pillow(image: &Bound<'_, PyAny>) -> PyResult<Self> {
        Patience::none().run(image.py(), || Self::made(image.py(), Ok(source::pillow(image)?)))
    }

    /// (width, height) in pixels.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        Ok(self.open_picture(py)?.size)
    }

    /// Pixels in a row.
    #[getter]
    fn width(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.open_picture(py)?.size.0)
    }

    /// Rows.
    #[getter]
    fn height(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.open_picture(py)?.size.1)
    }

    /// What the bytes of a pixel mean: "L", "LA", "RGB", "RGBA" or "CMYK".
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.open_picture(py)?.mode.name())
    }

    /// The format of the file that the image came from: "JPEG", "PNG", "WebP", "TIFF", "BMP" or "GIF"; None for others.
    #[getter]
    fn format(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.open_picture(py)?.format.map(gabion_image::Format::name))
    }

    /// How many bytes the pixels have.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open_picture(py)?.len())
    }

    /// True when all rows lie in one piece.
    #[getter]
    fn is_contiguous(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open_picture(py)?.is_contiguous())
    }

    /// The blocks that the pixels lie in: a tuple of writable memoryviews, each of whole rows without gaps.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let picture = self.shown(py)?;
        let views: PyResult<Vec<_>> =
            picture.places().iter().map(|place| view::memoryview(py, &picture, *place)).collect();
        result::tuple(py, views?.into_iter())
    }

    /// The EXIF block of the file that the image came from, or None.
    #[getter]
    fn exif<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.kept(py, |metadata| metadata.exif.clone())
    }

    /// The ICC profile of the file that the image came from, or None. It is kept as long as it fits: in another colour
    /// space (grey, RGB, CMYK) there is none. May be set, to the content of a profile or to None; ValueError for what
    /// is none, or is of another colour space. Pixels stay as they are.
    #[getter]
    fn icc_profile<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.kept(py, |metadata| metadata.icc.clone())
    }

    #[setter]
    fn set_icc_profile(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let profile = value.map(argument::content).transpose()?;
        self.keep(py, |image| image.set_profile(profile))
    }

    /// A new image of another size, (width, height).
    ///
    /// filter is "lanczos3", "bicubic", "bilinear", "box" or "nearest". With reducing_gap, the image is first averaged
    /// down to about that many times the new size and then filtered: 2.0 is several times faster, and the difference is
    /// hardly visible. Colours are weighted by their alpha. contiguous=True puts all rows in one piece.
    ///
    /// fit keeps the shape: "inside" gives the largest size within size, "cover" and "pad" exactly size, as those of
    /// open() do, background too; the image may get larger with all of them. timeout is that of open(). Raises
    /// ValueError for a side of 0, an unknown filter or a gap below 1.
    ///
    /// >>> import gabion
    /// >>> gabion.Image.new("RGB", (640, 480)).resize((64, 48), filter="box")
    /// <gabion.Image RGB 64 × 48>
    /// >>> gabion.Image.new("RGB", (640, 480)).resize((50, 50), fit="cover")
    /// <gabion.Image RGB 50 × 50>
    #[pyo3(
        signature = (
            size, *others, filter = None, reducing_gap = Given::Absent, contiguous = Given::Absent, fit = None,
            background = None, timeout = None
        ),
        text_signature = "($self, size, *, filter='lanczos3', reducing_gap=None, contiguous=False, fit=None, \
                          background=None, timeout=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn resize(
        &self,
        size: &Bound<'_, PyAny>,
        others: &Bound<'_, PyTuple>,
        filter: Option<&Bound<'_, PyAny>>,
        reducing_gap: Given<'_>,
        contiguous: Given<'_>,
        fit: Option<&Bound<'_, PyAny>>,
        background: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = size.py();
        if !others.is_empty() && argument::is_one_number(size) {
            argument::not_apart("resize", "size", "pair", size, others)?;
        }
        argument::by_name("resize()", "filter", others)?;
        let (width, height) = argument::size("size", size)?;
        let how = argument::resampling(filter, &reducing_gap, None)?;
        let (contiguous, fit) = (contiguous.flag("contiguous", false)?, argument::fit(py, fit, background)?);
        Patience::of(timeout)?.run(py, || {
            let new = self.map(py, |image| match fit {
                None => image.resize(width, height, how),
                Some(fit) => image.resize_to_fit(width, height, fit, how),
            })?;
            if contiguous {
                new.make_contiguous(py)?;
            }
            Ok(new)
        })
    }

    /// Make this image no larger than size, (width, height) or one number for both, in its own shape; returns it. With
    /// None for one of them, that side may be as long as it gets. An image that is small enough stays as it is. With
    /// fit="cover" or "pad" it is exactly size: see open(). As in Pillow the image itself changes: use resize(), or
    /// copy() first, to keep it. Views that were made before go on to show the old pixels.
    ///
    /// >>> import gabion
    /// >>> gabion.Image.new("L", (300, 200)).thumbnail((30, 30)).size
    /// (30, 20)
    #[pyo3(
        signature = (size, *, filter = None, reducing_gap = Given::Absent, fit = None, background = None),
        text_signature = "($self, size, *, filter='lanczos3', reducing_gap=2.0, fit='inside', background=None)"
    )]
    fn thumbnail<'py>(
        slf: Bound<'py, Self>,
        size: &Bound<'py, PyAny>,
        filter: Option<&Bound<'py, PyAny>>,
        reducing_gap: Given<'_>,
        fit: Option<&Bound<'py, PyAny>>,
        background: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = size.py();
        let (width, height) = argument::most("size", size)?;
        let fit = argument::fit(py, fit, background)?.unwrap_or_default();
        argument::both_sides(py, "size", (width, height), fit)?;
        let how = argument::resampling(filter, &reducing_gap, AVERAGED)?;
        let smaller = |image: &gabion_image::Image| {
            let differs = match fit {
                Fit::Inside => image.width() > width || image.height() > height,
                _ => image.size() != (width, height),
            };
            differs.then(|| image.thumbnail_to_fit(width, height, fit, how)).transpose()
        };
        Patience::none().run(py, || slf.get().replace(py, true, smaller))?;
        Ok(slf)
    }

    /// A new image in another mode. Grey is ITU-R BT.601 luma; new alpha is opaque. CMYK is the plain complement of
    /// RGB. ICC profiles are not applied, and one of another colour space is left out.
    ///
    /// Alpha that goes is dropped, as in Pillow: transparent pixels show whatever colour they hold, often black.
    /// background, a tuple of the new mode's channels from 0 to 255, or one number for L and for a grey in RGB, lays
    /// the picture over that colour instead; one without alpha is just converted.
    ///
    /// Raises ValueError for an unknown mode, a channel beyond 255, and a background where the new mode has alpha;
    /// TypeError for a background of another length. timeout is that of open().
    ///
    /// >>> import gabion
    /// >>> transparent = gabion.Image.new("RGBA", (1, 1), (10, 0, 0, 0))
    /// >>> transparent.convert("RGB").to_bytes(), transparent.convert("RGB", background=255).to_bytes()
    /// (b'\n\x00\x00', b'\xff\xff\xff')
    #[pyo3(signature = (mode, /, *, background = None, timeout = None))]
    fn convert(
        &self,
        mode: &Bound<'_, PyAny>,
        background: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = mode.py();
        let mode = argument::mode(mode)?;
        let background = background.map(|background| argument::background(mode, background)).transpose()?;
        Patience::of(timeout)?.run(py, || {
            self.map_brief(py, |image| match &background {
                Some(color) => image.over(mode, color),
                None => image.convert(mode),
            })
        })
    }

    /// A new image of a part of this one, (left, top, right, bottom); right and bottom are outside. Raises ImageError
    /// when it is empty or reaches beyond the image. timeout is that of open().
    #[pyo3(signature = (r#box, /, *others, timeout = None), text_signature = "($self, box, /, *, timeout=None)")]
    fn crop(
        &self,
        r#box: &Bound<'_, PyAny>,
        others: &Bound<'_, PyTuple>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        argument::not_apart("crop", "box", "tuple", r#box, others)?;
        let region = argument::region(r#box)?;
        let py = r#box.py();
        Patience::of(timeout)?.run(py, || self.map_brief(py, |image| image.crop(region)))
    }

    /// A new image, turned counterclockwise by 90, 180 or 270 degrees, as in Pillow; by 90 and 270, width and height
    /// change places. Other multiples of 90 are taken modulo 360: -90 is 270. A float that is whole is taken, too:
    /// 90.0. Raises ValueError for other angles, TypeError for what is no whole number.
    #[pyo3(signature = (degrees, /))]
    fn rotate(&self, degrees: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, turn) = (degrees.py(), argument::turn(degrees)?);
        let turned = |image: &gabion_image::Image| turn.map_or_else(|| image.copy(), |turn| image.rotate(turn));
        Patience::none().run(py, || self.map_brief(py, turned))
    }

    /// A new image with left and right ("horizontal") or top and bottom ("vertical") exchanged. Raises ValueError for
    /// another direction.
    #[pyo3(signature = (direction, /))]
    fn flip(&self, direction: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, flip) = (direction.py(), argument::flip(direction)?);
        Patience::none().run(py, || self.map_brief(py, |image| image.flip(flip)))
    }

    /// Copy another image of the same mode over this one, with its upper left corner at (x, y). Pixels outside this
    /// image are left out; x and y may be negative. Raises ImageError when the modes differ, TypeError for anything
    /// else than a gabion.Image.
    #[pyo3(signature = (other, at = None, /), text_signature = "($self, other, at=(0, 0), /)")]
    fn paste(&self, other: &Bound<'_, PyAny>, at: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return Err(refusal::no_image(other)) };
        let (x, y) = at.map_or(Ok((0, 0)), |at| argument::place("at", at))?;
        let other = other.get();
        let paste = || through_gate(py, || self.paste_from(other, x, y)).map_err(|refusal| refusal.into_error(py));
        Patience::none().run(py, paste)
    }

    /// A second image with the same pixels and metadata. timeout is that of open().
    #[pyo3(signature = (*, timeout = None))]
    fn copy(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Patience::of(timeout)?.run(py, || self.map_brief(py, gabion_image::Image::copy))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.copy(py, None)
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.copy(py, None)
    }

    /// Put all rows in one piece, so that NumPy and others can share them; does nothing when they already are. Raises
    /// BufferError while views are alive, because they would go on to show the old place. Calls of other threads wait
    /// meanwhile.
    fn make_contiguous(&self, py: Python<'_>) -> PyResult<()> {
        if self.open_picture(py)?.is_contiguous() {
            return Ok(());
        }
        let whole = |image: &gabion_image::Image| {
            let scattered = !image.is_contiguous();
            scattered.then(|| image.copy_contiguous()).transpose()
        };
        Patience::none().run(py, || self.replace(py, false, whole))
    }

    /// Row y as a writable memoryview of bytes, in place; negative y counts from the bottom. Raises IndexError when
    /// there is no such row. Constant time.
    #[pyo3(signature = (y, /))]
    fn row<'py>(&self, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = y.py();
        let picture = self.shown(py)?;
        let index = row_index(y, picture.size.1 as usize, "an image")?;
        view::memoryview(py, &picture, picture.row(index))
    }

    /// All rows, top to bottom, as writable memoryviews in place.
    fn rows(&self, py: Python<'_>) -> PyResult<Rows> {
        Ok(Rows::of(self.shown(py)?))
    }

    /// Call fn(y, row) for each row, top to bottom. row is a writable memoryview, in place; if fn returns bytes, they
    /// become the row. Raises ValueError when their number is another. An exception of fn is passed on, and the rows
    /// before stay changed.
    ///
    /// >>> import gabion
    /// >>> image = gabion.Image.new("L", (3, 2), 250)
    /// >>> image.process_rows(lambda y, row: bytes(255 - value for value in row))
    /// >>> image.to_bytes()
    /// b'\x05\x05\x05\x05\x05\x05'
    #[pyo3(signature = (r#fn, /))]
    fn process_rows(&self, r#fn: &Bound<'_, PyAny>) -> PyResult<()> {
        self.process(r#fn)
    }

    /// All rows without gaps, as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        target::pixels(py, &*self.open_picture(py)?)
    }

    /// A Pillow image of the same pixels. If the image is contiguous and L, RGBA or CMYK, Pillow shares its pixels
    /// until it changes them; others are copied. EXIF block and ICC profile are in its info, where Pillow keeps those
    /// of files. Raises ModuleNotFoundError without Pillow.
    fn to_pillow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        target::pillow(py, &self.shown(py)?)
    }

    #[doc = include_str!("save.txt")]
    #[pyo3(
        signature = (target, *others, format = None, quality = None, **options),
        text_signature = "($self, target, *, format=None, quality=80, subsampling='4:2:0', progressive=False, optimize=False, \
                          lossless=False, compression='balanced', metadata=True)"
    )]
    fn save(
        &self,
        target: &Bound<'_, PyAny>,
        others: &Bound<'_, PyTuple>,
        format: Option<&Bound<'_, PyAny>>,
        quality: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let py = target.py();
        argument::by_name("save()", "format", others)?;
        let picture = self.open_picture(py)?;
        let format = format.map(argument::format).transpose()?;
        target::save(target, &picture, format, &target::options(quality, options, py)?)
    }

    /// End the use of this object. The memory goes back to the pool, at once or with the last view of it. Closing twice
    /// does nothing.
    fn close(&self, py: Python<'_>) {
        let picture = self.take();
        detached_ungated(py, || drop(picture));
    }

    /// True after close().
    #[getter]
    fn closed(&self) -> bool {
        self.peek().is_none()
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open_picture(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> bool {
        slf.is(other) || slf.get().is_like(slf.py(), other.get())
    }

    /// With the pixels, unless closed.
    fn __sizeof__(slf: &Bound<'_, Self>) -> usize {
        basic_size(slf) + slf.get().peek().map_or(0, |picture| picture.len())
    }

    fn __repr__(&self) -> String {
        let Some(picture) = self.peek() else { return "<gabion.Image, closed>".to_owned() };
        let (width, height) = picture.size;
        let from = picture.format.map_or(String::new(), |format| format!(", from {format}"));
        format!("<gabion.Image {} {width} × {height}{from}>", picture.mode)
    }

    /// What a notebook shows: a PNG of the picture, 512 pixels on its longer side at most; None when closed.
    fn _repr_png_<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.peek().map(|picture| target::png(py, &picture)).transpose()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let py = slf.py();
        // SAFETY: the interpreter's structure to fill; null means "nothing exported".
        let picture = slf.get().shown(py).inspect_err(|_| unsafe { (*view).obj = std::ptr::null_mut() })?;
        // SAFETY: as above.
        unsafe { view::fill(slf.as_any(), picture, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: called by the interpreter, once for each buffer that was filled.
        unsafe { view::release(view) }
    }

    /// A dict after version 3 of NumPy's array interface. A contiguous image has it, others raise AttributeError.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let picture = self.shown(py)?;
        match picture.whole(py) {
            Ok(place) => export::interface(py, &picture, &view::memoryview(py, &picture, place)?),
            // NumPy goes on to __array__ then.
            Err(error) => Err(exception(&py.get_type::<PyAttributeError>(), &error.value(py).to_string())),
        }
    }

    /// A NumPy array: of the same memory when contiguous, else a read-only copy.
    #[pyo3(signature = (dtype = None, *, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let copy = copy.map(|copy| argument::flag("copy", copy)).transpose()?;
        target::array(py, &self.shown(py)?, dtype, copy)
    }

    /// The kind and number of the device, in DLPack's numbers: (1, 0), the CPU.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.open_picture(py).map(|_| export::DEVICE)
    }

    /// A DLPack capsule of a contiguous image: rows, columns and, except for grey, channels, of uint8. With copy=True
    /// of a copy, in one piece. BufferError for another device or a stream, and for an image in several blocks without.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let copy = copy.map(|copy| argument::flag("copy", copy)).transpose()?;
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        export::tensor(py, self.shown(py)?, stream, versioned, dl_device, copy)
    }

    /// The Arrow type of the pixels, as a capsule: uint8, or lists of as many as there are channels.
    fn __arrow_c_schema__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        export::schema(py, &*self.open_picture(py)?)
    }

    /// The pixels of a contiguous image as an Arrow array, row after row: capsules of its type and of itself. Arrow's
    /// users take arrays for immutable. requested_schema is not followed.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__(
        &self,
        py: Python<'_>,
        requested_schema: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let _ = requested_schema;
        let picture = self.shown(py)?;
        Ok((export::schema(py, &picture)?, export::pixels(py, picture)?))
    }

    /// What pickle makes it anew from. From protocol 5 on, the pixels are a PickleBuffer: for a buffer_callback without
    /// a copy if they are contiguous.
    fn __reduce_ex__<'py>(slf: &Bound<'py, Self>, protocol: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        parts::taken(slf.get_type().as_any(), &slf.get().shown(slf.py())?, protocol)
    }
}
