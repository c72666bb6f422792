//! Runs: blocks of the file that follow one another, for one thing that is too long for a chunk.

use std::ptr::NonNull;

use super::layout::{RUN_HEAD, RUN_LENGTH, RUN_OWNER, Use, blocks_for, commit, offset_of, read, room_for};
use super::mapped::{BlockFile, REFUSED, State};
use super::space::Base;
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::sync::Ordering;

/// Room for a run: where it is in the file, its first byte, and how much it is. That is not asked of the file again, to
/// which another program may write.
#[derive(Debug, Clone, Copy)]
pub struct RunRoom {
    position: u32,
    base: Base,
    blocks: u32,
    len: usize,
}

impl RunRoom {
    /// The first byte of the run.
    pub(crate) fn bytes(self) -> NonNull<u8> {
        self.base.byte(RUN_HEAD)
    }

    /// Bytes of the run.
    pub(crate) fn len(self) -> usize {
        self.len
    }
}

impl BlockFile {
    /// The runs: where they are, and whose they say they are. One that has not the room that it had when the file was
    /// opened is left out.
    ///
    /// # Errors
    /// [`BlockError::Refused`] when there is no memory for the list.
    pub fn runs(&self) -> Result<Vec<(RunRoom, u64)>, BlockError> {
        self.each(|position, (base, mapped), found| {
            let Use::Run { blocks } = found else { return None };
            let len = read(base.word(RUN_LENGTH)) as usize;
            let is_whole = blocks <= mapped && blocks_for(len) == Some(blocks);
            is_whole.then(|| (RunRoom { position, base, blocks, len }, read(base.word(RUN_OWNER))))
        })
    }

    /// Takes room for a run of `len` bytes, which nobody has until [`BlockFile::own_run`] says who.
    pub(crate) fn take_run(&self, len: usize) -> Result<RunRoom, BlockError> {
        let blocks = blocks_for(len).ok_or(BlockError::Exhausted { what: "blocks of a file" })?;
        let mut state = self.lock();
        if !self.is_shared() {
            return Err(REFUSED);
        }
        let position = if let Some(position) = self.free_row(&state, blocks) {
            self.keep_free_room(position, room_for(len))?;
            position
        } else {
            let position = state.end;
            self.grow(&mut state, blocks, room_for(len))?;
            position
        };
        let (base, _) = state.space.find(position).expect("a block of the file is mapped");
        commit(base.word(RUN_OWNER), 0);
        commit(base.word(RUN_LENGTH), len as u64);
        (1..blocks).for_each(|at| self.set_use(position + at, Use::Rest));
        // Last: without it the others are nobody's.
        self.set_use(position, Use::Run { blocks });
        state.free -= blocks;
        Ok(RunRoom { position, base, blocks, len })
    }

    /// The first of so many free blocks that follow one another in the file and in addresses.
    fn free_row(&self, state: &State, blocks: u32) -> Option<u32> {
        if state.free < blocks {
            return None;
        }
        let mut row = 0;
        for position in state.first_free..state.end {
            row = if self.use_of(position) == Some(Use::Nothing) { row + 1 } else { 0 };
            if row >= blocks {
                let first = position + 1 - blocks;
                if state.space.find(first).is_some_and(|(_, mapped)| mapped >= blocks) {
                    return Some(first);
                }
            }
        }
        None
    }

    /// Counts a run that somebody has from now on.
    pub(crate) fn count_in(&self) {
        self.runs.fetch_add(1, Ordering::SeqCst); // SeqCst: see `Pile::let_go`.
    }

    /// Counts a run that nobody has any more.
    pub(crate) fn count_out(&self) {
        self.runs.fetch_sub(1, Ordering::SeqCst); // SeqCst: as above.
    }

    /// Says whose a run is: `owner` is not 0, or it is nobody's, and the next opening of the file lets it go.
    pub(crate) fn own_run(&self, room: RunRoom, owner: u64) {
        if self.is_shared() {
            commit(room.base.word(RUN_OWNER), owner);
        }
    }

    /// Gives the room of a run back. Nobody looks at it any more.
    pub(crate) fn free_run(&self, room: RunRoom) {
        let mut state = self.lock();
        if !self.is_shared() {
            return;
        }
        // The first one first: without it the others are nobody's.
        (0..room.blocks).for_each(|at| self.set_use(room.position + at, Use::Nothing));
        state.free += room.blocks;
        state.first_free = state.first_free.min(room.position);
        // Where the descriptor is no longer its own, the disk keeps the room for the next opening to give back.
        if let Ok(file) = self.own() {
            self.disk.punch(file, offset_of(room.position), u64::from(room.blocks) * BLOCK_BYTES as u64);
        }
    }
}
