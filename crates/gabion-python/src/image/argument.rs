//! Sizes, modes, colours and boxes as callers write them.

use gabion_image::{
    Compression, Filter, Fit, Flip, Format, Formats, LONGEST_SIDE, Limits, Mode, Region, Resampling, Subsampling, Turn,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

use super::refusal::{image_error, type_error, value_error};
use crate::argument::{Given, index};
use crate::errors::{answered, class_name, shown};

pub(super) use crate::argument::flag;

/// Words of a list, as an error names them.
fn quoted(words: impl Iterator<Item = &'static str>) -> String {
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

fn word<T>(
    name: &str,
    value: &Bound<'_, PyAny>,
    find: impl Fn(&str) -> Option<T>,
    known: impl Iterator<Item = &'static str>,
) -> PyResult<T> {
    let Ok(text) = value.cast::<PyString>() else {
        let given = class_name(value);
        return Err(type_error(value.py(), &format!("{name} must be a str, one of {}, not {given}", quoted(known))));
    };
    let text = text.to_str()?;
    find(text).ok_or_else(|| value_error(value.py(), &format!("{name}={text:?}: pass one of {}", quoted(known))))
}

pub(super) fn mode(value: &Bound<'_, PyAny>) -> PyResult<Mode> {
    word("mode", value, Mode::of_name, Mode::ALL.into_iter().map(Mode::name))
}

pub(super) fn filter(value: &Bound<'_, PyAny>) -> PyResult<Filter> {
    let find = |text: &str| Filter::of_name(&text.to_ascii_lowercase());
    word("filter", value, find, Filter::ALL.into_iter().map(Filter::name))
}

pub(super) fn format(value: &Bound<'_, PyAny>) -> PyResult<Format> {
    let written = Format::ALL.into_iter().filter(|format| format.can_write());
    word("format", value, Format::of_name, written.map(Format::name))
}

/// Which formats may be opened: names in a list.
pub(super) fn formats(value: &Bound<'_, PyAny>) -> PyResult<Formats> {
    let py = value.py();
    let shape = "formats must be a list of names, such as (\"JPEG\", \"PNG\")";
    if value.is_instance_of::<PyString>() {
        return Err(type_error(py, &format!("{shape}, not one")));
    }
    let names = value.try_iter().map_err(|_| type_error(py, &format!("{shape}, not {}", class_name(value))))?;
    let found = names
        .map(|name| word("formats", &name?, Format::of_name, Format::ALL.into_iter().map(Format::name)))
        .collect::<PyResult<Vec<_>>>()?;
    if found.is_empty() {
        return Err(value_error(py, "formats is empty: nothing could be opened"));
    }
    Ok(Formats::of(found))
}

/// The bytes of what is kept beside the pixels.
pub(super) fn content(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let bytes = value.cast::<PyBytes>().map_err(|_| {
        type_error(value.py(), &format!("icc_profile must be bytes or None, not {}", class_name(value)))
    })?;
    Ok(bytes.as_bytes().to_vec())
}

/// What of a file's metadata is kept or written: the EXIF block, the ICC profile.
pub(super) fn metadata(value: &Bound<'_, PyAny>) -> PyResult<(bool, bool)> {
    let Ok(text) = value.cast::<PyString>() else { return flag("metadata", value).map(|all| (all, all)) };
    match text.to_str()? {
        "exif" => Ok((true, false)),
        "icc_profile" => Ok((false, true)),
        text => {
            let text = format!("metadata={text:?}: pass True, False, \"exif\" or \"icc_profile\"");
            Err(value_error(value.py(), &text))
        }
    }
}

/// How a picture comes into a box of another shape; `None` where that is not said.
pub(super) fn fit(
    py: Python<'_>,
    fit: Option<&Bound<'_, PyAny>>,
    background: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Fit>> {
    let known = || ["inside", "cover", "pad"].into_iter();
    let find = |text: &str| known().find(|known| *known == text);
    let fit = fit.map(|fit| word("fit", fit, find, known())).transpose()?;
    if fit != Some("pad") && background.is_some() {
        return Err(value_error(py, "background= is what fit=\"pad\" fills a box with: pass both"));
    }
    Ok(match fit {
        None => None,
        Some("cover") => Some(Fit::Cover),
        Some("pad") => Some(Fit::Pad(background.map_or(Ok([0; 4]), filling)?)),
        Some(_) => Some(Fit::Inside),
    })
}

/// The colour around a picture, whatever its mode: red, green, blue and alpha.
fn filling(value: &Bound<'_, PyAny>) -> PyResult<[u8; 4]> {
    let (py, name) = (value.py(), "background");
    let sample = |value: &Bound<'_, PyAny>| channel(name, py, whole(name, value)?);
    if is_one_number(value) {
        return sample(value).map(|grey| [grey, grey, grey, 255]);
    }
    let shape = "a number from 0 to 255, (red, green, blue), or these and alpha";
    if answered(py, value.len())? == Some(3) {
        return several(name, shape, value, sample).map(|[red, green, blue]| [red, green, blue, 255]);
    }
    several(name, shape, value, sample)
}

/// Refuses a box with one side where both are filled.
pub(super) fn both_sides(py: Python<'_>, name: &str, (width, height): (u32, u32), fit: Fit) -> PyResult<()> {
    if fit == Fit::Inside || width.max(height) < LONGEST_SIDE {
        return Ok(());
    }
    Err(value_error(py, &format!("{name}: a box that is covered or filled has two sides: pass (width, height)")))
}

pub(super) fn compression(value: &Bound<'_, PyAny>) -> PyResult<Compression> {
    const ALL: [(&str, Compression); 4] = [
        ("none", Compression::None),
        ("fast", Compression::Fast),
        ("balanced", Compression::Balanced),
        ("small", Compression::Small),
    ];
    let find = |text: &str| ALL.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    word("compression", value, find, ALL.iter().map(|(name, _)| *name))
}

pub(super) fn subsampling(value: &Bound<'_, PyAny>) -> PyResult<Subsampling> {
    const ALL: [(&str, Subsampling); 3] =
        [("4:4:4", Subsampling::Full), ("4:2:2", Subsampling::HalfWidth), ("4:2:0", Subsampling::Half)];
    let find = |text: &str| ALL.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    word("subsampling", value, find, ALL.iter().map(|(name, _)| *name))
}

/// How good a lossy format is to be.
pub(super) fn quality(value: &Bound<'_, PyAny>) -> PyResult<u8> {
    // One that is too large for a machine's integer is as wrong as 0.
    read("quality", value)?
        .and_then(|number| u8::try_from(number).ok())
        .filter(|quality| (1..=100).contains(quality))
        .ok_or_else(|| value_error(value.py(), &format!("quality={}: pass 1 to 100", shown(value))))
}

/// How large a picture may be.
pub(super) fn limits(max_pixels: Option<&Bound<'_, PyAny>>, max_bytes: Option<&Bound<'_, PyAny>>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    if let Some(most) = max_pixels {
        limits.max_pixels = pixels("max_pixels", most)?;
    }
    if let Some(most) = max_bytes {
        limits.max_bytes = crate::size::parse("max_bytes", most)?;
    }
    Ok(limits)
}

/// How many pixels an image may have.
fn pixels(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    u64::try_from(whole(name, value)?).map_err(|_| {
        let text = format!("{name}={}: pass how many pixels an image may have, 0 or more", shown(value));
        value_error(value.py(), &text)
    })
}

/// How to resample: a filter's name, and how far plain means are good enough before it (None: not at all); `usual`
/// where that was left out.
pub(super) fn resampling(name: Option<&Bound<'_, PyAny>>, gap: &Given<'_>, usual: Option<f64>) -> PyResult<Resampling> {
    let gap = gap.value().map_or(Ok(usual), reducing_gap)?.unwrap_or(f64::INFINITY);
    Ok(Resampling { filter: name.map_or(Ok(Filter::default()), filter)?, gap })
}

fn reducing_gap(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_none() {
        return Ok(None);
    }
    let text = || format!("reducing_gap={}: pass a number from 1.0 on, or None for the filter alone", shown(value));
    let number = value.extract::<f64>().ok().filter(|_| !value.is_instance_of::<PyBool>());
    let number = number.ok_or_else(|| type_error(value.py(), &text()))?;
    if number >= 1.0 { Ok(Some(number)) } else { Err(value_error(value.py(), &text())) }
}

/// A measure of an image: a whole number, as everywhere, or a float that is one, because measures are often computed.
fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    read(name, value)?
        .ok_or_else(|| value_error(value.py(), &format!("{name}: {} is beyond every image", shown(value))))
}

/// As [`whole`]; `None` for one that is beyond a machine's integers, and so beyond every image.
fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = value.py();
    if let Ok(float) = value.cast::<PyFloat>() {
        let number = float.value();
        if !number.is_finite() || number.fract() != 0.0 {
            return Err(type_error(py, &format!("{name}: a whole number is needed, not {number}: round it")));
        }
        // Larger ones are whole, too, but not exact.
        return Ok((number.abs() <= (1u64 << 53) as f64).then_some(number as i64));
    }
    let text = || format!("{name}: a whole number is needed, not {}", class_name(value));
    let number = index(value)?.ok_or_else(|| type_error(py, &text()))?;
    Ok(number.extract().ok())
}

/// Whether a value is a number, and not several: NumPy's, too, whose arrays of one element would also do as a number.
pub(super) fn is_one_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.len().is_err() && !matches!(index(value), Ok(None))
}

