//! Blocks and pages: where a shelf gets its next slots from, and what becomes of a page that empties.
//!
//! All of it is an arena's own, called by its thread or by one that has adopted it for the moment, with the lock of its
//! lists: another thread may take back what is empty (`release`).

use std::ptr;

use gabion_blocks::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

use crate::affinity::Affinity;
use crate::arena::{Arena, Row};
use crate::error::SlotsError;
use crate::record::{ALL_PAGES, Header, Page, Standing, link};
use crate::shared::{Shared, refusal};
use crate::sync::{AtomicU32, Ordering, Ordering::Relaxed, Ordering::Release, fence, lock};
use crate::territory::Area;
use crate::tier::mark_of;

/// How many pages are populated in one step, once a block of the row was filled.
const POPULATED: usize = 4;

/// Classes whose pages are not populated in one step, because a record stands for half of the slots that would fit.
const SPARSE_CLASSES: usize = 1;

impl Shared {
    /// Moves a shelf to the next free slots: of its page, of what others have freed, of the fullest page with room, or
    /// of a page that was empty.
    ///
    /// # Errors
    /// What [`Shared::block_with_room`] says.
    pub fn refill(&self, arena: &Arena, affinity: Affinity, class: usize) -> Result<(), SlotsError> {
        let row = arena.row(affinity);
        let shelf = &row.shelves[class];
        if shelf.step() {
            return Ok(());
        }
        if arena.has_remote_frees() {
            self.collect_remote_frees(arena);
            if shelf.step() {
                return Ok(());
            }
        }
        let page = match self.listed_page(row, class) {
            Some(page) => page,
            None => self.open_page(arena, affinity, class)?,
        };
        if let Some(full) = shelf.active() {
            // Where no pair has a free slot, all are used.
            full.stand(Standing::FULL, full.slots());
        }
        page.activate();
        shelf.stand_at(page);
        shelf.step();
        Ok(())
    }

