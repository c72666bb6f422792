//! The read protocol under the model checker: every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gabion-pile --release --test loom`
#![cfg(loom)]

use gabion_pile::Piece;
use gabion_pile::model::{
    self, Memory, Words as _, copy_unless_changed, disturb, overwrite, reuse, reuse_in_pieces, second_guard,
    unchanged_while,
};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

/// A few words. 0: the slot's word, 1: the page's descriptor, 2 and 3: the payload, 4: another slot's word.
struct Words([AtomicU64; 5]);

const WORD: usize = 0;
const DESCRIPTOR: usize = 1;
const PAYLOAD: usize = 2;
const OTHER: usize = 4;

impl Words {
    fn new() -> Arc<Self> {
        let words = Self(std::array::from_fn(|_| AtomicU64::new(0)));
        reuse((&words, PAYLOAD), &payload(1), (&words, WORD, 1));
        Arc::new(words)
    }

    /// One attempt to read what word 1 stands for, with the descriptor as second guard.
    fn read(&self) -> Option<[u64; 2]> {
        if self.load(WORD, Acquire) != 1 {
            return None;
        }
        let descriptor = second_guard((self, WORD, 1), (self, DESCRIPTOR))?;
        let mut copy = [0; 16];
        let guards = [(self, WORD, 1), (self, DESCRIPTOR, descriptor)];
        copy_unless_changed((self, PAYLOAD), &mut copy, guards).then(|| words(&copy))
    }
}

impl model::Words for Words {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at].load(order)
    }
    fn fence(order: Ordering) {
        fence(order);
    }
}

impl Memory for Words {
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.0[at].store(value, order);
    }
    fn copy_out(&self, at: usize, into: &mut [u8]) {
        for (index, bytes) in into.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.0[at + index].load(Relaxed).to_le_bytes());
        }
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, bytes) in bytes.chunks_exact(8).enumerate() {
            self.0[at + index].store(u64::from_le_bytes(bytes.try_into().unwrap()), Relaxed);
        }
    }
    fn copy_piece_in(&self, at: usize, piece: Piece<'_>) {
        self.copy_in(at, &Piece::concat(&[piece]));
    }
}

fn payload(value: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[8..].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn words(bytes: &[u8; 16]) -> [u64; 2] {
    let (halves, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

/// Runs `change` beside a reader. A copy that passes the guards is the payload before it or after it, whole.
fn check(after: Option<u64>, change: impl Fn(&Words) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let shared = Words::new();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || change(&shared))
        };
        if let Some(copy) = shared.read() {
            assert!(copy == [1, 1] || after.is_some_and(|value| copy == [value, value]), "read {copy:?}");
        }
        writer.join().unwrap();
    });
}

#[test]
fn overwriting_in_place_is_seen_whole_or_not_at_all() {
    check(None, |words| overwrite((words, PAYLOAD), &payload(2), 99, (words, WORD, 2)));
}

#[test]
fn a_removed_slot_taken_by_the_next_object_is_not_mistaken() {
    check(None, |words| {
        words.store(WORD, 0, Release);
        reuse((words, PAYLOAD), &payload(3), (words, WORD, 3));
    });
}

#[test]
fn pieces_that_share_words_are_seen_whole_or_not_at_all() {
    check(Some(3), |words| {
        words.store(WORD, 99, Relaxed);
        disturb((words, DESCRIPTOR), 1);
        let (payload, write) = (payload(3), reuse_in_pieces);
        let pieces = [&payload[..3], &payload[3..5], &payload[5..13], &payload[13..]];
        write((words, PAYLOAD), Piece::list(&pieces), (words, OTHER, 3));
        words.store(WORD, 1, Release);
    });
}

#[test]
fn a_body_left_to_a_guest_is_not_mistaken() {
    check(None, |words| {
        // The object moves away; its body takes a guest, whose commit is in another slot.
        words.store(WORD, 2, Release);
        reuse((words, PAYLOAD), &payload(4), (words, OTHER, 4));
    });
}

#[test]
fn a_freed_chunk_whose_room_takes_links_is_not_mistaken() {
    check(None, |words| {
        // The object moves elsewhere; its old place is freed and the heap writes into it, without a payload's fence.
        words.store(WORD, 2, Release);
        disturb((words, DESCRIPTOR), 1);
        words.store(OTHER, 9, Release);
        words.store(PAYLOAD, 0xDEAD, Relaxed);
    });
}

