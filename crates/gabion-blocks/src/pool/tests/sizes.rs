//! Every size is served, by the tier that is meant for it.

use super::{MIB, close, pool, pool_with, rent};
use crate::error::BlockError;
use crate::pool::span::records_of;
use crate::pool::{Buffer, Change, Pool, Request};
use crate::sync::Ordering;

/// The sizes around every bound.
const SIZES: [usize; 17] = [
    0,
    1,
    7,
    63,
    64,
    65,
    1023,
    1024,
    4096,
    65_537,
    MIB - 1,
    MIB,
    MIB + 1,
    4 * MIB,
    4 * MIB + 1,
    9 * MIB + 12_345,
    40 * MIB,
];

#[test]
fn a_buffer_has_the_length_that_was_asked_for_and_can_be_filled() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = SIZES.iter().map(|&bytes| rent(&pool, bytes)).collect();
    for (stamp, buffer) in live.iter_mut().enumerate() {
        buffer.as_mut_slice().fill(stamp as u8);
    }
    for (stamp, (buffer, bytes)) in live.iter().zip(SIZES).enumerate() {
        assert_eq!((buffer.len(), buffer.is_empty()), (bytes, bytes == 0));
        assert!(buffer.as_slice().iter().all(|&byte| byte == stamp as u8));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
    }
    pool.validate().unwrap();
    drop(live);
    close(pool, twin);
}

#[test]
fn the_capacity_is_within_the_promised_bounds() {
    let (pool, twin) = pool();
    for bytes in SIZES.into_iter().chain([100, 5000, 300_000, 700_001, 3 * MIB, 17 * MIB]) {
        let buffer = rent(&pool, bytes);
        let taken = pool.stats().in_use as usize;
        let most = match bytes {
            0..=256 => 256,
            257..=MIB => bytes + bytes / 4,
            _ if bytes <= 4 * MIB => 4 * MIB,
            _ => bytes + bytes / 8,
        };
        assert!(buffer.capacity() >= bytes && taken <= most, "{bytes} bytes take {taken}");
    }
    close(pool, twin);
}

#[test]
fn clean_memory_reads_as_zero_ten_times_over() {
    let (pool, twin) = pool();
    for bytes in SIZES {
        for _ in 0..10 {
            let mut buffer = pool.rent(&Request::new(bytes).clean()).unwrap();
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0), "{bytes}");
            buffer.as_mut_slice().fill(0xAB);
        }
    }
    close(pool, twin);
}

#[test]
fn fresh_memory_is_not_cleared() {
    // Clearing would touch the pages; what was never touched is not resident.
    let (pool, _) = pool();
    let buffer = pool.rent(&Request::new(64 * MIB).clean()).unwrap();
    let mut resident = vec![0_u8; 64 * MIB / 4096];
    let start = buffer.as_ptr().wrapping_sub(buffer.as_ptr() as usize % 4096);
    // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
    let done = unsafe { libc::mincore(start.cast_mut().cast(), 64 * MIB, resident.as_mut_ptr().cast()) };
    assert_eq!(done, 0);
    let pages = resident.iter().filter(|&&page| page & 1 == 1).count();
    // One huge page may have been touched to see what it costs.
    assert!(pages <= 1024, "{pages} pages were touched");
}

#[test]
fn the_same_memory_comes_back_last_in_first_out() {
    let (pool, twin) = pool();
    for bytes in [100, 65_536, MIB, 3 * MIB, 20 * MIB] {
        let (first, second) = (rent(&pool, bytes), rent(&pool, bytes));
        let places = [second.as_ptr(), first.as_ptr()];
        assert_ne!(places[0], places[1]);
        drop((first, second));
        let again = [rent(&pool, bytes), rent(&pool, bytes)];
        assert_eq!(again.each_ref().map(Buffer::as_ptr), places, "{bytes}");
    }
    close(pool, twin);
}

#[test]
fn a_run_on_small_pages_gets_huge_ones_when_it_was_lent_often() {
    let (pool, twin) = pool();
    rent(&pool, 20 * MIB).as_mut_slice().fill(7);
    let span = records_of(pool.shared().number).into_iter().find(|span| span.bytes() >= 20 * MIB).unwrap();
    // As if huge pages had been too dear when it was mapped.
    span.lent_small.store(1, Ordering::Relaxed);
    for lent in 1.. {
        assert_eq!(rent(&pool, 20 * MIB).as_slice()[15 * MIB], 7);
        assert!(lent >= 8 || twin.gathered() == 0, "{lent} times are not often");
        // They may be dear just now, but not for ever, if this system has any.
        if span.lent_small.load(Ordering::Relaxed) == 0 || lent > 5000 {
            break;
        }
    }
    assert!(rent(&pool, 20 * MIB).as_slice()[..20 * MIB].iter().all(|&byte| byte == 7));
    close(pool, twin);
}

