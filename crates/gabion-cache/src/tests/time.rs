//! Ends of values, by a clock that is set by hand.

use std::sync::Arc;
use std::time::Duration;

use super::{cache, get, priority, ttl, weight};
use crate::{Cache, CacheOptions, ManualClock, Policy, PutOptions, PutResult, Span, TableOptions};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn idle(seconds: f64) -> PutOptions {
    PutOptions { idle: Span::Of(Duration::from_secs_f64(seconds)), ..PutOptions::default() }
}

#[test]
fn expire_removes_all_that_is_over_to_the_millisecond() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    for millis in 0..200_u64 {
        cache.put(&millis.to_le_bytes(), b"", &ttl(millis as f64 / 1000.0));
    }
    for now in 0..200 {
        clock.set(Duration::from_millis(now));
        assert_eq!((cache.expire(), cache.expire(), cache.len()), (1, 0, 199 - now));
        cache.validate().unwrap();
    }
}

#[test]
fn a_value_ends_at_its_time_and_not_later() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let (cache, clock) = cache(1 << 20, policy);
        for (at, span) in [0.05, 1.0, 900.0, 3600.0, 86_400.0 * 400.0].into_iter().enumerate() {
            cache.put(&[at as u8], b"v", &ttl(span));
        }
        for (at, span) in [0.05, 1.0, 900.0, 3600.0, 86_400.0 * 400.0].into_iter().enumerate() {
            clock.set(seconds(span - 0.002));
            assert!(get(&cache, [at as u8]).is_some(), "{span} s");
            clock.set(seconds(span));
            assert_eq!(get(&cache, [at as u8]), None, "{span} s");
            assert!(!cache.contains(&[at as u8]) && !cache.remove(&[at as u8]));
            cache.validate().unwrap();
        }
        assert_eq!((cache.len(), cache.stats().expired), (0, 5));
    }
}

#[test]
fn memory_of_what_expired_comes_back_beside_other_work() {
    let (cache, clock) = cache(64 << 20, Policy::Sketch);
    for n in 0..20_000_u32 {
        cache.put(&n.to_le_bytes(), &[7; 100], &ttl(1.0 + f64::from(n % 100)));
    }
    clock.advance(seconds(200.0));
    // No put for the same keys, no call that asks for it: sixteen are looked at with each operation.
    for n in 0..3_000_u32 {
        cache.remove(&(n + 100_000).to_le_bytes());
    }
    assert_eq!((cache.len(), cache.stats().expired), (0, 20_000));
    assert_eq!(cache.stats().bytes, 0);
    cache.validate().unwrap();
}

#[test]
fn all_that_is_over_goes_when_asked() {
    let (cache, clock) = cache(64 << 20, Policy::Sketch);
    for n in 0..10_000_u32 {
        cache.put(&n.to_le_bytes(), b"", &if n % 2 == 0 { ttl(5.0) } else { PutOptions::default() });
    }
    assert_eq!(cache.expire(), 0);
    clock.advance(seconds(5.1));
    assert_eq!((cache.expire(), cache.expire(), cache.len()), (5_000, 0, 5_000));
    assert!(!cache.has_ends());
    cache.validate().unwrap();
}

#[test]
fn a_use_restarts_the_idle_time_and_nothing_else() {
    for policy in [Policy::Sketch, Policy::Lru] {
        let (cache, clock) = cache(1 << 20, policy);
        let both = PutOptions { ttl: Span::Of(seconds(30.0)), ..idle(10.0) };
        cache.put(b"idle", b"1", &idle(10.0));
        cache.put(b"both", b"2", &both);
        for _ in 0..3 {
            clock.advance(seconds(9.0));
            assert!(get(&cache, b"idle").is_some() && get(&cache, b"both").is_some());
            // Neither is a look that is not a use.
            assert!(cache.contains(b"idle"));
            cache.expire();
            cache.validate().unwrap();
        }
        clock.advance(seconds(4.0));
        assert!(get(&cache, b"idle").is_some());
        assert_eq!(get(&cache, b"both"), None);
        clock.advance(seconds(6.0));
        assert!(cache.contains(b"idle"));
        clock.advance(seconds(4.0));
        assert_eq!(get(&cache, b"idle"), None);
        cache.expire();
        assert!(cache.is_empty());
    }
}

