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
        (1..1 << 32).contains(&self.sequence()) && self.known_end().is_some()
    }

    /// Where its records end. Where another program has written something else there, it is full: nothing goes to it,
    /// and who reads it finds that it does not add up.
    pub fn end(&self) -> usize {
        self.known_end().unwrap_or(BLOCK_BYTES)
    }

    fn known_end(&self) -> Option<usize> {
        let end = read(self.word(LOG_END));
        let can_be = (LOG_HEAD as u64..=BLOCK_BYTES as u64).contains(&end) && end.is_multiple_of(8);
        can_be.then_some(end as usize)
    }
}
