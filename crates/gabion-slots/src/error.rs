//! What can go wrong. Errors are values; nothing here panics or throws.

use std::fmt;

use gabion_blocks::BlockError;

use crate::affinity::Affinity;

/// Why a request was not served. Nothing was changed then. Sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotsError {
    /// The system, or the address space of the process, has no more memory, or the machine never has so much.
    NoMemory(BlockError),
    /// The affinity's budget leaves no room.
    Budget {
        /// Whose budget.
        affinity: Affinity,
        /// What should have been taken.
        asked: u64,
        /// What the affinity has taken.
        used: u64,
        /// What it may take.
        limit: u64,
    },
    /// An alignment that cannot be had: more than 4 MiB, or, for an affinity, no power of two up to 64.
    Alignment {
        /// What was asked for.
        asked: usize,
    },
    /// No affinity was made with this index.
    UnknownAffinity {
        /// The index.
        index: u8,
    },
    /// All affinities are taken, or the name is empty.
    Name {
        /// What is wrong.
        what: &'static str,
    },
    /// What should be moved cannot be freed.
    Free(FreeError),
}

impl From<FreeError> for SlotsError {
    fn from(error: FreeError) -> Self {
        Self::Free(error)
    }
}

impl fmt::Display for SlotsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory(error) => error.fmt(f),
            Self::Budget { affinity, asked, used, limit } => write!(
                f,
                "affinity {}: {asked} bytes more were needed, {used} of {limit} are taken: free objects, or raise max_blocks",
                affinity.index()
            ),
            Self::Alignment { asked } => write!(
                f,
                "an alignment of {asked} bytes was asked for: it must be a power of two, up to 4 MiB for a request and up \
                 to 64 for an affinity"
            ),
            Self::UnknownAffinity { index } => {
                write!(f, "there is no affinity {index}: make it with Slots::affinity first")
            }
            Self::Name { what } => f.write_str(what),
            Self::Free(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SlotsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text is the cause's: what comes next is the cause's own.
            Self::NoMemory(cause) => cause.source(),
            Self::Free(cause) => cause.source(),
            Self::Budget { .. } | Self::Alignment { .. } | Self::UnknownAffinity { .. } | Self::Name { .. } => None,
        }
    }
}

/// Why something was not freed. It is as it was, and so is everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// It is free already.
    DoubleFree,
    /// The address is inside the memory of these slots, but nothing that was handed out begins there.
    NotASlot,
    /// It belongs to another affinity than was said. Checked builds only.
    WrongAffinity,
    /// It is of another size than was said. Checked builds only, but where the size leads to another kind of memory.
    WrongSize,
    /// The address is not in the memory of these slots.
    Foreign,
    /// This thread has used these slots never before, and there is no memory for what it needs to leave a message. The
    /// object stays allocated.
    NoMemory,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoubleFree => "freed twice: the place is free already; look for a second owner",
            Self::NotASlot => "nothing that was handed out begins at this address: free what alloc returned",
            Self::WrongAffinity => "freed under another affinity than it was allocated with: name the same one",
            Self::WrongSize => "freed with another size or alignment than it was allocated with: give the same layout",
            Self::Foreign => "the address is not of these slots: free it where it was allocated",
            Self::NoMemory => "this thread's first free found no memory for its books: free memory and try again",
        })
    }
}

impl std::error::Error for FreeError {}
