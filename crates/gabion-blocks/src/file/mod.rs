//! Blocks in a file: what is written to them is there again for the next process.
//!
//! ```text
//! offset 0        superblock: what the file is, and which numbers its blocks have
//!        4 MiB    table: a word for each block of the file, which says what it is used for
//!        12 MiB   block 0 │ block 1 │ block 2 │ …                                      each 4 MiB
//! ```
//! A block is used for nothing, for a heap, whose header says the rest, for a run (a head of 64 bytes, then its bytes),
//! or for the log: records, one behind the other. `docs/layouts.md` has the words that say so.
//!
//! The file is mapped, and shared: a store to a block is a store to the system's cache of the file, which outlives the
//! process however that ends. Nothing in a block is an address. Each change of the table and of the log is one store of
//! a word, after all that it speaks of. So a process that opens the file after another was killed finds each change
//! whole or not at all.
//!
//! What is on the *disk* is another matter: the system writes pages in whatever order it likes. [`BlockFile::flush`]
//! waits until all is there.
//!
//! | module | what it holds |
//! |---|---|
//! | `error` | why a file cannot be opened or written |
//! | `layout` | what the words of superblock, table, runs and log mean |
//! | `space` | which part of the file lies at which address |
//! | `log_block` | where a block of the log ends |
//! | `opening` | from a path to a file that is open, locked, and one of ours |
//! | `mapped` | the file: opened, grown, flushed, let go |
//! | `looking` | what is looked at, and mended, when a file is opened |
//! | `runs` | rows of blocks for what is too long for a chunk |
//! | `log` | records that are appended and never changed |
//! | `draft` | a file that is written whole, and given its name when it is complete |
//! | `fork` | the file opened, and a forked child's stores kept its own |

mod error;

mod layout;

mod space;

mod log_block;

mod opening;

mod mapped;

mod looking;

mod runs;

mod log;

mod draft;

mod fork;

#[cfg(test)]
mod tests;

pub use draft::{Draft, Numbering};
pub use error::FileError;
pub use mapped::{BlockFile, FileOptions, FileSummary};
pub use runs::RunRoom;
