//! Readers without a lock that stop in the middle, and go on when all that they saw is gone.

use super::priority;
use crate::index::{Cell, Glimpse};
use crate::key::{Image, KeyHash};
use crate::read::{Found, read_brief};
use crate::shard::Look;
use crate::{Cache, CacheOptions, Policy, ReadBuf};

fn cache(policy: Policy) -> Cache {
    let options = CacheOptions { max_bytes: 8 << 20, policy, shards: Some(1), ..CacheOptions::default() };
    Cache::with_options(&options).unwrap()
}

fn hash(cache: &Cache, key: u32) -> KeyHash {
    cache.core().hash(&Image::short(0, &key.to_le_bytes()).unwrap())
}

/// Puts keys, and looks them up as a get does before it tells the policy.
fn looked_up(cache: &Cache, keys: u32) -> Vec<(KeyHash, Found, Cell<'_>)> {
    let (ground, shards, mut buf) = (cache.core().ground(), cache.core().shards(), ReadBuf::new());
    for key in 0..keys {
        cache.put(&key.to_le_bytes(), &[7; 50], &priority(0));
    }
    cache.get(&0_u32.to_le_bytes(), &mut buf);
    let look = |key: u32| {
        let (image, hash) = (key.to_le_bytes(), hash(cache, key));
        match shards[0].look(ground, &Image::short(0, &image).unwrap(), hash, &mut buf) {
            Look::Value(found, cell) => Some((hash, found, cell)),
            Look::Nothing | Look::Unclear => None,
        }
    };
    (0..keys).filter_map(look).collect()
}

/// Readers that found values tell the policy of it after `change`, which leaves none of the entries.
fn tell_late(change: fn(&Cache, u32)) {
    const KEYS: u32 = 2000;
    let cache = cache(Policy::Lru);
    let seen = looked_up(&cache, KEYS);
    assert!(seen.len() > KEYS as usize / 2);
    change(&cache, KEYS);
    let (ground, shards) = (cache.core().ground(), cache.core().shards());
    let standing = seen.iter().filter(|(_, _, cell)| cell.stands()).count();
    assert_eq!(standing, 0, "cells stand whose entries are gone");
    for (hash, found, cell) in seen {
        shards[0].found(ground, hash, found, cell, true, || 0);
    }
    cache.validate().unwrap();
}

#[test]
fn nothing_that_was_cleared_is_moved_up() {
    tell_late(|cache, _| {
        cache.clear();
    });
}

#[test]
fn nothing_that_went_while_segments_were_merged_is_moved_up() {
    tell_late(|cache, keys| {
        for key in 0..keys {
            assert!(cache.remove(&key.to_le_bytes()));
        }
    });
}

#[test]
fn what_others_put_where_an_entry_was_is_not_taken_for_it() {
    // Few others, so that segments that were given back stay so.
    const KEYS: u32 = 2000;
    const OTHERS: u32 = 300;
    let cache = cache(Policy::Sketch);
    for key in 0..KEYS {
        cache.put(&key.to_le_bytes(), &[7; 50], &priority(0));
    }
    let (ground, shards) = (cache.core().ground(), cache.core().shards());
    // Readers that know where to look, and have not looked yet.
    let first = |key| match shards[0].segments.first(hash(&cache, key).kept()) {
        Glimpse::Cell(cell) => Some((key, cell)),
        Glimpse::Nothing | Glimpse::Unclear => None,
    };
    let seen: Vec<_> = (0..KEYS).filter_map(first).collect();
    for key in 0..KEYS {
        cache.remove(&key.to_le_bytes());
    }
    // Pages of slots get larger ones, and values that look like slots from their first byte on.
    let mut buf = ReadBuf::new();
    for key in KEYS..KEYS + OTHERS {
        cache.put(&key.to_le_bytes(), &[9; 900], &priority(0));
    }
    cache.get(&KEYS.to_le_bytes(), &mut buf);
    let mut forgeries = 0;
    for (key, cell) in &seen {
        let at = cell.place().to_bits();
        for other in KEYS..KEYS + OTHERS {
            let (bytes, hash) = (other.to_le_bytes(), hash(&cache, other));
            let image = Image::short(0, &bytes).unwrap();
            let entry = shards[0].find(&shards[0].lock(), ground, &image, hash);
            let Some(entry) = entry.filter(|&entry| entry + 8 < at && at + 10 < entry + 110) else { continue };
            // A slot's word that says 29 bytes, an entry's two words, the key's image, a value.
            let image = [&[8], &key.to_le_bytes()[..]].concat();
            let forged = [&(1_u64 | 29 << 23).to_le_bytes()[..], &[0; 16], &image, b"NEVERPUT"].concat();
            let offset = ((at - entry - 1) * 8 - 16) as usize - image.len();
            let mut value = vec![9; 900];
            value[offset..offset + forged.len()].copy_from_slice(&forged);
            cache.put(&bytes, &value, &priority(0));
            let bytes = key.to_le_bytes();
            let read = read_brief(&ground.pile, &Image::short(0, &bytes).unwrap(), *cell, &mut buf);
            assert!(read.is_none(), "a get gave what was never put: {:?}", buf.payload());
            forgeries += 1;
        }
    }
    assert!(forgeries > 100, "{forgeries} looked like the entry that had been there");
}
