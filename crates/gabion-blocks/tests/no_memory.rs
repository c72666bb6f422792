//! The pool where malloc has nothing left: what was taken goes back, a thread's first call is served, and the process
//! goes on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gabion_blocks::ending::malloc_has;
use gabion_blocks::os::Scarce;
use gabion_blocks::{BlockError, BlockSet, Change, Pool, Request, Settings, system, try_room};

#[global_allocator]
static SCARCE: Scarce = Scarce;

/// One test at a time: what one gives back is room for another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> Pool {
    Pool::new(system(), Settings::default()).unwrap()
}

#[test]
fn blocks_and_their_owners_are_struck_out() {
    let _alone = alone();
    let pool = pool();
    let sets: Vec<_> = (0..20).map(|_| BlockSet::new(&pool, 0).unwrap()).collect();
    for set in &sets {
        for _ in 0..10 {
            set.map().unwrap();
        }
    }
    let first = sets[0].map().unwrap().0;
    // SAFETY: nobody uses the block.
    Scarce::without_memory(|| unsafe { sets[0].give_back(first) });
    // The list itself was the test's.
    Scarce::without_memory(|| sets.into_iter().for_each(drop));
    pool.validate().unwrap();
    assert!(Scarce::without_memory(|| BlockSet::new(&pool, 0)).is_ok(), "the numbers are there again");
}

#[test]
fn buffers_go_back_whether_or_not_a_trimmer_can_begin() {
    let _alone = alone();
    let pool = pool();
    let buffers = [5000, 3 << 20, 40 << 20].map(|bytes| pool.rent(&Request::new(bytes)).unwrap());
    Scarce::without_memory(|| buffers.into_iter().for_each(drop));
    pool.validate().unwrap();
    assert_eq!(pool.stats().in_use, 0);
    drop(pool.rent(&Request::new(5000)).unwrap());
    Scarce::without_memory(|| pool.trim(true));
    pool.validate().unwrap();
}

#[test]
fn a_thread_without_a_cache_is_served() {
    let _alone = alone();
    let pool = pool();
    let lent = pool.rent(&Request::new(5000)).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let (one, other) = Scarce::without_memory(|| {
                drop(lent);
                let one = pool.rent(&Request::new(5000));
                (one, pool.rent(&Request::new(3 << 20)))
            });
            drop((one.unwrap(), other.unwrap()));
            // It has one from now on.
            assert!(Scarce::without_memory(|| pool.rent(&Request::new(5000))).is_ok());
        });
        first.join().unwrap();
    });
    pool.validate().unwrap();
    assert_eq!(pool.stats().in_use, 0);
}

/// It ended the process.
#[test]
fn a_wait_that_cannot_be_noted_is_refused() {
    let _alone = alone();
    let pool = pool();
    pool.configure(&Change { total_limit: Some(8 << 20), ..Change::default() }).unwrap();
    let lent = pool.rent(&Request::new(8 << 20)).unwrap();
    let more = Request::new(4 << 20).timeout(Duration::from_millis(1));
    let waited = |refused: &BlockError| matches!(refused, BlockError::TimedOut { .. });
    assert!(Scarce::without_memory(|| pool.rent(&more)).is_err_and(|refused| !waited(&refused)));
    assert!(pool.rent(&more).is_err_and(|refused| waited(&refused)));
    drop(lent);
    drop(pool.rent(&more).unwrap());
}

/// It ended the process, with the records of all spans locked.
#[test]
fn a_span_without_a_record_is_refused() {
    let _alone = alone();
    let pool = Pool::new(system(), Settings::unpooled()).unwrap();
    let request = Request::new((2 << 20) + 1);
    drop(pool.rent(&request).unwrap());
    // Untouched: addresses alone.
    let mut lent = Vec::with_capacity(4000);
    let refused = Scarce::without_memory(|| {
        while lent.len() < lent.capacity() {
            match pool.rent(&request) {
                Ok(buffer) => lent.push(buffer),
                Err(refused) => return Some(refused),
            }
        }
        None
    });
    assert!(refused.is_some(), "after {} spans", lent.len());
    drop(lent);
    drop(pool.rent(&request).unwrap());
    pool.validate().unwrap();
}

#[test]
fn room_is_refused() {
    let refused = Scarce::without_memory(|| (try_room::<[u64; 100]>().err(), malloc_has(1)));
    assert_eq!(refused, (Some(BlockError::Refused { asked: 800, errno: libc::ENOMEM }), false));
    assert!(malloc_has(1) && *try_room().map(|room| Box::write(room, 7)).unwrap() == 7);
}
