//! Why a file cannot be opened or written.

use std::error::Error;
use std::fmt;
use std::io;

use crate::error::BlockError;

/// Why a file of blocks cannot be opened, read or flushed. The file is as it was.
///
/// `?` makes one of whatever else a pile refuses, so that a function that fills and saves a pile can return this alone.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    System {
        /// What was to be done.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Somebody else has it open: another process, or this one.
    InUse,
    /// It is something else, which is left alone.
    NotOurs,
    /// It was written in another format.
    Format {
        /// The number of the format.
        found: u32,
    },
    /// It does not make sense.
    Damaged {
        /// Where, in bytes from the file's beginning, if that can be said.
        at: Option<u64>,
        /// What is wrong there.
        what: String,
    },
    /// As [`BlockError::DescriptorLost`].
    DescriptorLost,
    /// What the blocks refused: no memory for what has to be known of the file, no number or no room on the disk for
    /// more of it, or a pile that was let go.
    Blocks(BlockError),
    /// Nothing is wrong with the file: what is kept in it, or was to be, refused a call. Of a pile it is the
    /// `PileError`, which `downcast_ref` gives back.
    Refused(Box<dyn Error + Send + Sync>),
}

impl FileError {
    pub(super) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { doing, error }
    }

    pub(super) fn number(doing: &'static str) -> impl FnOnce(i32) -> Self {
        move |errno| Self::System { doing, error: io::Error::from_raw_os_error(errno) }
    }

    /// Something in the file that makes no sense; `at` is `None` where it has no place of its own.
    pub fn damaged(at: impl Into<Option<u64>>, what: impl Into<String>) -> Self {
        Self::Damaged { at: at.into(), what: what.into() }
    }
}

impl From<BlockError> for FileError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::DescriptorLost => Self::DescriptorLost,
            error => Self::Blocks(error),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, error } => write!(f, "cannot {doing}: {error}"),
            Self::InUse => f.write_str(
                "the file is open already, in this process or in another: close it there, wait until views of it are gone, or \
                 open all of them for reading only",
            ),
            Self::NotOurs => {
                f.write_str("the file is no pile of gabion's, and is left as it is: give the path of one, or of a new file")
            }
            Self::Format { found } => {
                write!(f, "the file has format {found}, which this version of gabion does not know: use the version that made it")
            }
            Self::Damaged { at, what } => {
                f.write_str("the file is damaged")?;
                if let Some(at) = at {
                    write!(f, " at byte {at}")?;
                }
                write!(f, ": {what}; open a copy of it instead, such as `save` makes")
            }
            Self::DescriptorLost => BlockError::DescriptorLost.fmt(f),
            Self::Blocks(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The text tells the cause already: what comes next is the cause's own.
        match self {
            Self::System { error, .. } => error.source(),
            Self::Blocks(error) => error.source(),
            Self::Refused(error) => error.source(),
            _ => None,
        }
    }
}
