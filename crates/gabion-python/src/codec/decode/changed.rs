//! Objects of a file whose class has changed since: their fields go where the class has them now.

use super::decoder::Decoder;
use super::frame::State;
use super::instance::{put_in_dict, put_slot};
use crate::codec::classes::changes::Changes;
use crate::codec::object::{Own, Raise, Raised, intern_own};
use crate::codec::room;
use crate::ffi;

impl<const REFS: bool> Decoder<'_, '_, REFS> {
    /// Gives a new object its fields, all of which were read.
    pub fn fill_changed(&self, object: &Own, changes: &Changes, stored: State) -> Raise<()> {
        for (name, value) in fitting(changes, stored)? {
            match changes.slot(&name) {
                None => put_in_dict(object, name, &value)?,
                Some(offset) if changes.quiet => put_slot(object, offset, value),
                Some(_) => {
                    // SAFETY: all are held over the call.
                    let failed = unsafe { ffi::PyObject_GenericSetAttr(object.ptr(), name.ptr(), value.ptr()) < 0 };
                    if failed {
                        return Err(Raised);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What was stored and has a place, and what is new and has a value.
fn fitting(changes: &Changes, stored: State) -> Raise<Vec<(Own, Own)>> {
    let mut given = room::list(changes.added.iter().map(|_| false))?;
    let mut fields = Vec::new();
    for (name, value) in stored.slots.into_iter().chain(stored.attributes) {
        let name = intern_own(name);
        if let Some(i) = changes.added.iter().position(|(added, _)| added.ptr() == name.ptr()) {
            given[i] = true;
        }
        if changes.takes(&name) {
            room::push(&mut fields, (name, value))?;
        }
    }
    for ((name, filling), _) in changes.added.iter().zip(given).filter(|(_, given)| !given) {
        if changes.takes(name) {
            room::push(&mut fields, (name.clone(), filling.value()?))?;
        }
    }
    Ok(fields)
}
