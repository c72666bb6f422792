//! Changes to a shard, under its lock: put, replace, remove.
//!
//! Each ends in one store to the slot's word. What a change frees is marked (word, descriptor) before it can be taken
//! again, so that a reader that still copies it finds out.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use gabion_blocks::{Block, BlockSet, LAST_GENERATION, Piece, WORDS_PER_BLOCK};
use gabion_heap::{
    Descriptor, Freed, Ground, Heap, HeapError, Kind, Loc, MAX_SLOT_WORDS, MOST_CHUNK_WORDS, chunk_length,
    class_for_words, slot_words,
};

use crate::buf::ReadBuf;
use crate::large::ChargedRun;
use crate::pins::Pinned;
use crate::pointer::Pointer;
use crate::protocol::{disturb, overwrite, reuse, reuse_in_pieces};
use crate::shard::Inner;
use crate::slot::{GUEST_WORDS, Slot, guest_header};
use crate::word::{GuestHeader, State, Word};

/// The longest payload that lies in a chunk; longer ones get a run of their own.
pub const CHUNK_PAYLOAD: usize = 1 << 20;
const _: () = assert!(CHUNK_PAYLOAD / 8 < MOST_CHUNK_WORDS, "a payload and its header are a chunk");
// All that is copied at all.
const _: () = assert!(CHUNK_PAYLOAD == ReadBuf::MOST_KEPT);

/// The longest payload that lies in a slot.
pub const SLOT_PAYLOAD: usize = (MAX_SLOT_WORDS - 1) * 8;

/// Bytes that a payload takes in a chunk: with its header and the chunk's tag, up to the size of a bin.
pub fn chunk_bytes(payload: usize) -> usize {
    8 * chunk_length(1 + payload.div_ceil(8))
}

/// Whether a payload may stay in room of this capacity: it fits, and what stays unused is little (64 bytes or a
/// quarter) or was asked for.
fn sits_well(payload: usize, capacity: usize, reserved: bool) -> bool {
    payload <= capacity && (reserved || capacity - payload <= 64 || payload * 4 >= capacity * 3)
}

/// What a payload that moves is to have at its new place.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    /// They are a reserve, even where the payload fills them.
    reserved: bool,
}

impl Room {
    fn of(length: usize) -> Self {
        Self { bytes: length, reserved: false }
    }

    /// A reserve moves with its object, unless it is outgrown.
    fn with_reserve(length: usize, capacity: usize) -> Self {
        Self { bytes: length.max(capacity), reserved: length <= capacity }
    }
}

/// What is to be stored: the bytes, and the run that they already lie in when they are too long for anything else.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    /// The bytes, if they are in one piece.
    whole: &'a [u8],
    /// The pieces, if there are several.
    pieces: &'a [Piece<'a>],
    pub length: usize,
    run: Option<&'a Arc<ChargedRun>>,
}

impl<'a> Payload<'a> {
    /// Of bytes in one piece.
    pub fn whole(bytes: &'a [u8], run: Option<&'a Arc<ChargedRun>>) -> Self {
        Self { whole: bytes, pieces: &[], length: bytes.len(), run }
    }

    /// Of that many bytes in pieces, one behind the other: more than fit into a slot, which is written in one go.
    pub fn in_pieces(pieces: &'a [Piece<'a>], length: usize) -> Self {
        debug_assert!(length > SLOT_PAYLOAD, "{length} bytes may go into a slot");
        Self { whole: &[], pieces, length, run: None }
    }

    /// Writes it to a place outside its slot, and commits.
    fn reuse(&self, place: (&Block<'_>, usize), commit: (&Block<'_>, usize, u64)) {
        match self.pieces {
            [] => reuse(place, self.whole, commit),
            pieces => reuse_in_pieces(place, pieces, commit),
        }
    }
}

/// A payload that is away, in a slot or a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Guest<'a> {
    pub block: Block<'a>,
    pub at: Loc,
    pub kind: Kind,
    /// The word of its header.
    pub header: usize,
}

