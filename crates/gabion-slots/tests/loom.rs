//! How freed slots come back without a lock, under the model checker: every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gabion-slots --release --test loom`
//!
//! `remote.rs` is the crate's own file, with the checker's atomics in place of the system's.
#![cfg(loom)]
#![allow(dead_code, reason = "the crate uses the rest")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

#[path = "../src/remote.rs"]
mod remote;

/// The crate's door to atomics, opened to the checker.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

use remote::{Hazard, RemoteFreeStack, advance_epoch, collect, publish, take_pages};
use sync::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A block with two pages of one pair each.
struct Block {
    pages: AtomicU64,
    next: AtomicU32,
    free: [AtomicU64; 2],
    remote_free: [AtomicU64; 2],
    /// Stands for the block's memory: written when it is given back.
    memory: UnsafeCell<u32>,
}

/// Two blocks of one owner, and two threads that free.
struct World {
    remote: RemoteFreeStack,
    blocks: [Block; 2],
    hazards: [Hazard; 2],
    epoch: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let block = || Block {
            pages: AtomicU64::new(0),
            next: AtomicU32::new(0),
            free: [AtomicU64::new(0), AtomicU64::new(0)],
            remote_free: [AtomicU64::new(0), AtomicU64::new(0)],
            memory: UnsafeCell::new(0),
        };
        Arc::new(Self {
            remote: RemoteFreeStack::new(),
            blocks: [block(), block()],
            hazards: [Hazard::new(), Hazard::new()],
            epoch: AtomicU64::new(0),
        })
    }

    /// A thread frees bits of a page. Returns those that were freed before; all of them when it was too late.
    fn free(&self, thread: usize, block: usize, page: usize, bits: u64) -> u64 {
        let (hazard, at) = (&self.hazards[thread], &self.blocks[block]);
        let mut twice = bits;
        if hazard.protect(block + 1, &self.epoch, 0) {
            at.memory.with(|_| ());
            twice = publish(&at.remote_free[page], bits, &at.pages, page as u32, || {
                self.remote.push(block as u32 + 1, &at.next);
            });
            // The block is still there until the hazard is cleared.
            at.memory.with(|_| ());
        }
        hazard.clear();
        twice
    }

    /// The owner collects what was freed. Returns how many bits became free, and how many were free already.
    fn collect(&self) -> (u32, u32) {
        let (mut freed, mut twice, mut next) = (0, 0, self.remote.take_all());
        while next != 0 {
            let block = &self.blocks[next as usize - 1];
            next = block.next.load(Relaxed);
            let pages = take_pages(&block.pages);
            for page in (0..2).filter(|page| pages >> page & 1 == 1) {
                let (new, again) = collect(&block.free[page], &block.remote_free[page], u64::MAX);
                freed += new.count_ones();
                twice += again.count_ones();
            }
        }
        (freed, twice)
    }

    fn await_hazards(&self, block: usize) {
        self.hazards.iter().for_each(|hazard| hazard.await_clear(block, thread::yield_now));
    }
}

/// Interleavings with up to three preemptions, unless `LOOM_MAX_PREEMPTIONS` says more.
fn bounded(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(check);
}

fn run(world: &Arc<World>, act: impl Fn(&World) -> u64 + Send + 'static) -> thread::JoinHandle<u64> {
    let world = Arc::clone(world);
    thread::spawn(move || act(&world))
}

#[test]
fn nothing_that_is_freed_is_forgotten() {
    for (block, page) in [(0, 0), (0, 1), (1, 0)] {
        bounded(move || {
            let world = World::new();
            let one = run(&world, |world| world.free(0, 0, 0, 0b001) + world.free(0, 1, 1, 0b010));
            let other = run(&world, move |world| world.free(1, block, page, 0b100));
            let early = world.collect().0;
            assert_eq!(one.join().unwrap() + other.join().unwrap(), 0);
            assert_eq!(early + world.collect().0, 3);
            assert!(world.remote.is_empty());
            assert!(world.blocks.iter().all(|block| block.pages.load(Relaxed) == 0));
        });
    }
}

#[test]
fn a_slot_that_two_threads_free_becomes_free_once() {
    bounded(|| {
        let world = World::new();
        let one = run(&world, |world| world.free(0, 0, 0, 1));
        let other = run(&world, |world| world.free(1, 0, 0, 1));
        let (early, early_twice) = world.collect();
        let told = one.join().unwrap() + other.join().unwrap();
        let (late, late_twice) = world.collect();
        assert_eq!(early + late, 1);
        assert_eq!(told + u64::from(early_twice + late_twice), 1);
    });
}

#[test]
fn a_block_stays_until_the_last_thread_has_left_it() {
    bounded(|| {
        let world = World::new();
        let one = run(&world, |world| world.free(0, 0, 0, 0b01));
        let other = run(&world, |world| world.free(1, 0, 0, 0b10));
        let mut free = 0;
        while free < 2 {
            free += world.collect().0;
            thread::yield_now();
        }
        // Both slots are free, so the block is empty: given back as `strike_queued` does it.
        loop {
            world.await_hazards(1);
            if world.blocks[0].pages.load(Relaxed) == 0 {
                break;
            }
            assert_eq!(world.collect(), (0, 0));
        }
        world.blocks[0].memory.with_mut(|_| ());
        assert!(world.remote.is_empty());
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_released_block_is_not_touched_any_more() {
    bounded(|| {
        let world = World::new();
        let late = run(&world, |world| world.free(0, 0, 0, 1));
        advance_epoch(&world.epoch, 1);
        world.await_hazards(0);
        world.remote.take_all();
        world.blocks[0].memory.with_mut(|_| ());
        late.join().unwrap();
    });
}

/// Another thread than the owner takes the block once all of it is free. As in `Shared::take_empty`, with the
/// order in which `record::free_local_fast` frees a slot of its own and `Page::is_all_freed` looks.
#[test]
fn a_block_is_taken_when_its_owner_has_done_with_it() {
    bounded(|| {
        let world = World::new();
        let other = run(&world, |world| world.free(0, 0, 0, 0b10));
        let owner = run(&world, |world| {
            let block = &world.blocks[0];
            // The page's count.
            block.memory.with(|_| ());
            block.free[0].store(block.free[0].load(Relaxed) | 0b01, Release);
            0
        });
        let take = || {
            let block = &world.blocks[0];
            let name = world.remote.take_all();
            if name == 0 {
                return false;
            }
            if (block.free[0].load(Acquire) | block.remote_free[0].load(Acquire)) != 0b11 {
                world.remote.push(name, &block.next);
                return false;
            }
            take_pages(&block.pages);
            collect(&block.free[0], &block.remote_free[0], 0b11);
            world.await_hazards(1);
            if block.pages.load(Relaxed) != 0 {
                assert_eq!(world.remote.take_all(), 1);
            }
            block.memory.with_mut(|_| ());
            true
        };
        let early = take();
        owner.join().unwrap();
        assert_eq!(other.join().unwrap(), 0);
        assert!(early != take(), "it is taken once");
    });
}
