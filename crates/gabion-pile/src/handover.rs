//! One object's slot, straight to the next object: for an owner that ends one only so that another has room.
//!
//! A removal and a put write bitmaps twice, take the lock twice, and the new payload goes to whichever slot is free,
//! whose lines nobody has looked at for long. Here only the slot's word and its body change, in the order of an
//! overwriting in place, and the new word carries the next generation.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::LAST_GENERATION;
use gabion_heap::{Descriptor, Kind, MAX_SLOT_WORDS, class_for_words, shard_of};

use crate::place::{IndexedPile, Place};
use crate::protocol::overwrite;
use crate::word::{State, Word};

impl IndexedPile {
    /// Ends the live object at a place and stores a copy of `payload` as a new object in the same slot: the place
    /// stays, and every pointer to the old object is refused from now on. Readers see the old payload, or nothing, or
    /// the new one by what leads to the new object. The caller knows that there is an object, and that nobody else
    /// changes it.
    ///
    /// False, and nothing is changed, when the slot is not of the size that the payload would get by
    /// [`put`](crate::Pile::put), when it has been given out as often as it can be, or when the pile lies in a file.
    /// Constant time; locks one shard.
    pub fn hand_over(&self, place: Place, payload: &[u8]) -> bool {
        let words = 1 + payload.len().div_ceil(8);
        let loc = place.to_loc();
        let Some(block) = self.blocks.block(loc.number()).filter(|_| words <= MAX_SLOT_WORDS) else { return false };
        let Some(shard) = self.shards().get(shard_of(block) as usize) else { return false };
        let mut locked = shard.lock();
        if locked.writes_beside {
            return false;
        }
        let at = loc.word();
        // Relaxed: the shard's lock orders its changes.
        let descriptor = Descriptor::from_bits(Descriptor::of(block, loc.page()).load(Relaxed));
        if descriptor.kind() != Kind::Slots || descriptor.class() != class_for_words(words) {
            return false;
        }
        let word = Word(block.word(at).load(Relaxed));
        let State::Inline { length, .. } = word.state() else { return false };
        let generation = word.generation() + 1;
        if generation > LAST_GENERATION {
            return false;
        }
        let commit = Word::inline(generation, payload.len(), false, locked.next_version());
        // A reader that still copies the old payload finds another generation, as after a removal.
        overwrite((&block, at + 1), payload, Word::busy(generation).0, (&block, at, commit.0));
        self.blocks.raise_generation_floor(loc.number(), generation);
        locked.used_bytes = locked.used_bytes + payload.len() as u64 - length as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use gabion_blocks::LAST_GENERATION;

    use crate::{IndexedPile, Pile, PileOptions, ReadBuf};

    fn one_shard() -> IndexedPile {
        let options = PileOptions { shards: Some(1), ..PileOptions::default() };
        Pile::with_options(options).unwrap().into()
    }

    #[test]
    fn a_slot_that_is_handed_over_is_another_object() {
        let pile = one_shard();
        let (old, mut buf) = (pile.put(&[1; 75]).unwrap(), ReadBuf::new());
        let place = old.to_place();
        for length in [73, 75, 80] {
            let before = pile.pointer_at(place).unwrap();
            assert!(pile.hand_over(place, &vec![7; length]));
            let new = pile.pointer_at(place).unwrap();
            assert!(new != before && new.to_place() == place);
            assert!(!pile.contains(before) && !pile.contains(old) && pile.remove(before).is_err());
            assert_eq!(pile.read(new, &mut buf).unwrap(), vec![7; length]);
            assert_eq!((pile.len(), pile.stats().used_bytes), (1, length as u64));
            pile.validate().unwrap();
        }
        pile.remove(pile.pointer_at(place).unwrap()).unwrap();
        assert!(pile.is_empty() && !pile.hand_over(place, &[7; 75]));
        pile.validate().unwrap();
    }

    #[test]
    fn only_a_slot_of_the_right_size_is_handed_over() {
        let pile = one_shard();
        let (old, long) = (pile.put(&[1; 75]).unwrap(), pile.put(&[2; 5000]).unwrap());
        for length in [0, 72, 81, 5000] {
            assert!(!pile.hand_over(old.to_place(), &vec![7; length]));
            assert!(!pile.hand_over(long.to_place(), &vec![7; length]));
        }
        assert!(pile.contains(old) && pile.contains(long));
        assert!(pile.hand_over(old.to_place(), &[7; 75]));
        pile.validate().unwrap();
    }

    #[test]
    fn a_slot_that_is_used_up_is_not_handed_over() {
        let pile = one_shard();
        let old = pile.put(&[1; 9]).unwrap();
        let times = (0..1 << 22).take_while(|_| pile.hand_over(old.to_place(), &[7; 9])).count();
        let left = LAST_GENERATION - old.generation().unwrap();
        assert_eq!(times, left as usize, "one for each generation that the slot had left");
        pile.remove(pile.pointer_at(old.to_place()).unwrap()).unwrap();
        assert!(pile.put(&[1; 9]).unwrap().to_place() != old.to_place());
        pile.validate().unwrap();
    }
}