impl<'a> Guest<'a> {
    pub fn find(ground: Ground<'a>, at: Loc) -> Self {
        let block = ground.blocks.block(at.number()).expect("a word names a block of its pile");
        let kind = Descriptor::from_bits(Descriptor::of(block, at.page()).load(Relaxed)).kind();
        Self { block, at, kind, header: guest_header(kind, at) }
    }

    /// As [`Guest::find`], where others may have changed the words: the payload, if it can be what the slot at `owner`
    /// has away.
    pub fn find_sound(ground: Ground<'a>, at: Loc, owner: Loc) -> Option<Self> {
        ground.blocks.block(at.number())?;
        let guest = Self::find(ground, at);
        let told = guest.read_header();
        let is_there = guest.kind != Kind::Free && guest.header < WORDS_PER_BLOCK;
        (is_there && told.owner() == owner && told.length() <= guest.most()).then_some(guest)
    }

    /// Bytes behind the header, up to the end of the block.
    fn most(&self) -> usize {
        8 * WORDS_PER_BLOCK.saturating_sub(self.header + 1)
    }

    /// Bytes of the payload. They are in the block whatever the header says, which others may be writing where it lies
    /// in a file: see [`PileError::Damaged`](crate::PileError::Damaged).
    pub fn length(&self) -> usize {
        self.read_header().length().min(self.most())
    }

    /// What lies in a chunk.
    pub fn of_chunk(block: Block<'a>, at: Loc) -> Self {
        Self { block, at, kind: Kind::Chunks, header: guest_header(Kind::Chunks, at) }
    }

    pub fn read_header(&self) -> GuestHeader {
        GuestHeader(self.block.word(self.header).load(Relaxed))
    }

    fn capacity(&self) -> usize {
        let words = if self.kind == Kind::Slots {
            let descriptor = Descriptor::from_bits(Descriptor::of(self.block, self.at.page()).load(Relaxed));
            slot_words(descriptor.class()).saturating_sub(GUEST_WORDS)
        } else {
            Heap::chunk_words(self.block, self.at).saturating_sub(1)
        };
        words * 8
    }

    /// Bytes that there was asked for: the remainder of a chunk, which may come with it, is no part of a reserve.
    pub fn asked(&self) -> usize {
        let slots = self.kind == Kind::Slots;
        if slots { self.capacity() } else { 8 * Heap::requested_words(self.block, self.at).saturating_sub(1) }
    }

    pub fn pinned(&self) -> Pinned {
        if self.kind == Kind::Slots { Pinned::Body(self.at) } else { Pinned::Chunk(self.at) }
    }

    /// Tells readers that what they copy from here is no longer what they think.
    fn disturb(&self) {
        let page = self.at.page();
        let now = Descriptor::from_bits(Descriptor::of(self.block, page).load(Relaxed));
        disturb((&self.block, page), now.next().bits());
    }
}

/// What a file says of an object makes no sense: another program has changed it.
pub(crate) struct Senseless;

impl From<Senseless> for HeapError {
    fn from(_: Senseless) -> Self {
        Self::NotTaken
    }
}

/// Stores the word of a slot, or of a guest's header, that leads to a payload which is complete.
#[inline]
pub(crate) fn publish(block: &Block<'_>, at: usize, word: u64) {
    // Release: a reader that sees the word (Acquire) sees the payload and the header that it leads to. That holds again
    // for a word whose payload stayed the same: it takes the place of the store that the reader would have seen.
    block.word(at).store(word, Release);
}

impl Inner {
    /// Stores a payload that goes into a slot, if a slot of its size is at hand; otherwise nothing is changed.
    #[inline(always)]
    pub fn put_inline(&mut self, ground: Ground<'_>, payload: &[u8]) -> Option<Pointer> {
        let words = 1 + payload.len().div_ceil(8);
        let class = if words <= MAX_SLOT_WORDS { class_for_words(words) } else { return None };
        let (block, at) = self.heap.take_ready_slot(ground, class)?;
        Some(self.fill(ground, (block, at), payload, false))
    }

