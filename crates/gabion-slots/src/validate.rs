//! The check of all equations.
//!
//! ```text
//! of each page     slots = used + bits set in `free`; no bit beyond the slots is set in `free`; no bit of
//!                  `remote_free` is set there, and none beyond the slots, unless it was freed twice and waits to be
//!                  collected; unless it is active,
//!                  used = spare + threshold
//! of each page     standing, threshold and list belong together; active exactly when its shelf stands at it
//! of each block    pages in use have a record with the arena's word; with free pages it is listed or kept warm
//! of each row      the lists hold its pages with that standing, each once, and its blocks with free pages
//! ```

use std::collections::HashSet;

use gabion_blocks::{BLOCK_BYTES, Invalid, PAGES_PER_BLOCK, ensure};
use gabion_heap::CLASSES;

use crate::affinity::Affinity;
use crate::arena::{Arena, Row, Shelf};
use crate::record::{ALL_PAGES, Header, Page, Standing, link};
use crate::shared::{Shared, State};
use crate::sync::{Ordering::Acquire, Ordering::Relaxed, lock};
use crate::territory::Area;

/// What one page says about itself.
struct Seen {
    /// `number << 6 | page`.
    name: u32,
    class: usize,
    standing: u8,
}

impl Shared {
    /// Checks an arena of this thread's, and those without an owner.
    pub fn validate(&self, arena: &Arena) -> Result<(), Invalid> {
        // Who takes what is empty puts it aside for a moment.
        let _taking = lock(&self.taking);
        let state = self.lock();
        let ownerless =
            state.ownerless_cold.iter().chain(&state.ownerless_warm).filter_map(|&index| self.arena(index as usize));
        self.validate_arenas(&state, ownerless.chain([arena]))
    }

    /// Checks all arenas but orphans. Nobody else uses them.
    pub fn validate_all(&self) -> Result<(), Invalid> {
        let state = self.lock();
        self.validate_arenas(&state, self.sound_arenas(&state))
    }

