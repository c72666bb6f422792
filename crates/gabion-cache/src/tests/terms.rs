//! Values that are put into another cache with all that the first one knew of them.

use std::sync::Arc;
use std::time::Duration;

use super::{cache, get};
use crate::{Cache, ManualClock, Policy, PutOptions, PutResult, ReadBuf, Span, Table, TableOptions, Terms};

fn seconds(seconds: u64) -> Span {
    Span::Of(Duration::from_secs(seconds))
}

fn terms(table: &Table, key: &[u8]) -> Terms {
    table.peek_with_terms(key, &mut ReadBuf::new()).unwrap().1
}

/// Two tables of two caches whose default time to live is a minute, at two times.
fn two() -> [(Cache, Table, Arc<ManualClock>); 2] {
    [1_000_000, 1_000_030].map(|at| {
        let (cache, clock) = cache(1 << 20, Policy::Sketch);
        clock.set(Duration::from_secs(at));
        let ttl = TableOptions { ttl: Some(Duration::from_secs(60)), ..TableOptions::default() };
        let table = cache.table("minute", ttl).unwrap();
        (cache, table, clock)
    })
}

#[test]
fn times_go_on_where_they_were() {
    let [(from, from_table, early), (to, to_table, late)] = two();
    let at = Some(Duration::from_secs(1_000_200));
    let all = [
        PutOptions::default(),
        PutOptions { ttl: Span::Never, priority: -128, ..PutOptions::default() },
        PutOptions { ttl: seconds(100), priority: 127, ..PutOptions::default() },
        PutOptions { expires_at: at, ..PutOptions::default() },
        PutOptions { idle: seconds(50), ..PutOptions::default() },
        PutOptions { ttl: Span::Never, idle: seconds(50), ..PutOptions::default() },
        PutOptions { ttl: seconds(100), idle: seconds(50), ..PutOptions::default() },
        PutOptions { ttl: seconds(100), idle: seconds(500), expires_at: at, priority: 3 },
    ];
    let (mut buf, mut other, long) = (ReadBuf::new(), ReadBuf::new(), vec![7; 10_000]);
    for (number, options) in all.iter().enumerate() {
        for (before, after) in [(&*from, &*to), (&from_table, &to_table)] {
            for (key, value) in [(vec![number as u8], &b"value"[..]), (vec![number as u8; 2000], &long)] {
                before.put(&key, value, options);
                let (value, terms) = before.peek_with_terms(&key, &mut buf).unwrap();
                assert_eq!(after.add_with_terms(&key, value, &terms), Some(PutResult::Inserted), "{options:?}");
                // A look is no use.
                let other = after.peek(&key, &mut other).map(<[u8]>::to_vec);
                assert_eq!(before.peek(&key, &mut buf).map(<[u8]>::to_vec), other);
            }
        }
    }
    from.validate().unwrap();
    to.validate().unwrap();
    // From here on both are at one time, and do the same whatever happens.
    early.set(Duration::from_secs(1_000_030));
    let mut alive = Vec::new();
    for step in 0..30 {
        let mut here = 0;
        for (number, options) in all.iter().enumerate() {
            for (before, after) in [(&*from, &*to), (&from_table, &to_table)] {
                let key = [number as u8];
                if step % 7 == 3 {
                    assert_eq!(before.touch(&key, Span::Table), after.touch(&key, Span::Table), "{options:?}");
                }
                if step % 4 == 2 {
                    assert_eq!(get(before, key).is_some(), get(after, key).is_some());
                }
                assert_eq!(before.expires_in(&key), after.expires_in(&key), "{options:?} at {step}");
                here += u32::from(before.contains(&key));
            }
        }
        alive.push(here);
        early.advance(Duration::from_secs(10));
        late.advance(Duration::from_secs(10));
    }
    assert!(alive[0] == 16 && *alive.last().unwrap() < 16, "{alive:?}");
}

#[test]
fn what_is_over_is_not_put_and_what_is_there_stays() {
    let [(from, _, _), (to, _, late)] = two();
    from.put(b"k", b"1", &PutOptions { ttl: seconds(40), ..PutOptions::default() });
    from.put(b"idle", b"1", &PutOptions { ttl: seconds(400), idle: seconds(10), ..PutOptions::default() });
    let known = terms(&from, b"k");
    to.put(b"k", b"2", &PutOptions::default());
    assert_eq!(to.add_with_terms(b"k", b"1", &known), None);
    assert_eq!(get(&to, b"k"), Some(b"2".to_vec()));
    assert_eq!(to.add_with_terms(b"idle", b"1", &terms(&from, b"idle")), None);
    late.advance(Duration::from_secs(10));
    assert_eq!(to.add_with_terms(b"other", b"1", &known), None);
    assert!(!to.contains(b"other") && !to.contains(b"idle"));
    assert_eq!(to.add_with_terms(b"huge", &vec![0; 2 << 20], &Terms::default()), Some(PutResult::Rejected));
    to.drop_table("minute");
    assert_eq!((to.stats().inserted, to.stats().rejected), (1, 1));
    to.validate().unwrap();
}

#[test]
fn what_never_ends_by_now_may_be_touched_again() {
    let [(from, _, _), (to, _, late)] = two();
    from.put(b"k", b"1", &PutOptions { ttl: seconds(40), ..PutOptions::default() });
    from.touch(b"k", Span::Never);
    let known = terms(&from, b"k");
    assert_eq!(known, Terms { touch: seconds(40), ..Terms::default() });
    assert!(to.add_with_terms(b"k", b"1", &known).is_some_and(PutResult::is_stored));
    assert_eq!(to.expires_in(b"k"), Some(Duration::MAX));
    assert!(to.touch(b"k", Span::Table));
    late.advance(Duration::from_secs(40));
    assert!(!to.contains(b"k"));
    to.validate().unwrap();
}