/// A get that has nothing to put off took the lock each time, because the end was not what the idle time alone would
/// give.
#[test]
fn a_get_takes_no_lock_for_an_idle_time_that_something_else_ends() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    let both = PutOptions { ttl: Span::Of(seconds(30.0)), ..idle(10.0) };
    cache.put(b"k", b"v", &both);
    // Within its last seconds, after a use at each of which the end could not be put off any more.
    for passed in [9.0, 9.0, 9.0] {
        clock.advance(seconds(passed));
        assert!(get(&cache, b"k").is_some());
    }
    clock.advance(seconds(1.0));
    let (found, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let locked = cache.core().lock_only(0);
        scope.spawn(|| found.send(get(&cache, b"k").is_some()));
        let answer = told.recv_timeout(Duration::from_secs(300));
        drop(locked);
        assert_eq!(answer, Ok(true), "the get waits for the lock");
    });
}

#[test]
fn touching_restarts_the_time_that_a_value_was_put_with() {
    let clock = Arc::new(ManualClock::default());
    let table = TableOptions { ttl: Some(seconds(10.0)), ..TableOptions::default() };
    let options = CacheOptions { max_bytes: 1 << 20, clock: Some(clock.clone()), table, ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    cache.put(b"table's", b"1", &PutOptions::default());
    cache.put(b"own", b"2", &ttl(20.0));
    cache.put(b"both", b"3", &PutOptions { ttl: Span::Of(seconds(20.0)), ..idle(15.0) });
    cache.put(b"never", b"4", &PutOptions { ttl: Span::Never, ..PutOptions::default() });
    clock.advance(seconds(8.0));
    for key in [&b"table's"[..], b"own", b"both", b"never"] {
        assert!(cache.touch(key, Span::Table));
        cache.validate().unwrap();
    }
    clock.advance(seconds(9.0));
    assert!(cache.touch(b"table's", Span::Of(seconds(100.0))));
    clock.advance(seconds(10.0));
    assert!(get(&cache, b"own").is_some() && get(&cache, b"table's").is_some());
    assert_eq!(get(&cache, b"both"), None, "15 idle seconds passed");
    clock.advance(seconds(1.0));
    assert_eq!(get(&cache, b"own"), None);
    assert!(!cache.touch(b"own", Span::Table) && !cache.touch(b"nobody", Span::Table));
    assert!(cache.touch(b"never", Span::Of(seconds(5.0))));
    cache.validate().unwrap();
    clock.advance(seconds(5.0));
    assert_eq!(get(&cache, b"never"), None);
    assert!(cache.touch(b"table's", Span::Never));
    clock.advance(seconds(1e9));
    assert_eq!(get(&cache, b"table's"), Some(b"1".to_vec()));
    cache.validate().unwrap();
}

#[test]
fn a_clock_may_jump_both_ways() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    clock.set(seconds(1_000_000.0));
    cache.put(b"a", b"1", &ttl(60.0));
    clock.set(seconds(500_000.0));
    assert!(get(&cache, b"a").is_some());
    cache.put(b"b", b"2", &ttl(60.0));
    cache.expire();
    clock.set(seconds(500_061.0));
    assert!(get(&cache, b"a").is_some());
    assert_eq!(get(&cache, b"b"), None);
    clock.set(seconds(1e9));
    assert_eq!(get(&cache, b"a"), None);
    cache.expire();
    cache.validate().unwrap();
    assert_eq!(cache.put(b"a", b"3", &ttl(1.0)), PutResult::Inserted);
    assert!(get(&cache, b"a").is_some());
}

#[test]
fn an_absolute_end_is_a_time_of_day() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    clock.set(seconds(1000.0));
    let at = |at: f64| PutOptions { expires_at: Some(seconds(at)), ..PutOptions::default() };
    cache.put(b"soon", b"", &at(1010.0));
    cache.put(b"past", b"", &at(10.0));
    cache.put(b"ttl first", b"", &PutOptions { ttl: Span::Of(seconds(5.0)), ..at(1010.0) });
    assert_eq!(get(&cache, b"past"), None);
    clock.advance(seconds(6.0));
    assert_eq!(get(&cache, b"ttl first"), None);
    assert!(get(&cache, b"soon").is_some());
    clock.advance(seconds(4.0));
    assert_eq!(get(&cache, b"soon"), None);
}

