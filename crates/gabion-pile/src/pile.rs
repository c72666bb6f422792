//! The pile itself.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use gabion_blocks::{
    BLOCK_BYTES, BLOCK_NUMBERS, BlockError, BlockSet, Budget, LAST_GENERATION, Os, PAGE_BYTES, Pool, Rank, Settings,
    first_generation, limits, make_room, unique_number,
};
use gabion_heap::{Ground, Loc, Turns, shard_of, slots_in_page};

use crate::error::{PileError, PointerFault};
use crate::large::ChargedRun;
use crate::pointer::Pointer;
use crate::shard::{Inner, Locked, Shard, watch_forks};
use crate::slot::Slot;
use crate::stats::PileStats;
use crate::word::Word;

/// How a pile is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct PileOptions {
    /// The most bytes that the pile may take, counted in pages of 64 KiB and runs. `None`: what this process may use
    /// at all (physical memory or the cgroup's limit). `Some(0)` holds nothing: every put is refused.
    pub max_bytes: Option<u64>,
    /// How many writers can work at one time. `None`: the number of processors. Rounded up to a power of two.
    pub shards: Option<usize>,
    /// The system calls that memory is taken with. `None`: memory comes from the pool of this process. Otherwise it is
    /// mapped with these directly, without the pool; meant for tests.
    pub os: Option<&'static dyn Os>,
}

/// Byte objects behind pointers. See the [crate's documentation](crate).
///
/// All methods take `&self` and may be called from any thread at any time.
///
/// # What an object costs
/// | payload | takes | rounded up |
/// |---|---|---|
/// | up to 248 bytes | 8 bytes more | to a multiple of 8 |
/// | up to 504 bytes | 8 bytes more | of 16 |
/// | up to 1016 bytes | 8 bytes more | of 32 |
/// | longer | 32 bytes more | by a 32nd of it at most |
///
/// Pages of 64 KiB are taken whole, and cost 1 or 2 % for what they keep of their slots.
///
/// # Forks
/// A child that was forked while another thread wrote to a pile inherits that shard's lock taken, for ever, as with any
/// lock: fork while no thread writes. (The Python package sees to that itself.) What a child puts has generations of
/// its own: its pointers are refused in its parent, in its sisters, and the other way round, nearly always.
pub struct Pile {
    pub(crate) blocks: BlockSet,
    pub(crate) budget: Arc<Budget>,
    pub(crate) turns: Turns,
    shards: Box<[Shard]>,
    /// The file is to be let go with the last view.
    pub(crate) leaving: AtomicBool,
    /// Of a pile without a file: see [`Pile::root`].
    pub(crate) root: AtomicU64,
}

// Nothing of a caller's runs within a call but a door to the system of its own, so no panic of a caller's finds a shard
// half changed.
impl UnwindSafe for Pile {}
impl RefUnwindSafe for Pile {}

pub(crate) const MOST_SHARDS: usize = 256;

impl Pile {
    /// A pile with the default options.
    ///
    /// # Errors
    /// [`BlockError::Exhausted`] when four million piles are alive, [`BlockError::Refused`] when there is no memory for
    /// it.
    pub fn new() -> Result<Self, BlockError> {
        Self::with_options(PileOptions::default())
    }

    /// A pile made as `options` say.
    ///
    /// # Errors
    /// As [`Pile::new`].
    pub fn with_options(options: PileOptions) -> Result<Self, BlockError> {
        let limit = limit_of(options.max_bytes, false);
        Self::with_budget(options, Arc::new(Budget::new(limit)))
    }

    /// A pile that draws on a budget which the caller shares with something else. The budget's limit holds, not
    /// `options.max_bytes`.
    ///
    /// # Errors
    /// As [`Pile::new`].
    pub fn with_budget(options: PileOptions, budget: Arc<Budget>) -> Result<Self, BlockError> {
        let shards = options.shards.unwrap_or_else(limits::processors).clamp(1, MOST_SHARDS).next_power_of_two();
        let blocks = match options.os {
            None => BlockSet::claimed(Pool::global(), shards)?,
            Some(os) => BlockSet::claimed(&Pool::new(os, Settings::unpooled())?, shards)?,
        };
        // A pointer that comes from another process leads to an object here only by luck.
        Self::over(blocks.beginning_at(first_generation(unique_number())), budget, shards)
    }

