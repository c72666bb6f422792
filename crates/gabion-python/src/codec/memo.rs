//! Which objects this encoding has already met, and where.

use crate::ffi::{self, PyObject};

#[derive(Clone, Copy)]
struct Cell {
    key: usize,
    round: u64,
    at: usize,
}

/// An address-keyed table with open addressing, at most half full. `round` marks the cells of the present encoding, so
/// that starting a new one costs nothing. Each object in it is held: an address cannot be given to another object
/// while the encoding lasts.
pub struct Memo {
    cells: Vec<Cell>,
    used: usize,
    round: u64,
    held: Vec<*mut PyObject>,
    /// See [`Memo::reopen`].
    reopened: (usize, usize),
}

/// Positions from here on stand for an object that is made from values being written, once or several times nested.
pub const UNDER_CONSTRUCTION: usize = usize::MAX - 3;

/// A table larger than this is given back after the encoding that needed it.
const KEPT_CELLS: usize = 1 << 14;

impl Memo {
    pub fn new() -> Memo {
        Memo {
            cells: vec![Cell { key: 0, round: 0, at: 0 }; 64],
            used: 0,
            round: 1,
            held: Vec::new(),
            reopened: (0, 0),
        }
    }

    #[inline(always)]
    fn find(&self, key: usize) -> usize {
        let mask = self.cells.len() - 1;
        let mut index = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        loop {
            let cell = &self.cells[index & mask];
            if cell.key == key || cell.round != self.round {
                return index & mask;
            }
            index += 1;
        }
    }

    /// Where the object starts, if it was met.
    #[inline]
    pub fn get(&self, obj: *mut PyObject) -> Option<usize> {
        let cell = &self.cells[self.find(obj as usize)];
        (cell.round == self.round).then_some(cell.at)
    }

    /// Where the object starts if it was met before; else notes that it starts at `at`.
    ///
    /// # Safety
    /// `obj` is a live object.
    #[inline]
    pub unsafe fn get_or_insert(&mut self, obj: *mut PyObject, at: usize) -> Option<usize> {
        let index = self.find(obj as usize);
        let round = self.round;
        let cell = &mut self.cells[index];
        if cell.round == round {
            return Some(cell.at);
        }
        *cell = Cell { key: obj as usize, round, at };
        // SAFETY: live by the caller's word.
        unsafe { ffi::Py_INCREF(obj) };
        self.held.push(obj);
        self.used += 1;
        if self.used * 2 > self.cells.len() {
            self.grow();
        }
        None
    }

    /// Changes where an object that is in the memo starts.
    pub fn set(&mut self, obj: *mut PyObject, at: usize) {
        let index = self.find(obj as usize);
        if self.cells[index].round == self.round {
            self.cells[index].at = at;
        }
    }

    /// An object under construction is written at `at` once more, by its attributes. Whoever finds out that it has to be
    /// constructed there, too, asks for [`Memo::close_again`].
    #[cold]
    pub fn reopen(&mut self, obj: *mut PyObject, before: usize, at: usize) {
        self.reopened = (obj as usize, before);
        self.set(obj, at);
    }

    /// Takes back that the object starts where it was just noted. True if it is under construction again, as before it was
    /// reopened; false if it was not.
    #[cold]
    pub fn close_again(&mut self, obj: *mut PyObject) -> bool {
        let (reopened, before) = std::mem::take(&mut self.reopened);
        let again = reopened == obj as usize;
        if again {
            self.set(obj, before);
        }
        again
    }

    #[cold]
    fn grow(&mut self) {
        let empty = Cell { key: 0, round: 0, at: 0 };
        let old = std::mem::take(&mut self.cells);
        self.cells = vec![empty; old.len() * 2];
        for cell in old.into_iter().filter(|cell| cell.round == self.round) {
            let index = self.find(cell.key);
            self.cells[index] = cell;
        }
    }

    /// Forgets everything, for the next encoding. May run finalisers of objects that nobody else holds any more.
    pub fn reset(&mut self) {
        if self.used == 0 {
            return;
        }
        self.used = 0;
        self.reopened = (0, 0);
        self.round += 1;
        if self.cells.len() > KEPT_CELLS {
            self.cells = vec![Cell { key: 0, round: 0, at: 0 }; 64];
        }
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
