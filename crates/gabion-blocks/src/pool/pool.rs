//! The pool itself: the calls on it.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use super::admission;
use super::allowance::Allowance;
use super::buffer::Buffer;
use super::fork::watch_forks;
use super::group::{Group, least_bytes};
use super::settings::{Change, GroupRequest, Request, Settings, default_pool_bytes};
use super::shared::{Shared, count};
use super::size::exact_bytes;
use super::stats::PoolStats;
use crate::error::BlockError;
use crate::inside;
use crate::invalid::Invalid;
use crate::os::{Os, can_fence_heavily, system};
use crate::sync::{Ordering, lock};

/// How often a caller that waits is asked whether to go on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Warm memory for all threads. See the [module's documentation](super). Cheap to clone: all clones are one pool.
///
/// ```
/// use gabion_blocks::{Pool, Request};
/// let pool = Pool::global();
/// let mut buffer = pool.rent(&Request::new(1_000_000).clean())?;
/// buffer.as_mut_slice()[7] = 42;
/// drop(buffer); // its memory stays warm for the next one
/// # Ok::<(), gabion_blocks::BlockError>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    shared: &'static Shared,
    _life: Arc<Life>,
}

// Of a caller's, only what says whether to wait on is run, without a lock: a caller that waited leaves the queue when
// it panics.
impl UnwindSafe for Pool {}
impl RefUnwindSafe for Pool {}

