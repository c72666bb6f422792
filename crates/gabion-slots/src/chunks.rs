//! Objects from 1 KiB to 1 MiB: chunks of the heap, in blocks of their own for each arena and affinity.

use std::alloc::Layout;
use std::ptr::NonNull;

use gabion_blocks::{BLOCK_BYTES, Block, BlockError, PAGE_BYTES, inside, try_box};
use gabion_heap::{Chunks, Found, HeapError, Loc, OWNER_WORD, shard_of};

use crate::affinity::Affinity;
use crate::arena::{Arena, Row};
use crate::checked::{CHECKED, fill};
use crate::error::{FreeError, SlotsError};
use crate::record::{block_of, link};
use crate::shared::{Shared, refusal};
use crate::sync::{Ordering, Ordering::Relaxed, lock};
use crate::territory::Area;
use crate::tier::{CHUNK_ALIGN, Tier, tier};

/// What lies in front of a block's first chunk.
const HEADER_BYTES: usize = 1024;

/// Where a block of chunks that is to be returned holds the name of the next: inside of what is free there.
const QUEUE_WORD: usize = HEADER_BYTES / 8 + 2;

/// Bits of a block's shard number below the arena's index.
const AFFINITY_BITS: u32 = 8;

/// The affinity's mark follows an arena's chunks at this distance in bytes at most.
const BOOKING: u64 = PAGE_BYTES as u64;

impl Shared {
    /// Takes a chunk whose room begins at a multiple of `align` bytes.
    pub fn alloc_chunk(
        &self,
        arena: &Arena,
        affinity: Affinity,
        layout: Layout,
        align: usize,
    ) -> Result<NonNull<u8>, SlotsError> {
        self.known(affinity)?;
        if arena.has_remote_frees() {
            self.collect_remote_frees(arena);
        }
        let row = arena.row(affinity);
        if row.chunks.get().is_null() {
            let shard = arena.index << AFFINITY_BITS | u32::from(affinity.index());
            row.chunks.set(Box::into_raw(new_chunks(shard).map_err(SlotsError::NoMemory)?));
        }
        // SAFETY: just seen to be there; the arena's own, and nothing below comes back here.
        let chunks = unsafe { &mut *row.chunks.get() };
        let (ground, words) = (self.ground(affinity), layout.size().div_ceil(8));
        let taken = match chunks.take_within(ground, words, align / 8) {
            Ok(None) => {
                // What was freed of ended threads may be blocks of which the next one can be. This arena is none of
                // theirs.
                self.try_trim_ownerless();
                chunks.take_aligned(ground, words, align / 8)
            }
            Ok(Some(taken)) => Ok(taken),
            Err(error) => Err(error),
        };
        let (block, at) = taken.map_err(|error| match error {
            HeapError::Blocks(error) => refusal(affinity, error),
            other => unreachable!("taking a chunk says only that there is no memory, not {other}"),
        })?;
        let Some(base) = self.blocks.base(block.number()) else { unreachable!("a block of the set") };
        if self.territory.at(base.addr().get()) != Area::Chunks
            && let Err(error) = self.enter_chunks(base, block)
        {
            let _ = chunks.free(self.ground(affinity), at);
            // Nobody may find it at hand.
            self.queue_chunk_blocks(arena, chunks, affinity, true);
            return Err(SlotsError::NoMemory(error));
        }
        self.chunk_in(row, affinity, Chunks::room(block, at) * 8);
        // SAFETY: the chunk lies in the block.
        Ok(unsafe { base.add(at.word() * 8) })
    }

    /// As [`Shared::alloc_chunk`], if no remote frees wait and there is room in memory that was touched before:
    /// nothing is mapped or entered then.
    #[inline]
    pub fn alloc_chunk_at_hand(&self, arena: &Arena, affinity: Affinity, layout: Layout) -> Option<NonNull<u8>> {
        let tier = tier(layout, self.books(affinity).mask.load(Relaxed));
        if tier != (Tier::Chunk { align: CHUNK_ALIGN }) || arena.has_remote_frees() {
            return None;
        }
        let row = arena.row(affinity);
        // SAFETY: the arena's own, and nothing below comes back here.
        let chunks = unsafe { row.chunks.get().as_mut() }?;
        let (block, at) = chunks.take_ready(self.ground(affinity), layout.size().div_ceil(8))?;
        let Some(base) = self.blocks.base(block.number()) else { unreachable!("a block of the set") };
        self.chunk_in(row, affinity, Chunks::room(block, at) * 8);
        // SAFETY: the chunk lies in the block.
        Some(unsafe { base.add(at.word() * 8) })
    }

