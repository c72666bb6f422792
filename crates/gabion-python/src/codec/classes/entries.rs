//! Entries by number, read without a lock.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::layout::Entry;

/// Entries by number, in chunks of 32, 64, 128 … that never move.
pub struct Entries {
    chunks: [AtomicPtr<AtomicPtr<Entry>>; 27],
    len: AtomicU32,
}

/// Memory that entries have their places in.
pub type Chunk = Box<[AtomicPtr<Entry>]>;

const FIRST_CHUNK: u32 = 32;

#[inline(always)]
fn place(id: u32) -> (usize, usize) {
    let number = u64::from(id) + u64::from(FIRST_CHUNK);
    let chunk = number.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (number - (u64::from(FIRST_CHUNK) << chunk)) as usize)
}

impl Entries {
    pub fn new() -> Entries {
        Entries { chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())), len: AtomicU32::new(0) }
    }

    /// Numbers given so far. One load.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire) // Acquire: as in `get`.
    }

    /// The entry of a number, if there is one. O(1).
    #[inline(always)]
    pub fn get(&self, id: u32) -> Option<&Entry> {
        // Acquire: pairs with the Release in `push`; the entry is written before the length.
        if id >= self.len.load(Ordering::Acquire) {
            return None;
        }
        let (chunk, index) = place(id);
        // Relaxed: ordered by the length above.
        let chunk = self.chunks[chunk].load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `put`.
        // SAFETY: numbers below the length have their chunk and cell filled; whoever has the entries keeps each of them
        // as long as it has any.
        unsafe { Some(&*(*chunk.add(index)).load(Ordering::Acquire)) }
    }

    /// What a number that was given stands for. For the writer.
    pub fn at(&self, id: u32) -> *mut Entry {
        self.cell(id).load(Ordering::Relaxed) // Relaxed: under the writer's lock.
    }

    /// Has a number that was given stand for another entry. For the writer.
    pub fn put(&self, id: u32, entry: *mut Entry) {
        self.cell(id).store(entry, Ordering::Release); // Release: the entry before its address.
    }

    fn cell(&self, id: u32) -> &AtomicPtr<Entry> {
        let (chunk, index) = place(id);
        let cells = self.chunks[chunk].load(Ordering::Relaxed); // Relaxed: under the writer's lock.
        // SAFETY: a number that was given has its chunk and cell.
        unsafe { &*cells.add(index) }
    }

    /// Has the next number stand for an entry. For the writer, who keeps the chunks.
    pub fn push(&self, entry: *mut Entry, chunks: &mut Vec<Chunk>) {
        let id = self.len.load(Ordering::Relaxed); // Relaxed: under the writer's lock.
        let (chunk, index) = place(id);
        if index == 0 {
            chunks.push((0..FIRST_CHUNK << chunk).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect());
            if let Some(cells) = chunks.last_mut() {
                self.chunks[chunk].store(cells.as_mut_ptr(), Ordering::Relaxed); // Relaxed: before the length.
            }
        }
        self.cell(id).store(entry, Ordering::Relaxed); // Relaxed: before the length.
        // Release: the entry, its cell and its chunk before the length.
        self.len.store(id + 1, Ordering::Release);
    }

    /// No number is valid any more.
    pub fn forget(&self) {
        self.len.store(0, Ordering::Release); // Release: before anything is dropped.
    }
}
