//! Iterations whose callers change the pile meanwhile.

use std::collections::HashSet;

use gabion_pile::{Cursor, Pile, PileOptions, Pointer};

/// Lengths whose payloads lie in slots of several classes, in chunks and in runs.
const LENGTHS: [usize; 6] = [5, 60, 700, 2000, 100_000, 2 << 20];

/// A pile whose pages have room here and there: of so many objects every third is left.
fn with_room(put: usize, length: usize) -> (Pile, HashSet<Pointer>) {
    let pile = Pile::with_options(PileOptions { shards: Some(2), ..PileOptions::default() }).unwrap();
    let all: Vec<_> = (0..put).map(|_| pile.put(&vec![7; length]).unwrap()).collect();
    let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(index, _)| index % 3 == 0);
    for (_, pointer) in go {
        pile.remove(pointer).unwrap();
    }
    (pile, stay.into_iter().map(|(_, pointer)| pointer).collect())
}

/// How many objects of a length a test puts.
fn several(length: usize) -> usize {
    (10_000_000 / length).clamp(12, 30_000)
}

#[test]
fn what_an_iteration_puts_it_does_not_see() {
    for length in LENGTHS {
        let (pile, there) = with_room(several(length), length);
        let mut found = HashSet::new();
        for pointer in &pile {
            assert!(
                there.contains(&pointer) && found.insert(pointer),
                "{length} bytes: a new object, or one seen twice"
            );
            pile.put(&vec![8; length]).unwrap();
        }
        assert_eq!(found, there);
        assert_eq!(pile.len(), 2 * there.len() as u64);
        pile.validate().unwrap();
    }
}

#[test]
fn what_takes_the_place_of_an_object_it_does_not_see_either() {
    for length in LENGTHS {
        let (pile, there) = with_room(several(length), length);
        let mut found = HashSet::new();
        for pointer in &pile {
            assert!(
                there.contains(&pointer) && found.insert(pointer),
                "{length} bytes: a new object, or one seen twice"
            );
            pile.remove(pointer).unwrap();
            pile.put(&vec![8; length]).unwrap();
        }
        assert_eq!(found, there);
        pile.validate().unwrap();
    }
}

#[test]
fn a_note_serves_as_often_as_one_likes_and_what_is_removed_is_passed_over() {
    let (pile, there) = with_room(30_000, 30);
    let noted = pile.note().unwrap();
    for _ in 0..30_000 {
        pile.put(&[8; 30]).unwrap();
    }
    let removed: HashSet<_> = there.iter().copied().take(1000).collect();
    let walk = || {
        let mut cursor = Cursor::default();
        std::iter::from_fn(|| pile.next_noted(&mut cursor, &noted)).collect::<HashSet<_>>()
    };
    assert_eq!(walk(), there);
    for &pointer in &removed {
        pile.remove(pointer).unwrap();
    }
    assert_eq!(walk(), &there - &removed);
    pile.clear();
    assert!(walk().is_empty());
}

#[test]
fn an_iteration_without_memory_ends_and_sees_what_was_there() {
    for length in LENGTHS {
        let (pile, there) = with_room(several(length), length);
        let (mut cursor, mut found) = (Cursor::default(), HashSet::new());
        // A block has less than 2²⁰ objects.
        let most = (pile.stats().reserved_bytes as usize).div_ceil(4 << 20) << 20;
        while let Some(pointer) = pile.next_pointer(&mut cursor) {
            assert!(found.insert(pointer) && found.len() < most);
            // Each in a slot, whatever the length: otherwise the test would take all the machine's memory.
            pile.put(&[8; 3]).unwrap();
        }
        assert!(there.is_subset(&found));
    }
}
