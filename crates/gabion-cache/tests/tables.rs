//! Tables that come and go, and what their handles reach afterwards.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use gabion_cache::{
    Cache, CacheOptions, Deadlock, ManualClock, PutOptions, PutResult, ReadBuf, Span, Table, TableOptions,
};

fn cache(max_bytes: u64) -> (Cache, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let options = CacheOptions { max_bytes, shards: Some(1), clock: Some(clock.clone()), ..CacheOptions::default() };
    (Cache::with_options(&options).unwrap(), clock)
}

fn table(cache: &Cache, name: &str) -> Table {
    cache.table(name, TableOptions::default()).unwrap()
}

fn get(table: &Table, key: &[u8]) -> Option<Vec<u8>> {
    table.get(key, &mut ReadBuf::new()).map(<[u8]>::to_vec)
}

fn ttl(milliseconds: u64) -> PutOptions {
    PutOptions { ttl: Span::Of(Duration::from_millis(milliseconds)), ..PutOptions::default() }
}

fn key_count(table: &Table) -> usize {
    let mut count = 0;
    table.for_each_key(|_| count += 1);
    count
}

#[test]
fn a_handle_of_a_dropped_table_reaches_no_other() {
    let (cache, _) = cache(1 << 20);
    let old = table(&cache, "old");
    old.put(b"k", b"old", &PutOptions::default());
    assert!(cache.drop_table("old"));
    let new = table(&cache, "new");
    new.put(b"k", b"new", &PutOptions::default());

    assert_eq!((get(&old, b"k"), old.contains(b"k"), key_count(&old), old.clear()), (None, false, 0, 0));
    assert_eq!(
        (old.pop(b"k", &mut ReadBuf::new()), old.remove(b"k"), old.touch(b"k", Span::Table)),
        (None, false, false)
    );
    assert_eq!((old.replace_if(b"k", b"new", b"x"), old.remove_if(b"k", b"new")), (None, false));
    assert_eq!(old.put(b"k", b"x", &PutOptions::default()), PutResult::Rejected);
    assert_eq!(old.add(b"k", b"x", &PutOptions::default()), Some(PutResult::Rejected));
    assert_eq!(get(&new, b"k"), Some(b"new".to_vec()));
    // One asks for the other's value, and does not wait for itself.
    let inner = || new.get_or_put(b"f", &PutOptions::default(), || Ok::<_, Deadlock>(b"made".to_vec()));
    assert_eq!(old.get_or_put(b"f", &PutOptions::default(), inner), Ok(b"made".to_vec()));
    cache.validate().unwrap();
}

#[test]
fn numbers_are_used_again_when_no_handle_is_left() {
    let (cache, _) = cache(1 << 20);
    for n in 0..70_000 {
        let name = format!("t{n}");
        table(&cache, &name).put(b"k", b"v", &PutOptions::default());
        assert!(cache.drop_table(&name));
    }
    assert_eq!((cache.stats().inserted, cache.stats().entries), (70_000, 0));
    cache.validate().unwrap();
}

/// What a call lets expire on its way is told when it returns, under the name of the table that it was in.
#[test]
fn what_leaves_is_told_at_once_and_by_its_own_table() {
    let (cache, clock) = cache(1 << 20);
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    cache.on_departure(Some(Arc::new(move |gone| listener.lock().unwrap().push(gone.table.to_owned()))));
    cache.put(b"timed", b"", &ttl(1_000_000));
    for (key, name) in [(&b"timed"[..], "a"), (b"absent", "b")] {
        table(&cache, name).put(b"k", b"", &ttl(1000));
        clock.advance(Duration::from_secs(20));
        // A call looks at a few places of the wheel only.
        for _ in 0..1000 {
            assert_eq!(cache.touch(key, Span::Table), key == b"timed");
        }
        assert_eq!(*told.lock().unwrap(), [name]);
        told.lock().unwrap().clear();
        cache.drop_table(name);
        table(&cache, "new").put(b"k", b"", &PutOptions::default());
        cache.drop_table("new");
        assert!(told.lock().unwrap().is_empty());
    }
    cache.validate().unwrap();
}