    /// Frees a chunk of this arena's. False, and nothing is changed, if it is none, or there is something to say;
    /// always so in the checked build.
    ///
    /// # Safety
    /// If a chunk of ours begins there, nobody uses it any more.
    #[inline]
    pub unsafe fn free_chunk_at_hand(&self, mine: &Arena, at: NonNull<u8>) -> bool {
        if CHECKED || !self.territory.is_chunks(at.addr().get()) {
            return false;
        }
        // SAFETY: in a block of chunks of ours.
        let Ok((block, chunk)) = (unsafe { self.chunk_at(at) }) else { return false };
        shard_of(block) >> AFFINITY_BITS == mine.index && self.free_own_chunk(mine, block, chunk).is_ok()
    }

    /// Frees a chunk in a block of this arena's.
    #[inline]
    fn free_own_chunk(&self, mine: &Arena, block: Block<'_>, chunk: Loc) -> Result<(), FreeError> {
        let affinity = Affinity::from_index(shard_of(block) as u8);
        let (row, bytes) = (mine.row(affinity), Chunks::room(block, chunk) * 8);
        // SAFETY: the arena's own, and nothing below comes back here.
        let chunks = unsafe { row.chunks.get().as_mut() }.ok_or(FreeError::NotASlot)?;
        chunks.free(self.ground(affinity), chunk).map_err(|_| FreeError::DoubleFree)?;
        self.chunk_out(row, affinity, bytes);
        if chunks.has_empty_block() {
            let _inside = inside::enter();
            let _lists = lock(&mine.lists);
            self.queue_chunk_blocks(mine, chunks, affinity, false);
            self.return_queued(mine);
        }
        Ok(())
    }

    /// Makes a block of chunks known.
    fn enter_chunks(&self, base: NonNull<u8>, block: Block<'_>) -> Result<(), BlockError> {
        block.word(OWNER_WORD).store(u64::from(block.number()), Relaxed);
        let _state = self.lock();
        self.territory.enter(base.addr().get(), BLOCK_BYTES, Area::Chunks)
    }

    /// The chunk that an address in a block of chunks is the room of, as far as its place says.
    ///
    /// # Safety
    /// The address lies in a block of chunks of ours.
    pub unsafe fn chunk_at(&self, at: NonNull<u8>) -> Result<(Block<'_>, Loc), FreeError> {
        // SAFETY: the caller's duty.
        let base = unsafe { block_of(at) };
        let offset = at.addr().get() - base.addr().get();
        // SAFETY: the header of a block of chunks; its owner's word is atomic.
        let number = unsafe { base.cast::<crate::sync::AtomicU64>().add(OWNER_WORD).as_ref() }.load(Relaxed) as u32;
        match self.blocks.block(number) {
            Some(block)
                if offset.is_multiple_of(16) && offset > HEADER_BYTES && self.blocks.base(number) == Some(base) =>
            {
                Ok((block, Loc::new(number, offset / 8)))
            }
            _ => Err(FreeError::NotASlot),
        }
    }

    /// The room of the used chunk that begins at an address, as far as that shows.
    ///
    /// # Safety
    /// As [`Shared::chunk_at`].
    pub unsafe fn room_of_chunk(&self, at: NonNull<u8>) -> Result<usize, FreeError> {
        // SAFETY: the caller's duty.
        let (block, chunk) = unsafe { self.chunk_at(at) }?;
        if Chunks::is_used(block, chunk) { Ok(Chunks::room(block, chunk) * 8) } else { Err(FreeError::DoubleFree) }
    }

