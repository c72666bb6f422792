//! A lock that is biased to the thread that always takes it.
//!
//! Taking a free lock and letting it go costs two locked instructions, and those wait for every load and store before
//! them: a row of short calls, each of which misses the caches once, then takes one miss after the other. So a
//! [`Biased`] lock that one thread takes many times in a row is biased to that thread, which from then on says where it
//! is with plain stores. Another thread that wants the lock makes it unbiased again: it takes the gate, revokes its
//! bias, has every processor finish what it is in the middle of (a *heavy fence*: `membarrier` on Linux), and waits
//! until the owner is outside. An unbiased lock is a mutex.
//!
//! Known as biased locking: D. Dice, M. Moir, W. Scherer, "Quickly reacquirable locks", 2003. Where there is no heavy
//! fence, no lock is ever biased.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::os::{can_fence_heavily, heavy_fence, light_fence, nap};
use crate::owner_slot::{self, OwnerSlot};
use crate::sync::{AtomicPtr, Mutex, MutexGuard, Ordering, lock, yield_now};

/// How many times in a row one thread takes a lock before it is biased to that thread; each time that this was revoked
/// this doubles, so that a lock that threads do share is unbiased nearly always. The model checker has no time for long
/// rows.
const FIRST_ROW: u32 = if cfg!(loom) { 1 } else { 64 };
const LONGEST_ROW: u32 = 1 << 22;

/// The same for a lock that one thread has to itself except for others now and then: a revocation costs as much as some
/// hundred times that the lock is taken without bias, so few of these make good for it.
const LONGEST_ROW_OF_OWN: u32 = 1 << 10;

/// How many times a thread looks whether the owner is outside before it sleeps between two looks: some hundred
/// microseconds.
const SHORT_WAIT: u64 = 300;

/// A mutual exclusion lock around a value; cheap for a thread that has it to itself, right for any number of threads.
///
/// Not re-entrant, as any mutex: a thread that locks twice waits for itself for ever. It knows no poison: what it
/// guards must be whole even when a holder panics.
pub struct Biased<T> {
    /// The owner slot of the thread that the lock is biased to, or null. Changed by the gate's holder only.
    owner: AtomicPtr<OwnerSlot>,
    /// Held by everybody who is inside, except for the owner.
    gate: Mutex<Streak>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value (see `lock_from`), and it may be sent to it.
unsafe impl<T: Send> Sync for Biased<T> {}
// SAFETY: the value goes along; owner slots are never freed, and any thread may use them.
unsafe impl<T: Send> Send for Biased<T> {}

/// Which thread took the lock last, and how many times in a row.
struct Streak {
    last: *const OwnerSlot,
    length: u32,
    /// The length from which on the lock is biased, and the most that it becomes.
    needed: u32,
    longest: u32,
}

// SAFETY: the pointer is compared only.
unsafe impl Send for Streak {}

/// The right to the value of a [`Biased`] lock. Its thread's own: it is neither shared nor sent.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<gabion_blocks::BiasedGuard<'_, u8>>();
/// ```
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<gabion_blocks::BiasedGuard<'_, u8>>();
/// ```
#[must_use = "the lock is let go at once"]
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    way: Way<'a>,
    /// What the guard is good for. The lock alone may be shared where the value may only be sent.
    _value: PhantomData<&'a mut T>,
}

