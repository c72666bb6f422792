use std::fmt;

use gabion_blocks::BlockError;

/// Why the heap did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapError {
    /// No memory: over the budget, or refused by the system.
    Blocks(BlockError),
    /// What should be freed is not taken.
    NotTaken,
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
