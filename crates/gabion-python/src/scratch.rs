//! Buffers that a thread reuses from call to call; [`gabion_pile::with_read_buf`] has those that are read into.
//!
//! A call takes the buffer out of its thread's place and puts it back at the end. Code that runs meanwhile on the same
//! thread (a reducer that stores something itself) finds the place empty and makes a buffer of its own.

use std::cell::Cell;
use std::thread::LocalKey;

use gabion_blocks::ending::Noted;
use gabion_blocks::try_box;

use crate::codec::Apart;

/// Encodings longer than this do not stay with the thread.
const KEEP: usize = 1 << 20;

// Boxed, so that a pointer is all that moves: a processor waits long for words that it has just written in other
// pieces.
thread_local! {
    static ENCODED: Cell<Option<Box<Encoded>>> = const { Cell::new(None) };
    static KEY: Cell<Option<Box<Key>>> = const { Cell::new(None) };
    static ENCODED_NOTED: Noted = const { Noted::new() };
    static KEY_NOTED: Noted = const { Noted::new() };
}

type Place<T> = LocalKey<Cell<Option<Box<T>>>>;

/// What the thread has in a place, or something new to be put there; `None` where there is no memory for either. A
/// thread that is ending has no place left, and one without memory has none yet.
#[inline]
fn taken<T: Default>(place: &'static Place<T>, noted: &'static LocalKey<Noted>) -> Option<Box<T>> {
    let kept = if noted.with(Noted::is_noted) { place.try_with(Cell::take).ok().flatten() } else { None };
    kept.or_else(|| try_box(T::default()).ok())
}

#[inline]
fn put_back<T>(place: &'static Place<T>, noted: &'static LocalKey<Noted>, value: Box<T>) {
    if noted.with(Noted::can_be_noted) {
        let _ = place.try_with(|place| place.set(Some(value)));
    }
}

#[derive(Default)]
struct Encoded {
    bytes: Vec<u8>,
    apart: Apart,
}

#[derive(Default)]
struct Key(Vec<u8>);

/// Calls `work` with an empty buffer for an encoding, and a place for what is left out of it.
#[inline]
pub(crate) fn with_encoded_apart<R>(work: impl FnOnce(&mut Vec<u8>, &mut Apart) -> R) -> R {
    let Some(mut buffer) = taken(&ENCODED, &ENCODED_NOTED) else { return work(&mut Vec::new(), &mut Apart::default()) };
    buffer.bytes.clear();
    let result = work(&mut buffer.bytes, &mut buffer.apart);
    if !buffer.apart.is_empty() {
        buffer.apart.clear();
    }
    if buffer.bytes.capacity() > KEEP {
        buffer.bytes = Vec::new();
    }
    put_back(&ENCODED, &ENCODED_NOTED, buffer);
    result
}

/// Calls `work` with an empty buffer for a key: another than [`with_encoded_apart`]'s, where its value is put together
/// meanwhile.
#[inline]
pub(crate) fn with_key<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let Some(mut buffer) = taken(&KEY, &KEY_NOTED) else { return work(&mut Vec::new()) };
    buffer.0.clear();
    let result = work(&mut buffer.0);
    if buffer.0.capacity() > KEEP {
        buffer.0 = Vec::new();
    }
    put_back(&KEY, &KEY_NOTED, buffer);
    result
}
