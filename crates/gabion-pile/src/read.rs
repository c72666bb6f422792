//! Reading: no lock, a copy of one piece or an error.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, WORDS_PER_BLOCK};
use gabion_heap::{Descriptor, Kind, Loc, PageSlot};

use crate::buf::{BEGINNING, Elsewhere, LONG, Left, ReadBuf};
use crate::change::Guest;
use crate::error::PileError;
use crate::large::ChargedRun;
use crate::long::Reading;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::protocol::{copy_unless_changed, second_guard};
use crate::shard::Inner;
use crate::slot::{Slot, guest_header};
use crate::value::Value;
use crate::word::{GuestHeader, State, Word};

/// How many times a read is tried beside writers before it asks for the lock.
const ATTEMPTS: u32 = 64;

impl Pile {
    /// Copies the object's payload into `buf` and returns it. Takes no lock, unless writers disturb it again and again,
    /// or the payload is over 1 MiB: then for a moment.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live, [`PileError::Memory`] when there is no memory for `buf` to
    /// grow. What `buf` holds then is nobody's payload.
    #[inline(always)]
    pub fn read<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        match self.read_well_filled(pointer, buf) {
            Some(length) => Ok(&buf.bytes[..length]),
            None => self.read_elsewhere(pointer, buf),
        }
    }

    /// The payload of what nearly every object is: in a slot that it fills well, and not written to at this moment.
    /// `None` says nothing about the object, and what `buf` holds then is nobody's payload: ask [`Pile::read`] or
    /// [`Pile::read_or_find`].
    #[inline(always)]
    pub fn read_brief<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Option<&'b [u8]> {
        self.read_well_filled(pointer, buf).map(|length| &buf.bytes[..length])
    }

    /// As [`Pile::read`], but a long payload stays where it lies until its reader knows where it belongs. To be called
    /// after [`Pile::read_brief`] did not tell.
    ///
    /// # Errors
    /// As [`Pile::read`].
    #[inline]
    pub fn read_or_find<'a>(&'a self, pointer: Pointer, buf: &'a mut ReadBuf) -> Result<Reading<'a>, PileError> {
        buf.leaving(|buf| self.read_elsewhere(pointer, buf).map(drop))?;
        Ok(self.reading(buf, 0))
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
        if descriptor.kind() != Kind::Slots || buf.elsewhere.is_some() {
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
            if buf.refusal().is_some() {
                break;
            }
            std::hint::spin_loop();
        }
        self.read_locked(pointer, buf)
    }

    /// Reads under the shard's lock: nothing is written meanwhile, and nobody waits for ever. The length is what it is,
    /// so that memory is refused for a payload, and not for what was taken for one.
    #[cold]
    fn read_locked<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        buf.let_go();
        let (locked, slot, word) = self.lock_slot(pointer)?;
        // Once: where it is told by the file, it may be another one later.
        let length = locked.length(self.ground(), word);
        let copy = |from: &Block<'_>, at: usize, buf: &mut ReadBuf| {
            if let Some(room) = buf.room(length) {
                from.read(at, room);
            }
        };
        match word.state() {
            State::Inline { .. } => copy(&slot.block, slot.at.word() + 1, buf),
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                copy(&guest.block, guest.header + 1, buf);
            }
            State::Large { index } => buf.elsewhere = locked.large.get(index).cloned().map(Elsewhere::Run),
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        }
        drop(locked);
        match buf.refusal() {
            Some(cause) => Err(PileError::Memory { payload: length as u64, cause }),
            None => Ok(buf.payload()),
        }
    }

    #[inline]
    fn read_inline(slot: &Slot<'_>, word: Word, length: usize, buf: &mut ReadBuf) -> bool {
        if length > slot.capacity() {
            return false;
        }
        let Some(room) = buf.room(length) else { return false };
        let (block, at) = (&slot.block, slot.at.word());
        let guards = [(block, at, word.0), (block, slot.at.page(), slot.descriptor.bits())];
        copy_unless_changed((block, at + 1), room, guards)
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
        let leave = buf.leaves && length >= LONG;
        let copied = if leave { BEGINNING } else { length };
        let Some(room) = buf.room(copied) else { return false };
        let guards =
            [first, (&slot.block, slot.at.page(), slot.descriptor.bits()), (&host, at.page(), descriptor.bits())];
        if !copy_unless_changed((&host, header + 1), room, guards) {
            return false;
        }
        if leave {
            // A page's descriptor is the word of that number in its block.
            let told = |at: Loc, descriptor: Descriptor| (Loc::new(at.number(), at.page()), descriptor.bits());
            let guards = [(slot.at, word.0), told(slot.at, slot.descriptor), told(at, descriptor)];
            let payload = Loc::new(at.number(), header + 1);
            buf.elsewhere = Some(Elsewhere::Left(Left { payload, length, guards }));
        }
        true
    }

    /// Whether the object's payload begins with these bytes. Needs no memory, and locks the shard for as long as it
    /// takes to look, or for a moment where the payload is over 1 MiB.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn begins_with(&self, pointer: Pointer, bytes: &[u8]) -> Result<bool, PileError> {
        self.has_at(pointer, 0, bytes, |length| length >= bytes.len())
    }

    /// Whether the object's payload is `skip` bytes and these behind them. As [`Pile::begins_with`].
    ///
    /// # Errors
    /// As [`Pile::begins_with`].
    pub fn ends_in(&self, pointer: Pointer, skip: usize, bytes: &[u8]) -> Result<bool, PileError> {
        self.has_at(pointer, skip, bytes, |length| length.checked_sub(skip) == Some(bytes.len()))
    }

    /// Whether the payload has these bytes behind `skip` others, and a length that `fits` both.
    fn has_at(
        &self,
        pointer: Pointer,
        skip: usize,
        bytes: &[u8],
        fits: impl Fn(usize) -> bool,
    ) -> Result<bool, PileError> {
        let (locked, slot, word) = self.lock_slot(pointer)?;
        if !fits(locked.length(self.ground(), word)) {
            return Ok(false);
        }
        Ok(match word.state() {
            State::Inline { .. } => holds_at(&slot.block, slot.at.word() + 1, skip, bytes),
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                holds_at(&guest.block, guest.header + 1, skip, bytes)
            }
            State::Large { index } => {
                let run = locked.large.get(index).cloned();
                drop(locked);
                let held = |run: &Arc<ChargedRun>| run.bytes().get(skip..).is_some_and(|rest| rest.starts_with(bytes));
                let holds = run.as_ref().is_some_and(held);
                self.part_with(run);
                holds
            }
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        })
    }

    /// Removes the object if its payload is still what `buf` was last read from; false when it was replaced meanwhile.
    ///
    /// For "read, make sense of it, and only then remove": nothing is lost when making sense fails. Takes time linear
    /// in the payload, but where the read left it where it lies ([`ReadBuf::leaving`]): then it is known by its guards.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live.
    pub fn remove_unchanged(&self, pointer: Pointer, buf: &ReadBuf) -> Result<bool, PileError> {
        let (mut locked, slot, word) = self.lock_intact(pointer)?;
        let unchanged = self.is_unchanged(&locked, &slot, word, buf);
        let run = if unchanged { locked.remove(self.ground(), &slot, word) } else { Ok(None) };
        drop(locked);
        run.map(|_| unchanged).map_err(|_| PileError::Damaged { pointer })
    }

    /// As [`Pile::replace`], by a payload in one piece or in several, if the object's payload is still what `buf` was
    /// last read from; false when it was replaced meanwhile, and stays.
    ///
    /// For "read, make another of it, and store that": what others store meanwhile is not lost. It is the payload that
    /// is compared, under the lock, so one that was replaced by the same bytes is unchanged: whatever was made of them
    /// is right. Takes time linear in both payloads; one over 1 MiB is known by where it lies.
    ///
    /// ```
    /// # use gabion_pile::{Pile, ReadBuf};
    /// # let pile = Pile::new()?;
    /// let (mut buf, pointer) = (ReadBuf::new(), pile.put(b"1")?);
    /// pile.read(pointer, &mut buf)?;
    /// pile.replace(pointer, b"2")?;
    /// assert!(!pile.replace_unchanged(pointer, &buf, b"1 and more")?);
    /// pile.read(pointer, &mut buf)?;
    /// assert!(pile.replace_unchanged(pointer, &buf, b"2 and more")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pile::replace`].
    pub fn replace_unchanged<'a>(
        &self,
        pointer: Pointer,
        buf: &ReadBuf,
        value: impl Into<Value<'a>>,
    ) -> Result<bool, PileError> {
        let unchanged = |(shard, slot, word): (&Inner, &Slot<'_>, Word)| self.is_unchanged(shard, slot, word, buf);
        self.with_payload(value.into(), |payload| self.replace_payload(pointer, payload, unchanged))
    }

    /// Whether the payload of a slot, whose shard is locked, is still what `buf` was last read from.
    pub(crate) fn is_unchanged(&self, shard: &Inner, slot: &Slot<'_>, word: Word, buf: &ReadBuf) -> bool {
        match word.state() {
            State::Inline { length, .. } => {
                length == buf.payload().len() && holds(&slot.block, slot.at.word() + 1, buf.payload())
            }
            State::Away { at, .. } => {
                let guest = Guest::find(self.ground(), at);
                let whole = || {
                    let same_length = guest.read_header().length() == buf.payload().len();
                    same_length && holds(&guest.block, guest.header + 1, buf.payload())
                };
                if let Some(Elsewhere::Left(left)) = &buf.elsewhere { self.stands(left, slot.at) } else { whole() }
            }
            State::Large { index } => match (shard.large.get(index), &buf.elsewhere) {
                (Some(now), Some(Elsewhere::Run(run))) => Arc::ptr_eq(now, run),
                _ => false,
            },
            State::Free | State::Busy => unreachable!("the lock's holder sees live words only"),
        }
    }

    /// Whether what a read left where it lies is still the payload of the slot at this place, whose shard is locked.
    fn stands(&self, left: &Left, slot: Loc) -> bool {
        // Relaxed: the lock orders the changes of all three.
        let word = |at: Loc| Some(self.blocks.block(at.number())?.word(at.word()).load(Relaxed));
        left.guards[0].0 == slot && left.guards.iter().all(|&(at, seen)| word(at) == Some(seen))
    }

    /// Reads and removes in one step: of several threads that pop the same pointer, one gets the object.
    ///
    /// # Errors
    /// As [`Pile::read`]; the object stays then.
    pub fn pop<'b>(&self, pointer: Pointer, buf: &'b mut ReadBuf) -> Result<&'b [u8], PileError> {
        // A caller that removes an object needs all of it.
        buf.leave_nothing();
        loop {
            self.read(pointer, buf)?;
            if self.remove_unchanged(pointer, buf)? {
                return Ok(buf.payload());
            }
        }
    }

    /// Asks for the object's first cache lines ahead of a [`Pile::read`]. Any number may be given; wrong ones do
    /// nothing.
    #[inline]
    pub fn prefetch(&self, pointer: Pointer) {
        self.prefetch_at(pointer.to_place());
    }
}

