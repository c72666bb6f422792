//! The set's own tests.

mod released;

use std::mem::MaybeUninit;

use super::*;
use crate::os::Twin;
use crate::pool::{Request, Settings};
use crate::system;

fn unpooled(os: &'static dyn Os) -> Pool {
    Pool::new(os, Settings::unpooled()).unwrap()
}

#[test]
fn a_block_is_found_by_its_owner_only() {
    let (mine, other) = (BlockSet::new(Pool::global(), 1).unwrap(), BlockSet::new(Pool::global(), 1).unwrap());
    let number = mine.map().unwrap().0;
    mine.block(number).unwrap().word(7).store(42, Ordering::Relaxed);
    assert_eq!(mine.block(number).unwrap().word(7).load(Ordering::Relaxed), 42);
    assert!(other.block(number).is_none());
    assert!(mine.block(u32::MAX).is_none());
    mine.block(number).unwrap().word(700).store(42, Ordering::Relaxed);
    mine.decommit_pages(number, 1);
    assert_eq!(mine.block(number).unwrap().word(7).load(Ordering::Relaxed), 42);
    assert_eq!(mine.block(number).unwrap().word(700).load(Ordering::Relaxed), 0);
}

#[test]
fn a_refusal_leaves_everything_as_it_was() {
    let twin: &'static Twin = Box::leak(Box::default());
    let set = BlockSet::new(&unpooled(twin), 1).unwrap();
    set.map().unwrap();
    twin.refuse_after(0);
    assert!(matches!(set.map(), Err(BlockError::NoMemory { .. })));
    assert_eq!(set.len(), 1);
    drop(set);
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn words_and_bytes_agree() {
    let set = BlockSet::new(&unpooled(system()), 1).unwrap();
    let (number, _) = set.map().unwrap();
    let block = set.block(number).unwrap();
    for len in 0..200 {
        let bytes: Vec<u8> = (1..=len).collect();
        for at in [100, 101] {
            block.write(at, &bytes);
            let mut back = vec![0xEE; bytes.len() + 9];
            block.read(at, &mut back[..bytes.len()]);
            assert_eq!(back[..bytes.len()], bytes);
            assert_eq!(back[bytes.len()..], [0xEE; 9], "written beyond its end");
        }
        for first in 0..bytes.len() {
            let mut back = [MaybeUninit::new(0xEE); 209];
            block.read_anew(8 * 101 + first, &mut back[..bytes.len() - first]);
            // SAFETY: every byte was set, before and now.
            let back = back.map(|byte| unsafe { byte.assume_init() });
            let (read, beyond) = back.split_at(bytes.len() - first);
            assert_eq!(read, &bytes[first..]);
            assert!(beyond.iter().all(|&byte| byte == 0xEE), "written beyond its end");
        }
    }
}
#[test]
fn blocks_are_taken_warm_and_say_whether_they_are_zero() {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::unpooled();
    settings.pool_bytes = 1 << 30;
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    let mut used: Vec<_> = (0..3).map(|_| pool.rent(&Request::new(BLOCK_BYTES)).unwrap()).collect();
    for buffer in &mut used {
        buffer.as_mut_slice().fill(0xFF);
    }
    drop(used);
    let set = BlockSet::new(&pool, 1).unwrap();
    for round in 0..5 {
        let (number, zero) = set.map().unwrap();
        let block = set.block(number).unwrap();
        assert_eq!(zero, !(1..4).contains(&round));
        let end = if zero { BLOCK_BYTES } else { HEADER_BYTES } / 8;
        assert!((0..end).all(|word| block.word(word).load(Ordering::Relaxed) == 0));
        block.word(12_345).store(9, Ordering::Relaxed);
    }
    // The first is fresh, then come the three that were warm.
    assert_eq!((pool.stats().fresh, pool.stats().held, pool.stats().mapped), (5, 20 << 20, 0));
    let numbers = set.numbers();
    pool.validate().unwrap();
    drop(set);
    assert!(BlockSet::new(&pool, 1).unwrap().block(numbers[0]).is_none());
    // All but the first, of which little was touched.
    assert_eq!((pool.stats().held, pool.stats().idle), (0, 16 << 20));
    let again = pool.rent(&Request::new(BLOCK_BYTES).clean()).unwrap();
    assert!(again.as_slice().iter().all(|&byte| byte == 0));
    pool.validate().unwrap();
    drop((again, pool));
    assert_eq!(twin.mapped(), 0);
}

/// What the system was told about the memory at `base`: "hg" for huge pages, "nh" for small ones, neither at first.
#[cfg(all(target_os = "linux", not(miri)))]
fn advice(base: NonNull<u8>) -> Option<&'static str> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = false;
    let flags = smaps.lines().find_map(|line| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let ends = range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
        if let Some((Ok(start), Ok(end))) = ends {
            here = (start..end).contains(&base.addr().get());
        }
        line.strip_prefix("VmFlags:").filter(|_| here)
    });
    flags.unwrap().split_whitespace().find_map(|flag| ["hg", "nh"].into_iter().find(|&other| other == flag))
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn memory_that_was_given_back_is_not_brought_back_by_huge_pages() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        return;
    }
    let set = BlockSet::new(&unpooled(system()), 1).unwrap();
    let small = set.map().unwrap().0;
    let (number, _) = set.map().unwrap();
    let (first, last) = (set.base(number).unwrap(), set.block(number).unwrap().word(BLOCK_BYTES / 8 - 1));
    set.note_refill(small);
    assert_eq!(advice(set.base(small).unwrap()), Some("nh"), "most of a small block may never be touched");
    for round in 0..3 {
        last.store(7, Ordering::Relaxed);
        set.note_touched(number);
        // SAFETY: the last page of a block that is mapped.
        let ends = [first, unsafe { first.add(BLOCK_BYTES - PAGE_BYTES) }];
        assert!(round == 0 || ends.map(advice) == [Some("hg"); 2], "all of it is in use");
        set.decommit_pages(number, 0b11 << 3);
        assert_eq!(ends.map(advice), [Some("nh"); 2], "the holes would be filled");
        assert_eq!(last.load(Ordering::Relaxed), 7);
    }
    set.note_touched(small);
    assert_eq!(advice(set.base(small).unwrap()), Some("hg"));
    // Whether huge pages pay now is the machine's business. All of the block goes one way.
    set.decommit_pages(small, u64::MAX);
    set.note_refill(small);
    let first = set.base(small).unwrap();
    let huge = set.held(small).unwrap().note_holes();
    // SAFETY: the last page of a block that is mapped.
    let ends = [first, unsafe { first.add(BLOCK_BYTES - PAGE_BYTES) }];
    assert_eq!(ends.map(advice), [Some(if huge { "hg" } else { "nh" }); 2]);
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_block_that_went_without_huge_pages_may_have_them_when_it_is_full() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        return;
    }
    let set = BlockSet::new(&unpooled(system()), 0).unwrap();
    let number = set.map().unwrap().0;
    let base = set.base(number).unwrap();
    // As if they had been too dear when it was mapped.
    set.held(number).unwrap().note_small();
    // SAFETY: a block that is mapped.
    unsafe { system().advise_small(base, BLOCK_BYTES) };
    set.note_touched(number);
    assert_eq!(advice(base), Some("hg"));
    // SAFETY: as above.
    unsafe { system().advise_small(base, BLOCK_BYTES) };
    set.note_touched(number);
    assert_eq!(advice(base), Some("nh"), "asked for once only");
}

