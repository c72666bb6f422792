//! The options of open() and probe(), as keywords.

use gabion_image::{Fit, Formats, OpenOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::argument;
use super::patience::Patience;
use super::refusal::{type_error, value_error};
use crate::argument::Given;

/// How far down `open` and `thumbnail` average a picture before they filter it.
pub(super) const AVERAGED: Option<f64> = Some(2.0);

/// How an image is opened.
pub(super) struct Opening {
    pub options: OpenOptions,
    pub contiguous: bool,
    pub patience: Patience,
}

impl Opening {
    /// The options of open().
    pub fn of(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = OpenOptions::default();
        let (mut contiguous, mut timeout, mut filter, mut gap) = (false, None, None, Given::Absent);
        let (mut fit, mut background, mut max_pixels, mut max_bytes) = (None, None, None, None);
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            let some = || (!value.is_none()).then_some(&value);
            match name.as_str() {
                "max_size" => {
                    options.max_size = some().map(|most| argument::most("max_size", most)).transpose()?;
                }
                "mode" => options.mode = some().map(argument::mode).transpose()?,
                "filter" => filter = some().cloned(),
                "reducing_gap" => gap = Given::Value(value),
                "scaled" => options.scaled = argument::flag("scaled", &value)?,
                "upright" => options.upright = argument::flag("upright", &value)?,
                "metadata" => (options.exif, options.profile) = argument::metadata(&value)?,
                "partial" => options.partial = argument::flag("partial", &value)?,
                "contiguous" => contiguous = argument::flag("contiguous", &value)?,
                "max_pixels" => max_pixels = some().cloned(),
                "max_bytes" => max_bytes = some().cloned(),
                "fit" => fit = some().cloned(),
                "background" => background = some().cloned(),
                "formats" => options.formats = some().map_or(Ok(Formats::ALL), argument::formats)?,
                "timeout" => timeout = some().cloned(),
                _ => return Err(unexpected(py, "open", &name)),
            }
        }
        options.limits = argument::limits(max_pixels.as_ref(), max_bytes.as_ref())?;
        options.resampling = argument::resampling(filter.as_ref(), &gap, AVERAGED)?;
        options.fit = argument::fit(py, fit.as_ref(), background.as_ref())?.unwrap_or_default();
        match options.max_size {
            Some(most) => argument::both_sides(py, "max_size", most, options.fit)?,
            None if options.fit == Fit::Inside => {}
            None => return Err(value_error(py, "fit= says how a picture comes into a box: pass max_size= as well")),
        }
        Ok(Self { options, contiguous, patience: Patience::of(timeout.as_ref())? })
    }
}

#[cold]
fn unexpected(py: Python<'_>, call: &str, name: &str) -> PyErr {
    type_error(py, &format!("Image.{call}() got an unexpected keyword argument '{name}'"))
}