    /// Writes a payload into a slot that was just taken.
    #[inline(always)]
    fn fill(&mut self, ground: Ground<'_>, (block, at): (Block<'_>, Loc), payload: &[u8], reserved: bool) -> Pointer {
        let word = at.word();
        let generation = self.generation_for(ground.blocks, &block, at);
        let commit = Word::inline(generation, payload.len(), reserved, self.next_version());
        reuse((&block, word + 1), payload, (&block, word, commit.0));
        self.objects += 1;
        self.used_bytes += payload.len() as u64;
        Pointer::new(at, generation)
    }

    /// Stores a payload with room for `capacity` bytes.
    pub fn put(&mut self, ground: Ground<'_>, payload: Payload<'_>, capacity: usize) -> Result<Pointer, HeapError> {
        let words = 1 + capacity.div_ceil(8);
        let length = payload.length;
        let reserved = capacity > length;
        if words <= MAX_SLOT_WORDS {
            let slot = self.heap.take_slot(ground, class_for_words(words))?;
            return Ok(self.fill(ground, slot, payload.whole, reserved));
        }
        let (block, at) = self.heap.take_slot(ground, 0)?;
        let generation = self.generation_for(ground.blocks, &block, at);
        let away = self.move_out(ground, (at, generation), payload, capacity, reserved).inspect_err(|_| {
            self.heap.free_slot(ground, at, true, true).expect("taken above");
        })?;
        self.heap.free_slot(ground, at, false, true).expect("taken above");
        publish(&block, at.word(), away.0);
        self.objects += 1;
        self.used_bytes += length as u64;
        Ok(Pointer::new(at, generation))
    }

    /// Writes a payload outside its slot and returns the word that leads there, not yet stored.
    fn move_out(
        &mut self,
        ground: Ground<'_>,
        (owner, generation): (Loc, u32),
        payload: Payload<'_>,
        capacity: usize,
        reserved: bool,
    ) -> Result<Word, HeapError> {
        if let Some(run) = payload.run {
            return Ok(Word::large(generation, self.large.add(Arc::clone(run))?));
        }
        let words = 1 + capacity.div_ceil(8);
        let (block, at, kind) = if words < MAX_SLOT_WORDS {
            let (block, at) = self.heap.take_body(ground, class_for_words(words + 1), !reserved)?;
            (block, at, Kind::Slots)
        } else {
            let words = if reserved { Heap::recoverable_request(words) } else { words };
            let (block, at) = self.heap.take_chunk(ground, words)?;
            (block, at, Kind::Chunks)
        };
        let header = guest_header(kind, at);
        let commit = GuestHeader::new(payload.length, owner);
        payload.reuse((&block, header + 1), (&block, header, commit.0));
        self.away += 1;
        Ok(Word::away(generation, at, reserved))
    }

    /// Gives the object of `slot`, which is intact, another payload, and returns the run that the old one had, if any.
    /// The pointer stays valid; on an error the old payload stays.
    pub fn replace(
        &mut self,
        ground: Ground<'_>,
        slot: &Slot<'_>,
        word: Word,
        payload: Payload<'_>,
    ) -> Result<Option<Arc<ChargedRun>>, HeapError> {
        let before = self.length(ground, word);
        let mut old = None;
        match word.state() {
            State::Inline { .. } => self.replace_inline(ground, slot, word, payload)?,
            State::Away { at, reserved } => self.replace_away(ground, slot, word, payload, at, reserved)?,
            State::Large { index } => {
                if !self.come_home(ground, slot, word, payload, false) {
                    self.relocate(ground, (slot, word), payload, Room::of(payload.length), false)?;
                }
                old = self.large.free(index);
            }
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        }
        self.used_bytes = self.used_bytes + payload.length as u64 - before as u64;
        Ok(old)
    }

    fn replace_inline(
        &mut self,
        ground: Ground<'_>,
        slot: &Slot<'_>,
        word: Word,
        payload: Payload<'_>,
    ) -> Result<(), HeapError> {
        let State::Inline { reserved, pinned, .. } = word.state() else { unreachable!("the caller saw it inline") };
        let (capacity, at, length) = (slot.capacity(), slot.at.word(), payload.length);
        if pinned || self.writes_beside || !sits_well(length, capacity, reserved) {
            let room = if reserved { Room::with_reserve(length, capacity) } else { Room::of(length) };
            let fits = !pinned && !self.writes_beside && length <= capacity;
            if self.relocate(ground, (slot, word), payload, room, fits)? {
                if pinned {
                    self.pins.orphan(Pinned::Body(slot.at));
                } else {
                    self.heap.free_slot(ground, slot.at, false, true)?;
                }
                return Ok(());
            }
        }
        let commit = Word::inline(word.generation(), length, reserved, self.next_version());
        let busy = Word::busy(word.generation());
        overwrite((&slot.block, at + 1), payload.whole, busy.0, (&slot.block, at, commit.0));
        Ok(())
    }

    fn replace_away(
        &mut self,
        ground: Ground<'_>,
        slot: &Slot<'_>,
        word: Word,
        payload: Payload<'_>,
        at: Loc,
        reserved: bool,
    ) -> Result<(), HeapError> {
        let length = payload.length;
        if !reserved && self.come_home(ground, slot, word, payload, false) {
            return Ok(self.free_guest(ground, at)?);
        }
        let guest = Guest::find(ground, at);
        let (capacity, pinned) = (guest.capacity(), guest.read_header().is_pinned());
        // What has got a run stays there: the run was charged for it, and the chunk may be short of the few bytes more.
        if pinned || self.writes_beside || payload.run.is_some() || !sits_well(length, capacity, reserved) {
            let room = if reserved {
                Room { bytes: length.max(guest.asked()), reserved: length <= capacity }
            } else {
                Room::of(length)
            };
            let fits = !pinned && !self.writes_beside && length <= capacity;
            if self.relocate(ground, (slot, word), payload, room, fits)? {
                return Ok(self.free_guest(ground, at)?);
            }
        }
        let busy = Word::busy(word.generation());
        // Relaxed: `disturb` stores by Release what a reader looks at next, and its fence comes before the payload.
        slot.block.word(slot.at.word()).store(busy.0, Relaxed);
        guest.disturb();
        let commit = GuestHeader::new(length, slot.at);
        payload.reuse((&guest.block, guest.header + 1), (&guest.block, guest.header, commit.0));
        publish(&slot.block, slot.at.word(), word.0);
        Ok(())
    }

    /// Stores a payload anywhere but where the object's old one lies: outside the slot, with `room`, or at home where
    /// there is none, if not well. The old place is the caller's to free. Where neither has room, one that `fits` its
    /// old place may stay. True when it moved.
    fn relocate(
        &mut self,
        ground: Ground<'_>,
        (slot, word): (&Slot<'_>, Word),
        payload: Payload<'_>,
        room: Room,
        fits: bool,
    ) -> Result<bool, HeapError> {
        match self.move_out(ground, (slot.at, word.generation()), payload, room.bytes, room.reserved) {
            Ok(away) => publish(&slot.block, slot.at.word(), away.0),
            Err(_) if self.come_home(ground, slot, word, payload, true) => {}
            Err(_) if fits => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Writes the payload into the slot's own body, if it sits well there and the body is not let. The place that the
    /// object had is the caller's to free.
    pub fn come_home(
        &mut self,
        ground: Ground<'_>,
        slot: &Slot<'_>,
        word: Word,
        payload: Payload<'_>,
        loosely: bool,
    ) -> bool {
        if !sits_well(payload.length, slot.capacity(), loosely) {
            return false;
        }
        if self.heap.take_own_body(ground, slot.at).is_err() {
            return false;
        }
        let at = slot.at.word();
        // A reserve that was to move on with its object, and found no room elsewhere, is as large as the slot at least.
        let reserved = matches!(word.state(), State::Away { reserved: true, .. });
        let commit = Word::inline(word.generation(), payload.length, reserved, self.next_version());
        reuse((&slot.block, at + 1), payload.whole, (&slot.block, at, commit.0));
        true
    }

    /// Removes the object of `slot` if it lies there, nobody looks at it, and the slot can serve again; otherwise
    /// nothing is changed. What is left to do under the same lock is the caller's, so that no step of this one can
    /// panic, but in a file: what a guard must survive lies in memory instead of registers.
    #[inline(always)]
    pub fn remove_inline(&mut self, ground: Ground<'_>, slot: &Slot<'_>, pointer: Pointer) -> Option<Freed> {
        // Relaxed: the lock orders its changes.
        let word = Word(slot.block.word(slot.at.word()).load(Relaxed));
        let length = word.loose_length(pointer)?;
        let generation = word.generation() + 1;
        // What another program has written to a file is looked for first.
        if generation > LAST_GENERATION || !self.is_intact(ground, slot, word) {
            return None;
        }
        // Before the word says so: nobody takes the slot as long as the lock is held.
        let freed = self.heap.free_whole_slot(slot.block, slot.at, slot.within)?;
        self.used_bytes -= length as u64;
        self.retract(ground.blocks, slot, generation);
        Some(freed)
    }

    /// Makes every pointer to the slot's object stale.
    #[inline(always)]
    fn retract(&mut self, blocks: &BlockSet, slot: &Slot<'_>, generation: u32) {
        self.objects -= 1;
        // Release: a reader that sees this word refuses; what is freed next is written only behind a release fence.
        slot.block.word(slot.at.word()).store(Word::free(generation).0, Release);
        blocks.raise_generation_floor(slot.at.number(), generation);
    }

    /// Removes the object of `slot`, which is intact, wherever it lies, and returns the run that it had, if any.
    ///
    /// # Errors
    /// [`Senseless`]: the file was changed just now. The object is gone.
    pub fn remove(
        &mut self,
        ground: Ground<'_>,
        slot: &Slot<'_>,
        word: Word,
    ) -> Result<Option<Arc<ChargedRun>>, Senseless> {
        let generation = word.generation() + 1;
        let retired = generation > LAST_GENERATION;
        let mut run = None;
        self.used_bytes -= self.length(ground, word) as u64;
        self.retract(ground.blocks, slot, generation);
        let body = match word.state() {
            State::Inline { pinned: true, .. } => {
                self.pins.orphan(Pinned::Body(slot.at));
                false
            }
            State::Inline { .. } => true,
            State::Away { at, .. } => {
                self.free_guest(ground, at)?;
                false
            }
            State::Large { index, .. } => {
                run = self.large.free(index);
                false
            }
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        };
        let freed = if retired {
            self.heap.retire_slot(ground, slot.at, body)
        } else {
            self.heap.free_slot(ground, slot.at, true, body)
        };
        self.is_freed(&freed).map(|()| run)
    }

    /// Frees a payload's place outside its slot; a pinned one is left to its views.
    ///
    /// # Errors
    /// As [`Inner::free_body`].
    pub fn free_guest(&mut self, ground: Ground<'_>, at: Loc) -> Result<(), Senseless> {
        let guest = Guest::find(ground, at);
        self.away -= 1;
        if guest.read_header().is_pinned() {
            self.pins.orphan(guest.pinned());
            Ok(())
        } else {
            self.free_body(ground, guest.pinned())
        }
    }

    /// Frees a body or chunk that nothing refers to any more.
    ///
    /// # Errors
    /// [`Senseless`]: it stays taken.
    pub fn free_body(&mut self, ground: Ground<'_>, body: Pinned) -> Result<(), Senseless> {
        let (Pinned::Body(at) | Pinned::Chunk(at)) = body;
        Guest::find(ground, at).disturb();
        let freed = match body {
            Pinned::Body(at) => self.heap.free_slot(ground, at, false, true),
            Pinned::Chunk(_) if self.writes_beside && !self.heap.has_chunk(ground, at, 0) => Err(HeapError::NotTaken),
            Pinned::Chunk(at) => {
                self.crowded = false;
                self.heap.free_chunk(ground, at)
            }
        };
        self.is_freed(&freed)
    }

    /// What was freed is what the words said was taken, unless another program has changed the file.
    #[inline]
    fn is_freed(&self, freed: &Result<(), HeapError>) -> Result<(), Senseless> {
        assert!(self.writes_beside || freed.is_ok(), "the word said that it is taken");
        if freed.is_ok() { Ok(()) } else { Err(Senseless) }
    }

    /// Whether the word of a slot that is not free can be a live one: its payload is where it says.
    #[inline(never)]
    pub fn makes_sense(&self, ground: Ground<'_>, slot: &Slot<'_>, word: Word) -> bool {
        match word.state() {
            State::Inline { length, .. } => length <= slot.capacity(),
            State::Away { at, .. } => Guest::find_sound(ground, at, slot.at).is_some(),
            State::Large { index } => self.large.get(index).is_some(),
            State::Free | State::Busy => false,
        }
    }

    /// Whether the object of a live word can be changed: what the heap and the pins know of it is what stands in its
    /// block, where others may have written if that lies in a file.
    #[inline]
    pub fn is_intact(&self, ground: Ground<'_>, slot: &Slot<'_>, word: Word) -> bool {
        !self.writes_beside || self.is_intact_in_file(ground, slot, word)
    }

    #[inline(never)]
    fn is_intact_in_file(&self, ground: Ground<'_>, slot: &Slot<'_>, word: Word) -> bool {
        let Some((class, taken)) = self.heap.taken(ground, slot.at) else { return false };
        let is_there = taken.head && class == slot.within.class() && self.makes_sense(ground, slot, word);
        is_there
            && match word.state() {
                State::Inline { pinned, .. } => taken.body && pinned == self.pins.has(Pinned::Body(slot.at)),
                State::Away { at, .. } => self.has_guest(ground, &Guest::find(ground, at)),
                State::Large { .. } => true,
                State::Free | State::Busy => false,
            }
    }

    /// Whether the room of a guest is taken, is no less than its payload, and has views or none.
    pub fn has_guest(&self, ground: Ground<'_>, guest: &Guest<'_>) -> bool {
        if !self.writes_beside {
            return true;
        }
        let header = guest.read_header();
        let room = match guest.kind {
            Kind::Slots => self.heap.taken(ground, guest.at).is_some_and(|(class, taken)| {
                taken.body && slot_words(class).saturating_sub(GUEST_WORDS) * 8 >= header.length()
            }),
            _ => self.heap.has_chunk(ground, guest.at, header.length().div_ceil(8)),
        };
        room && header.is_pinned() == self.pins.has(guest.pinned())
    }

    /// Bytes of the payload that a live word stands for.
    pub fn length(&self, ground: Ground<'_>, word: Word) -> usize {
        match word.state() {
            State::Inline { length, .. } => length,
            State::Away { at, .. } => Guest::find(ground, at).length(),
            State::Large { index, .. } => self.large.get(index).map_or(0, |run| run.bytes().len()),
            State::Free | State::Busy => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Pile, PileOptions};

    /// An object that came home for want of room elsewhere was taken for one that had reserved nothing, and lost its
    /// room with the next payload that moved it.
    #[test]
    fn a_reserve_is_kept_by_what_comes_home_for_want_of_room() {
        let options = PileOptions { shards: Some(1), max_bytes: Some(4 << 20), ..PileOptions::default() };
        let pile = Arc::new(Pile::with_options(options).unwrap());
        // Nothing of any size has room then.
        let fill = || {
            let size = |size: usize| std::iter::repeat_with(move || size);
            let all = (1..130).flat_map(|words| size(8 * words).map_while(|size| pile.put(&vec![0; size]).ok()));
            all.collect::<Vec<_>>()
        };
        let reserved = pile.put_with_reserve(&[1; 10], 900).unwrap();
        let view = pile.view(reserved).unwrap();
        pile.replace(reserved, &[2; 20]).unwrap();
        drop(view);
        // At home again is room; where it lies now, a view looks at it.
        let view = pile.view(reserved).unwrap();
        let others = fill();
        pile.replace(reserved, &[3; 30]).unwrap();
        drop(view);
        for other in others {
            pile.remove(other).unwrap();
        }
        pile.replace(reserved, &[4; 30]).unwrap();
        // What a slot's own payload left is let to others that move.
        let small: Vec<_> = (0..100).map(|_| pile.put(&[6; 40]).unwrap()).collect();
        for small in small {
            pile.replace(small, &[7; 900]).unwrap();
        }
        fill();
        pile.replace(reserved, &[5; 900]).unwrap();
        assert_eq!(*pile.view(reserved).unwrap(), [5; 900]);
        pile.validate().unwrap();
    }
}
