//! What `Slots` report.

use std::fmt;

use gabion_blocks::{PAGE_BYTES, PAGES_PER_BLOCK, inside};
use gabion_heap::{Descriptor, Kind, shard_of};

use crate::affinity::Affinity;
use crate::record::{ALL_PAGES, Header};
use crate::shared::{Shared, State};
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::territory::Area;

/// What an affinity holds at one moment. Sizes are bytes, with what objects were rounded up to.
///
/// `mapped_bytes = live_bytes + free_bytes + wasted_bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AffinityStats {
    /// Its name.
    pub name: String,
    /// Objects that are allocated, large ones included.
    pub live_objects: u64,
    /// What they take, large ones included.
    pub live_bytes: u64,
    /// The most that was in use at one time: open pages, chunks, large objects. Exact to a page for each class of each
    /// thread, and to 64 KiB of chunks for each thread.
    pub peak_bytes: u64,
    /// What is mapped for it and can be allocated.
    pub free_bytes: u64,
    /// Headers, records and tags, and the ends of pages that no slot fits.
    pub wasted_bytes: u64,
    /// Blocks of 4 MiB, for slots and for chunks; without those of chunks whose memory is given back.
    pub blocks: u64,
    /// Large objects among the live ones.
    pub large_objects: u64,
    /// What large objects take.
    pub large_bytes: u64,
    /// What counts in its budget: whole blocks of slots, pages of chunks once they were touched, large objects.
    pub mapped_bytes: u64,
    /// Its budget in blocks, large objects and chunks counted by their bytes; `None` for as many as there are.
    pub max_blocks: Option<usize>,
    /// Slots that were freed twice by different threads, found out when the second free reached the slot's owner:
    /// not where the slot was handed out again before that.
    pub late_double_frees: u64,
}

/// What `Slots` hold at one moment. Exact when no other thread is allocating or freeing at that moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotsStats {
    /// One entry for each affinity, in the order of their indices.
    pub affinities: Vec<AffinityStats>,
    /// The arenas that threads own now.
    pub arenas: usize,
    /// Arenas of threads that have ended, to be adopted by the next ones.
    pub ownerless_arenas: usize,
    /// In a forked child, arenas of threads that its parent had. What lies in them can be used and freed, and is not
    /// given back.
    pub orphaned_arenas: usize,
}

impl SlotsStats {
    /// The sums over all affinities. `peak_bytes` is the sum of marks that may have been reached at different times.
    #[must_use]
    pub fn total(&self) -> AffinityStats {
        let mut total = AffinityStats { name: "total".to_owned(), ..AffinityStats::default() };
        for one in &self.affinities {
            total.live_objects += one.live_objects;
            total.live_bytes += one.live_bytes;
            total.peak_bytes += one.peak_bytes;
            total.free_bytes += one.free_bytes;
            total.wasted_bytes += one.wasted_bytes;
            total.blocks += one.blocks;
            total.large_objects += one.large_objects;
            total.large_bytes += one.large_bytes;
            total.mapped_bytes += one.mapped_bytes;
            total.late_double_frees += one.late_double_frees;
        }
        total
    }
}

/// A report for people: one line for each affinity that was used, and the totals. Made by
/// [`Slots::report`](crate::Slots::report).
#[derive(Debug, Clone)]
pub struct Report(pub(crate) SlotsStats);

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn line(f: &mut fmt::Formatter<'_>, one: &AffinityStats) -> fmt::Result {
    writeln!(
        f,
        "{:<12} {:>12} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>8} {:>8} {:>7}",
        one.name,
        one.live_objects,
        mib(one.live_bytes),
        mib(one.peak_bytes),
        mib(one.free_bytes),
        mib(one.wasted_bytes),
        one.blocks,
        one.max_blocks.map_or("-".to_owned(), |most| most.to_string()),
        one.large_objects
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}",
            "affinity", "objects", "live MiB", "peak MiB", "free MiB", "lost MiB", "blocks", "at most", "large"
        )?;
        for one in self.0.affinities.iter().filter(|one| one.peak_bytes > 0 || one.mapped_bytes > 0) {
            line(f, one)?;
        }
        line(f, &self.0.total())
    }
}

