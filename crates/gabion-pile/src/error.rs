//! What a pile refuses, and what it says then.

use std::fmt;

use gabion_blocks::file::FileError;
use gabion_blocks::{BlockError, try_box};
use gabion_heap::HeapError;

use crate::pointer::Pointer;

/// Why a number is not a live pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointerFault {
    /// No pile ever gives out such a number.
    Malformed,
    /// It leads to no block of this pile: another pile's pointer, or one from before the memory was given back.
    Elsewhere,
    /// It leads between slots.
    Misaligned,
    /// Its object was removed, or the pointer was put in another process: a fork of this one, or the one that this is a
    /// fork of.
    Stale,
}

/// What a pile refuses, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PileError {
    /// The pointer is not live.
    Pointer {
        /// What was given.
        pointer: Pointer,
        /// What is wrong with it.
        fault: PointerFault,
    },
    /// No memory for the object, or for a copy of it: over the pile's limit, or refused by the system. The pile is
    /// unchanged.
    Memory {
        /// Bytes of the payload that should have been stored or read.
        payload: u64,
        /// What refused.
        cause: BlockError,
    },
    /// What stands in the pile's file for the object makes no sense: some other program has changed the file since it
    /// was opened, which a lock keeps only those from that ask for it.
    Damaged {
        /// What was given.
        pointer: Pointer,
    },
    /// There is no memory, or no number, for a pile, or no room for a record of its file's log: what
    /// [`Pile::new`](crate::Pile::new) and [`Pile::append`](crate::Pile::append) say, for functions that return what
    /// the other calls do.
    Blocks(BlockError),
}

impl PileError {
    pub(crate) fn pointer(pointer: Pointer, fault: PointerFault) -> Self {
        Self::Pointer { pointer, fault }
    }

    pub(crate) fn memory(payload: usize, error: HeapError) -> Self {
        match error {
            HeapError::Blocks(cause) => Self::Memory { payload: payload as u64, cause },
            // What is taken for an object is freed again only under the same lock.
            other => unreachable!("a broken heap: {other}"),
        }
    }
}

/// From here on an `f64` has room for even numbers only.
const ROUNDED: u64 = 1 << f64::MANTISSA_DIGITS;

impl fmt::Display for PileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pointer { pointer, fault } => {
                let number = pointer.to_bits();
                match fault {
                    PointerFault::Malformed if number >= ROUNDED && number.is_multiple_of(2) => write!(
                        f,
                        "{number} is not a pointer, but may have been one before it was rounded, as floats of 64 bits \
                         are: keep pointers as ints of 64 bits"
                    ),
                    PointerFault::Malformed => write!(
                        f,
                        "{number} is not a pointer: no pile gives out such a number; pass what put() returned"
                    ),
                    PointerFault::Elsewhere => write!(
                        f,
                        "pointer {number} does not belong to this pile: it comes from another pile, or its object was \
                         removed and the memory given back"
                    ),
                    PointerFault::Misaligned => write!(
                        f,
                        "pointer {number} leads to no object's start: it was altered, or its object was removed and \
                         the memory used anew"
                    ),
                    PointerFault::Stale => {
                        write!(
                            f,
                            "pointer {number} is stale: its object was removed, or it was put in another process; drop it"
                        )
                    }
                }
            }
            Self::Damaged { pointer } => {
                let number = pointer.to_bits();
                write!(
                    f,
                    "what the file holds for pointer {number} makes no sense: another program changed it while it was \
                     open; open it again, or get it anew"
                )
            }
            Self::Memory { payload, cause } => write!(f, "no room for an object of {payload} bytes: {cause}"),
            Self::Blocks(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text tells the cause already: what comes next is the cause's own.
        match self {
            Self::Memory { cause, .. } | Self::Blocks(cause) => cause.source(),
            Self::Pointer { .. } | Self::Damaged { .. } => None,
        }
    }
}

/// So that `?` takes what a new pile is refused by.
impl From<BlockError> for PileError {
    fn from(error: BlockError) -> Self {
        Self::Blocks(error)
    }
}

/// So that `?` takes what an object is refused by where a file is written or opened, too: [`FileError::Refused`], which
/// holds the [`PileError`], or [`FileError::Blocks`] where a pile was refused.
impl From<PileError> for FileError {
    fn from(error: PileError) -> Self {
        match error {
            PileError::Blocks(cause) => Self::Blocks(cause),
            // A box that cannot be had must not end the process.
            other => try_box(other).map_or_else(Self::Blocks, |other| Self::Refused(other)),
        }
    }
}
