//! The cache against plain models, and what others get wrong.

mod clear;

mod defects;

mod exact;

mod exchange;

mod late;

mod leases;

mod limits;

mod long;

mod lowered;

mod model;

mod pieces;

mod room;

mod stress;

mod terms;

mod time;

mod trades;

mod traces;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::entry::{Layout, Times};
use crate::key::Image;
use crate::{Cache, CacheOptions, ManualClock, Policy, PutOptions, ReadBuf, Span, Table};

/// A cache with one shard and a clock that stands still.
fn cache(max_bytes: u64, policy: Policy) -> (Cache, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let options =
        CacheOptions { max_bytes, policy, shards: Some(1), clock: Some(clock.clone()), ..CacheOptions::default() };
    // Pages are never short before bytes are: see `limits` for what is so where they are.
    (Cache::with_room(&options, max_bytes.max(8 << 20)).unwrap(), clock)
}

/// What a get gives: the short way, which needs a buffer with room, and the long one say the same.
fn get(table: &Table, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    thread_local!(static WARM: RefCell<ReadBuf> = const { RefCell::new(ReadBuf::new()) });
    let long = table.peek(key.as_ref(), &mut ReadBuf::new()).map(<[u8]>::to_vec);
    let short = WARM.with_borrow_mut(|buf| table.get(key.as_ref(), buf).map(<[u8]>::to_vec));
    assert_eq!(short, long);
    short
}

fn priority(priority: i8) -> PutOptions {
    PutOptions { priority, ..PutOptions::default() }
}

fn ttl(seconds: f64) -> PutOptions {
    PutOptions { ttl: Span::Of(Duration::from_secs_f64(seconds)), ..PutOptions::default() }
}

/// Bytes that an entry without an end is charged, by the lengths of key and value.
fn layout(key: usize, value: usize) -> Layout {
    let key = vec![0; key];
    Layout::new(&Image::new(0, &key), value, false, Times::default())
}

fn weight(key: usize, value: usize) -> u64 {
    crate::budget::weight(layout(key, value))
}