impl Shared {
    /// Gathers all figures: one line of memory for each page in use.
    pub fn stats(&self) -> SlotsStats {
        let _inside = inside::enter();
        // The lock also keeps blocks from being given back meanwhile.
        let state = self.lock();
        let mut affinities: Vec<AffinityStats> = state.names.iter().map(|name| named(name)).collect();
        for number in self.blocks.numbers() {
            let Some(base) = self.blocks.base(number) else { continue };
            match self.territory.at(base.addr().get()) {
                // SAFETY: a block of pages, which stays as long as the lock is held.
                Area::Pages => count_pages(&mut affinities, unsafe { Header::of(base) }),
                Area::Chunks => {
                    let Some(block) = self.blocks.block(number) else { continue };
                    let in_use = Descriptor::from_bits(Descriptor::of(block, 0).load(Relaxed)).kind() == Kind::Chunks;
                    if let Some(one) = affinities.get_mut(usize::from(shard_of(block) as u8)).filter(|_| in_use) {
                        one.blocks += 1;
                    }
                }
                _ => {}
            }
        }
        self.count_rest(&state, &mut affinities);
        let ownerless_arenas = state.ownerless_cold.len() + state.ownerless_warm.len();
        let sound = self.sound_arenas(&state).count();
        let (arenas, orphaned_arenas) = (sound - ownerless_arenas, state.made - sound);
        SlotsStats { affinities, arenas, ownerless_arenas, orphaned_arenas }
    }

    fn count_rest(&self, state: &State, affinities: &mut [AffinityStats]) {
        for (index, one) in affinities.iter_mut().enumerate() {
            let affinity = Affinity::from_index(index as u8);
            for arena in self.arenas(state) {
                let row = arena.row(affinity);
                let objects = row.chunk_objects.load(Relaxed);
                one.live_objects += objects.saturating_sub(row.remote_objects.load(Relaxed));
                one.live_bytes += row.chunk_bytes.load(Relaxed).saturating_sub(row.remote_bytes.load(Relaxed));
                one.wasted_bytes += objects * 8;
            }
            let books = self.books(affinity);
            one.large_objects = books.large_objects.load(Relaxed);
            one.large_bytes = books.large_bytes.load(Relaxed);
            one.live_objects += one.large_objects;
            one.live_bytes += one.large_bytes;
            one.peak_bytes = books.peak.load(Relaxed).max(one.live_bytes);
            one.mapped_bytes = books.budget.used();
            one.max_blocks = books.max_blocks();
            one.late_double_frees = books.twice.load(Relaxed);
            // Counted at slightly different moments: rather nothing than a negative number.
            one.free_bytes = one.mapped_bytes.saturating_sub(one.live_bytes + one.wasted_bytes);
        }
    }
}

fn named(name: &str) -> AffinityStats {
    AffinityStats { name: name.to_owned(), ..AffinityStats::default() }
}

/// Adds up a block's pages.
fn count_pages(affinities: &mut [AffinityStats], header: &Header) {
    let Some(one) = affinities.get_mut(header.affinity.load(Relaxed) as usize) else { return };
    one.blocks += 1;
    one.wasted_bytes += PAGE_BYTES as u64;
    let freed = header.remote.pages.load(Relaxed);
    // Acquire: pairs with the release in `open_page`.
    let mut pages = ALL_PAGES & !header.free.load(Acquire);
    while pages != 0 {
        let index = pages.trailing_zeros() as usize % PAGES_PER_BLOCK;
        pages &= pages - 1;
        let page = header.page(index);
        let (slot, slots) = (u64::from(page.shape().slot), u64::from(page.slots()));
        let mut used = u64::from(page.used());
        if freed >> index & 1 == 1 {
            // Freed by others, and not yet taken in by the owner.
            let waiting: u32 = page.pairs().map(|pair| pair.remote_free.load(Relaxed).count_ones()).sum();
            used = used.saturating_sub(u64::from(waiting));
        }
        one.live_objects += used;
        one.live_bytes += used * slot;
        // A page that is just being opened for another class may show numbers of both.
        one.wasted_bytes += (PAGE_BYTES as u64).saturating_sub(slot * slots);
    }
}
