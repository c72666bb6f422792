//! A file looked through when it is opened: mended where a killed process had begun something, and refused where it
//! makes no sense.

use std::path::Path;
use std::sync::Arc;

use super::error::FileError;
use super::layout::{HEAD_BYTES, RUN_LENGTH, Use, blocks_for, offset_of, read, room_for, table_stretches, table_word};
use super::log_block::LogBlock;
use super::mapped::{BlockFile, FileOptions};
use super::opening::is_zero;
use super::space::Base;
use crate::{BLOCK_BYTES, LARGEST_SYSTEM_PAGE};

/// Bytes of a heap's block that read as zero until something is put there: what says so is in them.
const HEAP_BEGINS: u64 = 4096;

/// A part of the file that is used, or is not.
#[derive(Clone, Copy, Default)]
struct Extent {
    used: bool,
    from: u64,
    to: u64,
}

impl BlockFile {
    /// As [`BlockFile::open`], but a forked child shares it.
    pub(super) fn open_shared(path: &Path, options: &FileOptions) -> Result<Arc<Self>, FileError> {
        let opened = Self::map(path, options)?;
        if opened.is_shared() {
            opened.keep_table()?;
        }
        opened.look_through()?;
        opened.ends_here()?;
        if opened.is_shared() {
            opened.keep_used()?;
        }
        Ok(Arc::new(opened))
    }

    /// Looks at all that the table says, and lets go of what a killed process had begun to take.
    fn look_through(&self) -> Result<(), FileError> {
        let (mut state, mut rest) = (self.lock(), 0);
        for position in 0..state.end {
            let (base, mapped) = state.space.find(position).expect("a block of the file is mapped");
            match self.mend(position, (base, mapped), rest > 0)? {
                Use::Rest => rest -= 1,
                Use::Run { blocks } => rest = blocks - 1,
                Use::Log => {
                    let block = LogBlock { position, base };
                    if state.log.is_none_or(|last| last.sequence() < block.sequence()) {
                        state.log = Some(block);
                    }
                }
                Use::Nothing => state.free += 1,
                Use::Untouched | Use::Heap => {}
            }
        }
        if rest > 0 {
            return Err(FileError::damaged(offset_of(state.end), "a run is cut off"));
        }
        Ok(())
    }

    /// What a block is used for, after what a killed process had begun to take was let go. `mapped` is how many blocks
    /// follow one another in addresses from its first byte on; `in_run`: whether a run goes on here.
    fn mend(&self, position: u32, (base, mapped): (Base, u32), in_run: bool) -> Result<Use, FileError> {
        let damaged = |what: &str| FileError::damaged(table_word(position) as u64 * 8, what);
        let is_zero = |bytes: u64| is_zero(self.own()?, offset_of(position), offset_of(position) + bytes);
        let said = self.use_of(position).ok_or_else(|| damaged("the table says what no version says"))?;
        let found = match said {
            Use::Rest if in_run => Use::Rest,
            _ if in_run => return Err(damaged("a run is cut off")),
            Use::Rest => Use::Nothing,
            Use::Untouched => {
                // A killed process was about to lengthen the file, and no more. Not by the map, as in `ends_here`.
                if !is_zero(LARGEST_SYSTEM_PAGE as u64)? {
                    return Err(damaged("the table says that a block was never used, and something is there"));
                }
                Use::Nothing
            }
            Use::Run { blocks } => {
                let length = read(base.word(RUN_LENGTH)) as usize;
                if blocks == 0 || blocks > mapped || blocks_for(length) != Some(blocks) {
                    return Err(damaged("a run is longer than its blocks, or they are not there"));
                }
                said
            }
            Use::Log if !(LogBlock { position, base }).is_whole() => {
                return Err(FileError::damaged(offset_of(position), "a block of the log makes no sense"));
            }
            // No page has a use: a killed process had just taken it, or somebody says that it is used to have the disk
            // keep room for it.
            Use::Heap if self.is_shared() && is_zero(HEAP_BEGINS)? => Use::Nothing,
            Use::Nothing | Use::Heap | Use::Log => said,
        };
        if found != said {
            self.set_use(position, found);
        }
        Ok(found)
    }

    /// Refuses a file whose table speaks of more blocks than there are.
    fn ends_here(&self) -> Result<(), FileError> {
        let end = self.blocks();
        // Not by the map: where files are memory, to look at what is not there takes some.
        if !is_zero(self.own()?, table_word(end) as u64 * 8, HEAD_BYTES as u64)? {
            return Err(FileError::damaged(offset_of(end), "the file is shorter than its table says"));
        }
        Ok(())
    }

    /// Has the disk keep room for all of the table that speaks of blocks: what was saved, or copied without what is
    /// zero, has holes there, and is stored to as that which is grown block by block.
    fn keep_table(&self) -> Result<(), FileError> {
        for stretch in table_stretches(0, self.blocks()) {
            let kept = self.disk.allocate(self.own()?, stretch, LARGEST_SYSTEM_PAGE as u64, 0);
            kept.map_err(FileError::number("keep room on the disk"))?;
        }
        Ok(())
    }

    /// Sees to it, in a file that is written to, that the disk has room for what is used, and none for what is not: a
    /// copy of a file may have holes where nothing was written yet, and a killed process leaves what it was about to
    /// take. Extents that follow one another are done in one step. Where the disk has not enough, nothing is kept: a
    /// part of it would be nobody's gain, and the disk full.
    fn keep_used(&self) -> Result<(), FileError> {
        let state = self.lock();
        let extents = || {
            let whole = (0..state.end).filter(|&position| self.use_of(position) != Some(Use::Rest));
            whole.map(|position| {
                let (found, base) = (self.use_of(position), state.space.find(position).map(|(base, _)| base));
                let room = match (found, base) {
                    (Some(Use::Run { .. }), Some(base)) => room_for(read(base.word(RUN_LENGTH)) as usize),
                    _ => BLOCK_BYTES as u64,
                };
                let from = offset_of(position);
                Extent { used: found != Some(Use::Nothing), from, to: from + room }
            })
        };
        let used = extents().filter(|extent| extent.used).map(|extent| extent.to - extent.from).sum();
        if !self.disk.has_room(self.own()?, used) {
            return Err(FileError::number("keep room on the disk")(libc::ENOSPC));
        }
        let mut last = Extent::default();
        for extent in extents() {
            last = self.keep_extent(last, extent)?;
        }
        self.keep_extent(last, Extent::default()).map(drop)
    }

    fn keep_extent(&self, extent: Extent, next: Extent) -> Result<Extent, FileError> {
        if extent.used == next.used && extent.to == next.from {
            return Ok(Extent { to: next.to, ..extent });
        }
        if extent.to > extent.from {
            if extent.used {
                let kept = self.disk.allocate(self.own()?, extent.from, extent.to - extent.from, 0);
                kept.map_err(FileError::number("keep room on the disk"))?;
            } else {
                self.disk.punch(self.own()?, extent.from, extent.to - extent.from);
            }
        }
        Ok(next)
    }
}
