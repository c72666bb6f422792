//! What a put costs the others where pages are short, most of all in a cache of values over 1 KiB.

use std::time::Duration;

use super::{cache, priority, ttl};
use crate::{Cache, CacheOptions, Policy, PutResult, ReadBuf};

/// Numbers below a bound, one after another.
fn chance(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    }
}

/// Fills a cache that reads through with skewed requests for values of 10 to 100 KB, or of `size`.
fn fill(cache: &Cache, size: Option<usize>, mut each: impl FnMut(u64)) {
    let (mut below, value) = (chance(0x9E37_79B9_97F4_A7C1), vec![7; 100_000]);
    let keys = cache.stats().max_bytes / 10_000;
    let mut buf = ReadBuf::new();
    for _ in 0..6 * keys {
        let key = (below(keys) * below(keys) / keys).to_le_bytes();
        if cache.get(&key, &mut buf).is_none() {
            let size = size.unwrap_or_else(|| 10_000 + (key[0] as usize * 353) % 90_000);
            let before = cache.stats().evicted;
            assert_eq!(cache.put(&key, &value[..size], &priority(0)), PutResult::Inserted);
            each(cache.stats().evicted - before);
        }
    }
}

/// Where a limit is a whole number of blocks, a put took pages that the limit had no room for rather than room that was
/// charged already, and evicted nine tenths of the cache.
#[test]
fn a_cache_of_long_values_stays_full() {
    for (blocks, policy) in [(4, Policy::Sketch), (5, Policy::Lru), (8, Policy::Sketch), (8, Policy::Lru)] {
        let limit = blocks * (4 << 20);
        let (cache, _) = cache(limit, policy);
        let (mut most, mut least, mut full) = (0, u64::MAX, false);
        fill(&cache, None, |evicted| {
            most = most.max(evicted);
            full |= evicted > 0;
            if full {
                least = least.min(cache.stats().bytes);
            }
        });
        cache.validate().unwrap();
        assert!(most <= 64, "{policy:?}, {blocks} blocks: {most} were evicted by one put");
        assert!(least > limit / 2, "{policy:?}, {blocks} blocks: {least} bytes of {limit} were left at some moment");
    }
}

/// A page for a size that had none came free only when nothing was left in one by chance: two fifths of a cache went
/// for it.
#[test]
fn small_puts_among_long_values_cost_few_of_them() {
    let sizes = [30_000, 2000, 100_000, 10_000];
    let policies = [Policy::Sketch, Policy::Lru, Policy::S3Fifo, Policy::Fifo];
    for (size, policy) in sizes.into_iter().flat_map(|size| policies.map(|policy| (size, policy))) {
        let (cache, clock) = cache(16 << 20, policy);
        fill(&cache, Some(size), |_| ());
        let (mut buf, most) = (ReadBuf::new(), (400_000 / size as u64).max(32));
        for small in (0..=1000).step_by(20) {
            let (key, value) = (format!("short {small}").into_bytes(), vec![small as u8; small]);
            let options = if small % 100 == 0 { ttl(60.0) } else { priority(0) };
            let before = cache.stats();
            assert_eq!(cache.put(&key, &value, &options), PutResult::Inserted);
            let evicted = cache.stats().evicted - before.evicted;
            assert!(evicted <= most, "{policy:?}, {size}: for {small} bytes {evicted} of {} went", before.entries);
            assert_eq!(cache.get(&key, &mut buf), Some(&value[..]));
            cache.validate().unwrap();
        }
        clock.advance(Duration::from_secs(61));
        cache.expire();
        cache.validate().unwrap();
    }
}

/// Whoever lay in the sparsest page went, whatever his priority, while thousands of a lower one were there.
#[test]
fn where_pages_are_short_the_lowest_priority_goes_first() {
    for (seed, count) in (1..=12).zip((204_u32..).step_by(6)) {
        let options = CacheOptions { max_bytes: 8 << 20, shards: Some(1), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let mut below = chance(seed * 0x9E37_79B9);
        // Of a size that nobody else has, so that there is nowhere to move to.
        for key in 0..count {
            cache.put(&key.to_le_bytes(), &[5; 900], &priority(5));
        }
        let kept: Vec<_> = (0..count).step_by(count as usize / 4).take(4).collect();
        for key in (0..count).filter(|key| !kept.contains(key)) {
            cache.remove(&key.to_le_bytes());
        }
        let mut key = count;
        while cache.stats().evicted < 2000 {
            key += 1;
            let size = 30 + below(750) as usize;
            assert_eq!(cache.put(&key.to_le_bytes(), &vec![0; size], &priority(0)), PutResult::Inserted);
        }
        let alive = || kept.iter().filter(|key| cache.contains(&key.to_le_bytes())).count();
        assert_eq!(alive(), 4);
        let before = cache.stats();
        let size = 1500 + below(58_500) as usize;
        assert_eq!(cache.put(b"long", &vec![2; size], &priority(5)), PutResult::Inserted);
        let evicted = cache.stats().evicted - before.evicted;
        assert_eq!(alive(), 4, "seed {seed}: for {size} bytes, of {} below", cache.len());
        assert!(evicted < 2000, "seed {seed}: for {size} bytes {evicted} of {} went", before.entries);
        cache.validate().unwrap();
        // When nobody else is left, they go.
        for size in (30..780).step_by(25).cycle().take(40_000) {
            key += 1;
            cache.put(&key.to_le_bytes(), &vec![6; size], &priority(6));
        }
        assert_eq!(alive(), 0, "seed {seed}");
        cache.validate().unwrap();
    }
}