/// As many whole numbers as `N`.
fn numbers<const N: usize>(name: &str, shape: &str, value: &Bound<'_, PyAny>) -> PyResult<[i64; N]> {
    several(name, shape, value, |item| whole(name, item))
}

/// As many items as `N`, each of what `read` makes of it.
fn several<T: Copy + Default, const N: usize>(
    name: &str,
    shape: &str,
    value: &Bound<'_, PyAny>,
    read: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<[T; N]> {
    let py = value.py();
    let wrong = || type_error(py, &format!("{name} must be {shape}"));
    if value.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let mut found = [T::default(); N];
    let mut count = 0;
    for item in value.try_iter().map_err(|_| wrong())? {
        if count == N {
            return Err(wrong());
        }
        found[count] = read(&item?)?;
        count += 1;
    }
    if count == N { Ok(found) } else { Err(wrong()) }
}

pub(super) fn side(py: Python<'_>, name: &str, number: i64) -> PyResult<u32> {
    match u32::try_from(number) {
        Ok(side) if (1..=LONGEST_SIDE).contains(&side) => Ok(side),
        _ => {
            let bound =
                if number < 1 { "at least 1 × 1".to_owned() } else { format!("sides of {LONGEST_SIDE} at most") };
            Err(value_error(py, &format!("{name}: a side of {number} pixels; an image has {bound}")))
        }
    }
}

/// A width and a height.
pub(super) fn size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<(u32, u32)> {
    let [width, height] = numbers(name, "(width, height)", value)?;
    Ok((side(value.py(), name, width)?, side(value.py(), name, height)?))
}

/// The longest that a width and a height may be, or one number for both; as long as any image's where one is None.
pub(super) fn most(name: &str, value: &Bound<'_, PyAny>) -> PyResult<(u32, u32)> {
    let py = value.py();
    let longest = |item: &Bound<'_, PyAny>| {
        if item.is_none() { Ok(LONGEST_SIDE) } else { side(py, name, whole(name, item)?) }
    };
    if is_one_number(value) {
        return longest(value).map(|side| (side, side));
    }
    let [width, height] = several(name, "(width, height), or one number for both", value, longest)?;
    Ok((width, height))
}

