//! Slots that are freed by another thread than their arena's, and what the owner does with them.

use std::ptr::NonNull;

use gabion_blocks::inside;
use gabion_heap::{Chunks, Loc, shard_of};

use crate::affinity::Affinity;
use crate::arena::Arena;
use crate::checked::CHECKED;
use crate::error::FreeError;
use crate::record::{Header, Page, Pair, block_of, link};
use crate::remote;
use crate::remote_buffer::RemoteFreeBatch;
use crate::shared::Shared;
use crate::sync::{Ordering, Ordering::Relaxed, lock};

impl Shared {
    /// Frees a slot of another arena. `mine` is the calling thread's.
    ///
    /// The page is the one around `at`, and its owner an arena of ours.
    #[inline(always)]
    pub fn free_foreign(&self, mine: &Arena, page: Page<'_>, at: NonNull<u8>) -> Result<(), FreeError> {
        let (_, pair, bit) = page.slot_at(at).ok_or(FreeError::NotASlot)?;
        let epoch = page.header.epoch.load(Relaxed);
        match mine.remote_buffer.add(page, pair.remote_free, bit, epoch) {
            Some(true) => Ok(()),
            Some(false) => Err(FreeError::DoubleFree),
            None => self.buffer(mine, page, pair, RemoteFreeBatch { pair: pair.remote_free, bits: bit, epoch }),
        }
    }

    /// Puts a batch of one slot into the buffer, or delivers it to its owner at once.
    #[cold]
    #[inline(never)]
    fn buffer(&self, mine: &Arena, page: Page<'_>, pair: Pair<'_>, batch: RemoteFreeBatch) -> Result<(), FreeError> {
        if CHECKED {
            // So that a second free is found whichever thread makes it.
            let twice = self.deliver(mine, batch);
            self.count_remote_free(mine, 0);
            return if twice == 0 { Ok(()) } else { Err(FreeError::DoubleFree) };
        }
        // Before the look at the pair, so that what this thread has freed itself is seen there.
        if mine.remote_buffer.is_due() {
            self.flush_due(mine);
        }
        if pair.is_free(batch.bits) {
            return Err(FreeError::DoubleFree);
        }
        if let Some(older) = mine.remote_buffer.put(page, batch) {
            self.deliver_late(mine, older);
        }
        Ok(())
    }

    /// Notes that something of that many bytes was delivered to its owner, and whether it is time to see to those that
    /// have ended.
    pub fn count_remote_free(&self, mine: &Arena, bytes: usize) {
        mine.remote_buffer.count(bytes);
        if mine.remote_buffer.is_due() {
            self.flush_due(mine);
        }
    }

    /// Flushes a buffer that is full, and takes in what threads that have ended have got by that.
    #[cold]
    fn flush_due(&self, mine: &Arena) {
        let _inside = inside::enter();
        self.flush(mine);
        // A free waits for nobody, and the next one that fills the buffer comes here again.
        self.try_collect_ownerless();
    }

    /// Delivers everything that a thread's buffer holds.
    pub fn flush(&self, mine: &Arena) {
        if !mine.remote_buffer.is_empty() {
            for batch in mine.remote_buffer.drain() {
                self.deliver_late(mine, batch);
            }
        }
    }

    /// As `deliver`, when there is nobody left to tell.
    fn deliver_late(&self, mine: &Arena, batch: RemoteFreeBatch) {
        let twice = self.deliver(mine, batch);
        if twice != 0 {
            self.books_of(batch.epoch).twice.fetch_add(u64::from(twice.count_ones()), Relaxed);
        }
    }

    /// Delivers remote frees to their owner. Returns those that were delivered there before.
    fn deliver(&self, mine: &Arena, batch: RemoteFreeBatch) -> u64 {
        let pair: NonNull<u8> = match NonNull::new(batch.pair.cast_mut()) {
            Some(pair) => pair.cast(),
            None => return 0,
        };
        // SAFETY: a pair lies in the header of a block that is, or was, of pages of ours.
        let base = unsafe { block_of(pair) };
        let (hazard, epoch) = (&mine.remote_buffer.hazard, &self.books_of(batch.epoch).epoch);
        let mut twice = 0;
        if hazard.protect(base.addr().get(), epoch, batch.epoch) {
            // Of slots that their owner has freed as well, page and block may be gone: the map says so, after the
            // hazard's fence.
            twice = batch.bits;
            if self.territory.is_pages(base.addr().get()) {
                // SAFETY: the block is one of pages of ours, and the hazard keeps it where it is.
                let header = unsafe { Header::of(base) };
                let page = header.page_of(batch.pair);
                if let Some(owner) = self.arena_of(page.owner()) {
                    // SAFETY: as above.
                    let remote_free = unsafe { &*batch.pair };
                    let number = header.remote.number.load(Relaxed);
                    twice = remote::publish(remote_free, batch.bits, &header.remote.pages, page.index() as u32, || {
                        owner.remote.slots.push(link(number), &header.remote.next);
                    });
                }
            }
        }
        hazard.clear();
        twice
    }

