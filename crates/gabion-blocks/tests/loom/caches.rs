//! A thread's cache of pieces, `pool/cache.rs` itself: its thread rents, others empty it, and it goes to the next
//! thread.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::bounded;
use super::cache::{Cache, MOST_MOVED, Open, Own, Piece};
use super::size::piece_bytes;
use super::span::SPAN;

fn piece(index: usize) -> Piece {
    Piece::new(&SPAN, index, false)
}

/// The cache of this thread, with pieces 0 and 1 in it. Its lock is biased to the thread.
fn filled() -> (&'static Cache, Own) {
    let cache: &'static Cache = Box::leak(Cache::new_in(Box::new_uninit()));
    // SAFETY: made by this thread, just now.
    let own = unsafe { cache.own() };
    let mut open = own.open();
    assert!((0..2).all(|index| open.push(0, piece(index))));
    drop(open);
    (cache, own)
}

/// As the pool does it: the short way if the lock is biased, the long one otherwise.
fn rent(own: Own) -> Option<usize> {
    let pop = |mut open: Open<'_>| {
        let piece = open.pop(0)?;
        open.count_rented();
        Some(piece.index())
    };
    own.try_lock_biased().and_then(pop).or_else(|| pop(own.open()))
}

fn give_back(own: Own, index: usize) {
    let mut open = own.try_lock_biased().unwrap_or_else(|| own.open());
    assert!(open.push(0, piece(index)));
    open.count_returned();
}

/// Empties a cache; returns which pieces were in it.
fn empty(mut open: Open<'_>) -> Vec<usize> {
    let mut pieces = [None; MOST_MOVED];
    let taken = open.take_out(&mut pieces);
    pieces[..taken].iter().flatten().map(|piece| piece.index()).collect()
}

/// The pieces of all lists, in order.
fn all(lists: [Vec<usize>; 3]) -> Vec<usize> {
    let mut all = lists.concat();
    all.sort_unstable();
    all
}

#[test]
fn a_cache_may_be_emptied_while_its_thread_rents() {
    loom::model(|| {
        let (cache, own) = filled();
        let other = thread::spawn(move || empty(cache.lock_unbiased()));
        let rented = rent(own);
        if let Some(index) = rented {
            give_back(own, index);
        }
        let taken = other.join().unwrap();
        let calls = u64::from(rented.is_some());
        assert_eq!(cache.untold(), (calls, calls));
        let left: Vec<usize> = own.open().pieces().map(|piece| piece.index()).collect();
        assert_eq!(cache.bytes(), left.len() * piece_bytes(0));
        assert_eq!(all([taken, left, Vec::new()]), [0, 1], "a piece is lost, or in two hands");
    });
}

#[test]
fn what_is_counted_is_told_once_while_others_look() {
    loom::model(|| {
        let (cache, own) = filled();
        let other = thread::spawn(move || {
            // What a look finds is a figure of some moment; what is told is told for good.
            let looked = cache.untold();
            assert!(looked.0 <= 1 && looked.1 <= 1 && cache.bytes() <= 2 * piece_bytes(0));
            cache.lock_unbiased().tell()
        });
        let rented = rent(own).expect("nobody takes a piece out");
        give_back(own, rented);
        let (told, untold) = (other.join().unwrap(), own.open().tell());
        assert_eq!((told.0 + untold.0, told.1 + untold.1), (1, 1));
        assert_eq!(own.open().tell(), (0, 0));
    });
}

#[test]
fn a_cache_goes_to_the_next_thread_while_it_is_emptied() {
    bounded(|| {
        let (cache, own) = filled();
        let spare = Arc::new(Mutex::new(Vec::new()));
        let other = thread::spawn(move || empty(cache.lock_unbiased()));
        let next = thread::spawn({
            let spare = Arc::clone(&spare);
            move || {
                let taken: Option<&'static Cache> = spare.lock().unwrap().pop();
                // SAFETY: this thread took it from the spare ones.
                let own = taken.map(|cache| unsafe { cache.own() });
                own.map_or(0, |own| {
                    give_back(own, 2);
                    1
                })
            }
        });
        // As a thread that ends does it.
        let given = empty(own.open());
        assert_eq!(own.open().tell(), (0, 0));
        cache.part();
        spare.lock().unwrap().push(cache);
        let (taken, kept) = (other.join().unwrap(), next.join().unwrap());
        assert_eq!(cache.untold(), (0, kept));
        let left = empty(cache.lock_unbiased());
        assert_eq!(cache.bytes(), 0);
        let expected: Vec<usize> = (0..2 + kept as usize).collect();
        assert_eq!(all([given, taken, left]), expected, "a piece is lost, or in two hands");
    });
}