#[test]
fn what_an_earlier_user_wrote_is_seen_unless_clean_is_asked_for() {
    let (pool, twin) = pool();
    for bytes in [1000, 2 * MIB, 6 * MIB] {
        rent(&pool, bytes).as_mut_slice().fill(42);
        assert_eq!(rent(&pool, bytes).as_slice()[bytes / 2], 42);
        let clean = pool.rent(&Request::new(bytes).clean()).unwrap();
        assert!(clean.as_slice().iter().all(|&byte| byte == 0));
    }
    close(pool, twin);
}

#[test]
fn a_run_serves_nearly_its_size_again_and_a_block_any_size_up_to_its_own() {
    let (pool, twin) = pool();
    drop(rent(&pool, 16 * MIB));
    drop(rent(&pool, 16 * MIB - MIB / 4));
    assert_eq!((pool.stats().fresh, pool.stats().hits_run), (1, 1));
    drop(rent(&pool, 8 * MIB));
    assert_eq!(pool.stats().fresh, 2, "half a run would be wasted");
    drop(rent(&pool, 4 * MIB));
    drop(rent(&pool, 2 * MIB + 1));
    assert_eq!((pool.stats().fresh, pool.stats().hits_block), (3, 1));
    close(pool, twin);
}

/// Each of them had a block of its own, and where that was warm, all of it stayed resident.
#[test]
fn up_to_three_buffers_of_more_than_a_mib_share_a_block() {
    let (pool, twin) = pool();
    for (bytes, each) in [(MIB + 1, 3), (4 * MIB / 3 - 8192, 3), (4 * MIB / 3, 2), (2 * MIB, 2)] {
        let mut buffers: Vec<_> = (0..each).map(|_| rent(&pool, bytes)).collect();
        assert_eq!(pool.stats().mapped, 4 << 20, "{each} of {bytes} bytes");
        for buffer in &mut buffers {
            buffer.as_mut_slice().fill(7);
        }
        buffers.push(rent(&pool, bytes));
        assert_eq!(pool.stats().mapped, 8 << 20);
        // What one leaves goes back alone, while the others stay.
        buffers.remove(0);
        assert!(pool.trim(true) >= bytes as u64);
        assert!(buffers[..each - 1].iter().all(|buffer| buffer.as_slice().iter().all(|&byte| byte == 7)));
        pool.validate().unwrap();
        drop(buffers);
        pool.trim(true);
    }
    close(pool, twin);
}

#[test]
fn a_crowded_pool_lends_the_beginning_of_a_longer_run() {
    let (pool, twin) = pool_with(|settings| settings.pool_bytes = 70 << 20);
    rent(&pool, 60 * MIB).as_mut_slice().fill(7);
    let part = rent(&pool, 20 * MIB);
    assert!(part.as_slice().iter().all(|&byte| byte == 7), "warm, as it was left");
    assert_eq!((pool.stats().fresh, pool.stats().hits_run), (1, 1));
    assert!(twin.mapped() <= 23 << 20, "{}", twin.mapped());
    let end = part.as_ptr().wrapping_add(part.capacity());
    assert!(pool.owns(end.wrapping_sub(1)).is_some() && pool.owns(end).is_none());
    drop(part);
    drop(rent(&pool, 20 * MIB));
    assert_eq!(pool.stats().fresh, 1);
    // A little too long is long enough.
    drop(rent(&pool, 15 * MIB));
    assert_eq!((pool.stats().fresh, twin.maps()), (2, 2));
    pool.configure(&Change { pool_bytes: Some(25 << 20), ..Change::default() }).unwrap();
    drop(rent(&pool, 14 * MIB));
    assert_eq!(twin.maps(), 2);
    close(pool, twin);
}

#[test]
fn large_starts_are_staggered() {
    let (pool, twin) = pool();
    let live: Vec<Buffer> = (0..8).map(|_| rent(&pool, 64 * MIB)).collect();
    let mut starts: Vec<usize> = live.iter().map(|buffer| buffer.as_ptr() as usize % (2 * MIB)).collect();
    assert!(starts.iter().all(|start| start % 4096 == 0));
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 64 << 10), "{starts:?}");
    drop(live);
    close(pool, twin);
}

#[test]
fn absurd_sizes_are_refused() {
    let (pool, twin) = pool();
    // More than any machine has: refused although the system would promise it.
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 47, 1 << 46] {
        let error = pool.rent(&Request::new(bytes)).unwrap_err();
        let machine = BlockError::Machine { asked: bytes as u64, limit: pool.shared().machine() };
        assert_eq!(error, machine);
        let text = format!("{bytes} bytes asked for, more than this machine's memory and swap (");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert!(pool.rent_warm(&Request::new(bytes)).is_none());
    }
    assert_eq!((pool.stats().refused, twin.maps()), (4, 0));
    close(pool, twin);
}

