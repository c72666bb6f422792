//! Which objects this encoding has already met, and where.

use std::collections::HashMap;

use crate::codec::object::Raise;
use crate::codec::room;
use crate::ffi::{self, PyObject};

#[derive(Clone, Copy)]
struct Cell {
    key: usize,
    turn: u64,
    at: usize,
}

/// An address-keyed table with open addressing, at most half full. `turn` marks the cells of the present encoding, so
/// that starting a new one costs nothing. Each object in it is held: an address cannot be given to another object
/// while the encoding lasts.
pub struct Memo {
    cells: Vec<Cell>,
    used: usize,
    turn: u64,
    held: Vec<*mut PyObject>,
    /// Containers among them that can be referred to from their first byte on. Such a one ends a cycle that it is a
    /// part of.
    noted: usize,
    /// Of each object under construction whose values led back to it: its rounds.
    rounds: HashMap<usize, Rounds>,
    /// See [`Memo::reopen`].
    reopened: usize,
}

/// Stands for an object that is made from values being written.
pub const UNDER_CONSTRUCTION: usize = usize::MAX;

/// The rounds in which an object is being written, each nested in the one before.
struct Rounds {
    count: usize,
    /// [`Memo::noted`] when the last began.
    noted: usize,
}

/// Why an object under construction has no further round.
pub enum Endless {
    /// The last one went by nothing that was not met before: the next would go the same way.
    NothingNew,
    TooMany,
    /// No room to count it.
    NoMemory,
}

/// Rounds of one object. Each may write all that the object is made from, so they are not without limit: pickle, which
/// recurses, gives up after a few hundred.
pub const MOST_ROUNDS: usize = 1000;

/// A table larger than this is not kept after the encoding that needed it.
const KEPT_CELLS: usize = 1 << 14;

/// Cells that belong to no encoding.
fn empty(count: usize) -> Raise<Vec<Cell>> {
    let mut cells = Vec::new();
    room::make(&mut cells, count)?;
    cells.resize(count, Cell { key: 0, turn: 0, at: 0 });
    Ok(cells)
}

impl Memo {
    pub fn new() -> Raise<Memo> {
        Ok(Memo {
            cells: empty(64)?,
            used: 0,
            turn: 1,
            held: Vec::new(),
            noted: 0,
            rounds: HashMap::new(),
            reopened: 0,
        })
    }

    #[inline(always)]
    fn find(&self, key: usize) -> usize {
        let mask = self.cells.len() - 1;
        let mut index = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        loop {
            let cell = &self.cells[index & mask];
            if cell.key == key || cell.turn != self.turn {
                return index & mask;
            }
            index += 1;
        }
    }

    /// Where the object starts, if it was met.
    #[inline]
    pub fn get(&self, obj: *mut PyObject) -> Option<usize> {
        let cell = &self.cells[self.find(obj as usize)];
        (cell.turn == self.turn).then_some(cell.at)
    }

    /// Where the object starts if it was met before; else notes that it starts at `at`.
    ///
    /// # Errors
    /// `MemoryError`; nothing is noted, or all of it.
    ///
    /// # Safety
    /// `obj` is a live object.
    #[inline]
    pub unsafe fn get_or_insert(&mut self, obj: *mut PyObject, at: usize) -> Raise<Option<usize>> {
        let index = self.find(obj as usize);
        let turn = self.turn;
        let cell = &mut self.cells[index];
        if cell.turn == turn {
            return Ok(Some(cell.at));
        }
        room::push(&mut self.held, obj)?;
        *cell = Cell { key: obj as usize, turn, at };
        // SAFETY: live by the caller's word.
        unsafe { ffi::Py_INCREF(obj) };
        self.used += 1;
        if self.used * 2 > self.cells.len() {
            self.grow()?;
        }
        Ok(None)
    }

    /// Counts a container that was just noted, and can be referred to from where it begins.
    #[inline(always)]
    pub fn count_container(&mut self) {
        self.noted += 1;
    }

    /// Begins another round of an object under construction: a value that it is made from led back to it.
    ///
    /// What is under construction on the way is walked again, in the same order, up to the same value; what was noted
    /// on the way is referred to. So a round that noted no container is followed by one that is its like, without end.
    /// And as the rounds of an object are nested in each other, it is written once for each, and never again when it is
    /// complete.
    #[cold]
    pub fn begin_round(&mut self, obj: *mut PyObject) -> Result<(), Endless> {
        let noted = self.noted;
        self.rounds.try_reserve(1).map_err(|_| Endless::NoMemory)?;
        let rounds = self.rounds.entry(obj as usize).or_insert(Rounds { count: 1, noted: usize::MAX });
        if rounds.noted == noted {
            return Err(Endless::NothingNew);
        }
        if rounds.count == MOST_ROUNDS {
            return Err(Endless::TooMany);
        }
        *rounds = Rounds { count: rounds.count + 1, noted };
        Ok(())
    }

    /// Changes where an object that is in the memo starts.
    pub fn set(&mut self, obj: *mut PyObject, at: usize) {
        let index = self.find(obj as usize);
        if self.cells[index].turn == self.turn {
            self.cells[index].at = at;
        }
    }

    /// An object under construction is written at `at` once more, by its attributes. Whoever finds out that it has to
    /// be constructed there, too, asks for [`Memo::close_again`].
    #[cold]
    pub fn reopen(&mut self, obj: *mut PyObject, at: usize) {
        self.reopened = obj as usize;
        self.set(obj, at);
    }

    /// Takes back that the object starts where it was just noted. True if it is under construction again, as before it
    /// was reopened; false if it was not.
    #[cold]
    pub fn close_again(&mut self, obj: *mut PyObject) -> bool {
        let again = std::mem::take(&mut self.reopened) == obj as usize;
        if again {
            self.set(obj, UNDER_CONSTRUCTION);
        }
        again
    }

    #[cold]
    fn grow(&mut self) -> Raise<()> {
        let more = empty(self.cells.len() * 2)?;
        let old = std::mem::replace(&mut self.cells, more);
        for cell in old.into_iter().filter(|cell| cell.turn == self.turn) {
            let index = self.find(cell.key);
            self.cells[index] = cell;
        }
        Ok(())
    }

    /// Whether it takes more memory than is kept for the next encoding.
    pub fn is_large(&self) -> bool {
        let rows = self.held.capacity().max(self.rounds.capacity());
        self.cells.len() > KEPT_CELLS || rows > KEPT_CELLS
    }

    /// Forgets everything, for the next encoding. May run finalisers of objects that nobody else holds any more.
    pub fn reset(&mut self) {
        if self.used == 0 {
            return;
        }
        self.used = 0;
        self.reopened = 0;
        self.noted = 0;
        self.rounds.clear();
        self.turn += 1;
        while let Some(obj) = self.held.pop() {
            // SAFETY: `get_or_insert` took this reference.
            unsafe { ffi::Py_DECREF(obj) };
        }
    }
}

impl Drop for Memo {
    fn drop(&mut self) {
        self.reset();
    }
}
