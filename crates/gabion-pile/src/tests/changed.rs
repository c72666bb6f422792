//! A file that another program writes to while it is open.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{PAGES_PER_BLOCK, WORDS_PER_PAGE};
use gabion_heap::{BLOCK_HEADER_WORDS, Kind, Loc, shard_of, slots_in_page};

use crate::change::Guest;
use crate::slot::Slot;
use crate::word::State;
use crate::{OpenOptions, Pile, PileError, Pointer, ReadBuf};

/// A path of this test's own, which is gone with the value.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A pile in a new file, with objects between others: in a slot, in a slot that is another's, in chunks, in a run.
fn filled(path: &Path) -> (Pile, Vec<Pointer>) {
    let _ = std::fs::remove_file(path);
    let pile = Pile::open(path, &OpenOptions { shards: Some(1), ..OpenOptions::default() }).unwrap();
    let put = |length: usize| pile.put(&vec![7; length]).unwrap();
    let grown = put(40);
    let mut pointers = vec![];
    for length in [100, 5000, 5000, 70_000, (1 << 20) + 5] {
        let (before, object, behind) = (put(length), put(length), put(length));
        pointers.push(object);
        // One beside something free, one between others.
        if pointers.len() % 2 == 0 {
            pile.remove(before).unwrap();
            pile.remove(behind).unwrap();
        }
    }
    pile.replace(grown, &[7; 900]).unwrap();
    pointers.push(grown);
    pile.validate().unwrap();
    (pile, pointers)
}

/// Words that say that a slot is taken, or whose it is, and the bits of them that do.
fn words_of_slot(pile: &Pile, slot: Loc, class: usize, is_head: bool) -> Vec<(Loc, u64)> {
    let index = slots_in_page(class, slot.page()).position(|word| word == slot.word()).unwrap();
    let start = slot.page() * WORDS_PER_PAGE + if slot.page() == 0 { BLOCK_HEADER_WORDS } else { 0 };
    let bitmap = Loc::new(slot.number(), start + 2 * (index / 64) + usize::from(!is_head));
    assert_eq!(shard_of(pile.blocks.block(slot.number()).unwrap()), 0);
    vec![(bitmap, 1 << (index % 64)), (ordinal(slot), 1), (ordinal(slot), 1 << 40)]
}

fn ordinal(at: Loc) -> Loc {
    Loc::new(at.number(), PAGES_PER_BLOCK + 1)
}

/// All that is looked at when an object goes, but its word, and how it can be changed into what makes no sense.
fn changes(pile: &Pile, pointer: Pointer) -> Vec<(Loc, u64)> {
    let (slot, word) = Slot::live(&pile.blocks, pointer).unwrap();
    let mut all = words_of_slot(pile, slot.at, slot.within.class(), true);
    match word.state() {
        State::Away { at, .. } => {
            let guest = Guest::find(pile.ground(), at);
            if guest.kind == Kind::Slots {
                let class = Slot::find(&pile.blocks, Pointer::new(at, 1)).unwrap().within.class();
                all.extend(words_of_slot(pile, at, class, false));
            } else {
                let tag = Loc::new(at.number(), at.word() - 1);
                // Without the flag for what is free in front of it, which may change until all is as before.
                let bits = guest.block.word(tag.word()).load(Relaxed) & !(1 << 21);
                // None, too short, not used, left by its user.
                all.extend([bits, bits & 0xFFFF & !4, 1 << 20, 1 << 22].map(|bits| (tag, bits)));
                all.extend([(ordinal(at), 1), (ordinal(at), 1 << 40)]);
            }
            all.push((Loc::new(at.number(), guest.header), 1 << 24));
        }
        State::Inline { .. } => {
            all.extend(words_of_slot(pile, slot.at, slot.within.class(), false));
            all.push((slot.at, 1 << 34));
        }
        _ => {}
    }
    all
}

/// Changes bits of a word, as another program would.
fn flip(pile: &Pile, file: &File, (at, bits): (Loc, u64)) {
    let from = pile.blocks.file().unwrap().offset_of(at.number()) + 8 * at.word() as u64;
    let mut word = [0; 8];
    file.read_exact_at(&mut word, from).unwrap();
    file.write_all_at(&(u64::from_le_bytes(word) ^ bits).to_le_bytes(), from).unwrap();
}

