//! What all handles of a pool share.

use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::time::Instant;

use super::admission::Admission;
use super::cache::{Cache, Caches};
use super::duty::Duty;
use super::ledger::Ledger;
use super::policy::{Demand, QUARTERS, Quarters};
use super::settings::{MOST_ARENAS, Settings};
use super::shelves::Shelves;
use crate::error::BlockError;
use crate::fallible::try_room;
use crate::inside;
use crate::limits;
use crate::os::Os;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, lock, try_lock};

/// Shelves behind a lock. Aligned so that two arenas never share a cache line, nor the pair that the prefetcher takes.
///
/// No system call is made while the lock is held, nothing is freed, and no memory is cleared.
#[repr(align(128))]
pub(crate) struct Arena {
    pub index: usize,
    shelves: Mutex<Shelves>,
    /// Bytes on the shelves, as of the last time the lock was let go. For those who look for something to take.
    idle: AtomicU64,
    /// Bytes taken, and how many of these are free pieces of cut blocks, as of then. For guesses: of the policy, and of
    /// those who look for a piece.
    taken: AtomicU64,
    free_pieces: AtomicU64,
}

impl Arena {
    /// A new arena, made where it is to stand: on a thread's stack it would be too large for the smallest stacks.
    fn on_the_heap(index: usize) -> Result<Box<Self>, BlockError> {
        let mut fresh = try_room::<Self>()?;
        let at = fresh.as_mut_ptr();
        // SAFETY: `at` is memory for an arena, of which each field is written once, and none is read before all are.
        unsafe {
            (&raw mut (*at).index).write(index);
            (&raw mut (*at).shelves).write(const { Mutex::new(Shelves::new()) });
            for count in [&raw mut (*at).idle, &raw mut (*at).taken, &raw mut (*at).free_pieces] {
                count.write(AtomicU64::new(0));
            }
            Ok(fresh.assume_init())
        }
    }

    #[inline]
    pub fn lock(&self) -> LockedArena<'_> {
        LockedArena { shelves: lock(&self.shelves), arena: self }
    }

    /// The lock, unless somebody has it.
    pub fn try_lock(&self) -> Option<LockedArena<'_>> {
        Some(LockedArena { shelves: try_lock(&self.shelves)?, arena: self })
    }

    #[inline]
    pub fn idle(&self) -> u64 {
        // Acquire: who sees less idle also sees that it is leaving (`Ledger::leave`).
        self.idle.load(Ordering::Acquire)
    }

    /// Bytes of free pieces of its cut blocks, at some moment.
    pub fn free_pieces(&self) -> u64 {
        // Relaxed: see `LockedArena::drop`.
        self.free_pieces.load(Ordering::Relaxed)
    }
}

/// A locked arena; says what is idle and what is taken when it is let go.
pub(crate) struct LockedArena<'a> {
    shelves: MutexGuard<'a, Shelves>,
    arena: &'a Arena,
}

impl std::ops::Deref for LockedArena<'_> {
    type Target = Shelves;
    fn deref(&self) -> &Shelves {
        &self.shelves
    }
}

impl std::ops::DerefMut for LockedArena<'_> {
    fn deref_mut(&mut self) -> &mut Shelves {
        &mut self.shelves
    }
}

impl Drop for LockedArena<'_> {
    #[inline]
    fn drop(&mut self) {
        // Relaxed: figures of their own, for a policy that guesses. Only the lock's holder stores, here and below.
        self.arena.taken.store(self.shelves.counts.taken(), Ordering::Relaxed);
        self.arena.free_pieces.store(self.shelves.counts.free_pieces(), Ordering::Relaxed);
        // Release: see `Arena::idle`.
        self.arena.idle.store(self.shelves.counts.idle, Ordering::Release);
    }
}

/// Counters of what happens rarely. Relaxed: each number is its whole message.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub fresh: AtomicU64,
    pub trimmed: AtomicU64,
    pub refused: AtomicU64,
    pub waited: AtomicU64,
    pub retries: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// When the policy looked last.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub quarters: Quarters,
    pub demand: Demand,
    /// The ticks at which the last quarters ended, the latest first: a period in all.
    pub ends: [u64; QUARTERS as usize],
    /// How many quarters have ended since malloc was last used, until it is trimmed: see `malloc`.
    pub malloc_rests: Option<u64>,
}

