//! Reading: no lock, a copy of one piece or an error.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use gabion_blocks::{Block, WORDS_PER_BLOCK};
use gabion_heap::{Descriptor, Kind, Loc, PageSlot};

use crate::change::Guest;
use crate::error::PileError;
use crate::large::ChargedRun;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::protocol::{copy_unless_changed, second_guard};
use crate::slot::{Slot, guest_header};
use crate::word::{GuestHeader, State, Word};

/// Room that payloads are copied into, reused from read to read.
///
/// It grows to the longest payload read and keeps that size. Payloads over 1 MiB are not copied at all: it holds on to
/// their run, which counts in the pile's limit, until the next read or [`ReadBuf::let_go`].
#[derive(Debug)]
pub struct ReadBuf {
    bytes: Vec<u8>,
    run: Option<Arc<ChargedRun>>,
    length: usize,
}

impl ReadBuf {
    /// An empty buffer; it takes memory at the first read.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), run: None, length: 0 }
    }

    /// The payload that was read last.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match &self.run {
            Some(run) => run.bytes(),
            None => &self.bytes[..self.length],
        }
    }

    /// Bytes that the buffer keeps.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Lets go of a run that the last read may have left here; the payload is empty then.
    pub fn let_go(&mut self) {
        if self.run.take().is_some() {
            self.length = 0;
        }
    }

    /// The payload that was read last, from byte `first` on, by who knows that it was copied: it was not over 1 MiB. Another
    /// one is empty here, or whatever was copied before it.
    #[inline(always)]
    pub fn copied(&self, first: usize) -> &[u8] {
        #[cold]
        fn nothing<'a>() -> &'a [u8] {
            &[]
        }
        // No `unwrap_or_default`: that is compiled without branches, which takes longer than one that is foreseen.
        self.bytes.get(first..self.length).unwrap_or_else(nothing)
    }

    /// As [`ReadBuf::take_room`], in words, of which `length` bytes take so many; `None` when there is not enough room yet, or a
    /// run to let go of.
    #[inline(always)]
    pub(crate) fn room_at_hand(&mut self, length: usize, words: usize) -> Option<&mut [[u8; 8]]> {
        if self.run.is_some() {
            return None;
        }
        let room = self.bytes.as_chunks_mut::<8>().0.get_mut(..words)?;
        self.length = length;
        Some(room)
    }

    /// Room for `length` bytes, in whole words, which become the payload read last.
    #[inline]
    pub(crate) fn take_room(&mut self, length: usize) -> &mut [u8] {
        if self.run.is_some() {
            self.let_go();
        }
        self.length = length;
        self.room(length)
    }

    /// Room for whole words that hold `length` bytes.
    #[inline]
    fn room(&mut self, length: usize) -> &mut [u8] {
        let bytes = length.next_multiple_of(8);
        if self.bytes.len() < bytes {
            self.grow(bytes);
        }
        &mut self.bytes[..bytes]
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize(bytes.next_power_of_two().max(1024), 0);
    }
}

impl Default for ReadBuf {
    fn default() -> Self {
        Self::new()
    }
}

/// How many times a read is tried beside writers before it asks for the lock.
const ATTEMPTS: u32 = 64;

