//! Which part of the file lies at which address.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::offset_of;
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::fallible::make_room;
use crate::os::Disk;

/// Blocks that a stretch has room for at least.
const LEAST_BLOCKS: u32 = 64;

/// A reserved range of addresses, given back when dropped.
pub(super) struct Range {
    base: NonNull<u8>,
    bytes: usize,
    disk: &'static dyn Disk,
}

// SAFETY: a range of addresses that belongs to nobody else; what lies there is accessed by atomic operations only.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Range {
    pub fn reserve(disk: &'static dyn Disk, bytes: usize) -> Result<Self, i32> {
        Ok(Self { base: disk.reserve(bytes)?, bytes, disk })
    }

    pub fn part(&self, at: usize, bytes: usize) -> NonNull<u8> {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "bytes beyond a range");
        // SAFETY: inside the range, as was just checked.
        unsafe { self.base.add(at) }
    }

    /// Has a part of it show a part of the file.
    pub fn map(&self, at: usize, bytes: usize, file: &File, from: u64, shared: bool) -> Result<(), i32> {
        let part = self.part(at, bytes);
        // SAFETY: inside the range, which is accessed by atomic operations only.
        unsafe { self.disk.map(part, bytes, file, from, shared) }
    }

    /// Has the first `bytes` bytes read as zero.
    pub fn blank(&self, bytes: usize) -> Result<(), i32> {
        let part = self.part(0, bytes);
        // SAFETY: as above.
        unsafe { self.disk.blank(part, bytes) }
    }

    /// Waits until the first `bytes` bytes are on the disk. They are mapped.
    pub fn sync(&self, bytes: usize) -> Result<(), i32> {
        let part = self.part(0, bytes);
        // SAFETY: as above; the caller has mapped them.
        unsafe { self.disk.sync(part, bytes) }
    }

    /// A word of what is mapped from the range's beginning on.
    ///
    /// # Safety
    /// The word was mapped.
    pub unsafe fn word(&self, index: usize) -> &AtomicU64 {
        let at = self.part(index * 8, 8).cast();
        // SAFETY: mapped (duty of the caller) for as long as the range lives, aligned, and accessed by atomic
        // operations only.
        unsafe { at.as_ref() }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: a reserved range, and its owner is gone: nobody uses it any more.
        unsafe { self.disk.unmap(self.base, self.bytes) };
    }
}

/// A mapped block, by its first byte. It is there as long as its space is: what keeps one keeps the file, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base(NonNull<u8>);

// SAFETY: a mapped block of a file, whose words are accessed by atomic operations only.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    /// One of its words.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < BLOCK_BYTES / 8, "a word of a block");
        // SAFETY: inside the block, which is mapped (see the type), aligned, and accessed by atomic operations only.
        unsafe { self.0.cast().add(index).as_ref() }
    }

    /// Its address from a byte on, which is one of its own.
    pub fn byte(self, at: usize) -> NonNull<u8> {
        assert!(at < BLOCK_BYTES, "a byte of a block");
        // SAFETY: inside the block.
        unsafe { self.0.add(at) }
    }

    /// Zeros its first bytes. Nobody has the block.
    pub fn clear(self, bytes: usize) {
        for index in 0..bytes / 8 {
            self.word(index).store(0, Relaxed); // Relaxed: as above.
        }
    }
}

/// Blocks that lie one behind the other in the file and at addresses.
struct Stretch {
    range: Range,
    /// The position of the first.
    first: u32,
    /// How many there is room for.
    room: u32,
    /// How many are mapped.
    mapped: u32,
}

impl Stretch {
    fn bytes(&self) -> usize {
        self.mapped as usize * BLOCK_BYTES
    }

    fn end(&self) -> u32 {
        self.first + self.room
    }
}

/// All stretches, in the order of the file. Each begins where the one before ends.
#[derive(Default)]
pub(super) struct Space {
    stretches: Vec<Stretch>,
}

impl Space {
    /// The position behind the last block that is mapped.
    pub fn end(&self) -> u32 {
        self.stretches.last().map_or(0, |last| last.first + last.mapped)
    }

    /// Maps `blocks` blocks more, which follow one another in addresses.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`]; nothing is changed, but that later ones may begin a stretch.
    pub fn map(&mut self, disk: &'static dyn Disk, file: &File, blocks: u32, shared: bool) -> Result<(), BlockError> {
        let asked = u64::from(blocks) * BLOCK_BYTES as u64;
        let refused = |errno| BlockError::NoMemory { asked, in_use: 0, idle: 0, errno };
        if blocks == 0 {
            return Ok(());
        }
        let first = self.end();
        if self.stretches.last().is_none_or(|last| last.end() - first < blocks) {
            make_room(&mut self.stretches, 1)?;
            // A quarter more than there is: a file that grows and grows needs few of them.
            let room = blocks.max((first + blocks) / 4).max(LEAST_BLOCKS) + blocks * u32::from(first == 0);
            let range = Range::reserve(disk, room as usize * BLOCK_BYTES).map_err(refused)?;
            if let Some(last) = self.stretches.last_mut() {
                last.room = last.mapped;
            }
            self.stretches.push(Stretch { range, first, room, mapped: 0 });
        }
        let last = self.stretches.last_mut().expect("there is one now");
        let bytes = blocks as usize * BLOCK_BYTES;
        last.range.map(last.bytes(), bytes, file, offset_of(first), shared).map_err(refused)?;
        last.mapped += blocks;
        Ok(())
    }

    /// Where a mapped block lies, and how many mapped ones follow it in addresses, itself counted in.
    pub fn find(&self, position: u32) -> Option<(Base, u32)> {
        let after = self.stretches.partition_point(|stretch| stretch.first <= position);
        let stretch = &self.stretches[after.checked_sub(1)?];
        let at = position - stretch.first;
        let row = stretch.mapped.checked_sub(at).filter(|&row| row > 0)?;
        Some((Base(stretch.range.part(at as usize * BLOCK_BYTES, BLOCK_BYTES)), row))
    }

    /// Does the same with all that is mapped: a range, its mapped bytes, and where they lie in the file.
    pub fn each<E>(&self, mut act: impl FnMut(&Range, usize, u64) -> Result<(), E>) -> Result<(), E> {
        let mapped = self.stretches.iter().filter(|stretch| stretch.mapped > 0);
        mapped.into_iter().try_for_each(|stretch| act(&stretch.range, stretch.bytes(), offset_of(stretch.first)))
    }
}
