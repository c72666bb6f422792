//! The pile itself.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use gabion_blocks::{
    BLOCK_BYTES, BLOCK_NUMBERS, BlockError, BlockSet, Budget, LAST_GENERATION, Os, PAGE_BYTES, Pool, Rank, Settings,
    first_generation, limits, make_room, total_len, unique_number,
};
use gabion_heap::{Freed, Ground, HeapError, Loc, Turns, Unsettled, shard_of, slots_in_page};

use crate::change::{CHUNK_PAYLOAD, Payload, SLOT_PAYLOAD};
use crate::error::{PileError, PointerFault};
use crate::large::ChargedRun;
use crate::pointer::Pointer;
use crate::shard::{Inner, Locked, Shard};
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
/// lock; fork while no thread writes, and call [`forked`](crate::forked) in the child. (The Python package sees to that
/// itself.)
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

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The shard that this thread puts into, by its rank.
    #[inline]
    fn own_shard(&self) -> usize {
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

    /// Stores a copy of `payload` and returns its pointer. `reserve` more bytes are kept free behind it, so that
    /// [`Pile::replace`] can grow it by so much in place even when the pile is full. Room is reserved up to 1 MiB in
    /// all: longer payloads are replaced whole.
    ///
    /// Constant time, and a copy. What it costs: see [`Pile`].
    ///
    /// # Errors
    /// [`PileError::Memory`] when the limit or the system leaves no room; the pile is unchanged.
    #[inline]
    pub fn put(&self, payload: &[u8], reserve: usize) -> Result<Pointer, PileError> {
        if reserve == 0
            && let Some(pointer) = self.put_inline(payload)
        {
            return Ok(pointer);
        }
        self.put_anywhere(payload, reserve)
    }

    /// The common case of [`Pile::put`] and nothing else: the own shard's lock leans to this thread, and it has a slot
    /// at hand. Otherwise nothing is changed.
    #[inline(always)]
    fn put_inline(&self, payload: &[u8]) -> Option<Pointer> {
        self.shards[self.own_shard()].lean()?.put_inline(self.ground(), payload)
    }

    #[cold]
    fn put_anywhere(&self, payload: &[u8], reserve: usize) -> Result<Pointer, PileError> {
        self.with_payload(&[payload], |payload| self.put_payload(payload, reserve))
    }

    /// Calls `act` with a payload as it is stored: what goes into a slot in one piece, what goes into a chunk as it
    /// lies, and what is longer in a run, which is mapped and filled before any lock is taken.
    #[inline]
    pub(crate) fn with_payload<R>(
        &self,
        pieces: &[&[u8]],
        act: impl FnOnce(Payload<'_>) -> Result<R, PileError>,
    ) -> Result<R, PileError> {
        if let [payload] = pieces
            && payload.len() <= CHUNK_PAYLOAD
        {
            return act(Payload::whole(payload, None));
        }
        match total_len(pieces) {
            ..=SLOT_PAYLOAD => act(Payload::whole(&pieces.concat(), None)),
            length @ ..=CHUNK_PAYLOAD => act(Payload::in_pieces(pieces, length)),
            _ => {
                let run = self.new_run(pieces)?;
                act(Payload::whole(run.bytes(), Some(&run)))
            }
        }
    }

    /// As [`Pile::put`] without a reserve, for an owner that can make room itself: when there is none, the pages that
    /// are kept for the next objects of other sizes stay so.
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn try_put(&self, payload: &[u8]) -> Result<Pointer, PileError> {
        if let Some(pointer) = self.put_inline(payload) { Ok(pointer) } else { self.try_put_anywhere(payload) }
    }

    #[cold]
    fn try_put_anywhere(&self, payload: &[u8]) -> Result<Pointer, PileError> {
        self.with_payload(&[payload], |payload| self.try_put_payload(payload))
    }

    fn try_put_payload(&self, payload: Payload<'_>) -> Result<Pointer, PileError> {
        if payload.length > CHUNK_PAYLOAD {
            // Its run was made with all that could make room for it: so is its slot.
            return self.put_payload(payload, 0);
        }
        let (own, ground, length) = (self.own_shard(), self.ground(), payload.length);
        let put = |shard: usize| self.shards[shard].lock().put(ground, payload, length);
        put(own).or_else(|error| {
            let others = (0..self.shards.len()).filter(|&shard| shard != own);
            others.map(put).find_map(Result::ok).ok_or_else(|| PileError::memory(length, error))
        })
    }

    /// As [`Pile::try_put`], of a payload as that of [`Pile::put_pieces`].
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn try_put_pieces(&self, pieces: &[&[u8]]) -> Result<Pointer, PileError> {
        match pieces {
            [payload] => self.try_put(payload),
            _ => self.try_put_several(pieces),
        }
    }

    #[cold]
    fn try_put_several(&self, pieces: &[&[u8]]) -> Result<Pointer, PileError> {
        self.with_payload(pieces, |payload| self.try_put_payload(payload))
    }

    /// As [`Pile::put`], of a payload that lies in several pieces, one behind the other. One that is longer than
    /// [`SLOT_PAYLOAD`] is copied once, straight to where it stays.
    ///
    /// ```
    /// # let pile = gabion_pile::Pile::new()?;
    /// let (mut buf, large) = (gabion_pile::ReadBuf::new(), vec![7; 3 << 20]);
    /// let pointer = pile.put_pieces(&[&b"in "[..], b"", b"pieces"], 0)?;
    /// assert_eq!(pile.read(pointer, &mut buf)?, b"in pieces");
    /// pile.replace_pieces(pointer, &[&b"head"[..], &large, b"tail"])?;
    /// assert_eq!(pile.read(pointer, &mut buf)?, [&b"head"[..], &large, b"tail"].concat());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pile::put`].
    pub fn put_pieces(&self, pieces: &[&[u8]], reserve: usize) -> Result<Pointer, PileError> {
        match pieces {
            [payload] => self.put(payload, reserve),
            _ => self.with_payload(pieces, |payload| self.put_payload(payload, reserve)),
        }
    }

    fn put_payload(&self, payload: Payload<'_>, reserve: usize) -> Result<Pointer, PileError> {
        // A run has no room beside its payload.
        let capacity = payload.length.saturating_add(reserve).min(payload.length.max(CHUNK_PAYLOAD));
        self.put_unmoved(payload, capacity).or_else(|full| {
            let cleared = capacity <= CLEARED_FOR && self.clear_page();
            if cleared { self.put_unmoved(payload, capacity) } else { Err(full) }
        })
    }

    /// Puts a payload where there is room, without moving others.
    #[inline]
    pub(crate) fn put_unmoved(&self, payload: Payload<'_>, capacity: usize) -> Result<Pointer, PileError> {
        let own = self.own_shard();
        // The lock is let go before another shard is tried: two full shards must not wait for each other.
        let put = self.shards[own].lock().put(self.ground(), payload, capacity);
        match put {
            Ok(pointer) => Ok(pointer),
            Err(error) => self.put_elsewhere(own, payload, capacity, error),
        }
    }

    /// The own shard is full: another may have room left in its pages, or keep empty pages warm.
    #[cold]
    fn put_elsewhere(
        &self,
        own: usize,
        payload: Payload<'_>,
        capacity: usize,
        error: HeapError,
    ) -> Result<Pointer, PileError> {
        let put = |shard: usize| self.shards[shard].lock().put(self.ground(), payload, capacity).ok();
        let others = (0..self.shards.len()).filter(|&shard| shard != own);
        others
            .clone()
            .find_map(put)
            .or_else(|| {
                self.release_warm();
                put(own).or_else(|| others.clone().find_map(put))
            })
            .ok_or_else(|| PileError::memory(payload.length, error))
    }

    /// The run that a payload too long for a chunk is stored in.
    #[cold]
    fn new_run(&self, pieces: &[&[u8]]) -> Result<Arc<ChargedRun>, PileError> {
        let make = || ChargedRun::new(self.ground(), &self.budget, pieces);
        make()
            .or_else(|_| {
                self.release_warm();
                make()
            })
            .map_err(|error| PileError::memory(total_len(pieces), error.into()))
    }

    /// Gives up what every shard keeps warm.
    fn release_warm(&self) {
        for shard in &self.shards {
            shard.lock().heap.release_warm(self.ground());
        }
    }

    /// Gives the object another payload of any size; the pointer stays valid. Readers see the old payload or the new.
    ///
    /// Constant time, and a copy. In place when it fits well, otherwise the payload moves to room of its size, and back
    /// when it fits again.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live, [`PileError::Memory`] when there is no room; the old
    /// payload stays then.
    pub fn replace(&self, pointer: Pointer, payload: &[u8]) -> Result<(), PileError> {
        self.with_payload(&[payload], |payload| self.replace_payload(pointer, payload, |_| true).map(drop))
    }

    /// As [`Pile::replace`], by a payload as that of [`Pile::put_pieces`].
    ///
    /// # Errors
    /// As [`Pile::replace`].
    pub fn replace_pieces(&self, pointer: Pointer, pieces: &[&[u8]]) -> Result<(), PileError> {
        self.with_payload(pieces, |payload| self.replace_payload(pointer, payload, |_| true).map(drop))
    }

    /// Replaces, if the object is `wanted` then.
    #[inline]
    pub(crate) fn replace_payload(
        &self,
        pointer: Pointer,
        payload: Payload<'_>,
        wanted: impl Fn((&Inner, &Slot<'_>, Word)) -> bool,
    ) -> Result<bool, PileError> {
        if let Ok(replaced) = self.try_replace(pointer, payload, &wanted)? {
            return Ok(replaced);
        }
        self.release_warm();
        let mut replaced = self.try_replace(pointer, payload, &wanted)?;
        if replaced.is_err() && payload.length <= CLEARED_FOR && self.clear_page() {
            replaced = self.try_replace(pointer, payload, &wanted)?;
        }
        replaced.map_err(|error| match error {
            // The file was changed just now.
            HeapError::NotTaken => PileError::Damaged { pointer },
            error => PileError::memory(payload.length, error),
        })
    }

    #[inline]
    fn try_replace(
        &self,
        pointer: Pointer,
        payload: Payload<'_>,
        wanted: impl Fn((&Inner, &Slot<'_>, Word)) -> bool,
    ) -> Result<Result<bool, HeapError>, PileError> {
        let (mut locked, slot, word) = self.lock_intact(pointer)?;
        if !wanted((&locked, &slot, word)) {
            return Ok(Ok(false));
        }
        let replaced = locked.replace(self.ground(), &slot, word, payload);
        // The old run goes only after the lock: unmapping takes its time.
        drop(locked);
        Ok(replaced.map(|_| true))
    }

    /// Removes the object. Its pointer is refused from now on.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live; [`PileError::Damaged`] when its file makes no sense there,
    /// and the object stays.
    #[inline]
    pub fn remove(&self, pointer: Pointer) -> Result<(), PileError> {
        if self.remove_inline(pointer).is_some() { Ok(()) } else { self.remove_anywhere(pointer) }
    }

    /// The common case of [`Pile::remove`] and nothing else, so that it is short: what a removal waits for is its
    /// slot's cache line, and the processor sees as many removals ahead as fit into its window. Otherwise nothing is
    /// changed. The steps of [`Pile::lock_slot`] stand here once more, because a function for both returns all that it
    /// found in memory.
    #[inline(always)]
    fn remove_inline(&self, pointer: Pointer) -> Option<()> {
        let block = self.blocks.block(pointer.place().number())?;
        let shard = shard_of(block);
        let mut locked = self.shards.get(shard as usize)?.lean()?;
        // Under the lock, so that it stays what it is.
        let slot = Slot::find_in(block, pointer).ok()?;
        // Its shard may have been read before it was written there. That the page has a use, which was seen since, says
        // that it is.
        if shard_of(block) != shard {
            return None;
        }
        if let Freed::Unsettled(page) = locked.remove_inline(self.ground(), &slot, pointer)? {
            self.settle(locked, page);
        }
        Some(())
    }

    /// The rest of a removal, under the lock that it was made under.
    #[cold]
    fn settle(&self, mut locked: Locked<'_>, page: Unsettled) {
        locked.heap.settle(self.ground(), page);
    }

    #[cold]
    fn remove_anywhere(&self, pointer: Pointer) -> Result<(), PileError> {
        let (mut locked, slot, word) = self.lock_intact(pointer)?;
        let run = locked.remove(self.ground(), &slot, word);
        // Unmapping takes its time: not under the lock.
        drop(locked);
        run.map(drop).map_err(|_| PileError::Damaged { pointer })
    }

    /// Removes all objects; of a pile in a file one by one, which takes time in proportion to them. Their memory stays
    /// warm for what comes next, as long as the pool's policy keeps it. What views look at stays until they are gone,
    /// and so does an object that [`Pile::remove`] calls damaged.
    pub fn clear(&self) {
        let ground = self.ground();
        for shard in &self.shards {
            let mut locked = shard.lock();
            // In a file, the process that opens it must find that each object is there or is not.
            if locked.writes_beside || !locked.pins.is_empty() {
                let runs = self.remove_each(&mut locked);
                // Unmapping takes its time: not under the lock, here and below.
                drop(locked);
                drop(runs);
                continue;
            }
            // Live pointers carry generations up to the floor: what comes next must start above it.
            locked.heap.slot_blocks().for_each(|number| self.end_generation(number));
            locked.heap.clear(ground);
            let runs = locked.large.take_all();
            (locked.objects, locked.used_bytes, locked.away, locked.crowded) = (0, 0, 0, false);
            drop(locked);
            drop(runs);
        }
    }

    /// Has what is put into a block from now on have another generation than all that was; with the last one, the block
    /// is used up.
    fn end_generation(&self, number: u32) {
        let next = (self.blocks.generation_floor(number) + 1).min(LAST_GENERATION + 1);
        self.blocks.raise_generation_floor(number, next);
    }

    /// Removes the objects of a shard one by one, so that pinned bodies are left to their views. Returns their runs.
    fn remove_each(&self, locked: &mut Locked<'_>) -> Vec<Arc<ChargedRun>> {
        let (mut runs, mut ordinal) = (Vec::new(), 0);
        while let Some((number, classes)) = locked.heap.block_pages(ordinal) {
            ordinal += 1;
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
        }
        locked.heap.rest(self.ground());
        runs
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

/// The longest payload that a cleared page is sure to have room for: all of the page but what stands at its ends.
const CLEARED_FOR: usize = PAGE_BYTES - 1024;

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
    }
}

impl fmt::Debug for Pile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pile").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
