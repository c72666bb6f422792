//! The exact policies to the miss: one order over all keys, whichever thread puts them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;

use super::{cache, weight};
use crate::key::Image;
use crate::policy::tests::Ghosts;
use crate::{Cache, CacheOptions, Policy, PutOptions, PutResult, ReadBuf};

/// A plain S3-FIFO whose ghosts cost something, and plain lists for the rest.
struct Plain {
    policy: Policy,
    limit: u64,
    /// Key and weight, oldest first. All but S3-FIFO have no main queue.
    small: VecDeque<(u32, u64)>,
    main: VecDeque<(u32, u64)>,
    hits: HashMap<u32, u8>,
    ghosts: Ghosts,
}

const GHOST: u64 = 24;

impl Plain {
    fn new(policy: Policy, limit: u64) -> Self {
        let (small, main) = (VecDeque::new(), VecDeque::new());
        Self { policy, limit, small, main, hits: HashMap::new(), ghosts: Ghosts::default() }
    }

    fn get(&mut self, key: u32) -> bool {
        let Some(hits) = self.hits.get_mut(&key) else { return false };
        *hits = (*hits + 1).min(3);
        if self.policy == Policy::Lru {
            let at = self.small.iter().position(|entry| entry.0 == key).unwrap();
            let entry = self.small.remove(at).unwrap();
            self.small.push_back(entry);
        }
        true
    }

    fn bytes(&self) -> u64 {
        self.small.iter().chain(&self.main).map(|entry| entry.1).sum()
    }

    /// Puts a key that is not there.
    fn put(&mut self, key: u32, weight: u64) {
        let known = self.policy == Policy::S3Fifo && self.ghosts.take(key.into());
        while self.bytes() + self.ghosts.len() * GHOST + weight > self.limit {
            self.evict();
        }
        self.hits.insert(key, 0);
        if known { &mut self.main } else { &mut self.small }.push_back((key, weight));
    }

    fn evict(&mut self) {
        let capacity = self.limit - self.ghosts.len() * GHOST;
        let main: u64 = self.main.iter().map(|entry| entry.1).sum();
        if self.policy != Policy::S3Fifo || main <= capacity - capacity / 10 {
            while let Some((key, weight)) = self.small.pop_front() {
                if self.policy != Policy::S3Fifo || self.hits[&key] < 2 {
                    self.hits.remove(&key);
                    if self.policy == Policy::S3Fifo {
                        self.ghosts.add(key.into(), weight, capacity / 10 * 9);
                    }
                    return;
                }
                self.hits.insert(key, 0);
                self.main.push_back((key, weight));
            }
        }
        while let Some((key, weight)) = self.main.pop_front() {
            match self.hits.get_mut(&key) {
                Some(hits) if *hits > 0 => *hits -= 1,
                _ => {
                    self.hits.remove(&key);
                    return;
                }
            }
            self.main.push_back((key, weight));
        }
    }
}

/// Keys whose hashes differ in what is kept of them, or one in some million would be taken for another's ghost.
fn keys(cache: &Cache, count: usize) -> Vec<u32> {
    let mut seen = HashSet::new();
    let hash = |key: u32| cache.core().hash(&Image::new(0, &key.to_le_bytes())).kept();
    (0..).filter(|&key| seen.insert(hash(key))).take(count).collect()
}

#[test]
fn each_policy_gives_what_a_plain_one_does_whichever_thread_asks() {
    const SIZES: [usize; 5] = [8, 30, 75, 200, 470];
    for policy in [Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let limit = 150_000;
        // As many shards as the cache likes.
        let cache = Cache::with_options(&CacheOptions { max_bytes: limit, policy, ..CacheOptions::default() }).unwrap();
        let keys = keys(&cache, 4000);
        // Who asks and who puts is left to chance; what they do is one row of steps, to be compared with.
        let plain = Mutex::new(Plain::new(policy, limit));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (cache, keys, plain) = (&cache, &keys, &plain);
                scope.spawn(move || {
                    let (mut random, mut buf) = (0x9E37_79B9_7F4A_7C15 ^ thread << 7, ReadBuf::new());
                    for _ in 0..5000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        // The product of two numbers: some keys are asked for often. A quarter is a thread's own.
                        let key = ((random >> 40) % 60 * ((random >> 20) % 60)) as usize;
                        let key = keys[if random.is_multiple_of(4) { key / 4 * 4 + thread as usize } else { key }];
                        let mut plain = plain.lock().unwrap();
                        let hit = cache.get(&key.to_le_bytes(), &mut buf).is_some();
                        assert_eq!(hit, plain.get(key), "{policy:?}");
                        if !hit {
                            let size = SIZES[key as usize % SIZES.len()];
                            let result = cache.put(&key.to_le_bytes(), &vec![7; size], &PutOptions::default());
                            assert_eq!(result, PutResult::Inserted);
                            plain.put(key, weight(4, size));
                        }
                        assert_eq!(cache.stats().bytes, plain.bytes());
                    }
                });
            }
        });
        let stats = cache.stats();
        assert!(stats.hits > 1000 && stats.evicted > 1000, "{stats:?}");
        cache.validate().unwrap();
    }
}

/// Where pages were short, whoever lay in the way went, whatever his turn.
#[test]
fn nobody_goes_before_his_turn_however_short_the_pages() {
    for policy in [Policy::Lru, Policy::Fifo] {
        for limit in [1 << 19, 8 << 20] {
            let cache =
                Cache::with_options(&CacheOptions { max_bytes: limit, policy, ..CacheOptions::default() }).unwrap();
            let (mut turns, mut random, mut buf) = (Vec::new(), 0x2545_F491_4F6C_DD1D_u64, ReadBuf::new());
            for key in 0..30_000_u32 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let size = if random.is_multiple_of(40) { 3000 } else { (random >> 20) as usize % 900 };
                assert_eq!(cache.put(&key.to_le_bytes(), &vec![1; size], &PutOptions::default()), PutResult::Inserted);
                turns.push(key);
                let at = (random >> 40) as usize % turns.len();
                if cache.get(&turns[at].to_le_bytes(), &mut buf).is_some() && policy == Policy::Lru {
                    let used = turns.remove(at);
                    turns.push(used);
                }
                if key % 100 == 0 {
                    let first = turns.iter().position(|key| cache.contains(&key.to_le_bytes())).unwrap();
                    turns.drain(..first);
                    assert_eq!(turns.len() as u64, cache.len(), "{policy:?}: somebody in the middle went");
                    assert!(cache.stats().reserved_bytes <= 8 << 20);
                }
            }
            cache.validate().unwrap();
        }
    }
}

/// A put that was refused left it to a later one that its key had a ghost.
#[test]
fn a_ghost_is_for_the_put_that_it_goes_for() {
    for refused in [false, true] {
        let (cache, _) = cache(1 << 16, Policy::S3Fifo);
        let mut others = 0_u32..;
        let mut put_other = || {
            let key = others.next().unwrap().to_le_bytes();
            assert_eq!(cache.put(&key, &[1; 100], &PutOptions::default()), PutResult::Inserted);
        };
        cache.put(b"key", &[1; 100], &PutOptions::default());
        while cache.contains(b"key") {
            put_other();
        }
        if refused {
            assert_eq!(cache.put(b"key", &vec![1; 1 << 16], &PutOptions::default()), PutResult::Rejected);
        }
        cache.put(b"key", &[1; 100], &PutOptions::default());
        (0..1000).for_each(|_| put_other());
        // Who had a ghost is in the main queue, where nobody else comes.
        assert_eq!(cache.contains(b"key"), !refused);
        cache.validate().unwrap();
    }
}
