//! Random operations beside a dictionary and a naive policy, with every equation checked after each step.

use proptest::collection::vec;
use proptest::prelude::*;

use gabion_pile::SLOT_PAYLOAD;

use super::{cache, get, layout, priority, weight};
use crate::entry::stored;
use crate::{Policy, PutResult, ReadBuf};

#[derive(Debug, Clone)]
enum Op {
    Put(u8, usize, i8),
    Add(u8, usize),
    Get(u8),
    Remove(u8),
    Pop(u8),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0_u8..60;
    let size = || prop_oneof![8 => 0_usize..200, 2 => 200_usize..1500, 1 => 1500_usize..9000];
    prop_oneof![
        40 => (key(), size(), -1_i8..2).prop_map(|(key, size, priority)| Op::Put(key, size, priority)),
        5 => (key(), size()).prop_map(|(key, size)| Op::Add(key, size)),
        30 => key().prop_map(Op::Get),
        8 => key().prop_map(Op::Remove),
        4 => key().prop_map(Op::Pop),
        1 => Just(Op::Clear),
    ]
}

fn value(seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (seed * 31 + at * 7) as u8).collect()
}

/// Entries, least recently used (or first put) first.
#[derive(Default)]
struct Naive {
    entries: Vec<(u8, Vec<u8>, i8)>,
    limit: u64,
    moves: bool,
}

impl Naive {
    fn used(&self) -> u64 {
        self.entries.iter().map(|entry| weight(1, entry.1.len())).sum()
    }

    fn at(&self, key: u8) -> Option<usize> {
        self.entries.iter().position(|entry| entry.0 == key)
    }

    fn touch(&mut self, at: usize) {
        if self.moves {
            let entry = self.entries.remove(at);
            self.entries.push(entry);
        }
    }

    fn get(&mut self, key: u8) -> Option<Vec<u8>> {
        let at = self.at(key)?;
        let value = self.entries[at].1.clone();
        self.touch(at);
        Some(value)
    }

    fn set(&mut self, at: usize, value: Vec<u8>, priority: i8) {
        let before = self.entries[at].2;
        self.entries[at].1 = value;
        self.entries[at].2 = priority;
        // Another priority is another queue, where it is the newest.
        if before != priority {
            let entry = self.entries.remove(at);
            self.entries.push(entry);
        }
    }

    fn put(&mut self, key: u8, value: Vec<u8>, priority: i8) -> PutResult {
        let weight_of = |entry: &(u8, Vec<u8>, i8)| weight(1, entry.1.len());
        let new = weight(1, value.len());
        let there = self.at(key);
        if let Some(at) = there {
            // Within a slot it is written over; what is longer stands beside its old value for a moment.
            let same = weight_of(&self.entries[at]) == new && layout(1, value.len()).rest.is_none();
            let before = self.entries[at].2;
            if same {
                self.entries[at].1 = value;
                self.entries[at].2 = priority;
                // Another priority is another queue, where it is the newest.
                let entry = self.entries.remove(at);
                self.entries.insert(if before == priority && !self.moves { at } else { self.entries.len() }, entry);
                return PutResult::Replaced;
            }
            self.touch(at);
            // Where there is no room beside it, what is long lies where its old value lay, if that was as long.
            let at = self.at(key).unwrap();
            let (old, rest) = (self.entries[at].1.len(), layout(1, value.len()).rest.unwrap_or(0));
            let long = old.min(rest) > SLOT_PAYLOAD && stored(old) >= stored(rest);
            if long && self.used() + new > self.limit {
                self.set(at, value, priority);
                return PutResult::Replaced;
            }
        }
        // Its own old value stays until the new one is there, whatever its priority, and others make room for the
        // difference.
        let may_go = |entry: &&(u8, Vec<u8>, i8)| entry.0 != key && entry.2 <= priority;
        let evictable: u64 = self.entries.iter().filter(may_go).map(weight_of).sum();
        let own = self.at(key).map_or(0, |at| weight_of(&self.entries[at]));
        if self.limit - self.used() + own + evictable < new {
            self.entries.retain(|entry| entry.0 != key);
            return PutResult::Rejected;
        }
        while self.used() - own + new > self.limit {
            let lowest = self.entries.iter().filter(may_go).map(|entry| entry.2).min().unwrap();
            let at = self.entries.iter().position(|entry| entry.0 != key && entry.2 == lowest).unwrap();
            self.entries.remove(at);
        }
        match self.at(key) {
            Some(at) => self.set(at, value, priority),
            None => self.entries.push((key, value, priority)),
        }
        if there.is_some() { PutResult::Replaced } else { PutResult::Inserted }
    }
}

fn check(policy: Policy, ops: &[Op]) -> Result<(), TestCaseError> {
    check_each(policy, ops.iter().cloned(), 1)
}

