use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::os::Twin;
use gabion_blocks::{BlockSet, Budget, Pool, Settings, WORDS_PER_PAGE};

use super::{Chunks, Found, MOST_WORDS};
use crate::error::HeapError;
use crate::ground::{Ground, Turns};
use crate::loc::Loc;

/// What chunks stand on, of one test's own.
struct Own {
    set: BlockSet,
    budget: Budget,
    turns: Turns,
}

impl Own {
    fn new() -> Self {
        Self::with_budget(u64::MAX)
    }

    fn with_budget(bytes: u64) -> Self {
        let twin: &'static Twin = Box::leak(Box::default());
        let set = BlockSet::new(&Pool::new(twin, Settings::unpooled()).unwrap(), 1).unwrap();
        Self { set, budget: Budget::new(bytes), turns: Turns::default() }
    }

    fn ground(&self) -> Ground<'_> {
        Ground { blocks: &self.set, budget: &self.budget, turns: &self.turns }
    }
}

/// Numbers below a bound, one after another.
fn chance(mut state: u64) -> impl FnMut(u64) -> usize {
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % end) as usize
    }
}

#[test]
fn rooms_are_aligned_and_inside_their_chunks() {
    for chunks in [Chunks::new(3), Chunks::without_readers(3).unwrap()] {
        check_rooms(chunks);
    }
}

fn check_rooms(mut chunks: Chunks) {
    let own = Own::new();
    let (ground, set, budget) = (own.ground(), &own.set, &own.budget);
    let (mut live, mut below) = (Vec::new(), chance(88_172_645_463_325_252));
    for step in 0..20_000 {
        let (words, align) = (1 + below(1 << (4 + step % 14)), 2 << below(14));
        let (block, at) = chunks.take_aligned(ground, words, align).unwrap();
        assert!(at.word().is_multiple_of(align) && Chunks::room(block, at) >= words, "{words} words at {align}");
        assert_eq!(Chunks::look(block, at), Found::Used);
        assert_eq!(Chunks::look(block, Loc::new(at.number(), at.word() + 2)), Found::Inside);
        live.push(at);
        if below(4) == 0 {
            let at = live[below(live.len() as u64)];
            let block = set.block(at.number()).unwrap();
            let before = Chunks::room(block, at);
            let grown = chunks.grow(ground, at, before + words);
            assert!(Chunks::room(block, at) >= before + if grown { words } else { 0 }, "{before} and {words} words");
            assert_eq!(Chunks::look(block, at), Found::Used);
        }
        if below(40) > 18 {
            let at = live.swap_remove(below(live.len() as u64));
            let block = set.block(at.number()).unwrap();
            if step % 3 == 0 {
                Chunks::leave(block, at).unwrap();
                assert_eq!(Chunks::leave(block, at), Err(HeapError::NotTaken));
                assert_eq!(chunks.free(ground, at), Err(HeapError::NotTaken));
                chunks.free_left(ground, at).unwrap();
            } else {
                chunks.free(ground, at).unwrap();
            }
            assert_eq!(chunks.free(ground, at), Err(HeapError::NotTaken));
            assert_eq!(Chunks::leave(block, at), Err(HeapError::NotTaken));
            assert_eq!(Chunks::look(block, at), Found::Free);
        }
        if step % 100 == 0 {
            chunks.validate(ground).unwrap();
        }
    }
    for at in live {
        chunks.free(ground, at).unwrap();
    }
    chunks.trim(ground);
    chunks.validate(ground).unwrap();
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_was_freed_is_at_hand_for_its_size_and_free_for_everybody_else() {
    let own = Own::new();
    let ground = own.ground();
    let mut chunks = Chunks::without_readers(0).unwrap();
    for words in [129, 150, 200, 300, 513, 1000, 4096, 30_000] {
        let (block, at) = chunks.take(ground, words).unwrap();
        for _ in 0..3 {
            chunks.free(ground, at).unwrap();
            assert_eq!(chunks.free(ground, at), Err(HeapError::NotTaken));
            assert_eq!(chunks.free_left(ground, at), Err(HeapError::NotTaken));
            assert_eq!(Chunks::leave(block, at), Err(HeapError::NotTaken));
            assert!(!Chunks::is_used(block, at));
            assert_eq!(Chunks::look(block, at), Found::Free);
            chunks.validate(ground).unwrap();
            assert_eq!(chunks.take_ready(ground, words).unwrap().1, at, "{words} words");
            assert_eq!(Chunks::look(block, at), Found::Used);
        }
        chunks.free(ground, at).unwrap();
    }
    // One that is left comes back the same way.
    let (block, at) = chunks.take(ground, 700).unwrap();
    Chunks::leave(block, at).unwrap();
    chunks.free_left(ground, at).unwrap();
    assert_eq!(chunks.take(ground, 700).unwrap().1, at);
    chunks.validate(ground).unwrap();
}

#[test]
fn what_a_late_write_leaves_in_a_kept_chunk_does_no_harm() {
    let own = Own::new();
    let ground = own.ground();
    let mut chunks = Chunks::without_readers(0).unwrap();
    let all: Vec<Loc> = (0..6).map(|_| chunks.take(ground, 1000).unwrap().1).collect();
    for (step, &at) in all.iter().enumerate() {
        chunks.free(ground, at).unwrap();
        let room = own.set.block(at.number()).unwrap().words(at.word(), 1000);
        for word in room {
            word.store([0, 7, u64::MAX][step % 3], Relaxed);
        }
    }
    chunks.validate(ground).unwrap();
    chunks.empty_tray(ground);
    chunks.validate(ground).unwrap();
    assert_eq!(chunks.empty_block(ground, true), Some(all[0].number()), "all of it is one free chunk again");
}

#[test]
fn what_is_kept_is_joined_before_memory_is_touched() {
    let own = Own::new();
    let ground = own.ground();
    let mut chunks = Chunks::without_readers(0).unwrap();
    // In sizes of which no two are the same, so that nothing is taken from the tray.
    let all: Vec<Loc> = (0..200).map(|step| chunks.take(ground, 200 + 7 * step).unwrap().1).collect();
    let words: usize = all.iter().map(|&at| Chunks::room(own.set.block(at.number()).unwrap(), at) + 1).sum();
    assert_eq!(all[0].number(), all[199].number(), "one block is enough");
    for at in all {
        chunks.free(ground, at).unwrap();
    }
    chunks.validate(ground).unwrap();
    let used = own.budget.used();
    let (_, at) = chunks.take(ground, words / 10 * 9).unwrap();
    assert_eq!(own.budget.used(), used);
    chunks.validate(ground).unwrap();
    // What lies behind a chunk that grows is joined for it.
    let (block, behind) = chunks.take(ground, 500).unwrap();
    let room = Chunks::room(block, at);
    assert_eq!(behind.word(), at.word() + room + 1);
    chunks.free(ground, behind).unwrap();
    assert!(chunks.grow(ground, at, room + 400));
    chunks.validate(ground).unwrap();
}

#[test]
fn a_chunk_grows_over_all_that_is_kept_behind_it() {
    let own = Own::new();
    let ground = own.ground();
    for order in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [2, 5, 3, 1, 4]] {
        let mut chunks = Chunks::without_readers(0).unwrap();
        let all: Vec<Loc> = (0..7).map(|_| chunks.take(ground, 500).unwrap().1).collect();
        for which in order {
            chunks.free(ground, all[which]).unwrap();
        }
        assert!(!chunks.grow(ground, all[0], 6 * 500 + 60), "the last is in use");
        chunks.validate(ground).unwrap();
        assert!(chunks.grow(ground, all[0], 6 * 500));
        chunks.validate(ground).unwrap();
        assert!(Chunks::room(own.set.block(all[0].number()).unwrap(), all[0]) >= 6 * 500);
    }
}

