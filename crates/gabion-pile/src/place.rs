//! Objects by their place: calls for an owner that keeps an index of its own, and knows from it what lives where.
//!
//! Such an owner may also keep books of its own in the first words of each payload: [`Body`] gives them as atomic
//! words. Only what the owner never changes in place is of one piece when it is read through a [`Glance`].
//!
//! These calls belong to an [`IndexedPile`], which has no views: nobody can hold a plain slice of what is written
//! there.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, WORDS_PER_BLOCK};
use gabion_heap::{Descriptor, Kind, Loc, slots_in_page};

use crate::buf::ReadBuf;
use crate::error::PileError;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::protocol::unchanged_while;
use crate::value::Value;
use crate::word::{State, Word};

/// Where an object's slot is: a pointer without its generation. It does not say whether the object is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(Loc);

impl Place {
    /// Bits of a place.
    pub const BITS: u32 = Loc::BITS;

    /// Takes the low [`Place::BITS`] bits of a number for a place.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(Loc::from_bits(bits))
    }

    /// The place as a number.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0.bits()
    }

    #[inline]
    pub(crate) fn to_loc(self) -> Loc {
        self.0
    }
}

impl Pointer {
    /// The pointer without its generation.
    #[inline]
    pub fn to_place(self) -> Place {
        Place(self.place())
    }
}

/// A pile whose owner keeps an index of its own, knows objects by their [`Place`], and writes into payloads in place,
/// as a cache does.
///
/// It has all that a [`Pile`] has but views: a view is made from an `Arc<Pile>`, and nothing ever moves the pile out of
/// here or lends it mutably. So the words of a [`Body`] are only ever accessed as atomics, and to write them is safe:
///
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use gabion_pile::{IndexedPile, Pile, ReadBuf};
///
/// let pile = IndexedPile::from(Pile::new()?);
/// let pointer = pile.put(&[1; 16])?;
/// pile.body(pointer.to_place()).unwrap().word(1).store(7, Relaxed);
/// assert_eq!(pile.read(pointer, &mut ReadBuf::new())?[8], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// A view of it is refused by the compiler,
///
/// ```compile_fail,E0599
/// # use std::sync::Arc;
/// # use gabion_pile::{IndexedPile, Pile};
/// # let pile = Arc::new(IndexedPile::from(Pile::new().unwrap()));
/// # let pointer = pile.put(&[1; 16]).unwrap();
/// pile.view(pointer);
/// ```
/// and so is a pile that views can be made of:
///
/// ```compile_fail,E0308
/// # use std::sync::Arc;
/// # use gabion_pile::{IndexedPile, Pile};
/// # let pile = IndexedPile::from(Pile::new().unwrap());
/// let pile: Arc<Pile> = Arc::new(pile);
/// ```
/// A pile that has views lends nobody its words:
///
/// ```compile_fail,E0599
/// # use std::sync::{Arc, atomic::Ordering::Relaxed};
/// # use gabion_pile::Pile;
/// # let pile = Arc::new(Pile::new().unwrap());
/// # let pointer = pile.put(&[1; 16]).unwrap();
/// let view = pile.view(pointer).unwrap();
/// pile.body(pointer.to_place()).unwrap().word(0).store(7, Relaxed);
/// ```
#[derive(Debug)]
pub struct IndexedPile(Pile);

impl From<Pile> for IndexedPile {
    /// A pile by itself has no views: each view keeps an `Arc<Pile>`.
    fn from(pile: Pile) -> Self {
        Self(pile)
    }
}

/// Shared only, and never mutable: with `&mut Pile` another pile could be put in its place, and this one into an `Arc`.
impl Deref for IndexedPile {
    type Target = Pile;

    #[inline(always)]
    fn deref(&self) -> &Pile {
        &self.0
    }
}

/// A payload that lies in its slot, as atomic words.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    block: Block<'a>,
    at: usize,
}

impl<'a> Body<'a> {
    /// One of the payload's words. An index beyond the payload gives some other word of the block.
    #[inline]
    pub fn word(self, index: usize) -> &'a AtomicU64 {
        self.block.word(self.at + 1 + index)
    }

    /// Copies the payload from its word `first` on, for its owner, who knows that nobody changes it meanwhile.
    ///
    /// # Panics
    /// When the bytes would not lie in the block.
    pub fn read(self, first: usize, into: &mut [u8]) {
        self.block.read(self.at + 1 + first, into);
    }

    #[inline]
    fn head(self) -> Word {
        // Acquire: pairs with the commit, so that the payload is seen too.
        Word(self.block.word(self.at).load(Acquire))
    }

    /// Bytes of the payload; 0 when no payload lies here.
    #[inline]
    pub fn len(self) -> usize {
        self.head().length_here().unwrap_or(0)
    }

    /// True when no payload, or an empty one, lies here.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A payload that lay in its slot when it was looked at, to be read without a lock.
#[derive(Clone, Copy)]
pub struct Glance<'a> {
    body: Body<'a>,
    length: usize,
    word: Word,
    page: usize,
    descriptor: u64,
}