/// Closes the pool with the last handle.
struct Life(&'static Shared);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pool {
    /// Has forks watched from now on, which else begins with the first pool: a child that makes its first pool after
    /// its fork does not know any more which thread it began with (see
    /// [`os::first_thread_has_ended`](crate::os::first_thread_has_ended)).
    pub fn watch_forks() {
        watch_forks();
    }

    /// The pool of this process, made at its first use with the default settings.
    #[inline]
    pub fn global() -> &'static Self {
        // No cell that has others wait: in a child that was forked meanwhile they would wait for ever. Of two threads
        // that come at one time, the later closes its pool again.
        static GLOBAL: OnceBox<Pool> = OnceBox::new();
        GLOBAL.get_or_init(|| {
            let _inside = inside::enter();
            Box::new(Self::new(system(), Settings::default()).expect("the default settings are sound"))
        })
    }

    /// A pool of its own, on another door to the system if need be. Buffers may outlive its last handle; what they
    /// give back after that is unmapped at once.
    ///
    /// # Errors
    /// [`BlockError::Setting`] when the settings make no sense.
    pub fn new(os: &'static dyn Os, settings: Settings) -> Result<Self, BlockError> {
        Self::with_root(os, settings, PathBuf::from("/"))
    }

    /// As [`Pool::new`], with another root in front of `/proc` and `/sys`, so that tests can bring their own pressure.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_root(os: &'static dyn Os, settings: Settings, root: PathBuf) -> Result<Self, BlockError> {
        watch_forks();
        // Its caches have such locks, and are made by its first threads: for the same reason as in `Biased`.
        let _ = can_fence_heavily();
        let shared = Shared::new(os, settings, root)?;
        Ok(Self { shared, _life: Arc::new(Life(shared)) })
    }

    /// Lends contiguous memory: up to 2 MiB a piece of a block, up to 4 MiB a block, beyond that a run of its own.
    ///
    /// Constant time, without a lock that others want, when there is warm memory of the size; otherwise it takes the
    /// time of a mapping. A buffer takes at most a quarter more than was asked for up to 1 MiB (64 bytes more below
    /// 256), a third or half of a block up to 2 MiB, a block up to 4 MiB, and at most an eighth more beyond that; five
    /// eighths where a fresh mapping would push idle ones out.
    ///
    /// # Errors
    /// [`BlockError::TooLarge`], [`BlockError::Machine`], [`BlockError::Total`] or [`BlockError::TimedOut`] when a
    /// limit forbids it, before anything is touched; [`BlockError::NoMemory`] when the system has none, after all idle
    /// memory was given back.
    #[inline(always)]
    pub fn rent(&self, request: &Request) -> Result<Buffer, BlockError> {
        match self.rent_own(request) {
            Some(buffer) => Ok(buffer),
            None => self.rent_any(request, &mut || true),
        }
    }

    /// What this thread has at hand, where nobody waits for it. All of this way is compiled into each caller, here and
    /// below: a buffer that comes by way of memory is read in other parts than it was written in, and so only when all
    /// stores before it are done, which takes longer than all the rest.
    #[inline(always)]
    fn rent_own(&self, request: &Request) -> Option<Buffer> {
        let own = request.bytes as u64 <= self.shared.largest() && request.timeout.is_none();
        if own { self.shared.lend_own(request.bytes, request.clean) } else { None }
    }

    #[inline(never)]
    fn rent_any(&self, request: &Request, keep_waiting: &mut dyn FnMut() -> bool) -> Result<Buffer, BlockError> {
        let bytes = request.bytes;
        let lend = || self.shared.lend(bytes, request.clean);
        self.admit(bytes, request.timeout, keep_waiting, || exact_bytes(bytes) as u64, lend)
    }

    /// Lends idle memory that needs no system call and no clearing to speak of, or nothing: never waits, never fails.
    /// Whoever would wait asks [`Pool::someone_waits`] before, so as to pass nobody.
    pub fn rent_warm(&self, request: &Request) -> Option<Buffer> {
        let fits = request.bytes as u64 <= self.shared.largest();
        if fits { self.shared.lend_warm(request.bytes, request.clean) } else { None }
    }

    /// Whether somebody waits for room, as far as this thread can see.
    #[inline]
    pub fn someone_waits(&self) -> bool {
        self.shared.admission.anyone()
    }

    /// As [`Pool::rent`]; while it waits for room, `keep_waiting` is asked about every 50 ms whether to go on.
    ///
    /// # Errors
    /// As [`Pool::rent`], and [`BlockError::Interrupted`] when `keep_waiting` said no.
    pub fn rent_while(&self, request: &Request, keep_waiting: &mut dyn FnMut() -> bool) -> Result<Buffer, BlockError> {
        match self.rent_own(request) {
            Some(buffer) => Ok(buffer),
            None => self.rent_any(request, keep_waiting),
        }
    }

    /// Lends memory in parts: warm blocks as far as there are some, fresh ones for the rest.
    ///
    /// # Errors
    /// As [`Pool::rent`], and [`BlockError::Setting`] when `row_bytes` is 0. Whatever was taken is idle again then.
    pub fn rent_group(&self, request: &GroupRequest) -> Result<Group, BlockError> {
        self.rent_group_while(request, &mut || true)
    }

    /// As [`Pool::rent_group`]; see [`Pool::rent_while`].
    ///
    /// # Errors
    /// As [`Pool::rent_group`], and [`BlockError::Interrupted`] when `keep_waiting` said no.
    pub fn rent_group_while(
        &self,
        request: &GroupRequest,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Group, BlockError> {
        let row_bytes = request.row_bytes.unwrap_or(1);
        if row_bytes == 0 {
            return Err(BlockError::Setting { what: "row_bytes must be 1 or more" });
        }
        let bytes = request.bytes;
        let lend = || self.shared.lend_group(bytes, row_bytes, request.clean);
        self.admit(bytes, request.timeout, keep_waiting, || least_bytes(bytes, row_bytes), lend)
    }

    /// Has `bytes` bytes count for the pool's limits that are taken elsewhere, as by a library from `malloc`, until the
    /// allowance is dropped. Nothing is mapped for them, and idle memory makes room.
    ///
    /// ```
    /// use gabion_blocks::Pool;
    /// let pool = Pool::global();
    /// let allowance = pool.allow(1 << 20)?;
    /// let scratch = vec![0_u8; 1 << 20];
    /// assert!(pool.stats().in_use >= 1 << 20);
    /// # drop((scratch, allowance));
    /// # Ok::<(), gabion_blocks::BlockError>(())
    /// ```
    ///
    /// # Errors
    /// [`BlockError::TooLarge`], [`BlockError::Machine`] or [`BlockError::Total`] when a limit forbids it.
    pub fn allow(&self, bytes: usize) -> Result<Allowance, BlockError> {
        let allow = || self.shared.allow(bytes as u64);
        self.admit(bytes, None, &mut || true, || bytes as u64, allow)
    }

    /// `least` says what would be mapped for the request alone, at least.
    #[inline]
    fn admit<T>(
        &self,
        bytes: usize,
        timeout: Option<Duration>,
        keep_waiting: &mut dyn FnMut() -> bool,
        least: impl Fn() -> u64,
        attempt: impl Fn() -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let done = if bytes as u64 > self.shared.largest() {
            Err(self.too_large(bytes as u64))
        } else if let Some(timeout) = timeout {
            self.admit_patiently(bytes as u64, least(), timeout, keep_waiting, attempt)
        } else {
            attempt()
        };
        done.inspect_err(|_| count(&self.shared.tallies.refused, 1))
    }

    #[cold]
    fn too_large(&self, asked: u64) -> BlockError {
        let limit = self.settings().allocation_limit;
        if asked > limit {
            BlockError::TooLarge { asked, limit }
        } else {
            BlockError::Machine { asked, limit: self.shared.machine() }
        }
    }

    /// A caller that would wait goes behind those that wait already; what `keep_waiting` leads to, as the handler of a
    /// signal does, before the wait that it is asked in. Not for what can never be served: all others would wait behind
    /// it.
    #[cold]
    fn admit_patiently<T>(
        &self,
        asked: u64,
        least: u64,
        timeout: Duration,
        keep_waiting: &mut dyn FnMut() -> bool,
        attempt: impl Fn() -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let admission = &self.shared.admission;
        if !admission.anyone() {
            match attempt() {
                Err(BlockError::Total { .. }) => {}
                other => return other,
            }
        }
        let start = Instant::now();
        let inside = inside::enter();
        let waiter = admission.queue_up(inside::this_thread());
        let waiter = waiter.ok_or_else(|| BlockError::out_of_memory(admission::TICKET_BYTES))?;
        drop(inside);
        count(&self.shared.tallies.waited, 1);
        loop {
            let (seen, first) = waiter.look();
            let limit = self.shared.total_limit();
            if first || least > limit {
                match attempt() {
                    // No waiting would help.
                    Err(error @ BlockError::Total { .. }) if least > limit => return Err(error),
                    Err(BlockError::Total { .. }) => {}
                    other => return other,
                }
            }
            let waited = start.elapsed();
            if waited >= timeout {
                let (used, idle) = self.shared.used();
                return Err(BlockError::TimedOut { asked, used, idle, limit, waited: timeout, behind: !first });
            }
            if !keep_waiting() {
                return Err(BlockError::Interrupted);
            }
            waiter.sleep(seen, ASK_EVERY.min(timeout.saturating_sub(waited)));
        }
    }

    /// Gives idle memory back to the system: all of it, or what the policy has no use for now. Returns bytes.
    ///
    /// Pieces smaller than 16 KiB go back with their whole block only.
    pub fn trim(&self, all: bool) -> u64 {
        if all { self.shared.give_all() } else { self.shared.look(self.shared.now()) }
    }

    /// What a full collection of a garbage collector calls: has the trimmer look at the clock and at the system now, at
    /// most once a second. The caller waits for none of it, because it is in the middle of a pause; where no trimmer is
    /// on duty, it adds up what the arenas hold, and starts one if there is anything idle.
    pub fn look_soon(&self) {
        self.shared.look_soon(self.shared.now());
    }

    /// Says that a library has worked on memory of the C library's malloc, which keeps most of what is freed: as image
    /// codecs do. Once nobody has said so for a [`trim_period`](Settings::trim_period), or as soon as memory is short,
    /// the trimmer has malloc give it back (glibc's `malloc_trim`), unless [`Settings::trim_malloc`] is false. A load,
    /// mostly.
    pub fn note_malloc(&self) {
        if self.shared.note_malloc() {
            self.shared.wants_trimmer();
        }
    }

    /// The pool's figures. Takes each arena's lock for a moment.
    pub fn stats(&self) -> PoolStats {
        self.shared.stats()
    }

    /// Changes settings while the pool is in use. A smaller pool gives back what is idle beyond it at once; limits hold
    /// from the next request on.
    ///
    /// # Errors
    /// [`BlockError::Setting`] when the change makes no sense; nothing is changed then.
    pub fn configure(&self, change: &Change) -> Result<(), BlockError> {
        let shared = self.shared;
        {
            let mut settings = lock(&shared.settings);
            *settings = settings.changed(change)?;
            shared.publish(&settings);
        }
        for cache in shared.all_caches() {
            shared.fold_counts(cache, || cache.lock_unbiased());
            cache.belong(cache.rank(), shared.arena_of_rank(cache.rank()));
        }
        shared.shrink();
        let limit = shared.total_limit();
        let surplus = shared.ledger.drawn().saturating_sub(limit);
        if surplus > 0 {
            shared.flush_caches();
            shared.evict_mapped(surplus);
        }
        shared.evict(shared.emptied_beyond_limit(0));
        shared.nudge_trimmer();
        shared.admission.room_made();
        Ok(())
    }

    /// Lets `pool_bytes` follow the limits of this process again, as it does until it is set.
    pub fn follow_limits(&self) {
        let bytes = default_pool_bytes();
        {
            let mut settings = lock(&self.shared.settings);
            (settings.pool_bytes, settings.follows) = (bytes, true);
            self.shared.publish(&settings);
        }
        self.shared.shrink();
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        *lock(&self.shared.settings)
    }

    /// Whether live memory at `at` was lent by this pool, and how many bytes may be used from there on. Three loads.
    ///
    /// `at` may be any address that is valid and stays so meanwhile, whoever it came from.
    #[inline]
    pub fn owns(&self, at: *const u8) -> Option<usize> {
        self.shared.owns(at)
    }

    /// How many bytes may be used of what was lent by this pool and begins at `at`; `None` when nothing does, as far as
    /// that shows: what was given back is found free, unless it lies in the cache of another thread. Takes an arena's
    /// lock.
    ///
    /// `at` may be any address.
    pub fn lent_at(&self, at: *const u8) -> Option<usize> {
        self.shared.lent_at(at)
    }

    /// Gives back what [`Buffer::into_raw`] let go.
    ///
    /// # Safety
    /// `at` came from [`Buffer::into_raw`] of this pool, is given back once, and nobody uses the memory any more.
    ///
    /// # Panics
    /// When the memory is not this pool's at all.
    #[inline]
    pub unsafe fn return_raw(&self, at: NonNull<u8>) {
        self.shared.return_raw(at);
    }

    /// Checks every equation of the pool's books. They hold while no other thread uses the pool.
    ///
    /// # Errors
    /// Which one does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.shared.validate()
    }

    /// The door to the system that this pool maps through.
    pub(crate) fn os(&self) -> &'static dyn Os {
        self.shared.os
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }
}

impl Shared {
    /// Keeps nothing from now on.
    fn close(&'static self) {
        // Relaxed: who misses it keeps a little until the trimmer's last look.
        self.closed.store(true, Ordering::Relaxed);
        {
            let mut settings = lock(&self.settings);
            (settings.pool_bytes, settings.follows) = (0, false);
            self.publish(&settings);
        }
        self.give_all();
        self.nudge_trimmer();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("ledger", &self.shared.ledger).finish_non_exhaustive()
    }
}
