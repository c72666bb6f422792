//! Objects above 1 MiB: each has memory of its own, straight from the pool, and begins at the start of a block.

use std::alloc::Layout;
use std::ptr::NonNull;

use gabion_blocks::{BLOCK_BYTES, BlockError, Held};

use crate::affinity::Affinity;
use crate::checked::CHECKED;
use crate::error::{FreeError, SlotsError};
use crate::shared::{Books, Large, Shared, refusal};
use crate::sync::Ordering::Relaxed;
use crate::territory::Area;

impl Shared {
    /// Takes memory of its own for an object; with `zero`, it reads as zero. Any alignment up to a block's is had.
    pub fn alloc_large(&self, affinity: Affinity, layout: Layout, zero: bool) -> Result<NonNull<u8>, SlotsError> {
        let books = self.known(affinity)?;
        if layout.align() > BLOCK_BYTES {
            return Err(SlotsError::Alignment { asked: layout.align() });
        }
        let exact = Held::bytes_for(layout.size()) as u64;
        books.budget.take(exact).map_err(|error| refusal(affinity, error))?;
        let held = self.take_large(books, layout.size(), exact, zero).map_err(SlotsError::NoMemory);
        let held = held.inspect_err(|_| books.budget.give(exact))?;
        let bytes = held.bytes() as u64;
        self.enter_large(affinity, held).inspect_err(|_| books.budget.give(bytes))
    }

    /// Takes memory for a large object, for which `exact` bytes are charged already. What it has beyond them is
    /// charged as well.
    fn take_large(&self, books: &Books, len: usize, exact: u64, zero: bool) -> Result<Held, BlockError> {
        let (held, _) = Held::take_roomy(&self.pool, len, zero)?;
        if books.budget.take(held.bytes() as u64 - exact).is_ok() {
            return Ok(held);
        }
        drop(held);
        Ok(Held::take(&self.pool, len, zero)?.0)
    }

    fn enter_large(&self, affinity: Affinity, held: Held) -> Result<NonNull<u8>, SlotsError> {
        let (base, bytes, books) = (held.base(), held.bytes(), self.books(affinity));
        {
            let mut state = self.lock();
            let room = state.large.try_reserve(1);
            room.map_err(|_| SlotsError::NoMemory(BlockError::out_of_memory(size_of::<(usize, Large)>())))?;
            self.territory.enter(base.addr().get(), bytes, Area::Large).map_err(SlotsError::NoMemory)?;
            state.large.insert(base.addr().get(), Large { held, affinity });
        }
        books.large_objects.fetch_add(1, Relaxed);
        books.large_bytes.fetch_add(bytes as u64, Relaxed);
        books.book_in(bytes as u64);
        Ok(base)
    }

    /// Frees a large object.
    pub fn free_large(&self, at: NonNull<u8>, said: Option<(Affinity, Layout)>) -> Result<(), FreeError> {
        let large = {
            let mut state = self.lock();
            let known = state.large.get(&at.addr().get()).ok_or(FreeError::NotASlot)?;
            if CHECKED && let Some((affinity, layout)) = said {
                if affinity != known.affinity {
                    return Err(FreeError::WrongAffinity);
                }
                if layout.size() > known.held.bytes() {
                    return Err(FreeError::WrongSize);
                }
            }
            self.strike_large(&mut state.large, at.addr().get()).ok_or(FreeError::NotASlot)?
        };
        self.drop_large(large);
        Ok(())
    }

    /// Takes a large object off the map and the table. The caller holds the lock.
    pub fn strike_large(&self, table: &mut std::collections::HashMap<usize, Large>, base: usize) -> Option<Large> {
        let large = table.remove(&base)?;
        self.territory.strike(base, large.held.bytes());
        Some(large)
    }

    /// Gives a struck object's memory back. No lock is held. Returns bytes.
    pub fn drop_large(&self, large: Large) -> u64 {
        let (books, bytes) = (self.books(large.affinity), large.held.bytes() as u64);
        books.large_objects.fetch_sub(1, Relaxed);
        books.large_bytes.fetch_sub(bytes, Relaxed);
        books.book_out(bytes);
        drop(large.held);
        books.budget.give(bytes);
        bytes
    }

    /// Bytes that a large object may use.
    pub fn large_bytes(&self, at: NonNull<u8>) -> Option<usize> {
        self.lock().large.get(&at.addr().get()).map(|large| large.held.bytes())
    }
}