/// It ended in a panic, under a lock, with the object half removed.
#[test]
fn what_says_that_an_object_is_there_may_be_changed_by_another_program() {
    let place = Place(std::env::temp_dir().join(format!("gabion-changed-heap-{}.pile", std::process::id())));
    let (pile, pointers) = filled(&place.0);
    let counts: Vec<_> = pointers.iter().map(|&pointer| changes(&pile, pointer).len()).collect();
    drop(pile);
    for (which, what) in (0..).zip(counts).flat_map(|(which, count)| (0..count).map(move |what| (which, what))) {
        let (pile, pointers) = filled(&place.0);
        let (pointer, file) = (pointers[which], File::options().read(true).write(true).open(&place.0).unwrap());
        let (change, before) = (changes(&pile, pointer)[what], pile.stats());
        flip(&pile, &file, change);
        let damaged = |error: PileError| assert_eq!(error, PileError::Damaged { pointer }, "{which} {what}");
        damaged(pile.remove(pointer).unwrap_err());
        damaged(pile.replace(pointer, &[8; 30]).unwrap_err());
        damaged(pile.replace(pointer, &[8; 6000]).unwrap_err());
        damaged(pile.pop(pointer, &mut ReadBuf::new()).unwrap_err());
        assert_eq!(pile.stats().used_bytes, before.used_bytes, "{which} {what}");
        pile.compact();
        pile.clear();
        assert!(pile.contains(pointer), "{which} {what}");
        flip(&pile, &file, change);
        assert!(pile.read(pointer, &mut ReadBuf::new()).unwrap().iter().all(|&byte| byte == 7));
        pile.clear();
        assert!(pile.is_empty(), "{which} {what}");
        pile.validate().unwrap();
    }
}

/// It ended in a panic, under a lock.
#[test]
fn what_says_that_there_is_room_may_be_changed_by_another_program() {
    let place = Place(std::env::temp_dir().join(format!("gabion-changed-room-{}.pile", std::process::id())));
    let (pile, pointers) = filled(&place.0);
    let file = File::options().read(true).write(true).open(&place.0).unwrap();
    // What a payload that moved has left, and all that is free beside it.
    let (slot, _) = Slot::live(&pile.blocks, pointers[5]).unwrap();
    let bitmap = words_of_slot(&pile, slot.at, slot.within.class(), true)[0].0;
    for word in
        bitmap.word()..bitmap.word() + 2 * slots_in_page(slot.within.class(), slot.at.page()).count().div_ceil(64)
    {
        let bits = !slot.block.word(word).load(Relaxed);
        flip(&pile, &file, (Loc::new(slot.at.number(), word), bits));
    }
    (0..2000).for_each(|_| _ = pile.put(&[7; 40]).unwrap());
    let others: Vec<_> = (0..20).map(|_| pile.put(&[7; 8]).unwrap()).collect();
    for other in others {
        pile.replace(other, &[7; 30]).unwrap();
    }
}

/// A removal under a lock that is biased to its thread believed the word: what a view looked at was soon another
/// object's.
#[test]
fn what_a_view_looks_at_stays_though_its_word_says_that_nobody_does() {
    let place = Place(std::env::temp_dir().join(format!("gabion-changed-pin-{}.pile", std::process::id())));
    let _ = std::fs::remove_file(&place.0);
    let options = OpenOptions { shards: Some(1), ..OpenOptions::default() };
    let pile = std::sync::Arc::new(Pile::open(&place.0, &options).unwrap());
    // Until the lock is biased to this thread.
    for _ in 0..1000 {
        pile.remove(pile.put(&[1; 40]).unwrap()).unwrap();
    }
    let pointer = pile.put(&[7; 40]).unwrap();
    let (slot, before) = Slot::live(&pile.blocks, pointer).unwrap();
    let view = pile.view(pointer).unwrap();
    let pinned = slot.block.word(slot.at.word()).load(Relaxed) ^ before.0;
    let file = File::options().read(true).write(true).open(&place.0).unwrap();
    flip(&pile, &file, (slot.at, pinned));
    for _ in 0..1000 {
        pile.remove(pile.put(&[1; 40]).unwrap()).unwrap();
    }
    assert_eq!(pile.remove(pointer).unwrap_err(), PileError::Damaged { pointer });
    for _ in 0..2000 {
        pile.put(&[1; 40]).unwrap();
    }
    assert_eq!(*view, [7; 40]);
    flip(&pile, &file, (slot.at, pinned));
    pile.remove(pointer).unwrap();
    drop(view);
    pile.validate().unwrap();
}
