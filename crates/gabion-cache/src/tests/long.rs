//! Long values that are read from where they lie.

use super::{cache, ttl};
use crate::{Policy, PutOptions, ReadBuf, Reading, Table};

/// What a get gives that may leave the value where it lies, and whether it did.
fn found(table: &Table, key: &[u8], buf: &mut ReadBuf) -> Option<(Vec<u8>, bool)> {
    match table.get_or_find(key, buf)? {
        Reading::Whole(value) => Some((value.to_vec(), false)),
        Reading::Long(long) => {
            let mut value = Vec::new();
            assert!(long.append(0, 5000, &mut value) && long.append(5000, long.len() - 5000, &mut value));
            assert!(long.beginning().len() >= 512 && value.starts_with(long.beginning()));
            Some((value, true))
        }
    }
}

#[test]
fn long_values_are_found_whatever_the_key() {
    let mut buf = ReadBuf::new();
    for policy in [Policy::Sketch, Policy::Lru] {
        for key in
            [1, 100, 500, 512, 513, 520, 600, 1016, 1017, 1024, 1100, 5000, 40_000].map(|length| vec![b'k'; length])
        {
            for length in [0, 100, 7000, 8191, 8192, 9000, 100_000, 1_000_000, (1 << 20) + 1] {
                for options in [PutOptions::default(), ttl(9.0)] {
                    let (cache, _) = cache(64 << 20, policy);
                    let value: Vec<u8> = (0..length).map(|at: usize| (at * 7 + at / 251) as u8).collect();
                    cache.put(&key, &value[..], &options);
                    let (read, left) = found(&cache, &key, &mut buf).unwrap();
                    assert!(read == value, "a key of {} bytes, a value of {length}", key.len());
                    if key.len() <= 512 {
                        // With the key before it, it may be long a little earlier.
                        assert!(left == (8192..=1_000_000).contains(&length) || left && length > 7000);
                    }
                    assert_eq!(cache.get(&key, &mut buf), Some(&value[..]));
                    assert_eq!(found(&cache, b"another", &mut buf), None);
                    let stats = cache.stats();
                    assert_eq!((stats.hits, stats.misses), (2, 1));
                }
            }
        }
    }
}

#[test]
fn keys_that_differ_late_are_told_apart() {
    let (cache, _) = cache(64 << 20, Policy::Sketch);
    let (mut key, mut buf) = (vec![b'k'; 3000], ReadBuf::new());
    for at in [0, 400, 1000, 1030, 2999] {
        key[at] = b'x';
        cache.put(&key, &[at as u8; 10_000][..], &PutOptions::default());
        let mut other = key.clone();
        other[2998] = b'y';
        assert_eq!(found(&cache, &other, &mut buf), None);
        assert_eq!(found(&cache, &key, &mut buf).unwrap().0, [at as u8; 10_000]);
    }
}

#[test]
fn a_long_value_that_was_changed_is_not_read() {
    let (cache, _) = cache(64 << 20, Policy::Sketch);
    let (mut buf, mut read) = (ReadBuf::new(), Vec::new());
    for change in 0..4_u8 {
        cache.put(b"key", &vec![1; 50_000][..], &PutOptions::default());
        let Some(Reading::Long(long)) = cache.get_or_find(b"key", &mut buf) else { panic!("it is long") };
        cache.put(&[change], &vec![3; 50_000][..], &PutOptions::default());
        assert!(long.append(0, 100, &mut read));
        match change {
            0 => assert!(cache.remove(b"key")),
            1 => drop(cache.put(b"key", &vec![2; 50_000][..], &PutOptions::default())),
            2 => drop(cache.clear()),
            _ => drop(cache.pop(b"key", &mut ReadBuf::new())),
        }
        assert!(!long.append(0, 100, &mut read), "change {change}");
        cache.validate().unwrap();
    }
}