impl<'a> Glance<'a> {
    /// The payload's words.
    #[inline]
    pub fn body(&self) -> Body<'a> {
        self.body
    }

    /// Bytes of the payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies the payload from its word `first` on into `buf`, where it is the payload read last. Nothing is copied
    /// when the payload ends before. False, and nothing is copied, when there is no memory for `buf` to grow.
    #[inline]
    pub fn copy(&self, first: usize, buf: &mut ReadBuf) -> bool {
        let length = self.length.saturating_sub(8 * first);
        let Some(room) = buf.take_room(length) else { return false };
        // Where nothing is left of the payload, the block may have ended, too.
        if length > 0 {
            self.body.block.read(self.body.at + 1 + first, room);
        }
        true
    }

    /// Whether all that was read since the glance is of one payload, and that payload was the owner's current one at
    /// one moment of that time. `linked` says whether the owner's index still leads here; it reads the index by an
    /// acquire load.
    #[inline(always)]
    pub fn holds(&self, linked: impl FnOnce() -> bool) -> bool {
        let block = &self.body.block;
        unchanged_while(linked, [(block, self.body.at, self.word.0), (block, self.page, self.descriptor)])
    }
}

/// A page of slots of which few are taken.
#[derive(Debug, Clone, Copy)]
pub struct SparsePage {
    shard: usize,
    page: gabion_heap::SparsePage,
}

impl SparsePage {
    /// The share of its slots that are taken, in hundredths.
    pub fn percent(&self) -> u32 {
        u32::from(self.page.taken) * 100 / u32::from(self.page.slots)
    }

    /// Whether a place lies in the page.
    pub fn has(&self, place: Place) -> bool {
        place.0.number() == self.page.number && place.0.page() == self.page.page
    }
}

impl Pile {
    /// Asks for the first cache lines of the object at a place ahead of its use. Any place may be given.
    #[inline]
    pub fn prefetch_at(&self, place: Place) {
        if let Some(block) = self.blocks.block(place.0.number()) {
            block.prefetch(place.0.word());
            block.prefetch(place.0.word() + 8);
        }
    }
}

impl IndexedPile {
    /// As [`Pile::put_pieces`], but nothing is moved to make room for it: an owner with a lock of its own calls
    /// [`Pile::clear_page`] when it has let go of that.
    ///
    /// # Errors
    /// As [`Pile::put`].
    pub fn put_beside(&self, value: Value<'_>) -> Result<Pointer, PileError> {
        self.with_payload(value, |payload| self.put_unmoved(payload, payload.length))
    }

    /// A page with few objects, for an owner that wants it emptied; `movable`: one whose objects have room in other
    /// pages. None that has one of the places `but`. Constant time; locks one shard after the other.
    pub fn sparse_page(&self, movable: bool, but: &[Place]) -> Option<SparsePage> {
        let shards = self.shards().iter().enumerate();
        let pages = shards.filter_map(|(shard, locked)| {
            let suits =
                |&page: &gabion_heap::SparsePage| !but.iter().any(|&place| SparsePage { shard, page }.has(place));
            Some(SparsePage { shard, page: locked.lock().heap.sparse_page(movable, suits)? })
        });
        pages.min_by_key(SparsePage::percent)
    }

    /// The places of the live objects of a page, or nothing when it serves another class by now.
    pub fn places_in(&self, page: &SparsePage) -> Vec<Place> {
        let _locked = self.shards()[page.shard].lock();
        let Some(block) = self.blocks.block(page.page.number) else { return Vec::new() };
        // Relaxed: the shard's lock orders it.
        let now = Descriptor::from_bits(Descriptor::of(block, page.page.page).load(Relaxed));
        if now.kind() != Kind::Slots || now.class() != page.page.class {
            return Vec::new();
        }
        let live = |at: &usize| Word(block.word(*at).load(Relaxed)).state() != State::Free;
        let slots = slots_in_page(page.page.class, page.page.page).filter(live);
        slots.map(|at| Place(Loc::new(page.page.number, at))).collect()
    }

    /// The words of the payload at a place. The caller knows that its object is live and short enough (up to 1016
    /// bytes) to lie in its slot, and that nobody else changes it. `None` when there is no block of this pile.
    #[inline]
    pub fn body(&self, place: Place) -> Option<Body<'_>> {
        Some(Body { block: self.blocks.block(place.0.number())?, at: place.0.word() })
    }

    /// The pointer of the live object at a place. The caller knows that there is one.
    #[inline]
    pub fn pointer_at(&self, place: Place) -> Option<Pointer> {
        Some(Pointer::new(place.0, self.body(place)?.head().generation()))
    }

    /// Looks at the payload at a place without a lock. The place may be out of date: what was seen is worth something
    /// if [`Glance::holds`] says so. `None` when no payload lies there, or is just being written.
    #[inline]
    pub fn glance(&self, place: Place) -> Option<Glance<'_>> {
        let body = self.body(place)?;
        let page = place.0.page();
        // Acquire: pairs with the release in which the page was given its use.
        let descriptor = Descriptor::of(body.block, page).load(Acquire);
        if Descriptor::from_bits(descriptor).kind() != Kind::Slots {
            return None;
        }
        let word = body.head();
        let length = word.length_here()?;
        // In a page put to another use, any bytes may be taken for a word; what fits the block is looked at.
        let fits = body.at + 1 + length.div_ceil(8) <= WORDS_PER_BLOCK;
        fits.then_some(Glance { body, length, word, page, descriptor })
    }
}
