//! The first picture of a TIFF file, a row of its strips or tiles at a time.
//!
//! | module | what it holds |
//! |---|---|
//! | `bytes` | the file, as the library reads it |
//! | `directory` | what the file stores beside its pixels, and where |
//! | `samples` | samples of all depths to pixels |
//! | `kind` | what kind of pixels a file has, and whether they can be read |
//! | `picture` | the picture, a row of chunks at a time |

mod bytes;

mod directory;

mod samples;

mod kind;

mod picture;

#[cfg(test)]
pub(crate) use directory::pages;
pub use picture::Tiff;