#[test]
fn blocks_without_a_chunk_in_use_are_seen_whatever_is_kept() {
    let own = Own::new();
    let ground = own.ground();
    let mut below = chance(0x9E37_79B9_7F4A_7C15);
    let mut chunks = Chunks::without_readers(0).unwrap();
    for round in 0..5 {
        let mut live: Vec<Loc> = (0..2000).map(|_| chunks.take(ground, 130 + below(3000)).unwrap().1).collect();
        let full = chunks.block_count();
        assert!(full > 3);
        while !live.is_empty() {
            chunks.free(ground, live.swap_remove(below(live.len() as u64))).unwrap();
            while chunks.has_empty_block() {
                chunks.empty_block(ground, false).expect("it was just said that there is one");
                chunks.validate(ground).unwrap();
            }
        }
        assert_eq!(chunks.block_count(), 1, "in round {round}, of {full}");
        chunks.validate(ground).unwrap();
    }
    assert!(chunks.empty_block(ground, true).is_some());
    assert_eq!((chunks.block_count(), own.budget.used()), (0, 0));
    chunks.take(ground, 1000).unwrap();
    chunks.clear(ground);
    chunks.validate(ground).unwrap();
    assert_eq!(own.budget.used(), 0);
}

#[test]
fn the_tray_costs_next_to_no_memory() {
    let any: Vec<usize> = (130..4097).collect();
    for sizes in [&any[..], &[190, 512, 1024, 256, 2048, 150, 4096, 500]] {
        let touched = [Chunks::new(0), Chunks::without_readers(0).unwrap()].map(|mut chunks| {
            let own = Own::new();
            let (ground, mut below) = (own.ground(), chance(88_172_645_463_325_252));
            let mut live: Vec<Loc> =
                (0..1000).map(|_| chunks.take(ground, sizes[below(sizes.len() as u64)]).unwrap().1).collect();
            for _ in 0..100_000 {
                let which = below(live.len() as u64);
                chunks.free(ground, live[which]).unwrap();
                live[which] = chunks.take(ground, sizes[below(sizes.len() as u64)]).unwrap().1;
            }
            chunks.validate(ground).unwrap();
            chunks.counts().0
        });
        assert!(touched[1] * 100 <= touched[0] * 104, "{touched:?} pages");
    }
}

