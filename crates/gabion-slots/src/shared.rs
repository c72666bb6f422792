//! What all handles and threads of one `Slots` share.

use std::collections::HashMap;
use std::ptr::NonNull;

use gabion_blocks::os::out_of_cancels_reach;
use gabion_blocks::{BLOCK_BYTES, BlockError, BlockSet, Budget, Held, Pool, inside, make_room, null_pointers};
use gabion_heap::{Ground, Turns};

use crate::affinity::{Affinity, AffinitySettings, FIRST, MOST_AFFINITIES, MOST_ALIGNMENT};
use crate::arena::{Arena, ROWS};
use crate::error::SlotsError;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::territory::Territory;

/// How many threads can use one `Slots` at the same time.
pub(crate) const MOST_ARENAS: usize = 1 << 14;

/// Bits of an arena's word below the number of its `Slots`.
pub(crate) const INDEX_BITS: u32 = 16;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How many arenas without an owner keep a block of each affinity: enough for tasks that come one after the other,
/// little where many threads end at one time.
const MOST_WARM: usize = 4;

/// So often an arena is borrowed by threads that are ending before its empty pages are collected.
const COLLECTED_AFTER: u32 = 1024;

/// Callers of `map_as` say whether the block is a small one; the set need not count.
const NO_SMALL_BLOCKS: usize = 0;

/// An affinity's settings and counts. Relaxed throughout: each number is its whole message, except for `epoch`, and for
/// `known`, with which the settings are published.
pub(crate) struct Books {
    pub known: AtomicBool,
    /// The alignment minus one.
    pub mask: AtomicUsize,
    /// Another one since each release, as [`epoch_of`] has it.
    pub epoch: AtomicU64,
    /// In bytes: whole blocks of pages, touched pages of chunks, large objects.
    pub budget: Budget,
    /// Blocks of pages.
    pub blocks: AtomicU64,
    /// Open pages, chunks and large objects, in bytes.
    pub taken: AtomicU64,
    /// The most that `taken` has been.
    pub peak: AtomicU64,
    pub large_objects: AtomicU64,
    pub large_bytes: AtomicU64,
    /// Slots that two threads have freed, found out when they came back.
    pub twice: AtomicU64,
}

/// The epoch of an affinity from the release of this number on. Each has other ones: an epoch alone says whose a slot
/// was. There are enough of them for a release in every nanosecond of two years.
pub(crate) fn epoch_of(releases: u64, affinity: Affinity) -> u64 {
    releases << u8::BITS | u64::from(affinity.index())
}

impl Books {
    fn new(index: usize) -> Self {
        let settings = AffinitySettings::of_index(index);
        Self {
            known: AtomicBool::new(index < FIRST.len()),
            mask: AtomicUsize::new(settings.alignment - 1),
            epoch: AtomicU64::new(epoch_of(0, Affinity::from_index(index as u8))),
            budget: Budget::new(u64::MAX),
            blocks: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            large_objects: AtomicU64::new(0),
            large_bytes: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        }
    }

    /// The budget in blocks, if there is one.
    pub fn max_blocks(&self) -> Option<usize> {
        match self.budget.limit() {
            u64::MAX => None,
            bytes => Some((bytes / BLOCK) as usize),
        }
    }