/// Refuses what is passed by its place behind the arguments of a call, as in Pillow, where options go by name.
pub(super) fn by_name(call: &str, option: &str, others: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Ok(other) = others.get_item(0) else { return Ok(()) };
    let given = other.cast::<PyString>().map_or_else(|_| shown(&other), |text| format!("{:?}", text.to_string()));
    Err(type_error(others.py(), &format!("{call} takes options by name: {option}={given}")))
}

/// Refuses the numbers of one argument that are passed one by one. `shape` says what that one is.
pub(super) fn not_apart(
    call: &str,
    name: &str,
    shape: &str,
    first: &Bound<'_, PyAny>,
    others: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    if others.is_empty() {
        return Ok(());
    }
    let all: Vec<_> = std::iter::once(shown(first)).chain(others.iter().map(|other| shown(&other))).collect();
    Err(type_error(others.py(), &format!("{name} is one {shape}: {call}(({}))", all.join(", "))))
}

/// A place in an image; it may lie outside.
pub(super) fn place(name: &str, value: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
    let [x, y] = numbers(name, "(x, y)", value)?;
    Ok((x, y))
}

/// A part of an image.
pub(super) fn region(value: &Bound<'_, PyAny>) -> PyResult<Region> {
    let [left, top, right, bottom] = numbers("box", "(left, top, right, bottom)", value)?;
    let edge = |number| {
        u32::try_from(number).map_err(|_| {
            let text = format!("box=({left}, {top}, {right}, {bottom}): no part of an image; edges are 0 or more");
            image_error(value.py(), &text)
        })
    };
    Ok(Region { left: edge(left)?, top: edge(top)?, right: edge(right)?, bottom: edge(bottom)? })
}

