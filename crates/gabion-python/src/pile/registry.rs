//! The registry: all piles that are open, for whoever tells of the whole process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gabion_blocks::make_room;
use gabion_pile::Pile as Store;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::refusal;
use super::stats::store_figures;
use crate::figures::Figure;
use crate::gate::through_gate;
use crate::result;

/// How many piles are entered before it is looked for those that are gone.
const FEW: usize = 64;

/// What tells a file from all others, whatever names it has: its device and its number there.
pub(super) type FileId = (u64, u64);

struct Entry {
    id: u64,
    pile: Weak<Store>,
    /// Of a pile in a file, as a str.
    path: Option<Py<PyAny>>,
    /// Which file that is.
    file: Option<FileId>,
    name: Option<Py<PyString>>,
}

struct Registry {
    /// In the order of their numbers.
    entries: Vec<Entry>,
    /// How many there may be before those that are gone are removed.
    most: usize,
    /// Piles entered so far.
    entered: u64,
}

impl Registry {
    /// Where the entry of a number is, or of the next one.
    fn at(&self, id: u64) -> usize {
        self.entries.partition_point(|entry| entry.id < id)
    }
}

/// Taken by threads that are attached to the interpreter, which run nobody's code while they have it: no fork comes
/// between.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { entries: Vec::new(), most: FEW, entered: 0 });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a pile, which it does not keep alive, and returns its number. In constant time on average.
///
/// # Errors
/// MemoryError.
pub(super) fn enter(
    py: Python<'_>,
    pile: &Arc<Store>,
    path: Option<(&Bound<'_, PyAny>, Option<FileId>)>,
    name: Option<&Bound<'_, PyString>>,
) -> PyResult<u64> {
    let mut registry = registry();
    if registry.entries.len() >= registry.most {
        registry.entries.retain(|entry| entry.pile.strong_count() > 0);
        registry.most = FEW.max(2 * registry.entries.len());
    }
    if let Err(error) = make_room(&mut registry.entries, 1) {
        // To make the exception may run the collector, and with it code that comes here.
        drop(registry);
        return Err(refusal::not_made(py, "pile", &error));
    }
    let id = registry.entered;
    registry.entered += 1;
    let (file, name) = (path.and_then(|(_, file)| file), name.map(|name| name.clone().unbind()));
    let path = path.map(|(path, _)| path.clone().unbind());
    registry.entries.push(Entry { id, pile: Arc::downgrade(pile), path, file, name });
    Ok(id)
}

/// Strikes a pile that is closed, by its number.
pub(super) fn remove(id: u64) {
    let mut registry = registry();
    let at = registry.at(id);
    if let Some(entry) = registry.entries.get_mut(at).filter(|entry| entry.id == id) {
        // As one that is gone. The list is gone through at times, not at each close.
        entry.pile = Weak::new();
    }
}

/// The path and the name of the pile that this process has open in a file, if it has. A forked child has none of its
/// parent's.
pub(super) fn open_in(py: Python<'_>, file: FileId) -> Option<(Py<PyAny>, Option<Py<PyString>>)> {
    let (pile, path, name) = {
        let registry = registry();
        let entry = registry.entries.iter().find(|entry| entry.file == Some(file) && entry.pile.strong_count() > 0)?;
        let name = entry.name.as_ref().map(|name| name.clone_ref(py));
        (Weak::clone(&entry.pile), entry.path.as_ref()?.clone_ref(py), name)
    };
    // Without the registry's lock: this may be the last to have the pile, which lets its file go then.
    let parted = pile.upgrade()?.is_parted();
    (!parted).then_some((path, name))
}

/// What each open pile says of itself: a list of dicts, the oldest pile first. A forked child says nothing of its
/// parent's files.
#[pyfunction]
pub(super) fn _piles(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let told = result::list(py)?;
    let mut next = 0;
    loop {
        // One at a time: what is said takes memory, and may run the collector, and with it anybody's code.
        let found = {
            let registry = registry();
            registry.entries[registry.at(next)..].iter().find_map(|entry| {
                let (path, name) = (&entry.path, &entry.name);
                let own = (path.as_ref().map(|path| path.clone_ref(py)), name.as_ref().map(|name| name.clone_ref(py)));
                Some((entry.id, entry.pile.upgrade()?, own))
            })
        };
        let Some((id, pile, (path, name))) = found else { break };
        next = id + 1;
        if pile.is_parted() {
            continue;
        }
        let about = result::dict(py)?;
        about.set_item(result::text(py, "id")?, Figure(id))?;
        about.set_item(result::text(py, "path")?, path)?;
        let name = name.map_or_else(|| result::text(py, ""), |name| Ok(name.into_bound(py)))?;
        about.set_item(result::text(py, "name")?, name)?;
        // Somebody may be at a shard for long. And whoever drops the pile meanwhile leaves it to this one to let it go,
        // which is not to wait for the interpreter.
        let stats = through_gate(py, move || {
            let stats = pile.stats();
            drop(pile);
            stats
        });
        about.update(store_figures(py, &stats)?.cast()?)?;
        told.append(about)?;
    }
    Ok(told.into_any())
}
