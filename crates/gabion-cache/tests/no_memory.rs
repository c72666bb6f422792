//! A cache where malloc has nothing left: what is read is refused, and not taken for missing; what is there stays.

use gabion_blocks::os::Scarce;
use gabion_cache::{Cache, PutOptions, PutResult, ReadBuf};

#[global_allocator]
static SCARCE: Scarce = Scarce;

#[test]
fn a_value_that_there_is_no_memory_for_is_refused_and_not_missing() {
    let cache = Cache::new(64 << 20).unwrap();
    let keys: [Vec<u8>; 2] = [b"key".to_vec(), vec![b'k'; 3000]];
    for (key, length) in keys.iter().flat_map(|key| [0, 1, 900, 5000, 300_000].map(|length| (key, length))) {
        let (value, mut buf) = (vec![7; length], ReadBuf::new());
        cache.put(key, &value, &PutOptions::default());
        Scarce::without_memory(|| {
            let lacks = |buf: &mut ReadBuf| {
                let told = (cache.get(key, buf).is_some(), buf.refusal().is_some());
                assert!(told == (false, true) || (told == (true, false) && length == 0), "{told:?}, {length} bytes");
                told.1
            };
            if lacks(&mut buf) {
                assert!(cache.peek(key, &mut buf).is_none() && buf.refusal().is_some());
                assert!(cache.get_or_find(key, &mut buf).is_none() && buf.refusal().is_some());
                assert!(cache.pop(key, &mut buf).is_none() && buf.refusal().is_some());
            }
            assert!(cache.contains(key));
            // What is missing is missing all the same.
            assert!(cache.get(b"none", &mut buf).is_none() && buf.refusal().is_none());
            assert!(cache.pop(b"none", &mut buf).is_none() && buf.refusal().is_none());
        });
        assert_eq!(cache.get(key, &mut buf), Some(&value[..]));
        cache.validate().unwrap();
    }
    // A long key is found without memory, so that it has one entry and not two.
    let key = &keys[1];
    assert_eq!(cache.put(key, b"other", &PutOptions::default()), PutResult::Replaced);
    assert!(Scarce::without_memory(|| cache.remove(key)) && !cache.contains(key));
    cache.validate().unwrap();
}
