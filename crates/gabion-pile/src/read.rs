//! Reading: no lock, a copy of one piece or an error.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use gabion_blocks::WORDS_PER_BLOCK;
use gabion_heap::{Descriptor, Kind, Loc};

use crate::change::{CHUNK_PAYLOAD, Guest};
use crate::error::PileError;
use crate::large::ChargedRun;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::protocol::{copy_unless_changed, second_guard};
use crate::slot::{Slot, guest_header};
use crate::word::{GuestHeader, State, Word};

/// Room that payloads are copied into, reused from read to read.
///
/// It grows to the longest payload read and keeps that size; payloads over 1 MiB are not copied at all, it then holds
/// on to their run until the next read.
#[derive(Debug)]
pub struct ReadBuf {
    bytes: Vec<u8>,
    run: Option<Arc<ChargedRun>>,
    seen: Seen,
}

/// What stood in the pile when the payload was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    word: u64,
    descriptor: u64,
}

impl ReadBuf {
    /// An empty buffer; it takes memory at the first read.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), run: None, seen: Seen { word: 0, descriptor: 0 } }
    }

    /// Bytes that the buffer keeps.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Lets go of a run that the last read may have left here.
    pub fn let_go(&mut self) {
        self.run = None;
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

/// How one attempt to read ended.
enum Attempt {
    /// That many bytes lie in the buffer.
    Copied(usize),
    /// The buffer holds the run.
    Held,
    /// A writer was at it: again.
    Disturbed,
}

impl Pile {
    /// Copies the object's payload into `buf` and returns it. Takes no lock (payloads over 1 MiB: a short one), and
    /// waits only while the very object is being overwritten.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    #[inline]
    pub fn read<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        buf.run = None;
        let mut attempts = 0_u32;
        loop {
            let slot = Slot::find(&self.blocks, pointer)?;
            let word = slot.word(pointer)?;
            let attempt = match word.state() {
                State::Inline { length, .. } => Self::read_inline(&slot, word, length, buf),
                State::Away { at, .. } => self.read_away(&slot, word, at, buf),
                State::Large { index, .. } => self.read_large(pointer, word, index, buf),
                State::Busy | State::Free => Attempt::Disturbed,
            };
            match attempt {
                Attempt::Copied(length) => return Ok(&buf.bytes[..length]),
                Attempt::Held => return Ok(buf.run.as_ref().map_or(&[], |run| run.bytes())),
                Attempt::Disturbed => wait(&mut attempts),
            }
        }
    }

    #[inline]
    fn read_inline(slot: &Slot<'_>, word: Word, length: usize, buf: &mut ReadBuf) -> Attempt {
        if length > slot.capacity() {
            return Attempt::Disturbed;
        }
        buf.seen = Seen { word: word.0, descriptor: 0 };
        let (block, at) = (&slot.block, slot.at.word());
        let guards = [(block, at, word.0), (block, slot.at.page(), slot.descriptor.bits())];
        if copy_unless_changed((block, at + 1), buf.room(length), guards) {
            Attempt::Copied(length)
        } else {
            Attempt::Disturbed
        }
    }

    fn read_away(&self, slot: &Slot<'_>, word: Word, at: Loc, buf: &mut ReadBuf) -> Attempt {
        let Some(host) = self.blocks.block(at.number()) else { return Attempt::Disturbed };
        let first = (&slot.block, slot.at.word(), word.0);
        let Some(descriptor) = second_guard(first, (&host, at.page())) else { return Attempt::Disturbed };
        let descriptor = Descriptor::from_bits(descriptor);
        if descriptor.kind() == Kind::Free {
            return Attempt::Disturbed;
        }
        let header = guest_header(descriptor.kind(), at);
        // Acquire: the payload was committed by the header's store.
        let length = GuestHeader(host.word(header).load(Acquire)).length();
        if length > CHUNK_PAYLOAD || header + 1 + length.div_ceil(8) > WORDS_PER_BLOCK {
            return Attempt::Disturbed;
        }
        buf.seen = Seen { word: word.0, descriptor: descriptor.bits() };
        let guards =
            [first, (&slot.block, slot.at.page(), slot.descriptor.bits()), (&host, at.page(), descriptor.bits())];
        if copy_unless_changed((&host, header + 1), buf.room(length), guards) {
            Attempt::Copied(length)
        } else {
            Attempt::Disturbed
        }
    }

    #[cold]
    fn read_large(&self, pointer: Pointer, word: Word, index: u32, buf: &mut ReadBuf) -> Attempt {
        let Ok((locked, _, now)) = self.lock_slot(pointer) else { return Attempt::Disturbed };
        if now != word {
            return Attempt::Disturbed;
        }
        buf.run = locked.large.get(index).cloned();
        buf.seen = Seen { word: word.0, descriptor: 0 };
        Attempt::Held
    }

    /// Removes the object if it is still what `buf` was last read from; false when it was replaced meanwhile.
    ///
    /// For "read, make sense of it, and only then remove": nothing is lost when making sense fails. A false may also
    /// be a false alarm: read again.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn remove_unchanged(&self, pointer: Pointer, buf: &ReadBuf) -> Result<bool, PileError> {
        let (mut locked, slot, word) = self.lock_slot(pointer)?;
        let same_run = match (word.state(), &buf.run) {
            (State::Large { index, .. }, Some(run)) => locked.large.get(index).is_some_and(|now| Arc::ptr_eq(now, run)),
            (State::Large { .. }, None) | (_, Some(_)) => false,
            _ => true,
        };
        let descriptor = match word.state() {
            State::Away { at, .. } => {
                let host = Guest::find(self.ground(), at).block;
                Descriptor::of(host, at.page()).load(Acquire)
            }
            _ => 0,
        };
        let unchanged = same_run && buf.seen == (Seen { word: word.0, descriptor });
        if unchanged {
            locked.remove(self.ground(), &slot, word);
        }
        Ok(unchanged)
    }

    /// Reads and removes in one step: of several threads that pop the same pointer, one gets the object.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn pop<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        loop {
            let length = self.read(pointer, buf)?.len();
            if self.remove_unchanged(pointer, buf)? {
                return Ok(match &buf.run {
                    Some(run) => run.bytes(),
                    None => &buf.bytes[..length],
                });
            }
        }
    }

    /// Asks for the object's first cache lines ahead of a [`Pile::read`]. Any number may be given; wrong ones do nothing.
    #[inline]
    pub fn prefetch(&self, pointer: Pointer) {
        let at = pointer.place();
        if let Some(block) = self.blocks.block(at.number()) {
            block.prefetch(at.word());
            block.prefetch(at.word() + 8);
        }
    }
}

/// Waits a moment for a writer: spins first, then lets other threads run.
#[cold]
fn wait(attempts: &mut u32) {
    *attempts += 1;
    if (*attempts).is_multiple_of(64) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