/// A colour: one number for all channels, or one for each.
pub(super) fn color(name: &str, mode: Mode, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let channels = mode.channels();
    if is_one_number(value) {
        return Ok(vec![channel(name, value.py(), whole(name, value)?)?; channels]);
    }
    let each = if channels == 1 { String::new() } else { format!(", or {channels} of them") };
    channel_each(name, mode, &format!("a number from 0 to 255{each} for {mode}"), value)
}

/// The colour to lay a picture over that is to be in this mode.
pub(super) fn background(mode: Mode, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let name = "background";
    match mode {
        Mode::L | Mode::RGB => color(name, mode, value),
        // One number for all of its channels would be no grey.
        Mode::CMYK => {
            let shape = "4 numbers from 0 to 255 for CMYK; (0, 0, 0, 0) is white";
            channel_each(name, mode, shape, value)
        }
        Mode::LA | Mode::RGBA => {
            let text = format!("{mode} has alpha, which stays: pass no {name}, or mode L, RGB or CMYK");
            Err(value_error(value.py(), &text))
        }
    }
}

/// As many values of channels as the mode has, of which `shape` tells.
fn channel_each(name: &str, mode: Mode, shape: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let found: Vec<i64> = match mode.channels() {
        1 => numbers::<1>(name, shape, value)?.to_vec(),
        2 => numbers::<2>(name, shape, value)?.to_vec(),
        3 => numbers::<3>(name, shape, value)?.to_vec(),
        _ => numbers::<4>(name, shape, value)?.to_vec(),
    };
    found.into_iter().map(|number| channel(name, value.py(), number)).collect()
}

fn channel(name: &str, py: Python<'_>, number: i64) -> PyResult<u8> {
    let text = || format!("{name}: {number} is no channel's value; they are from 0 to 255");
    u8::try_from(number).map_err(|_| value_error(py, &text()))
}

/// A turn by that many degrees, counterclockwise as in Pillow and NumPy. None for no turn.
pub(super) fn turn(value: &Bound<'_, PyAny>) -> PyResult<Option<Turn>> {
    Ok(match whole("degrees", value)?.rem_euclid(360) {
        0 => None,
        // The core counts clockwise.
        90 => Some(Turn::ThreeQuarters),
        180 => Some(Turn::Half),
        270 => Some(Turn::Quarter),
        _ => return Err(value_error(value.py(), &format!("rotate({value}): pass 90, 180 or 270 degrees"))),
    })
}

pub(super) fn flip(value: &Bound<'_, PyAny>) -> PyResult<Flip> {
    let all = [("horizontal", Flip::Horizontal), ("vertical", Flip::Vertical)];
    let find = |text: &str| all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    word("direction", value, find, all.iter().map(|(name, _)| *name))
}