    /// Makes a chunk of this arena's longer in its place, to hold `size` bytes. False, and nothing is changed, when it
    /// is another's, or there is no room behind it.
    ///
    /// # Safety
    /// As [`Shared::chunk_at`]; the chunk is used, and its user asks for this.
    pub unsafe fn grow_chunk(&self, mine: &Arena, at: NonNull<u8>, size: usize) -> bool {
        // SAFETY: the caller's duty.
        let Ok((block, chunk)) = (unsafe { self.chunk_at(at) }) else { return false };
        let (shard, before) = (shard_of(block), Chunks::room(block, chunk));
        if shard >> AFFINITY_BITS != mine.index {
            return false;
        }
        let affinity = Affinity::from_index(shard as u8);
        let row = mine.row(affinity);
        // SAFETY: the arena's own, and nothing below comes back here.
        let Some(chunks) = (unsafe { row.chunks.get().as_mut() }) else { return false };
        let grown = chunks.grow(self.ground(affinity), chunk, size.div_ceil(8));
        let more = Chunks::room(block, chunk) - before;
        // Relaxed: written by the owner alone.
        row.chunk_bytes.store(row.chunk_bytes.load(Relaxed) + more as u64 * 8, Relaxed);
        self.book_chunks(row, affinity);
        grown
    }

    /// Frees a chunk; one of another arena by way of that arena's remote frees.
    ///
    /// # Safety
    /// As [`Shared::chunk_at`]; if a chunk begins there, nobody uses it any more.
    pub unsafe fn free_chunk(
        &self,
        mine: &Arena,
        at: NonNull<u8>,
        said: Option<(Affinity, Layout)>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's duty.
        let (block, chunk) = unsafe { self.chunk_at(at) }?;
        let shard = shard_of(block);
        let affinity = Affinity::from_index(shard as u8);
        let owner = shard >> AFFINITY_BITS;
        if CHECKED {
            // Only the owner may walk over tags: others would meet them while they change.
            match if owner == mine.index { Chunks::look(block, chunk) } else { Found::Used } {
                Found::Used => {}
                Found::Free => return Err(FreeError::DoubleFree),
                Found::Inside => return Err(FreeError::NotASlot),
            }
            if let Some((said, layout)) = said {
                let room = Chunks::room(block, chunk) * 8;
                if said != affinity {
                    return Err(FreeError::WrongAffinity);
                }
                if layout.size() > room || !at.addr().get().is_multiple_of(layout.align()) {
                    return Err(FreeError::WrongSize);
                }
            }
        }
        let bytes = Chunks::room(block, chunk) * 8;
        if owner == mine.index {
            if CHECKED {
                // SAFETY: the chunk is used, and its user gives it up.
                unsafe { fill(at, bytes) };
            }
            return self.free_own_chunk(mine, block, chunk);
        }
        let owner = self.arena(owner as usize).ok_or(FreeError::NotASlot)?;
        Chunks::leave(block, chunk).map_err(|_| FreeError::DoubleFree)?;
        let row = owner.row(affinity);
        row.remote_objects.fetch_add(1, Relaxed);
        row.remote_bytes.fetch_add(bytes as u64, Relaxed);
        if CHECKED {
            // SAFETY: ours until it is pushed.
            unsafe { fill(at, bytes) };
        }
        push_remote_chunk(owner, block, chunk);
        self.count_remote_free(mine, bytes);
        Ok(())
    }

    /// Takes blocks without a chunk off, all but one or all, to be given back by [`Shared::return_queued`] at the end
    /// of the operation.
    pub fn queue_chunk_blocks(&self, arena: &Arena, chunks: &mut Chunks, affinity: Affinity, all: bool) {
        let before = chunks.counts().0;
        while let Some(number) = chunks.empty_block(self.ground(affinity), all) {
            let Some(block) = self.blocks.block(number) else { unreachable!("a block of the set") };
            block.word(QUEUE_WORD).store(u64::from(arena.queued_chunks.replace(link(number))), Relaxed);
        }
        // The affinity is charged for touched pages, not for whole blocks.
        let pages = before - chunks.counts().0;
        arena.queued_bytes.set(arena.queued_bytes.get() + pages * PAGE_BYTES as u64);
    }

