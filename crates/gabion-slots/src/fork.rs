//! A forked child begins with locks that nobody holds.
//!
//! Before the fork every lock of all `Slots` is taken: the list of them; of each the locks of those who take and who
//! see to arenas without an owner, that of its state, the locks of who collects in its arenas, and that of its blocks.
//! The pool's follow. After the fork both sides let go. In the child the arenas of other threads are orphans and stay
//! as they are: what lies in them can be used and freed, and is not given back.

use std::sync::{Arc, Weak};

use gabion_blocks::os::{AcrossFork, AtFork};
use gabion_blocks::{BlockError, inside, make_room, set};

use crate::seat;
use crate::shared::{Shared, State};
use crate::sync::{Mutex, MutexGuard, lock};

/// All `Slots`.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// The locks of one `Slots`, which they keep alive. Let go in the order of the fields.
struct LockedSlots {
    _blocks: set::LockedSet<'static>,
    _collecting: Vec<MutexGuard<'static, ()>>,
    state: MutexGuard<'static, State>,
    _ownerless: MutexGuard<'static, ()>,
    _taking: MutexGuard<'static, ()>,
    shared: Arc<Shared>,
}

struct LockedAll {
    each: Vec<LockedSlots>,
    _all: MutexGuard<'static, Vec<Weak<Shared>>>,
}

thread_local! {
    /// What the forking thread holds between the two sides of a fork.
    static HELD: AcrossFork<LockedAll> = const { AcrossFork::new() };
}

static AT_FORK: AtFork = AtFork::new(before, in_parent, in_child);

/// Makes forks safe for new slots.
///
/// # Errors
/// [`BlockError::Refused`]; they are not known to forks.
pub(crate) fn watch_forks(shared: &Arc<Shared>) -> Result<(), BlockError> {
    let _inside = inside::enter();
    // After the pool's, so that its locks are taken after these.
    AT_FORK.watch();
    let mut all = lock(&ALL);
    all.retain(|other| other.strong_count() > 0);
    make_room(&mut all, 1)?;
    all.push(Arc::downgrade(shared));
    Ok(())
}

fn hold(shared: Arc<Shared>) -> LockedSlots {
    // SAFETY: the value keeps the slots alive longer than the locks, which are let go first.
    let forever: &'static Shared = unsafe { &*Arc::as_ptr(&shared) };
    // Where nobody takes, and nobody sees to arenas without an owner, the locks of lists are held by the arenas' own
    // threads alone, if at all.
    let taking = lock(&forever.taking);
    let ownerless = lock(&forever.ownerless_lock);
    let state = forever.lock();
    let collecting = forever.arenas(&state).map(|arena| lock(&arena.collecting)).collect();
    LockedSlots {
        _blocks: forever.blocks.hold(),
        _collecting: collecting,
        state,
        _ownerless: ownerless,
        _taking: taking,
        shared,
    }
}

extern "C" fn before() {
    AT_FORK.note_call();
    let _inside = inside::enter();
    AcrossFork::keep(&HELD, || {
        let all = lock(&ALL);
        let each = all.iter().filter_map(Weak::upgrade).map(hold).collect();
        LockedAll { each, _all: all }
    });
}

extern "C" fn in_parent() {
    let _inside = inside::enter();
    drop(AcrossFork::let_go(&HELD));
}

extern "C" fn in_child() {
    let _inside = inside::enter();
    let held = AcrossFork::let_go(&HELD);
    for one in held.iter().flat_map(|held| &held.each) {
        one.shared.rebuild_remote_frees(&one.state, seat::existing(&one.shared));
    }
}
