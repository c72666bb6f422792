//! Putting, replacing and removing, each under one shard's lock.

use std::sync::Arc;

use gabion_blocks::{PAGE_BYTES, Piece, total_len};
use gabion_heap::{Freed, HeapError, Unlisted, shard_of};

use crate::change::{CHUNK_PAYLOAD, Payload, SLOT_PAYLOAD};
use crate::error::PileError;
use crate::large::ChargedRun;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::shard::{Inner, Locked};
use crate::slot::Slot;
use crate::value::Value;
use crate::word::Word;

/// The longest payload that a cleared page is sure to have room for: all of the page but what stands at its ends.
const CLEARED_FOR: usize = PAGE_BYTES - 1024;

impl Pile {
    /// Stores a copy of `payload` and returns its pointer.
    ///
    /// Constant time, and a copy. What it costs: see [`Pile`].
    ///
    /// # Errors
    /// [`PileError::Memory`] when the limit or the system leaves no room; the pile is unchanged.
    #[inline]
    pub fn put(&self, payload: &[u8]) -> Result<Pointer, PileError> {
        self.put_with_reserve(payload, 0)
    }

    /// As [`Pile::put`], with `reserve` more bytes kept free behind the payload, so that [`Pile::replace`] can grow it
    /// by so much in place even when the pile is full. Room is reserved up to 1 MiB in all: longer payloads are
    /// replaced whole.
    ///
    /// ```
    /// # let pile = gabion_pile::Pile::new()?;
    /// let log = pile.put_with_reserve(b"first line", 1000)?;
    /// pile.replace(log, b"first line\nsecond line")?; // where it lies
    /// # Ok::<(), gabion_pile::PileError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn put_with_reserve(&self, payload: &[u8], reserve: usize) -> Result<Pointer, PileError> {
        if reserve == 0
            && let Some(pointer) = self.put_inline(payload)
        {
            return Ok(pointer);
        }
        self.put_anywhere(payload, reserve)
    }

    /// The common case of [`Pile::put`] and nothing else: the own shard's lock is biased to this thread, and it has a
    /// slot at hand. Otherwise nothing is changed.
    #[inline(always)]
    fn put_inline(&self, payload: &[u8]) -> Option<Pointer> {
        self.shards()[self.own_shard()].try_lock_biased()?.put_inline(self.ground(), payload)
    }

    #[cold]
    fn put_anywhere(&self, payload: &[u8], reserve: usize) -> Result<Pointer, PileError> {
        self.with_payload(Value::Whole(payload), |payload| self.put_payload(payload, reserve))
    }

    /// Calls `act` with a payload as it is stored: what goes into a slot in one piece, what goes into a chunk as it
    /// lies, and what is longer in a run, which is mapped and filled before any lock is taken.
    #[inline]
    pub(crate) fn with_payload<R>(
        &self,
        value: Value<'_>,
        act: impl FnOnce(Payload<'_>) -> Result<R, PileError>,
    ) -> Result<R, PileError> {
        let whole;
        let pieces = match value {
            Value::Whole(payload) if payload.len() <= CHUNK_PAYLOAD => return act(Payload::whole(payload, None)),
            Value::Whole(payload) => {
                whole = [Piece::from(payload)];
                &whole
            }
            Value::Pieces(pieces) => pieces,
        };
        match total_len(pieces) {
            ..=SLOT_PAYLOAD => act(Payload::whole(&Piece::concat(pieces), None)),
            length @ ..=CHUNK_PAYLOAD => act(Payload::in_pieces(pieces, length)),
            _ => {
                let run = self.new_run(pieces)?;
                let done = act(Payload::whole(run.bytes(), Some(&run)));
                self.part_with(run);
                done
            }
        }
    }

    /// As [`Pile::put`], for an owner that can make room itself: when there is none, the pages that are kept for the
    /// next objects of other sizes stay so.
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn try_put(&self, payload: &[u8]) -> Result<Pointer, PileError> {
        if let Some(pointer) = self.put_inline(payload) { Ok(pointer) } else { self.try_put_anywhere(payload) }
    }

    #[cold]
    fn try_put_anywhere(&self, payload: &[u8]) -> Result<Pointer, PileError> {
        self.with_payload(Value::Whole(payload), |payload| self.try_put_payload(payload))
    }

    fn try_put_payload(&self, payload: Payload<'_>) -> Result<Pointer, PileError> {
        if payload.length > CHUNK_PAYLOAD {
            // Its run was made with all that could make room for it: so is its slot.
            return self.put_payload(payload, 0);
        }
        let (own, ground, length) = (self.own_shard(), self.ground(), payload.length);
        let put = |shard: usize| self.shards()[shard].lock().put(ground, payload, length);
        put(own).or_else(|error| {
            let others = (0..self.shards().len()).filter(|&shard| shard != own);
            others.map(put).find_map(Result::ok).ok_or_else(|| PileError::memory(length, error))
        })
    }

    /// As [`Pile::try_put`], of a payload as that of [`Pile::put_pieces`].
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn try_put_pieces(&self, value: Value<'_>) -> Result<Pointer, PileError> {
        match value {
            Value::Whole(payload) => self.try_put(payload),
            Value::Pieces(_) => self.try_put_several(value),
        }
    }

    #[cold]
    fn try_put_several(&self, value: Value<'_>) -> Result<Pointer, PileError> {
        self.with_payload(value, |payload| self.try_put_payload(payload))
    }

    /// As [`Pile::put`], of a payload that may lie in several pieces, one behind the other. One such that is longer
    /// than [`SLOT_PAYLOAD`] is copied once, straight to where it stays.
    ///
    /// ```
    /// # let pile = gabion_pile::Pile::new()?;
    /// let (mut buf, large) = (gabion_pile::ReadBuf::new(), vec![7; 3 << 20]);
    /// let pointer = pile.put_pieces(&[&b"in "[..], b"", b"pieces"], 0)?;
    /// assert_eq!(pile.read(pointer, &mut buf)?, b"in pieces");
    /// pile.replace_pieces(pointer, &[&b"head"[..], &large, b"tail"])?;
    /// assert_eq!(pile.read(pointer, &mut buf)?, [&b"head"[..], &large, b"tail"].concat());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pile::put`].
    #[inline]
    pub fn put_pieces<'a>(&self, value: impl Into<Value<'a>>, reserve: usize) -> Result<Pointer, PileError> {
        match value.into() {
            Value::Whole(payload) => self.put_with_reserve(payload, reserve),
            value @ Value::Pieces(_) => self.with_payload(value, |payload| self.put_payload(payload, reserve)),
        }
    }

    fn put_payload(&self, payload: Payload<'_>, reserve: usize) -> Result<Pointer, PileError> {
        // A run has no room beside its payload.
        let capacity = payload.length.saturating_add(reserve).min(payload.length.max(CHUNK_PAYLOAD));
        self.put_unmoved(payload, capacity).or_else(|full| {
            let cleared = capacity <= CLEARED_FOR && self.clear_page();
            if cleared { self.put_unmoved(payload, capacity) } else { Err(full) }
        })
    }

    /// Puts a payload where there is room, without moving others.
    #[inline]
    pub(crate) fn put_unmoved(&self, payload: Payload<'_>, capacity: usize) -> Result<Pointer, PileError> {
        let own = self.own_shard();
        // The lock is let go before another shard is tried: two full shards must not wait for each other.
        let put = self.shards()[own].lock().put(self.ground(), payload, capacity);
        match put {
            Ok(pointer) => Ok(pointer),
            Err(error) => self.put_elsewhere(own, payload, capacity, error),
        }
    }

    /// The own shard is full: another may have room left in its pages, or keep empty pages warm.
    #[cold]
    fn put_elsewhere(
        &self,
        own: usize,
        payload: Payload<'_>,
        capacity: usize,
        error: HeapError,
    ) -> Result<Pointer, PileError> {
        let put = |shard: usize| self.shards()[shard].lock().put(self.ground(), payload, capacity).ok();
        let others = (0..self.shards().len()).filter(|&shard| shard != own);
        others
            .clone()
            .find_map(put)
            .or_else(|| {
                self.release_warm();
                put(own).or_else(|| others.clone().find_map(put))
            })
            .ok_or_else(|| PileError::memory(payload.length, error))
    }

    /// The run that a payload too long for a chunk is stored in.
    #[cold]
    fn new_run(&self, pieces: &[Piece<'_>]) -> Result<Arc<ChargedRun>, PileError> {
        let make = || ChargedRun::new(self.ground(), &self.budget, pieces);
        make()
            .or_else(|_| {
                self.release_warm();
                make()
            })
            .map_err(|error| PileError::memory(total_len(pieces), error.into()))
    }

    /// Gives up what every shard keeps at hand for the next objects: pages and blocks in which nothing is left. The
    /// limit has room for others then.
    pub fn release_warm(&self) {
        for shard in self.shards() {
            shard.lock().heap.release_warm(self.ground());
        }
    }

    /// Gives the object another payload of any size; the pointer stays valid. Readers see the old payload or the new.
    ///
    /// Constant time, and a copy. In place when it fits well, otherwise the payload moves to room of its size, and back
    /// when it fits again.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live, [`PileError::Memory`] when there is no room; the old
    /// payload stays then.
    pub fn replace(&self, pointer: Pointer, payload: &[u8]) -> Result<(), PileError> {
        self.with_payload(Value::Whole(payload), |payload| self.replace_payload(pointer, payload, |_| true).map(drop))
    }

    /// As [`Pile::replace`], by a payload as that of [`Pile::put_pieces`].
    ///
    /// # Errors
    /// As [`Pile::replace`].
    pub fn replace_pieces<'a>(&self, pointer: Pointer, value: impl Into<Value<'a>>) -> Result<(), PileError> {
        self.with_payload(value.into(), |payload| self.replace_payload(pointer, payload, |_| true).map(drop))
    }

    /// Replaces, if the object is `wanted` then.
    #[inline]
    pub(crate) fn replace_payload(
        &self,
        pointer: Pointer,
        payload: Payload<'_>,
        wanted: impl Fn((&Inner, &Slot<'_>, Word)) -> bool,
    ) -> Result<bool, PileError> {
        if let Ok(replaced) = self.try_replace(pointer, payload, &wanted)? {
            return Ok(replaced);
        }
        self.release_warm();
        let mut replaced = self.try_replace(pointer, payload, &wanted)?;
        if replaced.is_err() && payload.length <= CLEARED_FOR && self.clear_page() {
            replaced = self.try_replace(pointer, payload, &wanted)?;
        }
        replaced.map_err(|error| match error {
            // The file was changed just now.
            HeapError::NotTaken => PileError::Damaged { pointer },
            error => PileError::memory(payload.length, error),
        })
    }

    #[inline]
    fn try_replace(
        &self,
        pointer: Pointer,
        payload: Payload<'_>,
        wanted: impl Fn((&Inner, &Slot<'_>, Word)) -> bool,
    ) -> Result<Result<bool, HeapError>, PileError> {
        let (mut locked, slot, word) = self.lock_intact(pointer)?;
        if !wanted((&locked, &slot, word)) {
            return Ok(Ok(false));
        }
        let replaced = locked.replace(self.ground(), &slot, word, payload);
        drop(locked);
        Ok(replaced.map(|run| {
            if run.is_some() {
                self.part_with(run);
            }
            true
        }))
    }

    /// Removes the object. Its pointer is refused from now on.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when the pointer is not live; [`PileError::Damaged`] when its file makes no sense there,
    /// and the object stays.
    #[inline]
    pub fn remove(&self, pointer: Pointer) -> Result<(), PileError> {
        if self.remove_inline(pointer).is_some() { Ok(()) } else { self.remove_anywhere(pointer) }
    }

    /// The common case of [`Pile::remove`] and nothing else, so that it is short: what a removal waits for is its
    /// slot's cache line, and the processor sees as many removals ahead as fit into its window. Otherwise nothing is
    /// changed. The steps of [`Pile::lock_slot`] stand here once more, because a function for both returns all that it
    /// found in memory.
    #[inline(always)]
    fn remove_inline(&self, pointer: Pointer) -> Option<()> {
        let block = self.blocks.block(pointer.place().number())?;
        let shard = shard_of(block);
        let mut locked = self.shards().get(shard as usize)?.try_lock_biased()?;
        // Under the lock, so that it stays what it is.
        let slot = Slot::find_in(block, pointer).ok()?;
        // Its shard may have been read before it was written there. That the page has a use, which was seen since, says
        // that it is.
        if shard_of(block) != shard {
            return None;
        }
        if let Freed::Unlisted(page) = locked.remove_inline(self.ground(), &slot, pointer)? {
            self.relist_page(locked, page);
        }
        Some(())
    }

    /// The rest of a removal, under the lock that it was made under.
    #[cold]
    fn relist_page(&self, mut locked: Locked<'_>, page: Unlisted) {
        locked.heap.relist_page(self.ground(), page);
    }

    #[cold]
    fn remove_anywhere(&self, pointer: Pointer) -> Result<(), PileError> {
        let (mut locked, slot, word) = self.lock_intact(pointer)?;
        let run = locked.remove(self.ground(), &slot, word);
        drop(locked);
        run.map(|run| self.part_with(run)).map_err(|_| PileError::Damaged { pointer })
    }
}