/// A moment ended with the table's time to live, if that came first, and a touch put it off beyond itself.
#[test]
fn a_moment_of_its_own_takes_the_place_of_the_tables_time() {
    let clock = Arc::new(ManualClock::default());
    clock.set(seconds(1000.0));
    let table = TableOptions { ttl: Some(seconds(10.0)), ..TableOptions::default() };
    let options = CacheOptions { max_bytes: 1 << 20, clock: Some(clock.clone()), table, ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    let late = PutOptions { expires_at: Some(seconds(1030.0)), ..PutOptions::default() };
    let soon = PutOptions { expires_at: Some(seconds(1005.0)), ..PutOptions::default() };
    cache.put(b"late", b"", &late);
    cache.put(b"late or idle", b"", &PutOptions { idle: Span::Of(seconds(20.0)), ..late });
    cache.put(b"soon", b"", &soon);
    cache.put(b"soon or ttl", b"", &PutOptions { ttl: Span::Of(seconds(7.0)), ..soon });
    cache.put(b"put off", b"", &soon);
    let never = PutOptions { ttl: Span::Never, ..PutOptions::default() };
    cache.put(b"idle", b"", &PutOptions { idle: Span::Of(seconds(30.0)), ..never });
    clock.advance(seconds(4.0));
    for key in [&b"late"[..], b"late or idle", b"soon", b"soon or ttl", b"idle"] {
        assert!(cache.touch(key, Span::Table));
        cache.validate().unwrap();
    }
    assert!(cache.touch(b"put off", Span::Of(seconds(2.0))));
    clock.advance(seconds(1.0));
    assert_eq!([&b"soon"[..], b"soon or ttl", b"put off"].map(|key| cache.contains(key)), [false, false, true]);
    clock.advance(seconds(18.0));
    assert_eq!(
        [&b"late"[..], b"late or idle", b"idle", b"put off"].map(|key| cache.contains(key)),
        [true, true, true, false]
    );
    clock.advance(seconds(2.0));
    assert_eq!([&b"late"[..], b"late or idle", b"idle"].map(|key| cache.contains(key)), [true, false, true]);
    clock.advance(seconds(5.0));
    assert_eq!([&b"late"[..], b"idle"].map(|key| cache.contains(key)), [false, true]);
    clock.advance(seconds(4.0));
    assert!(!cache.contains(b"idle") && cache.expire() > 0);
    cache.validate().unwrap();
}

/// A put without an end did not ask for the time, and took an old value that was over for one that is there.
#[test]
fn what_is_over_is_not_there_for_any_put() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    cache.put(b"k", b"1", &ttl(1.0));
    clock.advance(seconds(2.0));
    assert_eq!(cache.add(b"k", b"2", &PutOptions::default()), Some(PutResult::Inserted));
    assert_eq!(get(&cache, b"k"), Some(b"2".to_vec()));
    cache.put(b"k", b"3", &ttl(1.0));
    clock.advance(seconds(2.0));
    assert_eq!(cache.put(b"k", b"4", &PutOptions::default()), PutResult::Inserted);
    cache.validate().unwrap();
}

/// An entry that had no end, replaced by one of the same weight that has: in place, where there was no room for an end.
#[test]
fn an_end_may_come_and_go_with_each_value() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    for size in 0..200 {
        cache.put(b"k", &vec![1; size], &PutOptions::default());
        for other in size.saturating_sub(40)..size + 40 {
            cache.put(b"k", &vec![2; other], &ttl(60.0));
            cache.validate().unwrap();
            clock.advance(seconds(59.0));
            assert_eq!(get(&cache, b"k"), Some(vec![2; other]));
            clock.advance(seconds(2.0));
            assert_eq!(get(&cache, b"k"), None);
            cache.put(b"k", &vec![1; size], &PutOptions::default());
            clock.advance(seconds(1000.0));
            assert_eq!(get(&cache, b"k"), Some(vec![1; size]));
        }
    }
}

#[test]
fn less_than_a_millisecond_is_still_a_time() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    cache.put(b"k", b"v", &ttl(0.000_1));
    assert!(get(&cache, b"k").is_some());
    clock.advance(seconds(0.001));
    assert!(get(&cache, b"k").is_none());
}

