//! A forked child begins with locks that nobody holds.
//!
//! Before the fork every lock of every pool is taken, in this order: the list of pools; then of each pool the settings,
//! the growth lock, the list of caches, the caches, the arenas, the watch, the waiting room, the trimmer; then the
//! block numbers and the records. Elsewhere a thread that holds two of them takes them in this order, too: the list of
//! caches before a cache or an arena, to book what was counted and to empty a cache. After the fork both sides let go,
//! and the child takes back what the threads that it does not have kept in their caches.

use super::admission;
use super::cache::Open;
use super::seat;
use super::settings::Settings;
use super::shared::{LockedArena, Shared, Watch, pools};
use super::span::{LockedRecords, hold_records};
use crate::directory::{LockedNumbers, hold_numbers};
use crate::inside;
use crate::os::{self, AcrossFork};
use crate::sync::{MutexGuard, lock};

/// All locks of one pool. Let go in the order of the fields.
struct LockedPool {
    _nudges: MutexGuard<'static, u64>,
    _waiting: admission::QueueGuard<'static>,
    _watch: MutexGuard<'static, Watch>,
    _arenas: Vec<LockedArena<'static>>,
    _open: Vec<Open<'static>>,
    _caches: MutexGuard<'static, super::cache::Caches>,
    _growth: MutexGuard<'static, ()>,
    _settings: MutexGuard<'static, Settings>,
}

/// All locks.
struct LockedAll {
    _numbers: LockedNumbers,
    _records: LockedRecords,
    _each: Vec<LockedPool>,
    _pools: MutexGuard<'static, Vec<&'static Shared>>,
}

thread_local! {
    /// What the forking thread holds between the two sides of a fork.
    static HELD: AcrossFork<LockedAll> = const { AcrossFork::new() };
}

/// Makes forks safe, from now on and for all pools.
pub(crate) fn watch_forks() {
    AT_FORK.watch();
}

static AT_FORK: os::AtFork = os::AtFork::new(before, in_parent, in_child);

fn hold(shared: &'static Shared) -> LockedPool {
    let settings = lock(&shared.settings);
    let growth = lock(&shared.growth);
    let caches = lock(&shared.caches);
    let open = caches.all.iter().map(|cache| cache.lock_unbiased()).collect();
    LockedPool {
        _open: open,
        _caches: caches,
        _growth: growth,
        _settings: settings,
        _arenas: shared.arenas().map(super::shared::Arena::lock).collect(),
        _watch: lock(&shared.watch),
        _waiting: shared.admission.hold(),
        _nudges: lock(&shared.trimmer.nudges),
    }
}

extern "C" fn before() {
    AT_FORK.note_call();
    let _inside = inside::enter();
    AcrossFork::keep(&HELD, || {
        let pools = pools();
        let each = pools.iter().map(|shared| hold(shared)).collect();
        LockedAll { _numbers: hold_numbers(), _records: hold_records(), _each: each, _pools: pools }
    });
}

extern "C" fn in_parent() {
    let _inside = inside::enter();
    drop(AcrossFork::let_go(&HELD));
}

extern "C" fn in_child() {
    in_parent();
    let _inside = inside::enter();
    let pools = pools().clone();
    for shared in pools {
        shared.begin_anew();
    }
    os::watch_first_thread(wake_trimmers);
}

/// Trimmers find that they are to end.
fn wake_trimmers() {
    let _inside = inside::enter();
    for shared in pools().iter() {
        shared.nudge_trimmer();
    }
}

impl Shared {
    /// In a forked child: the threads that waited, trimmed and kept pieces are gone.
    fn begin_anew(&'static self) {
        self.admission.forget_all();
        self.trimmer.duty.vacate();
        let own = seat::existing_cache(self);
        let (all, spare) = {
            let caches = lock(&self.caches);
            (caches.all.clone(), caches.spare.clone())
        };
        let has = |cache: &&'static super::cache::Cache| {
            own.is_none_or(|own| !std::ptr::eq(own, *cache)) && !spare.iter().any(|other| std::ptr::eq(*other, *cache))
        };
        for cache in all.into_iter().filter(has) {
            self.leave_cache(cache);
        }
        self.ledger.forget_leaving();
        self.keep_leaving();
    }
}