/// The links of what is free behind a chunk stand in the next page when the chunk ends one word before that.
#[test]
fn the_links_of_a_free_chunk_are_never_given_up() {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::unpooled();
    settings.pool_bytes = 1 << 30;
    let pool = Pool::new(twin, settings).unwrap();
    let (blocks, budget, turns) = (BlockSet::claimed(&pool, 1).unwrap(), Budget::new(u64::MAX), Turns::default());
    let ground = Ground { blocks: &blocks, budget: &budget, turns: &turns };
    let mut chunks = Chunks::new(0);
    for round in 0..3 {
        chunks.take(ground, MOST_WORDS / 2).unwrap();
        chunks.clear(ground);
        chunks.take(ground, 7935).unwrap();
        let (_, last) = chunks.take(ground, 125).unwrap();
        assert_eq!(last.word() - 1 + 126, WORDS_PER_PAGE - 1);
        chunks.validate(ground).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        // Once more in a page that is charged.
        chunks.free(ground, last).unwrap();
        chunks.take(ground, 125).unwrap();
        pool.trim(true);
        chunks.validate(ground).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        chunks.clear(ground);
    }
}

const PAGE_WORDS: usize = WORDS_PER_PAGE;

/// A budget is filled with chunks, and two neighbours among them are freed: what needs both is taken there, though the
/// end of the newest block, which is not charged yet, would fit better.
#[test]
fn charged_memory_serves_where_the_budget_has_no_page_left() {
    let own = Own::with_budget(128 * PAGE_WORDS as u64 * 8);
    let ground = own.ground();
    for mut chunks in [Chunks::new(3), Chunks::without_readers(3).unwrap()] {
        let mut live = Vec::new();
        while let Ok((_, at)) = chunks.take(ground, 3 * PAGE_WORDS - 100) {
            live.push(at);
        }
        let used = own.budget.used();
        assert!(used > 120 << 16, "{used} bytes are charged");
        for at in live.drain(10..14) {
            chunks.free(ground, at).unwrap();
        }
        chunks.take(ground, 7 * PAGE_WORDS).expect("four chunks of three pages are free");
        chunks.validate(ground).unwrap();
        assert_eq!(own.budget.used(), used, "nothing was charged anew");
        for at in live {
            chunks.free(ground, at).unwrap();
        }
        if chunks.has_empty_block() {
            chunks.take_off_all(ground, |_| ());
        }
        chunks.clear(ground);
    }
}

/// Chunks that stay are spread over all blocks: what lies between them is not charged any more when somebody else needs
/// it, and goes back when all that is idle does.
#[test]
fn pages_between_chunks_are_given_up() {
    let own = Own::with_budget(256 * PAGE_WORDS as u64 * 8);
    let ground = own.ground();
    let mut chunks = Chunks::new(3);
    let mut live = Vec::new();
    while let Ok((_, at)) = chunks.take(ground, 6000) {
        live.push(at);
    }
    let full = own.budget.used();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for (index, at) in live.into_iter().enumerate() {
        if index % 40 == 0 { stay.push(at) } else { go.push(at) }
    }
    for at in go {
        chunks.free(ground, at).unwrap();
    }
    chunks.validate(ground).unwrap();
    assert!(own.budget.used() > full / 2, "pages stay charged as long as nobody asks for them");
    let given = chunks.give_idle(ground);
    chunks.validate(ground).unwrap();
    assert_eq!(own.budget.used(), full - given);
    let most = 3 * stay.len() as u64 * 8 * PAGE_WORDS as u64;
    assert!(own.budget.used() <= most, "{} bytes are charged for {} chunks", own.budget.used(), stay.len());
    assert_eq!(chunks.give_idle(ground), 0);
    assert_eq!(chunks.trim(ground), 0, "this pool keeps nothing warm");
    let mut again = Vec::new();
    while let Ok((block, at)) = chunks.take(ground, 6000) {
        (0..6000).for_each(|word| block.word(at.word() + word).store(u64::MAX, Relaxed));
        again.push(at);
    }
    assert!(own.budget.used() > full - (1 << 20), "{} bytes of {full}", own.budget.used());
    chunks.validate(ground).unwrap();
    stay.into_iter().chain(again).for_each(|at| chunks.free(ground, at).unwrap());
    chunks.validate(ground).unwrap();
    chunks.trim(ground);
    assert_eq!(own.budget.used(), 0);
}