    /// Books `bytes` more in use, and the mark.
    pub fn book_in(&self, bytes: u64) {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.peak.fetch_max(before.wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Books `bytes` less in use.
    pub fn book_out(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A large object.
pub(crate) struct Large {
    pub held: Held,
    pub affinity: Affinity,
}

/// What the lock guards.
pub(crate) struct State {
    /// The affinities' names, by index.
    pub names: Vec<String>,
    /// Arenas that were ever made.
    pub made: usize,
    /// How many releases there were.
    pub releases: u64,
    /// Those without an owner, by index, and with no empty block.
    pub ownerless_cold: Vec<u32>,
    /// Those without an owner that keep what the next thread will want: [`MOST_WARM`] at most.
    pub ownerless_warm: Vec<u32>,
    /// By address.
    pub large: HashMap<usize, Large>,
}

/// See the [module's documentation](self).
pub(crate) struct Shared {
    /// Unique in the process, and never used again.
    pub id: u64,
    pub pool: Pool,
    pub blocks: BlockSet,
    turns: Turns,
    pub territory: Territory,
    pub books: Box<[Books]>,
    arenas: Box<[AtomicPtr<Arena>]>,
    /// How many arenas have no owner, of both kinds. A hint.
    pub ownerless_hint: AtomicUsize,
    /// Held by a thread that takes what is empty from other threads' arenas. Taken before any other lock, those of
    /// arenas' lists included.
    pub taking: Mutex<()>,
    /// Held by a thread that adopts arenas without an owner to trim them or to collect there, until they are without
    /// one again. Taken before any other lock but that of the lists of an arena of one's own.
    pub ownerless_lock: Mutex<()>,
    state: Mutex<State>,
}

impl Shared {
    pub fn new(pool: &Pool) -> Result<Self, SlotsError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let _inside = inside::enter();
        let mut books = Vec::new();
        make_room(&mut books, ROWS).map_err(SlotsError::NoMemory)?;
        books.extend((0..ROWS).map(Books::new));
        Ok(Self {
            // Relaxed: the number is the whole message.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            pool: pool.clone(),
            blocks: BlockSet::new(pool, NO_SMALL_BLOCKS).map_err(SlotsError::NoMemory)?,
            turns: Turns::default(),
            territory: Territory::new().map_err(SlotsError::NoMemory)?,
            books: books.into_boxed_slice(),
            arenas: null_pointers(MOST_ARENAS).map_err(SlotsError::NoMemory)?,
            ownerless_hint: AtomicUsize::new(0),
            taking: Mutex::new(()),
            ownerless_lock: Mutex::new(()),
            state: Mutex::new(State {
                names: FIRST.map(|(name, _)| name.to_owned()).to_vec(),
                made: 0,
                releases: 0,
                ownerless_cold: Vec::new(),
                ownerless_warm: Vec::new(),
                // Its first key comes from the system.
                large: out_of_cancels_reach(HashMap::new),
            }),
        })
    }

    /// The lock. Nothing of gabion is asked for memory while it is held.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    #[inline]
    pub fn books(&self, affinity: Affinity) -> &Books {
        &self.books[affinity.index() as usize]
    }

    /// The books of the affinity that has an epoch, or had it.
    #[inline]
    pub fn books_of(&self, epoch: u64) -> &Books {
        &self.books[usize::from(epoch as u8)]
    }

    /// Refuses an affinity that was never made.
    pub fn known(&self, affinity: Affinity) -> Result<&Books, SlotsError> {
        let books = self.books(affinity);
        // Acquire: pairs with the release in `affinity`; who finds it known finds its settings.
        if books.known.load(Ordering::Acquire) {
            Ok(books)
        } else {
            Err(SlotsError::UnknownAffinity { index: affinity.index() })
        }
    }

    /// What chunks of an affinity stand on.
    pub fn ground(&self, affinity: Affinity) -> Ground<'_> {
        Ground { blocks: &self.blocks, budget: &self.books(affinity).budget, turns: &self.turns }
    }

    // --- affinities ----------------------------------------------------------------------------

    /// Makes an affinity, or finds it by its name.
    pub fn affinity(&self, name: &str, settings: AffinitySettings) -> Result<Affinity, SlotsError> {
        let _inside = inside::enter();
        check(settings)?;
        let mut state = self.lock();
        if let Some(index) = state.names.iter().position(|known| known == name) {
            return Ok(Affinity::from_index(index as u8));
        }
        if state.names.len() >= MOST_AFFINITIES {
            return Err(SlotsError::Name { what: "all 255 affinities are made: use one of them" });
        }
        if name.is_empty() {
            return Err(SlotsError::Name { what: "an affinity needs a name" });
        }
        let affinity = Affinity::from_index(state.names.len() as u8);
        state.names.push(name.to_owned());
        self.set(&state, affinity, settings);
        // Under the lock: who finds the name may use it at once. Release: see `known`.
        self.books(affinity).known.store(true, Ordering::Release);
        Ok(affinity)
    }

    /// How many affinities were made.
    pub fn affinity_count(&self) -> usize {
        self.lock().names.len()
    }

    /// The name of one that was made.
    pub fn affinity_name(&self, affinity: Affinity) -> Option<String> {
        let _inside = inside::enter();
        self.lock().names.get(usize::from(affinity.index())).cloned()
    }

    /// Changes an affinity's settings.
    pub fn configure(&self, affinity: Affinity, settings: AffinitySettings) -> Result<(), SlotsError> {
        self.known(affinity)?;
        check(settings)?;
        self.set(&self.lock(), affinity, settings);
        Ok(())
    }

    /// An affinity's settings.
    pub fn settings(&self, affinity: Affinity) -> Result<AffinitySettings, SlotsError> {
        let books = self.known(affinity)?;
        // Under the lock, so that both are of one time.
        let _state = self.lock();
        Ok(AffinitySettings { alignment: books.mask.load(Ordering::Relaxed) + 1, max_blocks: books.max_blocks() })
    }

    fn set(&self, state: &State, affinity: Affinity, settings: AffinitySettings) {
        let books = self.books(affinity);
        books.mask.store(settings.alignment - 1, Ordering::Relaxed);
        books.budget.set_limit(settings.max_blocks.map_or(u64::MAX, |blocks| (blocks as u64).saturating_mul(BLOCK)));
        for arena in self.arenas(state) {
            arena.row(affinity).set_alignment(settings.alignment - 1);
        }
    }

    // --- arenas --------------------------------------------------------------------------------

    /// All arenas that were ever made.
    pub fn arenas(&self, state: &State) -> impl Iterator<Item = &Arena> {
        (0..state.made).filter_map(|index| self.arena(index))
    }

    /// Those of them whose lists are whole: all but a forked child's orphans.
    pub fn sound_arenas(&self, state: &State) -> impl Iterator<Item = &Arena> {
        // Relaxed: see `Arena::free`.
        self.arenas(state).filter(|arena| !arena.orphaned.load(Ordering::Relaxed))
    }

    /// The arena with this index.
    #[inline]
    pub fn arena(&self, index: usize) -> Option<&Arena> {
        // Acquire: pairs with the release in `enter_arena`.
        let arena = self.arenas.get(index)?.load(Ordering::Acquire);
        // SAFETY: only `enter_arena` stores here, and arenas are freed together with this.
        unsafe { arena.as_ref() }
    }

    /// True for the words of these arenas.
    #[inline(always)]
    pub fn has_arena(&self, word: u64) -> bool {
        word >> INDEX_BITS == self.id
    }

    /// The arena of which this is the word, if it is one of these.
    #[inline]
    pub fn arena_of(&self, word: u64) -> Option<&Arena> {
        if self.has_arena(word) { self.arena((word & ((1 << INDEX_BITS) - 1)) as usize) } else { None }
    }

    /// An arena for a thread: one that has no owner, or a new one.
    pub fn adopt(&self) -> Result<&Arena, SlotsError> {
        {
            let mut state = self.lock();
            let index = state.ownerless_warm.pop().or_else(|| state.ownerless_cold.pop());
            if let Some(arena) = index.and_then(|index| self.arena(index as usize)) {
                self.count_ownerless(&state);
                return Ok(arena);
            }
        }
        let arena = Arena::new().ok_or(SlotsError::NoMemory(BlockError::out_of_memory(size_of::<Arena>())))?;
        // SAFETY: made just above, and nobody else knows it.
        let entered = unsafe { self.enter_arena(arena) }.map_err(SlotsError::NoMemory);
        entered.inspect_err(|_| {
            // SAFETY: as above: it got no place.
            unsafe { Arena::free(arena, 0) };
        })
    }

    /// Gives a new arena its place, unless all are taken or there is no memory for lists of so many.
    ///
    /// # Safety
    /// It was just made, and nobody else knows it.
    unsafe fn enter_arena(&self, arena: NonNull<Arena>) -> Result<&Arena, BlockError> {
        let mut state = self.lock();
        let index = state.made;
        let place = self.arenas.get(index).ok_or(BlockError::Exhausted { what: "arenas" })?;
        // So that no thread allocates while it ends.
        let most = index + 1 - state.ownerless_cold.len();
        make_room(&mut state.ownerless_cold, most)?;
        let most = MOST_WARM.saturating_sub(state.ownerless_warm.len());
        make_room(&mut state.ownerless_warm, most)?;
        // SAFETY: the caller's duty.
        let made = unsafe { Arena::name(arena, self.id << INDEX_BITS | index as u64, index as u32) };
        for (row, books) in made.rows.iter().zip(&self.books).take(state.names.len()) {
            row.set_alignment(books.mask.load(Ordering::Relaxed));
        }
        state.made += 1;
        // Release: publishes the arena.
        place.store(arena.as_ptr(), Ordering::Release);
        Ok(made)
    }

    /// Lets an arena go, whose thread ends. A few keep their empty blocks: programs that start a thread for each task
    /// would have them mapped and touched anew by each.
    pub fn leave(&self, arena: &Arena) {
        self.flush_and_collect(arena);
        self.keep_warm(arena);
    }

    /// As [`Shared::leave`], for an arena that was borrowed for one call by a thread that is ending. There may be many
    /// such calls, so what takes long is done once in a while: what was freed reaches its owners, and empty pages stay
    /// open.
    pub fn return_borrowed(&self, arena: &Arena) {
        let times = arena.borrowed.get().wrapping_add(1);
        arena.borrowed.set(times);
        if times.is_multiple_of(COLLECTED_AFTER) {
            return self.leave(arena);
        }
        self.flush(arena);
        {
            let _lists = lock(&arena.lists);
            if arena.has_remote_frees() {
                self.collect_remote_frees(arena);
            }
            self.return_queued(arena);
        }
        self.keep_warm(arena);
    }

    /// Lets an arena go of which all was collected, with the blocks that it keeps or without.
    fn keep_warm(&self, arena: &Arena) {
        {
            let mut state = self.lock();
            if state.ownerless_warm.len() < MOST_WARM {
                state.ownerless_warm.push(arena.index);
                self.count_ownerless(&state);
                return;
            }
        }
        self.trim(arena);
        self.abandon(arena);
    }

    /// Lets an arena go that has no empty block.
    pub fn abandon(&self, arena: &Arena) {
        let mut state = self.lock();
        state.ownerless_cold.push(arena.index);
        self.count_ownerless(&state);
    }

    /// Tells how many arenas have no owner.
    pub fn count_ownerless(&self, state: &State) {
        self.ownerless_hint.store(state.ownerless_cold.len() + state.ownerless_warm.len(), Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _inside = inside::enter();
        let affinities = self.lock().names.len();
        for place in &self.arenas {
            let Some(arena) = NonNull::new(place.load(Ordering::Acquire)) else { break };
            // SAFETY: from `Arena::new`; without a handle nobody uses it. No row serves an affinity that was never
            // made.
            unsafe { Arena::free(arena, affinities) };
        }
    }
}

/// What a refusal means to the user.
pub(crate) fn refusal(affinity: Affinity, error: BlockError) -> SlotsError {
    match error {
        BlockError::Limit { asked, used, limit } => SlotsError::Budget { affinity, asked, used, limit },
        other => SlotsError::NoMemory(other),
    }
}

fn check(settings: AffinitySettings) -> Result<(), SlotsError> {
    let sound = settings.alignment.is_power_of_two() && settings.alignment <= MOST_ALIGNMENT;
    if sound { Ok(()) } else { Err(SlotsError::Alignment { asked: settings.alignment }) }
}
