//! What the public types are to threads, to panics and to memory, so that no field changes it by the way.

use std::panic::{RefUnwindSafe, UnwindSafe};

use gabion::{
    Affinity, BlockError, Buffer, Cache, Cursor, FileError, FreeError, Global, Group, GroupRequest, Lease, Noted, Pile,
    PileError, Pointer, Pointers, Pool, ReadBuf, Request, RunIdentity, SlotBox, Slots, SlotsError, Table, View, Within,
    WithinGlobal, WithinOwned,
};

fn is_of_any_thread<T: Send + Sync>() {}

fn stands_panics<T: UnwindSafe + RefUnwindSafe>() {}

macro_rules! each {
    ($check:ident: $($kind:ty),* $(,)?) => {
        $($check::<$kind>();)*
    };
}

#[test]
fn all_may_be_sent_and_shared() {
    each!(is_of_any_thread: Pile, View, Pointer, Pointers<'_>, Cursor, Noted, ReadBuf, RunIdentity, PileError);
    each!(is_of_any_thread: Cache, Table, Lease);
    each!(is_of_any_thread: Pool, Buffer, Group, Request, GroupRequest, BlockError, FileError);
    each!(is_of_any_thread: Slots, Within<'_>, WithinGlobal<0>, Global, SlotBox<'_, u64>, SlotsError, FreeError, Affinity);
    each!(is_of_any_thread: WithinOwned);
}

#[test]
fn a_panic_beside_them_leaves_them_whole() {
    each!(stands_panics: Pile, View, Pointer, Pointers<'_>, Cursor, Noted, ReadBuf, RunIdentity, PileError);
    each!(stands_panics: Cache, Table, Lease);
    each!(stands_panics: Pool, Buffer, Group, Request, GroupRequest, BlockError);
    each!(stands_panics: Slots, Within<'_>, WithinGlobal<0>, Global, SlotBox<'_, u64>, SlotsError, FreeError, Affinity);
    each!(stands_panics: WithinOwned);
}

#[test]
fn the_cache_goes_on_after_a_caller_has_panicked() {
    let cache = Cache::new(64 << 20).unwrap();
    let make = || {
        let options = gabion::PutOptions::default();
        cache.get_or_put::<gabion::Deadlock>(b"key", &options, || panic!("on purpose")).is_ok()
    };
    assert!(std::panic::catch_unwind(make).is_err());
    assert!(cache.put(b"key", b"value", &gabion::PutOptions::default()).is_stored());
    let look = || cache.for_each_key(|_| panic!("on purpose"));
    assert!(std::panic::catch_unwind(look).is_err());
    cache.on_departure(Some(std::sync::Arc::new(|_: &gabion::Departure<'_>| panic!("on purpose"))));
    let fill = || {
        for number in 0..1_000_000_u32 {
            cache.put(&number.to_le_bytes(), &[7; 1000], &gabion::PutOptions::default());
        }
    };
    assert!(std::panic::catch_unwind(fill).is_err());
    cache.on_departure(None);
    cache.validate().unwrap();
    assert!(cache.put(b"key", b"value", &gabion::PutOptions::default()).is_stored());
}

#[test]
fn a_pool_goes_on_after_a_caller_has_panicked() {
    let pool = Pool::new(gabion::blocks::system(), gabion::Settings::default()).unwrap();
    pool.configure(&gabion::Change { total_limit: Some(8 << 20), ..gabion::Change::default() }).unwrap();
    let held = pool.rent(&Request::new(8 << 20)).unwrap();
    let request = Request::new(8 << 20).timeout(std::time::Duration::from_secs(60));
    let wait = || pool.rent_while(&request, &mut || panic!("on purpose")).is_ok();
    assert!(std::panic::catch_unwind(wait).is_err());
    drop(held);
    assert!(pool.rent(&request).is_ok());
    pool.validate().unwrap();
}

#[test]
fn sizes_are_what_the_guides_say() {
    assert_eq!([size_of::<Pointer>(), size_of::<Option<Pointer>>()], [8, 8]);
    assert_eq!([size_of::<SlotBox<'_, u64>>(), size_of::<Option<SlotBox<'_, u64>>>()], [16, 16]);
    assert_eq!((size_of::<Within<'_>>(), size_of::<WithinGlobal<0>>(), size_of::<Affinity>()), (16, 0, 1));
    assert_eq!(size_of::<Buffer>(), size_of::<Option<Buffer>>());
}
