//! Images on the pool: load, resize, save.
//!
//! ```
//! use gabion_image::{Image, Mode, OpenOptions, Pool, SaveOptions};
//! let pool = Pool::global();
//! # let folder = tempfile::tempdir()?;
//! # let (photo, small) = (folder.path().join("photo.jpg"), folder.path().join("small.webp"));
//! # Image::new(pool, Mode::RGB, 900, 600, &[90, 120, 60])?.save(&photo, &SaveOptions::default())?;
//! // Decoded no larger than needed, strip by strip: the full picture is never in memory.
//! let image = Image::open(pool, &photo, &OpenOptions::thumbnail(150, 150))?;
//! assert_eq!(image.size(), (150, 100));
//! image.save(&small, &SaveOptions::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`Image`] lies on the pool of `gabion-blocks`: rows in parts of at most 4 MiB, never cut, given back when the
//! image is dropped. Rows flow through everything: decoders hand them over one by one, the filters of a new size take
//! them one by one, and only what comes out is held.
//!
//! ```text
//!   bytes ──► decode ──► rows of layers ──► resample ──► rows of the image ──► encode ──► bytes
//!             (scaled)   (one layer, or Y, Cb, Cr)       (parts on the pool)
//! ```
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `mode`, `format`, `error`, `limits`, `metadata` | words: what a pixel and a file are, what can go wrong, how much is allowed |
//! | `simd` | the widest instructions of this processor |
//! | `writer` | writers that keep or stop at an error |
//! | `libwebp` | the C library of that name, and all unsafe code |
//! | `image` | pixels in rows |
//! | `sides` | what layers a picture comes in |
//! | `convert`, `geometry` | other modes; crops, turns, pasting |
//! | `resample` | rows of one size to rows of another |
//! | `assembly` | from the rows of a decoder to an image |
//! | `resize` | an image in another size |
//! | `decode` | bytes to rows, by libraries |
//! | `encode` | rows to bytes, by libraries |
//! | `save` | files that are written aside and renamed |
//! | `file` | open, save, thumbnails |
//! | `probe` | what a file says of its picture |
//!
//! Which library reads and writes which format, and why, stands in `docs/images.md`.

#![deny(unsafe_code)]
#![allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "samples, weights and sizes are clamped to what the narrower type holds"
)]

mod mode;

mod format;

mod error;

mod limits;

mod metadata;

mod simd;

mod writer;

mod libwebp;

mod image;

mod sides;

mod convert;

mod geometry;

mod resample;

mod assembly;

mod resize;

mod decode;

mod encode;

mod save;

mod file;

mod probe;

#[cfg(test)]
mod tests;

/// The page for users, so that its example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/images.md")]
struct Page;

pub use encode::{Compression, SaveOptions, Subsampling};
pub use error::{ImageError, LimitKind, Result};
pub use file::{OpenOptions, thumbnail};
pub use format::{Format, Formats};
/// Where pixels lie; `Pool::global()` is that of the process.
pub use gabion_blocks::Pool;
pub use geometry::{Flip, Overlap, Region, Turn};
pub use image::Image;
pub use limits::{LONGEST_SIDE, Limits};
pub use metadata::{Metadata, Orientation};
pub use mode::Mode;
pub use probe::Probe;
pub use resample::{Filter, Resampling};
pub use resize::Fit;
pub use save::save_atomically;
