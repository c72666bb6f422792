//! What an owner releases stays warm for him, and goes back as idle memory does.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::pool::Change;

const PERIOD: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;
const ALL: u64 = u64::MAX;
const BLOCK: u64 = BLOCK_BYTES as u64;
const PAGE: u64 = PAGE_BYTES as u64;
/// Room for as much as anybody could release.
const ANY: u64 = u64::MAX;

/// A pool whose policy looks only when it is told to, and a set of that many blocks that were written to.
fn released(blocks: usize, change: impl FnOnce(&mut Settings)) -> (BlockSet, &'static Twin, Vec<u32>) {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::default();
    (settings.pool_bytes, settings.follows, settings.trim_period) = (1 << 30, false, PERIOD);
    change(&mut settings);
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    let set = BlockSet::new(&pool, 0).unwrap();
    let numbers: Vec<_> = (0..blocks).map(|_| set.map().unwrap().0).collect();
    for &number in &numbers {
        (0..PAGES_PER_BLOCK).for_each(|page| write(&set, number, page, 1));
    }
    (set, twin, numbers)
}

fn word(page: usize) -> usize {
    (page * PAGE_BYTES + HEADER_BYTES) / 8
}

fn write(set: &BlockSet, number: u32, page: usize, value: u64) {
    set.block(number).unwrap().word(word(page)).store(value, Ordering::Relaxed);
}

fn read(set: &BlockSet, number: u32, page: usize) -> u64 {
    set.block(number).unwrap().word(word(page)).load(Ordering::Relaxed)
}

/// Bytes of the set that are idle, after a check of all equations.
fn idle(set: &BlockSet) -> u64 {
    set.pool().validate().unwrap();
    let stats = set.pool().stats();
    assert!(stats.held_idle <= stats.held && stats.mapped == stats.in_use + stats.idle);
    stats.held_idle
}

fn look(set: &BlockSet, quarters: u32) -> u64 {
    set.pool().shared().look(PERIOD / 4 * quarters)
}

#[test]
fn what_is_released_is_idle_and_comes_back_as_it_was() {
    let (set, twin, numbers) = released(3, |_| {});
    for &number in &numbers {
        set.release(number, ALL, 0, ANY);
        // Once is enough.
        set.release(number, ALL, 0, ANY);
    }
    assert_eq!((idle(&set), set.emptied(numbers[1])), (3 * BLOCK, ALL));
    assert_eq!(set.pool().stats().held, 3 * BLOCK);
    assert_eq!(set.claim(numbers[1], 0b110), 0b110);
    assert_eq!((read(&set, numbers[1], 1), idle(&set)), (1, 3 * BLOCK - 2 * PAGE));
    assert_eq!(set.claim(numbers[1], 0b110), 0, "they are in use");
    assert_eq!(set.claim(numbers[1], ALL), !0b110);
    assert_eq!((idle(&set), twin.decommitted()), (2 * BLOCK, 0));
    drop(set);
}

#[test]
fn the_policy_keeps_what_was_needed_for_a_period_and_nothing_for_two() {
    let (set, twin, numbers) = released(4, |_| {});
    for &number in &numbers {
        set.release(number, ALL, 0, ANY);
    }
    for quarter in 1..=4 {
        assert_eq!(look(&set, quarter), 0, "this period or the last one needed it");
        assert_eq!(idle(&set), 4 * BLOCK);
    }
    for quarter in 5..=8 {
        look(&set, quarter);
    }
    assert_eq!((idle(&set), twin.decommitted()), (0, 4 * (BLOCK - HEADER_BYTES as u64)));
    assert_eq!(set.pool().stats().trimmed, 4 * BLOCK);
    assert_eq!((set.claim(numbers[0], ALL), read(&set, numbers[0], 7)), (0, 0));
    set.pool().validate().unwrap();
}

#[test]
fn a_steady_load_is_warm_for_ever_and_half_of_it_keeps_half() {
    let (set, twin, numbers) = released(8, |_| {});
    let turn = |quarter: u32, blocks: usize| {
        for &number in &numbers[..blocks] {
            set.claim(number, ALL);
            (0..PAGES_PER_BLOCK).for_each(|page| write(&set, number, page, 1));
        }
        numbers[..blocks].iter().rev().for_each(|&number| set.release(number, ALL, 0, ANY));
        look(&set, quarter);
    };
    (1..20).for_each(|quarter| turn(quarter, 8));
    assert_eq!((twin.decommitted(), idle(&set)), (0, 8 * BLOCK));
    (20..32).for_each(|quarter| turn(quarter, 4));
    assert_eq!(idle(&set), 4 * BLOCK);
    let gone = twin.decommitted();
    (32..40).for_each(|quarter| turn(quarter, 4));
    assert_eq!((twin.decommitted(), idle(&set)), (gone, 4 * BLOCK), "the same half each time");
}

