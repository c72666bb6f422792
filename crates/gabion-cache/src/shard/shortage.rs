//! Which sizes of slots the pile has no room for.
//!
//! In a full cache whose pages are short before its bytes are, each put would ask every shard of the pile for a slot in
//! vain before it evicts an entry that leaves it one. What is known here saves it that.

use gabion_heap::{MAX_SLOT_WORDS, class_for_words};

/// How often a put does not ask. Room may come from where nobody tells: the system, the pool's own limit.
const MOST_SAVED: u16 = 256;

/// What the puts of a shard know. For its lock's holder.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// A bit for each class of slots that there was no room for.
    classes: u64,
    /// How often anything had been removed from the pile when that was found out: it holds until that changes.
    freed: u64,
    saved: u16,
}

/// The bit of a slot's class; 0 for what is longer than a slot.
#[inline]
fn bit(stored: u64) -> u64 {
    let words = stored as usize / 8;
    if words <= MAX_SLOT_WORDS { 1 << class_for_words(words) } else { 0 }
}

impl Shortage {
    /// Whether it is known that there is no room for that many bytes, as the pile rounds them: nothing was removed
    /// since.
    #[inline(always)]
    pub fn knows(&mut self, stored: u64, freed: u64) -> bool {
        let known = self.classes & bit(stored) != 0 && self.freed == freed && self.saved < MOST_SAVED;
        self.saved += u16::from(known);
        known
    }

    /// There was no room for that many bytes when the pile was asked, after it was seen how often anything had been
    /// removed.
    #[cold]
    pub fn note(&mut self, stored: u64, freed: u64) {
        if self.freed != freed || self.saved >= MOST_SAVED {
            *self = Self { classes: 0, freed, saved: 0 };
        }
        self.classes |= bit(stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_holds_until_something_is_removed_and_not_for_ever() {
        let mut shortage = Shortage::default();
        assert!(!shortage.knows(80, 0));
        shortage.note(80, 0);
        assert!(shortage.knows(80, 0) && !shortage.knows(72, 0));
        assert!(!shortage.knows(104, 0) && !shortage.knows(80, 1));
        shortage.note(104, 1);
        assert!(shortage.knows(104, 1) && !shortage.knows(80, 1));
        let saved = 1 + (0..1000).take_while(|_| shortage.knows(104, 1)).count();
        assert_eq!(saved, usize::from(MOST_SAVED));
        // What is longer than a slot is asked for each time.
        shortage.note(5000, 1);
        assert!(!shortage.knows(5000, 1));
    }
}