    /// A pile over blocks, with nothing in it yet.
    pub(crate) fn over(blocks: BlockSet, budget: Arc<Budget>, shards: usize) -> Result<Self, BlockError> {
        watch_forks();
        let mut room = Vec::new();
        room.try_reserve_exact(shards).map_err(|_| BlockError::out_of_memory(shards * size_of::<Shard>()))?;
        let writes_beside = blocks.file().is_some();
        room.extend((0..shards as u32).map(|number| Shard::new(number, writes_beside)));
        let shards = room.into_boxed_slice();
        let (leaving, root) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { blocks, budget, turns: Turns::default(), shards, leaving, root })
    }

    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground { blocks: &self.blocks, budget: &self.budget, turns: &self.turns }
    }

    #[inline]
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The shard that this thread puts into, by its rank.
    #[inline]
    pub(crate) fn own_shard(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static RANK: Rank = const { Rank::new() });
        if self.shards.len() == 1 { 0 } else { RANK.with(|rank| rank.get(&NEXT)) & (self.shards.len() - 1) }
    }

    /// Finds a live pointer's slot and locks its shard.
    #[inline(always)]
    pub(crate) fn lock_slot(&self, pointer: Pointer) -> Result<(Locked<'_>, Slot<'_>, Word), PileError> {
        self.lock_sound(pointer, Inner::makes_sense)
    }

    /// As [`Pile::lock_slot`], of an object that is to be changed.
    #[inline(always)]
    pub(crate) fn lock_intact(&self, pointer: Pointer) -> Result<(Locked<'_>, Slot<'_>, Word), PileError> {
        self.lock_sound(pointer, Inner::is_intact)
    }

    /// As [`Pile::lock_slot`]; in a file, where others may have written, the object has to be `sound`.
    #[inline(always)]
    fn lock_sound(
        &self,
        pointer: Pointer,
        sound: impl Fn(&Inner, Ground<'_>, &Slot<'_>, Word) -> bool,
    ) -> Result<(Locked<'_>, Slot<'_>, Word), PileError> {
        let mut slot = Slot::find(&self.blocks, pointer)?;
        // Taking the lock keeps later loads waiting, not this: the line is on its way meanwhile, and for a row of calls
        // already while the one before still ends.
        slot.block.prefetch(slot.at.word());
        let shard = self.shards.get(shard_of(slot.block) as usize);
        let shard = shard.ok_or_else(|| PileError::pointer(pointer, PointerFault::Elsewhere))?;
        let locked = shard.lock();
        // The page may have been put to another use before the lock was taken.
        if !slot.stands() {
            slot = Slot::find(&self.blocks, pointer)?;
        }
        let word = slot.word(pointer)?;
        // In memory, words are this process's alone.
        if self.blocks.file().is_some() && !sound(&locked, self.ground(), &slot, word) {
            return Err(PileError::Damaged { pointer });
        }
        Ok((locked, slot, word))
    }

    /// Removes all objects; of a pile in a file one by one, which takes time in proportion to them, and what is put
    /// meanwhile may stay or not. Their memory stays
    /// warm for what comes next, as long as the pool's policy keeps it. What views look at stays until they are gone,
    /// and so does an object that [`Pile::remove`] calls damaged.
    pub fn clear(&self) {
        let ground = self.ground();
        for shard in &self.shards {
            let mut locked = shard.lock();
            // In a file, the process that opens it must find that each object is there or is not.
            if locked.writes_beside || !locked.pins.is_empty() {
                drop(locked);
                self.remove_each(shard);
                continue;
            }
            // Live pointers carry generations up to the floor: what comes next must start above it.
            locked.heap.slot_blocks().for_each(|number| self.end_generation(number));
            locked.heap.clear(ground);
            let runs = locked.large.take_all();
            (locked.objects, locked.used_bytes, locked.away, locked.crowded) = (0, 0, 0, false);
            drop(locked);
            self.part_with(runs);
        }
    }

    /// Has what is put into a block from now on have another generation than all that was; with the last one, the block
    /// is used up.
    fn end_generation(&self, number: u32) {
        let next = (self.blocks.generation_floor(number) + 1).min(LAST_GENERATION + 1);
        self.blocks.raise_generation_floor(number, next);
    }

    /// Removes the objects of a shard one by one, so that pinned bodies are left to their views. Others may use the
    /// shard after each block: millions of objects take seconds.
    fn remove_each(&self, shard: &Shard) {
        for ordinal in 0.. {
            let mut locked = shard.lock();
            let Some(runs) = self.remove_each_in(&mut locked, ordinal) else {
                return locked.heap.release_idle(self.ground());
            };
            drop(locked);
            self.part_with(runs);
        }
    }

    /// Removes the objects of one of a shard's blocks, and returns their runs. `None` behind the last one.
    fn remove_each_in(&self, locked: &mut Locked<'_>, ordinal: usize) -> Option<Vec<Arc<ChargedRun>>> {
        let mut runs = Vec::new();
        let (number, classes) = locked.heap.block_pages(ordinal)?;
        let block = self.blocks.block(number).expect("a block of this pile");
        let pages = classes.into_iter().enumerate().filter_map(|(page, class)| Some((page, usize::from(class?))));
        for word in pages.flat_map(|(page, class)| slots_in_page(class, page)) {
            let pointer =
                Pointer::new(Loc::new(number, word), Word(block.word(word).load(Ordering::Relaxed)).generation());
            let live = Slot::find_in(block, pointer).and_then(|slot| Ok((slot, slot.word(pointer)?)));
            let Ok((slot, word)) = live else { continue };
            // What makes no sense stays, if it is a file that another program has changed.
            let is_intact = locked.is_intact(self.ground(), &slot, word);
            let Some(Ok(run)) = is_intact.then(|| locked.remove(self.ground(), &slot, word)) else { continue };
            // Where there is no memory for a list of them, they go at once.
            if run.is_some() && make_room(&mut runs, 1).is_ok() {
                runs.extend(run);
            }
        }
        Some(runs)
    }

    /// Live objects.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(Shard::objects).sum()
    }

    /// True when nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when the pointer's object is live.
    #[must_use]
    pub fn contains(&self, pointer: Pointer) -> bool {
        Slot::live(&self.blocks, pointer).is_ok()
    }

    /// Bytes of the object's payload.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn size_of(&self, pointer: Pointer) -> Result<usize, PileError> {
        let (locked, _, word) = self.lock_slot(pointer)?;
        Ok(locked.length(self.ground(), word))
    }

    /// The most bytes that the pile may take.
    pub fn max_bytes(&self) -> u64 {
        self.budget.limit()
    }

    /// Sets the most bytes that the pile may take, `None` as in [`PileOptions`] (of a pile in a file, as in
    /// [`OpenOptions`](crate::OpenOptions)). What is stored beyond it stays; only further
    /// growth is refused. Empty memory for which it leaves no room goes back to the system.
    pub fn set_max_bytes(&self, max_bytes: Option<u64>) {
        self.budget.set_limit(limit_of(max_bytes, self.blocks.file().is_some()));
        self.blocks.fit(self.budget.room());
    }

    /// The budget that the pile draws on.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The pile's figures. Each shard's are of one moment.
    pub fn stats(&self) -> PileStats {
        let mut stats = PileStats { shards: self.shards.len() as u64, ..PileStats::default() };
        for shard in &self.shards {
            let locked = shard.lock();
            let counts = locked.heap.counts();
            stats.objects += locked.objects;
            stats.used_bytes += locked.used_bytes;
            stats.blocks += counts.blocks;
            stats.away_objects += locked.away;
            stats.large_objects += locked.large.count;
        }
        stats.reserved_bytes = self.budget.used();
        stats.overhead_bytes = stats.reserved_bytes.saturating_sub(stats.used_bytes);
        stats.max_bytes = self.budget.limit();
        stats
    }
}

/// Gives what a heap's pages are charged back to the budget: the heap is to go.
pub(crate) fn give_pages(budget: &Budget, inner: &Inner) {
    let counts = inner.heap.counts();
    budget.give((counts.slot_pages + counts.chunk_pages) * PAGE_BYTES as u64);
}

/// A limit as [`PileOptions`] has it, in bytes.
pub(crate) fn limit_of(max_bytes: Option<u64>, in_file: bool) -> u64 {
    // What a file holds need not be in memory: all blocks that there are numbers for.
    const OF_FILE: u64 = BLOCK_NUMBERS as u64 * BLOCK_BYTES as u64;
    max_bytes.unwrap_or_else(|| if in_file { OF_FILE } else { limits::read().usable() })
}

impl Drop for Pile {
    fn drop(&mut self) {
        // The next owner of these numbers must not honour our pointers.
        self.blocks.each_number().for_each(|number| self.end_generation(number));
        // Others may draw on the same budget. Runs give theirs back by themselves. Without the locks, which nobody has
        // any more, but in a forked child some thread of its parent.
        let budget = Arc::clone(&self.budget);
        self.shards.iter_mut().for_each(|shard| give_pages(&budget, shard.inner_mut()));
    }
}

impl fmt::Debug for Pile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pile").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