    /// Strikes the queued blocks of chunks off the map. Returns the first of their list, for
    /// [`Shared::give_chunk_blocks_back`]. The caller holds the lock.
    ///
    /// Nobody is waited for, as where slots are freed: who frees a chunk looks at nothing of its block once it is
    /// pushed, and until then the block is not empty.
    pub fn strike_chunk_blocks(&self, arena: &Arena) -> u32 {
        let first = arena.queued_chunks.take();
        let mut next = first;
        while let Some((base, block)) = self.queued_block(next) {
            self.territory.strike(base.addr().get(), BLOCK_BYTES);
            next = block.word(QUEUE_WORD).load(Relaxed) as u32;
        }
        first
    }

    /// Strikes a block of chunks that was taken off from the map, and links it to `next`. Returns its name in the list.
    /// The caller holds the lock.
    pub fn strike_chunk_block(&self, number: u32, next: u32) -> u32 {
        let Some((base, block)) = self.queued_block(link(number)) else { unreachable!("a block of the set") };
        self.territory.strike(base.addr().get(), BLOCK_BYTES);
        block.word(QUEUE_WORD).store(u64::from(next), Relaxed);
        link(number)
    }

    /// Gives a list of struck blocks of chunks back to the pool, which keeps them warm as far as its policy goes. No
    /// lock is held.
    pub fn give_chunk_blocks_back(&self, first: u32) {
        let mut next = first;
        while let Some((_, block)) = self.queued_block(next) {
            let number = block.number();
            next = block.word(QUEUE_WORD).load(Relaxed) as u32;
            // SAFETY: taken off and struck, so nobody comes here any more; `block` is not used below.
            unsafe { self.blocks.give_back(number) };
        }
    }

    fn queued_block(&self, name: u32) -> Option<(NonNull<u8>, Block<'_>)> {
        let number = name.checked_sub(1)?;
        self.blocks.base(number).zip(self.blocks.block(number))
    }

    /// Counts a chunk in.
    fn chunk_in(&self, row: &Row, affinity: Affinity, bytes: usize) {
        // Relaxed: written by the owner alone.
        row.chunk_objects.store(row.chunk_objects.load(Relaxed) + 1, Relaxed);
        row.chunk_bytes.store(row.chunk_bytes.load(Relaxed) + bytes as u64, Relaxed);
        self.book_chunks(row, affinity);
    }

    /// Counts a chunk out.
    pub fn chunk_out(&self, row: &Row, affinity: Affinity, bytes: usize) {
        row.chunk_objects.store(row.chunk_objects.load(Relaxed).saturating_sub(1), Relaxed);
        row.chunk_bytes.store(row.chunk_bytes.load(Relaxed).saturating_sub(bytes as u64), Relaxed);
        self.book_chunks(row, affinity);
    }

    /// Tells the affinity's books what they do not know yet, if it is much.
    fn book_chunks(&self, row: &Row, affinity: Affinity) {
        let (now, booked) = (row.chunk_bytes.load(Relaxed), row.booked.get());
        if now.abs_diff(booked) < BOOKING {
            return;
        }
        row.booked.set(now);
        match now.checked_sub(booked) {
            Some(more) => self.books(affinity).book_in(more),
            None => self.books(affinity).book_out(booked - now),
        }
    }
}

/// No chunks yet. Apart from what goes on with them: it takes some KiB of the stack, which may be a small one.
#[cold]
#[inline(never)]
fn new_chunks(shard: u32) -> Result<Box<Chunks>, BlockError> {
    Chunks::without_readers(shard).and_then(try_box)
}

/// Pushes a chunk, marked as left, onto the stack of its owner; its first word holds the link.
pub(crate) fn push_remote_chunk(owner: &Arena, block: Block<'_>, chunk: Loc) {
    let (first, place) = (&owner.remote.chunks, block.word(chunk.word()));
    let mut head = first.load(Relaxed);
    loop {
        place.store(head, Relaxed);
        // Release: publishes the link, and what was done to the chunk before.
        match first.compare_exchange_weak(head, chunk.bits() + 1, Ordering::Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}