#[test]
fn pages_are_made_ready_inside_a_block_of_the_set_only() {
    let set = BlockSet::new(&unpooled(system()), 1).unwrap();
    let number = set.map().unwrap().0;
    let word = |index: usize| set.block(number).unwrap().word(index).load(Ordering::Relaxed);
    set.block(number).unwrap().word(7).store(42, Ordering::Relaxed);
    for (first, pages) in [(0, 0), (0, 1), (0, PAGES_PER_BLOCK), (PAGES_PER_BLOCK - 1, 1), (PAGES_PER_BLOCK, 0)] {
        assert_eq!(set.populate_pages(number, first, pages), Ok(()), "{pages} pages from {first} on");
    }
    set.populate(number, PAGES_PER_BLOCK - 1).unwrap();
    assert_eq!((word(7), word(BLOCK_BYTES / 8 - 1)), (42, 0), "what the pages hold stays");
    let most = usize::MAX;
    for (first, pages) in [(0, PAGES_PER_BLOCK + 1), (PAGES_PER_BLOCK, 1), (most, 1), (1, most), (most / PAGE_BYTES, 2)]
    {
        let refused = set.populate_pages(number, first, pages);
        assert!(matches!(refused, Err(BlockError::Setting { .. })), "{pages} pages from {first} on: {refused:?}");
    }
    assert!(set.populate(number, most).is_err() && set.populate(u32::MAX, 0).is_err());
    assert!(BlockSet::new(&unpooled(system()), 1).unwrap().populate(number, 0).is_err(), "another set's");
}

