//! The equations that hold whenever no change is under way.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::Invalid;
use gabion_heap::{Loc, slots_in_page};

use crate::change::Guest;
use crate::pile::Pile;
use crate::shard::Inner;
use crate::word::{State, Word};

/// Objects, payload bytes and objects that are away.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally(u64, u64, u64);

impl Pile {
    /// Walks everything and checks the equations: every heap's own; objects, bytes and objects that are away as
    /// counted; each payload that is away names its slot; no generation above its block's floor. Locks one shard after
    /// the other; meant for tests. Linear in the pile.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        for shard in self.shards() {
            let locked = shard.lock();
            locked.heap.validate(self.ground())?;
            let mut found = Tally::default();
            for (number, page, class) in locked.heap.slot_pages() {
                for word in slots_in_page(class, page) {
                    self.validate_slot(&locked, Loc::new(number, word), &mut found)?;
                }
            }
            let counted = Tally(locked.objects, locked.used_bytes, locked.away);
            if found != counted {
                return Err(Invalid(format!("objects, bytes, away: found {found:?}, counted {counted:?}")));
            }
        }
        Ok(())
    }

    fn validate_slot(&self, inner: &Inner, at: Loc, found: &mut Tally) -> Result<(), Invalid> {
        let block = self.blocks.block(at.number()).expect("a block of this pile");
        let word = Word(block.word(at.word()).load(Relaxed));
        if word.generation() > self.blocks.generation_floor(at.number()) {
            return Err(Invalid(format!("{at:?}: a generation above the floor of its block")));
        }
        match word.state() {
            State::Free => return Ok(()),
            State::Busy => return Err(Invalid(format!("{at:?} is busy and nobody is writing"))),
            State::Away { at: guest, .. } => {
                found.2 += 1;
                if Guest::find_sound(self.ground(), guest, at).is_none() {
                    return Err(Invalid(format!("at {guest:?} is no payload that names {at:?} as its slot")));
                }
            }
            State::Inline { .. } | State::Large { .. } => {}
        }
        found.0 += 1;
        found.1 += inner.length(self.ground(), word) as u64;
        Ok(())
    }
}