    /// Takes the fullest page with room off its list.
    fn listed_page(&self, row: &Row, class: usize) -> Option<Page<'_>> {
        let list = row.lists[class].iter().rev().find(|list| list.get() != 0)?;
        let page = self.page(list.get())?;
        self.unlist(row, page);
        Some(page)
    }

    /// The page with this name, `number << 6 | page`; 0 is none, because page 0 of a block holds no slots.
    fn page(&self, name: u32) -> Option<Page<'_>> {
        if name == 0 {
            return None;
        }
        let base = self.blocks.base(name / PAGES_PER_BLOCK as u32)?;
        // SAFETY: names in lists are those of pages of blocks that are ours until they are given back, off all lists.
        Some(unsafe { Header::of(base) }.page(name as usize))
    }

    fn header(&self, name: u32) -> Option<&Header> {
        // SAFETY: as in `page`.
        Some(unsafe { Header::of(self.blocks.base(name.checked_sub(1)?)?) })
    }

    // --- the lists of a row ----------------------------------------------------------------------

    /// Gives a page the standing that fits its fullness, which has fallen below the threshold. `pair` has a free slot.
    pub fn relist(&self, arena: &Arena, page: Page<'_>, pair: usize) {
        let standing = page.standing();
        if standing == Standing::ACTIVE {
            // After 2³¹ frees.
            page.activate();
            return;
        }
        let row = arena.row(Affinity::from_index(page.header.affinity.load(Relaxed)));
        if standing.is_listed() {
            self.unlist(row, page);
        } else {
            page.record().cursor.store(pair as u8, Relaxed);
        }
        let used = page.used();
        if used == 0 {
            self.close_page(arena, row, page);
            return;
        }
        let standing = Standing::listed(used, page.slots());
        page.stand(standing, used);
        let list = &row.lists[page.class()][usize::from(standing.0)];
        let (name, first) = (page.name(), list.get());
        page.record().previous.store(0, Relaxed);
        page.record().next.store(first, Relaxed);
        if let Some(first) = self.page(first) {
            first.record().previous.store(name, Relaxed);
        }
        list.set(name);
    }

    fn unlist(&self, row: &Row, page: Page<'_>) {
        let (next, previous) = (page.record().next.load(Relaxed), page.record().previous.load(Relaxed));
        if previous == 0 {
            row.lists[page.class()][usize::from(page.standing().0)].set(next);
        } else if let Some(previous) = self.page(previous) {
            previous.record().next.store(next, Relaxed);
        }
        if let Some(next) = self.page(next) {
            next.record().previous.store(previous, Relaxed);
        }
    }

    fn link_room(&self, row: &Row, header: &Header) {
        header.has_room.store(1, Relaxed);
        let name = link(header.number.load(Relaxed));
        self.push(&row.room, header, name, |header| (&header.room_next, &header.room_previous));
    }

    fn unlink_room(&self, row: &Row, header: &Header) {
        header.has_room.store(0, Relaxed);
        self.remove(&row.room, header, |header| (&header.room_next, &header.room_previous));
    }

    /// Puts a block at the front of a list.
    fn push(&self, first: &std::cell::Cell<u32>, header: &Header, name: u32, links: Links) {
        let (next, previous) = links(header);
        next.store(first.get(), Relaxed);
        previous.store(0, Relaxed);
        if let Some(other) = self.header(first.get()) {
            links(other).1.store(name, Relaxed);
        }
        first.set(name);
    }

    fn remove(&self, first: &std::cell::Cell<u32>, header: &Header, links: Links) {
        let (next, previous) = links(header);
        let (next, previous) = (next.load(Relaxed), previous.load(Relaxed));
        match self.header(previous) {
            Some(before) => links(before).0.store(next, Relaxed),
            None => first.set(next),
        }
        if let Some(after) = self.header(next) {
            links(after).1.store(previous, Relaxed);
        }
    }

    // --- pages -----------------------------------------------------------------------------------

    /// Prepares an empty page for slots of `class`.
    fn open_page(&self, arena: &Arena, affinity: Affinity, class: usize) -> Result<Page<'_>, SlotsError> {
        let row = arena.row(affinity);
        let header = self.block_with_room(arena, affinity)?;
        let free = header.free.load(Relaxed);
        let index = free.trailing_zeros() as usize;
        let zero = header.zero.load(Relaxed);
        let grown = row.shelves[class].grown.replace(true);
        let mut touched = 1_u64 << index;
        if zero & touched != 0 && grown && class >= SPARSE_CLASSES {
            // Sixteen faults in one: the page is about to be filled; so are the next ones where a block was filled
            // already.
            let run = ((zero >> index).trailing_ones() as usize).min(if row.grown.get() { POPULATED } else { 1 });
            let ready = self.blocks.populate_pages(header.number.load(Relaxed), index, run);
            ready.expect("pages of a block of ours");
            touched = (u64::MAX >> (64 - run)) << index;
        }
        header.zero.store(zero & !touched, Relaxed);
        if zero != 0 && zero & !touched == 0 {
            row.grown.set(true);
            self.blocks.note_touched(header.number.load(Relaxed));
        }
        let page = header.page(index);
        page.open(arena.word, mark_of(class));
        // Release: who reads that the page is in use, for a report, finds it opened.
        header.free.store(free & !(1 << index), Release);
        if free & !(1 << index) == 0 {
            self.unlink_room(row, header);
        }
        self.books(affinity).book_in(PAGE_BYTES as u64);
        Ok(page)
    }

    /// Makes an empty, unlisted page free.
    ///
    /// An active page does not show that it has become empty, and would keep its block. So blocks are looked at that
    /// have no other pages: this one, and if it goes, all that are like it.
    fn close_page(&self, arena: &Arena, row: &Row, page: Page<'_>) {
        let header = page.header;
        self.free_page(arena, row, page);
        if header.free.load(Relaxed) != ALL_PAGES {
            if !is_idle(header) {
                return;
            }
            self.free_idle_pages(arena, row, header);
        }
        for shelf in &row.shelves {
            if let Some(page) = shelf.active().filter(|page| is_idle(page.header)) {
                self.free_idle_pages(arena, row, page.header);
            }
        }
    }

    /// Makes a page free that is empty, though its standing does not say so yet. Whether other pages are idle, their
    /// owner knows alone.
    pub fn close_unused(&self, arena: &Arena, page: Page<'_>) {
        let row = arena.row(Affinity::from_index(page.header.affinity.load(Relaxed)));
        if page.standing().is_listed() {
            self.unlist(row, page);
        }
        self.free_page(arena, row, page);
    }

    /// Frees the pages of a block that is idle, and with them the block.
    fn free_idle_pages(&self, arena: &Arena, row: &Row, header: &Header) {
        for page in pages_in_use(header) {
            row.shelves[page.class()].leave();
            self.free_page(arena, row, page);
        }
    }

    /// Makes an empty page free that is in no list and on no shelf, and queues its block for return if that is empty
    /// and another one is kept already.
    fn free_page(&self, arena: &Arena, row: &Row, page: Page<'_>) {
        let header = page.header;
        let affinity = Affinity::from_index(header.affinity.load(Relaxed));
        page.record().owner.store(0, Relaxed);
        self.books(affinity).book_out(PAGE_BYTES as u64);
        let free = header.free.load(Relaxed) | 1 << page.index();
        header.free.store(free, Relaxed);
        if free != ALL_PAGES {
            if header.has_room.load(Relaxed) == 0 {
                self.link_room(row, header);
            }
            return;
        }
        if header.has_room.load(Relaxed) != 0 {
            self.unlink_room(row, header);
        }
        if row.warm.get() == 0 {
            row.warm.set(link(header.number.load(Relaxed)));
        } else {
            self.queue_for_return(arena, row, header);
        }
    }

    /// Takes an empty block off its row, to be given back at the end of the operation.
    pub fn queue_for_return(&self, arena: &Arena, row: &Row, header: &Header) {
        self.remove(&row.blocks, header, |header| (&header.next, &header.previous));
        header.room_next.store(arena.queued.get(), Relaxed);
        arena.queued.set(link(header.number.load(Relaxed)));
    }

    /// Closes the active pages that are empty.
    pub fn close_idle_pages(&self, arena: &Arena, affinity: Affinity) {
        let row = arena.row(affinity);
        // Rows of affinities that the thread never used lie in memory that was never touched.
        if row.blocks.get() == 0 {
            return;
        }
        for shelf in &row.shelves {
            if let Some(page) = shelf.active().filter(|page| page.used() == 0) {
                shelf.leave();
                self.close_page(arena, row, page);
            }
        }
    }

    /// Closes the active pages that are empty, and queues the block that is kept warm.
    pub fn let_warm_go(&self, arena: &Arena, affinity: Affinity) {
        self.close_idle_pages(arena, affinity);
        self.queue_warm(arena, affinity);
    }

    /// Queues the block that is kept warm for return.
    pub fn queue_warm(&self, arena: &Arena, affinity: Affinity) {
        let row = arena.row(affinity);
        // Rows of affinities that the thread never used lie in memory that was never touched.
        if row.blocks.get() == 0 {
            return;
        }
        if let Some(header) = self.header(row.warm.replace(0)) {
            self.queue_for_return(arena, row, header);
        }
    }

    // --- blocks ----------------------------------------------------------------------------------

    /// A block of the row with a free page: one that has some in use, the one kept warm, or another one from the pool.
    ///
    /// # Errors
    /// That the affinity's budget or the system gives no other block.
    fn block_with_room(&self, arena: &Arena, affinity: Affinity) -> Result<&Header, SlotsError> {
        let row = arena.row(affinity);
        if let Some(header) = self.header(row.room.get()) {
            return Ok(header);
        }
        if let Some(header) = self.header(row.warm.replace(0)) {
            self.link_room(row, header);
            return Ok(header);
        }
        let books = self.known(affinity)?;
        // Rather than another block, pages that wait empty for other sizes.
        self.close_idle_pages(arena, affinity);
        if row.room.get() != 0 || row.warm.get() != 0 {
            return self.block_with_room(arena, affinity);
        }
        self.try_trim_ownerless();
        if let Err(error) = books.budget.take(BLOCK_BYTES as u64) {
            return Err(refusal(affinity, error));
        }
        let header = self.map_block(row, affinity).inspect_err(|_| books.budget.give(BLOCK_BYTES as u64))?;
        books.blocks.fetch_add(1, Relaxed);
        self.link_room(row, header);
        Ok(header)
    }

    /// Takes a block from the pool and makes it one of pages, all free.
    fn map_block(&self, row: &Row, affinity: Affinity) -> Result<&Header, SlotsError> {
        // A handful of objects should cost a few pages, in each arena and affinity.
        let (number, zero) = self.blocks.map_as(!row.grown.get()).map_err(|error| refusal(affinity, error))?;
        let Some(base) = self.blocks.base(number) else { unreachable!("the block was just mapped") };
        // SAFETY: a block of the set, which nobody else knows yet.
        let header = unsafe { Header::of(base) };
        // The first 4 KiB are zero: records are those of pages that are not in use.
        if zero && row.grown.get() {
            // All of its header will be used.
            self.blocks.populate(number, 0).expect("a page of a block of ours");
        }
        header.number.store(number, Relaxed);
        header.remote.number.store(number, Relaxed);
        header.affinity.store(affinity.index(), Relaxed);
        header.epoch.store(self.books(affinity).epoch.load(Relaxed), Relaxed);
        header.free.store(ALL_PAGES, Relaxed);
        header.zero.store(if zero { ALL_PAGES } else { 0 }, Relaxed);
        let known = {
            let _state = self.lock();
            self.territory.enter(base.addr().get(), BLOCK_BYTES, Area::Pages)
        };
        if let Err(error) = known {
            // SAFETY: nobody has seen the block.
            unsafe { self.blocks.give_back(number) };
            return Err(SlotsError::NoMemory(error));
        }
        self.push(&row.blocks, header, link(number), |header| (&header.next, &header.previous));
        Ok(header)
    }

    /// Gives back the blocks that an arena has queued. Returns the bytes that were charged for them.
    pub fn return_queued(&self, arena: &Arena) -> u64 {
        if arena.queued.get() == 0 && arena.queued_chunks.get() == 0 {
            return 0;
        }
        let (pages, chunks) = {
            let _state = self.lock();
            (self.strike_queued(arena), self.strike_chunk_blocks(arena))
        };
        self.give_chunk_blocks_back(chunks);
        self.give_back(pages) + arena.queued_bytes.take()
    }

    /// The first step of [`Shared::return_queued`], of blocks of pages alone, for [`Shared::give_back`].
    pub fn strike(&self, arena: &Arena) -> u32 {
        if arena.queued.get() == 0 {
            return 0;
        }
        let _state = self.lock();
        self.strike_queued(arena)
    }

    /// Makes the queued blocks nobody's: strikes them off the map, and waits until no thread frees anything there.
    /// Returns the first of their list, for [`Shared::give_back`]. The caller holds the lock.
    fn strike_queued(&self, arena: &Arena) -> u32 {
        let mut done = 0;
        while let Some(header) = self.header(arena.queued.get()) {
            let base = header.base().addr().get();
            // Struck first, then waited, with a fence between as in `remote::advance_epoch`: who frees a slot here for
            // the second time either is waited for, or finds that the block is not ours any more.
            self.territory.strike(base, BLOCK_BYTES);
            fence(Ordering::SeqCst);
            self.await_hazards(base);
            if header.remote.pages.load(Relaxed) != 0 {
                // It lies on the stack, though there is nothing new in it. After that it does not, whatever a
                // thread that a forked child does not have was about to do.
                let _collecting = lock(&arena.collecting);
                self.filter_remote_frees(arena, |other| !ptr::eq(other, header));
                header.remote.pages.store(0, Relaxed);
            }
            self.books(Affinity::from_index(header.affinity.load(Relaxed))).blocks.fetch_sub(1, Relaxed);
            let name = arena.queued.get();
            arena.queued.set(header.room_next.load(Relaxed));
            header.room_next.store(done, Relaxed);
            done = name;
        }
        done
    }

    /// Gives a list of struck blocks back to the pool. Returns bytes. No lock is held.
    pub fn give_back(&self, first: u32) -> u64 {
        let (mut next, mut bytes) = (first, 0);
        while let Some(header) = self.header(next) {
            next = header.room_next.load(Relaxed);
            let number = header.number.load(Relaxed);
            self.books(Affinity::from_index(header.affinity.load(Relaxed))).budget.give(BLOCK_BYTES as u64);
            // SAFETY: struck, off all lists, empty, and no thread is about to free anything there.
            unsafe { self.blocks.give_back(number) };
            bytes += BLOCK_BYTES as u64;
        }
        bytes
    }
}

/// The pages of a block that are in use at this moment.
pub(crate) fn pages_in_use(header: &Header) -> impl Iterator<Item = Page<'_>> {
    let in_use = ALL_PAGES & !header.free.load(Relaxed);
    (1..PAGES_PER_BLOCK).filter(move |index| in_use >> index & 1 == 1).map(|index| header.page(index))
}

/// Whether a block has pages in use, all active and empty.
fn is_idle(header: &Header) -> bool {
    header.free.load(Relaxed) != ALL_PAGES
        && pages_in_use(header).all(|page| page.standing() == Standing::ACTIVE && page.used() == 0)
}

/// Which of a block's two pairs of links is meant: the next, the previous.
type Links = fn(&Header) -> (&AtomicU32, &AtomicU32);
