//! What a cache tells about itself.

use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// A table's or a cache's figures. A cache's are the sums of its tables', except for memory, which tables share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Gets that found a value.
    pub hits: u64,
    /// Gets that found none, or one that had expired.
    pub misses: u64,
    /// Puts under a new key.
    pub inserted: u64,
    /// Puts under a key that was there.
    pub replaced: u64,
    /// Puts for which there was no room.
    pub rejected: u64,
    /// Entries removed by callers, one by one or all at once. A value that was popped for now and put back is none of
    /// them.
    pub removed: u64,
    /// Entries that had to make room.
    pub evicted: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes charged now: payloads with keys, headers and rounding, and their part of the index.
    pub bytes: u64,
    /// The most that `bytes` may become: the cache's limit, or a table's own where that is less.
    pub max_bytes: u64,
    /// Memory that the entries lie in, in pages of 64 KiB, and the index. At most `max_bytes`; where that is below 8
    /// MiB, at most 5 MiB more, and at most 8 MiB in all. The cache's only.
    pub reserved_bytes: u64,
    /// The index's part of `reserved_bytes`: units of 4 KiB, and some KiB that are there from the beginning. The
    /// cache's only.
    pub index_bytes: u64,
}

impl AddAssign for CacheStats {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.inserted += other.inserted;
        self.replaced += other.replaced;
        self.rejected += other.rejected;
        self.removed += other.removed;
        self.evicted += other.evicted;
        self.expired += other.expired;
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Hits,
    Misses,
    Inserted,
    Replaced,
    Rejected,
    Removed,
    Evicted,
    Expired,
    /// Entries that came to be, and that are no more, for whatever reason.
    Came,
    Went,
    /// Bytes of those.
    BytesIn,
    BytesOut,
}

const FIGURES: usize = Figure::BytesOut as usize + 1;

/// The figures of one thread, or of all that have no stripe of their own, on cache lines that no other stripe shares.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; FIGURES]);

/// Threads that have a stripe of their own, and so need no atomic addition. The last stripe is for all others.
const OWN_STRIPES: usize = 15;

/// The counters of a table. `entries = came - went`, `bytes = in - out`, when nothing changes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stripes: [Stripe; OWN_STRIPES + 1],
}

thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });

/// Stripes that no thread has. Only try-locked: if another thread holds it during a fork, it stays locked in the child.
/// Threads that end there give no stripe back then, and once all are taken, new threads share the last one.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Gives a thread's stripe to the next when the thread ends.
struct Own(usize);

impl Drop for Own {
    fn drop(&mut self) {
        // What the thread still counts, in destructors that come later, it counts with the others.
        STRIPE.set(OWN_STRIPES);
        if let Ok(mut free) = FREE.try_lock() {
            free.push(self.0);
        }
    }
}

#[cold]
fn own_stripe() -> usize {
    thread_local!(static OWN: Cell<Option<Own>> = const { Cell::new(None) });
    let free = FREE.try_lock().ok().and_then(|mut free| free.pop());
    // Relaxed: only that nobody gets the same number.
    let stripe = free.or_else(|| {
        let taken = |next: usize| (next < OWN_STRIPES).then_some(next + 1);
        NEXT.fetch_update(Relaxed, Relaxed, taken).ok()
    });
    let stripe = match stripe {
        // A thread that ends has no place any more for what would give it back; its stripe is lost.
        Some(stripe) if OWN.try_with(|own| own.set(Some(Own(stripe)))).is_ok() => stripe,
        _ => OWN_STRIPES,
    };
    STRIPE.set(stripe);
    stripe
}

impl Counters {
    /// Counts one.
    #[inline]
    pub fn count(&self, figure: Figure) {
        let stripe = STRIPE.get();
        if stripe < OWN_STRIPES {
            let counter = &self.stripes[stripe].0[figure as usize];
            // Relaxed: as in `add_each`.
            counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        } else {
            self.add(figure, 1);
        }
    }

    #[cold]
    fn add(&self, figure: Figure, number: u64) {
        self.add_each([(figure, number)]);
    }

    /// Counts several things, for one look at which stripe is the thread's.
    #[inline(always)]
    pub fn add_each<const N: usize>(&self, figures: [(Figure, u64); N]) {
        let stripe = match STRIPE.get() {
            usize::MAX => own_stripe(),
            stripe => stripe,
        };
        let counters = &self.stripes[stripe].0;
        for (figure, number) in figures {
            let counter = &counters[figure as usize];
            // Relaxed throughout: figures, nothing depends on them. A stripe of one's own changes hands by the lock of
            // the free ones.
            if stripe == OWN_STRIPES {
                counter.fetch_add(number, Relaxed);
            } else {
                counter.store(counter.load(Relaxed).wrapping_add(number), Relaxed);
            }
        }
    }

    fn sum(&self, figure: Figure) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0[figure as usize].load(Relaxed)))
    }

    /// What came and has not gone. Beside running writers it may be off by what they are at.
    fn difference(&self, came: Figure, went: Figure) -> u64 {
        // Taken first, so that nothing goes that had not come.
        let went = self.sum(went);
        self.sum(came).saturating_sub(went)
    }

    pub fn entries(&self) -> u64 {
        self.difference(Figure::Came, Figure::Went)
    }

    pub fn bytes(&self) -> u64 {
        self.difference(Figure::BytesIn, Figure::BytesOut)
    }

    pub fn read(&self) -> CacheStats {
        CacheStats {
            hits: self.sum(Figure::Hits),
            misses: self.sum(Figure::Misses),
            inserted: self.sum(Figure::Inserted),
            replaced: self.sum(Figure::Replaced),
            rejected: self.sum(Figure::Rejected),
            removed: self.sum(Figure::Removed),
            evicted: self.sum(Figure::Evicted),
            expired: self.sum(Figure::Expired),
            entries: self.entries(),
            bytes: self.bytes(),
            ..CacheStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_many_threads_come_and_go() {
        let counters = Counters::default();
        for _ in 0..4 {
            std::thread::scope(|scope| {
                for _ in 0..2 * OWN_STRIPES {
                    scope.spawn(|| (0..1000).for_each(|_| counters.count(Figure::Hits)));
                }
            });
        }
        assert_eq!(counters.read().hits, 4 * 2 * OWN_STRIPES as u64 * 1000);
    }

    /// A child that was forked while a thread began or ended has the lock held by nobody, for ever.
    #[test]
    fn threads_begin_and_end_while_the_free_stripes_are_locked() {
        let held = FREE.lock();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            std::thread::spawn(|| Counters::default().count(Figure::Hits)).join().unwrap();
            done.send(()).unwrap();
        });
        // A busy machine may stand still for half a minute.
        assert!(ended.recv_timeout(std::time::Duration::from_secs(240)).is_ok());
        drop(held);
    }
}
