//! Room that is kept, room that is given back, and room that is used up.

use std::sync::Arc;

use gabion_blocks::{Budget, LAST_GENERATION};

use super::wear_out;
use crate::change::Guest;
use crate::slot::Slot;
use crate::word::State;
use crate::{OpenOptions, Pile, PileOptions, Pointer};

/// Each replacement kept what room there was, and that may be more than it asked for.
#[test]
fn a_reserve_stays_as_large_as_it_is() {
    let path = std::env::temp_dir().join(format!("gabion-reserves-{}.pile", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = OpenOptions { shards: Some(1), ..OpenOptions::default() };
    let pile = Pile::open(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let others: Vec<_> = (0..2000).map(|at| pile.put(&vec![1; 100 + at % 900]).unwrap()).collect();
    let lengths = [100, 700, 3000];
    let each = |length: usize| (0..60).map(move |_| (length, length));
    let reserved: Vec<_> = lengths
        .into_iter()
        .flat_map(each)
        .map(|(length, reserve)| (length, pile.put_with_reserve(&vec![2; length], reserve).unwrap()))
        .collect();
    let room = |pointer: Pointer| {
        let (slot, word) = Slot::live(&pile.blocks, pointer).unwrap();
        match word.state() {
            State::Away { at, .. } => Guest::find(pile.ground(), at).asked(),
            _ => slot.capacity(),
        }
    };
    for round in 0..150 {
        for (at, &other) in others.iter().enumerate().filter(|(at, _)| (at + round) % 7 == 0) {
            pile.replace(other, &vec![3; 50 + (at * 31 + round * 97) % 1100]).unwrap();
        }
        for &(length, pointer) in &reserved {
            pile.replace(pointer, &vec![4; length]).unwrap();
        }
    }
    for &(length, pointer) in &reserved {
        let most = 2 * length + length / 2 + 200;
        assert!((2 * length..=most).contains(&room(pointer)), "{length} and as much again: {}", room(pointer));
    }
    pile.validate().unwrap();
}

/// The pages of one that was gone stayed charged, and the other had less and less.
#[test]
fn piles_of_one_budget_leave_it_to_each_other() {
    let budget = Arc::new(Budget::new(8 << 20));
    let options = || PileOptions { shards: Some(2), ..PileOptions::default() };
    let stays = Pile::with_budget(options(), Arc::clone(&budget)).unwrap();
    stays.put(b"stays").unwrap();
    let used = budget.used();
    for _ in 0..10 {
        let pile = Pile::with_budget(options(), Arc::clone(&budget)).unwrap();
        for length in [20, 900, 5000, 70_000, 2 << 20] {
            pile.put(&vec![7; length]).unwrap();
        }
        assert!(budget.used() > used);
        drop(pile);
        assert_eq!(budget.used(), used);
    }
    stays.validate().unwrap();
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    // Something else stays in the block, so that it serves on.
    pile.put(&[1; 16]).unwrap();
    wear_out(&pile);
    let mut last = std::collections::HashMap::new();
    for _ in 0..2000 {
        let pointer = pile.put(&[7; 1016]).unwrap();
        let before = last.insert(pointer.place(), pointer.generation().unwrap());
        assert!(before.is_none_or(|before| before < pointer.generation().unwrap()), "one of before is live again");
        assert_ne!(before, Some(LAST_GENERATION), "a slot that is used up was used again");
        pile.remove(pointer).unwrap();
        assert!(!pile.contains(pointer));
    }
    assert!(last.values().filter(|&&generation| generation == LAST_GENERATION).count() > 60);
    pile.validate().unwrap();
}