    /// Waits until no thread frees anything in the block that begins at `base`; at any block, if that is 0.
    pub fn await_hazards(&self, base: usize) {
        let mut index = 0;
        while let Some(arena) = self.arena(index) {
            // A few instructions, but the other thread may have lost its processor.
            arena.remote_buffer.hazard.await_clear(base, std::thread::yield_now);
            index += 1;
        }
    }

    /// Takes in what other threads have freed of an arena. For its own thread, or who has adopted it, with the lock of
    /// its lists.
    pub fn collect_remote_frees(&self, arena: &Arena) {
        let _collecting = lock(&arena.collecting);
        let mut next = arena.remote.slots.take_all();
        while next != 0 {
            let Some(base) = self.blocks.base(next - 1) else { break };
            // SAFETY: blocks on the stack are blocks of pages of this arena's.
            let header = unsafe { Header::of(base) };
            next = header.remote.next.load(Relaxed);
            let mut pages = remote::take_pages(&header.remote.pages);
            while pages != 0 {
                self.collect_page(arena, header.page(pages.trailing_zeros() as usize));
                pages &= pages - 1;
            }
        }
        self.collect_remote_chunks(arena);
    }

    /// Frees what others have freed in a page.
    fn collect_page(&self, arena: &Arena, page: Page<'_>) {
        if page.owner() != arena.word {
            // The thread that freed something was later than the page's last slot.
            return;
        }
        let (freed, last) = self.collect_pairs(page);
        page.record().remote_freed.store(1, Relaxed);
        if freed > 0 && page.count_out(freed) {
            self.relist(arena, page, last);
        }
    }

    /// Closes a page of which everything [was freed](Page::is_all_freed), for whoever holds the locks of the arena's
    /// lists and of who collects.
    pub fn close_all_freed(&self, arena: &Arena, page: Page<'_>) {
        self.collect_pairs(page);
        self.close_unused(arena, page);
    }

    /// Sets free what others have freed in a page. Returns how many slots, and a pair that has one.
    fn collect_pairs(&self, page: Page<'_>) -> (u32, usize) {
        let (mut freed, mut twice, mut last) = (0, 0, 0);
        for (index, pair) in page.pairs().enumerate() {
            let (new, again) = remote::collect(pair.free, pair.remote_free, page.valid(index));
            if new != 0 {
                (freed, last) = (freed + new.count_ones(), index);
            }
            twice += again.count_ones();
        }
        if twice > 0 {
            let affinity = page.header.affinity.load(Relaxed);
            self.books[affinity as usize].twice.fetch_add(u64::from(twice), Relaxed);
        }
        (freed, last)
    }

    /// Takes all blocks off an arena's stack of remote frees, and pushes those again that stay. The caller holds the
    /// lock of who collects.
    pub fn filter_remote_frees(&self, arena: &Arena, stays: impl Fn(&Header) -> bool) {
        let mut next = arena.remote.slots.take_all();
        while let Some(base) = next.checked_sub(1).and_then(|number| self.blocks.base(number)) {
            // SAFETY: blocks on the stack are blocks of pages of ours.
            let header = unsafe { Header::of(base) };
            let name = next;
            next = header.remote.next.load(Relaxed);
            if stays(header) {
                arena.remote.slots.push(name, &header.remote.next);
            }
        }
    }

    /// Frees the chunks that other threads have freed.
    fn collect_remote_chunks(&self, arena: &Arena) {
        if arena.remote.chunks.load(Relaxed) == 0 {
            return;
        }
        // Acquire: pairs with the release in `push_remote_chunk`.
        let mut next = arena.remote.chunks.swap(0, Ordering::Acquire);
        while next != 0 {
            let chunk = Loc::from_bits(next - 1);
            let Some(block) = self.blocks.block(chunk.number()) else { break };
            next = block.word(chunk.word()).load(Relaxed);
            let affinity = Affinity::from_index(shard_of(block) as u8);
            let bytes = Chunks::room(block, chunk) * 8;
            let row = arena.row(affinity);
            // SAFETY: the arena's own, and nothing below comes back here.
            let Some(chunks) = (unsafe { row.chunks.get().as_mut() }) else { break };
            row.remote_objects.fetch_sub(1, Relaxed);
            row.remote_bytes.fetch_sub(bytes as u64, Relaxed);
            if chunks.free_left(self.ground(affinity), chunk).is_ok() {
                self.chunk_out(row, affinity, bytes);
                self.queue_chunk_blocks(arena, chunks, affinity, false);
            }
        }
    }
}