/// In a full cache a value that got an end was dropped, and the put said that it had replaced it.
#[test]
fn in_a_full_cache_values_get_ends_too() {
    let (cache, clock) = cache(9 << 20, Policy::Lru);
    for n in 0..90_000_u32 {
        cache.put(&n.to_le_bytes(), &[1; 100], &PutOptions::default());
    }
    for n in
        (0..90_000_u32).filter(|n| cache.contains(&n.to_le_bytes())).collect::<Vec<_>>().into_iter().rev().take(2000)
    {
        let key = n.to_le_bytes();
        if n % 2 == 0 {
            assert_ne!(cache.put(&key, &[2; 140], &ttl(600.0)), PutResult::Rejected);
            assert_eq!(get(&cache, key), Some(vec![2; 140]));
        } else if cache.contains(&key) {
            assert!(cache.touch(&key, Span::Of(seconds(600.0))));
            assert!(cache.contains(&key));
        }
    }
    cache.validate().unwrap();
    clock.advance(seconds(601.0));
    assert!(cache.expire() > 900);
    cache.validate().unwrap();
}

/// A touch that gave an end to a value that had none could evict that very value, and then found no room to put it
/// back.
#[test]
fn a_touch_never_costs_the_value_itself() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        for shards in [1, 16] {
            let clock: Arc<ManualClock> = Arc::default();
            let (max_bytes, clock) = (30 * weight(1, 300), Some(clock.clone() as Arc<_>));
            let options = CacheOptions { max_bytes, policy, shards: Some(shards), clock, ..CacheOptions::default() };
            let cache = Cache::with_options(&options).unwrap();
            (0..30_u8).for_each(|n| assert_eq!(cache.put(&[n], &[n; 300], &priority(0)), PutResult::Inserted));
            let mut touched = 0;
            for n in (0..30_u8).cycle().take(60) {
                if cache.contains(&[n]) {
                    assert!(cache.touch(&[n], Span::Of(seconds(60.0))), "{policy:?}, {shards} shards, key {n}");
                    assert_eq!(get(&cache, [n]), Some(vec![n; 300]));
                    touched += 1;
                }
                cache.validate().unwrap();
            }
            // 24 bytes for each end are an eighteenth of a value.
            assert!(touched > 50 && cache.len() >= 27, "{touched} touched, {} left", cache.len());
        }
    }
}

#[test]
fn a_touch_that_finds_no_room_leaves_the_value_as_it_was() {
    let (cache, clock) = cache(5 * weight(1, 300), Policy::Sketch);
    (0..5_u8).for_each(|n| assert_eq!(cache.put(&[n], &[n; 300], &priority(i8::from(n > 0))), PutResult::Inserted));
    // Of its priority there is nobody else.
    assert!(!cache.touch(&[0], Span::Of(seconds(60.0))));
    clock.advance(seconds(61.0));
    assert_eq!((get(&cache, [0]), cache.len(), cache.stats().evicted), (Some(vec![0; 300]), 5, 0));
    cache.validate().unwrap();
}

#[test]
fn a_value_that_fills_the_cache_can_get_an_end() {
    for size in [900, 40_000] {
        let (cache, clock) = cache(weight(1, size) + 32, Policy::Lru);
        assert_eq!(cache.put(b"k", &vec![1; size], &PutOptions::default()), PutResult::Inserted);
        assert!(cache.touch(b"k", Span::Of(seconds(60.0))));
        assert_eq!(get(&cache, b"k"), Some(vec![1; size]));
        cache.validate().unwrap();
        clock.advance(seconds(60.0));
        assert_eq!(get(&cache, b"k"), None);
    }
}

