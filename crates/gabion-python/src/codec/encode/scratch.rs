//! What a thread keeps for its next encoding.

use std::cell::Cell;
use std::collections::HashMap;

use gabion_blocks::ending::Noted;

use super::memo::Memo;
use crate::codec::object::{Own, Raise};
use crate::codec::room;
use crate::ffi::PyObject;

/// Something still to be written.
pub enum Todo {
    /// A value.
    Value(Own),
    /// One byte.
    Byte(u8),
    /// The values that an object starting there is made from are written.
    Complete(Own, usize),
    /// The rest of an iterator, each item a value.
    Items(Own),
    /// The rest of an iterator of pairs.
    Pairs(Own),
}

/// What an encoding needs beyond its output once an object is not flat; kept by the thread for the next one.
pub struct Scratch {
    pub todo: Vec<Todo>,
    pub memo: Memo,
    /// Positions that references lead to.
    pub targets: Vec<usize>,
    /// Dicts that others may have as their `__dict__`, too, and whose entries an object was written with, by address.
    pub owned: HashMap<usize, Own>,
    /// What the last reducer made for itself.
    pub made: Made,
}

/// What a reducer made, among what it returned.
#[derive(Clone, Copy, Default)]
pub struct Made {
    /// Some of it, by address: it is held by what waits to be written, or was noted.
    pub objects: [usize; 8],
    pub count: usize,
    /// How many reducers made something, each asked for what the one before it made.
    pub depth: u32,
}

impl Made {
    /// Whether this is some of it.
    pub fn has(&self, object: *mut PyObject) -> bool {
        self.objects[..self.count].contains(&(object as usize))
    }
}

/// How many values or positions a thread keeps room for.
const KEPT: usize = 1 << 13;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    static NOTED: Noted = const { Noted::new() };
}

fn kept() -> Option<Box<Scratch>> {
    // The slot may have been destroyed when a thread ends in the midst of an encoding.
    if NOTED.with(Noted::is_noted) { SCRATCH.try_with(Cell::take).ok().flatten() } else { None }
}

/// The scratch of this thread, or a new one when an encoding on this thread is using it (a reducer that encodes).
///
/// # Errors
/// `MemoryError`.
#[cold]
pub fn take() -> Raise<Box<Scratch>> {
    match kept() {
        Some(kept) => Ok(kept),
        None => room::boxed(Scratch {
            todo: Vec::new(),
            memo: Memo::new()?,
            targets: Vec::new(),
            owned: HashMap::new(),
            made: Made::default(),
        }),
    }
}

/// Empties a scratch, and keeps it unless it is large. May run finalisers of objects that nobody else holds any more.
pub fn keep(mut scratch: Box<Scratch>) {
    scratch.todo.clear();
    scratch.targets.clear();
    scratch.memo.reset();
    scratch.made = Made::default();
    if !scratch.owned.is_empty() {
        scratch.owned = HashMap::new();
    }
    let large = scratch.todo.capacity() > KEPT || scratch.targets.capacity() > KEPT || scratch.memo.is_large();
    if !large && NOTED.with(Noted::can_be_noted) {
        let _ = SCRATCH.try_with(|slot| slot.set(Some(scratch)));
    }
}

/// Keeps nothing any more.
#[cold]
pub fn drop_cached() {
    drop(kept());
}
