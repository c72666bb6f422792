//! Time that tests let pass. In a process of its own: it passes for all caches.

use std::time::Duration;

use gabion_cache::testing::advance;
use gabion_cache::{Cache, Clock, ManualClock, PutOptions, Span, SystemClock};

#[test]
fn what_passes_for_tests_passes_for_the_clocks_that_there_are() {
    let (clock, manual, cache) = (SystemClock::default(), ManualClock::default(), Cache::new(1 << 20).unwrap());
    let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
    let (before, wall) = (clock.now(), clock.wall());
    cache.put(b"ttl", b"", &PutOptions { ttl: Span::Of(hour), ..PutOptions::default() });
    cache.put(b"idle", b"", &PutOptions { idle: Span::Of(hour), ..PutOptions::default() });
    cache.put(b"at", b"", &PutOptions { expires_at: Some(wall + hour), ..PutOptions::default() });
    advance(59 * minute);
    assert!([&b"ttl"[..], b"idle", b"at"].iter().all(|key| cache.contains(key)));
    advance(minute);
    assert!(![&b"ttl"[..], b"idle", b"at"].iter().any(|key| cache.contains(key)));
    assert_eq!((cache.expire(), cache.stats().expired), (3, 3));
    let later = SystemClock::default();
    for (before, after, name) in [(before, clock.now(), "now"), (wall, clock.wall(), "wall")] {
        assert!(after >= before + hour && after < before + hour + minute, "{name}: {before:?}, {after:?}");
    }
    assert!(clock.roughly() + Duration::from_secs(2) > before + hour);
    assert!(later.now() < minute && later.wall() < wall + minute && manual.now() == Duration::ZERO);
    cache.put(b"at", b"", &PutOptions { expires_at: Some(later.wall() + minute), ..PutOptions::default() });
    assert!(!cache.contains(b"at"));
    // Beyond 139 years, what is put with an end would be over at once.
    assert!(!advance(Duration::MAX) && !advance(36_600 * 24 * hour) && advance(36_599 * 24 * hour));
    cache.put(b"ttl", b"", &PutOptions { ttl: Span::Of(hour), ..PutOptions::default() });
    cache.put(b"idle", b"", &PutOptions { idle: Span::Of(hour), ..PutOptions::default() });
    assert!(!advance(24 * hour) && cache.contains(b"ttl") && cache.contains(b"idle"));
    cache.validate().unwrap();
}