/// It was written anew beside itself, and all that stood in the way of that went.
#[test]
fn a_touch_of_a_long_value_moves_nobody() {
    for policy in [Policy::Sketch, Policy::Lru] {
        for (key, size) in [(vec![b'k'; 5], 9 << 20), (vec![b'k'; 3000], 9 << 20), (vec![b'k'; 5], 40_000)] {
            let clock = Arc::new(ManualClock::default());
            let clocked = Some(clock.clone() as Arc<_>);
            let options = CacheOptions { max_bytes: 16 << 20, policy, clock: clocked, ..CacheOptions::default() };
            let cache = Cache::with_room(&options, 20 << 20).unwrap();
            let value: Vec<u8> = (0..=u8::MAX).cycle().take(size).collect();
            assert_eq!(cache.put(&key, &value, &PutOptions::default()), PutResult::Inserted);
            let mut others = 0_u32;
            while cache.stats().bytes < (16 << 20) - 200_000 {
                assert_eq!(cache.put(&others.to_le_bytes(), &[1; 10_000], &PutOptions::default()), PutResult::Inserted);
                assert_eq!(cache.stats().evicted, 0);
                others += 1;
            }
            let before = cache.stats();
            assert!(cache.touch(&key, Span::Of(seconds(60.0))) && cache.touch(&key, Span::Of(seconds(50.0))));
            let after = cache.stats();
            assert_eq!((after.evicted, after.bytes - before.bytes), (0, 24), "{policy:?} {size}");
            assert_eq!(get(&cache, &key).as_ref(), Some(&value));
            cache.validate().unwrap();
            clock.advance(seconds(49.0));
            assert!(cache.contains(&key) && cache.touch(&key, Span::Table));
            clock.advance(seconds(1.0));
            assert_eq!((get(&cache, &key), cache.expire(), cache.len()), (None, 1, others.into()), "{policy:?} {size}");
            cache.validate().unwrap();
        }
    }
}

#[test]
fn it_is_told_when_a_value_ends() {
    let clock = Arc::new(ManualClock::default());
    let options = CacheOptions { max_bytes: 16 << 20, clock: Some(clock.clone()), ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    let table = cache.table("t", TableOptions { ttl: Some(seconds(10.0)), ..TableOptions::default() }).unwrap();
    for size in [3, 5000, 2 << 20] {
        let put = |options| assert!(cache.put(b"k", &vec![7; size], &options) != PutResult::Rejected);
        let left = || cache.expires_in(b"k");
        cache.remove(b"k");
        assert_eq!(left(), None);
        put(PutOptions::default());
        assert_eq!(left(), Some(Duration::MAX));
        put(PutOptions { idle: Span::Of(seconds(4.0)), ..ttl(5.0) });
        assert_eq!(left(), Some(seconds(4.0)));
        clock.advance(seconds(3.0));
        // It is no use itself.
        assert_eq!((left(), left()), (Some(seconds(1.0)), Some(seconds(1.0))));
        assert!(get(&cache, b"k").is_some());
        assert_eq!(left(), Some(seconds(2.0)));
        clock.advance(seconds(2.0));
        assert_eq!(left(), None);
        assert!(table.put(b"k", &vec![7; size], &PutOptions::default()) != PutResult::Rejected);
        assert_eq!(table.expires_in(b"k"), Some(seconds(10.0)));
        assert!(table.touch(b"k", Span::Never));
        assert_eq!(table.expires_in(b"k"), Some(Duration::MAX));
        let figures = cache.stats();
        assert_eq!(figures.misses, 0);
        cache.validate().unwrap();
    }
}

/// A value that a touch gave its first end was put with that time from then on, and no other one was.
#[test]
fn what_a_touch_is_given_counts_once() {
    let clock = Arc::new(ManualClock::default());
    let table = TableOptions { ttl: Some(seconds(10.0)), ..TableOptions::default() };
    let options = CacheOptions { max_bytes: 1 << 20, clock: Some(clock.clone()), ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    let table = cache.table("t", table).unwrap();
    let never = |idle| PutOptions { ttl: Span::Never, idle, ..PutOptions::default() };
    let long_idle = Span::Of(seconds(100.0));
    for (size, table, options, stays) in [
        (3, &*cache, PutOptions::default(), false),
        (3, &*cache, ttl(10.0), true),
        (3, &*cache, idle(100.0), false),
        (3, &table, PutOptions::default(), true),
        (3, &table, never(Span::Table), false),
        (3, &table, never(long_idle), false),
        (5000, &*cache, PutOptions::default(), false),
        (5000, &*cache, ttl(10.0), true),
        (5000, &table, never(long_idle), false),
    ] {
        assert_eq!(table.put(b"k", &vec![7; size], &options), PutResult::Inserted);
        assert!(table.touch(b"k", Span::Of(seconds(2.0))));
        clock.advance(seconds(1.0));
        // By what it was put with; without a time to live, what it has stays.
        assert!(table.touch(b"k", Span::Table));
        cache.validate().unwrap();
        clock.advance(seconds(2.0));
        assert_eq!(get(table, b"k").is_some(), stays, "{size} {options:?}");
        clock.advance(seconds(8.0));
        assert_eq!(get(table, b"k"), None, "{size} {options:?}");
    }
}