    fn validate_arenas<'a>(&self, state: &State, arenas: impl Iterator<Item = &'a Arena>) -> Result<(), Invalid> {
        for arena in arenas {
            let _collecting = lock(&arena.collecting);
            for index in 0..state.names.len() {
                let affinity = Affinity::from_index(index as u8);
                self.validate_row(arena, arena.row(affinity), affinity)?;
                // SAFETY: the arena is this thread's, has no owner while the lock is held, or nobody else uses it.
                if let Some(chunks) = unsafe { arena.row(affinity).chunks.get().as_ref() } {
                    chunks.validate(self.ground(affinity))?;
                }
            }
            let queued = arena.queued.get() | arena.queued_chunks.get();
            ensure(queued == 0, || format!("arena {}: blocks wait to be given back", arena.index))?;
        }
        Ok(())
    }

    fn validate_row(&self, arena: &Arena, row: &Row, affinity: Affinity) -> Result<(), Invalid> {
        let (mut pages, mut with_room) = (Vec::new(), HashSet::new());
        let (mut name, mut before) = (row.blocks.get(), 0);
        while name != 0 {
            let header = self.block_named(name)?;
            let here = header.base().addr().get();
            ensure(header.previous.load(Relaxed) == before, || format!("block {name}: broken list"))?;
            ensure(header.affinity.load(Relaxed) == affinity.index(), || format!("block {name}: another affinity's"))?;
            ensure(self.territory.at(here + BLOCK_BYTES / 2) == Area::Pages, || format!("block {name}: unknown"))?;
            let free = header.free.load(Relaxed);
            ensure(free & !ALL_PAGES == 0, || format!("block {name}: page 0 is free"))?;
            let listed = header.has_room.load(Relaxed) != 0;
            let kept = row.warm.get() == name;
            ensure(listed == (free != 0 && !kept), || format!("block {name}: {free:x} free, listed {listed}"))?;
            ensure(!kept || free == ALL_PAGES, || format!("block {name}: kept warm, but in use"))?;
            if listed {
                with_room.insert(name);
            }
            for page in (1..PAGES_PER_BLOCK).filter(|page| free >> page & 1 == 0) {
                pages.push(self.validate_page(arena, row, header.page(page))?);
            }
            (before, name) = (name, header.next.load(Relaxed));
        }
        self.validate_room(row, &with_room)?;
        for class in 0..CLASSES {
            self.validate_lists(row, class, &pages)?;
        }
        ensure(row.shelves.iter().all(Shelf::agrees), || "a shelf does not know its page".to_owned())?;
        let active = pages.iter().filter(|page| page.standing == Standing::ACTIVE.0).count();
        let shelves = row.shelves.iter().filter(|shelf| shelf.active().is_some()).count();
        ensure(active == shelves, || format!("{active} pages are active, {shelves} shelves have one"))
    }

    fn block_named(&self, name: u32) -> Result<&Header, Invalid> {
        let base = self.blocks.base(name - 1).ok_or_else(|| Invalid(format!("block {name}: not ours")))?;
        // SAFETY: a block in the lists of a row is one of pages.
        let header = unsafe { Header::of(base) };
        ensure(link(header.number.load(Relaxed)) == name, || format!("block {name}: another number"))?;
        Ok(header)
    }

    fn validate_room(&self, row: &Row, with_room: &HashSet<u32>) -> Result<(), Invalid> {
        let (mut name, mut before, mut seen) = (row.room.get(), 0, 0);
        while name != 0 {
            let header = self.block_named(name)?;
            ensure(with_room.contains(&name), || format!("block {name}: listed, without free pages"))?;
            ensure(header.room_previous.load(Relaxed) == before, || format!("block {name}: broken list of room"))?;
            seen += 1;
            ensure(seen <= with_room.len(), || "the list of room goes round".to_owned())?;
            (before, name) = (name, header.room_next.load(Relaxed));
        }
        ensure(seen == with_room.len(), || format!("{seen} blocks with room listed of {}", with_room.len()))
    }

    fn validate_lists(&self, row: &Row, class: usize, pages: &[Seen]) -> Result<(), Invalid> {
        for quarter in 0..Standing::QUARTERS {
            let of_list = |page: &&Seen| page.class == class && page.standing == quarter;
            let expected: HashSet<u32> = pages.iter().filter(of_list).map(|page| page.name).collect();
            let (mut name, mut before, mut seen) = (row.lists[class][quarter as usize].get(), 0, 0);
            while name != 0 {
                let what = || format!("class {class}, quarter {quarter}, page {name}");
                ensure(expected.contains(&name), || format!("{}: does not belong there", what()))?;
                let base = self.blocks.base(name / PAGES_PER_BLOCK as u32);
                let base = base.ok_or_else(|| Invalid(format!("{}: not ours", what())))?;
                // SAFETY: the page was found in a block of the row.
                let record = unsafe { Header::of(base) }.page(name as usize).record();
                ensure(record.previous.load(Relaxed) == before, || format!("{}: broken list", what()))?;
                seen += 1;
                ensure(seen <= expected.len(), || format!("{}: the list goes round", what()))?;
                (before, name) = (name, record.next.load(Relaxed));
            }
            ensure(seen == expected.len(), || format!("class {class}: {seen} pages listed of {}", expected.len()))?;
        }
        Ok(())
    }

    fn validate_page(&self, arena: &Arena, row: &Row, page: Page<'_>) -> Result<Seen, Invalid> {
        let (name, class, standing) = (page.name(), page.class(), page.standing());
        let (used, slots) = (page.used(), page.slots());
        let what = || format!("page {name} of class {class}, {used} of {slots} used, standing {}", standing.0);
        ensure(page.owner() == arena.word, || format!("{}: another owner's", what()))?;
        let mut free = 0;
        for (index, pair) in page.pairs().enumerate() {
            // Acquire: who sees what another thread has freed sees that it protects the block.
            let (own, others) = (pair.free.load(Relaxed), pair.remote_free.load(Acquire));
            let beyond = !page.valid(index);
            let sound = own & beyond == 0 && (others & (own | beyond) == 0 || self.is_announced(page));
            ensure(sound, || format!("{}: {own:x} {others:x}", what()))?;
            free += own.count_ones();
        }
        ensure(used + free == slots, || format!("{}: {free} free", what()))?;
        let active = row.shelves[class].active().is_some_and(|active| active == page);
        ensure(active == (standing == Standing::ACTIVE), what)?;
        if active {
            return Ok(Seen { name, class, standing: standing.0 });
        }
        ensure(page.counted() == used.cast_signed(), || format!("{}: {} counted", what(), page.counted()))?;
        ensure(used > 0 && page.keeps_standing(), what)?;
        ensure(standing == Standing::FULL || standing == Standing::listed(used, slots), what)?;
        Ok(Seen { name, class, standing: standing.0 })
    }

    /// Whether its block says that a page has remote frees. What they are, freed twice or not, is looked at when they
    /// are collected.
    fn is_announced(&self, page: Page<'_>) -> bool {
        // A thread that has freed something and is still to say so protects the block until then.
        self.await_hazards(page.header.base().addr().get());
        page.header.remote.pages.load(Relaxed) >> page.index() & 1 == 1
    }
}
