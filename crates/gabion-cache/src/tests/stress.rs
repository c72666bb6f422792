//! Many threads, and what must hold beside them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{get, priority};
use crate::{Cache, CacheOptions, Policy, PutOptions, PutResult, ReadBuf, Span};

/// A seed of this run; a failing run is repeated with `GABION_SEED`.
fn seed() -> u64 {
    let given = std::env::var("GABION_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::process::id().into());
    eprintln!("GABION_SEED={seed}");
    seed
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Key, version and as many bytes as the version says, all to be checked by whoever reads. Versions that follow each
/// other have one kind of size for some time, so that pages of other sizes come and go.
fn value(key: u32, version: u64) -> Vec<u8> {
    let length = match version / 2048 % 4 {
        0 => version % 300,
        1 => 0,
        2 => 700 + version % 200,
        _ => version * 7 % 3000,
    };
    let mut value = Vec::from(key.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    value.extend((0..length).map(|at| (at as u8).wrapping_add(version as u8)));
    value
}

fn check(key: u32, seen: &[u8]) -> u64 {
    let version = u64::from_le_bytes(seen[4..12].try_into().unwrap());
    assert_eq!(seen, value(key, version), "a mixture");
    version
}

#[test]
fn readers_see_whole_values_and_never_older_ones_than_before() {
    let seed = seed();
    for policy in [Policy::Sketch, Policy::Lru, Policy::S3Fifo] {
        let options = CacheOptions { max_bytes: 1 << 20, policy, shards: Some(4), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let (done, hits) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u32)
                .map(|writer| {
                    let cache = &cache;
                    scope.spawn(move || {
                        let mut random = Random(seed ^ 0x9E37_79B9 ^ u64::from(writer) << 32);
                        for version in 0..40_000_u64 {
                            // Each writer has its own keys, so that versions only rise.
                            let key = (random.next() >> 8) as u32 % 3000 * 3 + writer;
                            if random.next().is_multiple_of(8) {
                                cache.remove(&key.to_le_bytes());
                            } else if random.next().is_multiple_of(10_000) {
                                cache.clear();
                            } else {
                                let result = cache.put(&key.to_le_bytes(), &value(key, version), &priority(0));
                                assert_ne!(result, PutResult::Rejected);
                            }
                        }
                    })
                })
                .collect();
            for reader in 0..2_u64 {
                let (cache, done, hits) = (&cache, &done, &hits);
                scope.spawn(move || {
                    let (mut random, mut buf) = (Random(seed ^ 0x4D ^ reader << 40), ReadBuf::new());
                    let mut newest = vec![0_u64; 9000];
                    while !done.load(Ordering::Relaxed) {
                        let key = (random.next() >> 8) as u32 % 9000;
                        if let Some(seen) = cache.get(&key.to_le_bytes(), &mut buf) {
                            let version = check(key, seen);
                            assert!(version >= newest[key as usize], "an older value came back");
                            newest[key as usize] = version;
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(hits.load(Ordering::Relaxed) > 0);
        cache.validate().unwrap();
    }
}

#[test]
fn a_key_that_is_there_is_found_while_the_index_grows_and_shrinks() {
    let cache = Cache::with_options(&CacheOptions { max_bytes: 1 << 28, shards: Some(1), ..CacheOptions::default() });
    let (cache, done) = (cache.unwrap(), AtomicBool::new(false));
    for key in 0..500_u32 {
        cache.put(&key.to_le_bytes(), &key.to_le_bytes(), &PutOptions::default());
    }
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = 0_u32;
            while !done.load(Ordering::Relaxed) {
                let key = (found * 7 % 500).to_le_bytes();
                assert_eq!(get(&cache, key), Some(key.to_vec()));
                found = (found + 1) % 1_000_000;
            }
        });
        for _ in 0..3 {
            for key in 500..30_000_u32 {
                cache.put(&key.to_le_bytes(), b"", &PutOptions::default());
            }
            for key in 500..30_000_u32 {
                cache.remove(&key.to_le_bytes());
            }
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(cache.len(), 500);
    cache.validate().unwrap();
}

#[test]
fn factories_run_once_however_many_ask() {
    let (cache, made) = (Cache::new(1 << 24).unwrap(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for key in 0..500_u32 {
                    let value = cache.get_or_put(&key.to_le_bytes(), &PutOptions::default(), || {
                        made.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        Ok::<_, crate::Deadlock>(key.to_le_bytes().to_vec())
                    });
                    assert_eq!(value.unwrap(), key.to_le_bytes());
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 500);
    cache.validate().unwrap();
}

#[test]
fn what_expires_may_go_while_the_cache_is_checked() {
    let cache =
        Cache::with_options(&CacheOptions { max_bytes: 1 << 24, shards: Some(8), ..CacheOptions::default() }).unwrap();
    for n in 0..20_000_u32 {
        let ttl = Span::Of(Duration::from_millis(u64::from(n % 200)));
        cache.put(&n.to_le_bytes(), &[7; 100], &PutOptions { ttl, ..PutOptions::default() });
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !cache.is_empty() {
                cache.expire();
            }
        });
        while !cache.is_empty() {
            cache.validate().unwrap();
        }
    });
    cache.validate().unwrap();
}
