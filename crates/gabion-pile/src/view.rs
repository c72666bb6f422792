//! Views: a payload in place, without a copy.
#![allow(unsafe_code)] // The one place that makes a plain slice of a block's bytes; see the proof below.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use gabion_heap::shard_of;

use crate::change::{Guest, publish};
use crate::error::PileError;
use crate::large::ChargedRun;
use crate::pile::Pile;
use crate::pins::Pinned;
use crate::pointer::Pointer;
use crate::word::{State, Word};

/// A payload in place. It does not change, and its memory stays, for as long as the view lives: a replace puts the new
/// payload elsewhere, a remove frees the memory when the last view is gone. Keeps the pile alive.
///
/// Views are equal when their bytes are, and stand for them: a `HashMap<View, _>` is asked with a `&[u8]`. A clone is
/// another view of the same payload; it takes the shard's lock for a moment, and no memory.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// let pile = Arc::new(gabion_pile::Pile::new()?);
/// let pointer = pile.put(b"stone")?;
/// let view = pile.view(pointer)?;
/// let weights = HashMap::from([(view.clone(), 2500)]);
/// drop(view);
/// pile.remove(pointer)?; // the clone stays
/// assert_eq!(weights.get(&b"stone"[..]), Some(&2500));
/// # Ok::<(), gabion_pile::PileError>(())
/// ```
pub struct View {
    pile: Arc<Pile>,
    hold: Hold,
    bytes: *const [u8],
}

/// What keeps the bytes in place.
enum Hold {
    Pin {
        shard: usize,
        body: Pinned,
    },
    Run {
        run: Arc<ChargedRun>,
    },
    /// While it is dropped.
    Nothing,
}

// SAFETY: the bytes are immutable while the view lives, and `Arc<Pile>` may be shared and sent.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

// Bytes that never change.
impl UnwindSafe for View {}
impl RefUnwindSafe for View {}

impl Pile {
    /// The object's payload in place. Takes the shard's lock for a moment, copies nothing.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live, [`PileError::Memory`] when there is no memory to note the
    /// view.
    pub fn view(self: &Arc<Self>, pointer: Pointer) -> Result<View, PileError> {
        let (mut locked, slot, word) = self.lock_slot(pointer)?;
        let shard = shard_of(slot.block) as usize;
        let refused = |length: usize| move |cause| PileError::Memory { payload: length as u64, cause };
        let (hold, bytes): (Hold, *const [u8]) = match word.state() {
            State::Inline { length, .. } => {
                let body = Pinned::Body(slot.at);
                locked.pins.add(body).map_err(refused(length))?;
                // The same commit as before, with a flag that writers see under the lock.
                publish(&slot.block, slot.at.word(), word.pinned(true).0);
                // SAFETY: see `View::deref`.
                (Hold::Pin { shard, body }, unsafe { slot.block.bytes(slot.at.word() + 1, length) })
            }
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                let length = guest.length();
                locked.pins.add(guest.pinned()).map_err(refused(length))?;
                publish(&guest.block, guest.header, guest.read_header().pinned(true).0);
                let hold = Hold::Pin { shard, body: guest.pinned() };
                // SAFETY: see `View::deref`.
                (hold, unsafe { guest.block.bytes(guest.header + 1, length) })
            }
            State::Large { index, .. } => {
                let run = locked.large.get(index).expect("a word names a run in use").clone();
                let bytes: *const [u8] = run.bytes();
                (Hold::Run { run }, bytes)
            }
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        };
        drop(locked);
        Ok(View { pile: Arc::clone(self), hold, bytes })
    }

    /// One view of `body` less; after the last one an orphan is freed and a live object's mark is taken off.
    fn unpin(&self, shard: usize, body: Pinned) {
        let mut locked = self.shards()[shard].lock();
        let Some(orphan) = locked.pins.release(body) else { return };
        if orphan {
            // Where the file makes no sense here it stays taken: nobody is left to be told.
            let _ = locked.free_body(self.ground(), body);
            return;
        }
        let (Pinned::Body(at) | Pinned::Chunk(at)) = body;
        // Not an orphan: the body belongs to a live object, either of this slot itself or of the guest in it.
        let guest = Guest::find(self.ground(), at);
        if let Pinned::Chunk(_) = body {
            // It may be moved again.
            locked.crowded = false;
        }
        // Relaxed: the lock orders its changes.
        let word = Word(guest.block.word(at.word()).load(Relaxed));
        match (body, word.state()) {
            (Pinned::Body(_), State::Inline { pinned: true, .. }) => {
                publish(&guest.block, at.word(), word.pinned(false).0);
            }
            _ => publish(&guest.block, guest.header, guest.read_header().pinned(false).0),
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in a block that stays mapped while `self.pile` lives, or in a run that `hold` shares.
        // A pinned body is not written and not let to others until `unpin`: replace and remove leave it as an orphan,
        // clear removes object by object while there are pins, and trimming gives back empty pages only.
        unsafe { &*self.bytes }
    }
}

impl Clone for View {
    fn clone(&self) -> Self {
        let hold = match &self.hold {
            &Hold::Pin { shard, body } => {
                // The body is pinned as long as this view is there, so there is nothing to look for or to mark.
                self.pile.shards()[shard].lock().pins.again(body);
                Hold::Pin { shard, body }
            }
            Hold::Run { run } => Hold::Run { run: Arc::clone(run) },
            Hold::Nothing => unreachable!("only a view that is dropped holds nothing"),
        };
        Self { pile: Arc::clone(&self.pile), hold, bytes: self.bytes }
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

// The bytes never change while the view lives, and equality and hashes are theirs.
impl Borrow<[u8]> for View {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for View {}

impl Hash for View {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Pin { shard, body } => self.pile.unpin(shard, body),
            run => drop(run),
        }
        self.pile.go_on_leaving();
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_outlives_its_view_and_its_object() {
        let pile = Arc::new(Pile::new().unwrap());
        // In a slot, in a chunk, in a run.
        let pointers = [40, 5000, 2 << 20].map(|length| pile.put(&vec![7; length]).unwrap());
        for pointer in pointers {
            let view = pile.view(pointer).unwrap();
            let clones = [view.clone(), view.clone()];
            drop(view);
            pile.remove(pointer).unwrap();
            let [first, last] = clones;
            assert!(first == last && first.iter().all(|&byte| byte == 7));
            drop(first);
            // What is put meanwhile goes elsewhere.
            let other = pile.put(&vec![1; last.len()]).unwrap();
            assert!(last.iter().all(|&byte| byte == 7));
            drop(last);
            pile.validate().unwrap();
            pile.remove(other).unwrap();
        }
        assert!(pile.is_empty() && pile.shards().iter().all(|shard| shard.lock().pins.is_empty()));
        pile.validate().unwrap();
    }

    #[test]
    fn the_last_clone_of_a_live_object_takes_the_mark_off() {
        let pile = Arc::new(Pile::new().unwrap());
        let pointer = pile.put(&[7; 40]).unwrap();
        let view = pile.view(pointer).unwrap();
        drop(view.clone());
        pile.replace(pointer, &[1; 40]).unwrap();
        assert_eq!(view.as_ref(), [7; 40]);
        drop(view);
        assert!(pile.shards().iter().all(|shard| shard.lock().pins.is_empty()));
        pile.validate().unwrap();
    }
}
