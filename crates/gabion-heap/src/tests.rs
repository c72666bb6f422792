//! The heap against a naive model: one list of operations drives random tests and the stress of budgets and refusals.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::os::Twin;
use gabion_blocks::{BLOCK_BYTES, BlockSet, Budget, PAGE_BYTES, Pool, Settings};
use proptest::prelude::*;

use crate::ground::Turns;
use crate::{Freed, Ground, Heap, HeapError, Loc, PageSlot, slot_words};

#[derive(Debug, Clone)]
enum Operation {
    TakeSlot(usize),
    TakeBody(usize),
    TakeChunk(usize),
    LeaveBody(usize),
    ReturnBody(usize),
    Free(usize),
    Trim,
    Rest,
    /// The pool gives back what is idle.
    Shrink,
    Clear,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Few classes, so that pages fill; one is the largest, of which a page holds few.
    let class = prop_oneof![Just(0_usize), Just(7), Just(40), Just(63)];
    prop_oneof![
        8 => class.clone().prop_map(Operation::TakeSlot),
        3 => class.prop_map(Operation::TakeBody),
        4 => (1_usize..140_000).prop_map(Operation::TakeChunk),
        3 => any::<usize>().prop_map(Operation::LeaveBody),
        2 => any::<usize>().prop_map(Operation::ReturnBody),
        8 => any::<usize>().prop_map(Operation::Free),
        1 => Just(Operation::Trim),
        1 => Just(Operation::Rest),
        1 => Just(Operation::Shrink),
        1 => Just(Operation::Clear),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    Slot { class: usize, body: bool },
    Body { class: usize },
    Chunk { words: usize },
}

/// What is taken, and a stamp that was written over all of it.
struct Model {
    taken: Vec<(Loc, Piece)>,
    stamps: HashMap<Loc, u64>,
    next: u64,
}

impl Model {
    fn words(at: Loc, piece: Piece) -> std::ops::Range<usize> {
        match piece {
            Piece::Slot { class, body: true } => at.word()..at.word() + slot_words(class),
            Piece::Slot { body: false, .. } => at.word()..at.word() + 1,
            Piece::Body { class } => at.word() + 1..at.word() + slot_words(class),
            Piece::Chunk { words } => at.word()..at.word() + words,
        }
    }

    fn stamp(&mut self, ground: Ground<'_>, at: Loc, piece: Piece) {
        self.next += 1;
        let block = ground.blocks.block(at.number()).unwrap();
        Self::words(at, piece).for_each(|word| block.word(word).store(self.next, Relaxed));
        self.stamps.insert(at, self.next);
        self.taken.push((at, piece));
    }