/// Each round the old table is dropped by two threads while others still use it, and the next one is made and filled
/// meanwhile. Nothing but its own handle reaches that one.
#[test]
fn tables_that_are_dropped_in_use_take_nothing_along() {
    let cache = Cache::with_options(&CacheOptions { max_bytes: 64 << 20, ..CacheOptions::default() }).unwrap();
    for round in 0..300_u32 {
        let (old, begin) = (table(&cache, "old"), Barrier::new(4));
        for key in 0..50_u8 {
            old.put(&[key], b"old", &PutOptions::default());
        }
        std::thread::scope(|scope| {
            let users = [0, 1].map(|kind| {
                let (old, begin) = (old.clone(), &begin);
                scope.spawn(move || {
                    let mut buf = ReadBuf::new();
                    begin.wait();
                    for key in (0..50_u8).cycle().take(500) {
                        let seen = if kind == 0 { old.pop(&[key], &mut buf) } else { old.get(&[key], &mut buf) };
                        assert!(seen.is_none_or(|value| value == b"old"));
                        old.put(&[key], b"old", &PutOptions::default());
                        old.remove(&[key]);
                        old.touch(&[key], Span::Of(Duration::from_secs(1000)));
                        if key == 49 {
                            old.clear();
                            old.for_each_key(|_| {});
                        }
                    }
                })
            });
            let droppers = [0, 1].map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    cache.drop_table("old")
                })
            });
            let dropped = droppers.map(|dropper| dropper.join().unwrap());
            assert!(dropped[0] != dropped[1], "round {round}: dropped by {dropped:?}");
            let new = table(&cache, "new");
            for key in 0..50_u8 {
                new.put(&[key], b"new", &PutOptions::default());
            }
            for key in 0..50_u8 {
                assert_eq!(get(&new, &[key]), Some(b"new".to_vec()), "round {round}");
            }
            assert_eq!(key_count(&new), 50, "round {round}");
            for user in users {
                user.join().unwrap();
            }
        });
        assert!(cache.drop_table("new"));
        assert_eq!((cache.len(), cache.tables().len()), (0, 1));
    }
    cache.validate().unwrap();
}

/// Each new table was compared with all others, and each shard copied the list of them.
#[test]
fn there_may_be_as_many_tables_as_there_are_numbers() {
    let (cache, _) = cache(64 << 20);
    let names: Vec<String> = (1..=u16::MAX).map(|n| format!("t{n}")).collect();
    let mut tables: Vec<_> = names.iter().map(|name| Some(table(&cache, name))).collect();
    for (at, of) in tables.iter().enumerate() {
        of.as_ref().unwrap().put(b"k", &at.to_le_bytes(), &PutOptions::default());
    }
    assert!(cache.table("one more", TableOptions::default()).is_none());
    // The handles of dropped ones keep their numbers, and the name is another's.
    for name in &names[..100] {
        assert!(cache.drop_table(name) && !cache.drop_table(name));
    }
    assert!(cache.table(&names[7], TableOptions::default()).is_none());
    tables[50] = None;
    let again = table(&cache, &names[7]);
    assert_eq!((get(&again, b"k"), again.put(b"k", b"new", &PutOptions::default())), (None, PutResult::Inserted));
    assert!(cache.table("one more", TableOptions::default()).is_none());
    assert_eq!(get(&table(&cache, &names[7]), b"k"), Some(b"new".to_vec()));
    assert_eq!(get(tables[200].as_ref().unwrap(), b"k"), Some(200_usize.to_le_bytes().to_vec()));
    assert_eq!((cache.tables().len(), cache.stats().entries), (usize::from(u16::MAX) - 98, 65_436));
    cache.validate().unwrap();
}

#[test]
fn what_entries_take_adds_up() {
    let cache = Cache::new(16 << 20).unwrap();
    let tables = [cache.default_table().clone(), table(&cache, "t")];
    for number in 0..200_u32 {
        for table in &tables {
            let options = if number % 3 == 0 { ttl(60_000) } else { PutOptions::default() };
            table.put(&number.to_le_bytes(), &vec![7; number.pow(2) as usize], &options);
        }
    }
    for table in &tables {
        let mut sum = 0;
        table.for_each_key(|key| sum += table.size_of(key).unwrap());
        assert_eq!(sum, table.stats().bytes);
    }
    assert_eq!(tables.iter().map(|table| table.stats().bytes).sum::<u64>(), cache.stats().bytes);
    cache.put(b"over", b"", &ttl(0));
    assert_eq!((cache.size_of(b"over"), cache.size_of(b"never"), cache.stats().misses), (None, None, 0));
    cache.drop_table("t");
    assert_eq!(tables[1].size_of(&7_u32.to_le_bytes()), None);
}
