//! A block of the log, and where it ends.

use std::sync::atomic::AtomicU64;

use super::layout::{LOG_END, LOG_HEAD, LOG_SEQUENCE, read};
use super::space::Base;

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

    pub fn end(&self) -> usize {
        (read(self.word(LOG_END)) as usize).max(LOG_HEAD)
    }
}
