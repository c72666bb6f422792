//! Values that are made while their keys change.

use std::sync::Barrier;
use std::time::Duration;

use super::{cache, get, ttl};
use crate::{Cache, Deadlock, Lease, Policy, PutOptions, PutResult, Span, TableOptions};

fn keep(cache: &Cache, lease: &Lease) -> Option<PutResult> {
    cache.put_made(lease, b"k", b"made", &PutOptions::default())
}

type Change = (&'static str, fn(&Cache));

#[test]
fn every_change_of_a_key_ends_its_lease() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let changes: [Change; 8] = [
        ("put", |cache| _ = cache.put(b"k", b"new", &PutOptions::default())),
        ("add", |cache| _ = cache.add(b"k", b"new", &PutOptions::default())),
        ("refused put", |cache| _ = cache.put(b"k", &vec![0; 2 << 20], &PutOptions::default())),
        ("remove", |cache| _ = cache.remove(b"k")),
        ("pop", |cache| _ = cache.pop(b"k", &mut crate::ReadBuf::new())),
        ("clear", |cache| _ = cache.default_table().clear()),
        ("clear all", |cache| _ = cache.clear()),
        ("another lease", |cache| _ = cache.lease(b"k")),
    ];
    for (what, change) in changes {
        // With another table's entry the table is cleared one by one.
        for other in [false, true] {
            cache.clear();
            if other {
                cache.table("other", TableOptions::default()).unwrap().put(b"k", b"", &PutOptions::default());
            }
            let lease = cache.lease(b"k");
            change(&cache);
            assert!(!lease.holds(), "{what}");
            let before = get(&cache, b"k");
            assert_eq!(keep(&cache, &lease), None, "{what}");
            assert_eq!(get(&cache, b"k"), before, "{what}");
        }
    }
}

#[test]
fn what_others_do_and_time_end_no_lease() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    let table = cache.table("other", TableOptions::default()).unwrap();
    cache.put(b"k", b"old", &ttl(1.0));
    let lease = cache.lease(b"k");
    for n in 0..20_000_u32 {
        cache.put(&n.to_le_bytes(), &[0; 100], &PutOptions::default());
    }
    cache.remove(b"other");
    table.put(b"k", b"", &PutOptions::default());
    table.clear();
    clock.advance(Duration::from_secs(2));
    cache.expire();
    // A touch changes no value, be there room for an end already or not.
    let without_end = cache.lease(b"endless");
    cache.put_made(&without_end, b"endless", b"", &PutOptions::default());
    for _ in 0..2 {
        assert!(cache.touch(b"endless", Span::Of(Duration::from_secs(60))) && without_end.holds());
    }
    assert_eq!((keep(&cache, &lease), get(&cache, b"k")), (Some(PutResult::Inserted), Some(b"made".to_vec())));
    // It goes on to hold: the value may be made again.
    assert!(lease.holds() && keep(&cache, &lease) == Some(PutResult::Replaced));
    drop(lease);
    let other = Cache::new(1 << 20).unwrap();
    assert_eq!((keep(&cache, &other.lease(b"k")), keep(&cache, &cache.lease(b"other"))), (None, None));
    cache.validate().unwrap();
}

/// The made value came back after the key had been removed, or took the place of a newer one.
#[test]
fn what_is_made_of_older_facts_is_not_kept() {
    let cache = Cache::new(1 << 20).unwrap();
    for change in [|cache: &Cache| _ = cache.remove(b"k"), |cache: &Cache| _ = cache.put(b"k", b"new", &ttl(60.0))] {
        cache.clear();
        let make = |value: &'static [u8], meanwhile: &dyn Fn()| {
            cache.get_or_put(b"k", &PutOptions { ttl: Span::Never, ..PutOptions::default() }, || {
                meanwhile();
                Ok::<_, Deadlock>(value.to_vec())
            })
        };
        let (began, go) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                make(b"old", &|| {
                    began.wait();
                    go.wait();
                })
            });
            began.wait();
            change(&cache);
            // Whoever asks after the change does not wait for what began before it.
            let asked = make(b"new", &|| ()).unwrap();
            assert_eq!(asked, b"new");
            go.wait();
            assert_eq!(slow.join().unwrap().unwrap(), b"old");
        });
        assert_eq!(get(&cache, b"k"), Some(b"new".to_vec()));
    }
}

/// The factory was refused for asking for its own key, though nobody waits for what is out of date.
#[test]
fn a_value_that_is_not_to_be_kept_removes_only_what_was_there_before() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let options = PutOptions::default();
    cache.put(b"k", b"old", &options);
    let lease = cache.lease(b"k");
    assert!(cache.remove_made(&lease, b"k") && !cache.contains(b"k") && !lease.holds());
    let lease = cache.lease(b"k");
    cache.put(b"k", b"newer", &options);
    assert!(!cache.remove_made(&lease, b"k"));
    assert_eq!(get(&cache, b"k"), Some(b"newer".to_vec()));
}

#[test]
fn a_value_that_is_out_of_date_closes_no_circle() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let options = PutOptions::default();
    let made = cache.get_or_put(b"k", &options, || {
        cache.remove(b"k");
        let newer = cache.get_or_put(b"k", &options, || Ok::<_, Deadlock>(b"newer".to_vec()))?;
        assert_eq!(newer, b"newer");
        Ok::<_, Deadlock>(b"made".to_vec())
    });
    assert_eq!(made, Ok(b"made".to_vec()));
    assert_eq!(get(&cache, b"k"), Some(b"newer".to_vec()));
}

#[test]
fn what_is_made_for_a_table_that_is_dropped_is_not_kept() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let options = PutOptions::default();
    let table = cache.table("t", TableOptions::default()).unwrap();
    let made = table.get_or_put(b"k", &options, || {
        assert!(cache.drop_table("t"));
        Ok::<_, Deadlock>(b"made".to_vec())
    });
    assert_eq!((made, table.len()), (Ok(b"made".to_vec()), 0));
    // Also when it is dropped before.
    let lease = table.lease(b"k");
    assert!(!lease.holds() && table.put_made(&lease, b"k", b"made", &options).is_none());
    let again = cache.table("t", TableOptions::default()).unwrap();
    assert_eq!(get(&again, b"k"), None);
    cache.validate().unwrap();
}
