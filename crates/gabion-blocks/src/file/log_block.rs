//! A block of the log, and where it ends.

use std::sync::atomic::AtomicU64;

use super::layout::{LOG_END, LOG_HEAD, LOG_SEQUENCE, read};
use super::space::Base;
use crate::BLOCK_BYTES;

/// A block of the log.
#[derive(Clone, Copy)]
pub(super) struct LogBlock {
    pub position: u32,
    pub base: Base,
}

impl LogBlock {
    pub fn word(&self, index: usize) -> &AtomicU64 {
        self.base.word(index)
    }

    pub fn sequence(&self) -> u64 {
        read(self.word(LOG_SEQUENCE))
    }

    /// Whether its head is one that was written.
    pub fn is_whole(&self) -> bool {
        let (sequence, end) = (self.sequence(), read(self.word(LOG_END)));
        (1..1 << 32).contains(&sequence)
            && (LOG_HEAD as u64..=BLOCK_BYTES as u64).contains(&end)
            && end.is_multiple_of(8)
    }

    pub fn end(&self) -> usize {
        (read(self.word(LOG_END)) as usize).max(LOG_HEAD)
    }
}
