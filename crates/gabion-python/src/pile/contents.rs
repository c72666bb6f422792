//! What is in the file of a pile: for `gabion inspect`.

use std::collections::HashMap;

use gabion_blocks::BlockError;
use gabion_pile::ReadBuf;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::file::open_validated;
use crate::codec::{Kind, kind_of};
use crate::errors::exception;
use crate::gate::through_gate;
use crate::result;

/// How many objects of a kind there are, and bytes of their encodings.
#[derive(Default)]
struct Tally {
    objects: u64,
    bytes: u64,
}

/// Goes through all objects, without Python.
fn count(pile: &gabion_pile::Pile) -> Result<HashMap<Kind, Tally>, BlockError> {
    let (mut kinds, mut buf) = (HashMap::<Kind, Tally>::new(), ReadBuf::new());
    for pointer in pile.pointers() {
        let Ok(encoding) = pile.read(pointer, &mut buf) else { continue };
        let kind = kind_of(encoding);
        kinds.try_reserve(1).map_err(|_| BlockError::out_of_memory(size_of::<(Kind, Tally)>()))?;
        let tally = kinds.entry(kind).or_default();
        tally.objects += 1;
        tally.bytes += encoding.len() as u64;
    }
    Ok(kinds)
}

/// What is in a file, as a dict: what it says of itself, its figures, how its blocks are used, its root and what that
/// is, how many objects there are of each kind, the fields of the classes that it knows, and which `types` let all of
/// it be built. Internal: for `gabion inspect`.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(super) fn _pile_contents<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = path.py();
    let (pile, codec) = open_validated(path)?;
    let kinds = through_gate(py, || count(&pile));
    let no_memory = |error: BlockError| exception(&py.get_type::<PyMemoryError>(), &error.to_string());
    let (kinds, stats) = (kinds.map_err(no_memory)?, pile.stats());
    let all = result::dict(py)?;
    let put = |to: &Bound<'py, PyDict>, name: &str, value: u64| {
        to.set_item(result::text(py, name)?, result::number(py, value)?)
    };
    if let Some(file) = pile.summary() {
        put(&all, "format", file.format.into())?;
        put(&all, "id", file.id)?;
        put(&all, "shards", file.shards as u64)?;
        put(&all, "heap_blocks", file.heap_blocks)?;
        put(&all, "run_blocks", file.run_blocks)?;
        put(&all, "log_blocks", file.log_blocks)?;
        put(&all, "free_blocks", file.free_blocks)?;
    }
    put(&all, "objects", stats.objects)?;
    put(&all, "used_bytes", stats.used_bytes)?;
    put(&all, "reserved_bytes", stats.reserved_bytes)?;
    put(&all, "away_objects", stats.away_objects)?;
    put(&all, "large_objects", stats.large_objects)?;
    put(&all, "types", codec.type_count() as u64)?;
    if let Some(root) = pile.root() {
        put(&all, "root", root.to_bits())?;
        let kind = pile.read(root, &mut ReadBuf::new()).ok().map(kind_of);
        let name = kind.map_or_else(|| "removed".to_owned(), |kind| codec.name_of(kind));
        all.set_item(result::text(py, "root_kind")?, result::text(py, &name)?)?;
    }
    let (objects, bytes) = (result::dict(py)?, result::dict(py)?);
    for (kind, tally) in &kinds {
        let name = codec.name_of(*kind);
        // Several numbers may stand for one name.
        let before = |of: &Bound<'py, PyDict>| -> PyResult<u64> {
            of.get_item(result::text(py, &name)?)?.map_or(Ok(0), |before| before.extract())
        };
        put(&objects, &name, before(&objects)? + tally.objects)?;
        put(&bytes, &name, before(&bytes)? + tally.bytes)?;
    }
    all.set_item(result::text(py, "objects_of")?, objects)?;
    all.set_item(result::text(py, "bytes_of")?, bytes)?;
    let fields = result::dict(py)?;
    for id in 0..codec.type_count() as u32 {
        if let Some((name, names)) = codec.fields_of(id) {
            let list = result::list(py)?;
            names.iter().try_for_each(|name| list.append(result::text(py, name)?))?;
            fields.set_item(result::text(py, &name)?, list)?;
        }
    }
    all.set_item(result::text(py, "fields_of")?, fields)?;
    let to_allow = result::list(py)?;
    for name in codec.types_to_allow(py)? {
        to_allow.append(result::text(py, &name)?)?;
    }
    all.set_item(result::text(py, "types_to_allow")?, to_allow)?;
    Ok(all)
}
