//! Why memory was not given, and what is said then.

use std::fmt;
use std::time::Duration;

use crate::SYSTEM_PAGE;

/// Why memory was not given. All sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// A budget would have been exceeded.
    Limit {
        /// What was asked for.
        asked: u64,
        /// What was in use when it was asked.
        used: u64,
        /// The budget's limit.
        limit: u64,
    },
    /// One request asked for more than a single request may.
    TooLarge {
        /// What was asked for.
        asked: u64,
        /// The most that one request may ask for.
        limit: u64,
    },
    /// One request asked for more than this machine has. The system might promise it, and could not keep its word.
    Machine {
        /// What was asked for.
        asked: u64,
        /// The machine's memory and swap.
        limit: u64,
    },
    /// The pool's total limit leaves no room, and too little is idle in whole blocks, which alone can be given back.
    Total {
        /// What was asked for.
        asked: u64,
        /// What is mapped for buffers and groups.
        used: u64,
        /// How much of that is idle: nearly all of it lies in blocks that are partly in use.
        idle: u64,
        /// The pool's total limit.
        limit: u64,
    },
    /// The pool's total limit left no room for as long as the request would wait.
    TimedOut {
        /// What was asked for.
        asked: u64,
        /// What is mapped for buffers and groups.
        used: u64,
        /// How much of that is idle.
        idle: u64,
        /// The pool's total limit.
        limit: u64,
        /// How long it was waited.
        waited: Duration,
        /// Whether requests that came before it waited to the end, too: those are served first.
        behind: bool,
    },
    /// The caller, which waited for room, was told to stop.
    Interrupted,
    /// The operating system has no more memory, and the pool has given back all that was idle.
    NoMemory {
        /// Bytes asked for.
        asked: u64,
        /// What the pool has lent.
        in_use: u64,
        /// What is idle in the pool and cannot be given back, because it shares its blocks with what is in use.
        idle: u64,
        /// The system's error number (`errno`).
        errno: i32,
    },
    /// There is no memory for gabion's own bookkeeping, which `malloc` gives.
    Refused {
        /// Bytes asked for.
        asked: u64,
        /// The system's error number (`errno`).
        errno: i32,
    },
    /// The disk has no room for a file to grow, or the file may not grow so far.
    Disk {
        /// Bytes that the file was to have more.
        asked: u64,
        /// The system's error number (`errno`).
        errno: i32,
    },
    /// Something else in this process has closed the descriptor of a pile's file, whose number may be another file's by
    /// now. What was put before is in the file.
    DescriptorLost,
    /// Every block number or owner number of the process is taken.
    Exhausted {
        /// Which numbers ran out.
        what: &'static str,
    },
    /// A setting or a request makes no sense.
    Setting {
        /// What it should be.
        what: &'static str,
    },
}

impl BlockError {
    /// What is said where there is no memory for `asked` bytes of somebody's bookkeeping.
    pub const fn out_of_memory(asked: usize) -> Self {
        Self::Refused { asked: asked as u64, errno: libc::ENOMEM }
    }
}

/// What was asked for, and what the total limit is taken by.
fn taken(f: &mut fmt::Formatter<'_>, asked: u64, used: u64, idle: u64, limit: u64) -> fmt::Result {
    write!(f, "{asked} bytes asked for, {} of {limit} bytes in use", used.saturating_sub(idle))?;
    // Where all that is idle would not do, how it lies is not why.
    if idle > 0 && used.saturating_sub(idle).saturating_add(asked) <= limit {
        write!(f, " and {idle} idle, too few of them in whole blocks")?;
    }
    Ok(())
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit { asked, used, limit } => {
                write!(f, "{asked} bytes asked for, {used} of {limit} bytes in use: remove objects or raise the limit")
            }
            Self::TooLarge { asked, limit } => {
                write!(
                    f,
                    "{asked} bytes asked for, {limit} allowed in one request: ask for less or raise allocation_limit"
                )
            }
            Self::Machine { asked, limit } => {
                write!(f, "{asked} bytes asked for, more than this machine's memory and swap ({limit}): ask for less")
            }
            Self::Total { asked, limit, .. } if asked > limit => {
                write!(f, "{asked} bytes asked for, more than total_limit ({limit}): ask for less or raise total_limit")
            }
            Self::Total { asked, limit, .. } if asked.next_multiple_of(SYSTEM_PAGE as u64) > limit => write!(
                f,
                "{asked} bytes asked for, in whole pages more than total_limit ({limit}): ask for less or raise \
                 total_limit"
            ),
            Self::Total { asked, used, idle, limit } => {
                taken(f, asked, used, idle, limit)?;
                f.write_str(": release buffers, wait with a timeout, or raise total_limit")
            }
            // Who did not wait is told what those are told who would not.
            Self::TimedOut { asked, used, idle, limit, waited, behind: false } if waited.is_zero() => {
                Self::Total { asked, used, idle, limit }.fmt(f)
            }
            Self::TimedOut { asked, used, idle, limit, waited, behind } => {
                taken(f, asked, used, idle, limit)?;
                if behind {
                    write!(
                        f,
                        "; requests that came before it still waited after {waited:?}, and are served first: release \
                         buffers, wait longer, ask without a timeout, or raise total_limit"
                    )
                } else {
                    write!(
                        f,
                        "; not enough came back within {waited:?}: release buffers, wait longer, or raise total_limit"
                    )
                }
            }
            Self::Interrupted => f.write_str("told to stop while waiting for memory: ask again"),
            Self::NoMemory { asked, in_use, idle, errno } => write!(
                f,
                "the operating system has no {asked} bytes left (errno {errno}); the pool has lent {in_use} bytes and \
                 keeps {idle} idle beside them: release buffers or lower the load"
            ),
            Self::Refused { asked, errno } => write!(
                f,
                "the operating system has no memory for {asked} bytes of bookkeeping (errno {errno}): free memory or lower \
                 the load"
            ),
            Self::Disk { asked, errno } => write!(
                f,
                "the file cannot grow by {asked} bytes: {}; free room on the disk, or remove objects",
                std::io::Error::from_raw_os_error(errno)
            ),
            Self::DescriptorLost => f.write_str(
                "this program has closed the descriptor that gabion had of the pile's file, and its number may be another \
                 file's by now, which is left alone: close the pile and open it again; what was put is in the file",
            ),
            Self::Exhausted { what } => {
                write!(f, "all {what} of this process are taken: drop what is no longer used")
            }
            Self::Setting { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for BlockError {}
