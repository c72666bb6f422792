//! What pickle takes images apart into, and makes them anew from.

use gabion_image::{Format, Image, Metadata};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::picture::Shown;
use super::refusal::value_error;
use super::{argument, source, target, view};
use crate::gate::through_gate;
use crate::once::of_module;
use crate::result::{bytes, number, pair, text, tuple};

/// From this protocol on, pickle has a way for bytes that lie elsewhere (`PickleBuffer`).
const OUT_OF_BAND: i64 = 5;

/// Mode, size, pixels, format, EXIF block, ICC profile.
const PARTS: usize = 6;

/// What `__reduce_ex__` returns: the class, and what it takes for the parts of an image. It is no function of its own,
/// so that whoever lets a pile build images lets it build these.
pub(super) fn taken<'py>(
    class: &Bound<'py, PyAny>,
    picture: &Shown,
    protocol: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let out_of_band = protocol.extract::<i64>()? >= OUT_OF_BAND;
    let pixels = if out_of_band && picture.is_contiguous() {
        view::memoryview(py, picture, picture.whole(py)?)?
    } else {
        target::pixels(py, picture)?.into_any()
    };
    let data = if out_of_band { of_module(py, c"pickle", c"PickleBuffer")?.call1((pixels,))? } else { pixels };
    let metadata = through_gate(py, || picture.read().metadata().clone());
    let (width, height) = picture.size;
    let none = || py.None().into_bound(py);
    let kept = |block: Option<Vec<u8>>| block.map_or_else(|| Ok(none()), |block| Ok(bytes(py, &block)?.into_any()));
    let parts: [PyResult<Bound<'_, PyAny>>; PARTS] = [
        Ok(text(py, picture.mode.name())?.into_any()),
        Ok(pair(number(py, width.into())?, number(py, height.into())?)?.into_any()),
        Ok(data),
        picture.format.map_or_else(|| Ok(none()), |format| Ok(text(py, format.name())?.into_any())),
        kept(metadata.exif),
        kept(metadata.icc),
    ];
    let parts = parts.into_iter().collect::<PyResult<Vec<_>>>()?;
    Ok(pair(class.clone(), tuple(py, parts.into_iter())?.into_any())?.into_any())
}

/// As many arguments as parts, which nobody passes who means to open or make an image.
pub(super) fn given<'a, 'py>(args: &'a Bound<'py, PyTuple>) -> Option<&'a Bound<'py, PyTuple>> {
    (args.len() == PARTS).then_some(args)
}

/// The image of the parts that `taken` gave.
pub(super) fn put_together(parts: &Bound<'_, PyTuple>) -> PyResult<Image> {
    type Block<'py> = Option<Bound<'py, PyBytes>>;
    type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<String>, Block<'py>, Block<'py>);
    let (mode, size, data, format, exif, icc): Parts<'_> = parts.extract()?;
    let mode = argument::mode(&mode)?;
    let mut image = source::bytes(mode, argument::size("size", &size)?, &data)?;
    if let Some(name) = format {
        let format = Format::of_name(&name);
        image.set_format(format.ok_or_else(|| value_error(data.py(), &format!("no format of images: {name:?}")))?);
    }
    let block = |block: Block<'_>| block.map(|block| block.as_bytes().to_vec());
    *image.metadata_mut() = Metadata { exif: block(exif), icc: block(icc) };
    image.metadata_mut().fit(mode);
    Ok(image)
}
