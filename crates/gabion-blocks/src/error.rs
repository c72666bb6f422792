use std::fmt;

/// Why memory was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// A budget would have been exceeded. All sizes in bytes.
    Limit {
        /// What was asked for.
        asked: u64,
        /// What was in use when it was asked.
        used: u64,
        /// The budget's limit.
        limit: u64,
    },
    /// The operating system refused to map memory.
    Refused {
        /// Bytes asked for.
        asked: u64,
        /// The system's error number (`errno`).
        errno: i32,
    },
    /// Every block number or owner number of the process is taken.
    Exhausted {
        /// Which numbers ran out.
        what: &'static str,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit { asked, used, limit } => {
                write!(f, "{asked} bytes asked for, {used} of {limit} bytes in use: remove objects or raise the limit")
            }
            Self::Refused { asked, errno } => write!(
                f,
                "the operating system refused to map {asked} bytes (errno {errno}): free memory or lower the load"
            ),
            Self::Exhausted { what } => {
                write!(f, "all {what} of this process are taken: drop what is no longer used")
            }
        }
    }
}

impl std::error::Error for BlockError {}
