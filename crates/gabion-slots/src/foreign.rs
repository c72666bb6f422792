//! Slots that are freed by another thread than their arena's, and what the owner does with them.

use std::ptr::NonNull;

use gabion_blocks::inside;
use gabion_heap::{Chunks, Loc, shard_of};

use crate::affinity::Affinity;
use crate::arena::Arena;
use crate::checked::CHECKED;
use crate::error::FreeError;
use crate::letters;
use crate::outbox::Parcel;
use crate::record::{Header, Page, Pair, block_of, link};
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
        match mine.outbox.add(page, pair.left, bit, epoch) {
            Some(true) => Ok(()),
            Some(false) => Err(FreeError::DoubleFree),
            None => self.send(mine, page, pair, Parcel { pair: pair.left, bits: bit, epoch }),
        }
    }

    /// Puts a parcel of one slot into the outbox, or leaves it at its owner at once.
    #[cold]
    #[inline(never)]
    fn send(&self, mine: &Arena, page: Page<'_>, pair: Pair<'_>, parcel: Parcel) -> Result<(), FreeError> {
        if CHECKED {
            // So that a second free is found whichever thread makes it.
            let twice = self.deliver(mine, parcel);
            self.note_left(mine, 0);
            return if twice == 0 { Ok(()) } else { Err(FreeError::DoubleFree) };
        }
        // Before the look at the pair, so that what this thread has freed itself is seen there.
        if mine.outbox.is_due() {
            self.flush_due(mine);
        }
        if pair.is_free(parcel.bits) {
            return Err(FreeError::DoubleFree);
        }
        if let Some(older) = mine.outbox.put(page, parcel) {
            self.deliver_late(mine, older);
        }
        Ok(())
    }

    /// Notes that something of that many bytes was left at its owner, and whether it is time to see to those that have
    /// ended.
    pub fn note_left(&self, mine: &Arena, bytes: usize) {
        mine.outbox.count(bytes);
        if mine.outbox.is_due() {
            self.flush_due(mine);
        }
    }

    /// Flushes an outbox that is full, and takes in what threads that have ended have got by that.
    #[cold]
    fn flush_due(&self, mine: &Arena) {
        let _inside = inside::enter();
        self.flush(mine);
        // A free waits for nobody, and the next one that fills the outbox comes here again.
        self.try_tend();
    }

    /// Leaves everything that a thread's outbox holds at its owners.
    pub fn flush(&self, mine: &Arena) {
        if !mine.outbox.is_empty() {
            for parcel in mine.outbox.drain() {
                self.deliver_late(mine, parcel);
            }
        }
    }

    /// As `deliver`, when there is nobody left to tell.
    fn deliver_late(&self, mine: &Arena, parcel: Parcel) {
        let twice = self.deliver(mine, parcel);
        if twice != 0 {
            self.books_of(parcel.epoch).twice.fetch_add(u64::from(twice.count_ones()), Relaxed);
        }
    }

    /// Leaves slots at their owner. Returns those that were left there before.
    fn deliver(&self, mine: &Arena, parcel: Parcel) -> u64 {
        let pair: NonNull<u8> = match NonNull::new(parcel.pair.cast_mut()) {
            Some(pair) => pair.cast(),
            None => return 0,
        };
        // SAFETY: a pair lies in the header of a block that is, or was, of pages of ours.
        let base = unsafe { block_of(pair) };
        let (hazard, epoch) = (&mine.outbox.hazard, &self.books_of(parcel.epoch).epoch);
        let mut twice = 0;
        if hazard.name(base.addr().get(), epoch, parcel.epoch) {
            // Of slots that their owner has freed as well, page and block may be gone: the map says so, after the
            // hazard's fence.
            twice = parcel.bits;
            if self.territory.is_pages(base.addr().get()) {
                // SAFETY: the block is one of pages of ours, and the hazard keeps it where it is.
                let header = unsafe { Header::of(base) };
                let page = header.page_of(parcel.pair);
                if let Some(owner) = self.arena_of(page.owner()) {
                    // SAFETY: as above.
                    let left = unsafe { &*parcel.pair };
                    let number = header.mail.number.load(Relaxed);
                    twice = letters::leave(left, parcel.bits, &header.mail.pages, page.index() as u32, || {
                        owner.letters.slots.put(link(number), &header.mail.next);
                    });
                }
            }
        }
        hazard.clear();
        twice
    }

    /// Waits until no thread leaves anything at the block that begins at `base`; at any block, if that is 0.
    pub fn await_hazards(&self, base: usize) {
        let mut index = 0;
        while let Some(arena) = self.arena(index) {
            // A few instructions, but the other thread may have lost its processor.
            arena.outbox.hazard.await_clear(base, std::thread::yield_now);
            index += 1;
        }
    }

    /// Takes in what other threads have freed of an arena. For its own thread, or who has adopted it, with the lock of
    /// its lists.
    pub fn read_letters(&self, arena: &Arena) {
        let _reading = lock(&arena.reading);
        let mut next = arena.letters.slots.take_all();
        while next != 0 {
            let Some(base) = self.blocks.base(next - 1) else { break };
            // SAFETY: blocks in the letter box are blocks of pages of this arena's.
            let header = unsafe { Header::of(base) };
            next = header.mail.next.load(Relaxed);
            let mut pages = letters::open(&header.mail.pages);
            while pages != 0 {
                self.collect(arena, header.page(pages.trailing_zeros() as usize));
                pages &= pages - 1;
            }
        }
        self.read_chunks(arena);
    }

    /// Frees what was left in a page.
    fn collect(&self, arena: &Arena, page: Page<'_>) {
        if page.owner() != arena.word {
            // The thread that left something was later than the page's last slot.
            return;
        }
        let (freed, last) = self.take_in(page);
        page.record().returned.store(1, Relaxed);
        if freed > 0 && page.count_out(freed) {
            self.relist(arena, page, last);
        }
    }

    /// Closes a page of which everything [was returned](Page::is_returned), for whoever holds the locks of the arena's
    /// lists and of who reads.
    pub fn close_returned(&self, arena: &Arena, page: Page<'_>) {
        self.take_in(page);
        self.close_unused(arena, page);
    }

    /// Sets what was left in a page free. Returns how many slots, and a pair that has one.
    fn take_in(&self, page: Page<'_>) -> (u32, usize) {
        let (mut freed, mut twice, mut last) = (0, 0, 0);
        for (index, pair) in page.pairs().enumerate() {
            let (new, again) = letters::collect(pair.free, pair.left, page.valid(index));
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

    /// Takes all blocks out of an arena's letter box, and puts back those that stay. The caller holds the lock of who
    /// reads.
    pub fn sift_letters(&self, arena: &Arena, stays: impl Fn(&Header) -> bool) {
        let mut next = arena.letters.slots.take_all();
        while let Some(base) = next.checked_sub(1).and_then(|number| self.blocks.base(number)) {
            // SAFETY: blocks in the letter box are blocks of pages of ours.
            let header = unsafe { Header::of(base) };
            let name = next;
            next = header.mail.next.load(Relaxed);
            if stays(header) {
                arena.letters.slots.put(name, &header.mail.next);
            }
        }
    }

    /// Frees the chunks that other threads have left.
    fn read_chunks(&self, arena: &Arena) {
        if arena.letters.chunks.load(Relaxed) == 0 {
            return;
        }
        // Acquire: pairs with the release in `post_chunk`.
        let mut next = arena.letters.chunks.swap(0, Ordering::Acquire);
        while next != 0 {
            let chunk = Loc::from_bits(next - 1);
            let Some(block) = self.blocks.block(chunk.number()) else { break };
            next = block.word(chunk.word()).load(Relaxed);
            let affinity = Affinity::from_index(shard_of(block) as u8);
            let bytes = Chunks::room(block, chunk) * 8;
            let row = arena.row(affinity);
            // SAFETY: the arena's own, and nothing below comes back here.
            let Some(chunks) = (unsafe { row.chunks.get().as_mut() }) else { break };
            row.left_objects.fetch_sub(1, Relaxed);
            row.left_bytes.fetch_sub(bytes as u64, Relaxed);
            if chunks.free_left(self.ground(affinity), chunk).is_ok() {
                self.chunk_out(row, affinity, bytes);
                self.doom_chunk_blocks(arena, chunks, affinity, false);
            }
        }
    }
}