#[test]
fn a_small_block_is_kept_warm_once_all_of_it_was_touched() {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::unpooled();
    settings.pool_bytes = 1 << 30;
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    let set = BlockSet::new(&pool, 0).unwrap();
    for touched in [false, true] {
        let (number, zero) = set.map_as(true).unwrap();
        assert!(zero);
        if touched {
            set.note_touched(number);
        }
        // SAFETY: nobody uses the block.
        unsafe { set.give_back(number) };
        assert_eq!(pool.stats().idle, if touched { BLOCK_BYTES as u64 } else { 0 });
    }
    assert!(!set.map_as(false).unwrap().1);
    pool.validate().unwrap();
}

#[test]
fn a_block_that_is_given_back_is_gone_and_the_others_stay() {
    let twin: &'static Twin = Box::leak(Box::default());
    let set = BlockSet::new(&unpooled(twin), 1).unwrap();
    let numbers: Vec<_> = (0..3).map(|_| set.map().unwrap().0).collect();
    let base = set.base(numbers[1]).unwrap();
    assert_eq!(base.addr().get() % BLOCK_BYTES, 0);
    // SAFETY: nobody uses the block.
    unsafe { set.give_back(numbers[1]) };
    assert!(set.base(numbers[1]).is_none() && set.block(numbers[1]).is_none());
    assert!(set.block(numbers[0]).is_some() && set.block(numbers[2]).is_some());
    assert_eq!((set.len(), twin.mapped()), (2, 2 * BLOCK_BYTES as u64));
    // SAFETY: as above; it is not there any more.
    unsafe { set.give_back(numbers[1]) };
    drop(set.hold());
    drop(set);
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn blocks_are_given_back_in_any_order() {
    let twin: &'static Twin = Box::leak(Box::default());
    let set = BlockSet::new(&unpooled(twin), 1).unwrap();
    let (mut numbers, mut random) = (Vec::new(), 1_u64);
    for step in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if step < 200 && random >> 62 != 0 {
            numbers.push(set.map().unwrap().0);
        } else if !numbers.is_empty() {
            let number = numbers.swap_remove((random >> 33) as usize % numbers.len());
            // SAFETY: nobody uses the block.
            unsafe { set.give_back(number) };
            assert!(set.block(number).is_none());
        }
        let (mut left, mut all) = (set.numbers(), numbers.clone());
        left.sort_unstable();
        all.sort_unstable();
        assert_eq!(left, all);
        assert!(left.iter().all(|&number| set.block(number).is_some()));
    }
    assert_eq!((set.len(), twin.mapped()), (numbers.len(), (numbers.len() * BLOCK_BYTES) as u64));
}

/// Each took a look at all blocks that had come after it.
#[test]
fn a_block_is_given_back_wherever_it_stands() {
    let twin: &'static Twin = Box::leak(Box::default());
    let set = BlockSet::new(&unpooled(twin), 0).unwrap();
    let numbers: Vec<_> = (0..300).map(|_| set.map().unwrap().0).collect();
    for (index, &number) in numbers.iter().enumerate() {
        let place = set.held(number).unwrap().place();
        assert_eq!(lock(&set.blocks)[place].0, number);
        if index % 3 == 0 {
            // SAFETY: nobody uses the block.
            unsafe { set.give_back(number) };
        }
    }
    assert_eq!(set.len(), 200);
}

#[test]
fn a_set_draws_on_none_of_the_pools_limits() {
    let mut settings = Settings::unpooled();
    (settings.total_limit, settings.allocation_limit) = (0, 0);
    let pool = Pool::new(system(), settings).unwrap();
    let set = BlockSet::new(&pool, 1).unwrap();
    set.map().unwrap();
    set.map().unwrap();
    assert!(pool.rent(&Request::new(1)).is_err());
    assert_eq!(pool.stats().held, 8 << 20);
    pool.validate().unwrap();
}