#[test]
fn trimming_and_shortage_take_all_of_it_at_once() {
    let (set, twin, numbers) = released(2, |_| {});
    for &number in &numbers {
        set.release(number, 0xFF00, 0, ANY);
    }
    assert_eq!(set.pool().trim(true), 16 * PAGE);
    assert_eq!((idle(&set), twin.decommitted(), set.pool().trim(true)), (0, 16 * PAGE, 0));
    assert!((8..16).all(|page| read(&set, numbers[0], page) == 0));
    assert_eq!((read(&set, numbers[0], 7), read(&set, numbers[0], 16)), (1, 1), "the others are in use");
    assert_eq!(set.claim(numbers[0], 0xFF00), 0);
    set.release(numbers[1], 0xFF, 0, ANY);
    twin.refuse_some_after(0, 1);
    set.map().unwrap();
    assert_eq!(idle(&set), 0, "a mapping was refused");
}

#[test]
fn no_more_is_kept_than_the_pool_keeps() {
    let (set, twin, numbers) = released(4, |settings| settings.pool_bytes = 2 * BLOCK);
    for &number in &numbers {
        set.release(number, ALL, 0, ANY);
    }
    assert_eq!((idle(&set), twin.decommitted()), (2 * BLOCK, 2 * (BLOCK - HEADER_BYTES as u64)));
    // A buffer of the pool, for which there is room when some of it goes.
    let buffer = set.pool().rent(&Request::new(BLOCK_BYTES)).unwrap();
    assert_eq!(idle(&set), BLOCK);
    drop(buffer);
    assert_eq!((set.pool().stats().idle, idle(&set)), (BLOCK, BLOCK));
    set.pool().configure(&Change { pool_bytes: Some(MIB), ..Change::default() }).unwrap();
    assert!(set.pool().stats().idle + idle(&set) <= MIB);
}

#[test]
fn the_total_limit_bounds_what_is_mapped_and_idle_together() {
    let (set, _, numbers) = released(4, |settings| settings.total_limit = 4 * BLOCK);
    for &number in &numbers {
        set.release(number, ALL, 0, ANY);
    }
    assert_eq!(idle(&set), 4 * BLOCK);
    let rent = || set.pool().rent(&Request::new(BLOCK_BYTES));
    let mut buffers: Vec<_> = (0..4_u64)
        .map(|number| {
            let buffer = rent().unwrap();
            assert!(set.pool().stats().mapped + idle(&set) <= 4 * BLOCK, "after {number}");
            buffer
        })
        .collect();
    assert_eq!(idle(&set), 0);
    assert!(rent().is_err());
    buffers.pop();
    set.claim(numbers[0], ALL);
    set.release(numbers[0], ALL, 0, ANY);
    assert_eq!(idle(&set), 0, "what is idle in the pool fills the limit");
    set.pool().trim(true);
    set.claim(numbers[0], ALL);
    set.release(numbers[0], ALL, 0, ANY);
    assert_eq!(idle(&set), BLOCK);
    set.pool().configure(&Change { total_limit: Some(3 * BLOCK), ..Change::default() }).unwrap();
    assert_eq!((idle(&set), set.pool().stats().mapped), (0, 3 * BLOCK));
}

#[test]
fn a_set_keeps_no_more_than_it_has_room_for() {
    let (set, twin, numbers) = released(4, |_| {});
    set.release(numbers[0], ALL, 0, BLOCK);
    set.release(numbers[1], ALL, 0, BLOCK);
    assert_eq!((idle(&set), set.emptied(numbers[0])), (BLOCK, ALL));
    set.fit(BLOCK);
    assert_eq!(idle(&set), BLOCK);
    // What the policy took leaves room again, although nobody has told the set.
    set.pool().trim(true);
    set.release(numbers[2], ALL, 0, BLOCK);
    assert_eq!((idle(&set), set.emptied(numbers[2])), (BLOCK, ALL));
    set.fit(BLOCK - 1);
    assert_eq!(idle(&set), 0);
    assert!(twin.decommitted() >= 3 * (BLOCK - HEADER_BYTES as u64));
}

#[test]
fn pages_that_were_never_used_take_no_memory() {
    let (set, _, numbers) = released(1, |_| {});
    let small = set.map_as(true).unwrap().0;
    set.release(small, ALL, !0b11, ANY);
    assert_eq!((set.emptied(small), idle(&set)), (0b11, 2 * PAGE));
    // Huge pages bring memory for all of a block.
    set.held(numbers[0]).unwrap().note_no_holes();
    set.release(numbers[0], ALL, !0b11, ANY);
    assert_eq!((set.emptied(numbers[0]), idle(&set)), (ALL, BLOCK + 2 * PAGE));
}