/// Compares each result with the model's, and checks the structure after each `every` steps.
fn check_each(policy: Policy, ops: impl Iterator<Item = Op>, every: usize) -> Result<(), TestCaseError> {
    let limit = 6000;
    let (cache, _) = cache(limit, policy);
    let mut naive = Naive { limit, moves: policy == Policy::Lru, ..Naive::default() };
    let exact = matches!(policy, Policy::Lru | Policy::Fifo);
    for (step, op) in ops.enumerate() {
        match op {
            Op::Put(key, size, p) => {
                let value = value(step, size);
                let result = cache.put(&[key], &value, &priority(p));
                if exact {
                    let expected = naive.put(key, value, p);
                    prop_assert_eq!(result, expected);
                } else if result == PutResult::Rejected {
                    prop_assert_eq!(get(&cache, [key]), None);
                } else {
                    prop_assert_eq!(get(&cache, [key]), Some(value));
                }
            }
            Op::Add(key, size) => {
                let value = value(step, size);
                let result = cache.add(&[key], &value, &priority(0));
                if exact {
                    let expected = naive.at(key).is_none().then(|| naive.put(key, value, 0));
                    prop_assert_eq!(result, expected);
                }
            }
            Op::Get(key) => {
                let got = get(&cache, [key]);
                if exact {
                    prop_assert_eq!(got, naive.get(key));
                }
            }
            Op::Remove(key) => {
                let there = cache.contains(&[key]);
                prop_assert_eq!(cache.remove(&[key]), there);
                prop_assert_eq!(get(&cache, [key]), None);
                if let Some(at) = naive.at(key) {
                    naive.entries.remove(at);
                }
            }
            Op::Pop(key) => {
                let got = cache.pop(&[key], &mut ReadBuf::new()).map(<[u8]>::to_vec);
                if exact {
                    let at = naive.at(key);
                    prop_assert_eq!(got, at.map(|at| naive.entries.remove(at).1));
                }
            }
            Op::Clear => {
                let there = cache.len();
                prop_assert_eq!((cache.clear(), cache.len()), (there, 0));
                naive.entries.clear();
            }
        }
        if exact {
            prop_assert_eq!(
                (cache.len(), cache.stats().bytes),
                (naive.entries.len() as u64, naive.used()),
                "at {}",
                step
            );
        }
        prop_assert!(cache.stats().bytes <= limit);
        if step % every == 0 {
            cache.validate().map_err(|wrong| TestCaseError::fail(wrong.0))?;
        }
    }
    cache.validate().map_err(|wrong| TestCaseError::fail(wrong.0))
}

proptest! {
    #[test]
    fn least_recently_used_is_exact(ops in vec(op(), 1..400)) {
        check(Policy::Lru, &ops)?;
    }

    #[test]
    fn first_in_first_out_is_exact(ops in vec(op(), 1..400)) {
        check(Policy::Fifo, &ops)?;
    }

    #[test]
    fn the_default_never_serves_what_was_not_put_last(ops in vec(op(), 1..400)) {
        check(Policy::Sketch, &ops)?;
    }

    #[test]
    fn neither_does_s3_fifo(ops in vec(op(), 1..400)) {
        check(Policy::S3Fifo, &ops)?;
    }
}

#[test]
fn an_index_that_grows_and_shrinks_loses_nothing() {
    for policy in [Policy::Sketch, Policy::Lru] {
        let (cache, _) = cache(1 << 30, policy);
        let key = |n: u32| (n.wrapping_mul(2_654_435_761)).to_le_bytes();
        let mut count = 0_u32;
        for target in [5_000_u32, 30_000, 100, 60_000, 0, 3_000] {
            while count < target {
                assert_eq!(cache.put(&key(count), &count.to_le_bytes(), &priority(0)), PutResult::Inserted);
                count += 1;
            }
            while count > target {
                count -= 1;
                assert!(cache.remove(&key(count)));
            }
            cache.validate().unwrap();
            for n in 0..count {
                assert_eq!(get(&cache, key(n)), Some(n.to_le_bytes().to_vec()));
            }
            assert_eq!((cache.len(), get(&cache, key(count))), (u64::from(count), None));
        }
        let stats = cache.stats();
        assert!(stats.index_bytes - cache.core().ground().fixed <= 12 << 16, "{stats:?}");
    }
}

/// 2 × 10⁵ operations in each policy; 10⁷ with `GABION_LONG` set.
#[test]
fn a_long_run_keeps_to_the_model() {
    let long = std::env::var_os("GABION_LONG").is_some();
    let steps = if long { 10_000_000 } else { 200_000 };
    for policy in [Policy::Lru, Policy::Fifo, Policy::Sketch, Policy::S3Fifo] {
        let mut random = 0xD1B5_4A32_D192_ED03_u64;
        let ops = std::iter::from_fn(|| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (key, more) = ((random >> 8) as u8 % 60, (random >> 24) as usize);
            let size = if more.is_multiple_of(11) { more / 11 % 9000 } else { more / 11 % 200 };
            Some(match random % 100 {
                0..45 => Op::Put(key, size, (more % 3) as i8 - 1),
                45..50 => Op::Add(key, size),
                50..85 => Op::Get(key),
                85..95 => Op::Remove(key),
                95..99 => Op::Pop(key),
                _ if more.is_multiple_of(50) => Op::Clear,
                _ => Op::Get(key),
            })
        });
        check_each(policy, ops.take(steps), 1000).unwrap();
    }
}