    fn check(&self, ground: Ground<'_>, at: Loc, piece: Piece) {
        let block = ground.blocks.block(at.number()).unwrap();
        for word in Self::words(at, piece) {
            assert_eq!(block.word(word).load(Relaxed), self.stamps[&at], "{piece:?} at {at:?} was overwritten");
        }
    }
}

/// Settings of a pool that keeps so much.
fn keeping(pool_bytes: u64) -> Settings {
    let mut settings = Settings::unpooled();
    settings.pool_bytes = pool_bytes;
    settings
}

fn run(operations: &[Operation], budget: u64, refuse_after: i64) {
    // Whatever is kept, or nothing.
    for pool_bytes in [0, 1 << 30] {
        run_with(operations, budget, refuse_after, keeping(pool_bytes));
    }
}

fn run_with(operations: &[Operation], budget: u64, refuse_after: i64, settings: Settings) {
    let twin: &'static Twin = Box::leak(Box::default());
    twin.refuse_after(refuse_after);
    let (blocks, budget) = (BlockSet::claimed(&Pool::new(twin, settings).unwrap(), 1).unwrap(), Budget::new(budget));
    let turns = Turns::default();
    let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
    let mut heap = Heap::new(3, u64::from);
    let mut model = Model { taken: Vec::new(), stamps: HashMap::new(), next: 0 };
    for operation in operations {
        step(&mut heap, &mut model, ground, operation);
        heap.validate(ground).unwrap_or_else(|wrong| panic!("after {operation:?}: {wrong}"));
        let counts = heap.counts();
        assert_eq!(budget.used(), (counts.slot_pages + counts.chunk_pages) << 16);
        blocks.pool().validate().unwrap();
        let idle = blocks.pool().stats().held_idle;
        assert!(budget.used() + idle <= budget.limit(), "{idle} bytes are idle, after {operation:?}");
    }
    for &(at, piece) in &model.taken {
        model.check(ground, at, piece);
    }
}

fn step(heap: &mut Heap, model: &mut Model, ground: Ground<'_>, operation: &Operation) {
    let refused = |error: HeapError| assert!(matches!(error, HeapError::Blocks(_)), "{error}");
    match *operation {
        Operation::TakeSlot(class) => match heap.take_slot(ground, class) {
            Ok((_, at)) => model.stamp(ground, at, Piece::Slot { class, body: true }),
            Err(error) => refused(error),
        },
        Operation::TakeBody(class) if class > 0 => match heap.take_body(ground, class, true) {
            // A body in an annex shares its place with a head: the model keys bodies by the word after it.
            Ok((_, at)) => {
                let owner = model
                    .taken
                    .iter()
                    .any(|&(other, piece)| other == at && piece != Piece::Slot { class, body: false });
                assert!(!owner, "a body was let twice");
                if model.taken.iter().any(|&(other, _)| other == at) {
                    heap.free_slot(ground, at, false, true).unwrap();
                } else {
                    model.stamp(ground, at, Piece::Body { class });
                }
            }
            Err(error) => refused(error),
        },
        Operation::TakeBody(_) => {}
        Operation::TakeChunk(words) => match heap.take_chunk(ground, words) {
            Ok((block, at)) => {
                assert!(Heap::chunk_words(block, at) >= words);
                model.stamp(ground, at, Piece::Chunk { words });
            }
            Err(error) => refused(error),
        },
        Operation::LeaveBody(pick) => {
            if let Some((at, class)) = pick_slot(model, pick, true) {
                heap.free_slot(ground, at, false, true).unwrap();
                assert_eq!(heap.free_slot(ground, at, false, true), Err(HeapError::NotTaken));
                model.taken.iter_mut().find(|(other, _)| *other == at).unwrap().1 = Piece::Slot { class, body: false };
            }
        }
        Operation::ReturnBody(pick) => {
            if let Some((at, class)) = pick_slot(model, pick, false) {
                heap.take_own_body(ground, at).unwrap();
                model.taken.retain(|(other, _)| *other != at);
                model.stamp(ground, at, Piece::Slot { class, body: true });
            }
        }
        Operation::Free(pick) => {
            if model.taken.is_empty() {
                return;
            }
            let (at, piece) = model.taken.swap_remove(pick % model.taken.len());
            model.check(ground, at, piece);
            free(heap, ground, at, piece).unwrap();
            assert_eq!(free(heap, ground, at, piece), Err(HeapError::NotTaken), "a double free passed");
        }
        Operation::Trim => {
            heap.trim(ground);
        }
        Operation::Rest => heap.release_idle(ground),
        Operation::Shrink => drop(ground.blocks.pool().trim(true)),
        Operation::Clear => {
            heap.clear(ground);
            for (at, piece) in model.taken.drain(..) {
                assert_eq!(free(heap, ground, at, piece), Err(HeapError::NotTaken), "{piece:?} was freed twice");
            }
            assert_eq!(ground.budget.used(), 0);
        }
    }
}

fn free(heap: &mut Heap, ground: Ground<'_>, at: Loc, piece: Piece) -> Result<(), HeapError> {
    match piece {
        // Both ways to free a slot, whichever the place says.
        Piece::Slot { class, body: true } if at.word() % 2 == 1 => {
            let block = ground.blocks.block(at.number()).unwrap();
            match heap.free_whole_slot(block, at, PageSlot::at(class, at.word()).unwrap()) {
                Some(Freed::Unlisted(page)) => heap.relist_page(ground, page),
                Some(Freed::Listed) => {}
                None => return Err(HeapError::NotTaken),
            }
            Ok(())
        }
        Piece::Slot { body, .. } => heap.free_slot(ground, at, true, body),
        Piece::Body { .. } => heap.free_slot(ground, at, false, true),
        Piece::Chunk { .. } => heap.free_chunk(ground, at),
    }
}

fn pick_slot(model: &Model, pick: usize, body: bool) -> Option<(Loc, usize)> {
    let slots: Vec<_> = model
        .taken
        .iter()
        .filter_map(|&(at, piece)| match piece {
            Piece::Slot { class, body: has } if has == body && class > 0 => Some((at, class)),
            _ => None,
        })
        .collect();
    (!slots.is_empty()).then(|| slots[pick % slots.len()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_heap_does_what_the_model_does(operations in prop::collection::vec(operation(), 1..400)) {
        run(&operations, u64::MAX, i64::MAX);
    }

    #[test]
    fn a_tight_budget_refuses_and_breaks_nothing(
        operations in prop::collection::vec(operation(), 1..300),
        pages in 0_u64..40,
    ) {
        run(&operations, pages << 16, i64::MAX);
    }

    #[test]
    fn a_refusing_system_breaks_nothing(operations in prop::collection::vec(operation(), 1..200), step in 0_i64..4) {
        run(&operations, u64::MAX, step);
    }
}

#[test]
fn steady_churn_reuses_what_it_frees() {
    let (blocks, budget) = (BlockSet::claimed(Pool::global(), 1).unwrap(), Budget::new(u64::MAX));
    let turns = Turns::default();
    let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
    let mut heap = Heap::new(0, u64::from);
    let class_of = |step: usize| 1 + step.wrapping_mul(0x9E37_79B9) % 60;
    let mut live: Vec<Loc> = (0..60_000).map(|step| heap.take_slot(ground, class_of(step)).unwrap().1).collect();
    let start = budget.used();
    for step in 0..600_000_usize {
        let pick = step.wrapping_mul(0x85EB_CA6B) % live.len();
        heap.free_slot(ground, live[pick], true, true).unwrap();
        live[pick] = heap.take_slot(ground, class_of(step + 60_000)).unwrap().1;
    }
    heap.validate(ground).unwrap();
    assert!(budget.used() * 100 <= start * 110, "{start} bytes grew to {}", budget.used());
    for at in live {
        heap.free_slot(ground, at, true, true).unwrap();
    }
    heap.trim(ground);
    assert_eq!(budget.used(), 0);
}

#[test]
fn full_blocks_may_have_huge_pages_and_emptied_ones_keep_to_small_ones() {
    const BLOCK: u64 = 4 << 20;
    type Take = fn(&mut Heap, Ground<'_>) -> Loc;
    let slots: Take = |heap, ground| heap.take_slot(ground, 40).unwrap().1;
    let chunks: Take = |heap, ground| heap.take_chunk(ground, 1000).unwrap().1;
    for take in [slots, chunks] {
        let twin: &'static Twin = Box::leak(Box::default());
        // With small blocks only: what they cost is not tried out when they are mapped.
        let (blocks, budget) =
            (BlockSet::claimed(&Pool::new(twin, Settings::unpooled()).unwrap(), 9).unwrap(), Budget::new(u64::MAX));
        let turns = Turns::default();
        let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
        let mut heap = Heap::new(0, u64::from);
        take(&mut heap, ground);
        assert_eq!((twin.advised_huge(), twin.advised_small()), (0, BLOCK));
        while blocks.len() < 2 {
            take(&mut heap, ground);
        }
        assert_eq!((twin.advised_huge(), twin.advised_small()), (BLOCK, 2 * BLOCK), "the first is full");
        heap.clear(ground);
        assert_eq!(
            (twin.advised_huge(), twin.advised_small()),
            (BLOCK, 3 * BLOCK),
            "the second has kept to small pages"
        );
        take(&mut heap, ground);
        while budget.used() < BLOCK {
            take(&mut heap, ground);
        }
        assert!(twin.advised_huge() >= 2 * BLOCK, "full once more");
        heap.validate(ground).unwrap();
    }
}

#[test]
fn absurd_chunks_are_refused_and_the_largest_is_served() {
    let (blocks, budget) = (BlockSet::claimed(Pool::global(), 1).unwrap(), Budget::new(u64::MAX));
    let turns = Turns::default();
    let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
    let mut heap = Heap::new(0, u64::from);
    for words in [1 << 18, 1 << 17, 1, 100_000] {
        heap.take_chunk(ground, words).unwrap();
        heap.validate(ground).unwrap();
    }
    for words in [(1 << 18) + 1, 500_000, 524_159, usize::MAX] {
        assert!(matches!(heap.take_chunk(ground, words), Err(HeapError::Blocks(_))));
    }
}

#[test]
fn a_freed_chunk_is_taken_again_for_the_same_size() {
    let (blocks, budget) = (BlockSet::claimed(Pool::global(), 1).unwrap(), Budget::new(u64::MAX));
    let turns = Turns::default();
    let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
    let mut heap = Heap::new(0, u64::from);
    for words in [130, 189, 255, 256, 257, 1000, 6251, 65_537] {
        let mut chunks: Vec<Loc> = (0..200).map(|_| heap.take_chunk(ground, words).unwrap().1).collect();
        let start = budget.used();
        for _ in 0..3 {
            for at in chunks.iter().step_by(2) {
                heap.free_chunk(ground, *at).unwrap();
            }
            for at in chunks.iter_mut().step_by(2) {
                *at = heap.take_chunk(ground, words).unwrap().1;
            }
        }
        assert_eq!(budget.used(), start, "{words} words");
        heap.validate(ground).unwrap();
        for at in chunks {
            heap.free_chunk(ground, at).unwrap();
        }
    }
}

#[test]
fn a_handful_of_objects_of_many_sizes_costs_little_memory() {
    let twin: &'static Twin = Box::leak(Box::default());
    let set = BlockSet::claimed(&Pool::new(twin, Settings::unpooled()).unwrap(), 1).unwrap();
    let (budget, turns) = (Budget::new(u64::MAX), Turns::default());
    let ground = Ground { blocks: &set, budget: &budget, turns: &turns };
    let mut heap = Heap::new(0, |_| 0);
    let classes = [1, 5, 9, 20, 30];
    for _ in 0..10 {
        for class in classes {
            heap.take_slot(ground, class).unwrap();
        }
    }
    heap.take_chunk(ground, 300).unwrap();
    assert_eq!(
        (twin.advised_small(), twin.advised_huge()),
        (2 * BLOCK_BYTES as u64, 0),
        "a block of slots, one of chunks"
    );
    assert_eq!(twin.populated(), 0, "the first page of each class is touched as it is filled");
    let pages = heap.counts().slot_pages;
    while heap.counts().slot_pages == pages {
        heap.take_slot(ground, classes[3]).unwrap();
    }
    assert_eq!(twin.populated(), PAGE_BYTES as u64, "whoever fills one will fill the next");
    heap.validate(ground).unwrap();
}

#[test]
fn what_is_emptied_is_filled_again_without_the_system() {
    type Take = fn(&mut Heap, Ground<'_>) -> Loc;
    type Empty = fn(&mut Heap, Ground<'_>, &[Loc]);
    let takes: [(Take, usize); 2] = [
        (|heap, ground| heap.take_slot(ground, 40).unwrap().1, 400_000),
        (|heap, ground| heap.take_chunk(ground, 1000).unwrap().1, 4000),
    ];
    let clear: Empty = |heap, ground, _| heap.clear(ground);
    let free: Empty = |heap, ground, places| {
        for &at in places {
            heap.free_chunk(ground, at).or_else(|_| heap.free_slot(ground, at, true, true)).unwrap();
        }
    };
    for ((take, count), empty) in takes.into_iter().flat_map(|take| [(take, clear), (take, free)]) {
        let twin: &'static Twin = Box::leak(Box::default());
        let pool = Pool::new(twin, keeping(1 << 30)).unwrap();
        let (blocks, budget, turns) = (BlockSet::claimed(&pool, 1).unwrap(), Budget::new(1 << 30), Turns::default());
        let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
        let mut heap = Heap::new(0, u64::from);
        let mut fill = || {
            let places: Vec<_> = (0..count).map(|_| take(&mut heap, ground)).collect();
            let used = budget.used();
            empty(&mut heap, ground, &places);
            heap.validate(ground).unwrap();
            pool.validate().unwrap();
            assert!(pool.stats().held_idle + (8 << 20) > used, "{used} bytes were in use, {:?}", pool.stats());
            used
        };
        let used = fill();
        let (mapped, populated) = (twin.mapped(), twin.populated());
        assert_eq!((fill(), fill()), (used, used));
        assert_eq!((twin.mapped(), twin.populated(), twin.decommitted()), (mapped, populated, 0));
        // `trim` is for now, not for the policy.
        heap.trim(ground);
        assert_eq!((pool.stats().held_idle, budget.used()), (0, 0));
        assert!(twin.decommitted() >= used - (1 << 20), "{} of {used}", twin.decommitted());
    }
}

/// Page 0 of each block was counted at every call: it never reads as zero, so it was taken for one that is kept.
#[test]
fn what_was_given_back_is_not_given_back_again() {
    for rests in [false, true] {
        let (blocks, budget) = (BlockSet::claimed(Pool::global(), 1).unwrap(), Budget::new(u64::MAX));
        let turns = Turns::default();
        let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
        let mut heap = Heap::new(0, u64::from);
        for count in [10_000, 1] {
            let taken: Vec<_> = (0..count).map(|_| heap.take_slot(ground, 60).unwrap().1).collect();
            let used = budget.used();
            assert_eq!(heap.trim(ground) & 0xFFFF, 0);
            for at in taken {
                heap.free_slot(ground, at, true, true).unwrap();
            }
            if rests {
                heap.release_idle(ground);
            }
            assert!((PAGE_BYTES as u64..=used).contains(&heap.trim(ground)), "{count} slots, rests: {rests}");
            assert_eq!((heap.trim(ground), heap.trim(ground)), (0, 0), "{count} slots, rests: {rests}");
            heap.validate(ground).unwrap();
        }
    }
}
