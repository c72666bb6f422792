//! Records that are appended and never changed.

use super::error::FileError;
use super::layout::{LOG_END, LOG_HEAD, LOG_SEQUENCE, Use, commit, offset_of, read, sum_of_bytes};
use super::log_block::LogBlock;
use super::mapped::{BlockFile, REFUSED, State};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::fallible::make_room;

/// The longest record.
pub(super) const LONGEST_RECORD: usize = BLOCK_BYTES - LOG_HEAD - 8;

impl BlockFile {
    /// Appends a record. Each process that opens the file from now on finds it, as long as the system does not go down
    /// before it is flushed.
    ///
    /// # Errors
    /// [`BlockError::TooLarge`] when it is longer than nearly 4 MiB; those of a file that cannot grow. Nothing is
    /// changed.
    pub fn append(&self, record: &[u8]) -> Result<(), BlockError> {
        if record.len() > LONGEST_RECORD {
            return Err(BlockError::TooLarge { asked: record.len() as u64, limit: LONGEST_RECORD as u64 });
        }
        let mut state = self.lock();
        if !self.is_shared() {
            return Err(REFUSED);
        }
        let whole = 8 + record.len().next_multiple_of(8);
        // Once: another program may write to the file meanwhile.
        let last = state.log.map(|last| (last, last.end())).filter(|(_, end)| end + whole <= BLOCK_BYTES);
        let (block, end) = match last {
            Some(last) => last,
            None => (self.add_log_block(&mut state)?, LOG_HEAD),
        };
        let head = record.len() as u64 | sum_of_bytes(record) << 32;
        // What is written is nobody's until the end says so.
        commit(block.word(end / 8), head);
        for (index, chunk) in record.chunks(8).enumerate() {
            let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            commit(block.word(end / 8 + 1 + index), word);
        }
        commit(block.word(LOG_END), (end + whole) as u64);
        Ok(())
    }

    fn add_log_block(&self, state: &mut State) -> Result<LogBlock, BlockError> {
        let sequence = state.log.map_or(0, |last| last.sequence()).wrapping_add(1);
        let (position, base, _) = self.take_block(state)?;
        let block = LogBlock { position, base };
        commit(block.word(LOG_END), LOG_HEAD as u64);
        commit(block.word(LOG_SEQUENCE), sequence);
        self.set_use(position, Use::Log);
        state.log = Some(block);
        Ok(block)
    }

    /// All records, in the order in which they were appended, one behind the other.
    ///
    /// # Errors
    /// [`FileError::Damaged`]; [`FileError::Blocks`] when there is no memory for them.
    pub fn log(&self) -> Result<Vec<u8>, FileError> {
        let state = self.lock();
        let mut blocks = Vec::new();
        for position in (0..state.end).filter(|&position| self.use_of(position) == Some(Use::Log)) {
            make_room(&mut blocks, 1)?;
            let (base, _) = state.space.find(position).expect("a block of this file is mapped");
            blocks.push(LogBlock { position, base });
        }
        blocks.sort_by_key(LogBlock::sequence);
        let mut all = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            if block.sequence() != index as u64 + 1 {
                return Err(FileError::damaged(
                    offset_of(block.position),
                    "a block of the log is missing before this one",
                ));
            }
            read_records(block, &mut all)?;
        }
        Ok(all)
    }
}

fn read_records(block: &LogBlock, all: &mut Vec<u8>) -> Result<(), FileError> {
    let (mut at, end) = (LOG_HEAD, block.end());
    let damaged = |at: usize, what: &str| FileError::damaged(offset_of(block.position) + at as u64, what);
    while at < end {
        let head = read(block.word(at / 8));
        let length = head as u32 as usize;
        if length > end - at - 8 {
            return Err(damaged(at, "a record of the log is longer than the log"));
        }
        make_room(all, length.next_multiple_of(8))?;
        let first = all.len();
        for index in 0..length.div_ceil(8) {
            all.extend_from_slice(&read(block.word(at / 8 + 1 + index)).to_le_bytes());
        }
        all.truncate(first + length);
        if sum_of_bytes(&all[first..]) as u32 != (head >> 32) as u32 {
            return Err(damaged(at, "a record of the log does not add up"));
        }
        at += 8 + length.next_multiple_of(8);
    }
    Ok(())
}