/// The thread that trims.
#[derive(Default)]
pub(crate) struct Trimmer {
    pub duty: Duty,
    /// Rises when it should look again at once.
    pub nudges: Mutex<u64>,
    pub nudged: Condvar,
    /// When a collection may nudge it again, in milliseconds since the pool was made.
    pub next_call: AtomicU64,
    /// Whether the limit of a control group was near at the last reading.
    pub near: AtomicBool,
}

/// What all handles of a pool share. Never freed, because memory may outlive the last handle; a pool that is closed
/// keeps these few KiB and nothing else.
pub(crate) struct Shared {
    /// The pool's number, unique in the process.
    pub number: u64,
    pub os: &'static dyn Os,
    pub born: Instant,
    /// What stands in front of `/proc` and `/sys`.
    pub root: PathBuf,
    // Copies of the settings, for the hot path.
    pool_bytes: AtomicU64,
    /// The lesser of `pool_bytes` and `total_limit`.
    most_kept: AtomicU64,
    /// What one request may ask for, and what the machine could ever serve.
    largest: AtomicU64,
    machine: u64,
    total_limit: AtomicU64,
    arena_mask: AtomicUsize,
    pub settings: Mutex<Settings>,
    pub ledger: Ledger,
    pub admission: Admission,
    arenas: [AtomicPtr<Arena>; MOST_ARENAS],
    /// Arenas above this index were never used.
    arenas_used: AtomicUsize,
    /// Taken while an arena is made.
    pub growth: Mutex<()>,
    pub caches: Mutex<Caches>,
    pub tallies: Tallies,
    pub watch: Mutex<Watch>,
    /// Whether malloc was used since the last look.
    pub malloc_used: AtomicBool,
    /// Rises with every look of the policy: the clock of `Span::stamp`.
    pub ticks: AtomicU64,
    pub trimmer: Trimmer,
    pub closed: AtomicBool,
}

/// The most that one request can ask for on any machine: address space has an end.
const MOST: u64 = 1 << 46;

/// All pools, for forks.
static POOLS: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());

/// The lock on the list of all pools.
pub(crate) fn pools() -> MutexGuard<'static, Vec<&'static Shared>> {
    lock(&POOLS)
}