impl Pile {
    /// Copies the object's payload into `buf` and returns it. Takes no lock, unless writers disturb it again and again,
    /// or the payload is over 1 MiB: then for a moment.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    #[inline(always)]
    pub fn read<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        match self.read_well_filled(pointer, buf) {
            Some(length) => Ok(&buf.bytes[..length]),
            None => self.read_elsewhere(pointer, buf),
        }
    }

    /// Reads what nearly every object is: in a slot that it fills well, and not written to at this moment. Returns the
    /// payload's length.
    ///
    /// A row of reads at random is as fast as the processor sees the next ones' lines ahead, and it looks some hundred
    /// instructions ahead: so there are few here. And how much is copied is known before the slot's own line has come.
    #[inline(always)]
    fn read_well_filled(&self, pointer: Pointer, buf: &mut ReadBuf) -> Option<usize> {
        let at = pointer.place();
        let block = self.blocks.block(at.number())?;
        // Acquire: pairs with the release in which the page was given its use.
        let descriptor = Descriptor::from_bits(Descriptor::of(block, at.page()).load(Acquire));
        if descriptor.kind() != Kind::Slots || buf.run.is_some() {
            return None;
        }
        let capacity = 8 * (PageSlot::at(descriptor.class(), at.word())?.words() - 1);
        // Acquire: pairs with the commit, so that the payload is seen too.
        let word = Word(block.word(at.word()).load(Acquire));
        let length = word.inline_length(pointer)?;
        // After a replace or before a reserve, most of the slot may be empty. (Below zero is far above.)
        if capacity.wrapping_sub(length) > capacity / 2 {
            return None;
        }
        let room = buf.bytes.get_mut(..capacity)?;
        buf.length = length;
        let guards = [(&block, at.word(), word.0), (&block, at.page(), descriptor.bits())];
        copy_unless_changed((&block, at.word() + 1), room, guards).then_some(length)
    }

    /// Reads what lies elsewhere, or is being written to.
    #[inline(never)]
    fn read_elsewhere<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        buf.let_go();
        for _ in 0..ATTEMPTS {
            let slot = Slot::find(&self.blocks, pointer)?;
            let word = slot.word(pointer)?;
            let whole = match word.state() {
                State::Inline { length, .. } => Self::read_inline(&slot, word, length, buf),
                State::Away { at, .. } => self.read_away(&slot, word, at, buf),
                State::Large { .. } => break,
                State::Busy | State::Free => false,
            };
            if whole {
                return Ok(&buf.bytes[..buf.length]);
            }
            std::hint::spin_loop();
        }
        self.read_locked(pointer, buf)
    }

    /// Reads under the shard's lock: nothing is written meanwhile, and nobody waits for ever.
    #[cold]
    fn read_locked<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        let (locked, slot, word) = self.lock_slot(pointer)?;
        buf.length = locked.length(self.ground(), word);
        match word.state() {
            State::Inline { length, .. } => slot.block.read(slot.at.word() + 1, buf.room(length)),
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                let length = buf.length;
                guest.block.read(guest.header + 1, buf.room(length));
            }
            State::Large { index } => buf.run = locked.large.get(index).cloned(),
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        }
        drop(locked);
        Ok(buf.payload())
    }

    #[inline]
    fn read_inline(slot: &Slot<'_>, word: Word, length: usize, buf: &mut ReadBuf) -> bool {
        if length > slot.capacity() {
            return false;
        }
        buf.length = length;
        let (block, at) = (&slot.block, slot.at.word());
        let guards = [(block, at, word.0), (block, slot.at.page(), slot.descriptor.bits())];
        copy_unless_changed((block, at + 1), buf.room(length), guards)
    }

    fn read_away(&self, slot: &Slot<'_>, word: Word, at: Loc, buf: &mut ReadBuf) -> bool {
        let Some(host) = self.blocks.block(at.number()) else { return false };
        let first = (&slot.block, slot.at.word(), word.0);
        let Some(descriptor) = second_guard(first, (&host, at.page())) else { return false };
        let descriptor = Descriptor::from_bits(descriptor);
        if descriptor.kind() == Kind::Free {
            return false;
        }
        let header = guest_header(descriptor.kind(), at);
        // Acquire: the payload was committed by the header's store.
        let length = GuestHeader(host.word(header).load(Acquire)).length();
        // A mixture may say anything; what fits the block is copied, and the guards decide.
        if header + 1 + length.div_ceil(8) > WORDS_PER_BLOCK {
            return false;
        }
        buf.length = length;
        let guards =
            [first, (&slot.block, slot.at.page(), slot.descriptor.bits()), (&host, at.page(), descriptor.bits())];
        copy_unless_changed((&host, header + 1), buf.room(length), guards)
    }

    /// Removes the object if its payload is still what `buf` was last read from; false when it was replaced meanwhile.
    ///
    /// For "read, make sense of it, and only then remove": nothing is lost when making sense fails. Takes time linear
    /// in the payload.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn remove_unchanged(&self, pointer: Pointer, buf: &ReadBuf) -> Result<bool, PileError> {
        let (mut locked, slot, word) = self.lock_slot(pointer)?;
        let unchanged = match word.state() {
            State::Inline { length, .. } => holds(slot.block, slot.at.word() + 1, length, buf.payload()),
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                holds(guest.block, guest.header + 1, guest.read_header().length(), buf.payload())
            }
            State::Large { index } => match (locked.large.get(index), &buf.run) {
                (Some(now), Some(run)) => Arc::ptr_eq(now, run),
                _ => false,
            },
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        };
        let run = if unchanged { locked.remove(self.ground(), &slot, word) } else { None };
        drop(locked);
        drop(run);
        Ok(unchanged)
    }

    /// Reads and removes in one step: of several threads that pop the same pointer, one gets the object.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn pop<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        loop {
            self.read(pointer, buf)?;
            if self.remove_unchanged(pointer, buf)? {
                return Ok(buf.payload());
            }
        }
    }

    /// Asks for the object's first cache lines ahead of a [`Pile::read`]. Any number may be given; wrong ones do nothing.
    #[inline]
    pub fn prefetch(&self, pointer: Pointer) {
        self.prefetch_at(pointer.to_place());
    }
}

/// Whether `length` bytes from word `at` of a block are these. The block's shard is locked.
fn holds(block: Block<'_>, at: usize, length: usize, bytes: &[u8]) -> bool {
    let mut piece = [0; 512];
    length == bytes.len()
        && bytes.chunks(piece.len()).enumerate().all(|(index, chunk)| {
            let piece = &mut piece[..chunk.len()];
            block.read(at + index * 64, piece);
            piece == chunk
        })
}
