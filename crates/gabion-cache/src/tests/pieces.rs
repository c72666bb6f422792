//! Values that come in several pieces.

use super::{cache, get, weight};
use crate::{Cache, Policy, PutOptions, PutResult, ReadBuf, Value};

const LARGE: usize = 3 << 20;

#[test]
fn pieces_are_one_value() {
    let options = PutOptions::default();
    let (tail, long_key) = (vec![7; LARGE], vec![b'k'; 40_000]);
    for policy in [Policy::Sketch, Policy::Lru] {
        let (cache, _) = cache(64 << 20, policy);
        for key in [&b"k"[..], &long_key] {
            for pieces in [&[][..], &[&b""[..]], &[b"in ", b"", b"pieces"], &[b"head", &tail, b"", b"end", &tail]] {
                let whole = pieces.concat();
                assert_eq!(Value::from(pieces).len(), whole.len());
                assert_eq!(cache.put(key, pieces, &options), PutResult::Inserted);
                assert_eq!(get(&cache, key).as_ref(), Some(&whole));
                assert_eq!(cache.stats().bytes, weight(key.len(), whole.len()));
                assert_eq!(cache.put(key, pieces, &options), PutResult::Replaced);
                assert_eq!(cache.add(key, pieces, &options), None);
                assert_eq!(cache.replace_if(key, b"another", pieces), None);
                assert_eq!(cache.replace_if(key, &whole, b"small"), Some(PutResult::Replaced));
                assert_eq!(cache.replace_if(key, b"small", pieces), Some(PutResult::Replaced));
                assert_eq!(get(&cache, key).as_ref(), Some(&whole));
                cache.validate().unwrap();
                assert!(cache.remove(key));
                let lease = cache.lease(key);
                assert_eq!(cache.put_made(&lease, key, pieces, &options), Some(PutResult::Inserted));
                assert_eq!(get(&cache, key), Some(whole));
                cache.clear();
                assert_eq!(cache.put_made(&lease, key, pieces, &options), None);
                cache.validate().unwrap();
            }
        }
    }
}

#[test]
fn pieces_weigh_what_the_whole_does() {
    let options = PutOptions::default();
    let content: Vec<u8> = (0..(1 << 20) + 9).map(|at: usize| (at * 7 + at / 251) as u8).collect();
    for policy in [Policy::Sketch, Policy::S3Fifo, Policy::Lru] {
        let (cache, _) = cache(64 << 20, policy);
        for key in [1, 9, 500, 512, 513, 1000, 1016, 1017, 40_000].map(|length| vec![b'k'; length]) {
            for length in [1, 900, 1000, 1015, 1016, 1017, 1024, 9000, 100_003, 1 << 20, (1 << 20) + 1] {
                let value = &content[..length];
                for (first, second) in [(0, length), (1, 1), (5, length / 2), (length / 3, length - 1)] {
                    let pieces = [&value[..first.min(second)], &value[first.min(second)..second], &value[second..]];
                    cache.put(&key, &pieces[..], &options);
                    assert_eq!(get(&cache, &key).as_deref(), Some(value), "{length}");
                    assert_eq!(cache.stats().bytes, weight(key.len(), length));
                }
                cache.validate().unwrap();
                assert_eq!(cache.put(&key, value, &options), PutResult::Replaced);
                assert_eq!(cache.stats().bytes, weight(key.len(), length));
                assert_eq!(get(&cache, &key).as_deref(), Some(value));
            }
            assert!(cache.remove(&key));
        }
        assert_eq!(cache.stats().bytes, 0);
        cache.validate().unwrap();
    }
}

#[test]
fn room_is_made_for_pieces() {
    let (head, tail) = ([1; 100], vec![2; LARGE]);
    let (cache, _) = cache(16 << 20, Policy::Sketch);
    for n in 0..40_u32 {
        let pieces = [&head[..], &tail, &n.to_le_bytes()[..]];
        assert_eq!(cache.put(&n.to_le_bytes(), &pieces[..], &PutOptions::default()), PutResult::Inserted);
        assert_eq!(get(&cache, n.to_le_bytes()), Some(pieces.concat()));
        cache.put(&(n + 1000).to_le_bytes(), &head, &PutOptions::default());
        assert!(cache.stats().bytes <= 16 << 20);
        cache.validate().unwrap();
    }
    assert!(cache.stats().evicted >= 35);
    // More than there can be: the key has nothing then, and the others are left alone.
    let (n, before) = (39_u32.to_le_bytes(), cache.len());
    let pieces = [&tail[..]; 6];
    assert_eq!(cache.put(&n, &pieces[..], &PutOptions::default()), PutResult::Rejected);
    assert_eq!((get(&cache, n), cache.len()), (None, before - 1));
    cache.validate().unwrap();
}

#[test]
fn text_is_taken_as_its_bytes() {
    let (cache, mut buf) = (Cache::new(64 << 20).unwrap(), ReadBuf::new());
    let text = format!("{} MiB", 4);
    let puts: [Value<'_>; 4] = ["4 MiB".into(), (&text).into(), b"4 MiB".into(), text.as_bytes().into()];
    for value in puts {
        assert!(cache.put(b"stone", value, &PutOptions::default()).is_stored());
        assert_eq!(cache.get(b"stone", &mut buf), Some(text.as_bytes()));
    }
    assert_eq!(cache.replace_if(b"stone", "4 MiB", "2 MiB"), Some(PutResult::Replaced));
    assert!(cache.remove_if(b"stone", &String::from("2 MiB")));
}

#[test]
fn a_put_that_is_refused_is_not_stored_and_leaves_nothing() {
    let cache = Cache::new(1 << 20).unwrap();
    assert!(cache.put(b"stone", "small", &PutOptions::default()).is_stored());
    assert!(!cache.put(b"stone", &vec![7; 8 << 20], &PutOptions::default()).is_stored());
    assert!(!cache.contains(b"stone"));
}
