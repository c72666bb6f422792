//! The floor: buffers that were made once and stay warm. What is left is the touch, and a list.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use crate::heap::{Huge, Malloc, Piece};
use crate::region::{Fresh, Region};
use crate::source::Source;

type Shelf = Vec<Piece<Huge>>;
type SharedShelf = Arc<Mutex<Shelf>>;

thread_local! {
    static OWN: RefCell<Shelf> = const { RefCell::new(Vec::new()) };
}

/// The buffers that each thread has used before; where threads hand over, those that each pair of threads has.
pub struct Floor {
    pairs: Vec<SharedShelf>,
}

impl Floor {
    /// For threads that keep to their own buffers.
    pub fn of_threads() -> Self {
        Self { pairs: Vec::new() }
    }

    /// For that many pairs of threads (or circles of them), each with its own shelf.
    pub fn of_pairs(pairs: usize) -> Self {
        Self { pairs: (0..pairs).map(|_| SharedShelf::default()).collect() }
    }
}

/// A warm buffer; dropping it puts it back on its shelf.
pub struct Warm {
    memory: Option<Piece<Huge>>,
    /// None: the shelf of the thread that drops it.
    shelf: Option<SharedShelf>,
}

impl Warm {
    #[inline]
    fn memory(&self) -> &Piece<Huge> {
        self.memory.as_ref().expect("only drop takes it")
    }
}

// SAFETY: the piece is taken off the shelf while the value lives, so it is nobody else's, and it is never exchanged.
unsafe impl Region for Warm {
    #[inline]
    fn part(&self, index: usize) -> Option<(NonNull<u8>, usize)> {
        self.memory().part(index)
    }
}

impl Drop for Warm {
    #[inline]
    fn drop(&mut self) {
        let memory = self.memory.take().expect("only drop takes it");
        match &self.shelf {
            None => OWN.with_borrow_mut(|shelf| shelf.push(memory)),
            Some(shelf) => shelf.lock().expect("no thread panics with it").push(memory),
        }
    }
}

#[inline]
fn find(shelf: &mut Shelf, bytes: usize) -> Option<Piece<Huge>> {
    let place = shelf.iter().rposition(|piece| piece.bytes() == bytes)?;
    Some(shelf.swap_remove(place))
}

impl Source for Floor {
    type Memory = Warm;

    #[inline]
    fn rent(&self, lane: usize, bytes: usize) -> Fresh<Warm> {
        let shelf = if self.pairs.is_empty() { None } else { Some(Arc::clone(&self.pairs[lane % self.pairs.len()])) };
        let found = match &shelf {
            None => OWN.with_borrow_mut(|shelf| find(shelf, bytes)),
            Some(shelf) => find(&mut shelf.lock().expect("no thread panics with it"), bytes),
        };
        Fresh(Warm { memory: Some(found.unwrap_or_else(|| Piece::take(bytes))), shelf })
    }
    fn give_back_idle(&self) {
        for shelf in &self.pairs {
            shelf.lock().expect("no thread panics with it").clear();
        }
        OWN.with_borrow_mut(Vec::clear);
        Malloc.give_back_idle();
    }
}