#[test]
fn a_guest_overwritten_in_place_is_found_out_by_the_descriptor() {
    check(Some(5), |words| {
        // Busy, disturbed, written, and the very same word again: only the descriptor tells.
        words.store(WORD, 99, Relaxed);
        disturb((words, DESCRIPTOR), 1);
        reuse((words, PAYLOAD), &payload(5), (words, OTHER, 5));
        words.store(WORD, 1, Release);
    });
}

#[test]
fn a_guest_that_moves_away_and_back_is_found_out_by_the_descriptor() {
    check(Some(6), |words| {
        // To another body, the first freed; then back into the first.
        words.store(WORD, 2, Release);
        disturb((words, DESCRIPTOR), 1);
        reuse((words, PAYLOAD), &payload(6), (words, OTHER, 6));
        words.store(WORD, 1, Release);
    });
}

/// A cell of an owner's index stands in word 4 and leads to the slot (1), or not. Runs `change` beside a reader that
/// follows it; what passes is a payload that the cell led to.
fn check_linked(change: impl Fn(&Words) + Send + Sync + Copy + 'static, published: &'static [u64]) {
    check_linked_in(loom::model::Builder::new(), change, published);
}

fn check_linked_in(
    model: loom::model::Builder,
    change: impl Fn(&Words) + Send + Sync + Copy + 'static,
    published: &'static [u64],
) {
    model.check(move || {
        let shared = Words::new();
        shared.store(OTHER, 1, Release);
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || change(&shared))
        };
        let words: &Words = &shared;
        if words.load(OTHER, Acquire) == 1 {
            let (descriptor, word) = (words.load(DESCRIPTOR, Acquire), words.load(WORD, Acquire));
            let mut copy = [0; 16];
            words.copy_out(PAYLOAD, &mut copy);
            let linked = || words.load(OTHER, Acquire) == 1;
            let guards = [(words, WORD, word), (words, DESCRIPTOR, descriptor)];
            // 0 and 99: no payload lies there.
            if ![0, 99].contains(&word) && unchanged_while(linked, guards) {
                let seen = self::words(&copy);
                assert!(seen[0] == seen[1] && published.contains(&seen[0]), "read {seen:?}");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_payload_that_its_owner_never_linked_is_not_taken_for_one_that_it_did() {
    check_linked(
        |words| {
            // Unlinked and removed; another payload comes to the same slot and goes, before a third is linked there.
            words.store(OTHER, 0, Release);
            words.store(WORD, 0, Release);
            reuse((words, PAYLOAD), &payload(2), (words, WORD, 2));
            words.store(WORD, 0, Release);
            reuse((words, PAYLOAD), &payload(3), (words, WORD, 3));
            words.store(OTHER, 1, Release);
        },
        &[1, 3],
    );
}

#[test]
fn a_linked_payload_overwritten_in_place_is_seen_whole() {
    check_linked(|words| overwrite((words, PAYLOAD), &payload(2), 99, (words, WORD, 2)), &[1, 2]);
}

#[test]
fn bytes_that_look_like_a_payload_in_a_page_of_another_use_are_not_taken_for_one() {
    check_linked(
        |words| {
            // Unlinked and removed; the page turns to another use, and something else is written where the slot was;
            // then the page turns back, and the slot is linked again.
            words.store(OTHER, 0, Release);
            words.store(WORD, 0, Release);
            disturb((words, DESCRIPTOR), 1);
            words.store(PAYLOAD, 7, Relaxed);
            words.store(PAYLOAD + 1, 7, Relaxed);
            words.store(WORD, 5, Relaxed);
            disturb((words, DESCRIPTOR), 2);
            reuse((words, PAYLOAD), &payload(3), (words, WORD, 3));
            words.store(OTHER, 1, Release);
        },
        &[1, 3],
    );
}

#[test]
fn bytes_that_look_like_the_next_payload_are_not_taken_for_it() {
    // That many steps: the interleavings with up to three preemptions, unless `LOOM_MAX_PREEMPTIONS` says more.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    check_linked_in(
        model,
        |words| {
            // As above, but what is written where the slot was is the very word that the next payload there will have.
            // Before the page turns back, it is made ready: that must not be seen later than the turn.
            words.store(OTHER, 0, Release);
            words.store(WORD, 0, Release);
            disturb((words, DESCRIPTOR), 1);
            words.store(PAYLOAD, 7, Relaxed);
            words.store(WORD, 3, Relaxed);
            words.store(WORD, 0, Relaxed);
            disturb((words, DESCRIPTOR), 2);
            reuse((words, PAYLOAD), &payload(3), (words, WORD, 3));
            words.store(OTHER, 1, Release);
        },
        &[1, 3],
    );
}