/// How the holder came in, and goes out.
enum Way<'a> {
    Owner(&'static OwnerSlot),
    Gate { _held: MutexGuard<'a, Streak> },
}

impl<T> Biased<T> {
    /// An unbiased lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self::biased_after(value, FIRST_ROW)
    }

    /// A lock that is biased for the first time after being taken `needed` times in a row.
    pub(crate) fn biased_after(value: T, needed: u32) -> Self {
        Self::with_rows(value, needed, LONGEST_ROW)
    }

    fn with_rows(value: T, needed: u32, longest: u32) -> Self {
        let gate = Mutex::new(Streak::new(needed, longest));
        Self { owner: AtomicPtr::new(ptr::null_mut()), gate, value: UnsafeCell::new(value) }
    }

    /// Makes a lock where it is to stand, around what `write` writes. One thread has it to itself, except for those who
    /// [`Biased::lock_unbiased`].
    ///
    /// # Safety
    /// `at` is memory for a lock that nobody uses yet, and `write` writes a value to the address that it is given.
    pub(crate) unsafe fn write_for_one(at: *mut Self, write: impl FnOnce(*mut T)) {
        // SAFETY: the caller's duty; each field is written once, and none is read before all are.
        unsafe {
            (&raw mut (*at).owner).write(AtomicPtr::new(ptr::null_mut()));
            (&raw mut (*at).gate).write(Mutex::new(Streak::new(FIRST_ROW, LONGEST_ROW_OF_OWN)));
            write(UnsafeCell::raw_get(&raw const (*at).value));
        }
    }

    /// Waits until nobody else holds the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock_from(owner_slot::mine())
    }

    /// The value, for who has the lock to itself: nobody is waited for.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock if it is biased to this thread; never waits. For short paths: the compiler knows the guard to be
    /// a biased one, and drops the code for all others.
    #[inline(always)]
    pub fn try_lock_biased(&self) -> Option<BiasedGuard<'_, T>> {
        self.try_lock_biased_from(owner_slot::mine())
    }

    /// As [`Biased::lock`], by the thread of an owner slot.
    #[inline]
    pub(crate) fn lock_from(&self, slot: Option<&'static OwnerSlot>) -> BiasedGuard<'_, T> {
        self.try_lock_biased_from(slot).unwrap_or_else(|| self.lock_gate(slot))
    }

    /// As [`Biased::lock`], by a thread that the lock should never be biased to.
    pub(crate) fn lock_unbiased(&self) -> BiasedGuard<'_, T> {
        self.guard(Way::Gate { _held: self.gate() })
    }

    /// As [`Biased::try_lock_biased`], by the thread of an owner slot.
    #[inline(always)]
    pub(crate) fn try_lock_biased_from(&self, slot: Option<&'static OwnerSlot>) -> Option<BiasedGuard<'_, T>> {
        // Relaxed: only this thread biases the lock to its owner slot, and what others make of it is looked at again
        // below. An owner slot that says already where its thread is cannot say two places.
        let slot = slot.filter(|&slot| {
            ptr::eq(self.owner.load(Ordering::Relaxed), slot) && slot.inside.load(Ordering::Relaxed) == 0
        })?;
        // Release: what the thread did inside of another lock, which it has left, comes before. A thread that has
        // revoked its bias may find it left by reading this, and not the 0 that was stored between: see `revoke`.
        slot.inside.store(self.address(), Ordering::Release);
        // Pairs with the heavy fence: either the look below finds that the bias was revoked, or the thread that
        // revoked it finds us inside.
        light_fence();
        // Acquire: what is guarded is used after this look.
        if ptr::eq(self.owner.load(Ordering::Acquire), slot) {
            return Some(self.guard(Way::Owner(slot)));
        }
        slot.inside.store(0, Ordering::Release);
        None
    }

    #[inline(always)]
    fn guard<'a>(&'a self, way: Way<'a>) -> BiasedGuard<'a, T> {
        BiasedGuard { lock: self, way, _value: PhantomData }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Takes the gate and makes the lock unbiased.
    fn gate(&self) -> MutexGuard<'_, Streak> {
        let mut streak = lock(&self.gate);
        // Relaxed: the gate orders its changes.
        let owner = self.owner.load(Ordering::Relaxed);
        // SAFETY: owner slots are never freed.
        if let Some(owner) = unsafe { owner.as_ref() } {
            self.revoke(owner);
            (streak.last, streak.length) = (ptr::null(), 0);
            streak.needed = (2 * streak.needed).min(streak.longest);
        }
        streak
    }

    #[cold]
    fn lock_gate(&self, slot: Option<&'static OwnerSlot>) -> BiasedGuard<'_, T> {
        let mut streak = self.gate();
        // An owner slot that says already where its thread is cannot say two places: then the lock is biased a time
        // later.
        let free = |slot: &&'static OwnerSlot| slot.inside.load(Ordering::Relaxed) == 0;
        if streak.lengthen(slot)
            && let Some(slot) = slot.or_else(owner_slot::take).filter(free)
        {
            // From here on the holder is inside as the owner, and must say so before the gate is open: its own next
            // look would let it in a second time, and another thread would not wait for it. The gate orders both for
            // its next holder. Release: as in `try_lock_biased_from`.
            slot.inside.store(self.address(), Ordering::Release);
            self.owner.store(ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
            return self.guard(Way::Owner(slot));
        }
        self.guard(Way::Gate { _held: streak })
    }

    /// Makes the lock unbiased and waits until its owner is outside. For the gate's holder.
    fn revoke(&self, owner: &OwnerSlot) {
        self.owner.store(ptr::null_mut(), Ordering::Relaxed);
        heavy_fence();
        // Acquire: what the owner did inside is seen, whatever it says now: 0, or that it is inside of another lock. It
        // may say so once more for a moment, and then finds itself refused.
        let mut looks = 0;
        while owner.inside.load(Ordering::Acquire) == self.address() {
            // Whoever is inside so long copies or compares much, and its processor may be this one.
            if looks < SHORT_WAIT {
                yield_now();
            } else {
                nap(looks - SHORT_WAIT);
            }
            looks += 1;
        }
    }
}

impl Streak {
    /// Nobody took the lock yet.
    fn new(needed: u32, longest: u32) -> Self {
        // Asked here and not by the first who needs to know: the system's first answer takes it milliseconds in a
        // process of several threads, and next to nothing in one that has not started others yet.
        let _ = can_fence_heavily();
        Self { last: ptr::null(), length: 0, needed, longest }
    }

    /// Counts that the thread of `slot` holds the gate once more; true when the lock should be biased to it from now
    /// on.
    fn lengthen(&mut self, slot: Option<&'static OwnerSlot>) -> bool {
        let slot = slot.map_or(ptr::null(), ptr::from_ref);
        // A thread without an owner slot cannot be told from another one. It is given one when there was a streak of
        // such.
        if !ptr::eq(self.last, slot) {
            (self.last, self.length) = (slot, 0);
        }
        // Where no lock can be biased, threads never get an owner slot, and the streak never ends.
        self.length = self.length.saturating_add(1);
        if self.length < self.needed || !can_fence_heavily() {
            return false;
        }
        self.length = 0;
        true
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value. A holder by way of the gate waited until the owner was outside
        // and keeps others from the gate, and the owner out: it is refused as long as the lock is not its own. The
        // owner, by its owner slot, is waited for by each thread that revokes the bias.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Way::Owner(slot) = self.way {
            // Release: what was done inside comes before.
            slot.inside.store(0, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;

    fn is_biased<T>(lock: &Biased<T>) -> bool {
        !lock.owner.load(Ordering::Relaxed).is_null()
    }

    #[test]
    fn a_lock_is_biased_after_a_row_and_unbiased_again_when_another_thread_comes() {
        let lock = Biased::new(0_u64);
        for _ in 0..FIRST_ROW {
            assert!(!is_biased(&lock) && lock.try_lock_biased().is_none());
            *lock.lock() += 1;
        }
        assert_eq!(is_biased(&lock), can_fence_heavily());
        assert_eq!(lock.try_lock_biased().is_some(), can_fence_heavily());
        for _ in 0..10 {
            *lock.lock() += 1;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock_biased().is_none(), "it is biased to another thread")).join().unwrap();
            scope.spawn(|| *lock.lock() += 1).join().unwrap();
            assert!(!is_biased(&lock) && lock.try_lock_biased().is_none());
        });
        for _ in 0..2 * FIRST_ROW {
            assert!(!is_biased(&lock), "a lock whose bias was revoked needs a longer row");
            *lock.lock() += 1;
        }
        assert_eq!(is_biased(&lock), can_fence_heavily());
        assert_eq!(*lock.lock(), u64::from(3 * FIRST_ROW) + 11);
    }

    #[test]
    fn nobody_comes_in_twice_while_a_lock_becomes_biased() {
        let lock = Biased::biased_after(0_u64, 2);
        for begins in [false, true, true] {
            let inside = lock.lock();
            assert!(lock.try_lock_biased().is_none(), "two guards of one lock");
            assert_eq!(is_biased(&lock), begins && can_fence_heavily());
            drop(inside);
        }
        // While the thread is inside of another lock, this one stays unbiased, and is biased afterwards.
        let (other, inner) = (Biased::biased_after(0_u64, 1), Biased::biased_after(0_u64, 1));
        let outside = other.lock();
        for _ in 0..3 {
            drop(inner.lock());
            assert!(!is_biased(&inner));
        }
        drop(outside);
        drop(inner.lock());
        assert_eq!(is_biased(&inner), can_fence_heavily());
    }

    #[test]
    fn a_lock_is_never_biased_by_lock_unbiased_and_biased_again_soon_after_many() {
        let (lock, slot) =
            (Biased::with_rows(0_u64, FIRST_ROW, LONGEST_ROW_OF_OWN), &*Box::leak(Box::new(OwnerSlot::new())));
        for _ in 0..3 * FIRST_ROW {
            *lock.lock_unbiased() += 1;
            assert!(!is_biased(&lock));
        }
        for revoked in 0..40 {
            let mut row = 0;
            while !is_biased(&lock) && row < LONGEST_ROW_OF_OWN {
                row += 1;
                *lock.lock_from(Some(slot)) += 1;
            }
            let needed = if can_fence_heavily() { FIRST_ROW << revoked.min(20) } else { LONGEST_ROW_OF_OWN };
            assert_eq!(row, needed.min(LONGEST_ROW_OF_OWN), "after {revoked} revocations");
            assert_eq!(is_biased(&lock), can_fence_heavily());
            assert_eq!(lock.try_lock_biased_from(Some(slot)).is_some(), can_fence_heavily());
            *lock.lock_unbiased() += 1;
        }
        let narrow = if can_fence_heavily() { (LONGEST_ROW_OF_OWN / FIRST_ROW).ilog2() } else { 0 };
        let (wide_rows, narrow_rows) = (40 - u64::from(narrow), u64::from(FIRST_ROW * ((1 << narrow) - 1)));
        let sum = u64::from(3 * FIRST_ROW) + 40 + narrow_rows + wide_rows * u64::from(LONGEST_ROW_OF_OWN);
        assert_eq!(*lock.lock_unbiased(), sum);
    }

    #[test]
    fn the_owner_is_waited_for() {
        let lock = Biased::biased_after(0_u64, 1);
        drop(lock.lock());
        let inside = lock.lock();
        let came = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                *lock.lock() += 1;
                came.store(true, Ordering::SeqCst);
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                assert_eq!((*inside, came.load(Ordering::SeqCst)), (0, false));
            }
            drop(inside);
            other.join().unwrap();
        });
        assert_eq!(*lock.lock(), 1);
    }

    /// The processor's time that this thread has had.
    fn own_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills in the time.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
        Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
    }

    /// It asked again and again as long as the other was inside, which may compare a whole pile with a disk there.
    #[test]
    #[cfg_attr(miri, ignore = "there is no clock of a thread's own")]
    fn who_waits_for_long_sleeps() {
        let lock = Biased::biased_after(0_u64, 1);
        drop(lock.lock());
        let inside = lock.lock();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                *lock.lock() += 1;
                own_time()
            });
            std::thread::sleep(Duration::from_secs(1));
            drop(inside);
            let waited = other.join().unwrap();
            assert!(waited < Duration::from_millis(100), "{waited:?} of a second");
        });
    }

    #[test]
    fn locks_inside_of_locks() {
        let locks = [const { 0_u64 }; 3].map(|value| Biased::biased_after(value, 1));
        for _ in 0..100 {
            let mut first = locks[0].lock();
            let mut second = locks[1].lock();
            *locks[2].lock() += 1;
            *first += 1;
            drop(first);
            *locks[2].lock() += 1;
            *second += 1;
        }
        assert_eq!(locks.each_ref().map(|lock| *lock.lock()), [100, 100, 200]);
    }

    #[test]
    fn a_holder_that_panics_leaves_the_lock_open() {
        let lock = Biased::biased_after(0_u64, 1);
        for _ in 0..3 {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                *lock.lock() += 1;
                let _inside = lock.lock();
                panic!("inside");
            }));
            assert!(panicked.is_err());
        }
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(*lock.lock(), 3)).join().unwrap());
    }

    #[test]
    fn threads_come_and_go_and_never_meet_inside() {
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        println!("seed {seed}");
        let locks: [Biased<(u64, u64)>; 3] = std::array::from_fn(|_| Biased::biased_after((0, 0), 3));
        let (rounds, threads) = (40, 4);
        for round in 0..rounds {
            let start = Barrier::new(threads);
            std::thread::scope(|scope| {
                for thread in 0..threads as u64 {
                    let (locks, start) = (&locks, &start);
                    scope.spawn(move || {
                        let mut random = seed ^ (round << 8 | thread) | 1;
                        start.wait();
                        for _ in 0..500 {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            // Mostly the thread's own, for rows to come about.
                            let at = if random.is_multiple_of(100) { (random >> 32) % 3 } else { thread % 3 };
                            let mut pair = locks[at as usize].lock();
                            assert_eq!(pair.0, pair.1);
                            pair.0 += 1;
                            std::hint::black_box(&mut pair.0);
                            pair.1 += 1;
                        }
                    });
                }
            });
        }
        let total: u64 = locks.iter().map(|lock| lock.lock().0).sum();
        assert_eq!(total, rounds * threads as u64 * 500);
    }
}