#[test]
fn when_memory_is_short_all_of_it_goes() {
    let root = std::env::temp_dir().join(format!("gabion-released-{}", std::process::id()));
    let pressure = root.join("proc/pressure/memory");
    std::fs::create_dir_all(pressure.parent().unwrap()).unwrap();
    let twin: &'static Twin = Box::leak(Box::default());
    let settings = Settings { pool_bytes: 1 << 30, follows: false, trim_period: PERIOD, ..Settings::default() };
    let pool = Pool::with_root(twin, settings, root.clone()).unwrap();
    let set = BlockSet::new(&pool, 0).unwrap();
    let number = set.map().unwrap().0;
    set.release(number, ALL, 0, ANY);
    for (text, left) in [("some avg10=0.00\n", BLOCK), ("some avg10=10.00\n", 0)] {
        std::fs::write(&pressure, text).unwrap();
        look(&set, 0);
        assert_eq!(idle(&set), left, "{text}");
    }
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn blocks_go_back_with_what_is_released_in_them() {
    let (set, twin, numbers) = released(3, |_| {});
    set.release(numbers[0], ALL, 0, ANY);
    set.release(numbers[1], 0xF0, 0, ANY);
    set.decommit_pages(numbers[2], 0b11 << 3);
    set.pool().validate().unwrap();
    // SAFETY: nobody uses the block.
    unsafe { set.give_back(numbers[0]) };
    assert_eq!((set.pool().stats().idle, idle(&set)), (BLOCK, 4 * PAGE), "it is warm, for everybody now");
    let pool = set.pool().clone();
    drop(set);
    let stats = pool.stats();
    assert_eq!((stats.idle, stats.held, stats.held_idle), (2 * BLOCK, 0, 0), "except for the one with holes");
    pool.validate().unwrap();
    drop(pool);
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn who_takes_a_page_back_finds_all_of_it_or_zeros_whatever_goes_meanwhile() {
    let (set, _, numbers) = released(4, |settings| settings.trim_period = Duration::from_millis(1));
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    std::thread::scope(|scope| {
        for all in [true, false, true] {
            let (set, stop) = (&set, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    set.pool().trim(all);
                    std::thread::yield_now();
                }
            });
        }
        let owners: Vec<_> = numbers
            .iter()
            .map(|&number| {
                let set = &set;
                scope.spawn(move || {
                    let mut random = u64::from(number) + 1;
                    let (mut held, mut stamps) = (ALL, [1; PAGES_PER_BLOCK]);
                    for round in 2..rounds {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let pages = random ^ random >> 29;
                        let warm = set.claim(number, pages);
                        assert_eq!(warm & held, 0, "of these nothing had been given up");
                        for page in (0..PAGES_PER_BLOCK).filter(|page| pages >> page & 1 == 1) {
                            let expected = if (warm | held) >> page & 1 == 1 { stamps[page] } else { 0 };
                            assert_eq!(read(set, number, page), expected, "page {page} in round {round}");
                            write(set, number, page, round);
                            stamps[page] = round;
                        }
                        held |= pages;
                        let free = held & random.rotate_left(17);
                        held &= !free;
                        set.release(number, free, 0, if round % 7 == 0 { 0 } else { ANY });
                        if round % 50 == 0 {
                            set.fit(PAGE);
                        }
                    }
                })
            })
            .collect();
        for owner in owners {
            owner.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    set.pool().trim(true);
    assert_eq!(idle(&set), 0);
}

#[test]
fn the_first_block_of_one_set_is_that_of_the_next() {
    let (plain, twin, _) = released(0, |_| {});
    let pool = plain.pool().clone();
    let mut before = None;
    for round in 0..4 {
        let set = BlockSet::claimed(&pool, 1).unwrap();
        let (number, zero) = set.map().unwrap();
        let base = set.base(number).unwrap();
        assert!(zero && before.is_none_or(|before| before == base));
        before = Some(base);
        let header = set.block(number).unwrap();
        assert!((0..HEADER_BYTES / 8).all(|word| header.word(word).load(Ordering::Relaxed) == 0));
        header.word(7).store(7, Ordering::Relaxed);
        assert_eq!(idle(&set), 3 * PAGE * u64::from(round > 0), "what is warm is idle until it is claimed");
        assert_eq!(set.claim(number, 0b1111), if round > 0 { 0b111 } else { 0 });
        (0..3).for_each(|page| assert_eq!(read(&set, number, page), round));
        assert_eq!(read(&set, number, 3), 0);
        (0..3).for_each(|page| write(&set, number, page, round + 1));
        set.decommit_pages(number, 1 << 3);
        let small = plain.map_as(true).unwrap().0;
        assert!(plain.base(small) != before, "others do not claim what they use");
        drop(set);
        assert_eq!((idle(&plain), pool.stats().idle), (3 * PAGE, 0));
        assert_eq!(pool.stats().held, BLOCK * (2 + round));
    }
    drop(plain);
    assert_eq!((pool.stats().held, twin.mapped()), (BLOCK, BLOCK));
    assert_eq!(pool.trim(true), 3 * PAGE);
    assert_eq!((pool.stats().held, pool.stats().held_idle, twin.mapped()), (0, 0, 0));
    pool.validate().unwrap();
}

#[test]
fn first_blocks_that_wait_go_by_the_policy() {
    let (plain, twin, _) = released(0, |_| {});
    let pool = plain.pool().clone();
    let use_some = |sets: usize| {
        let sets: Vec<_> = (0..sets).map(|_| BlockSet::claimed(&pool, 1).unwrap()).collect();
        for set in &sets {
            set.claim(set.map().unwrap().0, 0b11);
        }
    };
    use_some(6);
    assert_eq!((idle(&plain), twin.mapped()), (12 * PAGE, 6 * BLOCK));
    for quarter in 1..=12 {
        use_some(3);
        look(&plain, quarter);
    }
    assert_eq!((idle(&plain), twin.mapped()), (6 * PAGE, 3 * BLOCK));
    pool.shared().evict(PAGE);
    assert_eq!((idle(&plain), twin.mapped()), (4 * PAGE, 2 * BLOCK));
    pool.configure(&Change { pool_bytes: Some(PAGE), ..Change::default() }).unwrap();
    assert!(idle(&plain) <= PAGE);
    use_some(3);
    assert!(idle(&plain) <= PAGE);
    drop((pool, plain));
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn who_may_write_late_hands_no_block_on_and_takes_none_over() {
    let (plain, twin, _) = released(0, |_| {});
    let pool = plain.pool().clone();
    drop(plain);
    let set = BlockSet::claimed(&pool, 1).unwrap();
    let number = set.map().unwrap().0;
    set.claim(number, 0b11);
    let waiting = set.base(number);
    drop(set);
    assert_eq!(twin.mapped(), BLOCK);
    let set = BlockSet::claimed_alone(&pool, 1).unwrap();
    let number = set.map().unwrap().0;
    assert!(set.base(number) != waiting, "what was used before");
    assert_eq!(set.claim(number, 0b11), 0);
    write(&set, number, 1, 7);
    // Given back at once: it reads as zero, until a reader comes late and writes.
    set.release(number, 0b10, 0, 0);
    assert_eq!(read(&set, number, 1), 0);
    write(&set, number, 1, 7);
    drop(set);
    assert_eq!(twin.mapped(), BLOCK, "nobody gets what was written late");
    let set = BlockSet::claimed(&pool, 1).unwrap();
    let number = set.map().unwrap().0;
    assert_eq!((set.base(number), set.claim(number, 0b11)), (waiting, 0b11));
    pool.validate().unwrap();
}

#[test]
fn what_a_refilled_block_has_of_huge_pages_is_taken_and_goes_back() {
    let (set, twin, numbers) = released(1, |_| {});
    let (number, pool) = (numbers[0], set.pool().clone());
    set.note_touched(number);
    // Whether huge pages pay now is the machine's business.
    for _ in 0..3 {
        set.release(number, ALL, 0, ANY);
        pool.trim(true);
        assert_eq!((pool.shared().ledger.gone(), idle(&set)), (BLOCK, 0));
        let before = twin.advised_huge();
        set.note_refill(number);
        let huge = twin.advised_huge() - before >= BLOCK;
        assert_eq!(pool.shared().ledger.gone(), if huge { BLOCK / 2 } else { BLOCK });
        assert_eq!(set.claim(number, 1), 0);
        set.release(number, ALL, !1, ANY);
        assert_eq!(idle(&set), if huge { BLOCK / 2 + PAGE } else { PAGE });
        set.claim(number, ALL);
        (0..PAGES_PER_BLOCK).for_each(|page| write(&set, number, page, 1));
        set.note_touched(number);
    }
}

#[test]
fn a_first_block_that_was_filled_is_a_first_block_again() {
    let (plain, twin, _) = released(0, |_| {});
    for round in 0..3 {
        let set = BlockSet::claimed(plain.pool(), 1).unwrap();
        let (first, second) = (set.map().unwrap().0, set.map().unwrap().0);
        assert_eq!(set.claim(first, ALL), if round > 0 { ALL } else { 0 });
        set.note_touched(first);
        set.fit(0);
        assert!(set.base(second) != set.base(first));
    }
    assert_eq!((plain.pool().stats().idle, idle(&plain), twin.mapped()), (BLOCK, BLOCK, 2 * BLOCK));
    let set = BlockSet::claimed(plain.pool(), 1).unwrap();
    set.map().unwrap();
    set.fit(PAGE);
    assert_eq!(idle(&set), 0, "there is no room for it in a small set");
}