/// Whether these bytes stand from word `at` of a block on. The block's shard is locked.
fn holds(block: &Block<'_>, at: usize, bytes: &[u8]) -> bool {
    holds_at(block, at, 0, bytes)
}

/// As [`holds`], of bytes that stand `skip` bytes further on.
fn holds_at(block: &Block<'_>, at: usize, skip: usize, bytes: &[u8]) -> bool {
    let mut piece = [0; 512];
    let (at, skip) = (at + skip / 8, skip % 8);
    let (first, others) = bytes.split_at(bytes.len().min(piece.len() - skip));
    let mut stands = |at: usize, skip: usize, bytes: &[u8]| {
        let piece = &mut piece[..skip + bytes.len()];
        block.read(at, piece);
        &piece[skip..] == bytes
    };
    stands(at, skip, first)
        && others.chunks(512).enumerate().all(|(index, chunk)| stands(at + (index + 1) * 64, 0, chunk))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use gabion_blocks::WORDS_PER_BLOCK;
    use gabion_heap::Loc;

    use crate::word::Word;
    use crate::{OpenOptions, Pile, PileError, ReadBuf};

    #[test]
    fn what_a_payload_is_behind_others_is_told_without_a_copy() {
        let pile = Pile::new().unwrap();
        for length in [0, 1, 7, 8, 9, 500, 511, 512, 513, 1016, 1017, 1500, 70_000, (1 << 20) + 5] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let pointer = pile.put(&bytes).unwrap();
            for skip in [0, 1, 3, 8, 13, 300, 512, 1016].into_iter().filter(|&skip| skip <= length) {
                let rest = &bytes[skip..];
                assert!(pile.ends_in(pointer, skip, rest).unwrap(), "{length}, {skip}");
                assert!(!pile.ends_in(pointer, skip + 1, rest).unwrap());
                if let [first @ .., last] = rest {
                    assert!(!pile.ends_in(pointer, skip, first).unwrap());
                    let mut other = rest.to_vec();
                    other[first.len()] = !last;
                    assert!(!pile.ends_in(pointer, skip, &other).unwrap());
                }
            }
            assert!(!pile.ends_in(pointer, length + 1, &[]).unwrap());
            assert!(pile.begins_with(pointer, &bytes[..length / 2]).unwrap());
        }
    }

    /// A caller that makes another payload of one must not store it over what came between.
    #[test]
    fn a_payload_is_replaced_if_it_is_still_what_was_read() {
        let path = std::env::temp_dir().join(format!("gabion-unchanged-{}.pile", std::process::id()));
        for pile in [Pile::new().unwrap(), Pile::open(&path, &OpenOptions::default()).unwrap()] {
            let _ = std::fs::remove_file(&path);
            let lengths = [0, 5, 8, 300, 1016, 1017, 5000, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20];
            for (length, next) in lengths.into_iter().flat_map(|length| lengths.map(|next| (length, next))) {
                let (pointer, mut buf) = (pile.put(&vec![5; length]).unwrap(), ReadBuf::new());
                let (one, two) = (vec![6; next], vec![7; next]);
                pile.read(pointer, &mut buf).unwrap();
                assert!(pile.replace_unchanged(pointer, &buf, &[&one[..next / 2], &one[next / 2..]]).unwrap());
                assert_eq!(pile.replace_unchanged(pointer, &buf, &two).unwrap(), length == 0 && next == 0);
                pile.read(pointer, &mut buf).unwrap();
                assert_eq!(buf.payload(), if length == 0 && next == 0 { &two } else { &one });
                pile.remove(pointer).unwrap();
                assert!(pile.replace_unchanged(pointer, &buf, &two).is_err());
                let other = pile.put(buf.payload()).unwrap();
                assert!(pile.replace_unchanged(pointer, &buf, &two).is_err(), "another has its place");
                pile.remove(other).unwrap();
            }
            pile.validate().unwrap();
        }
    }

    /// A lock keeps only those away who ask for it: what copies over a file does not.
    #[test]
    fn a_file_that_another_program_changes_while_it_is_open_is_an_error() {
        let path = std::env::temp_dir().join(format!("gabion-changed-{}.pile", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let pile = Pile::open(&path, &OpenOptions::default()).unwrap();
        // Behind what opening writes to, whose pages are a process's own.
        for length in [100, 1100] {
            (0..1000).for_each(|_| _ = pile.put(&vec![7; length]).unwrap());
        }
        // In a slot, in a chunk, in a run.
        let pointers = [100, 5000, (1 << 20) + 5].map(|length| pile.put(&vec![7; length]).unwrap());
        drop(pile);
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        for (which, pointer) in pointers.into_iter().enumerate() {
            let (place, generation) = (pointer.place(), pointer.generation().unwrap());
            let elsewhere = Loc::new((place.number() + 7) % (1 << 20), 500);
            let wrong = [
                Word::busy(generation),
                Word::large(generation, 77),
                Word::away(generation, elsewhere, false),
                Word::away(generation, Loc::new(place.number(), WORDS_PER_BLOCK - 1), false),
                Word::inline(generation, 1016, false, 0),
            ];
            for (change, word) in wrong.into_iter().enumerate() {
                let options = OpenOptions { create: false, read_only: true, ..OpenOptions::default() };
                let (pile, mut buf) = (Arc::new(Pile::open(&path, &options).unwrap()), ReadBuf::new());
                let at = pile.blocks.file().unwrap().offset_of(place.number()) + 8 * place.word() as u64;
                let mut before = [0; 8];
                file.read_exact_at(&mut before, at).unwrap();
                file.write_all_at(&word.0.to_le_bytes(), at).unwrap();
                let damaged = |error: PileError| assert_eq!(error, PileError::Damaged { pointer }, "{which} {change}");
                damaged(pile.read(pointer, &mut buf).unwrap_err());
                damaged(pile.read_or_find(pointer, &mut buf).unwrap_err());
                damaged(pile.view(pointer).unwrap_err());
                damaged(pile.size_of(pointer).unwrap_err());
                damaged(pile.begins_with(pointer, b"7").unwrap_err());
                damaged(pile.remove(pointer).unwrap_err());
                file.write_all_at(&before, at).unwrap();
                assert!(pile.read(pointer, &mut buf).unwrap().iter().all(|&byte| byte == 7));
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
