use std::fmt;

use gabion_blocks::BlockError;

use crate::loc::Loc;

/// Why the heap did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapError {
    /// No memory: over the budget, or refused by the system.
    Blocks(BlockError),
    /// What should be freed is not taken.
    NotTaken,
}

/// Why a block that was there before could not be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// What stands in a block makes no sense.
    Block {
        /// Where.
        at: Loc,
        /// What is wrong there.
        what: &'static str,
    },
    /// No memory for what has to be known of it.
    Memory(BlockError),
}

impl Damage {
    /// Something at a place that makes no sense.
    pub fn at(at: Loc, what: &'static str) -> Self {
        Self::Block { at, what }
    }
}

impl From<BlockError> for Damage {
    fn from(error: BlockError) -> Self {
        Self::Memory(error)
    }
}

impl From<BlockError> for HeapError {
    fn from(error: BlockError) -> Self {
        Self::Blocks(error)
    }
}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(error) => error.fmt(f),
            Self::NotTaken => f.write_str("freed twice, or never taken: the place is not in use"),
        }
    }
}

impl std::error::Error for HeapError {}