#[test]
fn what_is_longer_than_all_classes_is_mapped_for_itself_whatever_is_idle() {
    let (pool, twin) = pool();
    drop(rent(&pool, 9 * MIB));
    // Within the limits of a large machine: more than the pool keeps, so that what is idle is looked at first.
    match pool.shared().lend((64 << 30) + 1, false) {
        Ok(buffer) => assert!(buffer.capacity() > 64 << 30 && !buffer.drops_warm()),
        Err(error) => assert!(matches!(error, BlockError::NoMemory { .. }), "{error}"),
    }
    close(pool, twin);
}

#[test]
fn a_warm_rent_takes_only_what_is_there() {
    let (pool, twin) = pool();
    for bytes in [100, 700_000, 3 * MIB, 9 * MIB] {
        assert!(pool.rent_warm(&Request::new(bytes)).is_none());
        let fresh = rent(&pool, bytes);
        let maps = twin.maps();
        assert!(fresh.drops_warm());
        drop(fresh);
        let mut warm = pool.rent_warm(&Request::new(bytes)).unwrap();
        warm.as_mut_slice().fill(1);
        drop(warm);
        let clean = pool.rent_warm(&Request::new(bytes).clean());
        assert_eq!(clean.is_some(), bytes < 1000, "much would have to be cleared");
        assert!(clean.is_none_or(|clean| clean.as_slice().iter().all(|&byte| byte == 0)));
        assert_eq!(twin.maps(), maps);
        pool.trim(true);
    }
    pool.configure(&Change { pool_bytes: Some(0), ..Change::default() }).unwrap();
    assert!(!rent(&pool, 9 * MIB).drops_warm());
    close(pool, twin);
}

#[test]
fn the_address_map_tells_ours_from_others() {
    let (pool, twin) = pool();
    let (other, _) = super::pool();
    let on_the_stack = 7_u8;
    let foreign = vec![1_u8; 10_000_000];
    for address in [std::ptr::null(), &raw const on_the_stack, foreign.as_ptr(), usize::MAX as *const u8] {
        assert_eq!(pool.owns(address), None);
    }
    for bytes in SIZES {
        let (mine, foreign) = (rent(&pool, bytes), rent(&other, bytes));
        assert_eq!(pool.owns(mine.as_ptr()), Some(mine.capacity()));
        assert_eq!(pool.owns(foreign.as_ptr()), None);
        let middle = mine.as_ptr().wrapping_add(bytes / 2);
        assert_eq!(pool.owns(middle), Some(mine.capacity() - bytes / 2));
        let (capacity, raw) = (mine.capacity(), mine.into_raw());
        assert_eq!(pool.owns(raw.as_ptr()), Some(capacity));
        // SAFETY: let go of just now.
        unsafe { pool.return_raw(raw) };
    }
    pool.trim(true);
    close(pool, twin);
}

#[test]
fn what_is_lent_is_found_at_its_start_and_until_it_is_given_back() {
    let (pool, twin) = pool();
    for address in [std::ptr::null(), (&raw const twin).cast(), usize::MAX as *const u8] {
        assert_eq!(pool.lent_at(address), None);
    }
    for bytes in SIZES {
        let buffer = rent(&pool, bytes);
        let at = buffer.as_ptr();
        assert_eq!(pool.lent_at(at), Some(buffer.capacity()), "{bytes}");
        for inside in [1, 30, 64, bytes / 2, 4096, buffer.capacity()] {
            assert!(inside == 0 || pool.lent_at(at.wrapping_add(inside)).is_none(), "{bytes}, {inside}");
        }
        drop(buffer);
        assert_eq!(pool.lent_at(at), None, "{bytes}");
        // Not of this thread's cache alone.
        pool.shared().flush_caches();
        assert_eq!(pool.lent_at(at), None, "{bytes}");
        pool.trim(true);
        assert_eq!(pool.lent_at(at), None, "{bytes}");
    }
    close(pool, twin);
}

#[test]
fn small_buffers_need_little_address_space() {
    let (pool, twin) = pool();
    let live: Vec<Buffer> = (0..100_000).map(|_| rent(&pool, 64)).collect();
    assert_eq!(pool.stats().fresh, 2);
    pool.validate().unwrap();
    drop(live);
    pool.trim(true);
    assert_eq!(pool.stats().mapped, 0);
    close(pool, twin);
}

#[test]
fn buffers_outlive_their_pool() {
    let (pool, twin) = pool();
    let mut buffer = rent(&pool, 3 * MIB);
    let piece = rent(&pool, 3000);
    let clone = pool.clone();
    drop(pool);
    buffer.as_mut_slice().fill(9);
    assert_eq!(rent(&clone, 10).len(), 10);
    drop(clone);
    assert!(buffer.as_slice().iter().all(|&byte| byte == 9));
    drop((buffer, piece));
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn the_global_pool_is_one() {
    let buffer = rent(Pool::global(), 5000);
    assert!(Pool::global().owns(buffer.as_ptr()).is_some());
}