impl Shared {
    pub fn new(os: &'static dyn Os, settings: Settings, root: PathBuf) -> Result<&'static Self, BlockError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let settings = settings.checked()?;
        let shared: &'static Self = Box::leak(Box::new(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            os,
            born: Instant::now(),
            root,
            pool_bytes: AtomicU64::new(0),
            most_kept: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            machine: limits::memory_and_swap().min(MOST),
            total_limit: AtomicU64::new(0),
            arena_mask: AtomicUsize::new(0),
            settings: Mutex::new(settings),
            ledger: Ledger::new(),
            admission: Admission::new(),
            arenas: [const { AtomicPtr::new(ptr::null_mut()) }; MOST_ARENAS],
            arenas_used: AtomicUsize::new(0),
            growth: Mutex::new(()),
            caches: Mutex::new(Caches::default()),
            tallies: Tallies::default(),
            watch: Mutex::new(Watch::default()),
            malloc_used: AtomicBool::new(false),
            ticks: AtomicU64::new(1),
            trimmer: Trimmer::default(),
            closed: AtomicBool::new(false),
        }));
        shared.publish(&settings);
        let _inside = inside::enter();
        pools().push(shared);
        Ok(shared)
    }

    /// Lets the hot path see the settings.
    pub fn publish(&self, settings: &Settings) {
        // Relaxed, here and where they are read: a request beside a change sees the old setting or the new.
        self.pool_bytes.store(settings.pool_bytes, Ordering::Relaxed);
        self.most_kept.store(settings.pool_bytes.min(settings.total_limit), Ordering::Relaxed);
        self.largest.store(settings.allocation_limit.min(self.machine), Ordering::Relaxed);
        self.total_limit.store(settings.total_limit, Ordering::Relaxed);
        self.arena_mask.store(settings.arenas - 1, Ordering::Relaxed);
    }

    #[inline]
    pub fn pool_bytes(&self) -> u64 {
        self.pool_bytes.load(Ordering::Relaxed)
    }

    /// The most that one request can ask for.
    #[inline]
    pub fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// The most that the machine could ever serve.
    pub fn machine(&self) -> u64 {
        self.machine
    }

    pub fn total_limit(&self) -> u64 {
        self.total_limit.load(Ordering::Relaxed)
    }

    /// Which arena a thread of this rank belongs to.
    pub fn arena_of_rank(&self, rank: usize) -> usize {
        rank & self.arena_mask.load(Ordering::Relaxed)
    }

    /// The clock of `Span::stamp`.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Whether memory that comes back is kept: not beyond what the pool may keep, nor beyond a total limit that was
    /// lowered, and not while somebody waits for room.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.ledger.kept() <= self.most_kept.load(Ordering::Relaxed) && !self.admission.anyone()
    }

    /// As [`Shared::keeps`], of whole spans, which could be unmapped: where allowances take a part of the total limit,
    /// too.
    #[inline]
    pub fn keeps_whole(&self) -> bool {
        self.keeps() && self.ledger.drawn() <= self.total_limit()
    }

    /// An arena; made at its first use. Another one, as long as there is no memory for it.
    #[inline]
    pub fn arena(&self, index: usize) -> &'static Arena {
        // Acquire: pairs with the release in `make_arena`.
        let arena = self.arenas[index].load(Ordering::Acquire);
        // SAFETY: only `make_arena` stores here, and arenas are never freed.
        unsafe { arena.as_ref() }.unwrap_or_else(|| self.make_arena(index))
    }

    #[cold]
    fn make_arena(&self, index: usize) -> &'static Arena {
        let fresh = match Arena::on_the_heap(index) {
            Ok(fresh) => fresh,
            Err(error) => {
                return self.arenas().next().unwrap_or_else(|| panic!("no memory for a pool's first arena: {error}"));
            }
        };
        let growing = lock(&self.growth);
        let place = &self.arenas[index];
        // SAFETY: as in `arena`.
        if let Some(other) = unsafe { place.load(Ordering::Acquire).as_ref() } {
            drop(growing);
            return other;
        }
        let arena: &'static Arena = Box::leak(fresh);
        // Release: publishes the arena.
        place.store(ptr::from_ref(arena).cast_mut(), Ordering::Release);
        // Release: pairs with `arenas_from`, which finds the arenas that it counts.
        self.arenas_used.fetch_max(index + 1, Ordering::Release);
        arena
    }

    /// All arenas that were ever used.
    pub fn arenas(&self) -> impl Iterator<Item = &'static Arena> + Clone {
        self.arenas_from(0)
    }

    /// All arenas that were ever used, beginning at `start` and round.
    pub fn arenas_from(&self, start: usize) -> impl Iterator<Item = &'static Arena> + Clone {
        // Acquire: pairs with `make_arena`.
        let used = self.arenas_used.load(Ordering::Acquire);
        (0..used).filter_map(move |step| {
            let place = &self.arenas[(start + step) % used];
            // SAFETY: as in `arena`.
            unsafe { place.load(Ordering::Acquire).as_ref() }
        })
    }

    /// Every cache that was ever made, one after the other: takes no memory, and holds no lock between two of them.
    pub fn all_caches(&self) -> impl Iterator<Item = &'static Cache> {
        let mut index = 0;
        std::iter::from_fn(move || {
            index += 1;
            lock(&self.caches).all.get(index - 1).copied()
        })
    }

    /// Bytes on all shelves.
    pub fn idle(&self) -> u64 {
        self.arenas().map(Arena::idle).sum()
    }

    /// Bytes of all spans that are not idle: lent, cut or held. Beside other threads, about so many.
    pub fn taken(&self) -> u64 {
        // Relaxed: see `LockedArena::drop`.
        self.arenas().map(|arena| arena.taken.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of free pieces of all cut blocks. Beside other threads, about so many.
    pub fn free_pieces(&self) -> u64 {
        self.arenas().map(Arena::free_pieces).sum()
    }

    /// Adds up what is taken, for the policy. To be called with the arena unlocked that says so (`Shelves::tells`), and
    /// after something fresh was lent: whatever demand was overlooked shows when memory is missing.
    pub fn note_demand(&self) {
        self.ledger.note(self.taken());
    }
}
